//! The members as the engine knows them, and what may be done with each unit.

use crate::layout::{Code, Layout, Stripe};
use crate::meta::record::MemberRecord;
use crate::plan::{Access, Accesses};
use crate::units::{Sectors, Slot, SlotSet};

/// Whether a member's content can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Everywhere.
    InSync,
    /// Below this sector of its data area: it is being rebuilt.
    Recovering(Sectors),
    /// It failed: neither read nor written any more.
    Failed,
}

/// A member in its slot.
#[derive(Clone, Debug)]
pub struct Member {
    /// How to name it to people.
    pub name: String,
    /// What its superblock says.
    pub record: MemberRecord,
    /// Whether it can be trusted.
    pub state: State,
    /// Read and write errors seen since assembly.
    pub errors: u32,
    /// First sector of its write-intent bitmap, rewritten with every superblock; `None`: none.
    pub bitmap: Option<Vec<u8>>,
}

/// All slots.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub slots: Vec<Option<Member>>,
    /// Grows with every change of a state, so that others can notice.
    pub generation: u64,
}

impl Health {
    /// The member in `slot`, if it is there and has not failed.
    pub fn live(&self, slot: Slot) -> Option<&Member> {
        self.slots[slot.index()].as_ref().filter(|m| m.state != State::Failed)
    }

    /// Slots without a live member.
    pub fn missing(&self) -> SlotSet {
        (0..self.slots.len() as u16).map(Slot).filter(|&s| self.live(s).is_none()).collect()
    }

    /// Slots whose member is gone or not in sync everywhere: md's `degraded` counts these.
    pub fn degraded(&self) -> SlotSet {
        let in_sync = |slot| self.live(slot).is_some_and(|m| m.state == State::InSync);
        (0..self.slots.len() as u16).map(Slot).filter(|&s| !in_sync(s)).collect()
    }

    /// Live slots.
    pub fn live_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.slots.len() as u16).map(Slot).filter(|&s| self.live(s).is_some())
    }

    /// What may be done with the units of `stripe` between the heights `low` and `high`.
    /// `unreadable`: slots that just failed to read here.
    pub fn access(
        &self,
        stripe: &Stripe,
        low: Sectors,
        high: Sectors,
        unreadable: &SlotSet,
    ) -> Accesses {
        let unit_access = |unit: &crate::layout::Unit| {
            let Some(member) = self.live(unit.slot) else { return Access::NONE };
            let (from, to) = (unit.at + low, unit.at + high);
            let trusted = match member.state {
                State::InSync => true,
                State::Recovering(cursor) => to <= cursor,
                State::Failed => false,
            };
            let bad = member.record.bad_in(from, to);
            let read = trusted && !bad && !unreadable.contains(unit.slot);
            Access { read, write: true }
        };
        stripe.units.iter().map(unit_access).collect()
    }

    /// True if the array can go on without `slot`.
    pub fn can_lose(&self, layout: &dyn Layout, slot: Slot) -> bool {
        let mut missing = self.degraded();
        missing.insert(slot);
        layout.shape().code != Code::None && layout.survives(&missing)
    }
}

impl MemberRecord {
    /// True if `from..to`, counted from the data offset, touches a known bad block.
    pub fn bad_in(&self, from: Sectors, to: Sectors) -> bool {
        let (from, to) = (self.data_at + from, self.data_at + to);
        self.bad_blocks.iter().any(|&(at, len)| at < to && from < at + len)
    }
}
