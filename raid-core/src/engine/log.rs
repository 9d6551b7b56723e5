//! The partial parity log of a running RAID 5: told before it is done.
//!
//! A write that changes parity first puts what the rest of its rows comes to into the log of the
//! member that holds the parity (see [`crate::meta::md_ppl`]); only when that is durable are data
//! and parity written. After a crash parity follows from the log, also without a member.
//!
//! Each member has a *lane*. A lane writes one log at a time, for all writes that wait by then.
//! The newest log is the only one that counts, so the next one is written only when all that the
//! last one speaks of is durable: writes answered, failures recorded, members flushed.
//!
//! ```text
//! idle -> settling -> writing -> flushing -> open -> idle
//!         (flush what     (the new log)      (its writes are under way)
//!          was written)
//! ```

use super::health::{DeviceId, Devices};
use super::{Action, Actions, Engine, FlightId, Io, Target};
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
}

#[derive(Debug)]
struct Lane {
    area: Area,
    /// Where in the area the next log goes, if it fits there.
    next: Sectors,
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
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Idle,
    Settling,
    Writing,
    Flushing,
    Open,
}

impl Lane {
    fn new(area: Area) -> Lane {
        Lane {
            area,
            next: Sectors::ZERO,
            step: Step::Idle,
            waiting: VecDeque::new(),
            batch: Vec::new(),
            open: 0,
            touched: Devices::new(),
            pending: 0,
        }
    }

    /// The place for a log of `len` sectors.
    fn place(&mut self, len: Sectors) -> Sectors {
        if self.next + len > self.area.len || self.area.len < RING_MIN {
            self.next = Sectors::ZERO;
        }
        let at = self.area.at + self.next;
        self.next += len;
        at
    }
}

impl Engine {
    /// True if writes are told to partial parity logs.
    pub(super) fn has_logs(&self) -> bool {
        self.log_room.is_some()
    }

    /// The partial parity of a write is known, or it needs none: its turn in its lane.
    pub(super) fn queue_log(&mut self, id: FlightId, out: &mut Actions) {
        let stripe = &self.flights[id].band.stripe;
        let slot = stripe.units.iter().find(|u| u.role == Role::P).map(|u| u.slot);
        let member = slot.and_then(|slot| self.health.live(slot));
        let Some((device, area)) = member.and_then(|m| Some((m.device, m.record.ppl?))) else {
            // The member has failed since: there is no parity to get wrong.
            return self.advance(id, out);
        };
        let lane = self.logs.lanes.entry(device).or_insert_with(|| Lane::new(area));
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
    fn write_log(&mut self, device: DeviceId, out: &mut Actions) {
        if self.health.member(device).is_none_or(|m| !m.is_live()) {
            let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
            lane.batch = lane.waiting.drain(..).collect();
            return self.let_go(device, out);
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
        let at = lane.place(header.len());
        lane.step = Step::Writing;
        let mut bytes = md_ppl::emit(&header, &self.array.uuid)
            .expect("entries are as many as fit, of bands that fit");
        bytes.append(&mut parity);
        self.stats.log_writes += 1;
        let io = Io::Write(Buf::copy_of(&bytes).freeze());
        self.log_io(device, device, at, io, out);
    }

    /// An operation of a lane is answered.
    pub(super) fn log_done(
        &mut self,
        (lane, device): (DeviceId, DeviceId),
        failed: Option<String>,
        out: &mut Actions,
    ) {
        let is_failed = failed.is_some();
        if let Some(trouble) = failed.and_then(|t| self.device_failed(device, &t, out).err()) {
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
            Step::Writing if !is_failed => {
                state.step = Step::Flushing;
                self.log_io(lane, lane, Sectors::ZERO, Io::Flush, out);
            }
            Step::Writing | Step::Flushing => self.let_go(lane, out),
            Step::Idle | Step::Open => panic!("a lane that does nothing has no answer"),
        }
    }

    /// The log is durable, or its member is gone: its writes go on.
    fn let_go(&mut self, device: DeviceId, out: &mut Actions) {
        let lane = self.logs.lanes.get_mut(&device).expect("a lane once used stays");
        let batch = std::mem::take(&mut lane.batch);
        (lane.step, lane.open) = (Step::Open, batch.len());
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
