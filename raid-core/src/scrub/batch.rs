//! Reading the units of some stripes: all members at once, each in long runs.

use super::PAGE;
use super::target::{Member, Target};
use crate::device::read_at;
use crate::layout::{Stripe, Unit};
use crate::units::{Sectors, Slot};
use std::thread;

/// A part of a stripe: the same sectors of each of its units.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub stripe: Stripe,
    pub low: Sectors,
    pub high: Sectors,
}

impl Piece {
    pub(super) fn len(&self) -> Sectors {
        self.high - self.low
    }
}

/// Why a page of a unit is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// It is there.
    Good,
    /// No member has it: none in the slot, or its rebuild has not come so far.
    Missing,
    /// It does not read, or is listed as a bad block.
    Unreadable,
}

/// What was read, by slot.
pub(super) struct Batch {
    runs: Vec<Vec<Run>>,
}

/// Contiguous sectors of one member.
struct Run {
    at: Sectors,
    bytes: Vec<u8>,
    pages: Vec<Page>,
}

impl Batch {
    /// Reads every unit of `pieces`. What does not read is marked, page by page.
    pub(super) fn read(target: &Target, pieces: &[Piece]) -> Batch {
        let slots = target.members.len();
        let mut wanted: Vec<Vec<(Sectors, Sectors)>> = vec![Vec::new(); slots];
        for piece in pieces {
            for unit in &piece.stripe.units {
                wanted[unit.slot.index()].push((unit.at + piece.low, piece.len()));
            }
        }
        let jobs = target.members.iter().zip(wanted);
        let runs = thread::scope(|scope| {
            let jobs: Vec<_> = jobs
                .map(|(member, wanted)| scope.spawn(|| read_all(member.as_ref(), wanted)))
                .collect();
            let done = jobs.into_iter().map(|job| job.join().expect("reading does not panic"));
            done.collect()
        });
        Batch { runs }
    }

    /// Bytes and page states of `len` sectors of `unit`, `low` sectors into it.
    pub(super) fn view(&self, unit: &Unit, low: Sectors, len: Sectors) -> (&[u8], &[Page]) {
        let (Slot(slot), at) = (unit.slot, unit.at + low);
        let runs = &self.runs[usize::from(slot)];
        let after = runs.partition_point(|run| run.at <= at);
        let run = &runs[after.checked_sub(1).expect("every unit of the batch was read")];
        let skip = at - run.at;
        let pages = skip.div_floor(PAGE) as usize;
        let count = len.0.div_ceil(PAGE.0) as usize;
        (&run.bytes[skip.len()..][..len.len()], &run.pages[pages..][..count])
    }
}

fn read_all(member: Option<&Member>, mut wanted: Vec<(Sectors, Sectors)>) -> Vec<Run> {
    wanted.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    let mut join: Vec<(Sectors, Sectors)> = Vec::new();
    for (at, len) in wanted {
        match join.last_mut() {
            Some((first, all)) if at <= *first + *all => {
                *all = (at + len).max(*first + *all) - *first;
            }
            _ => join.push((at, len)),
        }
    }
    for (at, len) in join {
        let pages = vec![Page::Missing; len.0.div_ceil(PAGE.0) as usize];
        let mut run = Run { at, bytes: vec![0; len.len()], pages };
        if let Some(member) = member {
            read_run(member, &mut run);
        }
        runs.push(run);
    }
    runs
}

/// In one go where nothing is in the way, else page by page.
fn read_run(member: &Member, run: &mut Run) {
    let len = Sectors::floor_bytes(run.bytes.len() as u64);
    let whole = member.complete.is_none_or(|end| run.at + len <= end);
    if whole && !member.is_bad(run.at, len) {
        let read = read_at(&*member.device, member.data_at + run.at, &mut run.bytes);
        if read.is_ok() {
            run.pages.fill(Page::Good);
            return;
        }
    }
    let bytes = run.bytes.chunks_mut(PAGE.len());
    for (number, (bytes, page)) in bytes.zip(&mut run.pages).enumerate() {
        let at = run.at + PAGE.times(number as u64);
        let len = Sectors::floor_bytes(bytes.len() as u64);
        *page = if member.complete.is_some_and(|end| at + len > end) {
            Page::Missing
        } else if member.is_bad(at, len)
            || read_at(&*member.device, member.data_at + at, bytes).is_err()
        {
            Page::Unreadable
        } else {
            Page::Good
        };
    }
}
