//! What the engine tells about itself.

use super::{Engine, JobKind, Limits, Member, State};
use crate::layout::Shape;
use crate::meta::md_bitmap;
use crate::meta::record::ArrayRecord;
use crate::plan::{Band, Phase, Plan};
use crate::units::{Sectors, SlotSet};

/// Counters since assembly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Read requests.
    pub reads: u64,
    /// Write requests.
    pub writes: u64,
    /// Bands written whole, without reading anything.
    pub full_writes: u64,
    /// Bands written by read-modify-write.
    pub modify_writes: u64,
    /// Bands written by reading the data units that are not written.
    pub reconstruct_writes: u64,
    /// Units read before a write.
    pub pre_reads: u64,
    /// Unit reads sent to members.
    pub member_reads: u64,
    /// Unit writes sent to members.
    pub member_writes: u64,
    /// Partial parity logs written.
    pub log_writes: u64,
    /// Reads that failed on a member.
    pub read_errors: u64,
    /// Writes and flushes that failed on a member.
    pub write_errors: u64,
    /// Units written back after a failed read.
    pub healed: u64,
    /// Bands a resync could not make consistent because a unit did not read.
    pub resync_skipped: u64,
    /// Devices that were filled to the end.
    pub filled: u64,
    /// Steps of a check or repair that could not be compared because a unit did not read.
    pub scrub_skipped: u64,
}

impl Stats {
    pub(super) fn planned(&mut self, plan: &Plan, write: bool, band: &Band) {
        if !write || band.stripe.units.len() == 1 {
            return;
        }
        self.pre_reads += plan.reads() as u64;
        match plan.phases.contains(&Phase::Update) {
            true => self.modify_writes += 1,
            false if plan.reads() > 0 => self.reconstruct_writes += 1,
            false => self.full_writes += 1,
        }
    }

    /// One counter a line: `reads 12`.
    pub fn to_text(&self) -> String {
        self.rows().iter().map(|(name, n)| format!("{name} {n}\n")).collect()
    }

    /// Names and values, in a fixed order.
    pub fn rows(&self) -> [(&'static str, u64); 14] {
        [
            ("reads", self.reads),
            ("writes", self.writes),
            ("full_writes", self.full_writes),
            ("modify_writes", self.modify_writes),
            ("reconstruct_writes", self.reconstruct_writes),
            ("pre_reads", self.pre_reads),
            ("member_reads", self.member_reads),
            ("member_writes", self.member_writes),
            ("read_errors", self.read_errors),
            ("write_errors", self.write_errors),
            ("healed", self.healed),
            ("resync_skipped", self.resync_skipped),
            ("filled", self.filled),
            ("scrub_skipped", self.scrub_skipped),
        ]
    }
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// What it does.
    pub kind: JobKind,
    /// Sectors done; of each member, but for a resync or scrub of RAID 10 of the array.
    pub done: Sectors,
    /// Sectors in all.
    pub total: Sectors,
    /// Sectors a second since it began.
    pub speed: u64,
}

/// A copy of everything worth telling at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// What the superblocks say (or will say with the next update).
    pub array: ArrayRecord,
    /// The geometry.
    pub shape: Shape,
    /// The members by slot.
    pub members: Vec<Option<Member>>,
    /// Slots whose member is missing, failed or not in sync.
    pub degraded: SlotSet,
    /// Writes may be under way: the superblocks say dirty.
    pub dirty: bool,
    /// Redundancy may be wrong somewhere.
    pub unsynced: bool,
    /// Devices that are filled to replace a member, by slot.
    pub replacements: Vec<Option<Member>>,
    /// Spares, and failed devices that lost their slot.
    pub others: Vec<Member>,
    /// The job that runs.
    pub job: Option<Progress>,
    /// The job that ran last.
    pub last_job: Option<JobKind>,
    /// What was asked for and waits for its turn.
    pub requested: Option<JobKind>,
    /// No job begins.
    pub frozen: bool,
    /// Why a job that is needed does not run.
    pub trouble: Option<String>,
    /// Sectors that did not agree in the last check or repair: md's `mismatch_cnt`.
    pub mismatches: u64,
    /// How fast jobs may go.
    pub limits: Limits,
    /// What the write-intent bitmap says of itself, if there is one.
    pub bitmap: Option<md_bitmap::Bitmap>,
    /// Bits of the write-intent bitmap that are set, and how many there are.
    pub bitmap_bits: Option<(u64, u64)>,
    /// Bitmap pages written to each member since assembly.
    pub bitmap_writes: u64,
    /// Nothing is written.
    pub read_only: bool,
    /// More members failed than the level survives; writes are refused.
    pub broken: bool,
    /// Counters.
    pub stats: Stats,
    /// Superblock updates done.
    pub superblock_updates: u64,
    /// Rounds of flushes of all members done for users.
    pub flush_rounds: u64,
}

impl Engine {
    /// What is true now.
    pub fn status(&self) -> Status {
        Status {
            array: self.array.clone(),
            shape: self.shape.clone(),
            members: self.health.slots.clone(),
            degraded: self.health.degraded(),
            dirty: self.dirty,
            unsynced: self.unsynced.is_some(),
            replacements: self.health.replacements.clone(),
            others: self.health.others.clone(),
            job: self.progress(),
            last_job: self.jobs.last,
            requested: self.jobs.requested,
            frozen: self.jobs.frozen,
            trouble: self.jobs.trouble.clone(),
            mismatches: self.jobs.mismatches,
            limits: self.jobs.limits,
            bitmap: self.bitmap.as_ref().map(|b| b.head().clone()),
            bitmap_bits: self.bitmap.as_ref().map(|b| (b.count_set(), b.head().bits())),
            bitmap_writes: self.bitmap.as_ref().map_or(0, |b| b.pages_written),
            read_only: self.read_only,
            broken: self.broken,
            stats: self.stats,
            superblock_updates: self.publisher.updates,
            flush_rounds: self.flushes.rounds,
        }
    }

    fn progress(&self) -> Option<Progress> {
        let Some(job) = &self.jobs.current else { return self.handing_over() };
        let (done, total, speed) = job.progress(self.now);
        Some(Progress { kind: job.kind, done, total, speed })
    }

    /// A recovery is not over before the members know, and replacements have taken over.
    fn handing_over(&self) -> Option<Progress> {
        let untold = |m: &Member| m.state == State::InSync && m.record.recovery.is_some();
        let whole = |m: &Member| m.state == State::InSync;
        let waits = self.health.slots.iter().flatten().any(untold)
            || self.health.replacements.iter().flatten().any(whole);
        let total = self.array.component;
        let over = Progress { kind: JobKind::Recovery, done: total, total, speed: 0 };
        (waits && !self.read_only && !self.broken && self.stopping.is_none()).then_some(over)
    }

    /// The open work, for people who look for what hangs.
    pub fn to_text(&self) -> String {
        let (held, waiting) = self.stripes.counts();
        format!(
            "asks {}\nflights {}\noperations {}\nbands held {held}\nbands waiting {waiting}\n",
            self.asks.len(),
            self.flights.len(),
            self.ops.len()
        )
    }
}
