//! Resync: making redundancy consistent again after an unclean stop, band by band.
//!
//! It goes through the stripes in order with a few bands under way at a time, through the same
//! plans and turns as everything else. While users' requests are open it keeps to one band.

use super::flight::{Flight, Kind, Owner};
use super::{Actions, Engine};
use crate::error::ErrorKind;
use crate::layout::{Code, Layout};
use crate::plan::Band;
use crate::units::{Sectors, StripeNo};

/// Bands under way at once when nobody else wants the members.
const DEPTH: usize = 4;

/// Largest height of a band: bounds memory at this times the members times [`DEPTH`].
const HEIGHT: Sectors = Sectors(256);

/// Bands skipped at most; a member with more unreadable places has to be replaced first.
const SKIPPED_MAX: usize = 1024;

/// Where the job is.
#[derive(Debug)]
pub(super) struct Resync {
    next: (StripeNo, Sectors),
    under_way: Vec<(StripeNo, Sectors)>,
    halted: bool,
    /// A halted job has told the superblocks how far it got.
    settled: bool,
    /// Bands that could not be made consistent because a unit did not read.
    skipped: Vec<(StripeNo, Sectors)>,
}

impl Resync {
    /// True if `band` is consistent again.
    pub fn is_behind(&self, band: &Band) -> bool {
        let overlaps = |&(no, low): &(StripeNo, Sectors)| {
            no == band.stripe.no && low < band.high && band.low < low + HEIGHT
        };
        band.stripe.no < self.frontier() && !self.skipped.iter().any(overlaps)
    }

    /// The first stripe that is not done.
    fn frontier(&self) -> StripeNo {
        self.under_way.iter().map(|u| u.0).fold(self.next.0, StripeNo::min)
    }
}

impl Engine {
    /// Starts the job if redundancy may be wrong and can be made right.
    pub(super) fn begin_resync(&mut self, out: &mut Actions) {
        let Some(from) = self.unsynced else { return };
        if self.shape.code == Code::None {
            self.unsynced = None;
            return;
        }
        let parity = matches!(self.shape.code, Code::P | Code::PQ);
        if self.read_only || (parity && !self.health.missing().is_empty()) {
            if self.trust_unsynced && !self.read_only {
                self.unsynced = None;
            }
            return;
        }
        let next = (stripe_at(&*self.layout, from), Sectors::ZERO);
        self.resync = Some(Resync {
            next,
            under_way: Vec::new(),
            halted: false,
            settled: false,
            skipped: Vec::new(),
        });
        self.feed_resync(out);
    }

    /// Stops after the bands under way; where it got to is kept.
    pub(super) fn halt_resync(&mut self) {
        if let Some(resync) = &mut self.resync {
            resync.halted = true;
        }
    }

    fn feed_resync(&mut self, out: &mut Actions) {
        loop {
            let depth = if self.asks.is_empty() { DEPTH } else { 1 };
            let Some(resync) = &mut self.resync else { return };
            let over = resync.next.0.0 >= self.shape.stripes;
            if resync.halted || over || resync.under_way.len() >= depth {
                break;
            }
            let (no, low) = resync.next;
            let stripe = self.layout.stripe(no);
            let high = stripe.len.min(low + HEIGHT);
            resync.under_way.push((no, low));
            resync.next = match high < stripe.len {
                true => (no, high),
                false => (StripeNo(no.0 + 1), Sectors::ZERO),
            };
            let last = self.shape.data_units - 1;
            let band = Band { stripe, low, high, first: 0, last };
            let flight = self.flights.insert(Flight::new(Owner::Resync, Kind::Repair, band));
            self.start(flight, out);
        }
        self.end_resync(out);
    }

    /// One band is done.
    pub(super) fn repaired(
        &mut self,
        band: &Band,
        trouble: Option<(ErrorKind, String)>,
        out: &mut Actions,
    ) {
        let degraded = !self.health.missing().is_empty();
        let Some(resync) = &mut self.resync else { return };
        let place = (band.stripe.no, band.low);
        let index = resync.under_way.iter().position(|&u| u == place);
        resync.under_way.swap_remove(index.expect("a band under way is in the list"));
        let parity = matches!(self.shape.code, Code::P | Code::PQ);
        if parity && degraded {
            // What is behind stays behind; the rest cannot be made right now.
            resync.halted = true;
            resync.next = resync.next.min(place);
        } else if trouble.is_some() {
            // An unreadable unit: nothing can tell whether the parity that would bring it back is
            // right. The rest goes on; this band stays unsynced.
            self.stats.resync_skipped += 1;
            resync.skipped.push(place);
            resync.halted |= resync.skipped.len() >= SKIPPED_MAX;
        }
        self.feed_resync(out);
    }

    /// When no band is under way: the job is over, or halted and its place is recorded.
    pub(super) fn end_resync(&mut self, out: &mut Actions) {
        let Some(resync) = &mut self.resync else { return };
        if !resync.under_way.is_empty() {
            return;
        }
        let over = resync.next.0.0 >= self.shape.stripes;
        if over && resync.skipped.is_empty() {
            self.resync = None;
            self.unsynced = None;
        } else if (over || resync.halted) && !resync.settled {
            (resync.settled, resync.halted) = (true, true);
            // The next start begins with the first band that is not done.
            let first = resync.skipped.iter().map(|s| s.0).fold(resync.next.0, StripeNo::min);
            let reached = sector_of(&*self.layout, first);
            self.unsynced = self.unsynced.map(|from| from.max(reached));
        } else {
            return;
        }
        self.changed(out);
        self.mark_clean_when_idle(out);
    }

    /// Done and total stripes of a resync that is going on.
    pub(super) fn resync_progress(&self) -> Option<(u64, u64)> {
        let resync = self.resync.as_ref().filter(|r| !r.halted)?;
        Some((resync.frontier().0, self.shape.stripes))
    }
}

/// The stripe where md's resync position `at` lies: array sectors for RAID 10, else member sectors.
fn stripe_at(layout: &dyn Layout, at: Sectors) -> StripeNo {
    let shape = layout.shape();
    if shape.stripes == 0 || at.is_empty() {
        return StripeNo(0);
    }
    let len = layout.stripe(StripeNo(0)).len;
    StripeNo(at.div_floor(len).min(shape.stripes))
}

/// md's resync position of the beginning of stripe `no`; for every level a stripe is one unit
/// high in the units md counts in.
fn sector_of(layout: &dyn Layout, no: StripeNo) -> Sectors {
    layout.stripe(StripeNo(0)).len.times(no.0)
}
