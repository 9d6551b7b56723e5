//! Members that are not what they seem: one storage under two names, files cut short, files
//! deleted while they are in use.

use raid_tests::cli::Desk;
use raid_tests::guards::{Loop, wait_until};
use raid_tests::images::MIB;
use raid_tests::requires::{Need, met};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

const SIZE: u64 = 12 * MIB;

/// A mirror of `a` and `b`, two mount points, and a loop device over each member.
fn mirror() -> (Desk, [Loop; 2]) {
    let desk = Desk::new();
    desk.members("a b c d", SIZE);
    desk.fine("create -l 1 -n 2 a b");
    desk.folder("one");
    desk.folder("two");
    let loops = ["a", "b"].map(|name| Loop::attach(&desk.path(name)));
    (desk, loops)
}

fn names(loops: &[Loop; 2]) -> [String; 2] {
    [0, 1].map(|i| loops[i].device().to_str().unwrap().to_string())
}

#[test]
fn files_and_the_loop_devices_over_them_are_not_mounted_twice() {
    if !met(&[Need::Fuse, Need::Loop]) {
        return;
    }
    let (desk, loops) = mirror();
    let [a, b] = names(&loops);
    let point = desk.path("one").display().to_string();
    let down = format!("of the array that is mounted on {point}; take it down first");
    let file = desk.path("a").display().to_string();
    desk.fine("mount a b one");
    for words in [
        format!("mount {a} {b} two"),
        format!("mount --read-only {a} {b} two"),
        format!("create --force -l 0 -n 2 {a} c"),
        format!("create --force -l 0 -n 2 c {b}"),
        format!("erase-superblock {a}"),
    ] {
        desk.refused(&words, 5, &down);
        let told = desk.run(&words).err;
        assert!(told.contains("/dev/loop") && told.contains("is the same storage as"), "{told}");
    }
    assert!(desk.run(&format!("mount {a} {b} two")).err.contains(&file));
    desk.fine(&format!("examine {a}"));
    desk.fine("unmount one");
    // The other way round, and with a writer that came by the loop devices.
    desk.fine(&format!("mount {a} {b} two"));
    let point = desk.path("two").display().to_string();
    desk.refused("mount a b one", 5, &format!("a is the same storage as {a}, a member of the"));
    desk.refused("mount a b one", 5, &format!("raid-fuse unmount {point}"));
    desk.fine("unmount two");
    // Readers may be many.
    desk.fine("mount --read-only a b one");
    desk.fine(&format!("mount --read-only {a} {b} two"));
    desk.refused(&format!("create --force -l 0 -n 2 {a} c"), 5, "is the same storage as");
}

#[test]
fn one_storage_is_one_member_of_an_array() {
    if !met(&[Need::Fuse, Need::Loop]) {
        return;
    }
    let (desk, loops) = mirror();
    let [a, b] = names(&loops);
    let file = |name: &str| desk.path(name).display().to_string();
    let same = |one: &str, two: &str| format!("{one} and {two} are the same; give each member");
    desk.refused(&format!("create --force -l 1 -n 2 a {a}"), 1, &same("a", &a));
    desk.refused(&format!("mount {b} a b one"), 1, &same(&b, "b"));
    let part = Loop::with_options(&desk.path("c"), &["--offset", "1048576"]);
    let part = part.device().to_str().unwrap();
    let overlap = format!("c and {part} are parts of the same file or disk, and overlap");
    desk.refused(&format!("create -l 1 -n 2 c {part}"), 1, &overlap);
    desk.fine("mount a b one");
    for command in ["add one", "re-add one", "replace one b --with"] {
        let ran = desk.run(&format!("{command} {a}"));
        assert_ne!(ran.code, 0, "{command}: {ran:?}");
        // `replace` and `re-add` know the member under its other name.
        assert!(command != "add one" || ran.err.contains("is the same storage as a,"), "{ran:?}");
    }
    desk.fine("add one c");
    let ran = desk.run(&format!("add one {part}"));
    let wanted = format!("{part} is the same storage as ");
    assert!(ran.code == 5 && ran.err.contains(&wanted) && ran.err.contains(&file("c")), "{ran:?}");
    let status = desk.json("status --json one");
    assert_eq!(status["members"].as_array().unwrap().len(), 3, "{status}");
}

#[test]
fn parts_of_one_disk_are_members_of_two_arrays() {
    if !met(&[Need::Fuse, Need::Loop]) {
        return;
    }
    let (desk, _loops) = mirror();
    let half = (SIZE / 2).to_string();
    let part = |name: &str, start: &str| {
        let options = ["--offset", start, "--sizelimit", &half];
        Loop::with_options(&desk.path(name), &options)
    };
    let heads = ["c", "d"].map(|name| part(name, "0"));
    let tails = ["c", "d"].map(|name| part(name, &half));
    for (loops, point) in [(&heads, "one"), (&tails, "two")] {
        let [first, second] = names(loops);
        desk.fine(&format!("create -l 1 -n 2 {first} {second}"));
        desk.fine(&format!("mount {first} {second} {point}"));
    }
    desk.refused("create --force -l 0 -n 2 c d", 5, "c is the same storage as /dev/loop");
    for point in ["one", "two"] {
        assert_eq!(desk.json(&format!("status --json {point}"))["health"], "ok");
        desk.fine(&format!("unmount {point}"));
    }
}

#[test]
fn a_member_cut_short_is_failed_and_not_made_longer() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = Desk::new();
    desk.members("a b", SIZE);
    desk.fine("create -l 1 -n 2 a b");
    desk.folder("one");
    desk.fine("mount a b one");
    desk.fine("wait one");
    let volume = File::options().read(true).write(true).open(desk.path("one/volume")).unwrap();
    let end = volume.metadata().unwrap().len();
    volume.write_all_at(&[7; 8192], end - 8192).unwrap();
    volume.sync_all().unwrap();
    File::options().write(true).open(desk.path("b")).unwrap().set_len(2 * MIB).unwrap();
    let told = desk.run("status one").out;
    assert!(told.contains("member b: the file was cut short: 2097152 of 12582912"), "{told}");
    assert!(told.contains("raid-fuse replace "), "{told}");
    volume.write_all_at(&[8; 4096], end - 8192).unwrap();
    volume.sync_all().unwrap();
    let mdstat = fs::read_to_string(desk.path("one/mdstat")).unwrap();
    assert!(mdstat.contains("[U_]") && mdstat.contains("b[1](F)"), "{mdstat}");
    assert_eq!(fs::metadata(desk.path("b")).unwrap().len(), 2 * MIB);
    let mut found = [0; 8192];
    volume.read_exact_at(&mut found, end - 8192).unwrap();
    assert!(found[..4096] == [8; 4096] && found[4096..] == [7; 4096]);
    drop(volume);
    desk.fine("unmount one");
}

#[test]
fn a_deleted_member_is_told_of_where_people_look() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let desk = Desk::new();
    desk.members("a b c", SIZE);
    desk.fine("create -l 1 -n 2 a b");
    desk.folder("one");
    desk.fine("mount a b one");
    desk.fine("wait one");
    let told = || desk.run("status one").out;
    assert!(!told().contains("deleted"), "{}", told());
    fs::remove_file(desk.path("b")).unwrap();
    let line = "member b: its file was deleted; what is written goes there until the unmount and \
                is lost then; raid-fuse replace ";
    assert!(told().contains(line), "{}", told());
    let detail = || fs::read_to_string(desk.path("one/detail")).unwrap();
    assert!(wait_until(|| detail().contains(line)), "{}", detail());
    let json = desk.json("status --json one")["warnings"].to_string();
    assert!(json.contains(line), "{json}");
    // What it says works.
    let words = told();
    let (_, command) = words.split_once("lost then; raid-fuse ").unwrap();
    let command = command.lines().next().unwrap().replace("NEW", "c");
    desk.fine(&command);
    desk.fine("wait one");
    assert!(wait_until(|| !told().contains("deleted")), "{}", told());
    desk.fine("unmount one");
    desk.fine("status a c");
}
