//! Our comparison beside the kernel's: the same corrupt members, the same count, the same repair.

use raid_tests::cli::Desk;
use raid_tests::guest::{self, Script};
use raid_tests::images::{MIB, assert_same};
use raid_tests::requires::{self, Need};
use std::fmt::Write as _;
use std::fs;

/// Name, members and the options of `create`.
const ARRAYS: &[(&str, usize, &str)] = &[
    ("mirror", 3, "-l 1"),
    ("write-mostly", 3, "-l 1 -W 0"),
    ("raid4", 3, "-l 4 -c 64"),
    ("raid5", 4, "-l 5 -c 16"),
    ("raid6", 5, "-l 6 -c 64"),
    ("raid6-ddf", 5, "-l 6 -c 64 -p ddf-N-continue"),
    ("near", 4, "-l 10 -c 16"),
    ("near-odd", 3, "-l 10 -c 64"),
    ("far", 3, "-l 10 -p f2 -c 64"),
    ("offset", 5, "-l 10 -p o2 -c 128"),
    ("near3", 4, "-l 10 -p n3 -c 256"),
];

/// Where data begin on members of this size, in bytes: metadata before may differ.
const DATA_AT: u64 = MIB;

fn members(name: &str, count: usize) -> Vec<String> {
    (0..count).map(|slot| format!("{name}.{slot}")).collect()
}

#[test]
fn mismatches_are_counted_and_repaired_as_by_the_kernel() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let desk = Desk::new();
    let (mut script, mut counts) = (String::new(), Vec::new());
    for (name, count, options) in ARRAYS {
        let names = members(name, *count);
        let all = names.join(" ");
        desk.members(&all, 8 * MIB);
        desk.fine(&format!("create --assume-clean -n {count} {options} {all}"));
        assert_eq!(desk.shell(&format!("seq 1 400000 | raid-fuse write {all}")).code, 0);
        for (slot, seed) in [(0, 5), (2, 6)] {
            let words = format!("corrupt --slot {slot} --count 6 --seed {seed} --force {all}");
            desk.fine(&words);
        }
        let found = desk.json(&format!("check --json {all}"));
        counts.push(found["mismatch_cnt"].as_u64().unwrap());
        let mut loops = String::new();
        for member in &names {
            fs::copy(desk.path(member), desk.path(&format!("{member}.kernel"))).unwrap();
            let path = guest::quote(&guest::path(&desk.path(&format!("{member}.kernel"))));
            write!(loops, " $(losetup -f --show {path})").unwrap();
        }
        write!(
            script,
            "mdadm -A /dev/md0{loops} >/dev/null 2>&1\nfor what in check repair check; do\n\
             echo $what > /sys/block/md0/md/sync_action\nmdadm --wait /dev/md0 || true\n\
             echo \"{name} $what $(cat /sys/block/md0/md/mismatch_cnt)\"\ndone\n\
             mdadm --wait-clean /dev/md0 || true\nmdadm --stop /dev/md0 2>/dev/null\n"
        )
        .unwrap();
        desk.fine(&format!("repair {all}"));
    }
    let said = Script::new(script).run().expect_success();
    for ((name, count, _), ours) in ARRAYS.iter().zip(counts) {
        assert!(ours > 0, "{name}: something was corrupted");
        for (what, number) in [("check", ours), ("repair", ours), ("check", 0)] {
            let line = format!("{name} {what} {number}\n");
            assert!(said.contains(&line), "{line:?} is not in {said}");
        }
        for member in members(name, *count) {
            let theirs = desk.path(&format!("{member}.kernel"));
            let data = |path| fs::read(path).unwrap()[DATA_AT as usize..].to_vec();
            if data(desk.path(&member)) != data(theirs.clone()) {
                assert_same(&desk.path(&member), &theirs);
            }
        }
    }
}
