//! Superblocks: marking the array dirty, clean, or without a member, durably and in order.
//!
//! Every change of what the superblocks or the bitmap say gets a *version*. One update runs at a
//! time: it writes the newest version to every member in three stages (flush what was written
//! before, write, flush), and changes that come meanwhile are covered by the next one. Whoever
//! needs a version to be durable waits for it by number.
//!
//! What speaks about data (clean marks, how far a rebuild or resync came, cleared bits) is written
//! only by an update that flushed the data first.
//!
//! Levels without redundancy have nothing to mark and never write a superblock, as in md.

use super::health::DeviceId;
use super::{Action, Actions, Engine, Io, State, Target, Waiter};
use crate::buf::Buf;
use crate::layout::Code;
use crate::meta::md_ppl;
use crate::meta::md1::emit::emit_bad_blocks;
use crate::meta::record::DeviceRole;
use crate::time::Instant;
use crate::units::Sectors;

/// The update in progress and what is still to come.
#[derive(Debug, Default)]
pub(super) struct Publisher {
    /// Grows with every change.
    version: u64,
    /// The newest version that changes superblocks, not only bits.
    superblocks: u64,
    /// The newest versions whose superblocks, and whose cleared bits, speak about data written
    /// before them.
    after_data: u64,
    bits_after_data: u64,
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
    /// Data is durable that was written before this version ...
    flushed: u64,
    /// True once the flush that makes it so is done.
    is_flushed: bool,
    /// ... and before this time.
    flushed_at: Instant,
    /// How far devices that are being filled, and the resync, were then.
    reached: Reached,
}

/// Positions of a moment, true on the members once they are flushed.
#[derive(Debug, Default)]
struct Reached {
    devices: Vec<(DeviceId, Option<Sectors>)>,
    unsynced: Option<Sectors>,
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

    /// The newest version.
    pub fn current_version(&self) -> u64 {
        self.version
    }

    /// The version that the next change will get.
    pub fn next_version(&self) -> u64 {
        self.version + 1
    }
}

impl Engine {
    /// Notes that the superblocks must change, starts the update if none runs, and returns the
    /// version to wait for.
    pub(super) fn changed(&mut self, out: &mut Actions) -> u64 {
        self.publisher.superblocks = self.publisher.next_version();
        self.bits_changed(out)
    }

    /// The same for a change that is true only once the data written so far is durable.
    pub(super) fn data_changed(&mut self, out: &mut Actions) -> u64 {
        self.publisher.after_data = self.publisher.next_version();
        self.changed(out)
    }

    /// The same for bits of the bitmap that may be cleared, which the superblocks do not tell.
    pub(super) fn bits_to_clear(&mut self, out: &mut Actions) -> u64 {
        self.publisher.bits_after_data = self.publisher.next_version();
        self.bits_changed(out)
    }

    /// The same for bits of the bitmap that were set.
    pub(super) fn bits_changed(&mut self, out: &mut Actions) -> u64 {
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
        let publisher = &self.publisher;
        let after_data = publisher.after_data.max(publisher.bits_after_data) > publisher.durable;
        let version = publisher.version;
        let update = Update {
            version,
            stage: Stage::Before,
            pending: 0,
            flushed: version,
            is_flushed: false,
            flushed_at: self.now,
            reached: self.reached(),
        };
        self.publisher.running = Some(update);
        self.enter_stage(if after_data { Stage::Before } else { Stage::Write }, out);
    }

    fn reached(&self) -> Reached {
        let devices = self.health.all().map(|m| (m.device, m.state.cursor())).collect();
        Reached { devices, unsynced: self.unsynced }
    }

    fn enter_stage(&mut self, stage: Stage, out: &mut Actions) {
        self.publisher.running.as_mut().expect("an update runs").stage = stage;
        let ios = match stage {
            Stage::Write => self.updates(),
            Stage::Before | Stage::After => {
                let flush = |device| (device, Sectors::ZERO, Io::Flush);
                self.health.told().into_iter().map(flush).collect()
            }
        };
        let update = self.publisher.running.as_mut().expect("an update runs");
        update.pending = ios.len();
        let nothing = ios.is_empty();
        for (device, at, io) in ios {
            let op = self.ops.insert(Target::Publish(device));
            out.push(Action::Io { op, device, at, io, background: false });
        }
        if nothing {
            self.next_stage(out);
        }
    }

    /// What the stage `Write` writes, on every device that gets superblocks.
    fn updates(&mut self) -> Vec<(DeviceId, Sectors, Io)> {
        let publisher = &mut self.publisher;
        let update = publisher.running.as_mut().expect("an update runs");
        // What came since the flush and speaks about data has to wait for the next update.
        let settled = publisher.after_data <= update.flushed;
        let bits_settled = publisher.bits_after_data <= update.flushed;
        let all = settled && bits_settled;
        update.version = if all { publisher.version } else { update.flushed };
        let superblocks = publisher.superblocks > publisher.durable;
        let (flushed, flushed_at) = (update.is_flushed, update.flushed_at);
        let reached = std::mem::take(&mut update.reached);
        if flushed && bits_settled {
            self.clear_quiet(flushed_at);
        }
        if superblocks {
            self.refresh_records(flushed.then_some(reached), settled);
        }
        let pages = self.bitmap.as_mut().map(|b| b.take_pages(superblocks)).unwrap_or_default();
        let pages: Vec<_> =
            pages.into_iter().map(|(at, page)| (at, Buf::copy_of(&page).freeze())).collect();
        let mut ios = Vec::new();
        for device in self.health.told() {
            let member = self.health.member(device).expect("it was just listed");
            if let Some(start) = member.record.bitmap_at {
                let write = |(at, page): &(Sectors, crate::buf::Shared)| {
                    (device, start + *at, Io::Write(page.clone()))
                };
                ios.extend(pages.iter().map(write));
            }
            if superblocks {
                ios.extend(self.bad_log(device).map(|(at, io)| (device, at, io)));
                ios.extend(self.empty_log(device).map(|(at, io)| (device, at, io)));
                let (at, io) = self.superblock(device);
                ios.push((device, at, io));
            }
        }
        ios
    }

    /// Brings the records up to what is true now. `reached`: positions that a flush covers;
    /// `settled`: nothing that speaks about data came after it.
    fn refresh_records(&mut self, reached: Option<Reached>, settled: bool) {
        self.array.events += 1;
        self.array.utime = self.now.seconds();
        for (device, position) in reached.iter().flat_map(|r| &r.devices) {
            if let Some(member) = self.health.member_mut(*device) {
                member.record.recovery = *position;
            }
        }
        let unsynced = match &reached {
            Some(reached) if settled => reached.unsynced,
            // A later position is not known to be true on the members yet.
            _ => self.array.resync.or(self.unsynced),
        };
        let unclean = self.dirty || (self.shape.code != Code::None && !settled);
        if let Some(reached) = reached.filter(|_| settled) {
            self.unsynced_durably = reached.unsynced;
        }
        self.array.resync = match (unclean, self.unsynced_durably) {
            // A log knows what is under way: only what was never made consistent is in doubt.
            (true, Some(from)) if self.has_logs() => Some(from),
            // What is under way is replayed from the journal: the array stays clean, as in md.
            (true, None) if self.logs.journal.is_some() => None,
            (true, _) => Some(Sectors::ZERO),
            (false, _) => unsynced,
        };
        let whole = self.health.degraded().is_empty();
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.follow(self.array.events, whole);
        }
    }

    /// The bad-block log of `device`, if it changed.
    fn bad_log(&mut self, device: DeviceId) -> Option<(Sectors, Io)> {
        let member = self.health.member_mut(device).filter(|m| m.bad_changed)?;
        member.bad_changed = false;
        let (at, bytes) = emit_bad_blocks(&member.record).ok()??;
        Some((at, Io::Write(Buf::copy_of(&bytes).freeze())))
    }

    /// An empty partial parity log for `device`, if the one it brought is of another time.
    fn empty_log(&mut self, device: DeviceId) -> Option<(Sectors, Io)> {
        let member = self.health.member_mut(device).filter(|m| m.log_stale)?;
        member.log_stale = false;
        let area = member.record.ppl?;
        let mut bytes = md_ppl::empty(&self.array.uuid, 0);
        bytes.resize(area.len.len().max(bytes.len()), 0);
        Some((area.at, Io::Write(Buf::copy_of(&bytes).freeze())))
    }

    fn superblock(&mut self, device: DeviceId) -> (Sectors, Io) {
        let member = self.health.member_mut(device).expect("a device that is told is there");
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

    /// One operation of the running update is answered.
    pub(super) fn published(
        &mut self,
        device: DeviceId,
        failed: Option<String>,
        out: &mut Actions,
    ) {
        if let Some(trouble) = failed
            && self.device_failed(device, &trouble, out).is_err()
        {
            // Neither can the member be spared nor does it take superblocks: no more writes.
            self.broken = true;
        }
        let Some(update) = self.publisher.running.as_mut() else { return };
        update.pending -= 1;
        if update.pending == 0 {
            self.next_stage(out);
        }
    }

    fn next_stage(&mut self, out: &mut Actions) {
        let update = self.publisher.running.as_mut().expect("an update runs");
        update.is_flushed |= update.stage == Stage::Before;
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
            self.data_changed(out);
        } else {
            out.push(Action::Wake(due));
        }
    }

    /// Writes the failure of `device` into the role map; the version that says so is returned.
    pub(super) fn publish_failure(&mut self, device: DeviceId, out: &mut Actions) -> u64 {
        let member = self.health.member(device).expect("it was there to fail");
        let number = member.record.number as usize;
        if let Some(role) = self.array.roles.get_mut(number) {
            *role = DeviceRole::Faulty;
        }
        // A device that was just filled may be what the array lives on now: both must be told at
        // once.
        let untold = |m: &super::Member| m.state == State::InSync && m.record.recovery.is_some();
        let untold = self.health.all().any(untold);
        match untold {
            true => self.data_changed(out),
            false => self.changed(out),
        }
    }
}
