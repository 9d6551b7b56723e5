//! Loop devices, mounts and processes of this machine that go away with their owner.
//!
//! A guard takes down exactly what it made: the loop device it was given, the mount point it
//! mounted, the process it started. It does so also when the test panics.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// How long a mount may take to appear or a process to end.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often a waiting guard looks.
const POLL: Duration = Duration::from_millis(10);

/// Runs a command and returns its standard output. Panics with both streams if it fails.
pub fn run(program: &str, args: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let stdout = String::from_utf8_lossy(&stdout).into_owned();
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{program} {}: {status}\n{stdout}{stderr}", args.join(" "));
    stdout
}

/// A loop device of this machine over an image. Needs root.
#[derive(Debug)]
pub struct Loop {
    device: PathBuf,
}

impl Loop {
    /// Attaches the image to a free loop device.
    pub fn attach(image: &Path) -> Loop {
        Loop::with_options(image, &[])
    }

    /// The same with further options of losetup, such as `--sector-size=4096`.
    pub fn with_options(image: &Path, options: &[&str]) -> Loop {
        let image = image.to_str().expect("paths of tests are UTF-8");
        let device = run("losetup", &[&["--find", "--show"], options, &[image]].concat());
        Loop { device: PathBuf::from(device.trim()) }
    }

    /// The device: `/dev/loop3`.
    pub fn device(&self) -> &Path {
        &self.device
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        take_down(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

/// A mount point in use, unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    at: PathBuf,
    unmount: &'static [&'static str],
}

impl Mount {
    /// Mounts a device or image at a directory with mount(8), options as typed. Needs root.
    pub fn new(source: &Path, at: &Path, options: &[&str]) -> Mount {
        let text = |path: &Path| path.to_str().expect("paths of tests are UTF-8").to_string();
        run("mount", &[options, &[&text(source), &text(at)]].concat());
        Mount { at: at.to_path_buf(), unmount: &["umount"] }
    }

    /// Takes over a FUSE mount that somebody else makes or has made at `at`: waits until it is
    /// there. Needs no root.
    pub fn fuse(at: &Path) -> Mount {
        let guard = Mount { at: at.to_path_buf(), unmount: &["fusermount3", "-u"] };
        let there = wait_until(|| is_mounted(at));
        assert!(there, "nothing was mounted at {} in {PATIENCE:?}", at.display());
        guard
    }

    /// The mount point.
    pub fn at(&self) -> &Path {
        &self.at
    }

    /// Unmounts now. Panics if the mount is in use or gone.
    pub fn unmount(self) {
        let at = self.at.to_str().expect("paths of tests are UTF-8");
        run(self.unmount[0], &[&self.unmount[1..], &[at]].concat());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if is_mounted(&self.at) {
            // Lazily: a test that fails with an open file must not leave the mount behind.
            let mut command = Command::new(self.unmount[0]);
            take_down(command.args(&self.unmount[1..]).arg(lazy(self.unmount)).arg(&self.at));
        }
    }
}

/// The option of the unmounting command that detaches a busy mount.
fn lazy(unmount: &[&str]) -> &'static str {
    if unmount[0] == "umount" { "-l" } else { "-z" }
}

/// True if something is mounted exactly at `at`.
pub fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").expect("the table of mounts");
    let name = at.to_str().expect("paths of tests are UTF-8");
    // The table writes a space as \040; the other escapes do not occur in paths of tests.
    let name = name.replace(' ', "\\040");
    table.lines().any(|line| line.split(' ').nth(1) == Some(name.as_str()))
}

/// A process, killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: File,
}

impl Process {
    /// Starts the command, with both its output streams in one file.
    pub fn start(command: &mut Command) -> Process {
        // A file, not a pipe: a process nobody reads from must not stall.
        let output = tempfile::tempfile().expect("a file for the output");
        let stream = || Stdio::from(output.try_clone().expect("another handle on the output"));
        command.stdin(Stdio::null()).stdout(stream()).stderr(stream());
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        Process { child, output }
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        let size = self.output.metadata().expect("the output is an open file").len();
        let mut bytes = vec![0; size as usize];
        self.output.read_exact_at(&mut bytes, 0).expect("the output is an open file");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) {
        // SAFETY: kill(2) takes two integers; the child is not reaped, so the pid is its own.
        let answer = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(answer, 0, "signal {signal} to process {}", self.child.id());
    }

    /// Waits for its end; exit status (128 + signal if killed) and all output.
    /// Panics if it does not end in time.
    pub fn wait(mut self) -> (i32, String) {
        let mut status = None;
        let ended = wait_until(|| {
            status = self.child.try_wait().expect("the process is our child");
            status.is_some()
        });
        assert!(ended, "process {} did not end in {PATIENCE:?}", self.child.id());
        let status = status.expect("the process has ended");
        let code = status.code().or(status.signal().map(|signal| 128 + signal));
        (code.expect("an ended process has a status or a signal"), self.output())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; either way nobody is left to be told.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// True as soon as `done` is; false when the patience is over.
pub fn wait_until(mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

/// Runs a command of a destructor: a failure is told, not raised.
fn take_down(command: &mut Command) {
    match command.stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {}
        Ok(output) => eprintln!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => eprintln!("{command:?}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::{Images, MIB};
    use crate::requires::{self, Need};

    #[test]
    fn loops_and_mounts_go_away_with_their_owner_also_on_panic() {
        if !requires::met(&[Need::Loop, Need::Ext4]) {
            return;
        }
        let images = Images::new();
        let image = images.member("file system", 8 * MIB);
        let point = images.subdir("mount point");
        run("mkfs.ext4", &["-q", image.to_str().unwrap()]);
        let (device, at) = (Loop::attach(&image), point.clone());
        let node = device.device().to_path_buf();
        let backing = Path::new("/sys/block").join(node.file_name().unwrap()).join("loop");
        let test = std::thread::spawn(move || {
            let mount = Mount::new(device.device(), &at, &["-t", "ext4"]);
            fs::write(mount.at().join("file"), "content").unwrap();
            assert!(is_mounted(&at));
            let _open = File::open(mount.at().join("file")).unwrap();
            std::panic::resume_unwind(Box::new((mount, device)));
        });
        drop(test.join().unwrap_err());
        assert!(!is_mounted(&point));
        assert!(wait_until(|| !backing.exists()), "{} is detached", node.display());
    }

    #[test]
    fn a_process_is_killed_with_its_owner_and_its_end_is_reported() {
        let sleeper = Process::start(Command::new("sleep").arg("1000"));
        let proc = PathBuf::from(format!("/proc/{}", sleeper.pid()));
        assert!(proc.exists());
        drop(sleeper);
        assert!(!proc.exists());

        let script = "echo out; echo err >&2; exit 3";
        let ended = Process::start(Command::new("sh").args(["-c", script])).wait();
        assert_eq!(ended, (3, "out\nerr\n".to_string()));
        let killed = Process::start(Command::new("sleep").arg("1000"));
        killed.signal(libc::SIGTERM);
        assert_eq!(killed.wait().0, 128 + libc::SIGTERM);
    }
}
