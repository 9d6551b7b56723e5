//! What a crash left half done is put right before an array runs: partial parity log and journal.
//!
//! [`ppl`] makes parity right again from the partial parity log; [`journal`] brings what only the
//! write journal has to the members. Both look at the logs first, write what follows from them,
//! make it durable, and only then declare the logs done: a crash in the middle changes nothing of
//! what the next replay does.
//!
//! An array that must not be written is replayed into memory over its members ([`Members::veil`]):
//! it reads as it would after a replay, and not one byte of it changes.

mod journal;
mod members;
mod ppl;
mod row;
mod rows;
#[cfg(test)]
mod tests;

use journal::Desk;
use members::Members;

use crate::device::Shared;
use crate::engine::JournalState;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::meta::assemble::Assembly;
use crate::meta::record::ArrayRecord;
use crate::units::Sectors;

/// What replay did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Writes whose parity the partial parity log put right.
    pub entries: usize,
    /// Members whose partial parity log, or parts of it, could not be read.
    pub unreadable: usize,
    /// Rows that went from the journal to the members with their parity.
    pub rows: usize,
    /// Rows that only the journal had, merged with what the members hold.
    pub merged: usize,
    /// The superblocks on the members are older than the record now is.
    pub uneven: bool,
    /// Where the journal goes on, if there is one that takes writes.
    pub journal: Option<JournalState>,
}

impl Replayed {
    /// True if anything on the members was put right.
    pub fn wrote(&self) -> bool {
        self.entries + self.rows + self.merged > 0
    }
}

/// Replays the logs of `assembly` on its members (`seated`, by slot) and its journal (among
/// `devices`, which are as the candidates were), and brings `array` up to date. With `read_only`
/// the members in `seated` are replaced by overlays in memory where anything had to be written.
///
/// # Errors
/// A member or the journal cannot be read or written, or a log speaks of what is not there.
pub fn replay(
    assembly: &Assembly,
    array: &mut ArrayRecord,
    layout: &dyn Layout,
    seated: &mut [Option<Shared>],
    devices: &[Shared],
    read_only: bool,
) -> Result<Replayed> {
    let mut done = Replayed::default();
    let has_ppl = assembly.seats.iter().flatten().any(|seat| seat.member.ppl.is_some());
    if !has_ppl && assembly.journal.is_none() {
        return Ok(done);
    }
    let mut members = Members::new(assembly, layout, seated);
    if read_only {
        members.veil();
    }
    if has_ppl {
        ppl::replay(&members, array, read_only, &mut done)?;
        settle(array, members.is_complete(), &mut done);
    }
    if let Some(found) = &assembly.journal {
        let device = devices
            .get(found.candidate)
            .ok_or_else(|| Error::invalid(format!("no device for the journal {}", found.name)))?;
        let desk = Desk::new(found, device.clone(), array, assembly.format.emit, read_only)?;
        journal::replay(&members, desk, &mut done)
            .map_err(|error| error.context(format!("replaying the journal {}", found.name)))?;
    }
    members.seat(seated);
    Ok(done)
}

/// What a replayed partial parity log makes of a dirty array, as the kernel decides it
/// (`ppl_load`): clean if something was under way and all of it was put right. Without a member,
/// too: what the log does not know of was not under way.
fn settle(array: &mut ArrayRecord, complete: bool, done: &mut Replayed) {
    let knows = done.entries > 0 && done.unreadable == 0;
    if array.resync == Some(Sectors::ZERO) && (knows || !complete) {
        array.resync = None;
        done.uneven = true;
    }
}
