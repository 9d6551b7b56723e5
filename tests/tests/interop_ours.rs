//! Arrays that we made, wrote or left behind, judged by the kernel's md and mdadm.
//!
//! Whatever we do to members, md must find superblocks it agrees with, every byte where it looks
//! for it, and redundancy that passes its own check; and what a member missed, md must not trust.

use raid_core::units::Sectors;
use raid_tests::images::{self, Images};
use raid_tests::matrix::{self, CONTENT, Row};
use raid_tests::md::{self, Job};
use raid_tests::ours::{self, Random};
use raid_tests::requires::{self, Need};
use std::path::PathBuf;

/// Members for a row, empty, in a directory of their own.
fn members(images: &Images, name: &str, row: &Row) -> Vec<PathBuf> {
    let dir = images.subdir(name);
    let member = |(slot, &size)| images::sparse(&dir.join(format!("m{slot}.img")), size);
    row.sizes.iter().enumerate().map(member).collect()
}

/// How much to use of each member: enough that every role comes to every slot, and little.
fn size(row: &Row) -> Option<Sectors> {
    let chunk = row.geometry.chunk_kib.unwrap_or(64);
    let rows = row.sizes.len() as u64 + 1;
    (row.number > 0).then(|| Sectors::kib((chunk * rows).max(1024)))
}

/// A slot to leave out, and a second one where two may be missing.
fn without(i: usize, row: &Row) -> Vec<usize> {
    let slots = row.sizes.len();
    match row.number == 6 && i.is_multiple_of(2) {
        true => vec![i % slots, (i + 1 + i / 2 % (slots - 1)) % slots],
        false => vec![i % slots],
    }
}

/// We make and fill every row, the kernel judges all of it.
fn made_by_us(rows: &[Row]) {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    let largest = rows.iter().map(|row| row.sizes.iter().sum()).max().unwrap_or(0);
    CONTENT.write_file(&content, largest).unwrap();
    let (mut jobs, mut expected) = (Vec::new(), Vec::new());
    for (i, row) in rows.iter().enumerate() {
        let members = members(&images, &format!("array{i}"), row);
        // Every sixth uses all there is; every sixth is resynced by us.
        let size = size(row).filter(|_| i % 6 != 0);
        ours::make(row, &members, size, i % 6 != 3);
        let array = ours::start(&ours::open(&members));
        ours::fill(&array, &mut Random(i as u64));
        ours::settle(&array);
        expected.push((members.len(), array.size()));
        array.stop().unwrap();
        let all = ours::slots_without(&members, &[]);
        jobs.push(Job::judge(row.name(), &all, &content));
        if row.number > 0 && i % 3 == 1 {
            let without = without(i, row);
            let some = ours::slots_without(&members, &without);
            expected.push((members.len() - without.len(), array.size()));
            let name = format!("{} without {without:?}", row.name());
            jobs.push(Job::judge(name, &some, &content));
        }
    }
    for (report, (members, size)) in md::run(&jobs).iter().zip(expected) {
        report.expect_good(members);
        assert_eq!(report.number("size"), size, "{}", report.name);
    }
}

#[test]
fn linear_raid0_and_raid1_of_ours_are_good_to_the_kernel() {
    made_by_us(&matrix::plain());
}

#[test]
fn raid4_and_raid5_of_ours_are_good_to_the_kernel() {
    made_by_us(&matrix::single_parity());
}

#[test]
fn raid6_of_ours_is_good_to_the_kernel() {
    made_by_us(&matrix::double_parity());
}

#[test]
fn raid10_of_ours_is_good_to_the_kernel() {
    made_by_us(&matrix::copies());
}
