//! Mount points: checked before, mounted, found again, taken down. Nothing here knows a volume.
//!
//! We mount and unmount ourselves instead of leaving it to the FUSE library: what is ours must be
//! told apart from what is mounted over it, a busy mount must be named with its holders, and an
//! unmount must never hit somebody else's mount.
//!
//! Everything is decided from `/proc/self/mountinfo`; a path is never followed into a mount that
//! may be dead, because that would fail or hang.

pub mod attach;
pub mod detach;
pub mod holders;
pub mod table;

use crate::rundir;
use raid_core::error::{Error, ErrorKind, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use table::Entry;

/// The file system type of our mounts in `/proc/self/mountinfo`.
pub const FSTYPE: &str = "fuse.raid-fuse";

/// The absolute path of a mount point, without following the mount that may be on it.
pub fn resolve(path: &Path) -> Result<PathBuf> {
    let fail = |source| Error::io(format!("mount point {}", path.display()), source);
    if let Ok(target) = std::fs::read_link(path) {
        let base = path.parent().unwrap_or(Path::new(""));
        return std::fs::canonicalize(base.join(target)).map_err(fail);
    }
    let Some(name) = path.file_name() else {
        return std::fs::canonicalize(path).map_err(fail);
    };
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    Ok(std::fs::canonicalize(parent).map_err(fail)?.join(name))
}

/// The same of a mount that should be there: [`ErrorKind::Refused`] if there is no such place.
pub fn resolve_mounted(path: &Path) -> Result<PathBuf> {
    resolve(path).map_err(|error| match error.kind {
        ErrorKind::Invalid => Error::new(ErrorKind::Refused, error.to_string()),
        _ => error,
    })
}

/// True if process `pid` sees a mount of ours on `path`: it may be in another mount namespace.
pub fn is_mounted_for(pid: u32, path: &Path) -> bool {
    let text = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
    table::parse(&text).iter().any(|entry| entry.is_ours() && entry.mountpoint == path)
}

/// How often, and how long apart, a mount without a living daemon is asked whether it is dead.
const DEATH_TRIES: u32 = 40;
const DEATH_PAUSE: Duration = Duration::from_millis(50);

/// What a mount point is before we mount on it.
#[derive(PartialEq, Eq, Debug)]
pub enum Found {
    /// An empty directory.
    Free,
    /// A mount of ours whose daemon is gone.
    Stale,
}

/// Looks at `path` (from [`resolve`]) and says whether it can be mounted on.
///
/// Refused, with what to do: not a directory, not empty, a live mount of ours, a dead one of
/// somebody else.
pub fn inspect(path: &Path) -> Result<Found> {
    let top = table::top_at(path)?;
    let shown = path.display();
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if is_dead(&error) => return stale(path, top),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Error::invalid(format!(
                "mount point {shown} does not exist; make it first: mkdir {shown}"
            )));
        }
        Err(error) if top.as_ref().is_some_and(Entry::is_ours) => {
            return Err(Error::io(live(path), error));
        }
        Err(error) => return Err(Error::io(format!("mount point {shown}"), error)),
    };
    if top.as_ref().is_some_and(Entry::is_ours) {
        return match dies(path, top.as_ref().and_then(|entry| entry.user)) {
            true => Ok(Found::Stale),
            false => Err(Error::new(ErrorKind::Busy, live(path))),
        };
    }
    if !meta.is_dir() {
        return Err(Error::invalid(format!(
            "mount point {shown} is not a directory; give an empty directory"
        )));
    }
    let mut entries = std::fs::read_dir(path)
        .map_err(|error| Error::io(format!("mount point {shown}"), error))?;
    if let Some(Ok(entry)) = entries.next() {
        return Err(Error::new(
            ErrorKind::Refused,
            format!(
                "mount point {shown} is not empty (it has {}); give an empty directory, so that \
                 nothing is hidden",
                entry.file_name().display()
            ),
        ));
    }
    Ok(Found::Free)
}

/// Whether a mount of ours that looks alive is not: the kernel answers for a dead daemon from its
/// cache, so something is asked that it cannot know. A daemon that was just killed is given a
/// moment to be gone.
pub fn dies(path: &Path, user: Option<u32>) -> bool {
    for _ in 0..DEATH_TRIES {
        if !has_daemon(path) {
            return true;
        }
        if rundir::find(path, user.unwrap_or(0)).is_some() {
            return false;
        }
        std::thread::sleep(DEATH_PAUSE);
    }
    false
}

/// True for what a path into a FUSE mount without a daemon answers: ENOTCONN, or ECONNABORTED
/// for those who asked while it died.
pub fn is_dead(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// False if nobody answers for the FUSE mount at `path` any more. Opening its directory always asks
/// the daemon; its attributes may come from the kernel's cache.
pub fn has_daemon(path: &Path) -> bool {
    !std::fs::read_dir(path).is_err_and(|error| is_dead(&error))
}

fn live(path: &Path) -> String {
    let shown = path.display();
    format!("an array is already mounted on {shown}; take it down first: raid-fuse unmount {shown}")
}

fn stale(path: &Path, top: Option<Entry>) -> Result<Found> {
    match top {
        Some(entry) if entry.is_ours() => Ok(Found::Stale),
        other => {
            let kind = other.map_or("fuse".into(), |entry| entry.fstype);
            let shown = path.display();
            Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{shown} is a dead mount of another program ({kind}); take it down first: \
                     fusermount3 -u {shown}"
                ),
            ))
        }
    }
}

/// Makes `path` (from [`resolve`]) ready to be mounted on: a dead mount of ours is detached.
pub fn prepare(path: &Path) -> Result<()> {
    // A mount point can carry several dead mounts, one over the other; each pass takes one away.
    for _ in 0..table::LAYERS_MAX {
        if inspect(path)? == Found::Free {
            return Ok(());
        }
        eprintln!("raid-fuse: {} was left by a daemon that died; detached", path.display());
        detach::lazily(path)?;
    }
    Err(Error::new(
        ErrorKind::Busy,
        format!("{} cannot be cleared: dead mounts keep appearing", path.display()),
    ))
}
