//! A volume mounted in this process: from the mount to the last byte on the members.
//!
//! Promises: when [`mount_volume`] returns, the files can be used; when [`Mounted::unmount`] or
//! [`Mounted::stop`] return, no request is inside the volume, none will come, and everything
//! written is durable. Nothing here touches a file of its own mount.

use crate::export::Volume;
use crate::export::connection::Connection;
use crate::export::fuse::Front;
use crate::export::gate::Gate;
use crate::export::options::Options;
use crate::mountpoint::table::{self, Entry};
use crate::mountpoint::{self, attach, detach, holders};
use fuser::{Config, Session, SessionACL};
use parking_lot::Mutex;
use raid_core::error::{Error, ErrorKind, Result};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a busy mount is tried again while [`Mounted::stop`] waits for its users.
const RETRY: Duration = Duration::from_millis(100);

/// How long requests inside the volume may take to finish once the mount stops: longer than any
/// member's own time limit, shorter than an init system's patience (90 s).
const DRAIN: Duration = Duration::from_secs(60);

/// The same after a request panicked: others may wait for what it will never do.
const DRAIN_FAILED: Duration = Duration::from_secs(5);

/// How long the session may take to notice that it was unmounted, if nobody else holds it.
const NOTICE: Duration = Duration::from_secs(10);

/// What can happen to a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A signal arrived that asks to stop (sent by the daemon through [`Mounted::sender`]).
    Signal(i32),
    /// The kernel ended the session: somebody unmounted it, or the connection was aborted.
    Ended,
    /// A request panicked; nothing is answered any more.
    Failed,
}

/// A live mount. Dropping it stops it without waiting for its users.
pub struct Mounted {
    path: PathBuf,
    /// `major:minor` of the file system, to recognise it.
    device: (u32, u32),
    volume: Arc<dyn Volume>,
    gate: Arc<Gate>,
    session: Option<JoinHandle<io::Result<()>>>,
    events: Receiver<Event>,
    sender: Sender<Event>,
    stopped: bool,
}

/// Mounts `volume` on the empty directory `path` and serves it from threads of this process.
///
/// Root mounts by itself, others through `fusermount3`. A dead mount of ours on `path` is
/// replaced. [`ErrorKind::Unsupported`] where this machine does not let us mount.
pub fn mount_volume(volume: Arc<dyn Volume>, path: &Path, options: &Options) -> Result<Mounted> {
    let path = mountpoint::resolve(path)?;
    mountpoint::prepare(&path)?;
    let descriptor = attach::attach(&attach::Request {
        path: &path,
        source: &options.name,
        read_only: volume.read_only(),
        allow_other: options.allow_other,
    })?;
    let (sender, events) = channel();
    let gate = Arc::new(Gate::default());
    let started = detach::ours(&path).and_then(|entry| {
        // Without it, every reply is copied once more.
        let connection = Connection::of(&descriptor).ok();
        let front = Front::new(volume.clone(), gate.clone(), options, failure(&sender), connection);
        Ok((entry.device, start(front, descriptor, options, sender.clone())?))
    });
    match started {
        Ok((device, session)) => Ok(Mounted {
            path,
            device,
            volume,
            gate,
            session: Some(session),
            events,
            sender,
            stopped: false,
        }),
        Err(error) => {
            // The first error is the one to tell; a mount that cannot be removed is found stale.
            let _second = detach::lazily(&path);
            Err(error)
        }
    }
}

fn failure(sender: &Sender<Event>) -> Box<dyn Fn() + Send + Sync> {
    let sender = sender.clone();
    Box::new(move || {
        // If nobody listens any more, the mount is being stopped already.
        let _nobody = sender.send(Event::Failed);
    })
}

fn start(
    front: Front,
    descriptor: std::os::fd::OwnedFd,
    options: &Options,
    sender: Sender<Event>,
) -> Result<JoinHandle<io::Result<()>>> {
    let mut config = Config::default();
    config.n_threads = Some(options.threads.unwrap_or_else(Options::threads_default).max(1));
    // Who may look in is the kernel's decision, made at mount(2); a second check in the library
    // would refuse the kernel's own requests.
    config.acl = SessionACL::All;
    let session = Session::from_fd(front, descriptor, SessionACL::All, config)
        .map_err(|error| Error::io("starting the FUSE session", error))?;
    let serve = move || {
        let ending = session.run();
        // If nobody listens any more, nobody needs to know.
        let _nobody = sender.send(Event::Ended);
        ending
    };
    std::thread::Builder::new()
        .name("mount".into())
        .spawn(serve)
        .map_err(|error| Error::io("starting a thread", error))
}

impl Mounted {
    /// Where it is mounted: an absolute path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `major:minor` of the file system, as in `/proc/self/mountinfo`.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// A way to send events to [`Mounted::wait`] from other threads.
    pub fn sender(&self) -> Sender<Event> {
        self.sender.clone()
    }

    /// A way to end the mount from other threads because of a bug there; nothing is marked clean.
    pub fn alarm(&self) -> crate::control::server::Alarm {
        let (gate, sender) = (self.gate.clone(), Mutex::new(self.sender.clone()));
        Arc::new(move |message| {
            eprintln!("raid-fuse: bug, the mount stops: {message}");
            gate.fail(message);
            // If nobody listens any more, the mount is being stopped already.
            let _nobody = sender.lock().send(Event::Failed);
        })
    }

    /// Waits for the next event.
    pub fn wait(&self) -> Event {
        self.events.recv().expect("this struct holds a sender itself")
    }

    /// Unmounts if nobody uses it, and waits until everything is on the members.
    ///
    /// [`ErrorKind::Busy`], naming who uses it, leaves the mount as it is.
    pub fn unmount(&mut self) -> Result<()> {
        match self.seat()? {
            Seat::Top => detach::gently(&self.path)?,
            Seat::Covered(other) => {
                return Err(Error::new(ErrorKind::Busy, covered(&self.path, &other)));
            }
            Seat::Gone => {}
        }
        self.wait_ended(NOTICE);
        self.finish()
    }

    /// Stops: unmounts, waits up to `grace` for users to close their files, then answers
    /// everything with an error, finishes what is inside, and makes it durable. Signals that
    /// arrive meanwhile end the grace.
    pub fn stop(&mut self, grace: Duration) -> Result<()> {
        let until = Instant::now() + grace;
        let mut told = false;
        while self.gate.failure().is_none() {
            match self.seat()? {
                Seat::Gone => {
                    self.wait_ended(NOTICE);
                    break;
                }
                Seat::Covered(other) => {
                    eprintln!("raid-fuse: {}; stopping anyway", covered(&self.path, &other));
                    break;
                }
                Seat::Top => {}
            }
            match detach::gently(&self.path) {
                Ok(()) => {}
                Err(error) if error.kind == ErrorKind::Busy && Instant::now() < until => {
                    if !std::mem::replace(&mut told, true) {
                        eprintln!("raid-fuse: {}", waiting(&error, grace));
                    }
                    if self.wait_event(RETRY).is_some() {
                        break;
                    }
                }
                Err(error) => {
                    eprintln!("raid-fuse: {error}; stopping anyway");
                    break;
                }
            }
        }
        self.finish()
    }

    /// Closes the gate, ends what is left of the mount, and flushes.
    fn finish(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.stopped, true) {
            return Ok(());
        }
        let patience = if self.gate.failure().is_some() { DRAIN_FAILED } else { DRAIN };
        let drained = self.gate.close(patience);
        if let Err(error) = self.end_forcibly() {
            // The data matters more than the mount table: go on.
            eprintln!("raid-fuse: {error}");
        }
        if let Some(bug) = self.gate.failure() {
            return Err(Error::new(
                ErrorKind::Io,
                format!("a bug stopped the mount, so nothing was marked clean: {bug}"),
            ));
        }
        if !drained {
            return Err(Error::new(
                ErrorKind::Io,
                format!("requests are still running after {} s", DRAIN.as_secs()),
            ));
        }
        self.volume.flush()
    }

    /// Takes the mount away if it is still there, whoever uses it.
    fn end_forcibly(&mut self) -> Result<()> {
        if let Seat::Top = self.seat()? {
            detach::forcibly(&self.path)?;
            // An ordinary user cannot break the connection; then the last user's close ends it.
            self.wait_ended(RETRY);
        }
        Ok(())
    }

    /// Whether our mount is the one seen at its path.
    fn seat(&self) -> Result<Seat> {
        let mut here = table::read()?;
        here.retain(|entry| entry.mountpoint == self.path);
        let ours = |entry: &Entry| entry.is_ours() && entry.device == self.device;
        Ok(match here.pop() {
            Some(top) if ours(&top) => Seat::Top,
            Some(top) if here.iter().any(ours) => Seat::Covered(top),
            _ => Seat::Gone,
        })
    }

    /// Waits until the session's threads are gone, at most `patience`; says who holds it if not.
    fn wait_ended(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        while self.session.as_ref().is_some_and(|session| !session.is_finished()) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let holders = holders::elsewhere(self.device);
                if !holders.is_empty() {
                    eprintln!("raid-fuse: still mounted elsewhere, by {}", holders.join(", "));
                }
                return;
            }
            self.wait_event(left.min(RETRY));
        }
        if let Some(session) = self.session.take() {
            match session.join() {
                Ok(Ok(())) => {}
                Ok(Err(error)) => eprintln!("raid-fuse: the FUSE session ended: {error}"),
                Err(_) => eprintln!("raid-fuse: the FUSE session panicked"),
            }
        }
    }

    /// The next event that is not the session's end, if one comes within `patience`.
    fn wait_event(&self, patience: Duration) -> Option<Event> {
        match self.events.recv_timeout(patience) {
            Ok(Event::Ended) | Err(RecvTimeoutError::Timeout) => None,
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Disconnected) => {
                unreachable!("this struct holds a sender itself")
            }
        }
    }
}

/// What became of a mount's place in the mount table.
enum Seat {
    /// It is the mount seen at its path.
    Top,
    /// Another mount is over it.
    Covered(Entry),
    /// It is not there any more.
    Gone,
}

/// What a stop says while somebody uses the mount.
fn waiting(busy: &Error, grace: Duration) -> String {
    let seconds = grace.as_secs_f32();
    format!(
        "asked to stop: {busy}. It stops when that is closed, at the latest in {seconds} s, when \
         open files get errors; a second signal stops it at once"
    )
}

fn covered(path: &Path, other: &Entry) -> String {
    let shown = path.display();
    format!("{} ({}) is mounted over {shown}; take that down first", other.source, other.fstype)
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.stopped
            && let Err(error) = self.stop(Duration::ZERO)
        {
            eprintln!("raid-fuse: stopping {}: {error}", self.path.display());
        }
    }
}
