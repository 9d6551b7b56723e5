//! Metadata 0.90 by the command: old superblocks, those of other machines, those of partitions.

use raid_tests::cli::Desk;
use raid_tests::images::{self, MIB};
use raid_tests::requires::{Need, met};

/// The first superblock of a member.
fn superblock(desk: &Desk, member: &str) -> serde_json::Value {
    desk.json(&format!("examine --json {member}"))["members"][0]["superblocks"][0].clone()
}

#[test]
fn an_array_is_made_used_and_shown() {
    let desk = Desk::new();
    desk.members("a b c d", 8 * MIB);
    for words in ["-l linear -n 3", "-l 0 -n 3", "-l 1 -n 3", "-l 5 -n 3 -c 64", "-l 10 -n 3"] {
        desk.fine(&format!("create --force -e 0.90 {words} a b c"));
        let text = desk.fine("scan a b c");
        assert!(text.contains("3 of 3 members, startable"), "{text}");
        desk.shell("printf 'an old story' | raid-fuse write --offset 5M c a b");
        assert_eq!(desk.fine("cat --offset 5M --length 12 b c a"), "an old story", "{words}");
        assert_eq!(superblock(&desk, "a")["metadata"], "0.90");
        assert_eq!(superblock(&desk, "a")["byte_order"], "little-endian");
        if met(&[Need::Mdadm]) {
            assert!(desk.shell("mdadm --examine b").out.contains("- correct"), "{words}");
        }
    }
    desk.fine("create --force -e 0.90 -l 5 -n 3 -c 64 --homehost vm a b c");
    assert!(desk.fine("examine a").contains(":df9c7c0a:e059fa87\n"), "SHA-1 of the host");
    let text = desk.fine("status b c a");
    assert!(text.contains("Version : 0.90\n") && text.contains("Events : 0."), "{text}");
    desk.refused("create --force -e 0.90 -l 1 -n 2 -N x a b", 1, "--name");
    let id = "8a0e18a3:60ce8f4a:169c4bee:917744a6";
    let words = format!("--force -e 0.90 -l 1 -n 2 --device-uuid {id} --device-uuid {id} a b");
    desk.refused(&format!("create {words}"), 64, "--device-uuid");
}

#[test]
fn the_other_byte_order_is_kept_until_an_update_is_asked_for() {
    let desk = Desk::new();
    desk.members("a b c", 8 * MIB);
    desk.fine("create -e 0.90 -l 1 -n 3 --bitmap internal a b c");
    desk.shell("printf 'from the NAS' | raid-fuse write a b c");
    let before = desk.prints();
    let text = desk.fine("assemble --explain --update=byteorder a b c");
    assert!(text.contains("would be rewritten, little-endian to big-endian"), "{text}");
    assert_eq!(desk.prints(), before);
    desk.refused("assemble --update=byteorder a b", 3, "--degraded");
    desk.fine("assemble --update=byteorder a b c");
    for member in ["a", "b", "c"] {
        assert_eq!(superblock(&desk, member)["byte_order"], "big-endian");
    }
    let events = superblock(&desk, "a")["events"].as_u64().unwrap();
    assert!(desk.fine("examine a").contains("Byte Order : big-endian\n"));
    assert_eq!(desk.fine("cat --length 12 a b c"), "from the NAS");
    desk.shell("printf 'from the PC.' | raid-fuse write a b c");
    let after = superblock(&desk, "b");
    assert_eq!(after["byte_order"], "big-endian", "nobody asked for another");
    assert!(after["events"].as_u64().unwrap() > events && events > 0 && after["state"] == "clean");
    // Interrupted: one member is rewritten already.
    desk.fine("assemble --update=byteorder --degraded a b");
    assert_eq!(superblock(&desk, "a")["byte_order"], "little-endian");
    assert_eq!(desk.fine("cat --length 12 a b c"), "from the PC.");
    let text = desk.fine("assemble --update=byteorder a b c");
    assert_eq!(text, "c: superblock rewritten, big-endian to little-endian\n");
    assert_eq!(desk.fine("cat --length 12 a b c"), "from the PC.");
    desk.fine("create --force -l 1 -n 3 a b c");
    desk.refused("assemble --update=byteorder a b c", 1, "nothing to update");
}

/// An MBR with one partition from sector `start` to the end of the disk.
fn divide(desk: &Desk, name: &str, start: u64, sectors: u64) -> String {
    let mut entry = [0; 16];
    entry[4] = 0xfd;
    entry[8..12].copy_from_slice(&(start as u32).to_le_bytes());
    entry[12..].copy_from_slice(&((sectors - start) as u32).to_le_bytes());
    images::write(&desk.path(name), 446, &entry);
    images::write(&desk.path(name), 510, &[0x55, 0xaa]);
    format!("slice:start={start},len={}+{name}", sectors - start)
}

#[test]
fn a_superblock_that_disk_and_partition_could_own_is_the_partitions() {
    for start in [2048, 63] {
        let desk = Desk::new();
        desk.members("disk other", 16 * MIB);
        let slice = divide(&desk, "disk", start, 32768);
        desk.fine(&format!("create --force --assume-clean -e 0.90 -l 1 -n 2 {slice} other"));
        let text = desk.fine("scan disk other");
        assert!(text.contains("2 of 2 members, startable"), "{text}");
        assert!(text.contains(&format!("{slice}: in, slot 0")), "{text}");
        desk.fine(&format!("assemble --explain {slice} other"));
        if start == 63 {
            desk.refused("examine disk", 1, "not md (dos)");
            continue;
        }
        assert!(text.contains("disk: out: ") && text.contains("counts as the partition's"));
        assert!(desk.fine("examine disk").contains("counts as the partition's"));
        desk.folder("m");
        for words in ["mount disk m", "assemble --explain disk"] {
            desk.refused(words, 1, "slice:start=2048,len=30720+");
        }
        let both = desk.run(&format!("assemble --explain disk {slice} other"));
        assert_eq!(both.code, 0, "{both:?}");
        assert!(both.out.contains("disk: out") && both.out.contains("2 of 2 members"), "{both:?}");
    }
}

#[test]
fn partitions_inside_an_array_of_whole_disks_change_nothing() {
    let desk = Desk::new();
    desk.members("a b", 16 * MIB);
    desk.fine("create -e 0.90 -l 1 -n 2 a b");
    // The table is the array's own: its partitions end where the array ends.
    for member in ["a", "b"] {
        divide(&desk, member, 2048, 32768 - 128);
    }
    assert!(desk.fine("scan a b").contains("2 of 2 members, startable"));
}

#[test]
fn sizes_beyond_two_and_four_tib() {
    let desk = Desk::new();
    desk.members("a b", 5_860_533_168 * 512);
    desk.members("c d", 5 << 40);
    let text = desk.fine("create -e 0.90 -l 1 -n 2 --assume-clean a b");
    assert!(text.contains("2930266496K"), "{text}");
    let text = desk.fine("examine a");
    assert!(text.contains("Used Dev Size : 2930266496 ("), "{text}");
    assert_eq!(superblock(&desk, "a")["component_bytes"], 2_930_266_496u64 * 1024);
    let last = 2_930_266_496u64 * 1024 - 65536;
    desk.shell(&format!("printf end | raid-fuse write --offset {last} a b"));
    assert_eq!(desk.fine(&format!("cat --offset {last} --length 3 b a")), "end");
    let refused = desk.run("create -e 0.90 -l 1 -n 2 --assume-clean c d");
    assert!(refused.code == 1 && refused.err.contains("less than 4 TiB"), "{refused:?}");
    desk.fine("create -e 0.90 -l 1 -n 2 --assume-clean --size 1G c d");
}
