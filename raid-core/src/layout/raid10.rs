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

mod placement;
mod word;

pub use word::DEFAULT;

use super::{Code, Hazard, Layout, Level, Params, Role, Shape, Stripe, Unit, check};
use crate::error::Result;
use crate::units::{Sectors, Slot, SlotSet, StripeNo};
use placement::Placement;

/// RAID 10 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid10",
    aliases: &["10"],
    number: 10,
    summary: "every chunk on several members, striped; survives some losses",
    slots_min: 2,
    layouts: &[],
    parse_layout: word::parse_layout,
    layout_name: word::layout_name,
    make,
};

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
    let word = word::checked(params)?;
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
    placement::refuse_collisions(params, &placement)?;
    let (hazard, members_min) = placement::spread(&placement);
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
    let origins = placement::origins(&placement);
    Ok(Box::new(Raid10 { shape, placement, origins, hazard }))
}

impl Layout for Raid10 {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn locate(&self, at: Sectors) -> StripeNo {
        self.shape.stripe_at(at, self.shape.chunk)
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
