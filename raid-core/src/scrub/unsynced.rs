//! What an interrupted resync has not made consistent yet.
//!
//! Positions are md's: member sectors, for RAID 10 array sectors. A write-intent bitmap that is up
//! to date narrows it down to what was being written; otherwise it is all from the resync offset.

use crate::layout::{Layout, Stripe};
use crate::meta::md_bitmap::{Bitmap, HEAD};
use crate::units::{Sectors, StripeNo};
use std::ops::Range;

/// Where redundancy may be inconsistent without anybody having lied.
#[derive(Clone, Debug, Default)]
pub struct Unsynced {
    from: Option<Sectors>,
    bits: Option<Bits>,
}

#[derive(Clone, Debug)]
struct Bits {
    chunk: Sectors,
    set: Vec<u8>,
}

impl Unsynced {
    /// Everything from md's resync position `from` on; nothing without one.
    pub fn new(from: Option<Sectors>) -> Unsynced {
        Unsynced { from, bits: None }
    }

    /// Adds what the bitmap `area` of a member says; `bitmap` is its parsed superblock. What any
    /// member calls unsynced is; bitmaps of different chunks are not mixed: the first counts.
    pub fn add_bitmap(&mut self, bitmap: &Bitmap, area: &[u8]) {
        let chunk = Sectors::floor_bytes(bitmap.chunk_bytes.into());
        let end = (HEAD as u64 + bitmap.bits().div_ceil(8)) as usize;
        let Some(set) = area.get(HEAD..end) else { return };
        match &mut self.bits {
            None => self.bits = Some(Bits { chunk, set: set.to_vec() }),
            Some(bits) if bits.chunk == chunk && bits.set.len() == set.len() => {
                bits.set.iter_mut().zip(set).for_each(|(all, more)| *all |= more);
            }
            Some(_) => {}
        }
    }

    /// True if everything was synced.
    pub fn is_empty(&self) -> bool {
        self.from.is_none()
    }

    /// True if a bitmap says where.
    pub fn has_bitmap(&self) -> bool {
        self.bits.is_some()
    }

    /// Where it begins.
    pub fn from(&self) -> Option<Sectors> {
        self.from
    }

    /// True if any of `len` sectors at position `at` may be unsynced.
    pub fn touches(&self, at: Sectors, len: Sectors) -> bool {
        let Some(from) = self.from.filter(|from| at + len > *from) else { return false };
        let Some(bits) = &self.bits else { return true };
        let (first, end) = (at.max(from).0 / bits.chunk.0, (at + len).0.div_ceil(bits.chunk.0));
        (first..end).any(|bit| bits.is_set(bit))
    }

    /// The stripes that may be unsynced, in runs.
    pub fn stripes(&self, layout: &dyn Layout) -> Vec<Range<u64>> {
        let shape = layout.shape();
        let Some(from) = self.from.filter(|_| shape.stripes > 0) else { return Vec::new() };
        let len = layout.stripe(StripeNo(0)).len;
        let Some(bits) = &self.bits else {
            let all = from.div_floor(len).min(shape.stripes)..shape.stripes;
            return Some(all).filter(|all| !all.is_empty()).into_iter().collect();
        };
        let mut runs: Vec<Range<u64>> = Vec::new();
        for bit in (0..bits.set.len() as u64 * 8).filter(|bit| bits.is_set(*bit)) {
            let at = bits.chunk.times(bit).max(from);
            let first = at.div_floor(len);
            let end = (bits.chunk.0 * (bit + 1)).div_ceil(len.0).min(shape.stripes);
            match runs.last_mut() {
                _ if first >= end => {}
                Some(last) if first <= last.end => last.end = last.end.max(end),
                _ => runs.push(first..end),
            }
        }
        runs
    }
}

impl Bits {
    /// What lies beyond the bitmap counts as set: it says nothing about it.
    fn is_set(&self, bit: u64) -> bool {
        let byte = usize::try_from(bit / 8).ok().and_then(|index| self.set.get(index));
        byte.is_none_or(|byte| byte >> (bit % 8) & 1 == 1)
    }
}

/// md's resync position of `low` sectors into the units of `stripe`.
pub(super) fn position(level: i32, stripe: &Stripe, low: Sectors) -> Sectors {
    match level {
        10 => stripe.start + low,
        _ => stripe.units[0].at + low,
    }
}
