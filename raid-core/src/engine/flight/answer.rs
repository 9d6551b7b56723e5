//! Bytes that were read: into the reply, or into what a write has to keep.

use super::{Kind, Owner};
use crate::buf::Buf;
use crate::engine::{Actions, Engine, FlightId};
use crate::layout::Code;
use crate::plan::{Phase, Units};
use smallvec::SmallVec;

impl Engine {
    /// The bytes of a write that are to keep what the array holds are put into its payload.
    pub(super) fn fill(&mut self, id: FlightId, out: &mut Actions) {
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
    pub(super) fn answer(&mut self, id: FlightId) {
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
}
