//! A plan in progress on one band: the phase it is in, what it waits for, its bytes.

use super::ask::Keep;
use super::cells::{Cells, Task};
use super::{Action, Actions, AskId, Engine, FlightId, Io, OpId, Target, UNTOLD, Waiter, Work};
use crate::buf::{Buf, Shared};
use crate::error::ErrorKind;
use crate::layout::{Code, Role};
use crate::plan::{self, Band, Phase, Plan, Units};
use crate::units::SlotSet;
use smallvec::SmallVec;

/// Whom a flight reports to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    Ask(AskId),
    Resync,
}

/// What a flight is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    /// A write whose payload must first be completed with what the array holds (see [`Keep`]).
    Fill,
    Write,
    Repair,
}

#[derive(Debug)]
pub(super) struct Flight {
    owner: Owner,
    kind: Kind,
    pub band: Band,
    plan: Plan,
    phase: usize,
    pending: usize,
    cells: Cells,
    /// Which piece of the ask a wanted unit fills.
    places: SmallVec<[(u16, usize); 8]>,
    keeps: SmallVec<[(u16, Keep); 2]>,
    /// Slots that failed to read in this band.
    unreadable: SlotSet,
    failed_reads: bool,
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
            unreadable: SlotSet::new(),
            failed_reads: false,
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
        let consistent = self.resync.as_ref().is_none_or(|r| r.is_behind(&flight.band))
            && (self.unsynced.is_none() || self.resync.is_some() || self.trust_unsynced);
        let flight = &mut self.flights[id];
        let planned = match flight.kind {
            Kind::Read => plan::read(&flight.band, code, &access, heal),
            Kind::Fill => plan::read(&flight.band, code, &access, false),
            Kind::Write => plan::write(&flight.band, code, &access, consistent),
            Kind::Repair => plan::repair(&flight.band, code, &access),
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
        let missing: SlotSet =
            self.health.missing().iter().chain(flight.unreadable.iter()).collect();
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
                let is_parity = |u: &u16| matches!(roles[*u as usize].role, Role::P | Role::Q);
                units.iter().copied().filter(is_parity).collect()
            };
            match phase {
                Phase::Read(units) => return self.issue_reads(id, &units, out),
                Phase::Solve(units) => return self.issue_work(id, Task::Solve(units), out),
                Phase::Encode => {
                    let task = Task::Encode(parity(flight));
                    return self.issue_work(id, task, out);
                }
                Phase::Update => {
                    let data = (flight.band.first..=flight.band.last).collect();
                    let task = Task::Update { parity: parity(flight), data };
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
            let flight = &mut self.flights[id];
            let place = if self.shape.code == Code::Copy { 0 } else { unit as usize };
            let buf = flight.cells.old[place].take().unwrap_or_else(|| self.pool.take(len));
            self.issue(id, unit, Io::Read(buf), out);
        }
        self.stats.member_reads += units.len() as u64;
    }

    fn issue(&mut self, id: FlightId, unit: u16, io: Io, out: &mut Actions) {
        let band = &self.flights[id].band;
        let place = band.stripe.units[unit as usize];
        let member = self.health.live(place.slot).expect("only live members get work");
        let at = member.record.data_at + place.at + band.low;
        let op: OpId = self.ops.insert(Target::Unit { flight: id, unit });
        out.push(Action::Io { op, slot: place.slot, at, io });
    }

    fn issue_work(&mut self, id: FlightId, task: Task, out: &mut Actions) {
        let flight = &mut self.flights[id];
        let cells = std::mem::take(&mut flight.cells);
        let len = flight.band.height().len();
        let work = Work::new(task, &flight.band.stripe, cells, len);
        let op = self.ops.insert(Target::Work(id));
        out.push(Action::Compute(op, work));
    }

    pub(super) fn work_done(&mut self, id: FlightId, work: Box<Work>, out: &mut Actions) {
        self.flights[id].cells = work.cells;
        self.advance(id, out);
    }

    /// The bytes of a write that are to keep what the array holds are put into its payload.
    fn fill(&mut self, id: FlightId, out: &mut Actions) {
        let copy = self.shape.code == Code::Copy;
        let flight = &mut self.flights[id];
        for (unit, keep) in std::mem::take(&mut flight.keeps) {
            let unit = unit as usize;
            let old = flight.was_read(copy, unit).expect("the unit to complete was read");
            let new = flight.cells.new[unit].as_deref().expect("the payload was given");
            let mut whole = Buf::copy_of(new);
            whole[..keep.head].copy_from_slice(&old[..keep.head]);
            let tail = whole.len() - keep.tail;
            whole[tail..].copy_from_slice(&old[tail..]);
            flight.cells.new[unit] = Some(whole.freeze());
        }
        flight.kind = Kind::Write;
        self.plan_flight(id, out);
    }

    /// Gives the wanted units to the ask. What is to be healed afterwards is kept as a copy.
    fn answer(&mut self, id: FlightId) {
        let flight = &mut self.flights[id];
        let Owner::Ask(ask) = flight.owner else { panic!("only asks are answered") };
        let copy = self.shape.code == Code::Copy;
        let healed = match flight.plan.phases.last() {
            Some(Phase::Commit(units)) => units.clone(),
            _ => Units::new(),
        };
        for unit in healed.into_iter().map(usize::from) {
            let content = flight.was_read(copy, unit).expect("what is healed was read or solved");
            let content = Buf::copy_of(content).freeze();
            flight.cells.new[if copy { 0 } else { unit }] = Some(content);
            self.stats.healed += 1;
        }
        let mut pieces: SmallVec<[(usize, Buf); 8]> = SmallVec::new();
        for (unit, place) in std::mem::take(&mut flight.places) {
            let cell = match copy {
                true => flight.cells.old.iter_mut().find_map(Option::take),
                false => flight.cells.old[unit as usize].take(),
            };
            pieces.push((place, cell.expect("a wanted unit is filled")));
        }
        for (place, piece) in pieces {
            self.piece_read(ask, place, piece);
        }
    }

    fn commit(&mut self, id: FlightId, units: &[u16], out: &mut Actions) {
        let code = self.shape.code;
        let flight = &mut self.flights[id];
        if flight.kind == Kind::Write {
            if !self.publisher.is_durable(self.dirty_version) {
                flight.phase -= 1;
                return self.wait_durable(self.dirty_version, Waiter::Flight(id));
            }
            if self.broken {
                return self.refuse(id, "more members failed than the level survives", out);
            }
        }
        let live: Units = units
            .iter()
            .copied()
            .filter(|&u| self.health.live(flight.band.stripe.units[u as usize].slot).is_some())
            .collect();
        if live.is_empty() {
            // Every target failed since the plan was made. New content must be somewhere; what was
            // to be healed or repaired is still in the other units.
            let nowhere = matches!(code, Code::Copy | Code::None) && flight.kind == Kind::Write;
            return match nowhere {
                true => self.refuse(id, "no member is left to write to", out),
                false => self.advance(id, out),
            };
        }
        flight.pending = live.len();
        self.stats.member_writes += live.len() as u64;
        for unit in live {
            let io = Io::Write(self.flights[id].outgoing(code, unit));
            self.issue(id, unit, io, out);
        }
    }

    /// A member answered for one unit.
    pub(super) fn unit_done(
        &mut self,
        id: FlightId,
        unit: u16,
        io: Io,
        failed: Option<String>,
        out: &mut Actions,
    ) {
        let slot = self.flights[id].band.stripe.units[unit as usize].slot;
        match io {
            Io::Read(buf) => self.unit_read(id, unit, buf, failed),
            Io::Write(_) => {
                let trouble = failed.and_then(|t| self.member_failed(slot, &t, out).err());
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

    fn unit_read(&mut self, id: FlightId, unit: u16, buf: Buf, failed: Option<String>) {
        let flight = &mut self.flights[id];
        let slot = flight.band.stripe.units[unit as usize].slot;
        let copy = self.shape.code == Code::Copy;
        if failed.is_none() {
            flight.cells.old[unit as usize] = Some(buf);
            return;
        }
        // The buffer goes back to where the next plan looks for it.
        flight.cells.old[if copy { 0 } else { unit as usize }] = Some(buf);
        flight.failed_reads = true;
        flight.unreadable.insert(slot);
        self.stats.read_errors += 1;
        if let Some(member) = self.health.slots[slot.index()].as_mut() {
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
        match flight.owner {
            Owner::Ask(ask) => self.flight_over(ask, flight.trouble, out),
            Owner::Resync => self.repaired(&flight.band, flight.trouble, out),
        }
        for flight in next {
            self.granted(flight, out);
        }
    }
}
