//! The logs of a running array: told before it is done.
//!
//! A RAID 5 may keep a partial parity log, a RAID 4, 5 or 6 a write journal ([`super::journal`]).
//!
//! A write that changes parity first puts what the rest of its rows comes to into the log of the
//! member that holds the parity (see [`crate::meta::md_ppl`]); only when that is durable are data
//! and parity written. After a crash parity follows from the log, also without a member.
//!
//! The partial parity logs of each slot are a *lane*: where a member is being replaced, both it and
//! the one to come get every log, so that either can be the one that is left. A journal is one lane
//! for all. A lane writes one log at a time, for all writes that wait by then.
//! The newest log is the only one that counts, so the next one is written only when all that the
//! last one speaks of is durable: writes answered, failures recorded, members flushed.
//!
//! ```text
//! idle -> settling -> writing -> flushing -> open -> idle
//!         (flush what     (the new log)      (its writes are under way)
//!          was written)
//! ```

use super::health::{DeviceId, Devices, Member, State};
use super::journal::Tape;
use super::{Action, Actions, Engine, FlightId, Io, Journal, Target, Waiter};
use crate::buf::Buf;
use crate::layout::Role;
use crate::meta::md_ppl::{self, ENTRIES_MAX, Entry, HEADER_LEN, Header, PARITY_MAX, RING_MIN};
use crate::meta::record::Area;
use crate::units::{Sectors, Slot};
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};

/// Whose log: the journal's, or that of the members in a slot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum LaneId {
    Journal,
    Slot(Slot),
}

/// The lanes.
#[derive(Debug, Default)]
pub(super) struct Logs {
    lanes: BTreeMap<LaneId, Lane>,
    /// Of the log written last; grows over all lanes.
    generation: u64,
    /// The write journal, if there is one.
    pub journal: Option<DeviceId>,
}

/// Where a lane writes.
#[derive(Debug)]
enum Form {
    /// Partial parity, to these devices.
    Partial(Vec<Pen>),
    Journal(Tape),
}

/// Where in the area of `device` the next log goes, if it fits there.
#[derive(Debug)]
struct Pen {
    device: DeviceId,
    next: Sectors,
}

#[derive(Debug)]
struct Lane {
    form: Form,
    step: Step,
    waiting: VecDeque<FlightId>,
    /// The writes of the log that is being written.
    batch: Vec<FlightId>,
    /// Writes of the newest log that are not over.
    open: usize,
    /// Devices that were written to since the newest log.
    touched: Devices,
    /// Devices that took the log that is being written.
    written: Devices,
    /// Operations that are not answered.
    pending: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    Settling,
    /// Waiting for superblocks: the journal's tail is being moved, or an old log thrown away.
    Waiting,
    Writing,
    Flushing,
    Open,
}

impl Lane {
    fn new(form: Form) -> Lane {
        Lane {
            form,
            step: Step::Idle,
            waiting: VecDeque::new(),
            batch: Vec::new(),
            open: 0,
            touched: Devices::new(),
            written: Devices::new(),
            pending: 0,
        }
    }
}

/// The place in `area` for a log of `len` sectors, where the last one ended at `next`.
fn place(area: Area, next: &mut Sectors, len: Sectors) -> Sectors {
    if *next + len > area.len || area.len < RING_MIN {
        *next = Sectors::ZERO;
    }
    let at = area.at + *next;
    *next += len;
    at
}

impl Engine {
    /// From now on writes go to the journal first.
    pub(super) fn take_journal(&mut self, journal: Journal) {
        let Journal { member, state } = journal;
        let tape = Tape::new(state, member.record.data_at, &self.array.uuid);
        self.log_room = Some(Tape::rows_max(state.ring, self.shape.slots.into()));
        self.logs.journal = Some(member.device);
        self.logs.lanes.insert(LaneId::Journal, Lane::new(Form::Journal(tape)));
        self.health.others.push(Member { state: State::Journal, ..member });
    }

    /// True if writes are told to a log first.
    pub(super) fn has_logs(&self) -> bool {
        self.log_room.is_some()
    }

    /// The partial parity of a write is known, or it needs none: its turn in its lane.
    pub(super) fn queue_log(&mut self, id: FlightId, out: &mut Actions) {
        let lane = match self.logs.journal {
            Some(_) => LaneId::Journal,
            None => {
                let units = &self.flights[id].band.stripe.units;
                let slot = units.iter().find(|u| u.role == Role::P).map(|u| u.slot);
                let slot = slot.filter(|&slot| !self.areas(slot).is_empty());
                // The member has failed since: there is no parity to get wrong.
                let Some(slot) = slot else { return self.advance(id, out) };
                LaneId::Slot(slot)
            }
        };
        let new = || Lane::new(Form::Partial(Vec::new()));
        self.logs.lanes.entry(lane).or_insert_with(new).waiting.push_back(id);
        self.go_on_logging(lane, out);
    }

    /// The partial parity logs of those that serve in `slot`.
    fn areas(&self, slot: Slot) -> SmallVec<[(DeviceId, Area); 2]> {
        let area = |m: &Member| Some((m.device, m.record.ppl?));
        self.health.live_in(slot).filter_map(area).collect()
    }

    /// A lane that somebody has used.
    fn lane(&mut self, id: LaneId) -> &mut Lane {
        self.logs.lanes.get_mut(&id).expect("a lane once used stays")
    }

    /// Begins the next log of a lane if the last one is done and somebody waits.
    fn go_on_logging(&mut self, id: LaneId, out: &mut Actions) {
        let live = self.health.live_devices();
        let lane = self.lane(id);
        if lane.step != Step::Idle || lane.waiting.is_empty() {
            return;
        }
        let touched = std::mem::take(&mut lane.touched);
        let settle: Devices = touched.into_iter().filter(|d| live.contains(d)).collect();
        if settle.is_empty() {
            return self.write_log(id, out);
        }
        (lane.step, lane.pending) = (Step::Settling, settle.len());
        for target in settle {
            self.log_io(id, target, Sectors::ZERO, Io::Flush, out);
        }
    }

    fn log_io(&mut self, lane: LaneId, device: DeviceId, at: Sectors, io: Io, out: &mut Actions) {
        let op = self.ops.insert(Target::Log { lane, device });
        out.push(Action::Io { op, device, at, io, background: false });
    }

    /// Writes one log for as many of those who wait as fit into it.
    pub(super) fn write_log(&mut self, id: LaneId, out: &mut Actions) {
        match (id, self.logs.journal) {
            (LaneId::Slot(slot), _) => self.write_partial(slot, out),
            (LaneId::Journal, Some(device)) if self.serves(device) => {
                self.write_journal(device, out);
            }
            (LaneId::Journal, _) => {
                // Without its journal nothing more is written.
                self.flush_lost.get_or_insert("the write journal failed".into());
                self.broken = true;
                self.give_up_publishing(out);
                self.let_all_go(id, out);
            }
        }
    }

    fn serves(&self, device: DeviceId) -> bool {
        self.health.member(device).is_some_and(|m| m.state != State::Failed)
    }

    /// Nobody is left to log to: those who wait go on without.
    fn let_all_go(&mut self, id: LaneId, out: &mut Actions) {
        let lane = self.lane(id);
        lane.batch = lane.waiting.drain(..).collect();
        self.let_go(id, out);
    }

    fn write_partial(&mut self, slot: Slot, out: &mut Actions) {
        let (id, areas) = (LaneId::Slot(slot), self.areas(slot));
        if areas.is_empty() {
            return self.let_all_go(id, out);
        }
        let empty = self.health.live_in(slot).map(|m| m.log_empty).max().unwrap_or(0);
        if !self.publisher.is_durable(empty) {
            self.lane(id).step = Step::Waiting;
            return self.wait_durable(empty, Waiter::Log(id));
        }
        let lane = self.logs.lanes.get_mut(&id).expect("a lane once used stays");
        let (mut entries, mut parity) = (Vec::new(), Vec::new());
        while let Some(&flight) = lane.waiting.front() {
            let (entry, partial) = self.flights[flight].log_entry();
            let so_far = Sectors::floor_bytes(parity.len() as u64);
            let fits = entries.is_empty() || so_far + entry.parity <= PARITY_MAX;
            if !fits || entries.len() == ENTRIES_MAX {
                break;
            }
            entries.push(entry);
            parity.extend_from_slice(partial);
            lane.batch.push(flight);
            lane.waiting.pop_front();
        }
        self.logs.generation += 1;
        let header = Header { generation: self.logs.generation, entries };
        let Form::Partial(pens) = &mut lane.form else {
            panic!("partial parity goes to lanes of members");
        };
        pens.retain(|pen| areas.iter().any(|(device, _)| *device == pen.device));
        let mut places: SmallVec<[(DeviceId, Sectors); 2]> = SmallVec::new();
        for (device, area) in areas {
            let known = pens.iter().position(|pen| pen.device == device);
            let index = known.unwrap_or_else(|| {
                pens.push(Pen { device, next: Sectors::ZERO });
                pens.len() - 1
            });
            places.push((device, place(area, &mut pens[index].next, header.len())));
        }
        (lane.step, lane.pending) = (Step::Writing, places.len());
        lane.written = places.iter().map(|(device, _)| *device).collect();
        let mut bytes = md_ppl::emit(&header, &self.array.uuid)
            .expect("entries are as many as fit, of bands that fit");
        bytes.append(&mut parity);
        self.stats.log_writes += 1;
        let content = Buf::copy_of(&bytes).freeze();
        for (device, at) in places {
            self.log_io(id, device, at, Io::Write(content.clone()), out);
        }
    }

    /// Writes as much as fits to the journal; where the ring is full its tail moves first.
    fn write_journal(&mut self, device: DeviceId, out: &mut Actions) {
        let (id, code) = (LaneId::Journal, self.shape.code);
        let lane = self.logs.lanes.get_mut(&id).expect("a lane once used stays");
        let Form::Journal(tape) = &mut lane.form else { panic!("only a journal is a tape") };
        let mut rows = Vec::new();
        for &flight in &lane.waiting {
            let count = rows.len();
            rows.extend(tape.rows(&self.flights[flight], code));
            if count > 0 && Tape::len(&rows) > tape.log_max() {
                rows.truncate(count);
                break;
            }
            lane.batch.push(flight);
        }
        if !tape.fits(Tape::len(&rows)) {
            lane.batch.clear();
            lane.step = Step::Waiting;
            let tail = tape.free();
            let member = self.health.member_mut(device).expect("a journal stays");
            member.record.journal_tail = Some(tail);
            let version = self.changed(out);
            return match self.publisher.is_durable(version) {
                true => self.write_log(id, out),
                false => self.wait_durable(version, Waiter::Log(id)),
            };
        }
        lane.waiting.drain(..lane.batch.len());
        let writes = tape.write(rows);
        (lane.step, lane.pending) = (Step::Writing, writes.len());
        lane.written = std::iter::once(device).collect();
        self.stats.log_writes += 1;
        for (at, bytes) in writes {
            let io = Io::Write(Buf::copy_of(&bytes).freeze());
            self.log_io(id, device, at, io, out);
        }
    }

    /// An operation of a lane is answered.
    pub(super) fn log_done(
        &mut self,
        (id, device): (LaneId, DeviceId),
        failed: Option<String>,
        out: &mut Actions,
    ) {
        let is_failed = failed.is_some();
        let journal = self.logs.journal == Some(device);
        let trouble = failed.and_then(|t| {
            let failed = self.device_failed(device, &t, out).err();
            failed.or(journal.then(|| format!("the write journal failed: {t}")))
        });
        if let Some(trouble) = trouble {
            // Neither can it be spared nor is it known what it holds: nothing more is written.
            self.flush_lost.get_or_insert(trouble);
            self.broken = true;
            self.give_up_publishing(out);
        }
        let lane = self.lane(id);
        lane.pending -= 1;
        lane.written.retain(|d| !is_failed || *d != device);
        if lane.pending > 0 {
            return;
        }
        match lane.step {
            Step::Settling => self.write_log(id, out),
            Step::Writing if !lane.written.is_empty() => {
                let written = lane.written.clone();
                (lane.step, lane.pending) = (Step::Flushing, written.len());
                for device in written {
                    self.log_io(id, device, Sectors::ZERO, Io::Flush, out);
                }
            }
            Step::Writing | Step::Flushing => self.let_go(id, out),
            Step::Idle | Step::Waiting | Step::Open => {
                panic!("a lane that does nothing has no answer")
            }
        }
    }

    /// The log is durable, or its members are gone: its writes go on.
    fn let_go(&mut self, id: LaneId, out: &mut Actions) {
        let lane = self.lane(id);
        let batch = std::mem::take(&mut lane.batch);
        (lane.step, lane.open) = (Step::Open, batch.len());
        for &flight in &batch {
            self.flights[flight].lane = Some(id);
        }
        for flight in batch {
            self.advance(flight, out);
        }
    }

    /// A write of the lane's newest log goes to these devices.
    pub(super) fn touch(&mut self, id: LaneId, targets: impl Iterator<Item = DeviceId>) {
        let lane = self.lane(id);
        for target in targets {
            if !lane.touched.contains(&target) {
                lane.touched.push(target);
            }
        }
    }

    /// A write of the lane's newest log is over.
    pub(super) fn leave_lane(&mut self, id: LaneId, out: &mut Actions) {
        let lane = self.lane(id);
        lane.open -= 1;
        if lane.open == 0 {
            lane.step = Step::Idle;
            self.go_on_logging(id, out);
        }
    }
}

/// Most rows a write may have so that its partial parity fits into the log of `member`.
pub(super) fn room(area: Area) -> Sectors {
    area.len.checked_sub(HEADER_LEN).unwrap_or_default()
}

/// What the log says of a write: `data` sectors from array sector `at`, whose parity is in `slot`.
pub(super) fn entry(at: Sectors, data: Sectors, slot: crate::units::Slot, partial: &[u8]) -> Entry {
    Entry {
        at,
        parity: Sectors::floor_bytes(partial.len() as u64),
        data,
        slot,
        checksum: md_ppl::checksum(partial),
    }
}
