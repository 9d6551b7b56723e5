//! `assemble --what-if`: arrays that do not start, and the way that is found.

use raid_core::meta::md1::packet::checksum;
use raid_tests::cli::Desk;
use raid_tests::images::{self, MIB};
use std::fs;

/// Where md 1.2 puts its superblock, in bytes.
const SUPER_AT: u64 = 4096;
/// Bytes of the part of a superblock that the checksum covers, with a role map of 128.
const SUPER_LEN: usize = 512;

/// Changes fields of a member's superblock and makes the checksum right again.
fn patch(desk: &Desk, name: &str, change: impl Fn(&mut [u8])) {
    let mut bytes = images::read(&desk.path(name), SUPER_AT, SUPER_LEN);
    change(&mut bytes);
    let sum = checksum(&bytes);
    bytes[216..220].copy_from_slice(&sum.to_le_bytes());
    images::write(&desk.path(name), SUPER_AT, &bytes);
}

fn add(bytes: &mut [u8], at: usize, number: i64) {
    let word = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    bytes[at..at + 8].copy_from_slice(&word.wrapping_add_signed(number).to_le_bytes());
}

fn add_events(bytes: &mut [u8], number: i64) {
    add(bytes, 200, number);
}

fn add_seconds(bytes: &mut [u8], number: i64) {
    add(bytes, 192, number);
}

/// Device `number` is called faulty.
fn accuse(bytes: &mut [u8], number: usize) {
    bytes[256 + 2 * number..][..2].copy_from_slice(&0xfffe_u16.to_le_bytes());
}

fn empty(desk: &Desk, options: &str, names: &str) {
    desk.members(names, 8 * MIB);
    desk.fine(&format!("create {options} {names}"));
}

fn filled(desk: &Desk, options: &str, names: &str) {
    empty(desk, options, names);
    let line = format!("seq 1 3000000 | head -c 6000000 | raid-fuse write {names}");
    assert_eq!(desk.shell(&line).code, 0);
}

fn assert_says(said: &str, words: &[&str]) {
    for words in words {
        assert!(said.contains(words), "{words:?} is not in {said}");
    }
}

const FIVE: &str = "d0 d1 d2 d3 d4";

#[test]
fn one_member_that_calls_all_others_failed_is_left_out() {
    for lead in [0, 3] {
        let desk = Desk::new();
        filled(&desk, "-l 6 -n 5 -c 64", FIVE);
        patch(&desk, "d0", |bytes| {
            (1..5).for_each(|number| accuse(bytes, number));
            add_events(bytes, lead);
        });
        let before = desk.prints();
        assert_eq!(desk.run(&format!("assemble --explain {FIVE}")).code, 2);
        let said = desk.fine(&format!("assemble --what-if {FIVE}"));
        assert_says(
            &said,
            &[
                "says that d1, d2, d3, d4 failed or left\n",
                "1. all members, as they are: does not start\n",
                "without d0, with --degraded: starts, 4 of 5 members\n",
                "d1: in, slot 1\n",
                "redundancy: 64 random rows agree 100%\n",
                "each in the slot it claims: 64 random rows agree 100%\n",
                "  raid-fuse mount --degraded d1 d2 d3 d4 MOUNTPOINT\n",
            ],
        );
        assert_eq!(desk.prints(), before, "it wrote something");
        assert_eq!(desk.run("assemble --explain --degraded d1 d2 d3 d4").code, 0);
    }
}

/// A member fell out 655 events ago, another is gone.
#[test]
fn a_stale_member_is_forced_on_an_overlay_only() {
    let desk = Desk::new();
    empty(&desk, "-l 5 -n 4 -c 64 --bitmap internal", "d0 d1 d2 d3");
    for name in ["d0", "d1"] {
        patch(&desk, name, |bytes| {
            accuse(bytes, 2);
            add_events(bytes, 655);
            add_seconds(bytes, 2 * 86_400 + 3 * 3600);
        });
        // The bitmap's own counter goes with it.
        images::write(&desk.path(name), 2 * SUPER_AT + 24, &[0, 16]);
    }
    let said = desk.fine("assemble --what-if d2 d1 d0");
    assert_says(
        &said,
        &[
            "d2 is 655 events behind, last updated 2 days 3 hours before the latest; ",
            "; by the bitmap at most 64.0 MiB (67.1 MB) of each member changed since\n",
            "1. all members, as they are: does not start\n",
            "all members, with --force: starts, 3 of 4 members\n",
            "d2: in, slot 2: forced, although stale",
            "redundancy: nothing to compare",
            "  raid-fuse mount --force --overlay CHANGES d0 d1 d2 MOUNTPOINT\n",
        ],
    );
    let ran = desk.run("assemble --what-if d0");
    assert!(ran.code == 2 && ran.out.contains("none of these ways starts"), "{ran:?}");
}

#[test]
fn both_halves_of_a_split_mirror_are_shown() {
    let desk = Desk::new();
    filled(&desk, "-l 1 -n 2", "a b");
    patch(&desk, "a", |bytes| accuse(bytes, 1));
    patch(&desk, "b", |bytes| {
        accuse(bytes, 0);
        add_seconds(bytes, 60);
    });
    images::flip(&desk.path("b"), 4 * MIB, 4096);
    let said = desk.fine("assemble --what-if --sample 1000 a b");
    assert_says(
        &said,
        &[
            "each in the slot it claims: 1 of ",
            "all members, as they are: does not start\n",
            "each member says the other is faulty",
            "without a, with --degraded: starts, 1 of 2 members\n",
            "without b, with --degraded: starts, 1 of 2 members\n",
            "look at both before you write",
            "  raid-fuse mount --degraded --read-only b MOUNTPOINT\n",
            "  raid-fuse mount --overlay CHANGES --degraded b MOUNTPOINT\n",
        ],
    );
    assert!(!said.contains("mount --degraded b"), "to write to one half ends all doubt: {said}");
}

/// A backup lies beside the members.
#[test]
fn of_two_copies_of_a_member_each_is_left_out_in_turn() {
    let desk = Desk::new();
    filled(&desk, "-l 5 -n 3 -c 64", "a b c");
    fs::copy(desk.path("b"), desk.path("backup")).unwrap();
    images::flip(&desk.path("backup"), 3 * MIB, 65536);
    let said = desk.fine("assemble --what-if --sample 1000 a backup b c");
    assert_says(
        &said,
        &[
            "1. all members, as they are: does not start\n",
            "two copies of one member",
            "without backup, as they are: starts, 3 of 3 members\n",
            "without b, as they are: starts, 3 of 3 members\n",
            "  raid-fuse mount a b c MOUNTPOINT\n",
        ],
    );
}

#[test]
fn rows_at_risk_of_a_dirty_degraded_array_are_listed() {
    let desk = Desk::new();
    empty(&desk, "-l 5 -n 4 -c 64 --bitmap internal --bitmap-chunk 64K", "d0 d1 d2 d3");
    for name in ["d1", "d2", "d3"] {
        patch(&desk, name, |bytes| bytes[208..216].fill(0));
        // The bitmap lies behind the superblock: all bits cleared, two set.
        images::write(&desk.path(name), 2 * SUPER_AT + 256, &[0; 512]);
        images::write(&desk.path(name), 2 * SUPER_AT + 256, &[0b10_1000]);
    }
    let said = desk.fine("assemble --what-if d1 d2 d3");
    assert_says(
        &said,
        &[
            "d1: slot 1, ",
            ", not stopped cleanly\n",
            "at risk: 2 rows (by the bitmap): rows 3, 5; what slot 0 held there may be wrong\n",
            "  raid-fuse mount --degraded --read-only d1 d2 d3 MOUNTPOINT\n",
            "  raid-fuse mount --force --overlay CHANGES d1 d2 d3 MOUNTPOINT\n",
        ],
    );
}

#[test]
fn a_healthy_array_starts_as_it_is() {
    let desk = Desk::new();
    filled(&desk, "-l 5 -n 3 -c 64", "a b c");
    let said = desk.fine("assemble --what-if c b a");
    assert_says(&said, &["best: 1\n", "  raid-fuse mount a b c MOUNTPOINT\n", "agree 100%"]);
    assert!(!said.contains("\n2. "), "{said}");
    desk.members("x y", 8 * MIB);
    desk.fine("create -l 1 -n 2 x y");
    desk.refused("assemble --what-if a b x", 4, "--uuid");
    desk.refused("assemble --what-if --force a b c", 64, "leave them out");
    desk.refused("assemble --what-if --explain a b c", 64, "cannot be used with");
}
