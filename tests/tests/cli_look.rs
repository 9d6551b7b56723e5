//! Looking at members: `examine`, `scan`, `assemble --explain` and `status` without a mount.

use raid_tests::cli::Desk;
use raid_tests::images::{self, MIB};
use std::fs;

const OLD: [u32; 4] = [0x1111_1111, 0x2222_2222, 0x3333_3333, 0x4444_4444];

/// A sound 0.90 superblock where such lie, of another array.
fn plant_old(desk: &Desk, name: &str) {
    let size = fs::metadata(desk.path(name)).unwrap().len();
    let mut words = [0u32; 1024];
    words[..16].copy_from_slice(&[
        0xa92b_4efc,
        0,
        90,
        0,
        0,
        OLD[0],
        1_600_000_000,
        1,
        1024,
        2,
        2,
        0,
        0,
        OLD[1],
        OLD[2],
        OLD[3],
    ]);
    words[32] = 1_600_000_000;
    words[33] = 1;
    let sum: u64 = words.iter().map(|&word| u64::from(word)).sum();
    words[38] = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    images::write(&desk.path(name), size / 65536 * 65536 - 65536, &bytes);
}

#[test]
fn the_places_of_all_versions_are_named() {
    let desk = Desk::new();
    let size: u64 = 10 * MIB + 3 * 512;
    desk.members("a b", size);
    desk.fine("create -l 1 -n 2 -e 1.2 a b");
    let text = desk.fine("examine --where a");
    let sectors = size / 512;
    let ends = (sectors - 16) / 8 * 8 * 512;
    let old = size / 65536 * 65536 - 65536;
    for line in [
        format!("   1.0 : byte {ends} (sector {})", ends / 512),
        "   1.1 : byte 0 (sector 0)".into(),
        "   1.2 : byte 4096 (sector 8)  <- found".into(),
        format!("  0.90 : byte {old} (sector {})", old / 512),
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} is not in {text}");
    }
}

#[test]
fn two_superblocks_are_both_shown_and_a_choice_is_asked_for() {
    let desk = Desk::new();
    desk.members("a b", 16 * MIB);
    desk.fine("create -l 1 -n 2 a b");
    plant_old(&desk, "a");
    let text = desk.fine("examine a");
    assert!(text.contains("2 superblocks are here"), "{text}");
    assert!(text.contains("Sun Sep 13 12:26:40 2020"), "{text}");
    let found = desk.json("examine --json a");
    let superblocks = found["members"][0]["superblocks"].as_array().unwrap();
    assert_eq!(superblocks.len(), 2, "{found}");
    let uuid = superblocks[0]["uuid"].as_str().unwrap();
    desk.refused("cat a b", 4, &format!("--uuid {uuid}"));
    let ran = desk.run("assemble --explain a b");
    assert!(ran.out.contains("would start: raid1, 2 of 2 members"), "{ran:?}");
    desk.fine(&format!("assemble --explain --uuid {uuid} a b"));
}

#[test]
fn examine_says_what_is_not_md() {
    let desk = Desk::new();
    desk.members("bare ddf", 4 * MIB);
    images::write(&desk.path("ddf"), 4 * MIB - 512, &[0xde, 0x11, 0xde, 0x11]);
    desk.refused("examine bare", 1, "no md superblock");
    desk.refused("examine ddf", 1, "not md (DDF)");
    let found = desk.json("examine --json bare ddf");
    assert_eq!(found["members"][1]["foreign"][0]["name"], "ddf");
    assert_eq!(found["members"][0]["size_bytes"], 4 * MIB);
    assert_eq!(found["warnings"].as_array().unwrap().len(), 2);
    desk.refused("examine nowhere", 1, "nowhere");
    desk.members("a b", 4 * MIB);
    desk.fine("create -l 1 -n 2 a b");
    let ran = desk.run("examine nowhere a");
    assert!(ran.code == 1 && ran.out.starts_with("a:\n"), "{ran:?}");
    assert!(ran.err.contains("nowhere") && ran.err.lines().count() == 1, "{ran:?}");
    let found = desk.json("examine --json a nowhere");
    assert_eq!(found["members"].as_array().unwrap().len(), 1, "{found}");
    assert!(found["warnings"][0].as_str().unwrap().contains("nowhere"), "{found}");
}

#[test]
fn json_has_its_keys_whatever_happens() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    desk.fine("create -l 5 -n 3 -c 64 a b c");
    let found = desk.json("examine --json a");
    let superblock = &found["members"][0]["superblocks"][0];
    for key in ["uuid", "level", "array_bytes", "data_offset_bytes", "events", "warnings"] {
        assert!(!superblock[key].is_null(), "{key}: {found}");
    }
    for words in ["status --json a b c", "status --json a b"] {
        let status = desk.json(words);
        for key in ["uuid", "health", "state", "members", "warnings", "slots", "size_bytes"] {
            assert!(!status[key].is_null(), "{words}: {key}: {status}");
        }
        assert_eq!(status["uuid"], superblock["uuid"]);
        assert_eq!(status["size_bytes"], 2 * 7 * MIB);
    }
    images::flip(&desk.path("a"), 4096 + 100, 1);
    let found = desk.json("examine --json a");
    let problems = found["members"][0]["superblocks"][0]["warnings"].as_array().unwrap();
    assert!(problems[0].as_str().unwrap().contains("checksum"), "{found}");
}

#[test]
fn a_scan_finds_arrays_among_anything() {
    let desk = Desk::new();
    desk.members("a b c d x y ddf imsm lvm zfs random dead", 8 * MIB);
    desk.fine("create -l 5 -n 3 -N first a b c");
    desk.fine("create -l 6 -n 4 -N second x y d dead");
    fs::remove_file(desk.path("dead")).unwrap();
    let end = 8 * MIB;
    images::write(&desk.path("ddf"), end - 512, &[0xde, 0x11, 0xde, 0x11]);
    images::write(&desk.path("imsm"), end - 1024, b"Intel Raid ISM Cfg Sig. ");
    images::write(&desk.path("lvm"), 512, b"LABELONE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0LVM2 001");
    let noise = (0..1 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8);
    images::write(&desk.path("random"), 0, &noise.collect::<Vec<u8>>());
    fs::write(desk.path("empty"), b"").unwrap();
    fs::write(desk.path("a.md5"), b"0123456789abcdef0123456789abcdef  a\n").unwrap();
    desk.folder("below");
    let text = desk.fine("scan .");
    for words in [
        "\"first\": 3 of 3 members, startable\n",
        "\"second\": 3 of 4 members, startable with",
        "./ddf: not md (DDF)",
        "./imsm: not md (IMSM)",
        "cannot be read: ./empty",
        "4 other files carry no md: 1 lvm2, 3 of no known kind (-v names them)\n",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    assert!(!text.contains("./random") && !text.contains("./lvm"), "{text}");
    assert!(desk.fine("scan") == text, "this folder is the default");
    let all = desk.fine("scan -v .");
    assert!(all.contains("./lvm: not md (LVM2)") && all.contains("./random: not md"), "{all}");
    assert!(desk.fine("scan . random").contains("\nrandom: not md"), "what is named is told");
    let found = desk.json("scan --json . nowhere");
    assert_eq!(found["arrays"].as_array().unwrap().len(), 2, "{found}");
    assert_eq!(found["unreadable"].as_array().unwrap().len(), 2, "{found}");
    images::flip(&desk.path("a"), 4096 + 300, 1);
    assert!(desk.fine("scan a b c").contains("a damaged md 1.2 superblock"));
    assert_eq!(desk.run("scan empty").code, 1);
}

#[test]
fn assemble_tells_the_decision_and_writes_nothing() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    desk.fine("create -l 5 -n 3 a b c");
    let before = desk.prints();
    let text = desk.fine("assemble --explain c a b");
    assert!(text.contains("a: in, slot 0") && text.contains("would start: raid5"), "{text}");
    assert!(desk.fine("assemble --explain --degraded c a").contains("2 of 3 members"));
    assert_eq!(desk.prints(), before);
    desk.refused("assemble --explain c a", 3, "--degraded");
    desk.refused("assemble --explain c", 2, "cannot be served");
    desk.refused("assemble c a b", 64, "raid-fuse mount");
}

#[test]
fn health_is_an_exit_code_for_each_slot() {
    let desk = Desk::new();
    desk.members("d0 d1 d2 d3 d4 d5", 8 * MIB);
    for (level, count, losses) in [(1, 2, 1), (5, 6, 1), (6, 6, 2), (0, 3, 0), (10, 4, 1)] {
        let all: Vec<String> = (0..count).map(|slot| format!("d{slot}")).collect();
        desk.fine(&format!("create --force -l {level} -n {count} {}", all.join(" ")));
        let whole = desk.run(&format!("status {}", all.join(" ")));
        assert_eq!((whole.code, whole.out.contains("State : clean\n")), (0, true), "{whole:?}");
        for lost in 0..count {
            let left: Vec<&str> = (0..count).filter(|s| *s != lost).map(|s| &*all[s]).collect();
            let ran = desk.run(&format!("status {}", left.join(" ")));
            let expected = if losses == 0 { 2 } else { 1 };
            assert_eq!(ran.code, expected, "raid{level} without {lost}: {ran:?}");
            assert!(!ran.out.contains("State : clean\n"), "{ran:?}");
            let json = desk.json(&format!("status --json {}", left.join(" ")));
            assert_eq!(json["health"], if losses == 0 { "dead" } else { "degraded" });
            assert_ne!(json["state"], "clean");
        }
        if (1..count - 1).contains(&losses) && level != 10 {
            let left = all[losses + 1..].join(" ");
            assert_eq!(desk.run(&format!("status {left}")).code, 2, "raid{level}: {left}");
        }
    }
    let ran = desk.run("status nowhere");
    assert_eq!(ran.code, 4, "an error is not a degraded array: {ran:?}");
}

#[test]
fn a_file_without_a_length_is_no_member() {
    let desk = Desk::new();
    desk.refused("examine /proc/self/mem", 1, "has no length");
}

#[test]
fn nothing_mounted_is_a_sentence() {
    // Root's mounts of other tests may be there, so that another user asks.
    let desk = Desk::of_user();
    let ran = desk.run("status");
    assert!(ran.code == 0 && ran.out.contains("no array is mounted by this user"), "{ran:?}");
    assert_eq!(desk.json("status --json")["mounts"], serde_json::json!([]));
}

#[test]
fn an_array_that_was_not_stopped_cleanly_says_what_comes_of_it() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    images::write(&desk.path("a"), 4 * MIB, &[7; 4096]);
    desk.fine("create --force -l 5 -n 3 a b c");
    let text = desk.fine("scan a b c");
    assert!(text.contains("3 of 3 members, startable; dirty: a resync runs"), "{text}");
    let text = desk.fine("assemble --explain a b c");
    assert!(text.contains("note: the array is dirty: its members need a resync"), "{text}");
    let text = desk.fine("scan a b");
    assert!(
        text.contains("2 of 3 members, not startable: ") && text.contains("dirty and degraded")
    );
    let found = desk.json("scan --json a b");
    let array = &found["arrays"][0];
    assert_eq!((&array["dirty"], &array["startable"]), (&true.into(), &false.into()));
    desk.refused("assemble --explain a b", 4, "dirty and degraded");
}

#[test]
fn words_of_mdadm_are_answered_with_the_command() {
    let desk = Desk::new();
    desk.members("a b c d", 8 * MIB);
    let cases = [
        ("--create md0 --level=5 -n3 a b c", "mdadm's --create is `raid-fuse create "),
        ("-E a", "mdadm's -E is `raid-fuse examine MEMBER...`"),
        ("detail mnt", "mdadm's detail is `raid-fuse status MOUNTPOINT`"),
        ("stop mnt", "mdadm's stop is `raid-fuse unmount MOUNTPOINT`"),
        ("mnt --fail b", "mdadm's --fail is `raid-fuse fail mnt b`"),
    ];
    for (words, answer) in cases {
        let ran = desk.run(words);
        assert_eq!(ran.code, 64, "{words}: {ran:?}");
        assert!(ran.err.contains(answer) && ran.err.lines().count() == 1, "{words}: {ran:?}");
    }
}

/// A journal that is gone: the way out is one that the tool has.
#[test]
fn a_missing_journal_names_commands_that_read() {
    let desk = Desk::new();
    desk.members("a b c j", 8 * MIB);
    desk.fine("create --force -l 5 -n 3 --write-journal j a b c");
    for command in ["check", "status", "cat --length 1", "assemble --explain"] {
        desk.refused(&format!("{command} a b c"), 4, "`raid-fuse cat --force MEMBER...`");
    }
    assert_eq!(desk.run("cat --force --length 1 a b c").code, 0);
    assert!(desk.fine("scan a b c j").contains(": 3 of 3 members"));
}
