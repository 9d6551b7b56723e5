//! Flush: everything that was answered before is durable on every member when it is answered.
//!
//! One flush of the members runs at a time; those who ask meanwhile share the next one, because
//! the running one may have passed their writes.

use super::health::DeviceId;
use super::{Action, Actions, AskId, Engine, Io, Outcome, Target, UNTOLD, Waiter};
use crate::error::{Error, ErrorKind};
use crate::units::Sectors;

#[derive(Debug, Default)]
pub(super) struct Flushes {
    running: Option<Running>,
    next: Vec<AskId>,
    /// Rounds of member flushes done for asks.
    pub rounds: u64,
}

#[derive(Debug)]
struct Running {
    asks: Vec<AskId>,
    pending: usize,
    trouble: Option<String>,
}

impl Flushes {
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && self.next.is_empty()
    }
}

impl Engine {
    pub(super) fn ask_flush(&mut self, ask: AskId, out: &mut Actions) {
        self.flushes.next.push(ask);
        self.start_next_flush(out);
    }

    fn start_next_flush(&mut self, out: &mut Actions) {
        if self.flushes.running.is_none() && !self.flushes.next.is_empty() {
            let asks = std::mem::take(&mut self.flushes.next);
            self.start_flush(asks, out);
        }
    }

    /// A flush of all live members for `asks`, which may be nobody; none runs.
    pub(super) fn start_flush(&mut self, asks: Vec<AskId>, out: &mut Actions) {
        let devices: Vec<DeviceId> = match self.read_only {
            true => Vec::new(),
            false => self.health.live_devices(),
        };
        self.flushes.rounds += 1;
        self.flushes.running = Some(Running { asks, pending: devices.len(), trouble: None });
        for &device in &devices {
            let op = self.ops.insert(Target::Flush(device));
            let (at, background) = (Sectors::ZERO, false);
            out.push(Action::Io { op, device, at, io: Io::Flush, background });
        }
        if devices.is_empty() {
            self.flushed_all(out);
        }
    }

    /// One member is flushed.
    pub(super) fn flushed(&mut self, device: DeviceId, failed: Option<String>, out: &mut Actions) {
        let trouble = failed.and_then(|t| self.device_failed(device, &t, out).err());
        let running = self.flushes.running.as_mut().expect("a flush runs");
        running.trouble = running.trouble.take().or(trouble);
        running.pending -= 1;
        if running.pending == 0 {
            self.flushed_all(out);
        }
    }

    fn flushed_all(&mut self, out: &mut Actions) {
        let Running { asks, trouble, .. } = self.flushes.running.take().expect("a flush runs");
        // What a member lost in a failed flush nobody can name: it stays an error for everybody,
        // and nothing more is written, until the array is started again.
        self.flush_lost = self.flush_lost.take().or(trouble);
        if let Some(trouble) = self.flush_lost.clone() {
            self.broken = true;
            self.give_up_publishing(out);
            for ask in asks {
                let error = Error::new(ErrorKind::Io, format!("flush failed: {trouble}"));
                out.push(Action::Reply(ask, Outcome::Failed(error)));
            }
        } else {
            self.flush_answered(asks, out);
        }
        self.start_next_flush(out);
    }

    /// Answers when the survivors know of every failure, also of those that came meanwhile.
    pub(super) fn flush_answered(&mut self, asks: Vec<AskId>, out: &mut Actions) {
        if !self.publisher.is_durable(self.failure_version) {
            return self.wait_durable(self.failure_version, Waiter::Flush(asks));
        }
        let told = self.publisher.is_written(self.failure_version);
        out.extend(asks.into_iter().map(|ask| match told {
            true => Action::Reply(ask, Outcome::Done),
            false => Action::Reply(ask, Outcome::Failed(Error::new(ErrorKind::Io, UNTOLD))),
        }));
    }
}
