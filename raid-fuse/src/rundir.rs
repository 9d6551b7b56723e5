//! Which daemon serves which mount: one small JSON file per live mount.
//!
//! For root in `/run/raid-fuse`, for others in `$XDG_RUNTIME_DIR/raid-fuse`, and where neither can
//! be written in `/tmp/raid-fuse-UID`; always a directory of that user alone. The files are a
//! help, not a need: without them mounts work, but `umount` cannot wait for the daemon.
//!
//! A record is believed only while its process lives, told by number and start time together.
//! Beside it lies the socket on which that process takes commands (see [`crate::control`]).

use raid_core::error::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often a taken mount point is looked at again.
const RETRY: Duration = Duration::from_millis(20);

/// A daemon writes its record in far less than so many pauses.
const READS_MAX: usize = 10;
const REREAD: Duration = Duration::from_millis(2);

/// Longest record that is read: a mount with thousands of members fits.
const RECORD_MAX: u64 = 4 << 20;

/// One live mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Process number of the daemon.
    pub pid: u32,
    /// Its start time in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub started: u64,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// The array's name.
    pub name: String,
    /// The members it serves from.
    pub members: Vec<PathBuf>,
    /// Why the daemon could not end cleanly; only in a record it left behind.
    pub failure: Option<String>,
}

/// A record that this process keeps; removed when dropped, unless a failure was left in it.
#[derive(Debug)]
pub struct Lease {
    path: PathBuf,
    file: File,
    record: Record,
}

impl Lease {
    /// Claims `mountpoint` for this process, waiting up to `patience` for a daemon that is about
    /// to end. [`ErrorKind::Busy`] if it does not; nothing, with a note on stderr, if no record
    /// can be kept here.
    pub fn claim(mountpoint: &Path, patience: Duration) -> Result<Option<Lease>> {
        let until = Instant::now() + patience;
        loop {
            match Lease::try_claim(mountpoint) {
                Ok(lease) => return Ok(Some(lease)),
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    eprintln!("raid-fuse: no record of this mount, so umount cannot wait: {error}");
                    return Ok(None);
                }
                Err(_) if Instant::now() >= until => {
                    let shown = mountpoint.display();
                    return Err(Error::new(
                        ErrorKind::Busy,
                        format!("another daemon is mounting or stopping {shown}; try again later"),
                    ));
                }
                Err(_) => std::thread::sleep(RETRY),
            }
        }
    }

    fn try_claim(mountpoint: &Path) -> io::Result<Lease> {
        let path = writable_dir()?.join(file_name(mountpoint));
        loop {
            let file = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&path)?;
            // SAFETY: a plain call on an open descriptor.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
                return Err(io::Error::last_os_error());
            }
            // The one who had it may have removed the file between our open and our lock.
            let (ours, there) = (file.metadata()?, fs::metadata(&path));
            if !there.is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino())) {
                continue;
            }
            let pid = std::process::id();
            let started = start_time(pid).ok_or(io::ErrorKind::NotFound)?;
            let record = Record {
                pid,
                started,
                mountpoint: mountpoint.to_path_buf(),
                name: String::new(),
                members: Vec::new(),
                failure: None,
            };
            let mut lease = Lease { path, file, record };
            lease.write()?;
            return Ok(lease);
        }
    }

    /// Notes what is mounted.
    pub fn describe(&mut self, name: &str, members: &[PathBuf]) -> io::Result<()> {
        self.record.name = name.to_string();
        self.record.members = members.to_vec();
        self.write()
    }

    /// Leaves `failure` behind for the command that waits for this daemon.
    pub fn leave(&mut self, failure: &str) -> io::Result<()> {
        self.record.failure = Some(failure.to_string());
        self.write()
    }

    /// Notes who the members are now.
    pub fn set_members(&mut self, members: &[PathBuf]) -> io::Result<()> {
        self.record.members = members.to_vec();
        self.write()
    }

    /// A socket beside the record that only this user and root can reach.
    pub fn listen(&self) -> io::Result<UnixListener> {
        let path = socket_of(&self.path);
        // Of a daemon that died: the record is ours now, so the socket is, too.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = with_short_name(&path, |short| UnixListener::bind(short))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(listener)
    }

    fn write(&mut self) -> io::Result<()> {
        let text = serde_json::to_vec(&self.record).map_err(io::Error::other)?;
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(&text)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // There is none if nobody listened.
        let _none = fs::remove_file(socket_of(&self.path));
        if self.record.failure.is_none() {
            // A file that stays is recognised as stale by its process.
            let _stays = fs::remove_file(&self.path);
        }
    }
}

/// The live daemon of `mountpoint`, which `user` mounted.
pub fn find(mountpoint: &Path, user: u32) -> Option<Record> {
    read(mountpoint, user).map(|found| found.1).filter(is_alive)
}

/// A connection to the daemon of `mountpoint`, which `user` mounted.
pub fn connect(mountpoint: &Path, user: u32) -> io::Result<UnixStream> {
    let (path, _) = read(mountpoint, user).ok_or(io::ErrorKind::NotFound)?;
    with_short_name(&socket_of(&path), |short| UnixStream::connect(short))
}

/// The socket beside a record.
fn socket_of(record: &Path) -> PathBuf {
    record.with_extension("sock")
}

/// A socket's name has at most 107 bytes (unix(7)), which the folder alone may have: so the name
/// is given through an open descriptor of the folder.
fn with_short_name<T>(path: &Path, work: impl Fn(&Path) -> io::Result<T>) -> io::Result<T> {
    let (folder, name) = (path.parent(), path.file_name());
    let folder = File::open(folder.ok_or(io::ErrorKind::NotFound)?)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
    work(&short.join(name.ok_or(io::ErrorKind::NotFound)?))
}

/// What a daemon that has ended left behind, once.
pub fn take_failure(mountpoint: &Path, user: u32) -> Option<String> {
    let (path, record) = read(mountpoint, user)?;
    if is_alive(&record) {
        return None;
    }
    // Somebody else may have taken them away meanwhile.
    let _gone = fs::remove_file(socket_of(&path));
    let _gone = fs::remove_file(path);
    record.failure
}

/// Removes the record of a daemon that died without ending.
pub fn forget_dead(mountpoint: &Path, user: u32) {
    // What it says is of no interest: the daemon was killed.
    let _failure = take_failure(mountpoint, user);
}

/// All live mounts of this user; records of dead daemons are removed.
pub fn list() -> Vec<Record> {
    let mut found = Vec::new();
    for dir in dirs(own_user()) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match parse(&entry.path()) {
                Some(record) if is_alive(&record) => found.push(record),
                Some(record) if record.failure.is_none() => {
                    // Somebody else may have been quicker.
                    let _gone = fs::remove_file(socket_of(&entry.path()));
                    let _gone = fs::remove_file(entry.path());
                }
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| a.mountpoint.cmp(&b.mountpoint));
    found
}

/// True while the daemon of this record runs.
pub fn is_alive(record: &Record) -> bool {
    start_time(record.pid) == Some(record.started)
}

/// When a process started; nothing if it is gone, or a zombie without a thread that could still
/// hold files open. See proc(5), `stat`, fields 3, 20 and 22.
fn start_time(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything; the fields after it may not.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let threads: u64 = fields.nth(16)?.parse().ok()?;
    let started = fields.nth(1)?.parse().ok()?;
    let gone = (state == "Z" || state == "X") && threads <= 1;
    (!gone).then_some(started)
}

fn read(mountpoint: &Path, user: u32) -> Option<(PathBuf, Record)> {
    let name = file_name(mountpoint);
    let paths = dirs(user).into_iter().map(|dir| dir.join(&name));
    paths
        .filter_map(|path| Some((path.clone(), parse(&path)?)))
        .find(|(_, record)| record.mountpoint == mountpoint)
}

/// A record that is being rewritten is read again.
fn parse(path: &Path) -> Option<Record> {
    (0..READS_MAX).find_map(|attempt| {
        if attempt > 0 {
            std::thread::sleep(REREAD);
        }
        let file = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path);
        let Ok(file) = file else { return Some(None) };
        let mut text = Vec::new();
        file.take(RECORD_MAX).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok().map(Some)
    })?
}

/// The directories in which `user` may have records, if nobody else can write there.
fn dirs(user: u32) -> Vec<PathBuf> {
    let mut dirs = candidates(user);
    dirs.retain(|dir| is_private(dir, user));
    dirs
}

fn candidates(user: u32) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    if user == 0 {
        dirs.push(PathBuf::from("/run/raid-fuse"));
    } else {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|_| user == own_user());
        dirs.extend(runtime.map(|dir| PathBuf::from(dir).join("raid-fuse")));
        dirs.push(PathBuf::from(format!("/run/user/{user}/raid-fuse")));
    }
    dirs.push(PathBuf::from(format!("/tmp/raid-fuse-{user}")));
    dirs
}

fn writable_dir() -> io::Result<PathBuf> {
    let mut refused = io::Error::from(io::ErrorKind::NotFound);
    for dir in candidates(own_user()) {
        match DirBuilder::new().mode(0o700).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => refused = error,
            _ if is_private(&dir, own_user()) => return Ok(dir),
            _ => {
                let text = format!("{} belongs to somebody else", dir.display());
                refused = io::Error::new(io::ErrorKind::PermissionDenied, text);
            }
        }
    }
    Err(refused)
}

fn is_private(dir: &Path, user: u32) -> bool {
    fs::symlink_metadata(dir)
        .is_ok_and(|meta| meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0)
}

/// The number of the user who runs this process.
pub fn own_user() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// A file name for any path: its last part for people, a hash of all of it for us (FNV-1a, 64
/// bits, see http://www.isthe.com/chongo/tech/comp/fnv/).
fn file_name(mountpoint: &Path) -> String {
    let bytes = mountpoint.as_os_str().as_bytes();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let last = mountpoint.file_name().unwrap_or_default().to_string_lossy();
    let last: String = last.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
    format!("{last}-{hash:016x}.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_lives_as_long_as_its_lease() {
        let dir = tempfile::tempdir().unwrap();
        let point = dir.path().join("mnt/a b");
        let Ok(Some(mut lease)) = Lease::claim(&point, Duration::ZERO) else {
            eprintln!("SKIPPED: no run directory can be made here");
            return;
        };
        assert_eq!(Lease::claim(&point, Duration::ZERO).unwrap_err().kind, ErrorKind::Busy);
        lease.describe("md0", &["/dev/a".into()]).unwrap();
        let record = find(&point, own_user()).unwrap();
        assert_eq!((record.pid, record.name.as_str()), (std::process::id(), "md0"));
        assert!(list().contains(&record));
        assert_eq!(take_failure(&point, own_user()), None, "it lives");
        drop(lease);
        assert_eq!(find(&point, own_user()), None);
    }

    #[test]
    fn a_dead_process_is_not_believed() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        let started = start_time(pid).unwrap_or(1);
        child.wait().unwrap();
        let mountpoint = PathBuf::from("/mnt/a");
        let (name, members) = (String::new(), Vec::new());
        let record = Record { pid, started, mountpoint, name, members, failure: None };
        assert!(!is_alive(&record));
        let pid = std::process::id();
        let started = start_time(pid).unwrap();
        assert!(is_alive(&Record { pid, started, ..record.clone() }));
        assert!(!is_alive(&Record { pid, started: started + 1, ..record }), "the number reused");
    }

    #[test]
    fn file_names_differ_where_paths_differ() {
        let name = |path| file_name(Path::new(path));
        assert_ne!(name("/mnt/a/x"), name("/mnt/b/x"));
        assert!(name("/mnt/a").starts_with("a-"));
        assert!(!name("/mnt/../x/é %").contains(['/', ' ', '%']));
    }
}
