//! A mount with a daemon: started, ready, stopped by every way there is, killed, replaced.

use raid_tests::mount::*;
use raid_tests::requires::{Need, met};
use raid_tests::volume::pattern;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mount-image");
const SIZE: usize = (1 << 20) + 512;

/// A directory with an image and a mount point, cleared when dropped.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("mnt")).unwrap();
        let bytes: Vec<u8> = (0..SIZE as u64).map(pattern).collect();
        fs::write(dir.path().join("image"), bytes).unwrap();
        Place { dir }
    }

    fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn file(&self) -> PathBuf {
        self.mnt().join("volume")
    }

    fn image(&self) -> Vec<u8> {
        fs::read(self.dir.path().join("image")).unwrap()
    }

    fn is_dirty(&self) -> bool {
        self.dir.path().join("image.dirty").exists()
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg(self.mnt()).arg(self.dir.path().join("image"));
        command.args(words.split_whitespace());
        command
    }

    /// Mounts and answers the daemon's process number.
    fn mount(&self, words: &str) -> u32 {
        let output = run_command(&mut self.command(words));
        assert!(output.status.success(), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    fn umount(&self, words: &str) -> Output {
        let words = words.split_whitespace();
        run_command(Command::new(PROGRAM).arg("umount").arg(self.mnt()).args(words))
    }

    fn umount_fine(&self) {
        let output = self.umount("");
        assert!(output.status.success(), "{}", errors(&output));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let mnt = self.mnt();
        if mounts.contains(mnt.to_str().unwrap()) {
            run(&format!("fusermount3 -uz {}", mnt.display()));
        }
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// True while a thread of the process runs; a zombie nobody waits for does not.
fn runs(pid: u32) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.into_iter().any(|task| {
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
    })
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn umount_returns_when_everything_is_done() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let pid = place.mount("stop=700");
    assert!(place.is_dirty());
    assert_eq!(fs::read_to_string(place.mnt().join("pid")).unwrap(), format!("{pid}\n"));
    fs::write(place.file(), b"written").unwrap();
    place.umount_fine();
    assert!(!runs(pid), "the daemon is gone");
    assert!(!place.is_dirty(), "and had finished");
    assert!(place.image().starts_with(b"written"));
    assert!(errors(&place.umount("")).contains("nothing is mounted"));
}

#[test]
fn the_daemon_keeps_nothing_of_its_caller() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let lock = place.dir.path().join("lock");
    let line = format!(
        "exec 9>{}; {PROGRAM} {} {}",
        lock.display(),
        place.mnt().display(),
        place.dir.path().join("image").display()
    );
    // If the daemon kept the pipes, this would wait for its end.
    let pid: u32 = fine_shell(&line).trim().parse().unwrap();
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let open: Vec<_> = links.map(|link| fs::read_link(link.unwrap().path()).unwrap()).collect();
    assert!(!open.contains(&lock), "{open:?}");
    assert_eq!(open.iter().filter(|path| path == &Path::new("/dev/null")).count(), 3);
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    place.umount_fine();
}

#[test]
fn every_stopping_signal_is_a_clean_stop() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for signal in ["TERM", "INT", "HUP"] {
        let place = Place::new();
        let pid = place.mount("stop=200");
        fs::write(place.file(), signal).unwrap();
        fine_shell(&format!("kill -{signal} {pid}"));
        wait_for("the daemon ends", || !runs(pid));
        assert!(!place.is_dirty(), "{signal}: the stop hook ran");
        assert!(place.image().starts_with(signal.as_bytes()));
        assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0, "{signal}: unmounted");
    }
}

#[test]
fn a_signal_stops_a_busy_mount_too() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let pid = place.mount("grace=300");
    let file = File::options().read(true).write(true).open(place.file()).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    let busy = place.umount("");
    assert!(!busy.status.success());
    assert!(errors(&busy).contains(&format!("pid {}", std::process::id())), "{}", errors(&busy));
    file.write_all_at(b"during", 0).unwrap();
    let lazy = place.umount("lazy");
    assert!(lazy.status.success(), "{}", errors(&lazy));
    assert!(!runs(pid) && !place.is_dirty());
    assert!(place.image().starts_with(b"during"));
    assert!(file.write_all_at(b"after", 0).is_err());
}

#[test]
fn unmounting_by_others_is_a_clean_stop() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let pid = place.mount("stop=100");
    fs::write(place.file(), b"written").unwrap();
    fine(&format!("fusermount3 -u {}", place.mnt().display()));
    assert!(place.image().starts_with(b"written"), "there at once");
    let again = place.mount("");
    assert_ne!(pid, again, "the new one waited until the old one let go of the image");
    place.umount_fine();
    assert!(!runs(again) && !place.is_dirty());
    wait_for("the old daemon ends", || !runs(pid));
}

#[test]
fn after_kill_9_the_same_command_works_again() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    for _ in 0..2 {
        let pid = place.mount("");
        fine_shell(&format!("kill -9 {pid}"));
        wait_for("the daemon ends", || !runs(pid));
        let dead = fs::metadata(place.file()).unwrap_err();
        assert_eq!(dead.raw_os_error(), Some(libc::ENOTCONN));
    }
    // Nobody has looked yet: the kernel still knows what the directory was like.
    let pid = place.mount("");
    fs::metadata(place.mnt()).unwrap();
    fine_shell(&format!("kill -9 {pid}"));
    wait_for("the daemon ends", || !runs(pid));
    fs::metadata(place.mnt()).expect("attributes are answered without the daemon");
    let pid = place.mount("");
    assert_eq!(fs::read(place.file()).unwrap(), place.image());
    fine_shell(&format!("kill -9 {pid}"));
    wait_for("the daemon ends", || !runs(pid));
    place.umount_fine();
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0, "umount clears a dead mount");
    assert!(raid_fuse::rundir::list().iter().all(|record| record.pid != pid));
}

#[test]
fn errors_before_readiness_reach_the_caller() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let output = run_command(&mut place.command("dead"));
    assert!(!output.status.success());
    assert_eq!(errors(&output), "Dead: 2 of 4 members are missing\n");
    let pid = place.mount("");
    let output = run_command(&mut place.command(""));
    assert!(errors(&output).starts_with("Busy: an array is already mounted"), "{output:?}");
    assert!(runs(pid));
    place.umount_fine();
    fs::write(place.mnt().join("in the way"), b"").unwrap();
    let output = run_command(&mut place.command(""));
    assert!(errors(&output).starts_with("Refused: "), "{output:?}");
    assert!(!place.is_dirty(), "the members were not touched");
    fs::remove_file(place.mnt().join("in the way")).unwrap();
}

#[test]
fn an_end_that_is_not_clean_is_told_to_umount() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let log = place.dir.path().join("log");
    place.mount(&format!("noflush log={}", log.display()));
    let output = place.umount("");
    assert!(!output.status.success());
    assert!(errors(&output).contains("cannot be flushed"), "{}", errors(&output));
    assert!(fs::read_to_string(&log).unwrap().contains("cannot be flushed"));
    assert!(place.is_dirty(), "nothing was marked clean");
    place.mount("");
    place.umount_fine();
}

#[test]
fn a_panic_ends_the_daemon_and_leaves_the_array_dirty() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let pid = place.mount("");
    assert!(fs::write(place.file(), b"PANIC").is_err());
    wait_for("the daemon ends", || !runs(pid));
    assert!(place.is_dirty());
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0, "unmounted, not hanging");
    place.mount("");
    place.umount_fine();
    assert!(!place.is_dirty());
}

#[test]
fn the_foreground_stays_until_the_end() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let place = Place::new();
    let mut child = place.command("foreground").spawn().unwrap();
    wait_for("mounted", || place.file().exists());
    place.umount_fine();
    assert!(child.wait().unwrap().success());
    assert!(!place.is_dirty());
}

#[test]
fn an_ordinary_user_mounts_in_their_own_directory() {
    if !met(&[Need::Fuse, Need::Root]) {
        return;
    }
    const USER: u32 = 65534;
    let place = Place::new();
    fine(&format!("chown -R {USER}:{USER} {}", place.dir.path().display()));
    // The program lies in a directory the user may not enter.
    let program = place.dir.path().join("mount-image");
    fs::copy(PROGRAM, &program).unwrap();
    let user = format!("setpriv --reuid={USER} --regid={USER} --clear-groups env -i PATH=$PATH");
    let base = place.dir.path().display().to_string();
    let as_user = |line: &str| shell(&format!("cd /; {user} sh -c '{line}'"));
    let as_user_fine = |line: &str| {
        let output = as_user(line);
        assert!(output.status.success(), "{line}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let run_it = format!("{base}/mount-image {base}/mnt {base}/image");
    let pid: u32 = as_user_fine(&run_it).trim().parse().unwrap();
    as_user_fine(&format!("cmp {base}/mnt/volume {base}/image; cat {base}/mnt/pid"));
    as_user_fine(&format!("printf user | dd of={base}/mnt/volume conv=notrunc status=none"));
    assert!(fs::metadata(place.file()).is_err(), "not even root looks in without allow_other");
    as_user_fine(&format!("{base}/mount-image umount {base}/mnt"));
    assert!(!runs(pid) && !place.is_dirty());
    assert!(place.image().starts_with(b"user"));

    let pid: u32 = as_user_fine(&run_it).trim().parse().unwrap();
    fine_shell(&format!("kill -9 {pid}"));
    wait_for("the daemon ends", || !runs(pid));
    let pid: u32 = as_user_fine(&run_it).trim().parse().unwrap();
    place.umount_fine();
    assert!(!runs(pid) && !place.is_dirty(), "root waits for a user's daemon");

    let pid: u32 = as_user_fine(&run_it).trim().parse().unwrap();
    fine_shell(&format!("kill {pid}"));
    wait_for("the daemon ends", || !runs(pid));
    assert!(!place.is_dirty());
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0);

    let other = as_user(&format!("{base}/mount-image /proc/1 {base}/image"));
    assert!(!other.status.success());
}

#[test]
fn where_nothing_can_be_mounted_the_alternatives_are_named() {
    if !met(&[Need::Fuse, Need::Root]) {
        return;
    }
    let place = Place::new();
    let base = place.dir.path().display().to_string();
    let mount = format!("{PROGRAM} {base}/mnt {base}/image");
    for (way, line) in [
        ("no /dev/fuse", format!("unshare -m sh -c 'mount -t tmpfs none /dev; {mount}'")),
        (
            "no CAP_SYS_ADMIN",
            format!("setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin {mount}"),
        ),
    ] {
        let output = shell(&line);
        let said = errors(&output);
        assert!(!output.status.success(), "{way}");
        assert!(said.starts_with("Unsupported: "), "{way}: {said}");
        for alternative in ["raid-fuse cat", "raid-fuse write --offset"] {
            assert!(said.contains(alternative), "{way}: {said}");
        }
        assert!(!place.is_dirty(), "{way}: the array was closed again");
    }
}

#[test]
fn other_mount_namespaces_are_waited_for() {
    if !met(&[Need::Fuse, Need::Root]) {
        return;
    }
    let place = Place::new();
    let pid = place.mount("");
    let mut other = Command::new("unshare").args(["-m", "sleep", "4"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let output = place.umount("");
    assert!(output.status.success(), "{}", errors(&output));
    let told = format!("sleep (pid {})", other.id());
    assert!(errors(&output).contains(&told), "{}", errors(&output));
    assert!(!runs(pid) && !place.is_dirty());
    other.wait().unwrap();
}
