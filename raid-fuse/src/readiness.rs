//! A command that leaves a daemon behind and returns when the daemon is ready, or fails with the
//! daemon's own error.
//!
//! The process forks while it has one thread. The child gets a session of its own and the one end
//! of a pipe; the parent waits at the other. What comes through is either "ready" or an error
//! with its kind. If nothing comes, the child died, and the parent says how.

use raid_core::error::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;

/// First byte of the message that everything works.
const READY: u8 = b'R';
/// First byte of an error; the kind's place in [`KINDS`] and the words follow.
const FAILED: u8 = b'E';

/// Where the child keeps the pipe; everything above is closed.
const PIPE: RawFd = 3;

/// Longest error that is passed on; far more than anybody reads.
const MESSAGE_MAX: u64 = 64 << 10;

/// Every kind of error, in the order in which the pipe numbers them.
const KINDS: [ErrorKind; 9] = [
    ErrorKind::Invalid,
    ErrorKind::Metadata,
    ErrorKind::Dead,
    ErrorKind::Degraded,
    ErrorKind::Refused,
    ErrorKind::Busy,
    ErrorKind::Io,
    ErrorKind::ReadOnly,
    ErrorKind::Unsupported,
];

/// Which of the two processes this is after [`split`].
pub enum Side {
    /// The command: the daemon is ready and has this process number.
    Parent(u32),
    /// The daemon: it owes an answer.
    Child(Readiness),
}

/// The daemon's end of the pipe.
pub struct Readiness(File);

/// Forks; in the parent, returns when the child has answered.
///
/// The child has a new session, and only the standard descriptors and the pipe stay open in it:
/// a lock or a pipe of the caller must not live as long as the mount.
pub fn split() -> Result<Side> {
    let tasks = std::fs::read_dir("/proc/self/task").map_or(1, Iterator::count);
    assert_eq!(tasks, 1, "forking would lose the other threads");
    let (ours, theirs) = pipe()?;
    // SAFETY: there is one thread, so the child is a whole copy of this process.
    match unsafe { libc::fork() } {
        -1 => Err(Error::io("starting the daemon", io::Error::last_os_error())),
        0 => {
            drop(ours);
            leave_the_caller(theirs).map(Side::Child)
        }
        pid => {
            drop(theirs);
            receive(ours, pid).map(|()| Side::Parent(pid.unsigned_abs()))
        }
    }
}

impl Readiness {
    /// Tells the parent that everything works. Fails if it is not there any more.
    pub fn ready(mut self) -> io::Result<()> {
        self.0.write_all(&[READY])
    }

    /// Tells the parent what went wrong. Fails if it is not there any more.
    pub fn failed(mut self, error: &Error) -> io::Result<()> {
        self.0.write_all(&encode(error))
    }
}

/// Makes standard input empty and sends both outputs to `log`, or nowhere.
pub fn redirect(log: Option<&File>) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    let out = log.unwrap_or(&null);
    for (from, to) in [(&null, 0), (out, 1), (out, 2)] {
        // SAFETY: both numbers are open descriptors of this process.
        if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Opens a log file for appending, readable for its owner and group.
pub fn open_log(path: &Path) -> Result<File> {
    let opened = File::options().append(true).create(true).open(path);
    opened.map_err(|error| Error::io(format!("log file {}", path.display()), error))
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(Error::io("a pipe to the daemon", io::Error::last_os_error()));
    }
    // SAFETY: both descriptors are new and owned by nobody else.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

fn leave_the_caller(pipe: OwnedFd) -> Result<Readiness> {
    let fail = || Error::io("starting the daemon", io::Error::last_os_error());
    // SAFETY: takes nothing; a fresh child is never a group leader, so it cannot fail.
    unsafe { libc::setsid() };
    let pipe = if pipe.as_raw_fd() == PIPE {
        pipe
    } else {
        let old = pipe.into_raw_fd();
        // SAFETY: `old` is open; whatever was at PIPE is closed on purpose.
        if unsafe { libc::dup3(old, PIPE, libc::O_CLOEXEC) } < 0 {
            return Err(fail());
        }
        // SAFETY: PIPE was opened just now; `old` is closed below with everything above.
        unsafe { OwnedFd::from_raw_fd(PIPE) }
    };
    // Kernels before 5.9 lack the call; then the caller's descriptors stay open, which only
    // costs tidiness.
    // SAFETY: nothing of this process uses descriptors above PIPE yet.
    let _kept = unsafe { libc::syscall(libc::SYS_close_range, PIPE + 1, u32::MAX, 0) };
    Ok(Readiness(File::from(pipe)))
}

fn receive(pipe: OwnedFd, pid: i32) -> Result<()> {
    let mut message = Vec::new();
    let read = File::from(pipe).take(MESSAGE_MAX).read_to_end(&mut message);
    read.map_err(|error| Error::io("waiting for the daemon", error))?;
    match message.first() {
        Some(&READY) => Ok(()),
        Some(_) => {
            wait(pid);
            Err(decode(&message))
        }
        None => Err(Error::new(
            ErrorKind::Io,
            format!("the daemon died before the mount was ready: {}", wait(pid)),
        )),
    }
}

/// How the child ended, in words.
fn wait(pid: i32) -> String {
    let mut status = 0;
    // SAFETY: `status` is a valid place; the child is ours.
    while unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return "its end was not seen".into();
        }
    }
    match (libc::WIFSIGNALED(status), libc::WTERMSIG(status)) {
        (true, signal) => format!("killed by signal {signal}"),
        (false, _) => format!("exit code {}", libc::WEXITSTATUS(status)),
    }
}

fn encode(error: &Error) -> Vec<u8> {
    let place = KINDS.iter().position(|&kind| kind == error.kind);
    let place = place.expect("the table has every kind") as u8;
    let mut message = vec![FAILED, place];
    message.extend_from_slice(error.to_string().as_bytes());
    message
}

fn decode(message: &[u8]) -> Error {
    let kind = message.get(1).and_then(|&place| KINDS.get(usize::from(place)));
    let words = String::from_utf8_lossy(message.get(2..).unwrap_or_default());
    Error::new(*kind.unwrap_or(&ErrorKind::Io), words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_survives_the_pipe() {
        for kind in KINDS {
            let error = decode(&encode(&Error::new(kind, "what was found: é")));
            assert_eq!((error.kind, error.to_string().as_str()), (kind, "what was found: é"));
        }
        for broken in [&b"E"[..], b"", b"E\xff", b"x\x63\xff\xfe"] {
            assert_eq!(decode(broken).kind, ErrorKind::Io, "{broken:?}");
        }
    }
}
