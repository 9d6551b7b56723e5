//! Where things are: the contract every level fulfils, and the table of levels.
//!
//! A layout is numbers only. It answers three questions about an array of a fixed geometry:
//! which stripe holds an array sector ([`Layout::locate`]), which units make up a stripe
//! ([`Layout::stripe`]), and which stripe owns a member sector ([`Layout::find`]).
//! Everything else ([`failures`], [`picture`], [`explain`]) is written once on top.
//!
//! Numbers come from superblocks and may be hostile: `make` checks them all ([`check`]), so that
//! no question to a finished layout can overflow. Questions outside the array are bugs and panic.
//!
//! To add a level: write `layout/x.rs` with a `LEVEL`, add `mod x;` and a line in [`LEVELS`];
//! the law tests, pictures and command line follow from the table.

pub mod check;
pub mod explain;
pub mod failures;
pub mod linear;
pub mod names;
pub mod picture;
pub mod raid0;
pub mod raid1;
pub mod raid10;
pub mod raid4;
pub mod raid5;
pub mod raid6;
pub mod rotation;
pub mod svg;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod placements;

pub use failures::{Lost, lost, surviving_sets};

use crate::error::{Error, ErrorKind, Result};
use crate::units::{Sectors, Slot, SlotSet, StripeNo};
use smallvec::SmallVec;
use std::fmt;

/// What a unit of a stripe holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Role {
    /// The n-th data unit of the stripe, in array order, from 0.
    Data(u16),
    /// The k-th further copy (from 1) of data unit 0; only in [`Code::Copy`] stripes.
    Copy(u16),
    /// XOR of the data units.
    P,
    /// Reed-Solomon syndrome of the data units.
    Q,
}

impl Role {
    /// True for P and Q.
    pub fn is_parity(self) -> bool {
        matches!(self, Role::P | Role::Q)
    }
}

/// How the units of a stripe depend on each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Code {
    /// One unit, no redundancy (linear, RAID 0).
    None,
    /// One data unit and its copies (RAID 1, RAID 10).
    Copy,
    /// Data units and P (RAID 4, RAID 5).
    P,
    /// Data units, P and Q (RAID 6).
    PQ,
}

impl Code {
    /// True if lost units come back by arithmetic, not from a copy.
    pub fn has_parity(self) -> bool {
        matches!(self, Code::P | Code::PQ)
    }
}

/// A contiguous run of sectors of one member, as part of a stripe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unit {
    /// What it holds.
    pub role: Role,
    /// The exponent of this data unit in Q: Q = sum of 2^power * D. Zero for P, Q and other codes.
    pub power: u8,
    /// The member's slot.
    pub slot: Slot,
    /// First sector, counted from the member's data offset.
    pub at: Sectors,
}

/// The smallest set of units that must agree with each other.
///
/// Units come in order: data units by number, then copies by number, then P, then Q.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// Its number.
    pub no: StripeNo,
    /// First array sector it holds.
    pub start: Sectors,
    /// Sectors in each of its units; the stripe holds `len * data_units` array sectors.
    pub len: Sectors,
    /// The units.
    pub units: SmallVec<[Unit; 8]>,
}

impl Stripe {
    /// The data units, in array order (for [`Code::Copy`]: the first copy).
    pub fn data(&self) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(|u| matches!(u.role, Role::Data(_)))
    }
}

/// What is constant over an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The level as md writes it: -1 linear, 0, 1, 4, 5, 6, 10.
    pub level: i32,
    /// Number of slots: md's `raid_disks`.
    pub slots: u16,
    /// md's chunk; zero where the level has none.
    pub chunk: Sectors,
    /// Data units in a stripe.
    pub data_units: u16,
    /// Number of stripes.
    pub stripes: u64,
    /// Array size, equal to md's to the sector.
    pub size: Sectors,
    /// How units depend on each other.
    pub code: Code,
    /// Failures survived whichever members they hit.
    pub tolerance: u16,
    /// After how many stripes the assignment of roles to slots repeats (at least 1).
    /// Where it never does (linear, RAID 0 with zones) this is the number of stripes;
    /// [`Layout::regions`] then gives the parts inside which it does.
    pub period: u64,
}

impl Shape {
    /// The stripe of array sector `at` where stripes follow each other, each with its data units
    /// of `unit` sectors one behind the other.
    ///
    /// # Panics
    /// `at` is beyond the array.
    fn stripe_at(&self, at: Sectors, unit: Sectors) -> StripeNo {
        assert!(at < self.size, "sector {at} is beyond the array ({})", self.size);
        StripeNo(at.div_floor(unit) / u64::from(self.data_units))
    }
}

/// A run of stripes inside which the assignment of roles to slots repeats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first stripe.
    pub first: StripeNo,
    /// How many stripes it has.
    pub stripes: u64,
    /// After how many stripes the assignment repeats (at least 1).
    pub period: u64,
}

/// Something about a layout that the user must know before data is trusted to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hazard {
    /// All copies of some chunks are on one member: losing it loses them.
    /// Such an array may only be read.
    NoRedundancy {
        /// The first such stripe.
        stripe: StripeNo,
        /// The member that holds every copy of it.
        slot: Slot,
        /// How many copies there are.
        copies: u16,
    },
    /// Some chunks have two copies on one member, and another copy elsewhere.
    LessRedundancy {
        /// The first such stripe.
        stripe: StripeNo,
        /// How many copies there are.
        copies: u16,
        /// How many different members hold them.
        members: u16,
    },
}

impl Hazard {
    /// True if the array must not be written through this layout.
    pub fn read_only(&self) -> bool {
        matches!(self, Hazard::NoRedundancy { .. })
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hazard::NoRedundancy { stripe, slot, copies } => {
                write!(
                    f,
                    "no redundancy: all {copies} copies of chunk {} are on member {slot}",
                    stripe.0
                )
            }
            Hazard::LessRedundancy { stripe, copies, members } => write!(
                f,
                "less redundancy than the layout says: the {copies} copies of chunk {} are on only \
                 {members} members",
                stripe.0
            ),
        }
    }
}

/// A geometry. Pure: same question, same answer.
pub trait Layout: Send + Sync + fmt::Debug {
    /// What is constant.
    fn shape(&self) -> &Shape;

    /// The stripe that holds array sector `at`; `at` is below the array size.
    fn locate(&self, at: Sectors) -> StripeNo;

    /// The units of stripe `no`; `no` is below the number of stripes.
    fn stripe(&self, no: StripeNo) -> Stripe;

    /// The stripe that owns sector `at` (from the data offset) of `slot`, if any does.
    fn find(&self, slot: Slot, at: Sectors) -> Option<StripeNo>;

    /// True if every stripe can still be served without the `missing` slots.
    /// The default counts; levels whose copies pair up look at a whole period.
    fn survives(&self, missing: &SlotSet) -> bool {
        missing.len() <= self.shape().tolerance as usize
    }

    /// The parts inside which the assignment of roles to slots repeats, in array order.
    fn regions(&self) -> Vec<Region> {
        let shape = self.shape();
        vec![Region { first: StripeNo(0), stripes: shape.stripes, period: shape.period }]
    }

    /// What the user must know before trusting data to this layout, if anything.
    fn hazard(&self) -> Option<Hazard> {
        None
    }

    /// The request size that uses every data member once, as md exports it in
    /// `queue/optimal_io_size`; zero where md gives none.
    fn io_opt(&self) -> Sectors {
        self.shape().chunk.times(self.shape().data_units as u64)
    }

    /// The arithmetic from array sector `at` (below the array size) to its member sector, one
    /// sentence a step, with this array's numbers.
    fn steps(&self, at: Sectors) -> Vec<String> {
        vec![format!("array sector {at} is in stripe {}", self.locate(at).0)]
    }

    /// The arithmetic from sector `at` of `slot` to the stripe that owns it.
    fn steps_back(&self, slot: Slot, at: Sectors) -> Vec<String> {
        vec![match self.find(slot, at) {
            Some(no) => format!("sector {at} of slot {slot} is in stripe {}", no.0),
            None => format!("sector {at} of slot {slot} is not used"),
        }]
    }
}

/// Everything a level needs to build its layout, as found in a superblock or typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// md's layout word of the level (RAID 5/6 algorithm, RAID 10 word, RAID 0 1/2, else 0).
    pub layout: u32,
    /// Chunk in sectors; zero for RAID 1 and for linear without rounding.
    pub chunk: Sectors,
    /// Number of slots.
    pub slots: u16,
    /// Used sectors per member (md's component size); zero for RAID 0 and linear.
    pub component: Sectors,
    /// Usable data sectors of each member by slot; RAID 0 and linear are built from these.
    pub members: Vec<Sectors>,
}

/// A row of the table of levels.
pub struct Level {
    /// The name to print: `raid5`.
    pub name: &'static str,
    /// Other words accepted for it: `5`, `stripe`, `mirror`.
    pub aliases: &'static [&'static str],
    /// md's number.
    pub number: i32,
    /// One line for help and pictures.
    pub summary: &'static str,
    /// Fewest slots that make sense.
    pub slots_min: u16,
    /// Layout names and words, the default first; empty where the level has none.
    /// RAID 10's `n2`, `f2`, `o2` are parsed by [`Level::parse_layout`] instead.
    pub layouts: &'static [(&'static str, u32)],
    /// Turns a layout name (or decimal or 0x number) into its word.
    pub parse_layout: fn(&str) -> Result<u32>,
    /// The name of a layout word, as mdadm prints it (`left-symmetric`, `near=2`).
    pub layout_name: fn(u32) -> String,
    /// Checks the parameters and builds the layout.
    pub make: fn(&Params) -> Result<Box<dyn Layout>>,
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Every level we know, by number.
pub const LEVELS: &[&Level] = &[
    &linear::LEVEL,
    &raid0::LEVEL,
    &raid1::LEVEL,
    &raid4::LEVEL,
    &raid5::LEVEL,
    &raid6::LEVEL,
    &raid10::LEVEL,
];

/// The level with md's `number`; an error of kind `Unsupported` if we do not know it.
pub fn level_by_number(number: i32) -> Result<&'static Level> {
    LEVELS.iter().copied().find(|level| level.number == number).ok_or_else(|| {
        let what = match number {
            -4 => " (multipath)",
            -5 => " (faulty)",
            -100 => " (container)",
            _ => "",
        };
        unknown_level(&format!("{number}{what}"))
    })
}

/// The level called `name` in mdadm's words, in any case: `raid5`, `5`, `stripe`, `mirror`, `-1`.
pub fn level_by_name(name: &str) -> Result<&'static Level> {
    let word = name.trim().to_ascii_lowercase();
    LEVELS
        .iter()
        .copied()
        .find(|level| level.name == word || level.aliases.contains(&word.as_str()))
        .ok_or_else(|| unknown_level(&format!("'{}'", name.trim())))
}

/// Checks `params` for md's level `number` and builds the layout.
pub fn make(number: i32, params: &Params) -> Result<Box<dyn Layout>> {
    (level_by_number(number)?.make)(params)
}

fn unknown_level(found: &str) -> Error {
    let known: Vec<_> = LEVELS.iter().map(|level| level.name).collect();
    let message = format!("RAID level {found} is not supported; known are {}", known.join(", "));
    Error::new(ErrorKind::Unsupported, message)
}
