//! The one state machine: events in, actions out; no I/O, no clock, no threads, no randomness.
//!
//! A driver hands in what was asked and what its I/O returned; the engine says what to read,
//! write, flush and compute next, and what to answer. The simulator drives the very same code.
//!
//! # Invariants
//!
//! 1. Bands of a stripe that overlap are worked on one after the other, in order of arrival;
//!    only plain reads of readable units go without a turn.
//! 2. Every action is answered once; every ask gets one reply.
//! 3. No write is committed before the members durably say that the array is dirty.
//! 4. Once it commits, a flight only goes forward.
//! 5. A failed member is recorded durably on the survivors before the first reply to a write or
//!    flush that depends on its absence.
//! 6. The event count never goes down.
//! 7. A device that is being rebuilt is always written, and read only below its cursor.
//! 8. Lost units are never solved from parity that may be wrong, unless the user took that risk.
//! 9. Memory is bounded by what is asked at once: a flight holds at most the units of its band.
//! 10. `step` is deterministic.
//! 11. Where there is a partial parity log, no parity is written before the log durably says
//!     what it follows from.

mod ask;
mod bad;
mod bitmap;
mod cells;
mod compare;
mod flight;
mod flush;
mod health;
mod job;
mod journal;
mod log;
mod manage;
mod pace;
mod publish;
mod sources;
mod status;
mod steps;
mod stripes;
#[cfg(test)]
mod tests;

pub use ask::{Ask, AskId, Keep, Outcome};
pub use bitmap::{Bitmap, BitmapPlaces};
pub use cells::{Cells, Work};
pub use health::{DeviceId, Member, State};
pub use job::JobKind;
pub use journal::JournalState;
pub use manage::{Manage, SyncAction};
pub use pace::Limits;
pub use status::{Progress, Stats, Status};

use crate::buf::{Buf, Pool, Shared};
use crate::layout::{Code, Layout, Shape};
use crate::meta::record::{ArrayRecord, MemberRecord};
use crate::time::{Instant, Span};
use crate::units::{Sectors, StripeNo};
use flight::Flight;
use health::{Health, Place};
use slab::Slab;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How long an array must be idle before it is marked clean: md's default `safe_mode_delay`.
pub const SAFE_MODE_DELAY: Span = Span::millis(200);

/// Places listed where a write failed half way.
const TORN_MAX: usize = 1024;

/// Why nothing is acknowledged that depends on a failure the survivors do not know of.
const UNTOLD: &str = "a member failed, and the others could not be told before they failed, too";

type FlightId = usize;

/// Names an operation between its action and its answer.
pub type OpId = usize;

/// The actions a step produced, in the order in which a single thread may do them.
pub type Actions = Vec<Action>;

/// Builds the bytes of a member's superblock and says where they go.
pub type Emit = fn(&ArrayRecord, &MemberRecord) -> crate::error::Result<(Sectors, Vec<u8>)>;

/// What a member is to do. Buffers move out with the action and come back with the answer.
#[derive(Debug)]
pub enum Io {
    /// Fill the buffer.
    Read(Buf),
    /// Write the bytes.
    Write(Shared),
    /// Make everything written before durable.
    Flush,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// Somebody wants something; the driver chose the id and sees it again in the reply.
    Ask(AskId, Ask),
    /// A member answered; `failed` says in words what went wrong.
    Io {
        /// The operation.
        op: OpId,
        /// Its buffer, back.
        io: Io,
        /// What went wrong, if anything did.
        failed: Option<String>,
    },
    /// Parity work is done.
    Computed(OpId, Box<Work>),
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Action {
    /// Let `device` do `io` at its sector `at`, then answer [`Event::Io`].
    Io {
        /// Names the operation in the answer.
        op: OpId,
        /// Which device.
        device: DeviceId,
        /// Sector from the start of the device (not of the data area).
        at: Sectors,
        /// What to do there.
        io: Io,
        /// Nobody waits for it: work of a job.
        background: bool,
    },
    /// Call [`Work::perform`], then answer [`Event::Computed`].
    Compute(OpId, Box<Work>),
    /// Answer whoever asked.
    Reply(AskId, Outcome),
    /// Send a [`Event::Tick`] at this time or later.
    Wake(Instant),
}

/// Whom an answered operation belongs to.
#[derive(Debug)]
enum Target {
    Unit { flight: FlightId, unit: u16, device: DeviceId },
    Work(FlightId),
    Publish(DeviceId),
    Flush(DeviceId),
    Log { lane: log::LaneId, device: DeviceId },
}

/// Who waits for superblocks to be durable.
#[derive(Debug)]
enum Waiter {
    Flight(FlightId),
    Flush(Vec<AskId>),
    Log(log::LaneId),
    Reply(AskId),
    /// Replacements that are complete.
    Relieve,
}

/// A write journal and where it goes on.
#[derive(Clone, Debug)]
pub struct Journal {
    /// The device; its state is not looked at.
    pub member: Member,
    /// Where the next block goes.
    pub state: JournalState,
}

/// Everything the engine must know of an assembled array.
pub struct Setup {
    /// Where things are.
    pub layout: Arc<dyn Layout>,
    /// What the superblocks agree on. `resync` says from where redundancy must be made again.
    pub array: ArrayRecord,
    /// The members by slot.
    pub members: Vec<Option<Member>>,
    /// Devices that are filled to replace a member, by slot; may be shorter than `members`.
    pub replacements: Vec<Option<Member>>,
    /// Spares.
    pub spares: Vec<Member>,
    /// The write-intent bitmap, if the array has one.
    pub bitmap: Option<Bitmap>,
    /// The write journal, if the array has one and is written to.
    pub journal: Option<Journal>,
    /// Builds superblocks.
    pub emit: Emit,
    /// Some members' superblocks are older than `array`: a power cut fell between two of their
    /// writes. They are made to agree before anything else, so that no later loss of the fresher
    /// ones makes the array look older than it is.
    pub uneven: bool,
    /// Nothing is ever written, not even a superblock.
    pub read_only: bool,
    /// Redundancy that may be wrong is used all the same (the user forced it).
    pub trust_unsynced: bool,
    /// Where buffers come from.
    pub pool: Pool,
    /// The time now.
    pub now: Instant,
}

/// The state of a running array.
pub struct Engine {
    layout: Arc<dyn Layout>,
    shape: Shape,
    pool: Pool,
    emit: Emit,
    array: ArrayRecord,
    health: Health,
    /// Redundancy is consistent below this; `None`: everywhere.
    unsynced: Option<Sectors>,
    /// The same as it is known to be durable on the members.
    unsynced_durably: Option<Sectors>,
    trust_unsynced: bool,
    read_only: bool,
    /// The members say (or are about to say) that writes may be under way.
    dirty: bool,
    dirty_version: u64,
    /// The version that records the latest failure.
    failure_version: u64,
    /// Sectors of the units of a stripe.
    stripe_len: Sectors,
    bitmap: Option<Bitmap>,
    logs: log::Logs,
    /// Most rows a write may have where it is told to a partial parity log; `None`: there is none.
    log_room: Option<Sectors>,
    /// When a look at bits that may be cleared is due.
    clear_due: Option<Instant>,
    /// When somebody last asked for data.
    asked_at: Instant,
    /// Numbers of devices that left.
    retired: Vec<u32>,
    /// Where a write failed half way: redundancy is wrong there until the next start.
    torn: Vec<(Sectors, Sectors)>,
    /// More members failed than the level survives.
    broken: bool,
    /// Why a flush failed on a member that cannot be spared.
    flush_lost: Option<String>,
    open_writes: usize,
    idle_since: Instant,
    stopping: Option<AskId>,
    stop_flushed: bool,
    now: Instant,
    asks: BTreeMap<AskId, ask::OpenAsk>,
    flights: Slab<Flight>,
    ops: Slab<Target>,
    stripes: stripes::Stripes,
    publisher: publish::Publisher,
    flushes: flush::Flushes,
    jobs: job::Jobs,
    stats: Stats,
}

impl Engine {
    /// An engine for an assembled array; nothing has been written yet.
    pub fn new(setup: Setup, out: &mut Actions) -> Engine {
        let shape = setup.layout.shape().clone();
        assert_eq!(setup.members.len(), shape.slots as usize, "one entry per slot");
        let mut replacements = setup.replacements;
        replacements.resize(shape.slots as usize, None);
        let stripe_len = match shape.stripes {
            0 => Sectors(1),
            _ => setup.layout.stripe(StripeNo(0)).len,
        };
        let areas = setup.members.iter().flatten().filter_map(|m| m.record.ppl);
        let log_room = areas.map(log::room).min().filter(|_| shape.code == Code::P);
        let mut engine = Engine {
            logs: log::Logs::default(),
            log_room,
            unsynced: setup.array.resync,
            unsynced_durably: setup.array.resync,
            layout: setup.layout,
            shape,
            pool: setup.pool,
            emit: setup.emit,
            array: setup.array,
            health: Health {
                slots: setup.members,
                replacements,
                others: setup.spares,
                generation: 0,
            },
            stripe_len,
            bitmap: setup.bitmap,
            clear_due: None,
            asked_at: Instant::default(),
            retired: Vec::new(),
            torn: Vec::new(),
            trust_unsynced: setup.trust_unsynced,
            read_only: setup.read_only,
            dirty: false,
            dirty_version: 0,
            failure_version: 0,
            broken: false,
            flush_lost: None,
            open_writes: 0,
            idle_since: setup.now,
            stopping: None,
            stop_flushed: false,
            now: setup.now,
            asks: BTreeMap::new(),
            flights: Slab::new(),
            ops: Slab::new(),
            stripes: stripes::Stripes::default(),
            publisher: publish::Publisher::default(),
            flushes: flush::Flushes::default(),
            jobs: job::Jobs::default(),
            stats: Stats::default(),
        };
        if let Some(journal) = setup.journal {
            engine.take_journal(journal);
        }
        if setup.uneven && !setup.read_only {
            engine.changed(out);
        }
        engine.begin(out);
        engine
    }

    /// Takes one event and appends what is to be done because of it.
    pub fn step(&mut self, now: Instant, event: Event, out: &mut Actions) {
        self.now = self.now.max(now);
        match event {
            Event::Ask(id, ask) => self.asked(id, ask, out),
            Event::Io { op, io, failed } => match self.ops.remove(op) {
                Target::Unit { flight, unit, device } => {
                    self.unit_done(flight, (unit, device), io, failed, out);
                }
                Target::Publish(device) => self.published(device, failed, out),
                Target::Flush(device) => self.flushed(device, failed, out),
                Target::Log { lane, device } => self.log_done((lane, device), failed, out),
                Target::Work(_) => panic!("parity work is answered by Computed"),
            },
            Event::Computed(op, work) => match self.ops.remove(op) {
                Target::Work(flight) => self.work_done(flight, work, out),
                other => panic!("only parity work is answered by Computed, not {other:?}"),
            },
            Event::Tick => self.tick(out),
        }
        self.go_on_stopping(out);
    }

    fn tick(&mut self, out: &mut Actions) {
        self.mark_clean_when_idle(out);
        self.clear_when_quiet(out);
        self.feed_job(out);
    }

    fn wake(&mut self, waiter: Waiter, out: &mut Actions) {
        match waiter {
            Waiter::Flight(flight) => self.advance(flight, out),
            Waiter::Flush(asks) => self.flush_answered(asks, out),
            Waiter::Log(lane) => self.write_log(lane, out),
            Waiter::Reply(ask) => self.told(ask, out),
            Waiter::Relieve => self.relieve(out),
        }
    }

    /// `device` failed to write or flush. `Err` says why the array cannot go on without it; the
    /// member then keeps its place and the request fails.
    fn device_failed(
        &mut self,
        device: DeviceId,
        trouble: &str,
        out: &mut Actions,
    ) -> Result<(), String> {
        self.stats.write_errors += 1;
        let Some(place) = self.health.place(device) else { return Ok(()) };
        let member = self.health.member_mut(device).expect("it has a place");
        member.errors += 1;
        if member.state == State::Failed {
            return Ok(());
        }
        let name = member.name.clone();
        if let Place::Slot(slot) = place {
            let text = format!("member {name} in slot {slot}: {trouble}");
            let relieved = self.relief(slot).is_some_and(|m| m.state == State::InSync);
            let spared = relieved || self.health.can_lose(&*self.layout, slot);
            if self.read_only || !spared {
                if matches!(self.shape.level, 4..=6) && !self.read_only {
                    self.broken = true;
                    self.give_up_publishing(out);
                }
                return Err(text);
            }
        }
        self.health.member_mut(device).expect("it has a place").state = State::Failed;
        self.health.generation += 1;
        self.failure_version = self.publish_failure(device, out);
        self.make_room(device);
        self.devices_changed(out);
        Ok(())
    }

    fn relief(&self, slot: crate::units::Slot) -> Option<&Member> {
        self.health.replacements[slot.index()].as_ref()
    }

    /// Grows whenever a member's state changes; a shortcut taken under an old number is void.
    pub fn generation(&self) -> u64 {
        self.health.generation
    }

    /// The members by slot.
    pub fn members(&self) -> &[Option<Member>] {
        &self.health.slots
    }

    /// A write on `band` failed: it may be on some members and not on others.
    fn tear(&mut self, band: &crate::plan::Band) {
        let range = self.position(band);
        if self.torn.len() < TORN_MAX {
            self.torn.push(range);
        } else {
            // Too many to list: everything is suspect.
            self.torn = vec![(Sectors::ZERO, Sectors(u64::MAX))];
        }
    }

    /// True if redundancy of `band` is known to agree with its data.
    fn is_consistent(&self, band: &crate::plan::Band) -> bool {
        let (from, to) = self.position(band);
        if self.torn.iter().any(|&(at, end)| at < to && from < end) {
            return false;
        }
        if self.unsynced.is_none() || self.trust_unsynced {
            return true;
        }
        let unmarked = self.bitmap.as_ref().is_some_and(|b| !b.any_needed(from, to));
        unmarked || self.jobs.has_synced(from, to)
    }

    /// True if no ask, flight or update is open.
    pub fn is_idle(&self) -> bool {
        self.asks.is_empty()
            && self.flights.is_empty()
            && self.publisher.is_idle()
            && self.flushes.is_idle()
    }
}
