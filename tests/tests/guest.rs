//! The kernel guest itself: it boots, makes arrays, reports, and never stays behind.

use raid_tests::guest::{End, Script};
use raid_tests::requires::{self, Need};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn members(dir: &Path, count: usize) -> Vec<PathBuf> {
    let make = |i| {
        let path = dir.join(format!("m{i}.img"));
        File::create(&path).unwrap().set_len(8 << 20).unwrap();
        path
    };
    (0..count).map(make).collect()
}

/// Living processes of the group `pid`, as /proc shows them. Those that have ended and only wait
/// for the system to take notice (state Z) hold nothing any more.
fn group(pid: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        // "pid (name) state parent group ..."
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        if fields.get(2) == Some(&pid.to_string().as_str()) && fields[0] != "Z" {
            found.push(stat);
        }
    }
    found
}

/// Asserts that the group is gone; the last of a killed group may take a moment.
fn assert_gone(pid: u32) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while !group(pid).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(group(pid), Vec::<String>::new(), "processes of a guest that was killed");
}

#[test]
fn the_kernel_makes_a_raid5_whose_superblocks_and_data_the_host_sees() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let dir = TempDir::new().unwrap();
    let members = members(dir.path(), 3);
    let script = r#"
        mdadm --create /dev/md0 --run -l5 -n3 -c64 --metadata=1.2 "$D0" "$D1" "$D2" 2>&1
        mdadm --wait /dev/md0 || true
        yes 'linux md' | dd of=/dev/md0 bs=64K count=8 iflag=fullblock conv=fsync 2>&1
        mdadm --wait-clean /dev/md0
        mdadm --stop /dev/md0
        echo done
    "#;
    let output = Script::new(script).images(&members).run().expect_success();
    assert!(output.ends_with("done\n"), "{output}");
    for member in &members {
        let mut magic = [0; 4];
        File::open(member).unwrap().read_exact_at(&mut magic, 4096).unwrap();
        assert_eq!(u32::from_le_bytes(magic), 0xa92b_4efc, "md's magic in {}", member.display());
    }
    let mut all = Vec::new();
    File::open(&members[0]).unwrap().read_to_end(&mut all).unwrap();
    assert!(all.windows(9).any(|window| window == b"linux md\n"), "data on the first member");
}

#[test]
fn the_status_and_both_streams_of_the_script_come_back() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let outcome = Script::new("echo out; echo err >&2; (exit 7)").run();
    assert_eq!((outcome.end, outcome.output.as_str()), (End::Exited(7), "out\nerr\n"));
}

#[test]
fn a_guest_that_hangs_is_killed_when_its_time_is_over_and_nothing_of_it_stays() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let mut guest = Script::new("echo started; sleep 1000").start();
    let pid = guest.pid();
    guest.wait_for("started");
    assert!(!group(pid).is_empty(), "a running guest has processes");
    let outcome = guest.limit_now().wait();
    assert_eq!((outcome.end, outcome.output.as_str()), (End::TimedOut, "started\n"));
    assert_gone(pid);
}

#[test]
fn a_guest_ends_with_the_test_that_panics() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let (send, receive) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let mut guest = Script::new("echo started; sleep 1000").start();
        send.send(guest.pid()).unwrap();
        guest.wait_for("started");
        std::panic::resume_unwind(Box::new("the test failed"));
    });
    let pid = receive.recv().unwrap();
    assert!(test.join().is_err());
    assert_gone(pid);
}

#[test]
fn two_guests_run_at_once_and_do_not_see_each_other() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let dirs = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let start = |level: &str, dir: &TempDir| {
        let create = format!(
            "mdadm --create /dev/md0 --run --assume-clean -l{level} -n2 \"$D0\" \"$D1\" 2>&1\n\
             grep md0 /proc/mdstat; sleep 2; grep -c active /proc/mdstat; mdadm --stop /dev/md0"
        );
        Script::new(create).images(members(dir.path(), 2)).start()
    };
    let (first, second) = (start("0", &dirs[0]), start("1", &dirs[1]));
    let first = first.wait().expect_success();
    let second = second.wait().expect_success();
    assert!(first.contains("active raid0") && first.contains("\n1\n"), "{first}");
    assert!(second.contains("active raid1") && second.contains("\n1\n"), "{second}");
}
