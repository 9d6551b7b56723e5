//! `raid-fuse create`: what it makes, what it tells, and what it refuses without a trace.

use raid_tests::cli::Desk;
use raid_tests::images::MIB;
use raid_tests::requires::{Need, met};
use std::fs;

const ID: &str = "8a0e18a3:60ce8f4a:169c4bee:917744a6";

/// The number before ` bytes` in the line with this label.
fn row(text: &str, label: &str) -> u64 {
    let line = text.lines().find(|line| line.contains(&format!(" {label} :")));
    let line = line.unwrap_or_else(|| panic!("no {label} in {text}"));
    let value = line.split(" : ").nth(1).unwrap().trim();
    value.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn the_account_adds_up() {
    let desk = Desk::new();
    desk.members("a b c", 32 * MIB);
    for words in ["-l 5 -n 3 a b c", "-l 1 -n 3 a b c", "-l 10 -n 3 a b c", "-l 0 -n 2 a b"] {
        let text = desk.fine(&format!("create --dry-run {words}"));
        let second = if words.contains("-l 1") { "copies" } else { "parity" };
        let parts: u64 = ["usable", second, "metadata", "rounding", "unused"]
            .iter()
            .map(|label| row(&text, label))
            .sum();
        let given = 32 * MIB * if words.contains("-n 2") { 2 } else { 3 };
        assert_eq!((parts, row(&text, "sum")), (given, given), "{text}");
    }
}

#[test]
fn a_dry_run_writes_nothing_and_says_so() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    let before = desk.prints();
    let text = desk.fine("create --dry-run -l raid5 -n 3 -c 64 a b c");
    assert!(text.contains("would create") && text.contains("nothing was written"), "{text}");
    assert_eq!(desk.prints(), before);
}

#[test]
fn the_chunk_is_stored_and_printed_also_the_default() {
    let desk = Desk::new();
    desk.members("a b c d", 16 * MIB);
    let cases = [("", "512K (default)", 524_288), ("-c 64", "64K", 65_536), ("-c4K", "4K", 4096)];
    for (words, shown, bytes) in cases {
        let text = desk.fine(&format!("create --force -l 5 -n 3 {words} a b c"));
        assert!(text.contains(&format!("Chunk Size : {shown}\n")), "{text}");
        let found = desk.json("examine --json a");
        assert_eq!(found["members"][0]["superblocks"][0]["chunk_bytes"], bytes, "{words}");
    }
    assert!(desk.fine("create --dry-run -l 0 -n 1 --force -c 12K d").contains("12K"));
}

#[test]
fn every_level_can_be_made_and_examined_by_mdadm() {
    let desk = Desk::new();
    desk.members("a b c d", 16 * MIB);
    let cases = [
        "-l linear -n 4",
        "-l stripe -n 4",
        "-l mirror -n 4",
        "-l 4 -n 4",
        "-l raid5 -n 4 -p ra",
        "-l 6 -n 4",
        "-l 10 -n 4 -p f2",
        "-l 10 -n 4 --layout=o2 -e 1.0",
        "-l 5 -n 4 -e 1.1 -N x",
        "-l 5 -n 4 --bitmap=internal -z 4M",
        "-l 1 -n 4 --data-offset 2M --homehost h --name y",
    ];
    for words in cases {
        desk.fine(&format!("create --force {words} a b c d"));
        if met(&[Need::Mdadm]) {
            for member in ["a", "b", "c", "d"] {
                let ran = desk.shell(&format!("mdadm --examine {member}"));
                assert!(ran.out.contains("- correct"), "{words}: {ran:?}");
            }
        }
        let scan = desk.fine("scan a b c d");
        assert!(scan.contains("4 of 4 members, startable"), "{words}: {scan}");
    }
}

#[test]
fn the_same_words_make_the_same_bytes() {
    let desk = Desk::of_user();
    desk.members("a b", 8 * MIB);
    for member in ["a", "b"] {
        desk.fine(&format!(
            "create -l 1 -n 1 --force -e 1.2 --uuid {ID} --device-uuid {ID} --ctime 1700000000 \
             {member}"
        ));
    }
    assert!(fs::read(desk.path("a")).unwrap() == fs::read(desk.path("b")).unwrap());
    let found = desk.json("examine --json a");
    assert_eq!(found["members"][0]["superblocks"][0]["uuid"], ID);
    if met(&[Need::Mdadm]) {
        assert!(desk.shell("mdadm -E a").out.contains("- correct"));
    }
}

#[test]
fn nothing_that_is_there_is_overwritten_unasked() {
    let desk = Desk::new();
    desk.members("a b c d", 16 * MIB);
    desk.fine("create -l 5 -n 3 -N home a b c");
    desk.refused("create -l 5 -n 3 c b a", 4, "raid5 array \"home\"");
    desk.refused("create -l 5 -n 3 c b a", 4, "raid-fuse mount c b a MOUNTPOINT");
    desk.refused("create -l 1 -n 2 d b", 4, "--force");
    if met(&[Need::Ext4]) {
        assert_eq!(desk.shell("mkfs.ext4 -q d").code, 0);
        desk.refused("create -l 1 -n 2 --force missing missing", 64, "at least one");
        desk.refused("create -l 1 -n 2 d missing", 4, "d: holds an ext4 file system");
    }
    desk.fine("create -l 1 -n 2 --force d b");
    assert!(desk.fine("scan d b").contains("raid1"));
}

#[test]
fn what_makes_no_sense_is_refused_without_a_trace() {
    let desk = Desk::new();
    desk.members("a b c", 16 * MIB);
    desk.members("tiny", 4096);
    fs::write(desk.path("empty"), b"").unwrap();
    std::os::unix::fs::symlink("a", desk.path("link")).unwrap();
    let cases = [
        ("-l 5 -n 3 a b", 64, "--raid-devices says 3, but 2"),
        ("-l 5 -n 3 a b nowhere", 1, "truncate -s 64M nowhere"),
        ("-l 5 -n 3 a b a", 1, "given twice"),
        ("-l 5 -n 3 a b link", 1, "are the same"),
        ("-l 5 -n 3 a b tiny", 1, "tiny: a member of 4096 bytes is too small: "),
        ("-l 5 -n 3 a b empty", 1, "truncate"),
        ("-l 5 -n 3 a b .", 1, "directory"),
        ("-l 1 -n 2 -c 64 a b", 64, "no chunks"),
        ("-l 5 -n 3 -c 12K a b c", 64, "power of two"),
        ("-l 5 -n 3 -p sideways a b c", 64, "sideways"),
        ("-l 5 -n 3 -z 1G a b c", 1, "--size"),
        ("-l 5 -n 3 a missing missing", 2, "1 of 3"),
        ("-l 1 -n 1 a", 4, "--force"),
        ("-l 5 -n 3 --bitmap-chunk 64M a b c", 64, "--bitmap=internal"),
        ("-l 0 -n 2 --bitmap internal a b", 1, "redundancy"),
        ("-l 5 -n 3 --write-mostly 3 a b c", 64, "0 to 2"),
        ("-l 5 -n 3 --device-uuid 8a0e18a360ce8f4a169c4bee917744a6 a b c", 64, "for 3 members"),
        ("-l 7 -n 3 a b c", 64, "known are"),
        ("-l 5 -n 3 -c 64Q a b c", 64, "64Q"),
        ("-l 5 -n 3 -e 0.91 a b c", 64, "1.2"),
        ("-l 5 -n 3 --uuid 12 a b c", 64, "32 hexadecimal"),
        ("-l 5 -n 3", 64, "MEMBER"),
        ("/dev/md0 -l 5 -n 3 a b c", 64, "/dev/md0 has to go: arrays have no device here"),
        ("-l 10 -n 4 missing missing a b", 2, "slots 0 and 1 hold the same data; one of them"),
        ("-l 10 -n 4 -p f2 a missing missing b", 2, "slots 1 and 2 hold the same data"),
        ("-l 6 -n 4 a missing missing missing", 2, "give at least 2"),
    ];
    for (words, code, word) in cases {
        desk.refused(&format!("create {words}"), code, word);
    }
}

#[test]
fn the_first_sync_is_planned_only_where_it_is_needed() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    assert!(desk.fine("create -l 5 -n 3 a b c").contains("hold only zeros"));
    fs::write(desk.path("b"), vec![7; 8 << 20]).unwrap();
    let text = desk.fine("create --force -l 5 -n 3 a b c");
    assert!(text.contains("to be resynced"), "{text}");
    let found = desk.json("examine --json a");
    assert_eq!(found["members"][0]["superblocks"][0]["state"], "active");
    assert!(desk.fine("create --force -l 5 -n 3 --assume-clean a b c").contains("--assume-clean"));
    let text = desk.fine("create --force -l 1 -n 2 a missing");
    assert!(text.contains("degraded") && text.contains("--degraded"), "{text}");
}

#[test]
fn mdadms_words_for_all_there_is_and_for_no_questions_are_known() {
    let desk = Desk::new();
    desk.members("a b", 16 * MIB);
    let all = row(&desk.fine("create --dry-run -l 1 -n 2 a b"), "usable");
    for words in ["-z 0", "-z 0K", "-z max", "--run", "-R"] {
        let text = desk.fine(&format!("create --dry-run -l 1 -n 2 {words} a b"));
        assert_eq!(row(&text, "usable"), all, "{words}: {text}");
    }
}

#[test]
fn a_name_cannot_forge_a_line() {
    let desk = Desk::new();
    desk.members("a b", 16 * MIB);
    for (option, name) in [("--name", "a\nb\u{1b}[31m"), ("--homehost", "a\tb")] {
        let ran = desk.run_words(&["create", "-l1", "-n2", option, name, "a", "b"]);
        assert!(ran.code == 64 && ran.err.contains("has a control character"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
    }
    // Somebody else's array may have one: the name's bytes, and the checksum's.
    desk.fine("create -l 1 -n 2 -N axb a b");
    for member in ["a", "b"] {
        let path = desk.path(member);
        let sum = raid_tests::images::read(&path, 4096 + 0xd8, 4);
        let sum = u32::from_le_bytes(sum.try_into().unwrap());
        raid_tests::images::write(&path, 4096 + 0x20 + 1, b"\n");
        // The second byte of a word that is summed.
        let sum = sum.wrapping_sub((u32::from(b'x') - u32::from(b'\n')) << 8);
        raid_tests::images::write(&path, 4096 + 0xd8, &sum.to_le_bytes());
    }
    for words in ["status a b", "scan a b", "examine a b", "create -l1 -n2 a b"] {
        let ran = desk.run(words);
        let text = ran.out + &ran.err;
        assert!(text.contains("a\u{fffd}b") && !text.contains("a\nb"), "{words}: {text}");
    }
}

#[test]
fn two_mebibytes_are_enough() {
    let desk = Desk::new();
    desk.members("a b", 2 * MIB);
    desk.fine("create -l 1 -n 2 a b");
    assert!(desk.fine("status a b").contains("State : clean\n"));
}

#[test]
fn data_that_nobody_recognises_are_not_overwritten_either() {
    let desk = Desk::new();
    desk.members("a b", 16 << 20);
    raid_tests::images::write(&desk.path("b"), 9_000_001, b"a letter without a file system");
    let before = desk.prints();
    desk.refused("create -l1 -n2 a b", 4, "--force");
    assert_eq!(desk.prints(), before);
    desk.fine("create -l1 -n2 --force a b");
}

#[test]
fn what_larger_members_have_more_is_unused() {
    let desk = Desk::new();
    desk.members("a b", 16 * MIB);
    desk.members("large", 48 * MIB);
    let text = desk.fine("create --dry-run -l 5 -n 3 -c 64 a b large");
    assert_eq!((row(&text, "unused"), row(&text, "rounding")), (32 << 20, 0), "{text}");
    assert!(text.contains("the smallest member decides"), "{text}");
    let text = desk.fine("create --dry-run -l 5 -n 3 -c 64 -z 1M a b large");
    assert!(text.contains("beyond --size"), "{text}");
    assert_eq!(row(&text, "sum"), 80 << 20);
    // Each is used whole.
    assert_eq!(row(&desk.fine("create --dry-run -l 0 -n 2 -c 64 a large"), "unused"), 0);
}

#[test]
fn the_way_to_the_array_that_is_there_works() {
    let desk = Desk::new();
    desk.members("a b c x y z", 16 * MIB);
    desk.fine("create -l 5 -n 3 a b c");
    desk.fine("create -l 1 -n 2 -N home x y");
    let command = |words: &str| {
        let ran = desk.run(words);
        assert_eq!(ran.code, 4, "{ran:?}");
        let line = ran.err.lines().find(|line| line.contains("raid-fuse "));
        let line = line.unwrap_or_else(|| panic!("no command in {}", ran.err));
        line[line.find("raid-fuse ").unwrap()..].to_string()
    };
    for (words, expected) in [
        ("create -l 5 -n 3 c z b", "raid-fuse mount --degraded c b MOUNTPOINT"),
        ("create -l 1 -n 2 y z", "raid-fuse mount --degraded y MOUNTPOINT"),
        ("create -l 1 -n 2 x y", "raid-fuse mount x y MOUNTPOINT"),
        ("create -l 1 -n 2 a z", "raid-fuse scan FOLDER"),
    ] {
        assert_eq!(command(words), expected, "{words}");
        if let Some(mount) = expected.strip_prefix("raid-fuse mount ") {
            let members = mount.strip_suffix(" MOUNTPOINT").unwrap();
            desk.fine(&format!("cat --length 1 {members}"));
        }
    }
}
