//! What a job does at each of its positions: which bands, and where it goes next.

use super::Engine;
use super::job::{HEIGHT, JobKind};
use crate::layout::Unit;
use crate::plan::Band;
use crate::units::{Sectors, Slot, SlotSet, StripeNo};
use smallvec::SmallVec;

impl Engine {
    /// The slots of the devices that the job fills.
    pub(super) fn slots_to_fill(&self) -> SlotSet {
        let job = self.jobs.current.as_ref().map(|job| &job.devices[..]);
        let filled = |slot: Slot| {
            self.health.live_in(slot).any(|m| job.is_some_and(|job| job.contains(&m.device)))
        };
        (0..self.shape.slots).map(Slot).filter(|&slot| filled(slot)).collect()
    }

    /// The bands of the step at `at`, and where the next one begins. No band: nothing to do here.
    pub(super) fn bands_at(&self, kind: JobKind, at: Sectors) -> (SmallVec<[Band; 2]>, Sectors) {
        if kind == JobKind::Recovery {
            return self.bands_to_fill(at);
        }
        let needed = self.bitmap.as_ref().filter(|_| kind == JobKind::Resync);
        let at = match needed.map(|bitmap| bitmap.next_needed(at)) {
            Some(Some(next)) => next,
            Some(None) => return (SmallVec::new(), self.stripe_len.times(self.shape.stripes)),
            None => at,
        };
        let no = StripeNo(at.div_floor(self.stripe_len));
        if no.0 >= self.shape.stripes {
            return (SmallVec::new(), at.max(self.stripe_len.times(self.shape.stripes)));
        }
        let stripe = self.layout.stripe(no);
        let low = at.rem(self.stripe_len);
        let end = self.stripe_len.times(no.0 + 1);
        if low >= stripe.len {
            return (SmallVec::new(), end);
        }
        let high = stripe.len.min(low + HEIGHT);
        let next = if high == stripe.len { end } else { at + (high - low) };
        let last = self.shape.data_units - 1;
        (SmallVec::from_iter([Band { stripe, low, high, first: 0, last }]), next)
    }

    /// For every device that is being filled, the stripe that has a unit at its sector `at`.
    fn bands_to_fill(&self, at: Sectors) -> (SmallVec<[Band; 2]>, Sectors) {
        let mut bands: SmallVec<[Band; 2]> = SmallVec::new();
        let grid = self.stripe_len.min(HEIGHT);
        let mut next = (at + grid).round_down(grid).min(self.array.component);
        let last = self.shape.data_units - 1;
        let by_bitmap = self.jobs.current.as_ref().is_some_and(|job| job.by_bitmap);
        for slot in self.slots_to_fill().iter() {
            let Some(no) = self.layout.find(slot, at) else { continue };
            let stripe = self.layout.stripe(no);
            let holds = |u: &&Unit| u.slot == slot && u.at <= at && at < u.at + stripe.len;
            let Some(unit) = stripe.units.iter().find(holds) else { continue };
            let low = at - unit.at;
            let high = stripe.len.min(low + (next - at).min(HEIGHT));
            next = next.min(at + (high - low));
            let twin = |b: &Band| b.stripe.no == no && b.low == low;
            if !bands.iter().any(twin) {
                bands.push(Band { stripe, low, high, first: 0, last });
            }
        }
        for band in &mut bands {
            band.high = band.high.min(band.low + (next - at));
        }
        if by_bitmap && let Some(bitmap) = &self.bitmap {
            bands.retain(|band| {
                let (from, to) = self.position(band);
                bitmap.any_set(from, to)
            });
        }
        (bands, next)
    }
}
