//! Numbers with a meaning: sectors, stripes, slots, and sets of slots.
//!
//! A sector is always 512 bytes, also on disks with 4096-byte blocks: md counts so everywhere.
//! Index, count and size are different types; products go through named methods.

use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector.
pub const SECTOR: u64 = 512;

/// A number of 512-byte sectors: a place or a length on a member or in an array.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sectors(pub u64);

impl Sectors {
    /// No sectors.
    pub const ZERO: Sectors = Sectors(0);

    /// Whole sectors that fit in `bytes`; a rest is dropped.
    pub const fn floor_bytes(bytes: u64) -> Sectors {
        Sectors(bytes / SECTOR)
    }

    /// `kib` KiB as sectors.
    pub const fn kib(kib: u64) -> Sectors {
        Sectors(kib * 2)
    }

    /// The same length in bytes; a size that only broken metadata claims stops at the largest
    /// number.
    pub const fn bytes(self) -> u64 {
        self.0.saturating_mul(SECTOR)
    }

    /// The same length in bytes, as a memory size.
    pub const fn len(self) -> usize {
        self.bytes() as usize
    }

    /// True for zero sectors.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// `self` repeated `count` times.
    pub const fn times(self, count: u64) -> Sectors {
        Sectors(self.0 * count)
    }

    /// How many whole `unit`s fit in `self`.
    pub const fn div_floor(self, unit: Sectors) -> u64 {
        self.0 / unit.0
    }

    /// What is left after the whole `unit`s.
    pub const fn rem(self, unit: Sectors) -> Sectors {
        Sectors(self.0 % unit.0)
    }

    /// `self` rounded down to a multiple of `unit`.
    pub const fn round_down(self, unit: Sectors) -> Sectors {
        Sectors(self.0 - self.0 % unit.0)
    }

    /// `self - other`, or nothing where that would be negative.
    pub const fn checked_sub(self, other: Sectors) -> Option<Sectors> {
        match self.0.checked_sub(other.0) {
            Some(n) => Some(Sectors(n)),
            None => None,
        }
    }
}

impl Add for Sectors {
    type Output = Sectors;
    fn add(self, other: Sectors) -> Sectors {
        Sectors(self.0 + other.0)
    }
}

impl AddAssign for Sectors {
    fn add_assign(&mut self, other: Sectors) {
        self.0 += other.0;
    }
}

impl Sub for Sectors {
    type Output = Sectors;
    fn sub(self, other: Sectors) -> Sectors {
        Sectors(self.0.checked_sub(other.0).expect("sector difference is not negative"))
    }
}

impl Sum for Sectors {
    fn sum<I: Iterator<Item = Sectors>>(iter: I) -> Sectors {
        iter.fold(Sectors::ZERO, Add::add)
    }
}

impl fmt::Display for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Sectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.0)
    }
}

/// The number of a stripe in its array, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StripeNo(pub u64);

/// A place in the array that a member fills: md's `raid_disk`, from 0. Not the device number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Slot(pub u16);

impl Slot {
    /// The slot as an index into per-slot tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of slots, for "which are missing" and "which can be read".
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct SlotSet(SmallVec<[u64; 2]>);

impl SlotSet {
    /// The empty set.
    pub fn new() -> SlotSet {
        SlotSet(smallvec![])
    }

    /// Adds `slot`; true if it was not in the set.
    pub fn insert(&mut self, slot: Slot) -> bool {
        let (word, bit) = (slot.index() / 64, 1u64 << (slot.index() % 64));
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Takes `slot` out; true if it was in the set.
    pub fn remove(&mut self, slot: Slot) -> bool {
        let had = self.contains(slot);
        if had {
            self.0[slot.index() / 64] &= !(1u64 << (slot.index() % 64));
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        had
    }

    /// True if `slot` is in the set.
    pub fn contains(&self, slot: Slot) -> bool {
        self.0.get(slot.index() / 64).is_some_and(|w| w >> (slot.index() % 64) & 1 == 1)
    }

    /// How many slots are in the set.
    pub fn len(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// True if no slot is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|&w| w == 0)
    }

    /// The slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.0.iter().enumerate().flat_map(|(word, &bits)| {
            (0..64).filter(move |b| bits >> b & 1 == 1).map(move |b| Slot((word * 64 + b) as u16))
        })
    }
}

impl FromIterator<Slot> for SlotSet {
    fn from_iter<I: IntoIterator<Item = Slot>>(iter: I) -> SlotSet {
        let mut set = SlotSet::new();
        for slot in iter {
            set.insert(slot);
        }
        set
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|s| s.0)).finish()
    }
}

impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, slot) in self.iter().enumerate() {
            write!(f, "{}{slot}", if i == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_set_keeps_what_was_put_in() {
        let mut set = SlotSet::new();
        assert!(set.insert(Slot(3)));
        assert!(set.insert(Slot(200)));
        assert!(!set.insert(Slot(3)));
        assert_eq!(set.iter().collect::<Vec<_>>(), [Slot(3), Slot(200)]);
        assert!(set.remove(Slot(200)));
        assert_eq!(set, [Slot(3)].into_iter().collect());
        assert_eq!(set.len(), 1);
    }
}
