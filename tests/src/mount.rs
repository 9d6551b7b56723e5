//! Real mounts for tests, taken down also on failure, and programs with a time limit.

use crate::volume::Memory;
use raid_fuse::export::Volume;
use raid_fuse::export::options::Options;
use raid_fuse::mounted::{Mounted, mount_volume};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Longer than any of these programs takes; a hang must not hang the tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// A volume mounted on a directory of its own.
pub struct TestMount {
    /// The live mount.
    pub mounted: Mounted,
    dir: TempDir,
}

impl TestMount {
    /// Mounts with default options.
    pub fn new(volume: Arc<dyn Volume>) -> TestMount {
        TestMount::with(volume, &Options::default())
    }

    /// Mounts with these options.
    pub fn with(volume: Arc<dyn Volume>, options: &Options) -> TestMount {
        let dir = TempDir::new().unwrap();
        let mounted = mount_volume(volume, dir.path(), options).unwrap();
        TestMount { mounted, dir }
    }

    /// The mount point.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The volume file.
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("volume")
    }
}

/// A mounted memory volume of `size` bytes.
pub fn memory(size: u64) -> (Arc<Memory>, TestMount) {
    let volume = Arc::new(Memory::new(size));
    (volume.clone(), TestMount::new(volume))
}

/// Runs a program with a time limit; `words` are separated by spaces.
pub fn run(words: &str) -> Output {
    let words: Vec<&str> = words.split_whitespace().collect();
    run_command(Command::new(words[0]).args(&words[1..]))
}

/// Runs a shell line with a time limit.
pub fn shell(line: &str) -> Output {
    run_command(Command::new("sh").args(["-c", line]))
}

/// Runs a command with a time limit; panics if it does not end.
pub fn run_command(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("LC_ALL", "C");
    let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let id = child.id() as libc::pid_t;
    let (done, over) = std::sync::mpsc::channel();
    // It is read while it runs, so that a long answer does not fill the pipe.
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output();
        // Nobody hears it where it came too late.
        let _late = done.send(output);
    });
    let Ok(output) = over.recv_timeout(PATIENCE) else {
        // SAFETY: a plain call with numbers; the process is ours and was not waited for.
        unsafe { libc::kill(id, libc::SIGKILL) };
        panic!("{command:?} hangs");
    };
    waiter.join().expect("it only waits");
    output.unwrap()
}

/// Runs a program and expects success; answers what it printed.
pub fn fine(words: &str) -> String {
    expect_fine(words, run(words))
}

/// Runs a shell line and expects success; answers what it printed.
pub fn fine_shell(line: &str) -> String {
    expect_fine(line, shell(line))
}

fn expect_fine(what: &str, output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Something to be taken down with a shell line, also when the test fails.
pub struct Cleanup(pub String);

impl Drop for Cleanup {
    fn drop(&mut self) {
        let output = shell(&self.0);
        if !output.status.success() {
            eprintln!("cleanup {}: {}", self.0, String::from_utf8_lossy(&output.stderr));
        }
    }
}

impl Deref for TestMount {
    type Target = Mounted;
    fn deref(&self) -> &Mounted {
        &self.mounted
    }
}
