//! What losses of members mean: which sets an array survives, and what is gone otherwise.
//!
//! Written once for all levels, on [`Layout::survives`] and the stripes of one period.

use super::{Code, Layout, Region, Role, Stripe};
use crate::error::{Error, Result};
use crate::units::{Sectors, Slot, SlotSet, StripeNo};
use std::ops::Range;

/// Most sets [`surviving_sets`] lists: enough for 3 of 84 members or 5 of 30, and for the eye.
pub const SETS_MAX: u64 = 100_000;

/// Array sectors that cannot be served.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lost {
    /// The first lost ranges, ascending, with neighbours joined.
    pub ranges: Vec<Range<Sectors>>,
    /// True if there are more ranges than were asked for.
    pub more: bool,
}

impl Lost {
    /// True if nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// Every set of `count` slots, in lexical order, with whether the array survives its loss.
/// Refuses if there are more than [`SETS_MAX`] such sets.
pub fn surviving_sets(layout: &dyn Layout, count: u16) -> Result<Vec<(SlotSet, bool)>> {
    let slots = layout.shape().slots;
    let total = combinations(slots as u64, count as u64);
    if total.is_none_or(|total| total > SETS_MAX) {
        return Err(Error::invalid(format!(
            "there are too many ways to lose {count} of {slots} members to list them \
             (the limit is {SETS_MAX}); ask for fewer"
        )));
    }
    let mut sets = Vec::new();
    let mut chosen: Option<Vec<u16>> = (count <= slots).then(|| (0..count).collect());
    while let Some(slots_lost) = chosen {
        let set: SlotSet = slots_lost.iter().map(|&slot| Slot(slot)).collect();
        let survives = layout.survives(&set);
        sets.push((set, survives));
        chosen = next_choice(slots_lost, slots);
    }
    Ok(sets)
}

/// The first `limit` array ranges that are lost without the `missing` slots.
pub fn lost(layout: &dyn Layout, missing: &SlotSet, limit: usize) -> Lost {
    let mut lost = Lost::default();
    if layout.survives(missing) {
        return lost;
    }
    for region in layout.regions() {
        lost_in_region(layout, missing, &region, limit, &mut lost);
        if lost.more {
            break;
        }
    }
    lost
}

/// The indices of data units of `stripe` that nothing can bring back without `missing`.
fn lost_units(stripe: &Stripe, code: Code, missing: &SlotSet) -> Vec<u64> {
    let gone = stripe.units.iter().filter(|unit| missing.contains(unit.slot)).count();
    let allowed = match code {
        Code::None => 0,
        Code::Copy => stripe.units.len() - 1,
        Code::P => 1,
        Code::PQ => 2,
    };
    if gone <= allowed {
        return Vec::new();
    }
    let index = |role| match role {
        Role::Data(index) => Some(index as u64),
        _ => None,
    };
    stripe
        .units
        .iter()
        .filter(|unit| missing.contains(unit.slot))
        .filter_map(|unit| index(unit.role))
        .collect()
}

/// Adds the lost ranges of one region. One period tells whether nothing or everything is lost;
/// otherwise each further period ends at least one range, so `limit` bounds the work.
fn lost_in_region(
    layout: &dyn Layout,
    missing: &SlotSet,
    region: &Region,
    limit: usize,
    lost: &mut Lost,
) {
    let shape = layout.shape();
    let units_of = |no: u64| lost_units(&layout.stripe(StripeNo(no)), shape.code, missing);
    let first = region.first.0;
    let period = first..first + region.period.min(region.stripes);
    let per_period: Vec<usize> = period.map(|no| units_of(no).len()).collect();
    if per_period.iter().all(|&units| units == 0) {
        return;
    }
    if per_period.iter().all(|&units| units == shape.data_units as usize) {
        let last = layout.stripe(StripeNo(first + region.stripes - 1));
        let end = last.start + last.len.times(shape.data_units as u64);
        add(layout.stripe(region.first).start..end, limit, lost);
        return;
    }
    for no in first..first + region.stripes {
        let stripe = layout.stripe(StripeNo(no));
        for index in lost_units(&stripe, shape.code, missing) {
            let start = stripe.start + stripe.len.times(index);
            add(start..start + stripe.len, limit, lost);
        }
        if lost.more {
            return;
        }
    }
}

/// Appends a range that begins at or behind the end of the last one.
fn add(range: Range<Sectors>, limit: usize, lost: &mut Lost) {
    let full = lost.ranges.len() >= limit;
    match lost.ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if full => lost.more = true,
        _ => lost.ranges.push(range),
    }
}

/// The choice that follows `chosen` in lexical order among `slots`.
fn next_choice(mut chosen: Vec<u16>, slots: u16) -> Option<Vec<u16>> {
    let count = chosen.len();
    let room = |index: usize| slots - (count - index) as u16;
    let index = (0..count).rev().find(|&index| chosen[index] < room(index))?;
    chosen[index] += 1;
    for later in index + 1..count {
        chosen[later] = chosen[later - 1] + 1;
    }
    Some(chosen)
}

/// How many ways there are to choose `count` of `total`; nothing where that exceeds 64 bits.
fn combinations(total: u64, count: u64) -> Option<u64> {
    let count = if count > total { return Some(0) } else { count.min(total - count) };
    (0..count).try_fold(1u64, |ways, i| Some(ways.checked_mul(total - i)? / (i + 1)))
}
