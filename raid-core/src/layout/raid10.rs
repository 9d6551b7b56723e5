//! RAID 10: every chunk on several members, in near, far and offset placement and their products.
//!
//! The layout word: near copies in bits 0-7, far copies in bits 8-15, bit 16 for offset instead of
//! far, bits 17-18 for the far-set mode; anything above is refused (`setup_geo` in
//! `drivers/md/raid10.c`). Near copies of a chunk follow each other; each far copy is `near` slots
//! further (inside its set of slots, if the mode divides them into sets) and one section, or with
//! offset one row, further down.
//!
//! Some words the kernel runs put two chunks on one sector: that destroys data as it is written,
//! so every word is tried over a whole period and such words are refused. Others put all copies
//! of a chunk on one member: those are built, with a [`Hazard`].

use super::{Code, Hazard, Layout, Level, Params, Role, Shape, Stripe, Unit, check, names};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{Sectors, Slot, SlotSet, StripeNo};
use smallvec::SmallVec;

/// RAID 10 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid10",
    aliases: &["10"],
    number: 10,
    summary: "every chunk on several members, striped; survives some losses",
    slots_min: 2,
    layouts: &[],
    parse_layout,
    layout_name,
    make,
};

/// The layout word of `near=2`, mdadm's default.
pub const DEFAULT: u32 = 0x102;

/// A layout word taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    near: u16,
    far: u16,
    offset: bool,
    /// Far-set mode: 0 none, 1 the first attempt (sets of slots / far), 2 (sets of near x far).
    sets: u32,
}

impl Word {
    fn split(word: u32) -> Word {
        let (near, far) = (word & 0xff, word >> 8 & 0xff);
        let offset = word >> 16 & 1 == 1;
        Word { near: near as u16, far: far as u16, offset, sets: word >> 17 }
    }

    fn join(self) -> u32 {
        self.near as u32 | (self.far as u32) << 8 | u32::from(self.offset) << 16 | self.sets << 17
    }

    fn copies(self) -> u16 {
        self.near * self.far
    }
}

/// `n2`, `near=2`, `f2`, `o2`, products as `near=2, far=2`, far sets as `far-sets=1`, or a number.
fn parse_layout(text: &str) -> Result<u32> {
    let folded = text.trim().to_ascii_lowercase();
    if folded == "default" {
        return Ok(DEFAULT);
    }
    if let Some(number) = names::number(&folded) {
        return Ok(number);
    }
    let unknown = || {
        Error::invalid(format!(
            "raid10 has no layout '{}'; it has n2 (near=2), f2 (far=2), o2 (offset=2) with any \
             number of copies, 'near=2, far=2', or the number of the layout word",
            text.trim()
        ))
    };
    let mut word = Word { near: 1, far: 1, offset: false, sets: 0 };
    let (mut near_seen, mut far_seen, mut sets_seen) = (false, false, false);
    for part in folded.split([',', ' ']).filter(|part| !part.is_empty()) {
        let digits = part.find(|c: char| c.is_ascii_digit()).ok_or_else(unknown)?;
        let (name, count) = part.split_at(digits);
        let count: u16 = count.parse().ok().filter(|n| (1..256).contains(n)).ok_or_else(unknown)?;
        let seen = match name.trim_end_matches('=') {
            "n" | "near" => {
                word.near = count;
                &mut near_seen
            }
            kind @ ("f" | "far" | "o" | "offset") => {
                (word.far, word.offset) = (count, kind.starts_with('o'));
                &mut far_seen
            }
            "far-sets" if count <= 2 => {
                word.sets = count as u32;
                &mut sets_seen
            }
            _ => return Err(unknown()),
        };
        if std::mem::replace(seen, true) {
            return Err(unknown());
        }
    }
    if near_seen || far_seen { Ok(word.join()) } else { Err(unknown()) }
}

/// As mdadm prints it; the number where that would lose something.
fn layout_name(number: u32) -> String {
    let word = Word::split(number);
    let mut parts = Vec::new();
    if word.near != 1 {
        parts.push(format!("near={}", word.near));
    }
    if word.far != 1 {
        parts.push(format!("{}={}", if word.offset { "offset" } else { "far" }, word.far));
    }
    if word.sets != 0 {
        parts.push(format!("far-sets={}", word.sets));
    }
    let name = parts.join(", ");
    let faithful = parse_layout(&name).is_ok_and(|parsed| parsed == number);
    if faithful { name } else { format!("{number:#x}") }
}

/// Where copies go, in slots and rows of chunks: the kernel's `__raid10_find_phys`.
#[derive(Clone, Debug)]
struct Placement {
    slots: u64,
    near: u64,
    far: u64,
    offset: bool,
    /// Slots in a far set; all of them where there are no sets.
    set: u64,
    /// Rows from one far copy to the next: of a section, or 1 for offset.
    stride: u64,
}

impl Placement {
    /// The slot of the next far copy of what is on `slot`.
    fn further(&self, slot: u64) -> u64 {
        let rest = self.slots % self.set;
        // The last whole set and the slots left over behind it form one larger set.
        let last_start = (self.slots / self.set - 1) * self.set;
        let last_size = self.set + rest;
        let moved = slot + self.near;
        if rest != 0 && moved > last_start {
            (moved - last_start) % last_size + last_start
        } else {
            moved % self.set + slot / self.set * self.set
        }
    }

    /// Slot and row of every copy of chunk `number`, in md's order.
    fn copies(&self, number: u64) -> SmallVec<[(u64, u64); 8]> {
        let first = number * self.near;
        let step = if self.offset { self.far } else { 1 };
        let row_of_first = first / self.slots * step;
        let mut copies = SmallVec::new();
        for near in 0..self.near {
            let position = first % self.slots + near;
            let mut slot = position % self.slots;
            let mut row = row_of_first + position / self.slots;
            copies.push((slot, row));
            for _ in 1..self.far {
                slot = self.further(slot);
                row += self.stride;
                copies.push((slot, row));
            }
        }
        copies
    }

    /// After how many chunks the slots repeat.
    fn period(&self) -> u64 {
        self.slots / gcd(self.slots, self.near)
    }
}

#[derive(Debug)]
struct Raid10 {
    shape: Shape,
    placement: Placement,
    /// For far copy `f` on `slot`, at `f * slots + slot`: the slot of its first copy.
    origins: Vec<u16>,
    hazard: Option<Hazard>,
}

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    check::slots(&LEVEL, params, check::SLOTS_MAX)?;
    let word = checked_word(params)?;
    check::chunk_power_of_two(&LEVEL, params.chunk)?;
    check::component(&LEVEL, params.component, params.chunk.times(word.far as u64))?;
    let (slots, near, far) = (params.slots as u64, word.near as u64, word.far as u64);
    let section = params.component.div_floor(params.chunk) / far;
    // All divisions round down, in this order: md's size depends on it. The product is below
    // 2^51 chunks times 2^11 slots.
    let chunks = section * slots / near;
    let set = match word.sets {
        1 => slots / far,
        2 => near * far,
        _ => slots,
    };
    let stride = if word.offset { 1 } else { section };
    let placement = Placement { slots, near, far, offset: word.offset, set, stride };
    refuse_collisions(params, &placement)?;
    let (hazard, members_min) = spread(&placement);
    let shape = Shape {
        level: LEVEL.number,
        slots: params.slots,
        chunk: params.chunk,
        data_units: 1,
        stripes: chunks,
        size: check::array_size(&LEVEL, params.chunk, chunks)?,
        code: Code::Copy,
        tolerance: members_min - 1,
        period: placement.period(),
    };
    let origins = origins(&placement);
    Ok(Box::new(Raid10 { shape, placement, origins, hazard }))
}

/// The layout word of `params`, if it is one at all and fits the number of slots.
fn checked_word(params: &Params) -> Result<Word> {
    let (number, word) = (params.layout, Word::split(params.layout));
    let reason = if number >> 19 != 0 {
        "bits 19 and above must be zero"
    } else if word.sets == 3 {
        "bits 17 and 18 must not both be set"
    } else if word.near == 0 || word.far == 0 {
        "the near and far copies must be at least 1 each"
    } else if word.copies() < 2 {
        "it keeps only one copy: at least 2 are needed"
    } else if word.copies() > params.slots {
        return Err(Error::invalid(format!(
            "raid10 layout {} keeps {} copies: that needs at least {0} members, not {}",
            layout_name(number),
            word.copies(),
            params.slots
        )));
    } else {
        return Ok(word);
    };
    Err(Error::invalid(format!("raid10 layout word {number:#x} is not valid: {reason}")))
}

/// Tries every chunk of a period: no two may share a sector.
///
/// A period ends at the end of a row (of a group of rows, for offset), so that what happens in
/// the first period is what happens in all.
fn refuse_collisions(params: &Params, placement: &Placement) -> Result<()> {
    let rows = placement.period() * placement.near / placement.slots;
    let stride = if placement.offset { 1 } else { rows };
    let sample = Placement { stride, ..placement.clone() };
    let mut owners = vec![u64::MAX; (placement.slots * rows * placement.far) as usize];
    for number in 0..placement.period() {
        for (slot, row) in sample.copies(number) {
            let owner = &mut owners[(row * placement.slots + slot) as usize];
            if *owner != u64::MAX {
                return Err(Error::new(
                    ErrorKind::Refused,
                    format!(
                        "raid10 layout {} on {} members puts chunks {owner} and {number} on the \
                         same place of member {slot}: data written through it is lost, also \
                         with the kernel",
                        layout_name(params.layout),
                        params.slots
                    ),
                ));
            }
            *owner = number;
        }
    }
    Ok(())
}

/// The hazard of chunks whose copies share members, and the fewest members any chunk is on.
fn spread(placement: &Placement) -> (Option<Hazard>, u16) {
    let copies = (placement.near * placement.far) as u16;
    let (mut least, mut first) = (copies, 0);
    for number in 0..placement.period() {
        let on: SlotSet =
            placement.copies(number).iter().map(|&(slot, _)| Slot(slot as u16)).collect();
        let members = on.len() as u16;
        if members < least {
            (least, first) = (members, number);
        }
    }
    let stripe = StripeNo(first);
    let slot = Slot(placement.copies(first)[0].0 as u16);
    let hazard = match least {
        1 => Some(Hazard::NoRedundancy { stripe, slot, copies }),
        members if members < copies => Some(Hazard::LessRedundancy { stripe, copies, members }),
        _ => None,
    };
    (hazard, least)
}

/// The inverse of [`Placement::further`], for each far copy.
fn origins(placement: &Placement) -> Vec<u16> {
    let slots = placement.slots as usize;
    let mut origins = vec![u16::MAX; slots * placement.far as usize];
    for origin in 0..slots {
        let mut slot = origin as u64;
        for far in 0..placement.far as usize {
            origins[far * slots + slot as usize] = origin as u16;
            slot = placement.further(slot);
        }
    }
    assert!(!origins.contains(&u16::MAX), "a layout without collisions fills every slot");
    origins
}

impl Layout for Raid10 {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn locate(&self, at: Sectors) -> StripeNo {
        assert!(at < self.shape.size, "sector {at} is beyond the array ({})", self.shape.size);
        StripeNo(at.div_floor(self.shape.chunk))
    }

    fn stripe(&self, no: StripeNo) -> Stripe {
        assert!(no.0 < self.shape.stripes, "stripe {} is beyond the array", no.0);
        let units = (0u16..)
            .zip(self.placement.copies(no.0))
            .map(|(copy, (slot, row))| {
                let role = if copy == 0 { Role::Data(0) } else { Role::Copy(copy) };
                let at = self.shape.chunk.times(row);
                Unit { role, power: 0, slot: Slot(slot as u16), at }
            })
            .collect();
        Stripe { no, start: self.shape.chunk.times(no.0), len: self.shape.chunk, units }
    }

    fn find(&self, slot: Slot, at: Sectors) -> Option<StripeNo> {
        if slot.0 >= self.shape.slots {
            return None;
        }
        let (far, row) = self.far_and_row(at)?;
        let position = row * self.placement.slots + self.origin(far, slot);
        let number = position / self.placement.near;
        (number < self.shape.stripes).then_some(StripeNo(number))
    }

    fn survives(&self, missing: &SlotSet) -> bool {
        if missing.len() <= self.shape.tolerance as usize {
            return true;
        }
        (0..self.shape.period.min(self.shape.stripes)).all(|number| {
            let copies = self.placement.copies(number);
            copies.iter().any(|&(slot, _)| !missing.contains(Slot(slot as u16)))
        })
    }

    fn hazard(&self) -> Option<Hazard> {
        self.hazard.clone()
    }

    /// md counts the members that hold different data (`raid10_set_io_opt`).
    fn io_opt(&self) -> Sectors {
        let Placement { slots, near, .. } = self.placement;
        let members = if slots % near == 0 { slots / near } else { slots };
        self.shape.chunk.times(members)
    }

    fn steps(&self, at: Sectors) -> Vec<String> {
        let (chunk, place) = (self.shape.chunk, &self.placement);
        let (number, within) = (at.div_floor(chunk), at.rem(chunk));
        let (slots, near, far) = (place.slots, place.near, place.far);
        let first = number * near;
        let mut steps = vec![
            format!("chunk = sector {at} / {chunk} sectors = {number}, {within} into it"),
            format!("position = chunk {number} x {near} near copies = {first}"),
            format!("slot = {first} mod {slots} members = {}", first % slots),
        ];
        steps.push(match (place.offset, first / slots) {
            (true, group) => format!(
                "row = {first} / {slots} x {far} rows a group = {group} x {far} = {}",
                group * far
            ),
            (false, row) => format!("row = {first} / {slots} = {row}"),
        });
        steps.extend(self.copy_rules());
        for (copy, (slot, row)) in place.copies(number).into_iter().enumerate() {
            let sector = chunk.times(row) + within;
            steps.push(format!(
                "copy {copy}: slot {slot}, row {row}: member sector = {row} x {chunk} + {within} \
                 = {sector}"
            ));
        }
        steps
    }

    fn steps_back(&self, slot: Slot, at: Sectors) -> Vec<String> {
        let (chunk, place) = (self.shape.chunk, &self.placement);
        let (row, within) = (at.div_floor(chunk), at.rem(chunk));
        let mut steps =
            vec![format!("row = member sector {at} / {chunk} = {row}, {within} into it")];
        let Some(no) = self.find(slot, at) else {
            steps.push(format!("no chunk of the array has a copy there: slot {slot} ends before"));
            return steps;
        };
        let (far, base) = self.far_and_row(at).expect("find has an answer for this sector");
        let (slots, near, origin) = (place.slots, place.near, self.origin(far, slot));
        if place.far > 1 {
            steps.push(match place.offset {
                true => format!("far copy = row {row} mod {} = {far}, group {base}", place.far),
                false => {
                    format!("far copy = row {row} / {} rows a section = {far}", place.stride)
                }
            });
            steps.extend(self.copy_rules());
            steps.push(format!("far copy {far} on slot {slot} comes from slot {origin}"));
        }
        let position = base * slots + origin;
        steps.push(format!("position = row {base} x {slots} members + {origin} = {position}"));
        let number = no.0;
        steps.push(format!("chunk = position {position} / {near} near copies = {number}"));
        let sector = chunk.times(number) + within;
        steps.push(format!("array sector = chunk {number} x {chunk} + {within} = {sector}"));
        steps
    }
}

impl Raid10 {
    /// Which far copy a member sector belongs to, and the row of its first copy (in groups of
    /// rows for offset).
    fn far_and_row(&self, at: Sectors) -> Option<(u64, u64)> {
        let row = at.div_floor(self.shape.chunk);
        let Placement { far, stride, offset, .. } = self.placement;
        let (copy, base) =
            if offset { (row % far, row / far) } else { (row / stride, row % stride) };
        (copy < far).then_some((copy, base))
    }

    fn origin(&self, far: u64, slot: Slot) -> u64 {
        self.origins[far as usize * self.shape.slots as usize + slot.index()] as u64
    }

    /// The rules for the copies, in words.
    fn copy_rules(&self) -> Vec<String> {
        let Placement { slots, near, far, offset, set, stride } = self.placement;
        let mut rules = Vec::new();
        if near > 1 {
            rules.push(format!("near copies are on the next slots, {near} in all"));
        }
        if far > 1 {
            let down = match (offset, stride) {
                (true, _) => "one row".to_string(),
                (false, 1) => "one section of 1 row".to_string(),
                (false, rows) => format!("one section of {rows} rows"),
            };
            rules
                .push(format!("each of the {far} far copies is {near} slot(s) on and {down} down"));
        }
        if far > 1 && set < slots {
            rules.push(format!("slots are divided into sets of {set}: copies go round in a set"));
        }
        rules
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
