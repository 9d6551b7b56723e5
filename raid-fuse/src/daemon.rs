//! A mount with a process of its own: started, ready, stopped cleanly by whatever ends it.
//!
//! The daemon ends by SIGTERM, SIGINT or SIGHUP, or because somebody unmounted. Either way it
//! finishes the requests inside, flushes, runs the stop hook, and only then leaves. If a request
//! panicked or the flush failed, the hook is *not* run: nothing may be marked clean.
//!
//! The daemon never touches its own mount, keeps no directory busy, and holds no descriptor of
//! the caller.

use crate::control::{Commands, server};
use crate::export::Volume;
use crate::export::options;
use crate::mounted::{Event, Mounted, mount_volume};
use crate::mountpoint;
use crate::readiness::{self, Readiness, Side};
use crate::rundir::Lease;
use parking_lot::Mutex;
use raid_core::error::{Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a new mount waits for the daemon that had the mount point to end: umount(8) returns
/// before it has.
const PREDECESSOR: Duration = Duration::from_secs(10);

/// From Linux's `include/uapi/linux/prctl.h`; libc does not have it.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// What is served, and what to do when it ends.
pub struct Service {
    /// The array's name, shown by `mount` and `df`.
    pub name: String,
    /// The volume.
    pub volume: Arc<dyn Volume>,
    /// Paths of the members, for those who look for the mount.
    pub members: Vec<PathBuf>,
    /// Who answers what is asked through the control socket; without, there is none.
    pub control: Option<Arc<dyn Commands>>,
    /// Runs last, after a successful flush: marks the array clean and closes the members.
    pub on_stop: Box<dyn FnOnce() -> Result<()>>,
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Stay in this process until the mount ends, with its standard streams.
    pub foreground: bool,
    /// Where a daemon writes what it has to say; nowhere without.
    pub log: Option<PathBuf>,
    /// How long a stop waits for users of the mount to close their files.
    pub grace: Duration,
    /// How to mount.
    pub mount: options::Options,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            foreground: false,
            log: None,
            // Enough for a program that is told to end at the same time, far below the 90 s
            // after which an init system kills.
            grace: Duration::from_secs(5),
            mount: options::Options::default(),
        }
    }
}

/// What became of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is usable, and served by this process.
    Running {
        /// Process number of the daemon.
        pid: u32,
    },
    /// It was served in the foreground and ended cleanly.
    Stopped,
}

/// Mounts what `open` opens on `path` and serves it until it ends.
///
/// In the foreground, returns when the mount has ended. Otherwise the process must have one
/// thread: it forks, `open` runs in the daemon, and the caller returns when the mount is usable
/// or with the error that prevented it. The daemon itself never returns from here. `open` must
/// not use descriptors that were open before; they are closed in the daemon.
pub fn serve(
    path: &Path,
    options: &Options,
    open: impl FnOnce() -> Result<Service>,
) -> Result<Outcome> {
    if options.foreground {
        return run(path, options, open, None).map(|()| Outcome::Stopped);
    }
    // Opened here, so that a relative path and a refusal are the caller's.
    let log = options.log.as_deref().map(std::path::absolute).transpose();
    let log = log.map_err(|error| Error::io("log file", error))?;
    let options = Options { log, ..options.clone() };
    match readiness::split()? {
        Side::Parent(pid) => Ok(Outcome::Running { pid }),
        Side::Child(readiness) => {
            let ended = run(path, &options, open, Some(readiness));
            std::process::exit(if ended.is_ok() { 0 } else { 1 })
        }
    }
}

/// From the mount point to the end, in the process that serves.
fn run(
    path: &Path,
    options: &Options,
    open: impl FnOnce() -> Result<Service>,
    readiness: Option<Readiness>,
) -> Result<()> {
    let (mut mounted, lease, on_stop) = match start(path, options, open) {
        Ok(started) => started,
        Err(error) => {
            // If the caller is gone, nobody is left to tell.
            let _gone = readiness.map(|readiness| readiness.failed(&error));
            return Err(error);
        }
    };
    if let Some(Err(error)) = readiness.map(|readiness| settle(options, readiness)) {
        // A caller that went away does not want the mount any more.
        mounted.stop(Duration::ZERO)?;
        on_stop()?;
        return Err(error);
    }
    let ended = live(mounted, options.grace, on_stop);
    if let (Err(error), false) = (&ended, options.foreground) {
        eprintln!("raid-fuse: {error}");
        if let Some(Err(lost)) = lease.map(|lease| lease.lock().leave(&error.to_string())) {
            eprintln!("raid-fuse: the record of this mount: {lost}");
        }
    }
    ended
}

type Hook = Box<dyn FnOnce() -> Result<()>>;

/// The record of this mount, which control keeps up to date.
type Record = Arc<Mutex<Lease>>;

/// Everything up to a usable mount.
fn start(
    path: &Path,
    options: &Options,
    open: impl FnOnce() -> Result<Service>,
) -> Result<(Mounted, Option<Record>, Hook)> {
    become_io_flusher();
    let path = mountpoint::resolve(path)?;
    // Before the members are touched: most mistakes are found here.
    mountpoint::prepare(&path)?;
    let lease = Lease::claim(&path, PREDECESSOR)?;
    let Service { name, volume, members, control, on_stop } = open()?;
    let mount = options::Options { name: name.clone(), ..options.mount.clone() };
    let mounted = catch_signals().and_then(|signals| {
        let mounted = mount_volume(volume.clone(), &path, &mount)?;
        forward(signals, &mounted)?;
        Ok(mounted)
    });
    match mounted {
        Ok(mounted) => {
            let lease = lease.map(|lease| Arc::new(Mutex::new(lease)));
            if let Some(lease) = &lease {
                let described = lease.lock().describe(&name, &members);
                let listening = described.and_then(|()| listen(lease, control, &mounted));
                if let Err(error) = listening {
                    eprintln!("raid-fuse: the record of this mount: {error}");
                }
            }
            Ok((mounted, lease, on_stop))
        }
        Err(error) => {
            // The array was opened, so it is closed properly; the first error is the one to tell.
            let _second = volume.flush().and_then(|()| on_stop());
            Err(error)
        }
    }
}

/// Takes commands on a socket beside the record, which follows members that come and go.
fn listen(
    lease: &Record,
    control: Option<Arc<dyn Commands>>,
    mounted: &Mounted,
) -> std::io::Result<()> {
    let Some(control) = control else { return Ok(()) };
    // Not kept alive from there: the record ends with the mount.
    let record = Arc::downgrade(lease);
    control.watch(Box::new(move |members| {
        let written = record.upgrade().map(|lease| lease.lock().set_members(members));
        if let Some(Err(error)) = written {
            eprintln!("raid-fuse: the record of this mount: {error}");
        }
    }));
    let listener = lease.lock().listen()?;
    server::listen(listener, control, mounted.alarm())
}

/// Cuts the last ties to the caller and tells it that the mount works.
fn settle(options: &Options, readiness: Readiness) -> Result<()> {
    let fail = |error| Error::io("becoming a daemon", error);
    let log = options.log.as_deref().map(readiness::open_log).transpose()?;
    std::env::set_current_dir("/").map_err(fail)?;
    readiness::redirect(log.as_ref()).map_err(fail)?;
    readiness.ready().map_err(fail)
}

/// Serves until something ends the mount, then ends it properly.
fn live(mut mounted: Mounted, grace: Duration, on_stop: Hook) -> Result<()> {
    match mounted.wait() {
        Event::Signal(_) => mounted.stop(grace)?,
        Event::Ended => mounted.unmount()?,
        Event::Failed => mounted.stop(Duration::ZERO)?,
    }
    on_stop()
}

fn catch_signals() -> Result<Signals> {
    Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(|error| Error::io("catching signals", error))
}

fn forward(mut signals: Signals, mounted: &Mounted) -> Result<()> {
    let sender = mounted.sender();
    let forward = move || {
        for signal in signals.forever() {
            if sender.send(Event::Signal(signal)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("signals".into()).spawn(forward);
    thread.map(|_detached| ()).map_err(|error| Error::io("starting a thread", error))
}

/// Tells the kernel that this process cleans memory for others, so that it must not wait for
/// itself when memory is short; see prctl(2), PR_SET_IO_FLUSHER. Inherited by threads made later.
fn become_io_flusher() {
    // Needs CAP_SYS_RESOURCE and Linux 5.6; without, the risk is small and stays.
    // SAFETY: a plain call with numbers.
    let _not_allowed = unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn being_an_io_flusher_can_be_read_back() {
        const PR_GET_IO_FLUSHER: libc::c_int = 58;
        // The flag belongs to a thread, so that this test changes only its own.
        become_io_flusher();
        // SAFETY: a plain call with numbers.
        match unsafe { libc::prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0) } {
            -1 => eprintln!("SKIPPED: PR_SET_IO_FLUSHER needs CAP_SYS_RESOURCE"),
            flusher => assert_eq!(flusher, 1),
        }
    }
}
