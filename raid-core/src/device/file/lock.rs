//! Keeping others away from a member, by whatever name they come.
//!
//! A writer is alone, readers are together. The lock (flock) of a file says so between processes,
//! and the exclusive use of a block device also to the kernel; neither sees the other. Therefore
//! who opens a loop device locks the file behind it too, and who writes a file looks whether a
//! loop device over it is in use. Partitions and loop devices that are only a part of a file share
//! its lock, and lock their range of bytes besides: two of them can be written at once, but not
//! one and the whole.

use super::probe::cannot_open;
use super::storage::{Bottom, Storage, loops_over};
use crate::error::{Error, ErrorKind, Result};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// How often, and how long apart, a lock is tried whose holder is about to let go: udev holds a
/// shared lock for a moment while it looks at a disk that was just closed by a writer, and the
/// kernel takes a ring's files from a process only some time after it has ended.
const LOCK_TRIES: u32 = 100;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// How often a lock is tried while a process that lives holds it.
const LOCK_TRIES_LIVE: u32 = 10;

/// Where the lock of a file's byte 0 lies: far above the end of any file, so that it does not
/// meet the byte locks other programs (qemu, SQLite) put on what they have open.
const RANGES_START: u64 = 1 << 62;

/// What is held beside the member's own descriptor, as long as this lives.
#[derive(Default)]
pub(super) struct Hold {
    /// The file behind a loop device, where it could be opened.
    pub(super) behind: Option<File>,
    /// It had been deleted before.
    pub(super) is_nameless: bool,
}

/// Locks the member opened as `file`, and what is behind it.
///
/// # Errors
/// `Busy` with the process that has it, under its other name if there is one.
pub(super) fn hold(
    path: &Path,
    file: &File,
    meta: &Metadata,
    bottom: &Bottom,
    read_only: bool,
) -> Result<Hold> {
    let mut hold = Hold::default();
    let whole = bottom.storage.is_whole();
    let how = Mode { read_only, shared: read_only };
    take(path, path, file, meta, how)?;
    if let Some(name) = &bottom.behind_loop {
        let how = Mode { read_only, shared: read_only || !whole };
        hold.behind = hold_behind(path, name, &bottom.storage, how)?;
        let gone = name.as_os_str().as_bytes().ends_with(b" (deleted)");
        hold.is_nameless = gone && hold.behind.is_none();
    } else if meta.file_type().is_file() {
        take_range(path, path, file, meta, &bottom.storage, how)?;
    }
    if !read_only && whole {
        refuse_used_loops(path, meta, &bottom.storage)?;
    }
    Ok(hold)
}

/// How something is locked: who only reads, or writes only a part, shares the file's lock.
#[derive(Clone, Copy)]
struct Mode {
    read_only: bool,
    shared: bool,
}

/// Locks what is behind the loop device `path`. Where its name leads elsewhere (it was deleted,
/// or is hidden by a mount) it cannot be locked, but it can be seen who has.
fn hold_behind(path: &Path, name: &Path, storage: &Storage, how: Mode) -> Result<Option<File>> {
    let Some((file, meta)) = open_behind(path, name, storage, how)? else {
        let (device, inode) = storage.place();
        let theirs = flocks(device, inode).into_iter();
        let mut theirs = theirs.filter(|lock| !how.shared || lock.exclusive);
        return match theirs.next() {
            Some(lock) => Err(held(path, name, Some(lock.pid))),
            None => Ok(None),
        };
    };
    take(path, name, &file, &meta, how)?;
    take_range(path, name, &file, &meta, storage, how)?;
    Ok(Some(file))
}

fn open_behind(
    path: &Path,
    name: &Path,
    storage: &Storage,
    how: Mode,
) -> Result<Option<(File, Metadata)>> {
    let exclusive =
        !how.shared && fs::metadata(name).is_ok_and(|m| m.file_type().is_block_device());
    let flags = if exclusive { libc::O_EXCL } else { 0 };
    let open =
        |write| fs::OpenOptions::new().read(true).write(write).custom_flags(flags).open(name);
    let opened = match open(!how.read_only) {
        Err(error) if !how.read_only && error.raw_os_error() != Some(libc::EBUSY) => open(false),
        other => other,
    };
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
            let text = format!("{}: is the same storage as", path.display());
            let error = cannot_open(name, error, how.read_only);
            return Err(Error::new(error.kind, format!("{text} {error}")));
        }
        Err(_) => return Ok(None),
    };
    let meta = file.metadata().map_err(|e| Error::io(name.display(), e))?;
    let is_it = Storage::plain(&meta).place() == storage.place();
    Ok(is_it.then_some((file, meta)))
}

/// Takes the advisory lock: alone for a writer, shared for a reader.
fn take(path: &Path, name: &Path, file: &File, meta: &Metadata, how: Mode) -> Result<()> {
    let operation = if how.shared { libc::LOCK_SH } else { libc::LOCK_EX };
    // SAFETY: no memory is passed.
    let flock = || unsafe { libc::flock(file.as_raw_fd(), operation | libc::LOCK_NB) };
    patiently(path, name, meta, flock)
}

/// Takes the lock of a range of bytes for who shares the file's lock. It belongs to the open file,
/// not to the process, and goes when that is closed.
fn take_range(
    path: &Path,
    name: &Path,
    file: &File,
    meta: &Metadata,
    storage: &Storage,
    how: Mode,
) -> Result<()> {
    if !how.shared {
        return Ok(());
    }
    let (start, end) = storage.range();
    let place = |at: u64| RANGES_START.saturating_add(at).min(i64::MAX as u64) as i64;
    let kind = if how.read_only { libc::F_RDLCK } else { libc::F_WRLCK };
    // SAFETY: flock is plain numbers, for which zero is a value.
    let mut range: libc::flock64 = unsafe { std::mem::zeroed() };
    range.l_type = kind as libc::c_short;
    range.l_whence = libc::SEEK_SET as libc::c_short;
    range.l_start = place(start);
    // To the very end is a length of zero.
    range.l_len = if end == u64::MAX { 0 } else { place(end) - place(start) };
    // SAFETY: the command reads one flock64, which lives as long as the closure.
    let fcntl = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &range) };
    patiently(path, name, meta, fcntl)
}

/// Tries a lock until it is there, or who has it will not let go.
fn patiently(path: &Path, name: &Path, meta: &Metadata, lock: impl Fn() -> i32) -> Result<()> {
    for attempt in 1..=LOCK_TRIES {
        if lock() == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::WouldBlock => match holder(meta) {
                // Also where it is this process: a ring that it closed lets go a moment late.
                Some(pid) if attempt >= LOCK_TRIES_LIVE && lives(pid) => break,
                _ => std::thread::sleep(LOCK_PAUSE),
            },
            io::ErrorKind::Interrupted => {}
            // A file system without locks (some network and FUSE ones): go without, as the
            // alternative is not to use it at all.
            _ => return Ok(()),
        }
    }
    Err(held(path, name, holder(meta)))
}

/// The member `path`, which is or is over `name`, is held by a process.
fn held(path: &Path, name: &Path, holder: Option<u32>) -> Error {
    let (path, name) = (path.display().to_string(), name.display().to_string());
    let what = match path == name {
        true => format!("{path}: is"),
        false => format!("{path}: is the same storage as {name}, which is"),
    };
    let text = match holder {
        Some(pid) if pid == std::process::id() => {
            format!("{what} open in this process already; was it given twice?")
        }
        Some(pid) => {
            format!("{what} in use by process {pid} (see ps {pid}); stop the array it serves")
        }
        None => format!("{what} in use by another process (see lsof {name}); stop that"),
    };
    Error::new(ErrorKind::Busy, text)
}

/// A process that holds a lock on the file: before others one that is alone, or is not this one.
fn holder(meta: &Metadata) -> Option<u32> {
    let locks = flocks(meta.dev(), meta.ino());
    let own = std::process::id();
    locks.iter().max_by_key(|lock| (lock.exclusive, lock.pid != own)).map(|lock| lock.pid)
}

/// A lock of a file.
struct Flock {
    pid: u32,
    exclusive: bool,
}

/// The locks on a file, as /proc/locks tells them:
/// `1: FLOCK  ADVISORY  WRITE 4711 fe:00:131 0 EOF`. Those of ranges name no process.
fn flocks(device: u64, inode: u64) -> Vec<Flock> {
    let (major, minor) = (libc::major(device), libc::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let flock = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, mode, pid, at, ..] = words[..] else { return None };
        (at == place).then_some(Flock { pid: pid.parse().ok()?, exclusive: mode == "WRITE" })
    };
    locks.lines().filter_map(flock).collect()
}

/// True if the process exists and is no zombie (see proc(5), `stat`).
fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A loop device over a file can be mounted, or part of an array of the kernel, which take no
/// lock of the file. The kernel says so by not giving the device to us alone.
fn refuse_used_loops(path: &Path, meta: &Metadata, storage: &Storage) -> Result<()> {
    let own = if meta.file_type().is_block_device() { meta.rdev() } else { 0 };
    for node in loops_over(storage, own) {
        let alone = fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&node);
        let busy = match alone {
            Ok(_) => false,
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => true,
            Err(_) => is_claimed(&node),
        };
        if busy {
            let (path, node) = (path.display(), node.display());
            let text = format!(
                "{path}: is the same storage as {node}, which is mounted or part of something \
                 that runs (see lsblk {node}); stop that"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
    }
    Ok(())
}

/// The same for who may not open the device: something of the kernel is over it, or a mount.
fn is_claimed(node: &Path) -> bool {
    let Ok(meta) = fs::metadata(node) else { return false };
    let number = format!("{}:{}", libc::major(meta.rdev()), libc::minor(meta.rdev()));
    let holders = fs::read_dir(format!("/sys/dev/block/{number}/holders"));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    holders.is_ok_and(|mut all| all.next().is_some())
        || mounts.lines().any(|line| line.split(' ').nth(2) == Some(&number))
}
