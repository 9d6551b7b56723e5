//! The logs of a running array: told before it is done.
//!
//! A RAID 5 may keep a partial parity log, a RAID 4, 5 or 6 a write journal ([`super::journal`]).
//!
//! A write that changes parity first puts what the rest of its rows comes to into the log of the
//! member that holds the parity (see [`crate::meta::md_ppl`]); only when that is durable are data
//! and parity written. After a crash parity follows from the log, also without a member.
//!
//! Each member with a partial parity log has a *lane*; a journal is one lane for all. A lane writes
//! one log at a time, for all writes that wait by then.
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
use crate::units::Sectors;
use std::collections::{BTreeMap, VecDeque};

/// The lanes, by device.
#[derive(Debug, Default)]
pub(super) struct Logs {
    lanes: BTreeMap<DeviceId, Lane>,
    /// Of the log written last; grows over all lanes.
    generation: u64,
    /// The write journal, if there is one.
    pub journal: Option<DeviceId>,
}

/// Where a lane writes.
#[derive(Debug)]
enum Form {
    /// Partial parity; `next`: where in the area the next log goes, if it fits there.
    Partial {
        area: Area,
        next: Sectors,
    },
    Journal(Tape),
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
    /// Operations that are not answered.
    pending: usize,
    /// One of the operations of this log failed.
    failed: bool,
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
            pending: 0,
            failed: false,
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
        self.logs.lanes.insert(member.device, Lane::new(Form::Journal(tape)));
        self.health.others.push(Member { state: State::Journal, ..member });
    }

    /// True if writes are told to a log first.
    pub(super) fn has_logs(&self) -> bool {
        self.log_room.is_some()
    }

    /// The partial parity of a write is known, or it needs none: its turn in its lane.
    pub(super) fn queue_log(&mut self, id: FlightId, out: &mut Actions) {
        if let Some(device) = self.logs.journal {
            let lane = self.logs.lanes.get_mut(&device).expect("a journal has a lane");
            lane.waiting.push_back(id);
            return self.go_on_logging(device, out);
        }
        let stripe = &self.flights[id].band.stripe;
        let slot = stripe.units.iter().find(|u| u.role == Role::P).map(|u| u.slot);
        let member = slot.and_then(|slot| self.health.live(slot));
        let Some((device, area)) = member.and_then(|m| Some((m.device, m.record.ppl?))) else {
            // The member has failed since: there is no parity to get wrong.
            return self.advance(id, out);
        };
        let lane = self
            .logs
            .lanes
            .entry(device)
            .or_insert_with(|| Lane::new(Form::Partial { area, next: Sectors::ZERO }));
        lane.waiting.push_back(id);
        self.go_on_logging(device, out);
    }

    /// Begins the next log of a lane if the last one is done and somebody waits.
    fn go_on_logging(&mut self, device: DeviceId, out: &mut Actions) {
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        if lane.step != Step::Idle || lane.waiting.is_empty() {
            return;
        }
        let live = self.health.live_devices();
        let touched = std::mem::take(&mut lane.touched);
        let settle: Devices = touched.into_iter().filter(|d| live.contains(d)).collect();
        if settle.is_empty() {
            return self.write_log(device, out);
        }
        (lane.step, lane.pending) = (Step::Settling, settle.len());
        for target in settle {
            self.log_io(device, target, Sectors::ZERO, Io::Flush, out);
        }
    }

    fn log_io(&mut self, lane: DeviceId, device: DeviceId, at: Sectors, io: Io, out: &mut Actions) {
        let op = self.ops.insert(Target::Log { lane, device });
        out.push(Action::Io { op, device, at, io, background: false });
    }

    /// Writes one log for as many of those who wait as fit into it.
    pub(super) fn write_log(&mut self, device: DeviceId, out: &mut Actions) {
        if self.health.member(device).is_none_or(|m| m.state == State::Failed) {
            if self.logs.journal == Some(device) {
                // Without its journal nothing more is written.
                self.flush_lost.get_or_insert("the write journal failed".into());
                self.broken = true;
                self.give_up_publishing(out);
            }
            let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
            lane.batch = lane.waiting.drain(..).collect();
            return self.let_go(device, out);
        }
        match self.logs.lanes[&device].form {
            Form::Partial { .. } => self.write_partial(device, out),
            Form::Journal(_) => self.write_journal(device, out),
        }
    }

    fn write_partial(&mut self, device: DeviceId, out: &mut Actions) {
        let empty = self.health.member(device).map_or(0, |m| m.log_empty);
        if !self.publisher.is_durable(empty) {
            let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
            lane.step = Step::Waiting;
            return self.wait_durable(empty, Waiter::Log(device));
        }
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        let (mut entries, mut parity) = (Vec::new(), Vec::new());
        while let Some(&id) = lane.waiting.front() {
            let (entry, partial) = self.flights[id].log_entry();
            let so_far = Sectors::floor_bytes(parity.len() as u64);
            let fits = entries.is_empty() || so_far + entry.parity <= PARITY_MAX;
            if !fits || entries.len() == ENTRIES_MAX {
                break;
            }
            entries.push(entry);
            parity.extend_from_slice(partial);
            lane.batch.push(id);
            lane.waiting.pop_front();
        }
        self.logs.generation += 1;
        let header = Header { generation: self.logs.generation, entries };
        let Form::Partial { area, next } = &mut lane.form else {
            panic!("partial parity goes to lanes of members");
        };
        let at = place(*area, next, header.len());
        (lane.step, lane.pending) = (Step::Writing, 1);
        let mut bytes = md_ppl::emit(&header, &self.array.uuid)
            .expect("entries are as many as fit, of bands that fit");
        bytes.append(&mut parity);
        self.stats.log_writes += 1;
        let io = Io::Write(Buf::copy_of(&bytes).freeze());
        self.log_io(device, device, at, io, out);
    }

    /// Writes as much as fits to the journal; where the ring is full its tail moves first.
    fn write_journal(&mut self, device: DeviceId, out: &mut Actions) {
        let code = self.shape.code;
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        let Form::Journal(tape) = &mut lane.form else { panic!("only a journal is a tape") };
        let mut rows = Vec::new();
        for &id in &lane.waiting {
            let count = rows.len();
            rows.extend(tape.rows(&self.flights[id], code));
            if count > 0 && Tape::len(&rows) > tape.log_max() {
                rows.truncate(count);
                break;
            }
            lane.batch.push(id);
        }
        if !tape.fits(Tape::len(&rows)) {
            lane.batch.clear();
            lane.step = Step::Waiting;
            let tail = tape.free();
            let member = self.health.member_mut(device).expect("a journal stays");
            member.record.journal_tail = Some(tail);
            let version = self.changed(out);
            return match self.publisher.is_durable(version) {
                true => self.write_log(device, out),
                false => self.wait_durable(version, Waiter::Log(device)),
            };
        }
        lane.waiting.drain(..lane.batch.len());
        let writes = tape.write(rows);
        (lane.step, lane.pending) = (Step::Writing, writes.len());
        self.stats.log_writes += 1;
        for (at, bytes) in writes {
            let io = Io::Write(Buf::copy_of(&bytes).freeze());
            self.log_io(device, device, at, io, out);
        }
    }

    /// An operation of a lane is answered.
    pub(super) fn log_done(
        &mut self,
        (lane, device): (DeviceId, DeviceId),
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
        let state = self.logs.lanes.get_mut(&lane).expect("a lane once used stays");
        match state.step {
            Step::Settling => {
                state.pending -= 1;
                if state.pending == 0 {
                    self.write_log(lane, out);
                }
            }
            Step::Writing | Step::Flushing if state.pending > 1 => {
                state.pending -= 1;
                state.failed |= is_failed;
            }
            Step::Writing if !is_failed && !state.failed => {
                state.step = Step::Flushing;
                self.log_io(lane, lane, Sectors::ZERO, Io::Flush, out);
            }
            Step::Writing | Step::Flushing => self.let_go(lane, out),
            Step::Idle | Step::Waiting | Step::Open => {
                panic!("a lane that does nothing has no answer")
            }
        }
    }

    /// The log is durable, or its member is gone: its writes go on.
    fn let_go(&mut self, device: DeviceId, out: &mut Actions) {
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        let batch = std::mem::take(&mut lane.batch);
        (lane.step, lane.open, lane.failed) = (Step::Open, batch.len(), false);
        for &id in &batch {
            self.flights[id].lane = Some(device);
        }
        for id in batch {
            self.advance(id, out);
        }
    }

    /// A write of the lane's newest log goes to these devices.
    pub(super) fn touch(&mut self, device: DeviceId, targets: impl Iterator<Item = DeviceId>) {
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        for target in targets {
            if !lane.touched.contains(&target) {
                lane.touched.push(target);
            }
        }
    }

    /// A write of the lane's newest log is over.
    pub(super) fn leave_lane(&mut self, device: DeviceId, out: &mut Actions) {
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        lane.open -= 1;
        if lane.open == 0 {
            lane.step = Step::Idle;
            self.go_on_logging(device, out);
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
