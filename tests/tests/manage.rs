//! Managing a mounted array by commands: fail, remove, add, re-add, replace, check, repair, wait.

use raid_tests::cli::Desk;
use raid_tests::images::{self, MIB};
use raid_tests::pattern::first_difference;
use raid_tests::requires::{Need, is_root, met};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

const SIZE: u64 = 12 * MIB;

/// A desk with the members `a b c d` and room for more, and a mounted array filled with a pattern.
fn mounted(create: &str, members: &str) -> (Desk, Vec<u8>) {
    let desk = Desk::new();
    desk.members(&format!("{members} x y"), SIZE);
    desk.fine(&format!("create {create} -N home {members}"));
    desk.folder("mnt");
    desk.fine(&format!("mount {members} mnt"));
    desk.fine("wait mnt");
    let bytes = pattern(2 << 20, 1);
    volume(&desk).write_all_at(&bytes, 0).unwrap();
    (desk, bytes)
}

fn volume(desk: &Desk) -> File {
    File::options().read(true).write(true).open(desk.path("mnt/volume")).unwrap()
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 509 * 7 + i * seed) as u8).collect()
}

fn assert_content(desk: &Desk, bytes: &[u8], when: &str) {
    let mut found = vec![0; bytes.len()];
    volume(desk).read_exact_at(&mut found, 0).unwrap();
    assert_eq!(first_difference(&found, bytes), None, "{when}");
}

/// The brackets of mdstat: `[UU_]`.
fn marks(desk: &Desk) -> String {
    let text = fs::read_to_string(desk.path("mnt/mdstat")).unwrap();
    let marks = text.split_whitespace().find(|word| word.starts_with(['[']) && word.contains('U'));
    marks.unwrap_or_else(|| panic!("{text}")).to_string()
}

fn md(desk: &Desk, file: &str) -> String {
    fs::read_to_string(desk.path("mnt/md").join(file)).unwrap()
}

/// The members alone, each kept away in turn, hold the same bytes.
fn assert_redundant(desk: &Desk, members: &str, bytes: &[u8]) {
    desk.fine("unmount mnt");
    let all: Vec<&str> = members.split_whitespace().collect();
    for away in &all {
        let rest: Vec<&str> = all.iter().copied().filter(|name| name != away).collect();
        let line = format!("cat --degraded --length {} {}", bytes.len(), rest.join(" "));
        let ran = desk.shell(&format!("raid-fuse {line} > out"));
        assert_eq!(ran.code, 0, "{ran:?}");
        let found = fs::read(desk.path("out")).unwrap();
        assert_eq!(first_difference(&found, bytes), None, "without {away}");
    }
}

#[test]
fn fail_remove_add_and_wait_keep_every_byte() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let levels = [
        ("-l 1 -n 2", "a b"),
        ("-l 5 -n 3 -c 64", "a b c"),
        ("-l 6 -n 4 -c 16 -b internal", "a b c d"),
        ("-l 10 -n 4 -c 64", "a b c d"),
    ];
    for (create, members) in levels {
        let (desk, bytes) = mounted(create, members);
        let slots = members.split_whitespace().count();
        assert!(desk.fine("fail mnt b").contains("b is failed"));
        let mut expected = "U".repeat(slots);
        expected.replace_range(1..2, "_");
        assert_eq!(marks(&desk), format!("[{expected}]"), "{create}");
        assert_eq!(md(&desk, "degraded"), "1\n");
        assert_content(&desk, &bytes, create);
        assert_eq!(desk.run("status mnt").code, 1);
        desk.fine("remove mnt b");
        assert!(!desk.path("mnt/md/dev-b").exists(), "{create}");
        // The file is free again: somebody else can lock it.
        desk.fine("examine b");
        let text = desk.fine("add mnt x");
        assert!(text.contains("being filled for slot 1"), "{text}");
        desk.fine("wait mnt");
        assert_eq!(marks(&desk), format!("[{}]", "U".repeat(slots)), "{create}");
        assert_eq!(desk.run("status mnt").code, 0);
        assert_eq!(md(&desk, "last_sync_action"), "recovery\n");
        assert_redundant(&desk, &members.replace('b', "x"), &bytes);
    }
}

#[test]
fn a_spare_takes_over_by_itself_while_users_write() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, _) = mounted("-l 5 -n 3 -c 16", "a b c");
    assert!(desk.fine("add mnt x").contains("x is a spare"));
    assert!(fs::read_to_string(desk.path("mnt/mdstat")).unwrap().contains(" x[3](S) "));
    let (over, mut bytes) = (AtomicBool::new(false), pattern(2 << 20, 1));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let (file, mut round) = (volume(&desk), 2);
            while !over.load(Ordering::SeqCst) {
                bytes = pattern(2 << 20, round);
                for (index, piece) in bytes.chunks(24 * 1024 + 512).enumerate() {
                    file.write_all_at(piece, index as u64 * (24 * 1024 + 512)).unwrap();
                }
                round += 1;
            }
        });
        desk.fine("fail mnt a");
        desk.fine("wait mnt");
        desk.fine("fail mnt slot:1");
        over.store(true, Ordering::SeqCst);
        writer.join().unwrap();
    });
    assert_eq!(marks(&desk), "[U_U]");
    assert_content(&desk, &bytes, "after two failures");
    desk.fine("remove mnt failed");
    desk.fine("add mnt y");
    desk.fine("wait mnt");
    assert_redundant(&desk, "x y c", &bytes);
}

#[test]
fn a_mount_that_lacks_a_member_fills_a_spare_at_once() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, bytes) = mounted("-l 5 -n 3 -c 64", "a b c");
    desk.fine("add mnt x");
    desk.fine("unmount mnt");
    desk.fine("mount --degraded a c x mnt");
    desk.fine("wait mnt");
    assert_eq!(marks(&desk), "[UUU]");
    assert_redundant(&desk, "a x c", &bytes);
}

#[test]
fn a_replacement_keeps_redundancy_all_the_time() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let levels = [("-l 1 -n 2", "a b"), ("-l 6 -n 4 -c 64", "a b c d"), ("-l 10 -n 4", "a b c d")];
    for (create, members) in levels {
        let (desk, bytes) = mounted(create, members);
        desk.fine("speed mnt --max 400");
        let text = desk.fine("replace mnt b --with x");
        assert!(text.contains("x is being filled to replace b"), "{text}");
        let text = fs::read_to_string(desk.path("mnt/mdstat")).unwrap();
        assert!(text.contains("(R)") && text.contains("recovery ="), "{text}");
        assert_eq!(md(&desk, "degraded"), "0\n");
        assert_eq!(md(&desk, "dev-x/state"), "spare,replacement\n");
        assert_eq!(md(&desk, "dev-b/state"), "in_sync,want_replacement\n");
        assert_eq!(md(&desk, "sync_action"), "recover\n");
        desk.fine("speed mnt --max 1000000");
        desk.fine("wait mnt");
        let text = fs::read_to_string(desk.path("mnt/mdstat")).unwrap();
        assert!(text.contains("b[1](F)") && !text.contains("(R)"), "{text}");
        desk.fine("remove mnt b");
        assert_eq!(desk.run("status mnt").code, 0);
        assert_redundant(&desk, &members.replace('b', "x"), &bytes);
    }
}

#[test]
fn a_member_comes_back_where_the_bitmap_knows_what_it_missed() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, _) = mounted("-l 5 -n 3 -c 64 -b internal", "a b c");
    desk.fine("fail mnt b");
    desk.fine("remove mnt b");
    let bytes = pattern(2 << 20, 5);
    volume(&desk).write_all_at(&bytes, 0).unwrap();
    let text = desk.fine("re-add mnt b");
    assert!(text.contains("b is back in slot 1"), "{text}");
    desk.fine("wait mnt");
    desk.fine("fail mnt c");
    let text = desk.fine("re-add mnt c");
    assert!(text.contains("is back in slot 2"), "failed and not removed: {text}");
    desk.fine("wait mnt");
    desk.fine("fail mnt a");
    desk.fine("remove mnt a");
    desk.fine("re-add mnt missing");
    desk.fine("wait mnt");
    assert_eq!(marks(&desk), "[UUU]");
    assert_redundant(&desk, "a b c", &bytes);
}

#[test]
fn a_bitmap_is_given_and_taken_while_the_array_runs() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for create in
        ["-l 1 -n 3 -e 1.2", "-l 1 -n 3 -e 1.0", "-l 5 -n 3 -c 64 -e 1.1", "-l 10 -n 3 -c 64 -p o2"]
    {
        let (desk, mut bytes) = mounted(create, "a b c");
        assert_eq!(md(&desk, "consistency_policy"), "resync\n", "{create}");
        desk.fine("grow mnt --bitmap=internal --bitmap-chunk 64K");
        assert_eq!(md(&desk, "consistency_policy"), "bitmap\n", "{create}");
        let told = desk.shell("raid-fuse examine a b c");
        assert_eq!(told.out.matches("Internal Bitmap").count(), 3, "{create}: {}", told.out);
        let twice = desk.run("grow mnt --bitmap=internal");
        assert!(twice.code == 5 && twice.err.contains("--bitmap=none"), "{twice:?}");
        desk.fine("fail mnt b");
        desk.fine("remove mnt b");
        bytes[70_000..90_000].fill(0x5a);
        volume(&desk).write_all_at(&bytes[70_000..90_000], 70_000).unwrap();
        let back = desk.fine("re-add mnt b");
        assert!(back.contains("only what it missed"), "{create}: {back}");
        desk.fine("wait mnt");
        assert_eq!(marks(&desk), "[UUU]", "{create}");
        desk.fine("grow mnt --bitmap=none");
        assert_eq!(md(&desk, "consistency_policy"), "resync\n", "{create}");
        assert_redundant(&desk, "a b c", &bytes);
        let told = desk.shell("raid-fuse examine a");
        assert!(!told.out.contains("Internal Bitmap"), "{create}: {}", told.out);
    }
}

#[test]
fn a_check_counts_as_md_and_a_repair_mends() {
    if !met(&[Need::Fuse]) {
        return;
    }
    // A wrong sector counts as the window that is compared: 64 KiB of copies, 4 KiB of parity.
    let levels = [("-l 1 -n 2", "a b", 128), ("-l 5 -n 3 -c 64", "a b c", 8)];
    for (create, members, count) in levels {
        let (desk, _) = mounted(create, members);
        assert!(desk.fine("check mnt --wait").contains("no differences"));
        desk.fine("unmount mnt");
        let found = desk.json("examine --json b");
        let text = found["members"][0]["superblocks"][0].to_string();
        let at = MIB + 40 * 4096;
        images::flip(&desk.path("b"), at, 512);
        desk.fine(&format!("mount {members} mnt"));
        let ran = desk.run("check mnt --wait");
        assert_eq!(ran.code, 1, "{text}: {ran:?}");
        assert_eq!(md(&desk, "mismatch_cnt"), format!("{count}\n"), "{create}");
        assert_eq!(md(&desk, "last_sync_action"), "check\n");
        let advice = format!("raid-fuse unmount mnt && raid-fuse check {members}\n");
        assert!(ran.out.contains(&advice) && !ran.out.contains("--locate"), "{ran:?}");
        assert!(desk.fine("repair mnt --wait").contains("and were made to"));
        assert_eq!(md(&desk, "mismatch_cnt"), format!("{count}\n"), "{create}: as many mended");
        assert_eq!(desk.run("check mnt --wait").code, 0);
        assert_eq!(md(&desk, "mismatch_cnt"), "0\n", "{create}");
    }
}

#[test]
fn refusals_say_what_was_found_and_what_to_type() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, bytes) = mounted("-l 5 -n 3 -c 64", "a b c");
    desk.members("small", 2 * MIB);
    desk.members("other0 other1", SIZE);
    desk.fine("create -l 1 -n 2 other0 other1");
    fs::write(desk.path("text"), pattern(SIZE as usize, 3)).unwrap();
    desk.fine("fail mnt a");
    let mnt = fs::canonicalize(desk.path("mnt")).unwrap();
    let replace = format!("raid-fuse replace {} b", mnt.display());
    let cases = [
        ("fail mnt b", 5, replace.as_str()),
        ("fail mnt nobody", 1, "nobody is not in this array; it has"),
        ("fail mnt slot:7", 1, "it has"),
        ("remove mnt c", 5, "raid-fuse fail"),
        ("add mnt a", 5, "raid-fuse remove"),
        ("add mnt b", 5, "in this array already"),
        ("add mnt other0", 4, "array"),
        ("add mnt text", 4, "--force"),
        ("add mnt small", 1, "small"),
        ("add mnt nosuch", 1, "nosuch"),
        ("add mnt mnt", 1, "a directory"),
        ("re-add mnt x", 4, "raid-fuse add"),
        ("replace mnt b --with x", 5, "raid-fuse add"),
        ("replace mnt a", 5, "not in sync"),
        ("replace mnt b --with c", 5, "no spare"),
        ("replace mnt b --with x y", 64, "give one for each"),
        ("sync-action mnt explode", 64, "expected idle"),
        ("speed mnt --min 0", 64, "0"),
        ("fail nowhere b", 4, "nowhere"),
    ];
    for (words, code, word) in cases {
        let ran = desk.run(words);
        assert_eq!(ran.code, code, "{words}: {ran:?}");
        assert!(ran.err.contains(word), "{words}: {word:?} is not in {}", ran.err);
    }
    assert_eq!(fs::read(desk.path("text")).unwrap(), pattern(SIZE as usize, 3), "untouched");
    assert_content(&desk, &bytes, "after all refusals");
    desk.fine("sync-action mnt frozen");
    assert_eq!(desk.fine("sync-action mnt"), "frozen\n");
    desk.fine("add mnt text --force");
    assert_eq!(marks(&desk), "[_UU]", "nothing begins");
    let ran = desk.run("wait mnt");
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("frozen") && ran.err.contains("sync-action mnt idle"), "{ran:?}");
    desk.fine("speed mnt --max 64K");
    desk.fine("sync-action mnt recover");
    let ran = desk.run("check mnt");
    assert_eq!(ran.code, 5, "{ran:?}");
    assert!(ran.err.contains("raid-fuse wait mnt") && !ran.err.contains("say idle"), "{ran:?}");
    desk.fine("speed mnt --max system");
    desk.fine("wait mnt");
    assert_eq!(marks(&desk), "[UUU]");
    desk.fine("remove mnt a");
    desk.fine("unmount mnt");
}

#[test]
fn a_member_whose_file_is_gone_is_detached() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, bytes) = mounted("-l 1 -n 2", "a b");
    assert!(desk.fine("remove mnt detached").contains("nothing"));
    fs::remove_file(desk.path("b")).unwrap();
    desk.fine("remove mnt detached");
    assert_eq!(marks(&desk), "[U_]");
    desk.fine("add mnt x");
    desk.fine("wait mnt");
    assert_redundant(&desk, "a x", &bytes);
}

#[test]
fn write_mostly_is_set_shown_kept_and_taken_away() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, _) = mounted("-l 1 -n 2", "a b");
    desk.fine("write-mostly mnt a");
    assert_eq!(md(&desk, "dev-a/state"), "in_sync,write_mostly\n");
    desk.fine("unmount mnt");
    desk.fine("mount a b mnt");
    assert!(fs::read_to_string(desk.path("mnt/mdstat")).unwrap().contains("a[0](W)"));
    desk.fine("write-mostly mnt a --off");
    desk.fine("fail mnt b");
    desk.fine("remove mnt b");
    desk.fine("add mnt x --write-mostly");
    desk.fine("wait mnt");
    assert_eq!(md(&desk, "dev-x/state"), "in_sync,write_mostly\n");
    assert_eq!(md(&desk, "dev-a/state"), "in_sync\n");
}

/// The socket of the mount `mnt`, by the record beside it.
fn socket(desk: &Desk) -> PathBuf {
    let point = fs::canonicalize(desk.path("mnt")).unwrap();
    // SAFETY: getuid(2) takes nothing and cannot fail.
    let user = unsafe { libc::getuid() };
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(|dir| PathBuf::from(dir).join("raid-fuse"));
    let mut dirs = vec![format!("/run/user/{user}/raid-fuse").into()];
    dirs.push(PathBuf::from(format!("/tmp/raid-fuse-{user}")));
    dirs.extend(runtime);
    dirs.extend(is_root().then(|| PathBuf::from("/run/raid-fuse")));
    let records = dirs.iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten().flatten());
    let ours = records.map(|entry| entry.path()).find(|path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.contains(&format!("\"mountpoint\":{:?}", point.to_str().unwrap()))
    });
    ours.expect("the mount has a record").with_extension("sock")
}

fn say(socket: &PathBuf, line: &[u8]) -> serde_json::Value {
    let stream = UnixStream::connect(socket).unwrap();
    (&stream).write_all(line).unwrap();
    (&stream).write_all(b"\n").unwrap();
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
fn the_socket_is_private_and_survives_nonsense() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, bytes) = mounted("-l 1 -n 2", "a b");
    let socket = socket(&desk);
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let _stuck = UnixStream::connect(&socket).unwrap();
    let nonsense: [&[u8]; 5] = [b"", b"{", b"\xff\x00", b"{\"cmd\":\"fail\"}", &[b'['; 60_000]];
    for line in nonsense {
        assert_eq!(say(&socket, line)["error"]["kind"], "invalid");
    }
    let answer = say(&socket, b"{\"cmd\":\"status\"}");
    assert_eq!((&answer["ok"], &answer["report"]["level"]), (&true.into(), &"raid1".into()));
    let answer = say(&socket, b"{\"cmd\":\"fail\",\"member\":\"b\"}");
    assert_eq!(answer, serde_json::json!({"ok": true, "text": "b is failed"}));
    let answer = say(&socket, b"{\"cmd\":\"fail\",\"member\":\"a\"}");
    assert_eq!(answer["error"]["kind"], "busy");
    assert_content(&desk, &bytes, "after all that");
    desk.fine("unmount mnt");
    assert!(!socket.exists(), "it goes with the mount");
}

#[test]
fn messages_about_members_in_use_follow_those_who_come_and_go() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, _) = mounted("-l 1 -n 2", "a b");
    desk.fine("add mnt x");
    desk.folder("other");
    let said = desk.run("mount x other");
    assert!(said.err.contains("is a member of the array that is mounted on"), "{said:?}");
    desk.fine("fail mnt b");
    desk.fine("wait mnt");
    desk.fine("remove mnt b");
    let said = desk.run("cat --degraded --length 0 b");
    assert_eq!(said.code, 0, "b is free: {said:?}");
}

#[test]
fn files_of_the_kernel_can_be_left_out() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, bytes) = mounted("-l 1 -n 2", "a b");
    desk.fine("unmount mnt");
    desk.fine("mount --no-control-files a b mnt");
    let mut names: Vec<_> = fs::read_dir(desk.path("mnt"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["detail", "mdstat", "status.json", "volume"]);
    desk.fine("fail mnt a");
    assert_content(&desk, &bytes, "commands work all the same");
}

#[test]
fn words_about_a_mount_fit_its_level_and_state() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (desk, _) = mounted("-l 6 -n 4 -c 16", "a b c d");
    desk.fine("unmount mnt");
    images::flip(&desk.path("b"), 3 * MIB, 512);
    desk.fine("mount a b c d mnt");
    let ran = desk.run("check mnt --wait");
    let mends =
        "names the member that lies; to mend that one:\n  raid-fuse repair --locate a b c d\n";
    assert!(ran.code == 1 && ran.out.contains(mends), "{ran:?}");
    assert!(ran.out.contains("`repair` makes parity from the data as they are"), "{ran:?}");
    // What was advised works as typed.
    for line in ran.out.lines().filter(|line| line.starts_with("  raid-fuse unmount")) {
        assert_eq!(desk.shell(&line.replace("  raid-fuse", "raid-fuse")).code, 1, "{line}");
    }
    assert!(desk.fine("repair --locate a b c d").contains("1 place made right"));
    desk.fine("mount --degraded a b c mnt");
    assert_eq!(desk.fine("wait mnt"), "degraded, no spare\n");
    desk.fine("add mnt d --force");
    desk.fine("wait mnt");
    let told = desk.fine("status mnt");
    assert!(
        told.contains("note: at the start: ") && told.contains("slot 3 had no usable"),
        "{told}"
    );
    desk.fine("unmount mnt");
    for level in ["0", "linear"] {
        desk.fine(&format!("create --force -l {level} -n 2 x y"));
        desk.fine("mount x y mnt");
        desk.refused("check mnt --wait", 4, "nothing to check: ");
        desk.refused("repair mnt", 4, "has no redundancy");
        desk.fine("unmount mnt");
    }
}
