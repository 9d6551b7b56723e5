//! A running array: any number of threads ask, and each does the I/O of what it asked.
//!
//! One mutex guards the engine and is held for arithmetic only, never across I/O or parity work.
//! What an event sets free for somebody else goes into the queue, from which every waiting caller
//! and the keeper (one thread, for idle times: clean marks, resync) take.

use super::batch::Executor;
use super::clock::Clock;
use super::direct::View;
use super::queue::{Batch, perform};
use super::ring::{executor_for, prefers_ring};
use crate::buf::{Buf, Pool};
use crate::device::{self, Lent};
use crate::engine::{
    Action, Ask, AskId, DeviceId, Engine, Event, Keep, Manage, Outcome, Setup, Status,
};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::time::Instant;
use crate::units::{SECTOR, Sectors, Slot};
use parking_lot::{Condvar, Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Longest request the engine sees, in bytes; longer ones are cut. With the number of threads
/// that ask it bounds memory.
const ASK_MAX: usize = 1 << 20;

/// Ticks come on a grid of so many nanoseconds: every busy write asks for one of its own.
const WAKE_GRID: u64 = 5_000_000;

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
    /// By [`DeviceId`]; grows when a device joins.
    devices: RwLock<Arc<Devices>>,
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

type Devices = Vec<Option<device::Shared>>;

struct Core {
    engine: Engine,
    queue: Batch,
    /// Work nobody waits for: the keeper's alone.
    background: Batch,
    replies: HashMap<AskId, Outcome>,
    ask_next: AskId,
    callers_waiting: usize,
    /// When ticks are due; each one that was asked for comes.
    wakes: BTreeSet<Instant>,
    /// Until when the keeper sleeps; `None`: it is awake.
    keeper_until: Option<Instant>,
    closing: bool,
    /// Scratch of `step`, kept for its capacity.
    actions: Vec<Action>,
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
            background: Vec::new(),
            replies: HashMap::new(),
            ask_next: 0,
            callers_waiting: 0,
            wakes: BTreeSet::new(),
            keeper_until: None,
            closing: false,
            actions: Vec::new(),
        };
        core.sort_out(&mut actions);
        let inner = Arc::new(Inner {
            layout,
            executor: executor_for(&devices, &pool),
            has_ring,
            devices: RwLock::new(Arc::new(devices)),
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

    /// Calls `give` with where the bytes of the array from byte `at` on lie in memory of the
    /// members' page cache, in order, and returns what it says; false, without a call, where they
    /// do not all lie there or must be solved. Then [`Array::read`] is the way.
    ///
    /// `give` may only hand the places to a system call (see [`Lent`]).
    pub fn lend(&self, at: u64, len: usize, give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        let whole = at.is_multiple_of(SECTOR) && (len as u64).is_multiple_of(SECTOR);
        whole && self.check(at, len).is_ok() && self.inner.lend(Sectors(at / SECTOR), len, give)
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
        let status = self.status();
        let member = status.members.get(slot.index()).and_then(Option::as_ref);
        let Some(member) = member else {
            return Err(Error::invalid(format!("slot {slot} has no member")));
        };
        self.manage(Manage::Fail(member.device))
    }

    /// Changes who belongs to the array, or what it does by itself; returns when the members
    /// durably say so.
    pub fn manage(&self, what: Manage) -> Result<()> {
        let gone = match &what {
            Manage::Remove(device) => Some(*device),
            _ => None,
        };
        self.inner.ask(Ask::Manage(what))?;
        if let Some(device) = gone {
            self.inner.change_devices(|devices| devices[device.0] = None);
        }
        Ok(())
    }

    /// Gives `device` an id, under which it can join the array.
    pub fn attach(&self, device: device::Shared) -> DeviceId {
        let mut id = DeviceId(0);
        self.inner.change_devices(|devices| {
            id = DeviceId(devices.len());
            devices.push(Some(device));
        });
        id
    }

    /// Lets go of a device that did not join.
    pub fn detach(&self, device: DeviceId) {
        self.inner.change_devices(|devices| devices[device.0] = None);
    }

    /// The device called `id`, while it is attached.
    pub fn device(&self, id: DeviceId) -> Option<device::Shared> {
        self.inner.devices.read().get(id.0).cloned().flatten()
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
                    let grid = at.0.div_ceil(WAKE_GRID).saturating_mul(WAKE_GRID);
                    self.wakes.insert(Instant(grid));
                }
                Action::Io { background: true, .. } => self.background.push(action),
                Action::Compute(_, ref work) if work.background => self.background.push(action),
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
        let devices = self.devices.read().clone();
        let read = view.read(at, buf, &devices, ring);
        let good = read && self.generation.load(Ordering::Acquire) == view.generation;
        self.direct_reads.fetch_add(good as u64, Ordering::Relaxed);
        good
    }

    /// What is given is as of the generation of the view, or of a write at the same time: a member
    /// that fails meanwhile misses only writes that are not answered yet.
    fn lend(&self, at: Sectors, len: usize, give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        if self.options.no_direct {
            return false;
        }
        let view = self.view.read().clone();
        let devices = self.devices.read().clone();
        let Some(places) = view.lend(at, len, &devices) else { return false };
        if self.generation.load(Ordering::Acquire) != view.generation {
            return false;
        }
        let given = give(&places);
        self.direct_reads.fetch_add(given as u64, Ordering::Relaxed);
        given
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
                self.call_keeper(&core);
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
        let devices = self.devices.read().clone();
        perform(batch, &devices, &*self.executor, &self.pool, &mut events);
        let mut core = self.core.lock();
        let now = self.clock.now();
        for event in events {
            core.step(now, event);
        }
        self.refresh(&core);
        if core.callers_waiting > 0 && (!core.queue.is_empty() || !core.replies.is_empty()) {
            self.callers.notify_all();
        }
        self.call_keeper(&core);
        core
    }

    /// Before a caller leaves: what it would leave lying is shown to somebody else.
    fn leave(&self, core: &Core) {
        if !core.queue.is_empty() && core.callers_waiting > 0 {
            self.callers.notify_one();
        }
        self.call_keeper(core);
    }

    /// Wakes the keeper if it sleeps longer than it should.
    fn call_keeper(&self, core: &Core) {
        let Some(until) = core.keeper_until else { return };
        let work = !core.background.is_empty() || !core.queue.is_empty();
        if work || core.wakes.first().is_some_and(|&at| at < until) {
            self.keeper.notify_one();
        }
    }

    /// Another set of devices. Rings let go of theirs and make new ones.
    fn change_devices(&self, change: impl FnOnce(&mut Devices)) {
        let mut devices = self.devices.write();
        let mut next = (**devices).clone();
        change(&mut next);
        *devices = Arc::new(next);
        drop(devices);
        self.executor.release();
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
            let now = self.clock.now();
            if core.wakes.first().is_some_and(|&at| at <= now) {
                core.wakes = core.wakes.split_off(&Instant(now.0.saturating_add(1)));
                core.step(now, Event::Tick);
                self.refresh(&core);
            }
            let mut batch = std::mem::take(&mut core.queue);
            batch.append(&mut core.background);
            if !batch.is_empty() {
                drop(core);
                core = self.work(batch);
                continue;
            }
            let next = core.wakes.first().copied();
            core.keeper_until = Some(next.unwrap_or(Instant(u64::MAX)));
            match next {
                Some(at) => {
                    let wait = Duration::from_nanos(at.0.saturating_sub(now.0));
                    self.keeper.wait_for(&mut core, wait);
                }
                None => self.keeper.wait(&mut core),
            }
            core.keeper_until = None;
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
