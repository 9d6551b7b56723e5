//! What to do, as data: a request on one stripe becomes a list of phases.
//!
//! A request is cut into *bands* ([`split`]): in a band, every unit of one stripe is either wanted
//! over the band's whole height or not at all. So a plan speaks of whole columns and never of
//! half-covered units, and two bands of a stripe that do not overlap are independent.
//!
//! ```text
//! a write from the middle of D0 to the middle of D2      three bands of that stripe
//!   D0 . . W W      a D1 D2     (D0 not wanted)            band 0: D1 D2
//!   D1 W W W W  ->  b D0 D1 D2  (all wanted: full)         band 1: D0 D1 D2
//!   D2 W W W .      c D0 D1     (D2 not wanted)            band 2: D0 D1
//! ```
//!
//! Phases are barriers; the operations inside one are independent. Before `Commit` an error means:
//! mark the unit, throw the plan away, plan again. From `Commit` on a plan only goes forward.

mod read;
mod recover;
mod repair;
mod scrub;
mod write;

pub use read::read;
pub use recover::recover;
pub use repair::repair;
pub use scrub::scrub;
pub use write::{Ways, logged, ways, write};

use crate::layout::{Layout, Role, Stripe};
use crate::units::Sectors;
use smallvec::SmallVec;
use std::fmt;

/// Indexes into [`Stripe::units`].
pub type Units = SmallVec<[u16; 8]>;

/// What may be done with each unit of a band, in the order of [`Stripe::units`].
pub type Accesses = SmallVec<[Access; 8]>;

/// What may be done with one unit in one band.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    /// Its content is there and can be trusted.
    pub read: bool,
    /// Its member takes writes.
    pub write: bool,
    /// Its member is to be read only if no other can be (`write-mostly`).
    pub reluctant: bool,
}

impl Access {
    /// A healthy unit.
    pub const FULL: Access = Access { read: true, write: true, reluctant: false };
    /// A unit whose member is missing.
    pub const NONE: Access = Access { read: false, write: false, reluctant: false };
}

/// A run of sectors of a stripe in which the same data units are wanted from top to bottom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Band {
    /// The stripe.
    pub stripe: Stripe,
    /// First sector, counted inside each unit.
    pub low: Sectors,
    /// One past the last sector, counted inside each unit.
    pub high: Sectors,
    /// First wanted data unit.
    pub first: u16,
    /// Last wanted data unit.
    pub last: u16,
}

impl Band {
    /// Sectors of each unit in the band.
    pub fn height(&self) -> Sectors {
        self.high - self.low
    }

    /// Array sector where data unit `unit` of the band begins.
    pub fn array_at(&self, unit: u16) -> Sectors {
        self.stripe.start + self.stripe.len.times(unit.into()) + self.low
    }

    /// True if data unit `unit` is wanted.
    pub fn wants(&self, unit: u16) -> bool {
        (self.first..=self.last).contains(&unit)
    }
}

/// Cuts the array range `at..at + len` into bands, in ascending order of stripes.
/// The range must lie inside the array.
pub fn split(layout: &dyn Layout, at: Sectors, len: Sectors) -> Vec<Band> {
    assert!(at + len <= layout.shape().size, "range {at:?}+{len:?} is inside the array");
    let mut bands = Vec::new();
    let (mut at, end) = (at, at + len);
    while at < end {
        let stripe = layout.stripe(layout.locate(at));
        let stop = end.min(stripe.start + stripe.len.times(layout.shape().data_units.into()));
        bands_of(&stripe, at - stripe.start, stop - stripe.start, &mut bands);
        at = stop;
    }
    bands
}

/// The same bands in pieces of at most `rows` sectors, so that each fits where it must.
pub fn shortened(bands: Vec<Band>, rows: Sectors) -> Vec<Band> {
    assert!(!rows.is_empty(), "a band has rows");
    let pieces = |band: Band| {
        let count = band.height().0.div_ceil(rows.0);
        (0..count).map(move |piece| {
            let low = band.low + rows.times(piece);
            Band { low, high: band.high.min(low + rows), ..band.clone() }
        })
    };
    bands.into_iter().flat_map(pieces).collect()
}

/// The bands of `from..to`, counted in array sectors from the start of `stripe`.
fn bands_of(stripe: &Stripe, from: Sectors, to: Sectors, bands: &mut Vec<Band>) {
    let (first, last) = (from.div_floor(stripe.len), Sectors(to.0 - 1).div_floor(stripe.len));
    let (first, last) = (first as u16, last as u16);
    let low = from.rem(stripe.len);
    let high = Sectors(Sectors(to.0 - 1).rem(stripe.len).0 + 1);
    let mut push = |low: Sectors, high: Sectors, first: u16, last: u16| {
        if low < high && first <= last {
            bands.push(Band { stripe: stripe.clone(), low, high, first, last });
        }
    };
    if first == last {
        push(low, high, first, last);
        return;
    }
    push(Sectors::ZERO, low.min(high), first + 1, last);
    match low <= high {
        true => push(low, high, first, last),
        false => push(high, low, first + 1, last - 1),
    }
    push(low.max(high), stripe.len, first, last - 1);
}

/// One step of a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Read these units.
    Read(Units),
    /// Compute these lost data units from what was read.
    Solve(Units),
    /// Compute the parity units that can be written, from all data (new where there is new).
    Encode,
    /// Compute parity from old parity, old data and new data of the wanted units.
    Update,
    /// Tell the log what is about to be written.
    Log,
    /// The wanted data is complete: give it to whoever asked.
    Answer,
    /// Compare redundancy with data; what follows happens only where they differ.
    Compare,
    /// Write these units. From here on the plan only goes forward.
    Commit(Units),
}

/// A list of phases for one band.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The phases, in order.
    pub phases: SmallVec<[Phase; 5]>,
}

/// More units are lost than the stripe's redundancy can make up for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

impl Plan {
    fn of(phases: impl IntoIterator<Item = Phase>) -> Plan {
        Plan { phases: phases.into_iter().filter(|p| !p.is_empty()).collect() }
    }

    /// How many units are read.
    pub fn reads(&self) -> usize {
        self.phases.iter().map(|p| if let Phase::Read(units) = p { units.len() } else { 0 }).sum()
    }

    /// The plan in one line, units by role: `read D1 P | update | commit D1 P`.
    pub fn to_text(&self, stripe: &Stripe) -> String {
        let mut text = String::new();
        for (i, phase) in self.phases.iter().enumerate() {
            if i > 0 {
                text.push_str(" | ");
            }
            text.push_str(&phase.to_text(stripe));
        }
        text
    }

    /// Asserts what every plan promises: nothing is read twice, nothing unreadable is read,
    /// nothing unwritable is written, at most one commit, and nothing to read after it.
    pub fn check(&self, access: &[Access]) {
        let mut read = vec![false; access.len()];
        let mut commits = 0;
        for phase in &self.phases {
            match phase {
                Phase::Read(units) => {
                    assert_eq!(commits, 0, "no read after commit: {self:?}");
                    for &unit in units {
                        assert!(access[unit as usize].read, "unit {unit} can be read: {self:?}");
                        assert!(!read[unit as usize], "unit {unit} is read once: {self:?}");
                        read[unit as usize] = true;
                    }
                }
                Phase::Commit(units) => {
                    commits += 1;
                    for &unit in units {
                        assert!(access[unit as usize].write, "unit {unit} takes writes: {self:?}");
                    }
                }
                Phase::Solve(_)
                | Phase::Encode
                | Phase::Update
                | Phase::Answer
                | Phase::Log
                | Phase::Compare => {}
            }
        }
        assert!(commits <= 1, "at most one commit: {self:?}");
    }
}

impl Phase {
    fn is_empty(&self) -> bool {
        match self {
            Phase::Read(units) | Phase::Solve(units) | Phase::Commit(units) => units.is_empty(),
            Phase::Encode | Phase::Update | Phase::Log | Phase::Answer | Phase::Compare => false,
        }
    }

    fn to_text(&self, stripe: &Stripe) -> String {
        let (word, units): (&str, &[u16]) = match self {
            Phase::Read(units) => ("read", units),
            Phase::Solve(units) => ("solve", units),
            Phase::Commit(units) => ("commit", units),
            Phase::Encode => ("encode", &[]),
            Phase::Update => ("update", &[]),
            Phase::Log => ("log", &[]),
            Phase::Answer => ("answer", &[]),
            Phase::Compare => ("compare", &[]),
        };
        let mut text = String::from(word);
        for &unit in units {
            text.push_str(&format!(" {}", stripe.units[unit as usize].role));
        }
        text
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Data(n) => write!(f, "D{n}"),
            Role::Copy(n) => write!(f, "C{n}"),
            Role::P => f.write_str("P"),
            Role::Q => f.write_str("Q"),
        }
    }
}

/// The copy to read: the first that can be read, a reluctant one only if there is no other.
pub(crate) fn first_copy(access: &[Access]) -> Option<usize> {
    let willing = access.iter().position(|a| a.read && !a.reluctant);
    willing.or_else(|| access.iter().position(|a| a.read))
}

/// The indexes of the units for which `test` holds.
pub(crate) fn pick(stripe: &Stripe, test: impl Fn(usize, Role) -> bool) -> Units {
    let units = stripe.units.iter().enumerate();
    units.filter(|(i, u)| test(*i, u.role)).map(|(i, _)| i as u16).collect()
}

#[cfg(test)]
pub(crate) mod tests;
