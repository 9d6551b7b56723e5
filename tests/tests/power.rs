//! A power cut under writes: what was answered is there after the next start, whoever looks.

use raid_core::driver::Array;
use raid_core::units::Sectors;
use raid_tests::images::{self, Images, MIB};
use raid_tests::matrix;
use raid_tests::ours::{self, Expected, Random};
use raid_tests::power;

/// The content of an array that was cut off, as it is after the next start.
fn content(array: &Array) -> Vec<u8> {
    let mut found = vec![0; array.size() as usize];
    array.read(0, &mut found).unwrap();
    found
}

/// All members lose power at once, so the first that failed cannot be recorded as failed by the
/// others: a write that it missed must not be acknowledged.
#[test]
fn no_write_is_acknowledged_that_a_power_cut_undoes() {
    let images = Images::new();
    let rows = [matrix::single_parity(), matrix::double_parity(), matrix::copies()].concat();
    // Single parity most: there one member fails and the next one breaks the array.
    let single = matrix::single_parity().into_iter();
    let rows = single.chain(rows.into_iter().step_by(6));
    for (i, row) in rows.enumerate() {
        let dir = images.subdir(&format!("array{i}"));
        let member = |slot| images::sparse(&dir.join(format!("m{slot}.img")), 4 * MIB);
        let members: Vec<_> = (0..row.sizes.len()).map(member).collect();
        ours::make(&row, &members, Some(Sectors::kib(2048)), true);
        let expected = Expected::zeroes(&ours::start(&ours::open(&members)));
        let (expected, open) = power::cut(&members, expected, &mut Random(i as u64));
        let array = ours::start(&ours::open(&members));
        assert!(array.status().degraded.is_empty(), "{}", row.name());
        expected.check_torn(&row.name(), &content(&array), &open);
    }
}
