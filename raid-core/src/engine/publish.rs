//! Superblocks: marking the array dirty, clean, or without a member, durably and in order.
//!
//! Every change of what the superblocks say gets a *version*. One update runs at a time: it
//! writes the newest version to every live member in three stages (flush what was written before,
//! write, flush), and changes that come meanwhile are covered by the next one. Whoever needs a
//! version to be durable waits for it by number.
//!
//! Levels without redundancy have nothing to mark and never write a superblock, as in md.

use super::{Action, Actions, Engine, Io, Target, Waiter};
use crate::buf::Buf;
use crate::layout::Code;
use crate::meta::md_bitmap;
use crate::meta::record::DeviceRole;
use crate::time::Instant;
use crate::units::{Sectors, Slot};

/// The update in progress and what is still to come.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    /// Grows with every change.
    version: u64,
    /// The newest version that nobody needs to wait for.
    durable: u64,
    /// The newest version that is on all live members: less, once the array is broken.
    written: u64,
    running: Option<Update>,
    waiting: Vec<(u64, Waiter)>,
    /// Updates finished so far.
    pub updates: u64,
}

#[derive(Debug)]
struct Update {
    version: u64,
    stage: Stage,
    pending: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Before,
    Write,
    After,
}

impl Publisher {
    /// True if `version` is on the members, or never will be.
    pub fn is_durable(&self, version: u64) -> bool {
        self.durable >= version
    }

    /// True if `version` is on the members.
    pub fn is_written(&self, version: u64) -> bool {
        self.written >= version
    }

    /// True if nothing is running or waiting to be written.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.durable == self.version
    }
}

impl Engine {
    /// Notes that the superblocks must change, starts the update if none runs, and returns the
    /// version to wait for.
    pub(super) fn changed(&mut self, out: &mut Actions) -> u64 {
        self.publisher.version += 1;
        if self.shape.code == Code::None || self.broken {
            self.publisher.durable = self.publisher.version;
        } else if self.publisher.running.is_none() {
            self.start_update(out);
        }
        self.publisher.version
    }

    /// Calls `waiter` back when `version` is durable. It is not yet.
    pub(super) fn wait_durable(&mut self, version: u64, waiter: Waiter) {
        assert!(!self.publisher.is_durable(version), "version {version} is still to come");
        self.publisher.waiting.push((version, waiter));
    }

    fn start_update(&mut self, out: &mut Actions) {
        let version = self.publisher.version;
        self.publisher.running = Some(Update { version, stage: Stage::Before, pending: 0 });
        // Only a clean mark speaks about data that was written before.
        let stage = if self.dirty { Stage::Write } else { Stage::Before };
        self.enter_stage(stage, out);
    }

    fn enter_stage(&mut self, stage: Stage, out: &mut Actions) {
        let slots: Vec<Slot> = self.health.live_slots().collect();
        let update = self.publisher.running.as_mut().expect("an update runs");
        update.stage = stage;
        update.pending = 0;
        if stage == Stage::Write {
            self.refresh_record();
        }
        for slot in slots {
            let (at, io) = match stage {
                Stage::Write => self.superblock(slot),
                Stage::Before | Stage::After => (Sectors::ZERO, Io::Flush),
            };
            let bitmap = if stage == Stage::Write { self.bitmap(slot) } else { None };
            for (at, io) in bitmap.into_iter().chain([(at, io)]) {
                let op = self.ops.insert(Target::Publish(slot));
                out.push(Action::Io { op, slot, at, io });
                self.publisher.running.as_mut().expect("an update runs").pending += 1;
            }
        }
    }

    /// Brings the shared record up to what is true now.
    fn refresh_record(&mut self) {
        self.array.events += 1;
        self.array.utime = self.now.seconds();
        self.array.resync = if self.dirty { Some(Sectors::ZERO) } else { self.unsynced };
        let version = self.publisher.version;
        self.publisher.running.as_mut().expect("an update runs").version = version;
    }

    fn superblock(&mut self, slot: Slot) -> (Sectors, Io) {
        let member = self.health.slots[slot.index()].as_mut().expect("a live slot has a member");
        match (self.emit)(&self.array, &member.record) {
            Ok((at, bytes)) => {
                let raw = &mut member.record.raw;
                raw.resize(raw.len().max(bytes.len()), 0);
                raw[..bytes.len()].copy_from_slice(&bytes);
                (at, Io::Write(Buf::copy_of(&bytes).freeze()))
            }
            // A record that was parsed and cannot be written down: stop writing data as well.
            Err(_) => {
                self.broken = true;
                (Sectors::ZERO, Io::Flush)
            }
        }
    }

    /// The bitmap's counter follows the superblock's, so that the bits count as up to date.
    fn bitmap(&mut self, slot: Slot) -> Option<(Sectors, Io)> {
        let member = self.health.slots[slot.index()].as_mut()?;
        let head = member.bitmap.as_mut()?;
        md_bitmap::patch_events(head, self.array.events);
        Some((member.record.bitmap_at?, Io::Write(Buf::copy_of(head).freeze())))
    }

    /// One operation of the running update is answered.
    pub(super) fn published(&mut self, slot: Slot, failed: Option<String>, out: &mut Actions) {
        if let Some(trouble) = failed
            && self.member_failed(slot, &trouble, out).is_err()
        {
            // Neither can the member be spared nor does it take superblocks: no more writes.
            self.broken = true;
        }
        let Some(update) = self.publisher.running.as_mut() else { return };
        update.pending -= 1;
        if update.pending > 0 {
            return;
        }
        match update.stage {
            Stage::Before => self.enter_stage(Stage::Write, out),
            Stage::Write => self.enter_stage(Stage::After, out),
            Stage::After => self.update_done(out),
        }
    }

    fn update_done(&mut self, out: &mut Actions) {
        let update = self.publisher.running.take().expect("an update runs");
        self.publisher.durable = update.version;
        self.publisher.updates += 1;
        match self.broken {
            true => self.publisher.durable = self.publisher.version,
            false => self.publisher.written = update.version,
        }
        if self.publisher.durable < self.publisher.version {
            self.start_update(out);
        }
        self.wake_waiters(out);
    }

    /// Calls everybody back whose version has become durable.
    pub(super) fn wake_waiters(&mut self, out: &mut Actions) {
        let durable = self.publisher.durable;
        let waiting = std::mem::take(&mut self.publisher.waiting);
        let (ready, waiting): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|w| w.0 <= durable);
        self.publisher.waiting = waiting;
        for (_, waiter) in ready {
            self.wake(waiter, out);
        }
    }

    /// Nothing more can be published: the array has lost more than it survives.
    pub(super) fn give_up_publishing(&mut self, out: &mut Actions) {
        if self.publisher.running.is_none() {
            self.publisher.durable = self.publisher.version;
            self.wake_waiters(out);
        }
    }

    /// Marks the array dirty because a write is about to begin.
    pub(super) fn mark_dirty(&mut self, out: &mut Actions) {
        if !self.dirty && self.shape.code != Code::None {
            self.dirty = true;
            self.dirty_version = self.changed(out);
        }
    }

    /// Marks the array clean if it has been idle long enough; else asks to be woken.
    pub(super) fn mark_clean_when_idle(&mut self, out: &mut Actions) {
        if !self.dirty || self.open_writes > 0 || self.broken || self.read_only {
            return;
        }
        let due: Instant = self.idle_since.after(super::SAFE_MODE_DELAY);
        if self.now >= due || self.stopping.is_some() {
            self.dirty = false;
            self.changed(out);
        } else {
            out.push(Action::Wake(due));
        }
    }

    /// Writes the failure of `slot` into the role map; the version that says so is returned.
    pub(super) fn publish_failure(&mut self, slot: Slot, out: &mut Actions) -> u64 {
        let member = self.health.slots[slot.index()].as_ref().expect("it was there to fail");
        let number = member.record.number as usize;
        if let Some(role) = self.array.roles.get_mut(number) {
            *role = DeviceRole::Faulty;
        }
        self.changed(out)
    }
}
