//! Whether the redundancy of an array agrees with its data, page by page, without running it.
//!
//! [`scan`] walks the stripes of an assembled array ([`Target`]), reads every unit and has each
//! page of 4 KiB judged ([`judge`], pure); what disagrees comes out as a [`Finding`]: where, which
//! units, what each holds and what it would hold if it were the wrong one. [`fixes`] says what to
//! write to make a finding right again, in md's way or a better one.
//!
//! ```text
//!   target.rs    members, how far each can be trusted, what a resync has not reached
//!   batch.rs     reading: all members at once, lost pages marked
//!   scan.rs      the walk, the count            judge.rs    one page
//!   finding.rs   what was found                 fix.rs      what to write
//! ```
//!
//! Promises: a scan writes nothing; a page that cannot be compared (a member is missing, a sector
//! does not read, a resync has not been there) is counted as such and never as a mismatch; the
//! count is that of md's `mismatch_cnt` after `check`.
//! Refuses: nothing; levels without redundancy have nothing to compare.

mod batch;
mod finding;
mod fix;
mod judge;
mod scan;
mod target;
#[cfg(test)]
mod tests;
mod unsynced;

pub use finding::{Finding, Part, Verdict};
pub use fix::{Fix, Policy, fixes};
pub use judge::judge;
pub use scan::{Options, Summary, scan};
pub use target::{Member, Target, bitmap_of};
pub use unsynced::Unsynced;

use crate::units::Sectors;

/// What is compared at a time: md's stripe head, 4 KiB of each member.
pub const PAGE: Sectors = Sectors::kib(4);

/// What md counts for a copy that differs: its resync window of 64 KiB.
pub const WINDOW: Sectors = Sectors::kib(64);
