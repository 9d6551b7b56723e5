//! From an array offset to the members and back, with the arithmetic in words.
//!
//! Offsets are bytes; those on members count from the member's data offset. The steps come from
//! the level itself ([`Layout::steps`]), the results from the contract every level fulfils, so
//! that the words can be checked against the code that serves data.

use super::{Code, Layout, Role, Stripe, Unit};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{SECTOR, Sectors, Slot, SlotSet, StripeNo};

/// One place on a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// What it holds.
    pub role: Role,
    /// The member's slot.
    pub slot: Slot,
    /// Bytes from the member's data offset.
    pub offset: u64,
    /// The exponent with which Q counts the unit; zero for other codes and for P and Q.
    pub power: u8,
}

/// Where a byte of the array is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The byte of the array.
    pub offset: u64,
    /// The stripe that holds it.
    pub stripe: StripeNo,
    /// The number of its chunk (raid1 and linear: of the piece we move at a time).
    pub chunk: u64,
    /// The byte itself and its copies; for parity levels also the bytes of P and Q over it.
    pub places: Vec<Place>,
    /// The arithmetic, a sentence a step.
    pub steps: Vec<String>,
}

/// What a byte of a member is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A byte of the array, or its `copy`-th further copy where that is not zero.
    Data {
        /// The byte of the array.
        offset: u64,
        /// Zero for the first copy.
        copy: u16,
    },
    /// A byte of P.
    P,
    /// A byte of Q.
    Q,
    /// Nothing: the array does not use it.
    Unused,
}

/// What is at a byte of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Origin {
    /// The member's slot.
    pub slot: Slot,
    /// Bytes from the member's data offset.
    pub offset: u64,
    /// What is there.
    pub owner: Owner,
    /// The stripe that owns it, if one does.
    pub stripe: Option<StripeNo>,
    /// The arithmetic, a sentence a step.
    pub steps: Vec<String>,
}

/// How a byte of the array is read when members are missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadExplanation {
    /// Where the byte belongs.
    pub wanted: Place,
    /// What has to be read, in stripe order.
    pub reads: Vec<Place>,
    /// The formula, as `D0 = D1 ^ D2 ^ P`.
    pub formula: String,
}

/// Explains where byte `offset` of the array is; refuses offsets beyond its end.
pub fn array_offset(layout: &dyn Layout, offset: u64) -> Result<Explanation> {
    let spot = Spot::find(layout, offset)?;
    let mut steps = Vec::new();
    if spot.rest != 0 {
        let (sector, rest) = (spot.sector, spot.rest);
        steps.push(format!("sector = byte {offset} / {SECTOR} = {sector}, {rest} bytes into it"));
    } else {
        steps.push(format!("sector = byte {offset} / {SECTOR} = {}", spot.sector));
    }
    steps.extend(layout.steps(spot.sector));
    let places = spot
        .stripe
        .units
        .iter()
        .filter(|unit| !matches!(unit.role, Role::Data(index) if index != spot.index))
        .map(|unit| spot.place(unit))
        .collect();
    let chunk = spot.stripe.no.0 * layout.shape().data_units as u64 + spot.index as u64;
    Ok(Explanation { offset, stripe: spot.stripe.no, chunk, places, steps })
}

/// Explains what byte `offset` (from the data offset) of the member in `slot` is; refuses slots
/// the array does not have.
pub fn member_offset(layout: &dyn Layout, slot: Slot, offset: u64) -> Result<Origin> {
    if slot.0 >= layout.shape().slots {
        let last = layout.shape().slots - 1;
        return Err(Error::invalid(format!("there is no slot {slot}: the last one is {last}")));
    }
    let (at, rest) = (Sectors::floor_bytes(offset), offset % SECTOR);
    let mut steps = vec![format!("member sector = byte {offset} / {SECTOR} = {at}")];
    steps.extend(layout.steps_back(slot, at));
    let Some(no) = layout.find(slot, at) else {
        return Ok(Origin { slot, offset, owner: Owner::Unused, stripe: None, steps });
    };
    let stripe = layout.stripe(no);
    let here = |unit: &&Unit| unit.slot == slot && unit.at <= at && at < unit.at + stripe.len;
    let unit = stripe.units.iter().find(here).expect("find names a stripe with a unit there");
    let byte =
        |index: u64| (stripe.start + stripe.len.times(index) + (at - unit.at)).bytes() + rest;
    let owner = match unit.role {
        Role::Data(index) => Owner::Data { offset: byte(index as u64), copy: 0 },
        Role::Copy(copy) => Owner::Data { offset: byte(0), copy },
        Role::P => Owner::P,
        Role::Q => Owner::Q,
    };
    Ok(Origin { slot, offset, owner, stripe: Some(no), steps })
}

/// Explains how byte `offset` of the array is read without the `missing` slots; an error of kind
/// `Dead` where it cannot be.
pub fn read(layout: &dyn Layout, offset: u64, missing: &SlotSet) -> Result<ReadExplanation> {
    let spot = Spot::find(layout, offset)?;
    let units = &spot.stripe.units;
    let wanted = &units[spot.index as usize];
    let there = |unit: &Unit| !missing.contains(unit.slot);
    let answer = |reads: Vec<&Unit>, formula: String| ReadExplanation {
        wanted: spot.place(wanted),
        reads: reads.into_iter().map(|unit| spot.place(unit)).collect(),
        formula,
    };
    let name = role_name(wanted.role);
    if there(wanted) {
        return Ok(answer(vec![wanted], format!("{name} is read as it is")));
    }
    let dead = || {
        Error::new(
            ErrorKind::Dead,
            format!("byte {offset} of the array is lost without slots {missing}"),
        )
    };
    match layout.shape().code {
        Code::None => Err(dead()),
        Code::Copy => {
            let copy = units.iter().find(|unit| there(unit)).ok_or_else(dead)?;
            Ok(answer(vec![copy], format!("{name} = {}", role_name(copy.role))))
        }
        Code::P | Code::PQ => {
            let (reads, formula) = solve(units, wanted, missing).ok_or_else(dead)?;
            Ok(answer(reads, formula))
        }
    }
}

/// A byte of the array inside its stripe.
struct Spot {
    sector: Sectors,
    rest: u64,
    stripe: Stripe,
    /// Which data unit of the stripe.
    index: u16,
    /// Sectors into the unit.
    within: Sectors,
}

impl Spot {
    fn find(layout: &dyn Layout, offset: u64) -> Result<Spot> {
        let size = layout.shape().size;
        let (sector, rest) = (Sectors::floor_bytes(offset), offset % SECTOR);
        if sector >= size {
            let bytes = size.bytes();
            return Err(Error::invalid(format!(
                "byte {offset} is beyond the end of the array, which has {bytes} bytes"
            )));
        }
        let stripe = layout.stripe(layout.locate(sector));
        let into = sector - stripe.start;
        let (index, within) = (into.div_floor(stripe.len) as u16, into.rem(stripe.len));
        Ok(Spot { sector, rest, stripe, index, within })
    }

    fn place(&self, unit: &Unit) -> Place {
        let offset = (unit.at + self.within).bytes() + self.rest;
        Place { role: unit.role, slot: unit.slot, offset, power: unit.power }
    }
}

/// What to read and how to get `wanted` back from it, for P and Q.
fn solve<'a>(
    units: &'a [Unit],
    wanted: &Unit,
    missing: &SlotSet,
) -> Option<(Vec<&'a Unit>, String)> {
    let gone = |unit: &&Unit| missing.contains(unit.slot);
    let with = |role: Role| units.iter().find(|unit| unit.role == role && !gone(unit));
    let data: Vec<&Unit> =
        units.iter().filter(|unit| matches!(unit.role, Role::Data(_)) && !gone(unit)).collect();
    let data_gone: Vec<&Unit> =
        units.iter().filter(|unit| matches!(unit.role, Role::Data(_)) && gone(unit)).collect();
    let name = role_name(wanted.role);
    let plain: Vec<String> = data.iter().map(|unit| role_name(unit.role)).collect();
    let scaled: Vec<String> =
        data.iter().map(|unit| format!("2^{}*{}", unit.power, role_name(unit.role))).collect();
    let sum = |terms: &[String], last: &str| {
        terms.iter().map(String::as_str).chain([last]).collect::<Vec<_>>().join(" ^ ")
    };
    match (data_gone.as_slice(), with(Role::P), with(Role::Q)) {
        ([_], Some(p), _) => {
            let formula = format!("{name} = {}", sum(&plain, "P"));
            Some((data.into_iter().chain([p]).collect(), formula))
        }
        ([_], None, Some(q)) => {
            let formula = format!("{name} = ({}) / 2^{}", sum(&scaled, "Q"), wanted.power);
            Some((data.into_iter().chain([q]).collect(), formula))
        }
        ([x, y], Some(p), Some(q)) => {
            let other = if x.role == wanted.role { y } else { x };
            let formula = format!(
                "{name} = (2^{}*({}) ^ ({})) / (2^{} ^ 2^{})",
                other.power,
                sum(&plain, "P"),
                sum(&scaled, "Q"),
                wanted.power,
                other.power
            );
            Some((data.into_iter().chain([p, q]).collect(), formula))
        }
        _ => None,
    }
}

/// The short name of a role: `D0`, `copy 1`, `P`, `Q`.
pub fn role_name(role: Role) -> String {
    match role {
        Role::Data(index) => format!("D{index}"),
        Role::Copy(copy) => format!("copy {copy}"),
        Role::P => "P".to_string(),
        Role::Q => "Q".to_string(),
    }
}
