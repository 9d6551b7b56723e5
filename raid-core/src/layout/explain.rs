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

#[cfg(test)]
mod tests {
    use super::super::{Params, level_by_name};
    use super::*;

    const CHUNK: u64 = 65_536;

    fn build(level: &str, layout: &str, slots: u16) -> Box<dyn Layout> {
        let level = level_by_name(level).unwrap();
        let (layout, chunk) = ((level.parse_layout)(layout).unwrap(), Sectors::kib(64));
        let component = chunk.times(10);
        let members = (0..slots).map(|slot| chunk.times(10 + slot as u64 % 2 * 3)).collect();
        (level.make)(&Params { layout, chunk, slots, component, members }).unwrap()
    }

    #[test]
    fn the_arithmetic_of_raid5_in_words() {
        let layout = build("raid5", "ls", 4);
        let explained = array_offset(&*layout, 1_234_567).unwrap();
        let steps = [
            "sector = byte 1234567 / 512 = 2411, 135 bytes into it",
            "chunk = sector 2411 / 128 sectors = 18, 107 sectors into it",
            "stripe = chunk 18 / 3 data units = 6",
            "data unit = chunk 18 mod 3 = 0",
            "P slot = (4 - 1) - stripe 6 mod 4 = 1 (left-symmetric)",
            "slot of data unit 0: it starts behind P: (2 + 0) mod 4 = 2",
            "member sector = stripe 6 x 128 + 107 = 875",
        ];
        assert_eq!(explained.steps, steps);
        let places: Vec<_> =
            explained.places.iter().map(|place| (place.role, place.slot.0, place.offset)).collect();
        assert_eq!(places, [(Role::Data(0), 2, 448_135), (Role::P, 1, 448_135)]);
        let back = member_offset(&*layout, Slot(1), 448_135).unwrap();
        assert_eq!((back.owner, back.stripe), (Owner::P, Some(StripeNo(6))));
        assert_eq!(back.steps.last().unwrap(), "slot 1 is that slot: it holds P of stripe 6");
    }

    #[test]
    fn the_arithmetic_of_zones_in_words() {
        let layout = build("raid0", "alternate", 4);
        let steps = array_offset(&*layout, 43 * CHUNK).unwrap().steps;
        let expected = [
            "sector = byte 2818048 / 512 = 5504",
            "chunk = sector 5504 / 128 sectors = 43, 0 into it",
            "the members differ in size: chunks 40 to 45 are striped over slots 1, 3 from member \
             sector 1280 on",
            "member = (chunk 43 - 40 before the zone) mod 2 members = 1 (from 0) of them: slot 3",
            "row in the zone = 3 / 2 members = 1",
            "member sector = 1280 + 1 x 128 + 0 = 1408",
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn the_arithmetic_of_far_copies_in_words() {
        let layout = build("raid10", "f2", 3);
        let steps = array_offset(&*layout, 14 * CHUNK).unwrap().steps;
        let expected = [
            "sector = byte 917504 / 512 = 1792",
            "chunk = sector 1792 / 128 sectors = 14, 0 into it",
            "position = chunk 14 x 1 near copies = 14",
            "slot = 14 mod 3 members = 2",
            "row = 14 / 3 = 4",
            "each of the 2 far copies is 1 slot(s) on and one section of 5 rows down",
            "copy 0: slot 2, row 4: member sector = 4 x 128 + 0 = 512",
            "copy 1: slot 0, row 9: member sector = 9 x 128 + 0 = 1152",
        ];
        assert_eq!(steps, expected);
    }

    #[test]
    fn reading_around_lost_members() {
        let without = |slots: &[u16]| slots.iter().copied().map(Slot).collect::<SlotSet>();
        // Level, layout, slots, chunk, missing, formula.
        type Case<'a> = (&'a str, &'a str, u16, u64, &'a [u16], &'a str);
        let cases: &[Case] = &[
            ("raid5", "ls", 5, 0, &[], "D0 is read as it is"),
            ("raid5", "ls", 5, 0, &[0], "D0 = D1 ^ D2 ^ D3 ^ P"),
            ("raid5", "ls", 5, 1, &[0], "D1 is read as it is"),
            ("raid6", "ls", 5, 0, &[1], "D0 = D1 ^ D2 ^ P"),
            ("raid6", "ls", 5, 1, &[2, 4], "D1 = (2^0*D0 ^ 2^2*D2 ^ Q) / 2^1"),
            ("raid6", "ls", 5, 0, &[1, 3], "D0 = (2^2*(D1 ^ P) ^ (2^1*D1 ^ Q)) / (2^0 ^ 2^2)"),
            ("raid10", "n3", 3, 0, &[0, 1], "D0 = copy 2"),
            ("raid1", "-", 2, 0, &[0], "D0 = copy 1"),
        ];
        for &(level, layout, slots, chunk, missing, formula) in cases {
            let layout = build(level, layout, slots);
            let missing = without(missing);
            let read = read(&*layout, chunk * CHUNK, &missing).unwrap();
            assert_eq!(read.formula, formula, "{level} without {missing}");
            assert!(read.reads.iter().all(|place| !missing.contains(place.slot)));
        }
        let dead = read(&*build("raid5", "ls", 4), 0, &without(&[0, 1])).unwrap_err();
        assert_eq!(dead.kind, ErrorKind::Dead);
        assert!(read(&*build("raid0", "1", 2), 0, &without(&[0])).is_err());
    }

    #[test]
    fn places_that_do_not_exist_are_refused() {
        let layout = build("raid5", "ls", 4);
        assert!(array_offset(&*layout, layout.shape().size.bytes()).is_err());
        assert!(array_offset(&*layout, u64::MAX).is_err());
        assert!(member_offset(&*layout, Slot(4), 0).is_err());
        let beyond = member_offset(&*layout, Slot(0), u64::MAX).unwrap();
        assert_eq!((beyond.owner, beyond.stripe), (Owner::Unused, None));
    }
}
