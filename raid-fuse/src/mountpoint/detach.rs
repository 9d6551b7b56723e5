//! Unmounting: umount2(2) for root, `fusermount3 -u` for others.
//!
//! Only ever a mount of ours: the caller names the path, and what is on top there is checked.

use super::holders;
use super::table::{self, Entry};
use raid_core::error::{Error, ErrorKind, Result};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Unmounts `path` if nobody uses it. [`ErrorKind::Busy`] with the holders if somebody does.
pub fn gently(path: &Path) -> Result<()> {
    let entry = ours(path)?;
    take_down(path, &entry, 0)
}

/// Removes `path` from sight at once; it ends when its last user is gone.
pub fn lazily(path: &Path) -> Result<()> {
    let entry = ours(path)?;
    take_down(path, &entry, libc::MNT_DETACH)
}

/// As [`lazily`], and root also breaks the connection, so that users get errors at once.
pub fn forcibly(path: &Path) -> Result<()> {
    let entry = ours(path)?;
    take_down(path, &entry, libc::MNT_DETACH | libc::MNT_FORCE)
}

/// The mount on `path` that is seen; [`ErrorKind::Refused`] if it is not ours.
pub fn ours(path: &Path) -> Result<Entry> {
    let shown = path.display();
    match table::top_at(path)? {
        Some(entry) if entry.is_ours() => Ok(entry),
        Some(entry) => Err(Error::new(
            ErrorKind::Refused,
            format!("{shown} is a mount of {} ({}), not of an array", entry.fstype, entry.source),
        )),
        None => Err(Error::new(ErrorKind::Refused, format!("nothing is mounted on {shown}"))),
    }
}

fn take_down(path: &Path, entry: &Entry, flags: i32) -> Result<()> {
    let error = match umount2(path, flags) {
        Ok(()) => return Ok(()),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => by_helper(path, flags)?,
        Err(error) => Some(error),
    };
    let Some(error) = error else { return Ok(()) };
    // Somebody else may have been quicker.
    if table::top_at(path)?.is_none_or(|now| now.id != entry.id) {
        return Ok(());
    }
    let shown = path.display();
    if error.raw_os_error() == Some(libc::EBUSY) {
        let holders = holders::describe(path);
        return Err(Error::new(ErrorKind::Busy, format!("{shown} is in use{holders}")));
    }
    Err(Error::io(format!("unmounting {shown}"), error))
}

fn umount2(path: &Path, flags: i32) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a valid string for the call.
    match unsafe { libc::umount2(path.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs the helper; nothing if it worked, the errno it meant if it did not.
fn by_helper(path: &Path, flags: i32) -> Result<Option<io::Error>> {
    let mut command = Command::new("fusermount3");
    command.arg("-u");
    if flags & libc::MNT_DETACH != 0 {
        command.arg("-z");
    }
    command.arg("--").arg(path).env("LC_ALL", "C").current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|error| Error::io("fusermount3", error))?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if said.contains("busy") {
        return Ok(Some(io::Error::from_raw_os_error(libc::EBUSY)));
    }
    Ok(Some(io::Error::other(said)))
}
