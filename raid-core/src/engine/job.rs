//! Jobs: what goes through the whole array by itself: recovery, resync, check and repair.
//!
//! A job goes from position to position with a few steps under way at a time, through the same
//! plans and turns as everything else. Positions are md's: sectors of a member, but for a resync
//! or scrub of RAID 10 sectors of the array. Recovery goes before resync, and that before what
//! somebody asked for, as in md.

use super::flight::{Flight, Kind, Owner};
use super::pace::{Limits, Pace};
use super::{Actions, DeviceId, Engine, State};
use crate::error::ErrorKind;
use crate::layout::Code;
use crate::plan::Band;
use crate::time::{Instant, Span};
use crate::units::Sectors;

/// Sectors of each member under way at once when nobody else wants the members: bounds memory at
/// this times the members.
const DEPTH: Sectors = Sectors::kib(1024);

/// Steps under way at once, however small the chunk.
const STEPS_MAX: usize = 64;

/// Largest height of a step.
pub(super) const HEIGHT: Sectors = Sectors(256);

/// Steps skipped at most; a member with more unreadable places has to be replaced first.
const SKIPPED_MAX: usize = 1024;

/// How far a job came is written down so often, as md does.
const CHECKPOINT: Span = Span::millis(10_000);

/// Why a device is not filled.
const UNKNOWN: &str = "a device waits to be filled, but parity was not resynced before: what it \
                       should hold is not known everywhere";

/// Why a resync leaves something out.
const UNREAD: &str = "a member does not read, or has bad blocks, where parity was not resynced: \
                      what it holds there is not known for sure; write it anew, or unmount and \
                      mount with --force to take what parity says";

/// What a job does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobKind {
    /// Makes redundancy consistent after an unclean stop.
    Resync,
    /// Fills devices that took a place.
    Recovery,
    /// Compares redundancy with data.
    Check,
    /// Compares, and makes redundancy agree.
    Repair,
}

impl JobKind {
    /// md's word in `sync_action` and `last_sync_action`.
    pub fn word(self) -> &'static str {
        match self {
            JobKind::Resync => "resync",
            JobKind::Recovery => "recover",
            JobKind::Check => "check",
            JobKind::Repair => "repair",
        }
    }

    /// What somebody who wants it out of the way can do, to follow its word.
    pub fn how_it_ends(self) -> &'static str {
        match self {
            JobKind::Resync | JobKind::Recovery => {
                "wait for it (idle does not end what is due, frozen would)"
            }
            JobKind::Check | JobKind::Repair => "wait for it, or say idle",
        }
    }

    fn flight(self) -> Kind {
        match self {
            JobKind::Resync => Kind::Repair,
            JobKind::Recovery => Kind::Recover,
            JobKind::Check => Kind::Scrub(false),
            JobKind::Repair => Kind::Scrub(true),
        }
    }
}

#[derive(Debug)]
struct Step {
    at: Sectors,
    pending: usize,
    trouble: bool,
}

/// The job that runs.
#[derive(Debug)]
pub(super) struct Job {
    pub kind: JobKind,
    /// Where the next step begins.
    next: Sectors,
    pub end: Sectors,
    under_way: Vec<Step>,
    /// No new steps.
    halted: bool,
    /// Steps are being started: those that end at once do not start more themselves.
    feeding: bool,
    /// The devices that are filled; others that came later wait for the next recovery.
    pub devices: Vec<DeviceId>,
    /// Only marked regions differ on the devices that are filled.
    pub by_bitmap: bool,
    pace: Pace,
    wake_at: Option<Instant>,
    /// It cannot do better until something changes.
    gave_up: bool,
    began: (Sectors, Instant),
    checkpoint: (Sectors, Instant),
}

/// Where redundancy was made consistent by a resync, also by one that could not go on.
#[derive(Debug, Default)]
struct Synced {
    below: Sectors,
    /// Steps that could not be made consistent because a unit did not read.
    skipped: Vec<Sectors>,
}

/// The job and what is to come.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    pub current: Option<Job>,
    synced: Option<Synced>,
    /// The resync cannot go on until something changes.
    gave_up: bool,
    pub requested: Option<JobKind>,
    /// Nothing starts by itself, and nothing that was asked for.
    pub frozen: bool,
    pub limits: Limits,
    /// Sectors that did not agree in the last check or repair, as md counts.
    pub mismatches: u64,
    pub last: Option<JobKind>,
    /// Why a job that is needed does not run.
    pub trouble: Option<String>,
}

impl Job {
    /// The first position that is not done.
    fn frontier(&self) -> Sectors {
        self.under_way.iter().map(|s| s.at).fold(self.next, Sectors::min)
    }

    /// Done, in all, and sectors a second since it began.
    pub fn progress(&self, now: Instant) -> (Sectors, Sectors, u64) {
        let done = self.frontier().min(self.end);
        let nanos = now.0.saturating_sub(self.began.1.0).max(1);
        let moved = done.0.saturating_sub(self.began.0.0);
        let speed = (u128::from(moved) * 1_000_000_000 / u128::from(nanos)) as u64;
        (done, self.end, speed)
    }
}

impl Jobs {
    /// A job that gave up may try again.
    pub fn resume(&mut self) {
        (self.gave_up, self.trouble) = (false, None);
    }

    /// True if a resync has been over `from..to`.
    pub fn has_synced(&self, from: Sectors, to: Sectors) -> bool {
        self.synced.as_ref().is_some_and(|synced| {
            let hit = |&at: &Sectors| at < to && from < at + HEIGHT;
            to <= synced.below && !synced.skipped.iter().any(hit)
        })
    }
}

impl Engine {
    /// At the start: what can never be made consistent is taken as it is, the rest begins.
    pub(super) fn begin(&mut self, out: &mut Actions) {
        // What is left of a RAID 6 that lacks one member can still disagree: it is made to agree
        // once the member is back.
        let bare = match self.shape.code {
            Code::None => true,
            Code::Copy => false,
            Code::P => self.trust_unsynced && !self.health.missing().is_empty(),
            Code::PQ => self.trust_unsynced && self.health.missing().len() > 1,
        };
        if bare && (self.shape.code == Code::None || !self.read_only) {
            self.unsynced = None;
        }
        if self.unsynced.is_some() {
            // A write that was interrupted may be on a member and not on the device that is to
            // replace it: that is filled again.
            for relief in self.health.replacements.iter_mut().flatten() {
                relief.state = State::Recovering(Sectors::ZERO);
            }
        }
        self.jobs.synced = self.unsynced.map(|below| Synced { below, skipped: Vec::new() });
        if !self.read_only {
            self.relieve(out);
        }
        self.devices_changed(out);
    }

    /// Starts the job that is due, if none runs.
    pub(super) fn next_job(&mut self, out: &mut Actions) {
        let jobs = &self.jobs;
        let busy = jobs.current.is_some() || jobs.frozen || self.stopping.is_some();
        if busy || self.read_only || self.broken || self.shape.code == Code::None {
            return;
        }
        let parity = self.shape.code.has_parity();
        let doubtful = parity && self.unsynced.is_some() && !self.trust_unsynced;
        let recovering = !self.health.recovering().is_empty();
        let lame = parity && !self.health.degraded().is_empty();
        let left = self.unsynced.is_some() && !lame && self.jobs.gave_up;
        self.jobs.trouble = match (recovering && doubtful, left) {
            (true, _) => Some(UNKNOWN.into()),
            (false, true) => Some(UNREAD.into()),
            (false, false) => None,
        };
        let kind = if recovering && !doubtful {
            JobKind::Recovery
        } else if self.unsynced.is_some() && !lame && !self.jobs.gave_up {
            JobKind::Resync
        } else if let Some(kind) = self.jobs.requested.take() {
            self.jobs.mismatches = 0;
            kind
        } else {
            return;
        };
        self.start_job(kind, out);
    }

    fn start_job(&mut self, kind: JobKind, out: &mut Actions) {
        let filled = || self.health.all().filter(|m| m.state.cursor().is_some());
        let next = match kind {
            JobKind::Recovery => filled().filter_map(|m| m.state.cursor()).min(),
            JobKind::Resync => self.unsynced,
            JobKind::Check | JobKind::Repair => None,
        };
        let next = next.unwrap_or_default();
        let end = match kind {
            JobKind::Recovery => self.array.component,
            _ => self.stripe_len.times(self.shape.stripes),
        };
        let devices: Vec<DeviceId> = match kind {
            JobKind::Recovery => filled().map(|m| m.device).collect(),
            _ => Vec::new(),
        };
        let by_bitmap = kind == JobKind::Recovery && filled().all(|m| m.by_bitmap);
        if kind == JobKind::Resync {
            self.jobs.synced = Some(Synced { below: next, skipped: Vec::new() });
        }
        self.jobs.current = Some(Job {
            kind,
            next,
            end,
            under_way: Vec::new(),
            halted: false,
            feeding: false,
            devices,
            by_bitmap,
            pace: Pace::default(),
            wake_at: None,
            gave_up: false,
            began: (next, self.now),
            checkpoint: (next, self.now),
        });
        self.feed_job(out);
    }

    /// Stops after the steps under way; where it got to is kept.
    pub(super) fn halt_job(&mut self) {
        if let Some(job) = &mut self.jobs.current {
            job.halted = true;
        }
    }

    /// Starts steps as long as there is room, time and something to do.
    pub(super) fn feed_job(&mut self, out: &mut Actions) {
        let (limits, now, asked_at) = (self.jobs.limits, self.now, self.asked_at);
        let steps = DEPTH.div_floor(self.stripe_len.min(HEIGHT)) as usize;
        let depth = if self.asks.is_empty() { steps.clamp(4, STEPS_MAX) } else { 1 };
        let slots = self.slots_to_fill();
        loop {
            let Some(job) = &mut self.jobs.current else { return };
            if job.feeding {
                return;
            }
            if job.kind == JobKind::Recovery && slots.is_empty() {
                job.next = job.end;
            }
            let over = job.next >= job.end;
            if job.halted || over || job.under_way.len() >= depth {
                break;
            }
            if let Some(at) = job.pace.wait(limits, now, asked_at) {
                if job.wake_at.is_none_or(|wake| wake <= now) {
                    job.wake_at = Some(at);
                    out.push(super::Action::Wake(at));
                }
                break;
            }
            let (kind, at) = (job.kind, job.next);
            let (bands, next) = self.bands_at(kind, at);
            let bands = self.cut_at_bad(bands);
            let job = self.jobs.current.as_mut().expect("it was just there");
            job.next = next;
            if bands.is_empty() {
                continue;
            }
            job.pace.moved(next - at);
            job.under_way.push(Step { at, pending: bands.len(), trouble: false });
            job.feeding = true;
            for band in bands {
                let flight = Flight::new(Owner::Job(at), kind.flight(), band);
                let flight = self.flights.insert(flight);
                self.start(flight, out);
            }
            if let Some(job) = &mut self.jobs.current {
                job.feeding = false;
            }
        }
        self.reached_frontier(out);
        self.end_job(out);
    }

    /// One band of the step at `at` is done.
    pub(super) fn step_done(
        &mut self,
        at: Sectors,
        band: &Band,
        trouble: Option<(ErrorKind, String)>,
        out: &mut Actions,
    ) {
        let lame = !self.health.missing().is_empty();
        let recovery = self.jobs.current.as_ref().is_some_and(|j| j.kind == JobKind::Recovery);
        let noted = trouble.is_some() && recovery && self.note_lost(band);
        let Some(job) = &mut self.jobs.current else { return };
        let index = job.under_way.iter().position(|s| s.at == at);
        let index = index.expect("a step under way is in the list");
        let step = &mut job.under_way[index];
        step.pending -= 1;
        if let Some((_, text)) = trouble.as_ref().filter(|_| recovery && !noted) {
            self.jobs.trouble = Some(format!("recovery stopped: {text}"));
        }
        step.trouble |= trouble.is_some() && !noted;
        if step.pending > 0 {
            return;
        }
        let failed = job.under_way.swap_remove(index).trouble;
        let parity = self.shape.code.has_parity();
        let kind = job.kind;
        match kind {
            JobKind::Resync if parity && lame => {
                // What is behind stays behind; the rest cannot be made right now.
                (job.halted, job.gave_up) = (true, true);
                job.next = job.next.min(at);
            }
            JobKind::Resync if failed => {
                // An unreadable unit: nothing can tell whether the parity that would bring it
                // back is right. The rest goes on; this step stays unsynced.
                self.stats.resync_skipped += 1;
                job.gave_up = true;
                let synced = self.jobs.synced.get_or_insert_default();
                synced.skipped.push(at);
                job.halted |= synced.skipped.len() >= SKIPPED_MAX;
            }
            JobKind::Recovery if failed => {
                job.halted = true;
                job.next = job.next.min(at);
            }
            JobKind::Check | JobKind::Repair if failed => self.stats.scrub_skipped += 1,
            _ => {}
        }
        self.feed_job(out);
    }

    /// What cannot be brought back is noted as bad on the devices that are filled; false where
    /// one of them keeps no list.
    fn note_lost(&mut self, band: &Band) -> bool {
        let lost: Vec<(DeviceId, Sectors)> = (band.stripe.units.iter())
            .flat_map(|unit| self.health.live_in(unit.slot).map(move |m| (m, unit)))
            .filter(|(m, unit)| !m.holds(unit.at + band.low, unit.at + band.high))
            .map(|(m, unit)| (m.device, unit.at + band.low))
            .collect();
        lost.into_iter().all(|(device, at)| self.add_bad(device, at, band.height()))
    }

    /// The devices that are filled and the resync note how far they are; now and then the
    /// superblocks do, too.
    fn reached_frontier(&mut self, out: &mut Actions) {
        let Some(job) = &mut self.jobs.current else { return };
        let frontier = job.frontier().min(job.end);
        let far = frontier.0.saturating_sub(job.checkpoint.0.0) >= job.end.0.div_ceil(16);
        let long = self.now >= job.checkpoint.1.after(CHECKPOINT);
        let moved = frontier > job.checkpoint.0;
        let due = moved && (far || long) && !job.halted;
        if due {
            job.checkpoint = (frontier, self.now);
        }
        match job.kind {
            JobKind::Recovery => {
                for member in self.health.all_mut().filter(|m| job.devices.contains(&m.device)) {
                    if let State::Recovering(cursor) = &mut member.state {
                        *cursor = frontier.max(*cursor);
                    }
                }
            }
            JobKind::Resync => {
                let synced = self.jobs.synced.get_or_insert_default();
                let before = synced.below;
                synced.below = frontier.max(before);
                if let Some(bitmap) = &mut self.bitmap
                    && synced.below > before
                {
                    let range = (before, synced.below);
                    bitmap.synced(range, &synced.skipped, HEIGHT, self.now);
                }
                let first = synced.skipped.iter().copied().fold(synced.below, Sectors::min);
                self.unsynced = self.unsynced.map(|from| from.max(first));
            }
            JobKind::Check | JobKind::Repair => return,
        }
        if due {
            self.data_changed(out);
        }
    }

    /// When no step is under way: the job is over, or halted and its place is recorded.
    pub(super) fn end_job(&mut self, out: &mut Actions) {
        let Some(job) = &self.jobs.current else { return };
        let over = job.next >= job.end;
        if job.feeding || !job.under_way.is_empty() || !(over || job.halted) {
            return;
        }
        self.reached_frontier(out);
        let Some(job) = self.jobs.current.take() else { return };
        self.jobs.last = Some(job.kind);
        match job.kind {
            JobKind::Recovery if over => self.filled(&job.devices, out),
            JobKind::Resync if over && self.nothing_skipped() => {
                self.unsynced = None;
                self.jobs.synced = None;
                let now = self.now;
                self.bitmap.iter_mut().for_each(|b| b.all_synced(now));
            }
            JobKind::Resync => self.jobs.gave_up = job.gave_up,
            _ => {}
        }
        if matches!(job.kind, JobKind::Recovery | JobKind::Resync) {
            self.data_changed(out);
        }
        self.mark_clean_when_idle(out);
        if self.jobs.trouble.is_none() {
            self.next_job(out);
        }
    }

    fn nothing_skipped(&self) -> bool {
        self.jobs.synced.as_ref().is_none_or(|synced| synced.skipped.is_empty())
    }

    /// A comparison found so many sectors that do not agree.
    pub(super) fn mismatched(&mut self, sectors: u64) {
        self.jobs.mismatches += sectors;
    }
}
