//! Who belongs to the array: devices fail, go, come, take places and are replaced.

use super::job::JobKind;
use super::{
    Action, Actions, AskId, Bitmap, BitmapPlaces, DeviceId, Engine, Member, Outcome, Place, State,
    Waiter,
};
use crate::error::{Error, ErrorKind};
use crate::layout::Code;
use crate::meta::record::DeviceRole;
use crate::units::{Sectors, Slot};

/// Numbers looked at for one nobody had: the role map of a small array has 128.
const NUMBERS_TRIED: usize = 64;

/// A change that somebody asks for.
#[derive(Debug)]
pub enum Manage {
    /// This device is to be used no more (`mdadm --fail`).
    Fail(DeviceId),
    /// A failed device or a spare leaves the array (`mdadm --remove`).
    Remove(DeviceId),
    /// A new device joins: as a spare, or, where it held this slot and missed only what the
    /// bitmap knows, back in its place (`mdadm --add`, `--re-add`).
    Add {
        /// The device, with the record to write; its number is chosen here.
        member: Box<Member>,
        /// The slot it had, if it is to go back there, and the events it saw.
        back: Option<(Slot, u64)>,
    },
    /// Another device is to take over from this one while it still serves (`mdadm --replace`):
    /// this spare, or any (`--with`).
    Replace(DeviceId, Option<DeviceId>),
    /// Whether this device is read only when no other can be.
    WriteMostly(DeviceId, bool),
    /// The array gets this bitmap, at these sectors of its devices, or none.
    Bitmap(Option<(Box<Bitmap>, BitmapPlaces)>),
    /// What the array is to do by itself (`sync_action`).
    Sync(SyncAction),
    /// How fast jobs may go.
    Limits(super::Limits),
}

/// What can be written to md's `sync_action`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncAction {
    /// End a check or repair; other jobs begin again at once.
    Idle,
    /// End any job, and begin none.
    Frozen,
    /// Begin what is due: recovery or resync.
    Resync,
    /// Compare.
    Check,
    /// Compare and make agree.
    Repair,
}

impl Engine {
    pub(super) fn manage(&mut self, id: AskId, what: Manage, out: &mut Actions) {
        let done = match self.try_manage(what, out) {
            Ok(()) => self.publisher.current_version(),
            Err(error) => return out.push(Action::Reply(id, Outcome::Failed(error))),
        };
        match self.publisher.is_durable(done) {
            true => self.told(id, out),
            false => self.wait_durable(done, Waiter::Reply(id)),
        }
    }

    /// Answers somebody who waited for superblocks.
    pub(super) fn told(&mut self, id: AskId, out: &mut Actions) {
        out.push(Action::Reply(id, Outcome::Done));
    }

    fn try_manage(&mut self, what: Manage, out: &mut Actions) -> Result<(), Error> {
        if self.shape.code == Code::None {
            let text = "this level has no redundancy: no member can fail, come or go";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the array is read-only"));
        }
        if self.broken {
            let text = "more members failed than the level survives; stop the array";
            return Err(Error::new(ErrorKind::Dead, text));
        }
        match what {
            Manage::Fail(device) => self.fail(device, out),
            Manage::Remove(device) => self.remove(device, out),
            Manage::Add { member, back } => self.add(*member, back, out),
            Manage::Replace(device, with) => self.replace(device, with, out),
            Manage::WriteMostly(device, value) => {
                let member = self.known(device)?;
                member.record.write_mostly = value;
                self.health.generation += 1;
                self.changed(out);
                Ok(())
            }
            Manage::Bitmap(bitmap) => {
                self.set_bitmap(bitmap, out);
                Ok(())
            }
            Manage::Sync(action) => self.sync_action(action, out),
            Manage::Limits(limits) => {
                self.jobs.limits = limits;
                self.feed_job(out);
                Ok(())
            }
        }
    }

    fn known(&mut self, device: DeviceId) -> Result<&mut Member, Error> {
        let unknown = || Error::invalid(format!("the array has no device {}", device.0));
        self.health.member_mut(device).ok_or_else(unknown)
    }

    fn fail(&mut self, device: DeviceId, out: &mut Actions) -> Result<(), Error> {
        let member = self.known(device)?;
        if member.state == State::Failed {
            return Ok(());
        }
        let name = member.name.clone();
        if let Some(Place::Slot(slot)) = self.health.place(device) {
            let relief = self.health.replacements[slot.index()].as_ref();
            let relieved = relief.is_some_and(|m| m.state == State::InSync);
            if !relieved && !self.health.can_lose(&*self.layout, slot) {
                let text = format!("{name} cannot be spared: the array would lose data");
                return Err(Error::new(ErrorKind::Busy, text));
            }
            if !relieved && let Some(other) = self.leans_on(device) {
                let text = format!(
                    "{name} cannot be spared: {} has bad blocks that only it makes up for; say \
                     `repair` first",
                    other.name
                );
                return Err(Error::new(ErrorKind::Busy, text));
            }
        }
        let counted = (self.stats.write_errors, self.known(device)?.errors);
        let failed = self.device_failed(device, "failed on request", out);
        self.stats.write_errors = counted.0;
        self.known(device)?.errors = counted.1;
        failed.map_err(|text| Error::new(ErrorKind::Busy, text))
    }

    fn remove(&mut self, device: DeviceId, out: &mut Actions) -> Result<(), Error> {
        let member = self.known(device)?;
        let (name, state, number) = (member.name.clone(), member.state, member.record.number);
        if !matches!(state, State::Failed | State::Spare) {
            let text = format!("{name} is in use; say `fail` first");
            return Err(Error::new(ErrorKind::Busy, text));
        }
        match self.health.place(device) {
            Some(Place::Slot(slot)) => self.health.slots[slot.index()] = None,
            Some(Place::Replacement(slot)) => self.health.replacements[slot.index()] = None,
            Some(Place::Other(index)) => drop(self.health.others.remove(index)),
            None => {}
        }
        self.array.set_role(number, DeviceRole::Spare);
        self.retired.push(number);
        self.health.generation += 1;
        self.changed(out);
        Ok(())
    }

    fn add(
        &mut self,
        mut member: Member,
        back: Option<(Slot, u64)>,
        out: &mut Actions,
    ) -> Result<(), Error> {
        if self.health.member(member.device).is_some() {
            return Err(Error::new(ErrorKind::Busy, format!("{} is a member", member.name)));
        }
        member.log_stale = member.record.ppl.is_some();
        let back = back.filter(|&(slot, _)| self.health.live(slot).is_none());
        let cleared = self.bitmap.as_ref().map(|bitmap| bitmap.head().events_cleared);
        let back = back.filter(|&(_, events)| match cleared {
            Some(cleared) => events >= cleared,
            None => events >= self.array.events,
        });
        member.log_empty = self.publisher.next_version();
        match back {
            Some((slot, _)) => {
                // A new number: under the old one, members that left meanwhile call it failed.
                self.retired.push(member.record.number);
                member.record.number = self.free_number();
                member.by_bitmap = true;
                self.seat(member, slot);
            }
            None => {
                member.record.number = self.free_number();
                member.record.recovery = None;
                member.state = State::Spare;
                self.array.set_role(member.record.number, DeviceRole::Spare);
                self.health.others.push(member);
            }
        }
        self.bitmap.iter_mut().for_each(Bitmap::rewrite);
        self.health.generation += 1;
        self.changed(out);
        self.devices_changed(out);
        Ok(())
    }

    /// The lowest number from the slots on that nobody has, as mdadm gives it, and of these one
    /// that nobody had: a device that left may come back and say that it is its own.
    fn free_number(&self) -> u32 {
        let first = u32::from(self.shape.slots);
        let taken = |n: &u32| self.health.all().any(|m| m.record.number == *n);
        let mut free = (first..).filter(|n| !taken(n)).take(NUMBERS_TRIED);
        let lowest = free.clone().next().expect("there are more numbers than devices");
        let fresh = |n: &u32| !self.retired.contains(n) && self.array.role(*n) == DeviceRole::Spare;
        free.find(fresh).unwrap_or(lowest)
    }

    fn replace(
        &mut self,
        device: DeviceId,
        with: Option<DeviceId>,
        out: &mut Actions,
    ) -> Result<(), Error> {
        let busy = |text: String| Err(Error::new(ErrorKind::Busy, text));
        let member = self.known(device)?;
        if member.state != State::InSync {
            return busy(format!("{} is not in sync, so it cannot be replaced", member.name));
        }
        let name = member.name.clone();
        let Some(Place::Slot(slot)) = self.health.place(device) else {
            return busy(format!("{name} is in no slot, so it cannot be replaced"));
        };
        if let Some(with) = with {
            let new = self.known(with)?;
            if new.state != State::Spare {
                return busy(format!("{} is no spare, so it cannot replace another", new.name));
            }
            if let Some(other) = &self.health.replacements[slot.index()] {
                return busy(format!("{name} is being replaced by {} already", other.name));
            }
            // Spares are taken from the front.
            let index = self.health.others.iter().position(|m| m.device == with);
            let spare = index.map(|index| self.health.others.remove(index));
            self.health.others.splice(0..0, spare);
            if self.seat_replacement(slot) {
                self.took_places(out);
            }
        }
        if let Some(member) = self.health.member_mut(device) {
            member.replace = true;
        }
        self.devices_changed(out);
        Ok(())
    }

    /// The first spare begins to be filled beside the member of `slot`; false without a spare.
    fn seat_replacement(&mut self, slot: Slot) -> bool {
        let Some(mut spare) = self.take_spare() else { return false };
        spare.state = State::Recovering(Sectors::ZERO);
        spare.record.recovery = Some(Sectors::ZERO);
        spare.record.replacement = true;
        self.array.set_role(spare.record.number, DeviceRole::Active(slot));
        self.health.replacements[slot.index()] = Some(spare);
        true
    }

    fn take_spare(&mut self) -> Option<Member> {
        let spare = self.health.others.iter().position(|m| m.state == State::Spare);
        spare.map(|index| self.health.others.remove(index))
    }

    /// Spares took places: all devices are told, and what runs looks anew.
    fn took_places(&mut self, out: &mut Actions) {
        self.health.generation += 1;
        self.changed(out);
        self.restart_recovery(out);
    }

    fn sync_action(&mut self, action: SyncAction, out: &mut Actions) -> Result<(), Error> {
        let current = self.jobs.current.as_ref().map(|job| job.kind);
        self.jobs.frozen = action == SyncAction::Frozen;
        match action {
            SyncAction::Idle | SyncAction::Frozen => {
                self.jobs.requested = None;
                self.halt_job();
                self.end_job(out);
            }
            SyncAction::Resync => self.jobs.resume(),
            SyncAction::Check | SyncAction::Repair => {
                if let Some(kind) = current {
                    let text = format!("{} is running; {}", kind.word(), kind.how_it_ends());
                    return Err(Error::new(ErrorKind::Busy, text));
                }
                let repair = action == SyncAction::Repair;
                let kind = if repair { JobKind::Repair } else { JobKind::Check };
                self.jobs.requested = Some(kind);
            }
        }
        // Spares that came while it was frozen take their places.
        self.devices_changed(out);
        Ok(())
    }

    /// A failed device gives its place to the one that was to replace it, and waits elsewhere to
    /// be removed.
    pub(super) fn make_room(&mut self, device: DeviceId) {
        match self.health.place(device) {
            Some(Place::Replacement(slot)) => {
                let failed = self.health.replacements[slot.index()].take();
                self.health.others.extend(failed);
            }
            Some(Place::Slot(slot)) => {
                if let Some(relief) = self.health.replacements[slot.index()].take() {
                    self.take_over(slot, relief);
                }
            }
            Some(Place::Other(_)) | None => {}
        }
    }

    fn take_over(&mut self, slot: Slot, mut relief: Member) {
        relief.record.replacement = false;
        let before = self.health.slots[slot.index()].replace(relief);
        self.health.others.extend(before);
        self.health.generation += 1;
    }

    /// Puts `member` into `slot`, to be filled from the beginning.
    fn seat(&mut self, mut member: Member, slot: Slot) {
        member.state = State::Recovering(Sectors::ZERO);
        member.record.recovery = Some(Sectors::ZERO);
        self.array.set_role(member.record.number, DeviceRole::Active(slot));
        let before = self.health.slots[slot.index()].replace(member);
        self.health.others.extend(before);
    }

    /// Spares take the places that are free or to be replaced; the job that is due begins.
    pub(super) fn devices_changed(&mut self, out: &mut Actions) {
        if self.read_only || self.broken || self.jobs.frozen || self.stopping.is_some() {
            return;
        }
        let mut any = false;
        for slot in (0..self.shape.slots).map(Slot) {
            let vacant = self.health.live(slot).is_none();
            let wanted = self.health.live(slot).is_some_and(|m| m.replace)
                && self.health.replacements[slot.index()].is_none();
            let seated = match (vacant, wanted) {
                (true, _) => self.take_spare().map(|spare| self.seat(spare, slot)).is_some(),
                (false, true) => self.seat_replacement(slot),
                (false, false) => continue,
            };
            any |= seated;
            if !seated {
                break;
            }
        }
        if any {
            self.took_places(out);
        }
        self.next_job(out);
    }

    /// A recovery that runs begins again at the lowest cursor of all that are to be filled.
    fn restart_recovery(&mut self, out: &mut Actions) {
        let kind = self.jobs.current.as_ref().map(|job| job.kind);
        if kind.is_some() {
            self.halt_job();
            self.end_job(out);
        }
    }

    /// These devices were being filled, and are complete.
    pub(super) fn filled(&mut self, devices: &[DeviceId], out: &mut Actions) {
        for member in self.health.all_mut().filter(|m| devices.contains(&m.device)) {
            if matches!(member.state, State::Recovering(_)) {
                member.state = State::InSync;
                member.by_bitmap = false;
                self.stats.filled += 1;
            }
        }
        self.health.generation += 1;
        let version = self.data_changed(out);
        // The members must know that a replacement is complete before they hear that the one it
        // replaces is out: a power cut between the two would leave neither.
        match self.publisher.is_durable(version) {
            true => self.relieve(out),
            false => self.wait_durable(version, Waiter::Relieve),
        }
    }

    /// Replacements that are complete, and known to be, take over.
    pub(super) fn relieve(&mut self, out: &mut Actions) {
        let mut relieved = false;
        for slot in (0..self.shape.slots).map(Slot) {
            let told = |m: &mut Member| m.state == State::InSync && m.record.recovery.is_none();
            let complete = self.health.replacements[slot.index()].take_if(told);
            let Some(relief) = complete else { continue };
            if let Some(old) = self.health.slots[slot.index()].as_mut() {
                old.state = State::Failed;
                let number = old.record.number;
                self.array.set_role(number, DeviceRole::Faulty);
            }
            self.take_over(slot, relief);
            relieved = true;
        }
        if relieved {
            self.changed(out);
        }
    }
}
