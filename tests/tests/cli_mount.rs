//! Arrays in use: `mount`, `status`, `unmount`, `cat`, `write`, `demo`, and what they refuse.

use raid_tests::cli::Desk;
use raid_tests::guards::{Process, wait_until};
use raid_tests::images::MIB;
use raid_tests::pattern::first_difference;
use raid_tests::requires::{Need, is_root, met};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// A desk with a RAID 5 of four members and a folder `mnt`.
fn raid5() -> Desk {
    let desk = Desk::new();
    desk.members("a b c d", 8 * MIB);
    desk.fine("create -l 5 -n 4 -c 64 -N home a b c d");
    desk.folder("mnt");
    desk
}

/// Writes bytes that say where they are.
fn fill(desk: &Desk, members: &str, bytes: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..bytes).map(|i| (i / 509 * 7 + i) as u8).collect();
    fs::write(desk.path("pattern"), &pattern).unwrap();
    let ran = desk.shell(&format!("raid-fuse write {members} < pattern"));
    assert_eq!(ran.code, 0, "{ran:?}");
    pattern
}

#[test]
fn mounted_in_any_order_used_and_clean_afterwards() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    let text = desk.fine("mount c a d b mnt");
    assert!(text.contains("mnt/volume: raid5, 4 of 4 members, 21.0 MiB (22.0 MB)"), "{text}");
    let file = fs::File::options().read(true).write(true).open(desk.path("mnt/volume")).unwrap();
    file.write_all_at(b"somewhere", 5 * MIB).unwrap();
    drop(file);
    let mdstat = fs::read_to_string(desk.path("mnt/mdstat")).unwrap();
    let expected = "md_home : active raid5 d[3] c[2] b[1] a[0]\n      21504 blocks super 1.2 level \
                    5, 64k chunk, algorithm 2 [4/4] [UUUU]\n      \nunused devices: <none>\n";
    assert!(mdstat.ends_with(expected), "{mdstat}");
    assert_eq!(desk.run("status mnt").code, 0);
    assert_eq!(desk.json("status --json mnt")["health"], "ok");
    desk.fine("unmount mnt");
    // At once: nothing may still be on its way.
    let found = desk.json("examine --json a b c d");
    for member in found["members"].as_array().unwrap() {
        assert_eq!(member["superblocks"][0]["state"], "clean", "{found}");
    }
    let ran = desk.run("cat --offset 5M --length 9 d c b a");
    assert_eq!((ran.code, ran.out.as_str()), (0, "somewhere"));
    assert_eq!(desk.run("status mnt").code, 4);
}

#[test]
fn members_that_are_missing_need_a_word() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    let pattern = fill(&desk, "a b c d", 3 << 20);
    desk.refused("mount a b d mnt", 3, "--degraded");
    desk.refused("mount a b mnt --degraded", 2, "cannot be served");
    assert_eq!(fs::read_dir(desk.path("mnt")).unwrap().count(), 0, "nothing is mounted");
    desk.refused("mount a b missing d mnt", 3, "--degraded");
    let text = desk.fine("mount a b missing d mnt --degraded");
    assert!(text.contains("3 of 4 members") && text.contains("degraded"), "{text}");
    let ran = desk.run("status mnt");
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("State : clean, degraded\n"), "{ran:?}");
    let found = fs::read(desk.path("mnt/volume")).unwrap();
    assert_eq!(first_difference(&found[..pattern.len()], &pattern), None);
    desk.fine("umount mnt");
}

#[test]
fn a_killed_daemon_is_replaced_by_the_same_command() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    let pattern = fill(&desk, "a b c d", 1 << 20);
    let mut child = std::process::Command::new(raid_tests::cli::program())
        .args(["mount", "--foreground", "a", "b", "c", "d", "mnt"])
        .current_dir(desk.dir())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while !desk.path("mnt/volume").exists() {
        assert!(Instant::now() < until, "it never appeared");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(desk.run("status mnt").code, 4);
    let all = desk.run("status");
    assert!(all.code == 4 && all.out.contains("/mnt: dead: the daemon of "), "{all:?}");
    let all = desk.json("status --json");
    let own = desk.dir().canonicalize().unwrap().join("mnt");
    let mounts = all["mounts"].as_array().unwrap();
    let mount = mounts.iter().find(|mount| mount["mountpoint"] == own.to_str().unwrap());
    assert!(mount.unwrap()["report"].is_null() && mount.unwrap()["error"].is_string(), "{all}");
    desk.fine("mount a b c d mnt");
    let found = fs::read(desk.path("mnt/volume")).unwrap();
    assert_eq!(first_difference(&found[..pattern.len()], &pattern), None);
    desk.fine("unmount mnt");
}

#[test]
fn reading_only_changes_not_a_byte() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    fill(&desk, "a b c d", 1 << 20);
    let before = desk.prints();
    let text = desk.fine("mount --read-only a b c d mnt");
    assert!(text.contains("read-only"), "{text}");
    let opened = fs::File::options().write(true).open(desk.path("mnt/volume"));
    let error = match opened {
        Err(error) => error,
        Ok(file) => file.write_all_at(b"x", 0).unwrap_err(),
    };
    let code = error.raw_os_error();
    assert!([Some(libc::EROFS), Some(libc::EACCES)].contains(&code), "{error}");
    assert!(fs::read(desk.path("mnt/volume")).is_ok());
    desk.fine("unmount mnt");
    assert_eq!(desk.prints(), before);
}

#[test]
fn a_member_in_use_names_its_mount() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    desk.folder("other");
    desk.fine("mount a b c d mnt");
    let ran = desk.run("mount a b c d other");
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("mnt; take it down first"), "{ran:?}");
    assert_eq!(desk.run("create --force -l 1 -n 2 a b").code, 5);
    assert_eq!(desk.run("mount a b c d mnt").code, 5);
    assert_eq!(desk.run("examine a").code, 0, "looking is fine");
    desk.fine("unmount mnt");
}

#[test]
fn an_overlay_keeps_the_members_as_they_are() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    let before = desk.prints();
    for expected in [0, b'x'] {
        desk.fine("mount a b c d mnt --overlay changes");
        let file = desk.path("mnt/volume");
        let mut byte = [0];
        let file = fs::File::options().read(true).write(true).open(file).unwrap();
        file.read_exact_at(&mut byte, 777).unwrap();
        assert_eq!(byte[0], expected, "what was written stays in the overlay");
        file.write_all_at(b"x", 777).unwrap();
        drop(file);
        desk.fine("unmount mnt");
    }
    assert_eq!(desk.prints(), before);
}

#[test]
fn copies_survive_one_of_each_pair() {
    let desk = Desk::new();
    desk.members("a b c d", 8 * MIB);
    for (words, all, left) in [("-l 1 -n 3", "a b c", "b"), ("-l 10 -n 4 -c 64", "a b c d", "b c")]
    {
        desk.fine(&format!("create --force {words} {all}"));
        let pattern = fill(&desk, all, 2 << 20);
        let ran = desk.shell(&format!("raid-fuse cat --degraded {left} > back"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let found = fs::read(desk.path("back")).unwrap();
        assert_eq!(first_difference(&found[..pattern.len()], &pattern), None, "{words}");
        assert_eq!(desk.shell(&format!("printf x | raid-fuse write --degraded {left}")).code, 0);
        let ran = desk.run(&format!("cat --degraded --length 1 {left}"));
        assert_eq!(ran.out, "x", "{ran:?}");
        // The others are stale now and must not be read.
        let ran = desk.run(&format!("cat --degraded --length 1 {all}"));
        assert!(ran.out == "x" && ran.err.contains("stale"), "{ran:?}");
    }
}

#[test]
fn stale_members_serve_only_where_nothing_can_be_lost() {
    let desk = Desk::new();
    desk.members("a b c d", 8 * MIB);
    desk.fine("create -l 10 -n 4 -p o2 -c 64 a b c d");
    for name in ["a", "b"] {
        fs::copy(desk.path(name), desk.path(&format!("{name}.old"))).unwrap();
    }
    fill(&desk, "a b c d", 1 << 20);
    fill(&desk, "a b c d", 1 << 20);
    // One of each pair is fresh: it starts from these alone.
    let ran = desk.run("cat --degraded --length 1 a.old b c.gone d");
    assert_eq!(ran.code, 1, "{ran:?}");
    let ran = desk.shell("raid-fuse cat --degraded a.old b c d > back");
    assert!(ran.code == 0 && ran.err.contains("stale"), "{ran:?}");
    let (found, pattern) = (fs::read(desk.path("back")), fs::read(desk.path("pattern")));
    assert_eq!(found.unwrap()[..1 << 20], pattern.unwrap()[..]);
    fs::remove_file(desk.path("back")).unwrap();
    // Both holders of some chunks are stale.
    desk.folder("mnt");
    desk.refused("mount --degraded a.old b.old c d mnt", 2, "from stale members alone would come");
    desk.refused("mount --force a.old b.old c d mnt", 4, "--overlay");
    if met(&[Need::Fuse]) {
        desk.fine("mount --force a.old b.old c d mnt --overlay changes");
        desk.fine("unmount mnt");
    }
    desk.fine("cat --force --length 4K a.old b.old c d");
}

#[test]
fn a_split_brain_is_never_joined() {
    let desk = Desk::new();
    desk.members("a b", 8 * MIB);
    desk.folder("mnt");
    desk.fine("create -l 1 -n 2 a b");
    assert_eq!(desk.shell("printf 1 | raid-fuse write --degraded a").code, 0);
    assert_eq!(desk.shell("printf 2 | raid-fuse write --degraded b").code, 0);
    desk.refused("mount a b mnt", 4, "each member says the other is faulty");
    desk.refused("mount --force --degraded a b mnt", 4, "each member says the other is faulty");
    assert_eq!(desk.fine("cat --degraded --length 1 a"), "1");
    assert_eq!(desk.fine("cat --degraded --length 1 b"), "2");
}

/// Makes the superblock of a RAID 0 forget its order, as kernels before 5.4 wrote them.
fn forget_order(desk: &Desk, name: &str) {
    let path = desk.path(name);
    let mut bytes = fs::read(&path).unwrap();
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[4096 + at..4096 + at + 4].try_into().unwrap())
    };
    bytes[4096 + 76..4096 + 80].fill(0);
    let features = word(&bytes, 8) & !(1 << 12);
    bytes[4096 + 8..4096 + 12].copy_from_slice(&features.to_le_bytes());
    bytes[4096 + 216..4096 + 220].fill(0);
    let len = 256 + 2 * word(&bytes, 220) as usize;
    let sum: u64 = (0..len / 4).map(|i| u64::from(word(&bytes, i * 4))).sum();
    let half = if len % 4 == 2 { u64::from(word(&bytes, len - 2) & 0xffff) } else { 0 };
    let sum = sum + half;
    let sum = ((sum & 0xffff_ffff) + (sum >> 32)) as u32;
    bytes[4096 + 216..4096 + 220].copy_from_slice(&sum.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn an_unknown_raid0_order_is_refused_with_a_preview() {
    if !met(&[Need::Ext4]) {
        return;
    }
    let desk = Desk::new();
    // 113 chunks of the smallest: an odd number before the zone of two.
    desk.members("a", 8 * MIB + (64 << 10));
    desk.members("b c", 24 * MIB);
    desk.folder("mnt");
    desk.fine("create -l 0 -n 3 -c 64 a b c");
    let line = "raid-fuse cat a b c > v && mkfs.ext4 -q -F -b 1024 v && raid-fuse write a b c < v";
    let ran = desk.shell(line);
    assert_eq!(ran.code, 0, "{ran:?}");
    ["a", "b", "c"].iter().for_each(|name| forget_order(&desk, name));
    desk.refused("mount a b c mnt", 4, "--raid0-layout original");
    let told = desk.run("assemble --explain a b c").err;
    let line = |word: &str| told.lines().find(|line| line.contains(word)).unwrap().to_string();
    assert!(line("original  shows").contains("consistent"), "{told}");
    assert!(line("alternate shows").contains("damaged"), "{told}");
    let ran = desk.shell("raid-fuse cat --raid0-layout original a b c | cmp - v");
    assert_eq!(ran.code, 0, "{ran:?}");
}

#[test]
fn bytes_that_do_not_fit_are_refused() {
    let desk = raid5();
    let size = 21 * MIB;
    assert_eq!(desk.run(&format!("cat --offset {} a b c d", size + 1)).code, 1);
    assert_eq!(desk.run(&format!("cat --offset {size} a b c d")).out, "");
    let line = format!("printf 12345 | raid-fuse write --offset {} a b c d", size - 3);
    let ran = desk.shell(&line);
    assert!(ran.code == 1 && ran.err.contains("does not fit"), "{ran:?}");
    assert_eq!(desk.run(&format!("cat --offset {} a b c d", size - 3)).out, "123");
    assert_eq!(desk.shell("raid-fuse cat a b c d | head -c 1 > /dev/null").code, 0);
}

#[test]
fn wrong_mount_points_are_refused() {
    let desk = raid5();
    fs::write(desk.path("file"), "x").unwrap();
    desk.refused("mount a b c d nowhere", 1, "mkdir");
    desk.refused("mount a b c d file", 1, "directory");
    desk.refused("mount a b c d", 1, "directory");
    desk.refused("mount a", 64, "MEMBER");
    desk.refused("mount -r a b c --degraded file", 1, "directory");
    for words in ["unmount", "status", "wait", "check", "repair", "stop-job", "speed"] {
        desk.refused(&format!("{words} mnt"), 4, "mounted on");
        desk.refused(&format!("{words} mnt/"), 4, "mounted on");
    }
    for words in ["fail", "add", "remove", "re-add", "replace", "write-mostly"] {
        desk.refused(&format!("{words} mnt a"), 4, "mounted on");
    }
}

#[test]
fn the_demo_runs_for_everybody() {
    let run = |desk: &Desk| {
        let ran = desk.run("demo");
        assert_eq!(ran.code, 0, "{}\n{}", ran.out, ran.err);
        for words in [
            "raid-fuse create",
            "P: XOR",
            "exit code 3",
            "bytes of the volume are as",
            "raid-fuse --help",
        ] {
            assert!(ran.out.contains(words), "{words}: {}", ran.out);
        }
        let left: Vec<_> = fs::read_dir(desk.dir()).unwrap().flatten().collect();
        let left =
            left.iter().filter(|e| e.file_name().to_string_lossy().starts_with("raid-fuse-"));
        assert_eq!(left.count(), 0, "the demo cleans up");
    };
    run(&Desk::new());
    if is_root() {
        run(&Desk::of_user());
    }
}

#[test]
fn what_does_not_fit_is_refused_before_the_first_byte() {
    let desk = raid5();
    let size = desk.json("status --json a b c d")["size_bytes"].as_u64().unwrap();
    fs::write(desk.path("long"), vec![7; 100]).unwrap();
    let before = desk.prints();
    for line in [
        format!("raid-fuse write --offset {} a b c d < long", size - 50),
        format!("raid-fuse write --offset {} a b c d < /dev/null", size + 1),
    ] {
        let ran = desk.shell(&line);
        assert_eq!(ran.code, 1, "{line}: {}", ran.err);
    }
    assert_eq!(desk.prints(), before);
}

#[test]
fn a_cached_volume_refuses_to_be_truncated_and_keeps_what_it_has() {
    let desk = raid5();
    if !met(&[Need::Fuse]) {
        return;
    }
    for cache in ["read", "writeback"] {
        desk.fine(&format!("mount --cache {cache} a b c d mnt"));
        let volume = desk.path("mnt").join("volume");
        let file = File::options().read(true).write(true).open(&volume).unwrap();
        file.write_all_at(b"fsynced", 1 << 20).unwrap();
        file.sync_all().unwrap();
        let truncating = File::options().write(true).truncate(true).open(&volume);
        assert!(truncating.is_err(), "{cache}");
        file.write_all_at(b"later", 2 << 20).unwrap();
        drop(file);
        desk.fine("unmount mnt");
        let found = desk.fine("cat --offset 1M --length 7 a b c d");
        assert_eq!(found, "fsynced", "{cache}");
    }
}

#[test]
fn a_resync_that_is_needed_is_told_and_shown() {
    let desk = Desk::new();
    desk.members("a b", 8 * MIB);
    fs::write(desk.path("b"), vec![7; 8 << 20]).unwrap();
    desk.fine("create --force -l 1 -n 2 a b");
    let ran = desk.run("cat --length 1 a b");
    assert!(ran.err.contains("need a resync, which is not done while"), "{ran:?}");
    let status = desk.run("status a b").out;
    assert!(status.contains("Resync Status : 0% complete, waiting to go on"), "{status}");
    if !met(&[Need::Fuse]) {
        return;
    }
    desk.folder("mnt");
    let ran = desk.run("mount a b mnt");
    assert!(ran.code == 0 && ran.err.contains("`status` shows how far"), "{ran:?}");
    let all = desk.run("status");
    assert!(all.out.contains("mnt: raid1, 2 of 2 members"), "{all:?}");
    desk.fine("unmount mnt");
}

#[test]
fn a_closed_input_is_no_empty_input() {
    let desk = raid5();
    let before = desk.prints();
    let ran = desk.shell("raid-fuse write a b c d <&-");
    assert!(ran.code == 64 && ran.err.contains("standard input is closed"), "{ran:?}");
    assert_eq!(desk.prints(), before);
    assert_eq!(desk.shell("raid-fuse write a b c d < /dev/null").code, 0);
}

#[test]
fn a_member_that_may_not_be_written_can_be_read() {
    if !is_root() {
        return;
    }
    let desk = Desk::of_user();
    desk.members("a b", 8 * MIB);
    desk.fine("create -l 1 -n 2 a b");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o444);
    fs::set_permissions(desk.path("b"), mode).unwrap();
    desk.folder("mnt");
    desk.refused(
        "mount a b mnt",
        4,
        "--read-only, or cat; to keep changes elsewhere: --overlay DIR",
    );
    desk.fine("cat --length 1 a b");
    let ran = desk.run("create --force -l 1 -n 2 a b");
    assert!(ran.code == 4 && !ran.err.contains("--overlay"), "{ran:?}");
}

#[test]
fn a_mount_that_is_told_to_stop_says_who_keeps_it() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    let words = ["mount", "--foreground", "a", "b", "c", "d", "mnt"];
    let mut command = std::process::Command::new(raid_tests::cli::program());
    let daemon = Process::start(command.args(words).current_dir(desk.dir()));
    let there = wait_until(|| desk.path("mnt/volume").exists());
    assert!(there, "it never appeared");
    let held = File::open(desk.path("mnt/volume")).unwrap();
    daemon.signal(libc::SIGTERM);
    let told = wait_until(|| daemon.output().contains("asked to stop"));
    let text = daemon.output();
    assert!(told && text.contains("is in use by") && text.contains("at the latest in 5 s"));
    drop(held);
    assert_eq!(daemon.wait().0, 0);
}

#[test]
fn a_mount_of_another_namespace_is_named() {
    if !met(&[Need::Fuse]) || !is_root() {
        return;
    }
    let desk = raid5();
    let line = "unshare -m sh -c 'raid-fuse mount a b c d mnt && echo $$ && exec sleep 60'";
    let line = line.replace("raid-fuse ", &format!("{} ", raid_tests::cli::program().display()));
    let mut command = std::process::Command::new("sh");
    let other =
        Process::start(command.args(["-c", &format!("exec {line}")]).current_dir(desk.dir()));
    assert!(wait_until(|| other.output().contains("volume: raid5")), "{}", other.output());
    let ran = desk.run("unmount mnt");
    assert!(ran.code == 1 && ran.err.contains("in another mount namespace"), "{ran:?}");
    let text = &ran.err[ran.err.find("kill ").unwrap()..];
    assert_eq!(desk.shell(text.trim_end()).code, 0);
    assert!(wait_until(|| desk.run("cat --length 1 a b c d").code == 0), "it ends");
}

#[test]
fn an_unmount_names_others_and_not_itself() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = raid5();
    desk.fine("mount a b c d mnt");
    let ran = desk.shell("exec 3<mnt/volume; raid-fuse unmount mnt; exit $?");
    assert!(ran.code == 5 && ran.err.contains("is in use by sh (pid "), "{ran:?}");
    assert!(!ran.err.contains("raid-fuse (pid "), "{ran:?}");
    let held = File::open(desk.path("mnt/volume")).unwrap();
    let ran = desk.run("unmount --lazy mnt");
    drop(held);
    assert!(ran.code == 0 && !ran.err.contains("in another namespace"), "{ran:?}");
}
