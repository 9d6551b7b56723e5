//! Which members may serve an array: a decision over what their superblocks say, without I/O.
//!
//! Promises: the order in which members are given never matters; a stale member never serves
//! data; whatever is refused says why, member by member, and what to do. The rules are those of
//! the kernel (`analyze_sbs`) and mdadm's `--assemble`, and stricter where they lose data:
//!
//! 1. The freshest member (most events) speaks for the array; members one event behind are
//!    fresh too, since a power cut can fall between two superblock writes.
//! 2. What a member is, the freshest member's role map says, not the member's own.
//! 3. A member that calls the freshest one failed ran on without it: it is left out; if each
//!    calls the other failed, nobody can know which half is right: refused.
//! 4. Two copies of one member, or two members for one slot, are refused: a user must choose.
//! 5. Fewer members than slots start only on the user's word; too few never.
//! 6. A dirty RAID 4/5/6 without all members is served for reading only, unless forced: what
//!    the missing member held may be wrong wherever a write was interrupted. A partial parity log
//!    takes that doubt away.
//! 7. An array with a write journal needs it, and a fresh one: what it holds was acknowledged.
//!    Without it the array is refused; forced, it is read-only and lacks those writes.

mod decide;
mod gather;
mod group;
mod rank;
#[cfg(test)]
mod tests;
mod words;

pub use decide::assemble;
pub use group::{Group, groups};
pub use rank::halves;
pub use words::quoted;

use super::record::{ArrayRecord, MemberRecord};
use super::{Format, Sighting};
use crate::error::{Error, ErrorKind};
use crate::units::{Sectors, Slot, SlotSet};
use std::fmt;

/// A device that may be a member, as it was examined.
#[derive(Debug)]
pub struct Candidate {
    /// What to call it in messages: its path.
    pub name: String,
    /// Its length.
    pub sectors: Sectors,
    /// All superblocks it carries, from [`super::probe`].
    pub sightings: Vec<Sighting>,
}

/// What the user allows.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only members of this array.
    pub uuid: Option<[u8; 16]>,
    /// Start although slots have no member (`--degraded`).
    pub degraded: bool,
    /// Never write.
    pub read_only: bool,
    /// Writes go to an overlay: the members themselves stay as they are.
    pub overlay: bool,
    /// Use stale members if nothing else serves, and start dirty arrays without all members.
    pub force: bool,
}

/// How far a member's data can be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeatState {
    /// All of it.
    InSync,
    /// Only what lies below this sector (from the start of data): a rebuild was interrupted.
    Recovering(Sectors),
}

/// A member in its slot.
#[derive(Clone, Debug)]
pub struct Seat {
    /// Index into the candidates.
    pub candidate: usize,
    /// The candidate's name.
    pub name: String,
    /// Its record.
    pub member: MemberRecord,
    /// How far to trust it.
    pub state: SeatState,
    /// Its update counter, at most one behind the array's unless it was forced in.
    pub events: u64,
}

/// The write journal of an array.
#[derive(Clone, Debug)]
pub struct Journal {
    /// Index into the candidates.
    pub candidate: usize,
    /// The candidate's name.
    pub name: String,
    /// Its record.
    pub member: MemberRecord,
}

/// An array that can be served.
#[derive(Clone, Debug)]
pub struct Assembly {
    /// The metadata's format.
    pub format: &'static Format,
    /// What the freshest member says, with the role map cleared of members that are not there:
    /// write it with more events before the first change, and absent members become stale.
    pub array: ArrayRecord,
    /// The members by slot.
    pub seats: Vec<Option<Seat>>,
    /// Devices that wait as spares.
    pub spares: Vec<Seat>,
    /// Devices that are being filled to replace the member of a slot.
    pub replacements: Vec<(Slot, Seat)>,
    /// The write journal: what it holds goes to the members before anything else.
    pub journal: Option<Journal>,
    /// Slots without a member.
    pub missing: SlotSet,
    /// The array was not stopped cleanly: redundancy is consistent only below
    /// [`ArrayRecord::resync`].
    pub dirty: bool,
    /// Serve for reading only.
    pub read_only: bool,
    /// Parity is trusted also where it was not resynced: asked for by `force`.
    pub trust: bool,
    /// Candidates that serve only because of `force`, although they are stale.
    pub forced: Vec<usize>,
    /// What became of each candidate.
    pub verdicts: Vec<Verdict>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

impl Assembly {
    /// Slots whose data is complete.
    pub fn in_sync(&self) -> SlotSet {
        let seats = self.seats.iter().enumerate();
        seats
            .filter(|(_, seat)| seat.as_ref().is_some_and(|s| s.state == SeatState::InSync))
            .map(|(slot, _)| Slot(slot as u16))
            .collect()
    }
}

/// What becomes of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It serves this slot.
    In(Slot),
    /// It serves this slot up to where its rebuild came.
    Recovering(Slot),
    /// It waits as a spare.
    Spare,
    /// It is the array's write journal.
    Journal,
    /// It is to replace the member of this slot.
    Replacement(Slot),
    /// It is left out.
    Out,
}

/// What becomes of a candidate, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The candidate's name.
    pub name: String,
    /// What becomes of it.
    pub fate: Fate,
    /// Why, in words.
    pub why: String,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fate = match self.fate {
            Fate::In(slot) => format!("in, slot {slot}"),
            Fate::Recovering(slot) => format!("in, slot {slot}, rebuilding"),
            Fate::Spare => "spare".into(),
            Fate::Journal => "journal".into(),
            Fate::Replacement(slot) => format!("replacement for slot {slot}"),
            Fate::Out => "out".into(),
        };
        match self.why.is_empty() {
            true => write!(f, "{}: {fate}", self.name),
            false => write!(f, "{}: {fate}: {}", self.name, self.why),
        }
    }
}

/// Why there is no array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What to branch on.
    pub kind: ErrorKind,
    /// What was found, what is needed, what to do.
    pub reason: String,
    /// What became of each candidate.
    pub verdicts: Vec<Verdict>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        self.verdicts.iter().try_for_each(|verdict| write!(f, "\n  {verdict}"))
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Error {
        Error::new(refusal.kind, refusal.to_string())
    }
}
