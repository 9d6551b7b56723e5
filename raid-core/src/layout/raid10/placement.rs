//! Where the copies of RAID 10 go, and the trial of a placement over one whole period.

use super::super::{Hazard, Params};
use super::word;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{Slot, SlotSet, StripeNo};
use smallvec::SmallVec;

/// Where copies go, in slots and rows of chunks: the kernel's `__raid10_find_phys`.
#[derive(Clone, Debug)]
pub struct Placement {
    pub slots: u64,
    pub near: u64,
    pub far: u64,
    pub offset: bool,
    /// Slots in a far set; all of them where there are no sets.
    pub set: u64,
    /// Rows from one far copy to the next: of a section, or 1 for offset.
    pub stride: u64,
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
    pub fn copies(&self, number: u64) -> SmallVec<[(u64, u64); 8]> {
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
    pub fn period(&self) -> u64 {
        self.slots / gcd(self.slots, self.near)
    }
}

/// Tries every chunk of a period: no two may share a sector.
///
/// A period ends at the end of a row (of a group of rows, for offset), so that what happens in
/// the first period is what happens in all.
pub fn refuse_collisions(params: &Params, placement: &Placement) -> Result<()> {
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
                        word::layout_name(params.layout),
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
pub fn spread(placement: &Placement) -> (Option<Hazard>, u16) {
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
pub fn origins(placement: &Placement) -> Vec<u16> {
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

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
