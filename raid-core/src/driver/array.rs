//! A running array: any number of threads ask, and each does the I/O of what it asked.
//!
//! One mutex guards the engine and is held for arithmetic only, never across I/O or parity work.
//! What an event sets free for somebody else goes into the queue, from which every waiting caller
//! and the keeper (one thread, for idle times: clean marks, resync) take.

use super::batch::Executor;
use super::direct::View;
use super::queue::{Batch, perform};
use super::ring::{executor_for, prefers_ring};
use crate::buf::{Buf, Pool};
use crate::device;
use crate::engine::{Action, Ask, AskId, Engine, Event, Keep, Outcome, Setup, Status};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::time::Instant;
use crate::units::{SECTOR, Sectors, Slot};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest request the engine sees, in bytes; longer ones are cut. With the number of threads
/// that ask it bounds memory.
const ASK_MAX: usize = 1 << 20;

/// How to run an array.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Never shortcut reads around the engine (to test it, or to measure it).
    pub no_direct: bool,
}

/// A running array.
pub struct Array {
    inner: Arc<Inner>,
    keeper: Mutex<Option<JoinHandle<()>>>,
}

struct Inner {
    layout: Arc<dyn Layout>,
    devices: Vec<Option<device::Shared>>,
    executor: Box<dyn Executor>,
    /// Several members gain by being asked at once.
    has_ring: bool,
    pool: Pool,
    clock: Clock,
    options: Options,
    core: Mutex<Core>,
    callers: Condvar,
    keeper: Condvar,
    view: RwLock<Arc<View>>,
    /// The engine's generation, so that a plain read can see that its view is void.
    generation: AtomicU64,
    direct_reads: AtomicU64,
}

struct Core {
    engine: Engine,
    queue: Batch,
    replies: HashMap<AskId, Outcome>,
    ask_next: AskId,
    callers_waiting: usize,
    wake_at: Option<Instant>,
    /// The keeper sleeps without a time to wake up at.
    keeper_sleeps: bool,
    closing: bool,
    /// Scratch of `step`, kept for its capacity.
    actions: Vec<Action>,
}

/// Wall time at the start, monotonic from then on.
struct Clock {
    base: u64,
    start: std::time::Instant,
}

impl Clock {
    fn new() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: wall.as_nanos() as u64, start: std::time::Instant::now() }
    }

    fn now(&self) -> Instant {
        Instant(self.base + self.start.elapsed().as_nanos() as u64)
    }
}

impl Array {
    /// Starts an array from what assembly decided; `devices` by slot, as `setup.members`.
    /// `setup.now` is overwritten with the time of this clock.
    pub fn start(
        mut setup: Setup,
        devices: Vec<Option<device::Shared>>,
        options: Options,
    ) -> Array {
        let clock = Clock::new();
        setup.now = clock.now();
        let (layout, pool) = (setup.layout.clone(), setup.pool.clone());
        let mut actions = Vec::new();
        let engine = Engine::new(setup, &mut actions);
        let view = View::new(engine.generation(), layout.clone(), engine.members());
        let has_ring = devices.iter().flatten().filter(|d| prefers_ring(&***d)).count() > 1;
        let mut core = Core {
            engine,
            queue: Vec::new(),
            replies: HashMap::new(),
            ask_next: 0,
            callers_waiting: 0,
            wake_at: None,
            keeper_sleeps: false,
            closing: false,
            actions: Vec::new(),
        };
        core.sort_out(&mut actions);
        let inner = Arc::new(Inner {
            layout,
            executor: executor_for(&devices, &pool),
            has_ring,
            devices,
            pool,
            clock,
            options,
            core: Mutex::new(core),
            callers: Condvar::new(),
            keeper: Condvar::new(),
            view: RwLock::new(Arc::new(view)),
            generation: AtomicU64::new(0),
            direct_reads: AtomicU64::new(0),
        });
        let kept = inner.clone();
        let keeper = std::thread::Builder::new()
            .name("keeper".into())
            .spawn(move || kept.keep())
            .expect("a thread can be started");
        Array { inner, keeper: Mutex::new(Some(keeper)) }
    }

    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.inner.layout.shape().size.bytes()
    }

    /// Where the array's buffers come from.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// The geometry.
    pub fn layout(&self) -> &Arc<dyn Layout> {
        &self.inner.layout
    }

    /// Fills `buf` from byte `at`; the range must lie inside the array.
    pub fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.check(at, buf.len())?;
        let mut done = 0;
        while done < buf.len() {
            let from = at + done as u64;
            let len = (buf.len() - done).min(ASK_MAX - (from % SECTOR) as usize);
            self.inner.read(from, &mut buf[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    /// Writes `data` at byte `at`; the range must lie inside the array. Durable after
    /// [`Array::flush`]; what fails may have been written in part, sector by sector.
    pub fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.check(at, data.len())?;
        let mut done = 0;
        while done < data.len() {
            let from = at + done as u64;
            let len = (data.len() - done).min(ASK_MAX - (from % SECTOR) as usize);
            self.inner.write(from, &data[done..done + len])?;
            done += len;
        }
        Ok(())
    }

    fn check(&self, at: u64, len: usize) -> Result<()> {
        match at.checked_add(len as u64).is_some_and(|end| end <= self.size()) {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "bytes {at} to {} are outside the array of {} bytes",
                at.saturating_add(len as u64),
                self.size()
            ))),
        }
    }

    /// Returns when everything written before is durable on the members.
    pub fn flush(&self) -> Result<()> {
        self.inner.ask(Ask::Flush).map(drop)
    }

    /// Fails the member in `slot` because somebody said so.
    pub fn fail(&self, slot: Slot) -> Result<()> {
        let inner = &self.inner;
        let mut core = inner.core.lock();
        let mut actions = Vec::new();
        let failed = core.engine.fail_slot(slot, &mut actions);
        core.sort_out(&mut actions);
        inner.refresh(&core);
        inner.keeper.notify_one();
        failed.map_err(Error::invalid)?;
        drop(core);
        // The flush is answered only when the survivors say so.
        self.flush()
    }

    /// Everything worth telling at this moment.
    pub fn status(&self) -> Status {
        let mut status = self.inner.core.lock().engine.status();
        status.stats.reads += self.inner.direct_reads.load(Ordering::Relaxed);
        status
    }

    /// Finishes what is open, makes everything durable, marks the array clean where it is.
    /// Further requests are refused. Stopping twice is fine.
    pub fn stop(&self) -> Result<()> {
        let Some(keeper) = self.keeper.lock().take() else { return Ok(()) };
        let result = self.inner.ask(Ask::Stop);
        self.inner.core.lock().closing = true;
        self.inner.keeper.notify_one();
        keeper.join().map_err(|_| Error::new(ErrorKind::Io, "the keeper thread panicked"))?;
        self.inner.executor.release();
        result.map(drop)
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        // A drop is a crash: nothing is marked clean. Only the thread is ended.
        if let Some(keeper) = self.keeper.lock().take() {
            self.inner.core.lock().closing = true;
            self.inner.keeper.notify_one();
            // A panic of the keeper has been reported by its own hook.
            drop(keeper.join());
            self.inner.executor.release();
        }
    }
}

impl Core {
    /// Takes replies and wakes out of `actions`; the rest waits in the queue.
    fn sort_out(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            match action {
                Action::Reply(id, outcome) => {
                    self.replies.insert(id, outcome);
                }
                Action::Wake(at) => {
                    self.wake_at = Some(self.wake_at.map_or(at, |w| w.max(at)));
                }
                work => self.queue.push(work),
            }
        }
    }

    fn step(&mut self, now: Instant, event: Event) {
        let mut actions = std::mem::take(&mut self.actions);
        self.engine.step(now, event, &mut actions);
        self.sort_out(&mut actions);
        self.actions = actions;
    }
}

impl Inner {
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let (first, end) = (at / SECTOR, (at + buf.len() as u64).div_ceil(SECTOR));
        let whole = at.is_multiple_of(SECTOR) && (buf.len() as u64).is_multiple_of(SECTOR);
        if whole && self.read_direct(Sectors(first), buf) {
            return Ok(());
        }
        let mut sectors = self.pool.take(((end - first) * SECTOR) as usize);
        if whole || !self.read_direct(Sectors(first), &mut sectors) {
            sectors = self.ask(Ask::Read { at: Sectors(first), buf: sectors })?.into_buf();
        }
        let skip = (at - first * SECTOR) as usize;
        buf.copy_from_slice(&sectors[skip..skip + buf.len()]);
        Ok(())
    }

    /// True if the bytes are there; false if the engine must be asked.
    fn read_direct(&self, at: Sectors, buf: &mut [u8]) -> bool {
        if self.options.no_direct {
            return false;
        }
        let view = self.view.read().clone();
        let ring = self.has_ring.then_some((&*self.executor, &self.pool));
        let read = view.read(at, buf, &self.devices, ring);
        let good = read && self.generation.load(Ordering::Acquire) == view.generation;
        self.direct_reads.fetch_add(good as u64, Ordering::Relaxed);
        good
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let (first, end) = (at / SECTOR, (at + data.len() as u64).div_ceil(SECTOR));
        let mut sectors = self.pool.take(((end - first) * SECTOR) as usize);
        let head = (at - first * SECTOR) as usize;
        let tail = sectors.len() - head - data.len();
        sectors[head..head + data.len()].copy_from_slice(data);
        let keep = Keep { head, tail };
        self.ask(Ask::Write { at: Sectors(first), data: sectors.freeze(), keep }).map(drop)
    }

    /// Asks the engine and works until the reply is there.
    fn ask(&self, ask: Ask) -> Result<Answer> {
        let mut core = self.core.lock();
        let id = core.ask_next;
        core.ask_next += 1;
        core.step(self.clock.now(), Event::Ask(id, ask));
        loop {
            if let Some(outcome) = core.replies.remove(&id) {
                self.leave(&core);
                return match outcome {
                    Outcome::Read(buf) => Ok(Answer(Some(buf))),
                    Outcome::Done => Ok(Answer(None)),
                    Outcome::Failed(error) => Err(error),
                };
            }
            if core.queue.is_empty() {
                core.callers_waiting += 1;
                self.callers.wait(&mut core);
                core.callers_waiting -= 1;
            } else {
                let batch = std::mem::take(&mut core.queue);
                drop(core);
                core = self.work(batch);
            }
        }
    }

    /// Does a batch and tells the engine; returns with the lock held.
    fn work(&self, batch: Batch) -> parking_lot::MutexGuard<'_, Core> {
        let mut events = Vec::with_capacity(batch.len());
        perform(batch, &self.devices, &*self.executor, &self.pool, &mut events);
        let mut core = self.core.lock();
        let now = self.clock.now();
        for event in events {
            core.step(now, event);
        }
        self.refresh(&core);
        if core.callers_waiting > 0 && (!core.queue.is_empty() || !core.replies.is_empty()) {
            self.callers.notify_all();
        }
        core
    }

    /// Before a caller leaves: what it would leave lying is shown to somebody else.
    fn leave(&self, core: &Core) {
        if !core.queue.is_empty() && core.callers_waiting > 0 {
            self.callers.notify_one();
        } else if !core.queue.is_empty() || (core.keeper_sleeps && core.wake_at.is_some()) {
            self.keeper.notify_one();
        }
    }

    /// A new view if a member's state changed.
    fn refresh(&self, core: &Core) {
        let generation = core.engine.generation();
        if generation != self.generation.load(Ordering::Acquire) {
            let members = core.engine.members();
            let view = View::new(generation, self.layout.clone(), members);
            *self.view.write() = Arc::new(view);
            self.generation.store(generation, Ordering::Release);
        }
    }

    /// The keeper's loop: does what nobody else does, and keeps time.
    fn keep(&self) {
        let mut core = self.core.lock();
        while !core.closing {
            if !core.queue.is_empty() {
                let batch = std::mem::take(&mut core.queue);
                drop(core);
                core = self.work(batch);
                continue;
            }
            let Some(at) = core.wake_at else {
                core.keeper_sleeps = true;
                self.keeper.wait(&mut core);
                core.keeper_sleeps = false;
                continue;
            };
            let now = self.clock.now();
            if now < at {
                let wait = Duration::from_nanos(at.0 - now.0);
                self.keeper.wait_for(&mut core, wait);
            } else {
                core.wake_at = None;
                core.step(now, Event::Tick);
            }
        }
    }
}

/// What a good reply carries.
struct Answer(Option<Buf>);

impl Answer {
    fn into_buf(self) -> Buf {
        self.0.expect("a read is answered with its buffer")
    }
}
