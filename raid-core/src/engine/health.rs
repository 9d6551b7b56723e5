//! The devices as the engine knows them, and what may be done with each unit.
//!
//! A slot has a member and, while that is being replaced, a second device that is filled beside
//! it. Everything else waits without a slot: spares, and failed devices until they are removed.

use crate::layout::{Code, Layout, Stripe, Unit};
use crate::meta::record::MemberRecord;
use crate::plan::{Access, Accesses};
use crate::units::{Sectors, Slot, SlotSet};
use smallvec::SmallVec;

/// Names a device of a running array: its index among the devices of the driver. Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId(pub usize);

/// A few devices.
pub(super) type Devices = SmallVec<[DeviceId; 2]>;

/// Whether a device's content can be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Everywhere.
    InSync,
    /// Below this sector of its data area: it is being rebuilt.
    Recovering(Sectors),
    /// It waits to take a place.
    Spare,
    /// It is the write journal.
    Journal,
    /// It failed: neither read nor written any more.
    Failed,
}

impl State {
    /// How far the device is filled, while it is being filled.
    pub fn cursor(self) -> Option<Sectors> {
        match self {
            State::Recovering(cursor) => Some(cursor),
            State::InSync | State::Spare | State::Journal | State::Failed => None,
        }
    }
}

/// A device that belongs to the array.
#[derive(Clone, Debug)]
pub struct Member {
    /// Which device of the driver.
    pub device: DeviceId,
    /// How to name it to people.
    pub name: String,
    /// What its superblock says.
    pub record: MemberRecord,
    /// Whether it can be trusted.
    pub state: State,
    /// Read and write errors seen since assembly.
    pub errors: u32,
    /// Another device is to take its place while it still serves.
    pub replace: bool,
    /// While it is filled: it lacks only what the bitmap marks.
    pub by_bitmap: bool,
    /// Its bad-block log has to be written with its next superblock.
    pub bad_changed: bool,
    /// Its partial parity log may be of another time: it is emptied with its next superblock.
    pub log_stale: bool,
    /// The version that does that.
    pub log_empty: u64,
}

impl Member {
    /// A member that serves, without errors so far.
    pub fn new(device: DeviceId, name: String, record: MemberRecord, state: State) -> Member {
        Member {
            device,
            name,
            record,
            state,
            errors: 0,
            replace: false,
            by_bitmap: false,
            bad_changed: false,
            log_stale: false,
            log_empty: 0,
        }
    }

    /// True if `from..to`, counted from its data offset, holds what it should.
    pub fn holds(&self, from: Sectors, to: Sectors) -> bool {
        let trusted = match self.state {
            State::InSync => true,
            State::Recovering(cursor) => to <= cursor,
            State::Spare | State::Journal | State::Failed => false,
        };
        trusted && !self.record.bad_in(from, to)
    }

    /// True if it is read and written.
    pub fn is_live(&self) -> bool {
        matches!(self.state, State::InSync | State::Recovering(_))
    }
}

/// Where a device stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    Slot(Slot),
    Replacement(Slot),
    Other(usize),
}

/// All devices.
#[derive(Clone, Debug)]
pub(super) struct Health {
    /// The members by slot; a failed one stays until it is removed or its place is taken.
    pub slots: Vec<Option<Member>>,
    /// Devices that are filled to take over, by slot.
    pub replacements: Vec<Option<Member>>,
    /// Spares, and failed devices without a slot.
    pub others: Vec<Member>,
    /// Grows with every change of a state, so that others can notice.
    pub generation: u64,
}

impl Health {
    /// Every device, members first.
    pub fn all(&self) -> impl Iterator<Item = &Member> + '_ {
        self.slots.iter().flatten().chain(self.replacements.iter().flatten()).chain(&self.others)
    }

    /// Every device, members first.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut Member> + '_ {
        let seated = self.slots.iter_mut().flatten();
        seated.chain(self.replacements.iter_mut().flatten()).chain(&mut self.others)
    }

    /// The device called `device`.
    pub fn member(&self, device: DeviceId) -> Option<&Member> {
        self.all().find(|m| m.device == device)
    }

    /// The device called `device`.
    pub fn member_mut(&mut self, device: DeviceId) -> Option<&mut Member> {
        self.all_mut().find(|m| m.device == device)
    }

    /// Where `device` stands.
    pub fn place(&self, device: DeviceId) -> Option<Place> {
        let is = |m: &Option<Member>| m.as_ref().is_some_and(|m| m.device == device);
        let slot = |i: usize| Slot(i as u16);
        let seat = self.slots.iter().position(is).map(|i| Place::Slot(slot(i)));
        seat.or_else(|| self.replacements.iter().position(is).map(|i| Place::Replacement(slot(i))))
            .or_else(|| self.others.iter().position(|m| m.device == device).map(Place::Other))
    }

    /// Devices that get superblocks: all that have not failed.
    pub fn told(&self) -> Vec<DeviceId> {
        self.all().filter(|m| m.state != State::Failed).map(|m| m.device).collect()
    }

    /// Devices that hold data: all live ones.
    pub fn live_devices(&self) -> Vec<DeviceId> {
        self.all().filter(|m| m.is_live()).map(|m| m.device).collect()
    }

    /// The member in `slot`, if it is there and has not failed.
    pub fn live(&self, slot: Slot) -> Option<&Member> {
        self.slots[slot.index()].as_ref().filter(|m| m.is_live())
    }

    /// The live devices of `slot`: the member, and the one that is to replace it.
    pub fn live_in(&self, slot: Slot) -> impl Iterator<Item = &Member> + '_ {
        let both = [&self.slots[slot.index()], &self.replacements[slot.index()]];
        both.into_iter().flatten().filter(|m| m.is_live())
    }

    fn slots_where(&self, test: impl Fn(Slot) -> bool) -> SlotSet {
        (0..self.slots.len() as u16).map(Slot).filter(|&s| test(s)).collect()
    }

    /// Slots without a live member.
    pub fn missing(&self) -> SlotSet {
        self.slots_where(|s| self.live(s).is_none())
    }

    /// Slots whose member is gone or not in sync everywhere: md's `degraded` counts these.
    pub fn degraded(&self) -> SlotSet {
        self.slots_where(|s| self.live(s).is_none_or(|m| m.state != State::InSync))
    }

    /// Slots with a device that is being filled.
    pub fn recovering(&self) -> SlotSet {
        let filled = |m: &Member| matches!(m.state, State::Recovering(_));
        self.slots_where(|s| self.live_in(s).any(filled))
    }

    /// The device to read `unit` from between the heights `low` and `high`, but none of `not`.
    pub fn source(
        &self,
        unit: &Unit,
        low: Sectors,
        high: Sectors,
        not: &[DeviceId],
    ) -> Option<&Member> {
        let (from, to) = (unit.at + low, unit.at + high);
        self.live_in(unit.slot).find(|m| m.holds(from, to) && !not.contains(&m.device))
    }

    /// What may be done with the units of `stripe` between the heights `low` and `high`.
    /// `unreadable`: devices that just failed to read here.
    pub fn access(
        &self,
        stripe: &Stripe,
        low: Sectors,
        high: Sectors,
        unreadable: &[DeviceId],
    ) -> Accesses {
        let unit_access = |unit: &Unit| {
            let source = self.source(unit, low, high, unreadable);
            Access {
                read: source.is_some(),
                write: self.live_in(unit.slot).next().is_some(),
                reluctant: source.is_some_and(|m| m.record.write_mostly),
            }
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
