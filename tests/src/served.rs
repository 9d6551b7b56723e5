//! The `raid-fuse` command as people use it: arrays of image files, made, mounted and taken down.
//!
//! A [`Served`] array is a daemon in the background and a mount. Dropping it, also by a panic,
//! kills exactly that daemon and takes exactly that mount away.

use crate::cli;
use crate::guards::{is_mounted, wait_until};
use crate::images::Images;
use crate::mount::run_command;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Exit status of a command that was refused because something is in use.
const IN_USE: i32 = 5;

/// Runs `raid-fuse` with a time limit. `words` are separated by spaces; `paths` follow.
pub fn raid_fuse(words: &str, paths: &[&Path]) -> Output {
    run_command(Command::new(cli::program()).args(words.split_whitespace()).args(paths))
}

fn expect_fine(what: &str, output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "raid-fuse {what}: {}\n{out}{err}", output.status);
}

/// An array of sparse images, and a directory to mount it on.
#[derive(Debug)]
pub struct ImageArray {
    images: Images,
    members: Vec<PathBuf>,
    point: PathBuf,
}

impl ImageArray {
    /// Makes an array of `count` images of `size` bytes; `options` as typed after `create`.
    pub fn create(options: &str, count: usize, size: u64) -> ImageArray {
        let images = Images::new();
        let members = images.members(count, size);
        let paths: Vec<&Path> = members.iter().map(PathBuf::as_path).collect();
        let what = format!("create {options} -n {count}");
        expect_fine(&what, &raid_fuse(&what, &paths));
        let point = images.subdir("array");
        ImageArray { images, members, point }
    }

    /// The directory of the images, for what else a test needs.
    pub fn images(&self) -> &Images {
        &self.images
    }

    /// The members by slot.
    pub fn members(&self) -> &[PathBuf] {
        &self.members
    }

    /// Mounts all members.
    pub fn mount(&self) -> Served {
        self.mount_without(&[], "")
    }

    /// Mounts without the members in the `missing` slots; `options` as typed.
    pub fn mount_without(&self, missing: &[usize], options: &str) -> Served {
        let there = self.members.iter().enumerate().filter(|(slot, _)| !missing.contains(slot));
        let mut paths: Vec<&Path> = there.map(|(_, path)| path.as_path()).collect();
        paths.push(&self.point);
        let degraded = if missing.is_empty() { "" } else { "--degraded" };
        let what = format!("mount {degraded} {options}");
        // From here on something may be there to be taken down, also if the command fails.
        let mut served = Served { point: self.point.clone(), daemon: None };
        let output = raid_fuse(&what, &paths);
        served.daemon = daemons_of(&self.point).first().copied();
        expect_fine(&what, &output);
        assert!(served.daemon.is_some(), "a daemon serves {}", self.point.display());
        served
    }
}

/// A mounted array.
#[derive(Debug)]
pub struct Served {
    point: PathBuf,
    daemon: Option<i32>,
}

impl Served {
    /// The volume file.
    pub fn volume(&self) -> PathBuf {
        self.point.join("volume")
    }

    /// What `status --json` says.
    pub fn status(&self) -> Value {
        let output = raid_fuse("status --json", &[&self.point]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("status of {}: {error}", self.point.display()))
    }

    /// Waits until no resync is needed any more.
    pub fn wait_in_sync(&self) {
        let done = wait_until(|| self.status()["resync"].is_null());
        assert!(done, "the resync does not end: {}", self.status());
    }

    /// Unmounts with `raid-fuse unmount` and expects a clean end. Waits for those who let go of
    /// the volume a moment late, as the kernel does after `losetup -d`.
    pub fn unmount(mut self) {
        let mut last = None;
        let done = wait_until(|| {
            let output = raid_fuse("unmount", &[&self.point]);
            let free = output.status.code() != Some(IN_USE);
            last = Some(output);
            free
        });
        let output = last.expect("it was tried at least once");
        assert!(done, "the mount stays busy: {}", String::from_utf8_lossy(&output.stderr));
        expect_fine("unmount", &output);
        self.daemon = None;
        assert!(!is_mounted(&self.point), "{} is unmounted", self.point.display());
    }

    /// kill -9 of the daemon; returns when it is gone. The dead mount stays, as after a crash.
    pub fn kill(mut self) {
        let daemon = self.daemon.take().expect("a daemon serves");
        kill(daemon);
        let gone = wait_until(|| !runs(daemon));
        assert!(gone, "daemon {daemon} survives kill -9");
        std::mem::forget(self);
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            kill(daemon);
        }
        while is_mounted(&self.point) {
            // Lazily: a test that fails may have the volume open.
            let output = run_command(Command::new("umount").arg("-l").arg(&self.point));
            if !output.status.success() {
                eprintln!("{}: {}", self.point.display(), String::from_utf8_lossy(&output.stderr));
                return;
            }
        }
    }
}

/// Processes of our binary that have the mount point among their arguments.
fn daemons_of(point: &Path) -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("the table of processes");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours = |pid: &i32| {
        // Processes come and go while we look; those that are gone are not ours.
        let exe = fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        exe == cli::program() && words.any(|word| word == point.as_os_str().as_encoded_bytes())
    };
    pids.filter(ours).collect()
}

fn kill(pid: i32) {
    // SAFETY: kill(2) takes two integers. The daemon lives as long as its mount is ours.
    let _gone_already = unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// True if the process exists and is more than an entry in the table.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}
