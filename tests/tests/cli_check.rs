//! Members that are not in use: `check`, `repair`, `corrupt` and `erase-superblock`.

use raid_tests::cli::Desk;
use raid_tests::images::{self, MIB};
use raid_tests::requires::{self, Need};
use serde_json::Value;

/// Sector on the device of sector `at` after the data offset.
fn device_sector(desk: &Desk, name: &str, at: u64) -> u64 {
    let found = desk.json(&format!("examine --json {name}"));
    found["members"][0]["superblocks"][0]["data_offset_bytes"].as_u64().unwrap() / 512 + at
}

/// Inverts `len` bytes from byte `skip` of a data sector on.
fn flip(desk: &Desk, name: &str, at: u64, skip: u64, len: usize) {
    let at = device_sector(desk, name, at) * 512 + skip;
    images::flip(&desk.path(name), at, len);
}

/// A new array of `names` filled with bytes of its own, its redundancy right.
fn filled(desk: &Desk, options: &str, names: &str, bytes: u64) {
    desk.members(names, bytes);
    desk.fine(&format!("create {options} {names}"));
    desk.fine(&format!("check {names}"));
    let line = format!("seq 1 300000 | raid-fuse write {names}");
    assert_eq!(desk.shell(&line).code, 0);
}

fn slots(finding: &Value) -> Vec<u64> {
    finding["wrong_slots"].as_array().unwrap().iter().map(|slot| slot.as_u64().unwrap()).collect()
}

const FOUR: &str = "d0 d1 d2 d3";

/// The numbers are computed by hand from md's formulas.
#[test]
fn a_wrong_page_of_a_raid5_is_named_with_all_it_concerns() {
    let desk = Desk::new();
    filled(&desk, "-l 5 -n 4 -c 512 --assume-clean", FOUR, 72 * MIB);
    flip(&desk, "d1", 123_456, 0, 4096);
    let before = desk.prints();
    let ran = desk.run("check d3 d1 d0 d2");
    assert_eq!(ran.code, 1, "{ran:?}");
    for words in [
        "row 120, in-chunk sector 576, 8 sectors: one of 4 units is wrong: cannot tell which\n",
        "slot 0 (d0): data chunk 360, array sector 369216, member sector 123456 (",
        "slot 1 (d1): data chunk 361, array sector 370240, member sector 123456 (",
        "slot 2 (d2): data chunk 362, array sector 371264, member sector 123456 (",
        "slot 3 (d3): P, member sector 123456 (",
        "bytes 0 to 4095 differ: holds FFFFFFFFFFFFFFFF..; if it is the wrong one, 00000000",
        "1 page of 4 KiB does not agree; mismatch_cnt 8 ",
    ] {
        assert!(ran.out.contains(words), "{words:?} is not in {}", ran.out);
    }
    assert_eq!(ran.err, "");
    let found = desk.json("check --json d0 d1 d2 d3");
    assert_eq!(found["mismatch_cnt"], 8, "{found}");
    assert_eq!(found["findings"][0]["row"], 120);
    assert_eq!(found["findings"][0]["verdict"], "cannot_tell");
    let unit = &found["findings"][0]["units"][1];
    assert_eq!(unit["device_sector"], device_sector(&desk, "d1", 123_456), "{unit}");
    assert_eq!((&unit["chunk"], &unit["role"]), (&361.into(), &"data".into()));
    assert_eq!(desk.prints(), before, "check wrote something");
    // Older than the last change, so that a plain read would renew it.
    let times = "touch -a -d 2001-01-01 d1 && stat -c '%X %Y %Z' d1";
    let before = desk.shell(times).out;
    desk.run("check d0 d1 d2 d3");
    assert_eq!(desk.shell("stat -c '%X %Y %Z' d1").out, before, "check left a timestamp");
}

#[test]
fn raid6_names_who_lies_and_locate_corrects_it() {
    let desk = Desk::new();
    let names = "d0 d1 d2 d3 d4";
    filled(&desk, "-l 6 -n 5 -c 64", names, 8 * MIB);
    let right = desk.prints();
    flip(&desk, "d3", 7 * 128 + 9, 77, 1);
    let text = desk.run(&format!("check {names}"));
    let words = "row 7, in-chunk sector 8, 8 sectors: slot 3 (d3) is wrong: its ";
    assert!(text.code == 1 && text.out.contains(words), "{text:?}");
    assert!(text.out.contains("slot 3 (d3) is wrong in 1 place\n"), "{text:?}");
    let found = desk.json(&format!("check --json {names}"));
    assert_eq!(slots(&found["findings"][0]), [3]);
    let before = desk.prints();
    // Q itself is made anew also by md's rule; a data unit is kept, row 5 has one there.
    let ran = desk.run(&format!("repair --dry-run {names}"));
    assert!(ran.code == 0 && !ran.err.contains("warning: "), "{ran:?}");
    flip(&desk, "d3", 5 * 128 + 9, 77, 1);
    let ran = desk.run(&format!("repair --dry-run {names}"));
    let warning = "P and Q say that slot 3 (d3) is wrong, and a repair without --locate";
    assert!(ran.code == 0 && ran.err.contains(warning), "{ran:?}");
    let ran = desk.run(&format!("repair --dry-run --locate {names}"));
    assert!(!ran.err.contains("warning: "), "{ran:?}");
    flip(&desk, "d3", 5 * 128 + 9, 77, 1);
    assert_eq!(desk.prints(), before, "--dry-run wrote something");
    let said = desk.fine(&format!("repair --dry-run --locate {names}"));
    assert!(said.contains("on slot 3 (d3)") && said.contains("1 place would be"), "{said}");
    assert_eq!(desk.prints(), before, "--dry-run wrote something");
    desk.fine(&format!("repair --locate {names}"));
    assert_eq!(desk.prints(), right, "the old bytes are back");
    flip(&desk, "d3", 7 * 128 + 9, 77, 1);
    flip(&desk, "d1", 7 * 128 + 9, 78, 1);
    let text = desk.run(&format!("check {names}")).out;
    assert!(text.contains("two or more units are wrong: cannot tell which\n"), "{text}");
    let ran = desk.run(&format!("repair --locate {names}"));
    assert!(ran.code == 1 && ran.out.contains("left alone"), "{ran:?}");
    desk.fine(&format!("repair {names}"));
    desk.fine(&format!("check {names}"));
}

#[test]
fn mirrors_show_both_contents_and_three_copies_vote() {
    let desk = Desk::new();
    filled(&desk, "-l 1 -n 2", "a b", 6 * MIB);
    let right = images::read(&desk.path("a"), 0, 6 << 20);
    flip(&desk, "b", 1001, 100, 600);
    let ran = desk.run("check a b");
    for words in [
        "array sector 1001, 2 sectors: 2 copies differ: cannot tell which is wrong\n",
        "bytes 100 to 699 differ: holds ",
        "mismatch_cnt 128 ",
    ] {
        assert!(ran.code == 1 && ran.out.contains(words), "{words:?} is not in {ran:?}");
    }
    desk.refused("repair --majority a b", 4, "three or more copies");
    desk.refused("repair --locate a b", 4, "RAID 6");
    desk.fine("repair a b");
    assert_eq!(images::read(&desk.path("a"), 0, 6 << 20), right, "the first copy is kept");
    desk.fine("check a b");

    filled(&desk, "-l 1 -n 3", "x y z", 6 * MIB);
    let right = desk.prints();
    flip(&desk, "x", 1001, 0, 1);
    let found = desk.json("check --json x y z");
    assert_eq!((slots(&found["findings"][0]), &found["mismatch_cnt"]), (vec![0], &256.into()));
    desk.fine("repair --majority x y z");
    assert_eq!(desk.prints(), right);
}

#[test]
fn what_cannot_be_compared_is_said_and_is_no_mismatch() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    images::write(&desk.path("a"), 4 * MIB, &[7; 4096]);
    desk.fine("create --force -l 5 -n 3 a b c");
    let ran = desk.run("check a b c");
    assert_eq!(ran.code, 4, "nothing was compared: {ran:?}");
    for words in ["a resync is due from sector 0 on", "nothing could", "raid-fuse mount a b c M"] {
        assert!(ran.out.contains(words), "{words:?} is not in {}", ran.out);
    }
    let found = desk.json("check --json a b c");
    assert_eq!((&found["mismatch_cnt"], &found["dirty"]), (&0.into(), &true.into()));
    desk.refused("repair a b c", 4, "a resync comes first");
    desk.refused("check a b", 3, "--degraded");
    desk.refused("repair a b", 3, "every member is needed");
    let ran = desk.run("check --degraded a b");
    assert!(ran.code == 4 && ran.out.contains("nothing could be compared"), "{ran:?}");
    assert!(!ran.out.contains("raid-fuse mount"), "it would be refused: {ran:?}");
    assert!(ran.err.contains("slot 2 had no usable member"), "{ran:?}");
    desk.refused("check a", 2, "cannot be served");
    desk.members("s t", 8 * MIB);
    desk.fine("create -l 0 -n 2 s t");
    let ran = desk.run("check s t");
    assert!(ran.code == 4 && ran.out.contains("nothing to compare"), "{ran:?}");
    desk.refused("repair s t", 4, "no redundancy");
    desk.refused("check .", 4, "nothing of ours is mounted");
    desk.members("text", 8192);
    images::write(&desk.path("text"), 0, &[b'x'; 4096]);
    desk.refused("check text", 4, "superblock");
    desk.refused("check --wait s t", 64, "mounted array");
}

#[test]
fn samples_and_limits_bound_the_work() {
    let desk = Desk::new();
    filled(&desk, "-l 5 -n 4 -c 64", FOUR, 8 * MIB);
    for row in 0..20 {
        flip(&desk, "d2", row * 128, 0, 1);
    }
    let found = desk.json("check --json --sample 40 --seed 3 d0 d1 d2 d3");
    assert_eq!((&found["rows_read"], &found["sample_seed"]), (&40.into(), &3.into()));
    assert_eq!(found, desk.json("check --json --sample 40 --seed 3 d0 d1 d2 d3"));
    let found = desk.json("check --json --limit 5 d0 d1 d2 d3");
    assert_eq!((&found["findings_total"], &found["stopped_by_limit"]), (&5.into(), &true.into()));
    let ran = desk.run("check --show 2 d0 d1 d2 d3");
    assert!(
        ran.out.contains("... and 18 more") && ran.out.contains("mismatch_cnt 160 "),
        "{ran:?}"
    );
}

#[test]
fn corruption_on_purpose_spares_metadata_and_is_repeatable() {
    let desk = Desk::new();
    let names = "d0 d1 d2 d3 d4";
    desk.members(names, 8 * MIB);
    desk.fine(&format!("create -l 6 -n 5 -c 64 --bitmap internal {names}"));
    let data_at = device_sector(&desk, "d1", 0) as usize * 512;
    let before = images::read(&desk.path("d1"), 0, 8 << 20);
    let words = format!("corrupt --slot 1 --data-only --count 5 --seed 7 {names}");
    desk.refused(&words, 4, "--force");
    let said = desk.fine(&format!("{words} --force"));
    assert_eq!(said.lines().filter(|line| line.starts_with("slot 1 (d1): ")).count(), 5, "{said}");
    let after = images::read(&desk.path("d1"), 0, 8 << 20);
    assert_eq!(before[..data_at], after[..data_at]);
    assert_eq!(before.iter().zip(&after).filter(|(a, b)| a != b).count(), 5);
    let found = desk.json(&format!("check --json {names}"));
    assert_eq!(found["members"][1]["wrong"], found["findings_total"], "RAID 6 names it: {found}");
    let again = desk.fine(&format!("{words} --force"));
    assert_ne!(said, again, "values changed back");
    assert_eq!(images::read(&desk.path("d1"), 0, 8 << 20), before, "the same places");
    assert!(desk.run(&format!("corrupt --slot 9 --force {names}")).err.contains("slots 0 to 4"));
}

#[test]
fn erasing_takes_the_superblock_and_nothing_else() {
    let desk = Desk::new();
    desk.members("a b", 8 * MIB);
    for (version, at) in [("1.2", 4096), ("1.1", 0), ("1.0", 8 * MIB - 8192)] {
        desk.fine(&format!("create --force -l 1 -n 2 -e {version} --bitmap internal a b"));
        let bytes = images::read(&desk.path("a"), 0, 8 << 20);
        let prints = desk.prints();
        let said = desk.fine("erase-superblock --dry-run a");
        let words = format!("would be zeroed: bytes {at} to {}", at + 4095);
        assert!(said.contains(&words), "{words:?} is not in {said}");
        for area in ["bitmap", "bad-block log"] {
            assert!(said.contains(&format!("  {area} would be zeroed: bytes ")), "{said}");
        }
        assert!(said.contains("stays as it is: data, bytes "), "{said}");
        assert_eq!(desk.prints(), prints, "--dry-run wrote something");
        desk.refused("erase-superblock -e 0.90 a", 1, "carries no md 0.90 superblock");
        desk.fine("erase-superblock a");
        // The data were zeros, so nothing is left.
        assert!(bytes[at as usize..][..4096].iter().any(|byte| *byte != 0));
        let now = images::read(&desk.path("a"), 0, 8 << 20);
        assert!(now.iter().all(|byte| *byte == 0), "{version}");
        desk.refused("erase-superblock b a", 1, "nothing was erased");
        desk.fine("erase-superblock b");
    }
    desk.fine("create --force -l 1 -n 2 a b");
    desk.fine("erase-superblock a b");
    desk.fine("create -l 1 -n 2 a b");
    images::flip(&desk.path("a"), 4096 + 100, 1);
    desk.refused("erase-superblock a", 4, "--force");
    desk.fine("erase-superblock --force a");
}

#[test]
fn erasing_leaves_what_md_does_not_write_there() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    desk.fine("create -l 5 -n 3 -k ppl a b c");
    // The bad-block log of 1.2 with a PPL, and the first of its entries.
    let said = desk.fine("erase-superblock --dry-run a");
    assert!(said.contains("  empty PPL header would be zeroed: bytes "), "{said}");
    let line = said.lines().find(|line| line.contains("bad-block log would be")).unwrap();
    let at: u64 = line.split(' ').find_map(|word| word.parse().ok()).unwrap();
    images::write(&desk.path("a"), at + 100, b"a letter");
    images::write(&desk.path("a"), 7 * MIB, b"data");
    let said = desk.fine("erase-superblock a");
    assert!(said.contains("stays as it is: bad-block log, bytes "), "{said}");
    let left = images::read(&desk.path("a"), 0, 8 << 20);
    assert_eq!(left[at as usize + 100..][..8], *b"a letter");
    assert_eq!(left[7 << 20..][..4], *b"data");
    desk.fine("erase-superblock b c");
    desk.fine("create -l 5 -n 3 -k ppl missing b c");
}

#[test]
fn members_of_a_mount_are_left_alone() {
    if !requires::met(&[Need::Fuse]) {
        return;
    }
    let desk = Desk::new();
    filled(&desk, "-l 5 -n 3 -c 64", "a b c", 8 * MIB);
    desk.folder("mnt");
    desk.fine("mount --degraded a b mnt");
    for words in
        ["check a b c", "repair a b c", "erase-superblock a", "erase-superblock --dry-run b"]
    {
        desk.refused(words, 5, "mounted on");
    }
    desk.refused("corrupt --slot 0 --force a b c", 5, "mounted on");
    desk.refused("erase-superblock c", 4, "--force");
    desk.refused("check --sample 5 mnt", 64, "--sample is for members");
    desk.refused("repair --dry-run mnt", 64, "--dry-run is for members");
    assert!(desk.fine("check mnt").contains("raid-fuse wait"), "the daemon does it");
    desk.fine("wait mnt");
    desk.fine("unmount mnt");
    desk.fine("erase-superblock c");
}
