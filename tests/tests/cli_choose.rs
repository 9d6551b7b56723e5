//! Members of several arrays at once: explained array by array, chosen by name or id; and the
//! halves of an array that went separate ways.

use raid_tests::cli::Desk;
use raid_tests::images::MIB;
use raid_tests::requires::{Need, met};

/// A RAID 5 without a name, a RAID 1 called home, half of another one, and an empty file.
fn mixed() -> Desk {
    let desk = Desk::new();
    desk.members("a b c x y p q empty", 8 * MIB);
    desk.fine("create -l 5 -n 3 a b c");
    desk.fine("create -l 1 -n 2 -N home --homehost box x y");
    desk.fine("create -l 1 -n 2 -N lone p q");
    desk
}

#[test]
fn every_array_of_a_mix_is_explained() {
    let desk = mixed();
    let before = desk.prints();
    let ran = desk.run("assemble --explain y a p empty c x b");
    assert_eq!(ran.code, 3, "one lacks a member: {ran:?}");
    for words in [
        " of a, c, b:\n",
        "raid1 \"box:home\" of y, x:\n",
        "raid1 \"lone\" of p:\n",
        "  a: in, slot 0\n",
        "  would start: raid5, 3 of 3 members",
        "  would start: raid1, 2 of 2 members",
        "  would not start: array \"lone\" has 2 slots, but slot 1",
        "empty: of no array",
    ] {
        assert!(ran.out.contains(words), "{words:?} is not in {}", ran.out);
    }
    assert!(!ran.out.contains("out: a member of another"), "{}", ran.out);
    assert_eq!(desk.run("assemble --explain --degraded y a p c x b").code, 0);
    assert_eq!(desk.prints(), before);
}

#[test]
fn a_mix_is_refused_with_commands_that_work() {
    let desk = mixed();
    let ran = desk.run("cat --length 1 a b c x y");
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("belong to 2 arrays; choose one") && !ran.err.contains(": out"));
    let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("raid-fuse cat")).collect();
    assert_eq!(told.len(), 2, "{}", ran.err);
    for line in told {
        let ran = desk.shell(line);
        assert_eq!((ran.code, ran.out.len()), (0, 1), "{line}: {ran:?}");
    }
    desk.refused("status a b c x y", 4, "raid-fuse status --uuid");
}

#[test]
fn an_array_is_chosen_by_name_or_id() {
    let desk = mixed();
    for name in ["home", "box:home"] {
        let status = desk.json(&format!("status --json --name {name} a b c x y"));
        assert_eq!((&status["level"], &status["health"]), (&"raid1".into(), &"ok".into()));
    }
    let uuid = desk.json("status --json a b c")["uuid"].as_str().unwrap().to_string();
    let status = desk.json(&format!("status --json --uuid {uuid} a b c x y"));
    assert_eq!(status["level"], "raid5");
    let strangers = status["warnings"].to_string();
    assert!(strangers.contains("x: out: a member of another array, raid1"), "{strangers}");
    assert!(desk.run("cat --length 1 -N home a x y").err.contains("a: out"), "told, and used not");
    desk.refused("cat --name nobody a b c x y", 4, "raid1 \"box:home\" of x, y");
    let ran = desk.run("cat --length 1 --name nobody a b c x y");
    let told: Vec<&str> = ran.err.lines().filter(|line| line.contains("raid-fuse cat")).collect();
    assert_eq!(told.len(), 2, "{}", ran.err);
    assert!(told.iter().all(|line| desk.shell(line).code == 0), "{told:?}");
    desk.refused("cat --name nobody empty", 4, "nor of any other");
    for words in ["check", "repair --dry-run"] {
        desk.fine(&format!("{words} --name home a x y"));
        desk.refused(&format!("{words} --name nobody a x y"), 4, "raid1 \"box:home\" of x, y");
    }
    desk.refused("cat --name home --uuid 0 x y", 64, "--uuid");
    let other = "0123456789abcdef0123456789abcdef";
    desk.refused(&format!("status --uuid {other} x y"), 4, "no device belongs to array");
    desk.refused(&format!("cat --uuid {other} x y"), 4, "no device belongs to array");
    // Two of one name: it takes the id.
    desk.members("r s", 8 * MIB);
    desk.fine("create -l 1 -n 2 -N home r s");
    desk.refused("cat --name home x y r s", 4, "2 arrays called \"home\"");
    assert!(!desk.run("cat --name home x y r s").err.contains("--name home"));
}

#[test]
fn a_stranger_among_the_members_stays_visible_while_mounted() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = mixed();
    desk.folder("mnt");
    desk.fine("mount --name home a x y mnt");
    let ran = desk.run("status mnt");
    assert!(ran.code == 0 && ran.out.contains("start: a: out: a member of another"), "{ran:?}");
    desk.fine("unmount mnt");
}

#[test]
fn an_array_without_a_name_is_not_called_by_its_id() {
    let desk = mixed();
    let uuid = desk.json("status --json a b c")["uuid"].as_str().unwrap().to_string();
    for words in ["cat a b", "cat a", "mount a b c.gone mnt", "assemble --explain a b"] {
        let ran = desk.run(words);
        assert!(ran.code != 0 && !ran.err.contains(&uuid), "{words}: {}", ran.err);
    }
    desk.refused("cat a b", 3, "the raid5 array has 3 slots");
    desk.refused("cat p", 3, "array \"lone\" has 2 slots");
}

#[test]
fn the_halves_of_a_split_mirror_are_compared() {
    let desk = mixed();
    for (member, offset, text) in [("x", 0, "old"), ("y", 0, "new"), ("y", MIB, "more")] {
        let line = format!("printf {text} | raid-fuse write --degraded --offset {offset} {member}");
        assert_eq!(desk.shell(&line).code, 0);
    }
    let before = desk.prints();
    let ran = desk.run("assemble --explain --diff x y");
    assert_eq!(ran.code, 4, "{ran:?}");
    let expected = "comparing half x with half y:\n  bytes 0 to 511 (512 bytes)\n  \
                    bytes 1048576 to 1049087 (512 bytes)\nin all 2 ranges with 1.0 KiB";
    assert!(ran.out.contains(expected), "{}", ran.out);
    assert!(ran.out.contains("; 7 bytes in them differ"), "{}", ran.out);
    let next = "`raid-fuse assemble --explain --diff x y`";
    assert!(ran.err.contains(next), "the refusal says how to compare: {}", ran.err);
    assert!(ran.err.contains("x: out: 2 events, last updated"), "{}", ran.err);
    assert_eq!(desk.prints(), before);
    // Also beside another array, and of one that is whole.
    let ran = desk.run("assemble --explain --diff x y a b c");
    assert!(ran.out.contains("half x with half y") && ran.out.contains("no difference to show"));
}

#[test]
fn halves_that_hold_the_same_say_so() {
    let desk = mixed();
    for member in ["x", "y"] {
        let line = format!("printf same | raid-fuse write --degraded {member}");
        assert_eq!(desk.shell(&line).code, 0);
    }
    let ran = desk.run("assemble --explain --diff x y");
    assert!(ran.code == 4 && ran.out.contains("are the same: either half will do"), "{ran:?}");
}

#[test]
fn halves_of_a_raid10_are_compared_chunk_by_chunk() {
    let desk = Desk::new();
    desk.members("a b c d", 8 * MIB);
    desk.fine("create -l 10 -n 4 -c 64 a b c d");
    for (half, text) in [("a c", "1"), ("b d", "2")] {
        let line = format!("printf {text} | raid-fuse write --degraded --offset 64K {half}");
        assert_eq!(desk.shell(&line).code, 0);
    }
    let ran = desk.run("assemble --explain --diff a b c d");
    assert!(ran.out.contains("half a c with half b d"), "{ran:?}");
    assert!(ran.out.contains("  bytes 65536 to 66047 (512 bytes)\nin all 1 range"), "{ran:?}");
}
