//! A plan in progress on one band: the phase it is in, what it waits for, its bytes.

mod answer;
mod told;

use super::ask::Keep;
use super::cells::{Cells, Task};
use super::health::{DeviceId, Devices};
use super::log::LaneId;
use super::{Action, Actions, AskId, Engine, FlightId, Io, OpId, Target, UNTOLD, Waiter, Work};
use crate::buf::{Buf, Shared};
use crate::error::ErrorKind;
use crate::layout::Code;
use crate::plan::{self, Band, Phase, Plan, Units};
use crate::units::{Sectors, SlotSet};
use smallvec::SmallVec;

/// Whom a flight reports to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Ask(AskId),
    /// The job's step at this position.
    Job(Sectors),
}

/// What a flight is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    /// A write whose payload must first be completed with what the array holds (see [`Keep`]).
    Fill,
    Write,
    /// Make redundancy anew (resync).
    Repair,
    /// Fill devices that are being rebuilt.
    Recover,
    /// Compare redundancy with data; `true`: and make it agree.
    Scrub(bool),
}

#[derive(Debug)]
pub(super) struct Flight {
    owner: Owner,
    pub kind: Kind,
    pub band: Band,
    plan: Plan,
    phase: usize,
    pending: usize,
    cells: Cells,
    /// Which piece of the ask a wanted unit fills.
    places: SmallVec<[(u16, usize); 8]>,
    keeps: SmallVec<[(u16, Keep); 2]>,
    /// Devices that failed to read in this band.
    pub unreadable: Devices,
    /// The version that makes this write's bits in the bitmap durable, once they are set.
    pub marked: Option<u64>,
    /// The log that speaks of this write, durably.
    pub lane: Option<LaneId>,
    failed_reads: bool,
    /// Its writes were sent.
    committed: bool,
    locked: bool,
    generation: u64,
    trouble: Option<(ErrorKind, String)>,
}

impl Flight {
    pub fn new(owner: Owner, kind: Kind, band: Band) -> Flight {
        Flight {
            owner,
            kind,
            cells: Cells::empty(band.stripe.units.len()),
            band,
            plan: Plan::default(),
            phase: 0,
            pending: 0,
            places: SmallVec::new(),
            keeps: SmallVec::new(),
            unreadable: Devices::new(),
            marked: None,
            lane: None,
            failed_reads: false,
            committed: false,
            locked: false,
            generation: 0,
            trouble: None,
        }
    }

    /// `buf` waits in its cell for the content of data unit `unit`.
    pub fn expect_piece(&mut self, unit: u16, place: usize, buf: Buf) {
        self.places.push((unit, place));
        self.cells.old[unit as usize] = Some(buf);
    }

    /// `piece` is the new content of data unit `unit`, but for the bytes to keep.
    pub fn give_piece(&mut self, unit: u16, piece: Shared, keep: Keep) {
        self.cells.new[unit as usize] = Some(piece);
        if keep != Keep::default() {
            self.keeps.push((unit, keep));
            self.kind = Kind::Fill;
        }
    }

    /// True if it brings new content.
    pub fn is_write(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Fill)
    }

    /// Drops what was read, but for the buffers the ask waits for.
    fn forget_reads(&mut self) {
        let places = &self.places;
        for (unit, cell) in self.cells.old.iter_mut().enumerate() {
            if !places.iter().any(|p| p.0 as usize == unit) {
                *cell = None;
            }
        }
    }

    /// What the members hold of `unit`; of copies one was read, and it speaks for all.
    fn was_read(&self, copy: bool, unit: usize) -> Option<&[u8]> {
        match copy {
            true => self.cells.old.iter().find_map(Option::as_deref),
            false => self.cells.old[unit].as_deref(),
        }
    }

    /// What to write to `unit`.
    fn outgoing(&mut self, code: Code, unit: u16) -> Shared {
        let unit = unit as usize;
        if code == Code::Copy {
            if self.cells.new[0].is_none() {
                let read = self.cells.old.iter_mut().find_map(Option::take);
                self.cells.new[0] = Some(read.expect("a copy was read").freeze());
            }
            return self.cells.new[0].clone().expect("it was just put there");
        }
        if self.cells.new[unit].is_none() {
            let old = self.cells.old[unit].take().expect("a unit to write has content");
            self.cells.new[unit] = Some(old.freeze());
        }
        self.cells.new[unit].clone().expect("it was just put there")
    }
}

impl Engine {
    /// Plans a new flight and sets it off; one that needs its turn may have to wait for it.
    pub(super) fn start(&mut self, id: FlightId, out: &mut Actions) {
        let flight = &self.flights[id];
        let turn = flight.kind != Kind::Read;
        if turn { self.take_turn(id, out) } else { self.plan_flight(id, out) }
    }

    fn take_turn(&mut self, id: FlightId, out: &mut Actions) {
        let Flight { band, .. } = &self.flights[id];
        let (no, low, high) = (band.stripe.no, band.low, band.high);
        let granted = self.stripes.claim(id, no, low, high);
        if granted {
            self.granted(id, out);
        }
    }

    fn granted(&mut self, id: FlightId, out: &mut Actions) {
        self.flights[id].locked = true;
        self.plan_flight(id, out);
    }

    /// Makes a plan from what is true now. A read that turns out to need more than plain reads
    /// takes its turn first.
    fn plan_flight(&mut self, id: FlightId, out: &mut Actions) {
        let flight = &mut self.flights[id];
        flight.forget_reads();
        flight.failed_reads = false;
        flight.generation = self.health.generation;
        let Band { stripe, low, high, .. } = &flight.band;
        let access = self.health.access(stripe, *low, *high, &flight.unreadable);
        let code = self.shape.code;
        let heal = !self.read_only && flight.kind == Kind::Read && !flight.unreadable.is_empty();
        let consistent = self.is_consistent(&self.flights[id].band);
        let targets = self.unfilled(id);
        let (logs, journal) = (self.has_logs(), self.logs.journal.is_some());
        let flight = &mut self.flights[id];
        let planned = match flight.kind {
            Kind::Read => plan::read(&flight.band, code, &access, heal),
            Kind::Fill => plan::read(&flight.band, code, &access, false),
            Kind::Write => {
                let plan = plan::write(&flight.band, code, &access, consistent, journal);
                if logs { plan.map(|plan| plan::logged(plan, &flight.band, journal)) } else { plan }
            }
            Kind::Repair => plan::repair(&flight.band, code, &access),
            Kind::Recover => plan::recover(&flight.band, code, &access, &targets),
            // What did not read is rewritten; there is nothing to compare it with.
            Kind::Scrub(fix) if !flight.unreadable.is_empty() || fix && !targets.is_empty() => {
                plan::recover(&flight.band, code, &access, &targets)
            }
            Kind::Scrub(fix) => plan::scrub(&flight.band, code, &access, fix),
        };
        let solves = |plan: &Plan| plan.phases.iter().any(|p| matches!(p, Phase::Solve(_)));
        match planned {
            Err(plan::Lost) => self.refuse(id, "too few units can be read or written", out),
            Ok(plan) if solves(&plan) && !consistent => {
                self.refuse(id, "a lost unit cannot be solved: parity is not resynced here", out);
            }
            Ok(plan) if !flight.locked && plan.phases.len() > 2 => self.take_turn(id, out),
            Ok(plan) => {
                self.stats.planned(&plan, flight.kind == Kind::Write, &flight.band);
                flight.plan = plan;
                flight.phase = 0;
                self.advance(id, out);
            }
        }
    }

    fn refuse(&mut self, id: FlightId, why: &str, out: &mut Actions) {
        let flight = &mut self.flights[id];
        let slot_of = |device: &DeviceId| {
            let units = flight.band.stripe.units.iter().map(|u| u.slot);
            units.into_iter().find(|&s| self.health.live_in(s).any(|m| m.device == *device))
        };
        let unreadable = flight.unreadable.iter().filter_map(slot_of);
        let missing: SlotSet = self.health.missing().iter().chain(unreadable).collect();
        let text = format!(
            "stripe {}, array sector {}: {why} (missing or unreadable slots: {missing})",
            flight.band.stripe.no.0,
            flight.band.array_at(flight.band.first)
        );
        flight.trouble = Some((ErrorKind::Io, text));
        self.finish(id, out);
    }

    /// Goes through the phases until one has to wait.
    pub(super) fn advance(&mut self, id: FlightId, out: &mut Actions) {
        let journal = self.logs.journal.is_some();
        loop {
            let flight = &mut self.flights[id];
            let Some(phase) = flight.plan.phases.get(flight.phase).cloned() else {
                return self.finish(id, out);
            };
            flight.phase += 1;
            let parity = |flight: &Flight| -> Units {
                let Some(Phase::Commit(units)) = flight.plan.phases.last() else {
                    panic!("a plan that makes parity commits it");
                };
                let roles = &flight.band.stripe.units;
                units.iter().copied().filter(|u| roles[*u as usize].role.is_parity()).collect()
            };
            match phase {
                Phase::Read(units) => return self.issue_reads(id, &units, out),
                Phase::Solve(units) => return self.issue_work(id, Task::Solve(units), out),
                Phase::Encode => {
                    // A journal is told also what a member that is gone should hold.
                    let parity = match journal {
                        true => plan::pick(&flight.band.stripe, |_, role| role.is_parity()),
                        false => parity(flight),
                    };
                    let task = Task::Encode(parity);
                    return self.issue_work(id, task, out);
                }
                Phase::Update => {
                    let data = (flight.band.first..=flight.band.last).collect();
                    let task = Task::Update { parity: parity(flight), data };
                    return self.issue_work(id, task, out);
                }
                Phase::Compare => {
                    let source = self.first_copy(id);
                    return self.issue_work(id, Task::Compare { source }, out);
                }
                Phase::Log if journal || flight.is_full() => return self.queue_log(id, out),
                Phase::Log => {
                    let data = (flight.band.first..=flight.band.last).collect();
                    let task = Task::Partial { parity: parity(flight), data };
                    return self.issue_work(id, task, out);
                }
                Phase::Answer if flight.kind == Kind::Fill => return self.fill(id, out),
                Phase::Answer => self.answer(id),
                Phase::Commit(units) => return self.commit(id, &units, out),
            }
        }
    }

    fn issue_reads(&mut self, id: FlightId, units: &[u16], out: &mut Actions) {
        let flight = &mut self.flights[id];
        if flight.generation != self.health.generation {
            return self.plan_flight(id, out);
        }
        flight.pending = units.len();
        let len = flight.band.height().len();
        for &unit in units {
            let device = self.source_of(id, unit).expect("a plan reads what can be read");
            let flight = &mut self.flights[id];
            let place = if self.shape.code == Code::Copy { 0 } else { unit as usize };
            let buf = flight.cells.old[place].take().unwrap_or_else(|| self.pool.take(len));
            self.issue(id, unit, device, Io::Read(buf), out);
        }
        self.stats.member_reads += units.len() as u64;
    }

    fn issue(&mut self, id: FlightId, unit: u16, device: DeviceId, io: Io, out: &mut Actions) {
        let Flight { band, owner, .. } = &self.flights[id];
        let place = band.stripe.units[unit as usize];
        let member = self.health.member(device).expect("only live devices get work");
        let at = member.record.data_at + place.at + band.low;
        let background = matches!(owner, Owner::Job(_));
        let op: OpId = self.ops.insert(Target::Unit { flight: id, unit, device });
        out.push(Action::Io { op, device, at, io, background });
    }

    fn issue_work(&mut self, id: FlightId, task: Task, out: &mut Actions) {
        let flight = &mut self.flights[id];
        let cells = std::mem::take(&mut flight.cells);
        let len = flight.band.height().len();
        let mut work = Work::new(task, &flight.band.stripe, cells, len);
        work.background = matches!(flight.owner, Owner::Job(_));
        let op = self.ops.insert(Target::Work(id));
        out.push(Action::Compute(op, work));
    }

    pub(super) fn work_done(&mut self, id: FlightId, work: Box<Work>, out: &mut Actions) {
        let flight = &mut self.flights[id];
        flight.cells = work.cells;
        match flight.plan.phases.get(flight.phase - 1) {
            Some(Phase::Compare) => {
                self.mismatched(work.mismatches);
                if work.mismatches == 0 {
                    return self.finish(id, out);
                }
                self.advance(id, out);
            }
            Some(Phase::Log) => self.queue_log(id, out),
            _ => self.advance(id, out),
        }
    }

    fn commit(&mut self, id: FlightId, units: &[u16], out: &mut Actions) {
        let code = self.shape.code;
        let flight = &mut self.flights[id];
        if flight.kind == Kind::Write {
            // A member that a log or parity could not be written to must not come back unnoticed:
            // with a log nothing is made consistent again after a crash but what the log says.
            let failure = if self.log_room.is_some() { self.failure_version } else { 0 };
            let due = self.dirty_version.max(flight.marked.unwrap_or(0)).max(failure);
            if !self.publisher.is_durable(due) {
                flight.phase -= 1;
                return self.wait_durable(due, Waiter::Flight(id));
            }
            if self.broken {
                let why = self.flush_lost.clone();
                let why = why.unwrap_or("more members failed than the level survives".into());
                return self.refuse(id, &why, out);
            }
        }
        let receivers: SmallVec<[(u16, Devices); 8]> =
            units.iter().map(|&u| (u, self.receivers(id, u))).collect();
        let pending: usize = receivers.iter().map(|(_, devices)| devices.len()).sum();
        if pending == 0 {
            // Every target failed since the plan was made. New content must be somewhere; what was
            // to be healed or repaired is still in the other units.
            let kind = self.flights[id].kind;
            let nowhere = matches!(code, Code::Copy | Code::None) && kind == Kind::Write;
            return match nowhere {
                true => self.refuse(id, "no member is left to write to", out),
                false => self.advance(id, out),
            };
        }
        if let Some(lane) = self.flights[id].lane {
            self.touch(lane, receivers.iter().flat_map(|(_, devices)| devices.iter().copied()));
        }
        self.flights[id].pending = pending;
        self.flights[id].committed = true;
        self.stats.member_writes += pending as u64;
        for (unit, devices) in receivers {
            if devices.is_empty() {
                continue;
            }
            let content = self.flights[id].outgoing(code, unit);
            for device in devices {
                self.issue(id, unit, device, Io::Write(content.clone()), out);
            }
        }
    }

    /// A member answered for one unit.
    pub(super) fn unit_done(
        &mut self,
        id: FlightId,
        (unit, device): (u16, DeviceId),
        io: Io,
        failed: Option<String>,
        out: &mut Actions,
    ) {
        match io {
            Io::Read(buf) => self.unit_read(id, unit, device, buf, failed),
            Io::Write(_) => {
                let trouble = match failed {
                    Some(t) => self.write_failed(id, (unit, device), &t, out).err(),
                    None => {
                        self.made_good(id, (unit, device), out);
                        None
                    }
                };
                let flight = &mut self.flights[id];
                // Healing is a favour: a read that has its data does not fail with it.
                let trouble = trouble.filter(|_| flight.kind != Kind::Read);
                flight.trouble = flight.trouble.take().or(trouble.map(|t| (ErrorKind::Io, t)));
            }
            Io::Flush => panic!("a flight does not flush"),
        }
        let flight = &mut self.flights[id];
        flight.pending -= 1;
        if flight.pending > 0 {
            return;
        }
        if !flight.failed_reads {
            return self.advance(id, out);
        }
        match flight.locked {
            true => self.plan_flight(id, out),
            // What was read without a turn may be older than what is read in turn.
            false => self.take_turn(id, out),
        }
    }

    fn unit_read(
        &mut self,
        id: FlightId,
        unit: u16,
        device: DeviceId,
        buf: Buf,
        failed: Option<String>,
    ) {
        let flight = &mut self.flights[id];
        let copy = self.shape.code == Code::Copy;
        if failed.is_none() {
            flight.cells.old[unit as usize] = Some(buf);
            return;
        }
        // The buffer goes back to where the next plan looks for it.
        flight.cells.old[if copy { 0 } else { unit as usize }] = Some(buf);
        flight.failed_reads = true;
        flight.unreadable.push(device);
        self.stats.read_errors += 1;
        if let Some(member) = self.health.member_mut(device) {
            member.errors += 1;
        }
    }

    /// The plan is done or given up: give back the turn and report.
    fn finish(&mut self, id: FlightId, out: &mut Actions) {
        let flight = &self.flights[id];
        let wrote = flight.kind == Kind::Write && flight.trouble.is_none();
        if wrote && !self.publisher.is_durable(self.failure_version) {
            return self.wait_durable(self.failure_version, Waiter::Flight(id));
        }
        let mut flight = self.flights.remove(id);
        if wrote && !self.publisher.is_written(self.failure_version) {
            // The member that missed this write would be believed after the next start.
            flight.trouble = Some((ErrorKind::Io, UNTOLD.into()));
        }
        let next = match flight.locked {
            true => self.stripes.release(id, flight.band.stripe.no),
            false => Vec::new(),
        };
        if flight.committed && flight.kind == Kind::Write && flight.trouble.is_some() {
            self.tear(&flight.band);
        }
        if flight.marked.is_some() {
            self.unmark(&flight.band, flight.trouble.is_some(), out);
        }
        match flight.owner {
            Owner::Ask(ask) => self.flight_over(ask, flight.trouble, out),
            Owner::Job(at) => self.step_done(at, &flight.band, flight.trouble, out),
        }
        if let Some(lane) = flight.lane {
            self.leave_lane(lane, out);
        }
        for flight in next {
            self.granted(flight, out);
        }
    }
}
