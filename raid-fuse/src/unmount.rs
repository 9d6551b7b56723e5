//! Taking a mount down from outside, and waiting until its daemon has finished.
//!
//! umount(8) and `fusermount3 -u` return when the kernel has let go of the mount, which is before
//! the daemon has marked the array clean. This returns when the daemon is gone, with its error if
//! the end was not clean.

use crate::mountpoint::{self, detach, holders};
use crate::rundir::{self, Record};
use raid_core::error::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::{Duration, Instant};

/// How often the daemon is looked at.
const POLL: Duration = Duration::from_millis(10);

/// How often somebody who waits hears that we still wait.
const NEWS: Duration = Duration::from_secs(2);

/// How to unmount.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// Also if somebody uses it: the daemon is told to stop, as by SIGTERM.
    pub lazy: bool,
    /// Longest wait for the daemon; without, as long as it takes.
    pub patience: Option<Duration>,
}

/// Unmounts `path` and waits until everything is on the members and the daemon is gone.
/// `progress` gets a line now and then while that takes time.
///
/// [`ErrorKind::Busy`], naming the users, if it is in use and `how` is not lazy.
pub fn unmount(path: &Path, how: How, progress: &mut dyn FnMut(&str)) -> Result<()> {
    let path = mountpoint::resolve_mounted(path)?;
    let entry = detach::ours(&path);
    let user = match &entry {
        Ok(entry) => entry.user.unwrap_or(0),
        Err(_) => rundir::own_user(),
    };
    let daemon = rundir::find(&path, user);
    let device = match (entry, &daemon) {
        (Ok(entry), Some(daemon)) if how.lazy => {
            terminate(daemon)?;
            Some(entry.device)
        }
        (Ok(entry), Some(_)) => {
            detach::gently(&path)?;
            Some(entry.device)
        }
        (Ok(_), None) => return without_daemon(&path, user, how, progress),
        (Err(_), Some(daemon)) if mountpoint::is_mounted_for(daemon.pid, &path) => {
            return Err(elsewhere(daemon));
        }
        // It was unmounted already, and its daemon is still writing.
        (Err(_), Some(_)) => None,
        (Err(error), None) => return Err(error),
    };
    let daemon = daemon.expect("the arms above return without one");
    wait_gone(&daemon, device, how, progress)?;
    match rundir::take_failure(&path, user) {
        Some(failure) => Err(Error::new(ErrorKind::Io, failure)),
        None => Ok(()),
    }
}

/// The daemon sees its mount, but we do not.
fn elsewhere(daemon: &Record) -> Error {
    let (pid, shown) = (daemon.pid, daemon.mountpoint.display());
    Error::invalid(format!(
        "{shown} is mounted in another mount namespace, that of its daemon (pid {pid}), and cannot \
         be unmounted from here; go there: nsenter -t {pid} -m raid-fuse unmount {shown}, or stop \
         the daemon: kill {pid}"
    ))
}

/// A dead mount, or a live one whose daemon keeps no record.
fn without_daemon(path: &Path, user: u32, how: How, progress: &mut dyn FnMut(&str)) -> Result<()> {
    if mountpoint::dies(path, Some(user)) {
        progress("its daemon had died; the mount is removed");
        rundir::forget_dead(path, user);
        return detach::lazily(path);
    }
    progress("its daemon keeps no record, so its end cannot be waited for");
    if how.lazy { detach::lazily(path) } else { detach::gently(path) }
}

fn terminate(daemon: &Record) -> Result<()> {
    let pid = i32::try_from(daemon.pid)
        .map_err(|_| Error::invalid(format!("{} is no process number", daemon.pid)))?;
    // SAFETY: a plain call; the process was checked by its start time a moment ago.
    if unsafe { libc::kill(pid, libc::SIGTERM) } == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) {
        return Ok(());
    }
    Err(Error::io(format!("telling the daemon (pid {pid}) to stop"), error))
}

fn wait_gone(
    daemon: &Record,
    device: Option<(u32, u32)>,
    how: How,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let start = Instant::now();
    let mut next_news = start + NEWS;
    while rundir::is_alive(daemon) {
        let waited = start.elapsed();
        if how.patience.is_some_and(|patience| waited >= patience) {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "the daemon (pid {}) of {} still runs after {} s",
                    daemon.pid,
                    daemon.mountpoint.display(),
                    waited.as_secs()
                ),
            ));
        }
        if Instant::now() >= next_news {
            next_news += NEWS;
            progress(&news(daemon, device, waited));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn news(daemon: &Record, device: Option<(u32, u32)>, waited: Duration) -> String {
    let elsewhere = device.map(holders::elsewhere).unwrap_or_default();
    let seconds = waited.as_secs();
    if elsewhere.is_empty() {
        return format!("waiting for the daemon (pid {}) to finish: {seconds} s", daemon.pid);
    }
    format!("still mounted in another namespace, by {}: {seconds} s", elsewhere.join(", "))
}
