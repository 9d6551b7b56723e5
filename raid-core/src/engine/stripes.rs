//! Who works on which part of which stripe: bands that overlap take turns, in order of arrival.
//!
//! Two flights conflict if they are on the same stripe and their heights overlap; others run side
//! by side. A flight that waits holds back later ones it conflicts with, so nobody starves.

use super::FlightId;
use crate::units::{Sectors, StripeNo};
use std::collections::BTreeMap;

/// The heights taken and awaited, by stripe.
#[derive(Debug, Default)]
pub(super) struct Stripes(BTreeMap<StripeNo, Vec<Claim>>);

#[derive(Debug)]
struct Claim {
    flight: FlightId,
    low: Sectors,
    high: Sectors,
    held: bool,
}

impl Claim {
    fn overlaps(&self, low: Sectors, high: Sectors) -> bool {
        self.low < high && low < self.high
    }
}

impl Stripes {
    /// Asks for `low..high` of `stripe`; true if it is granted at once, else it is granted by a
    /// later [`Stripes::release`].
    pub fn claim(&mut self, flight: FlightId, no: StripeNo, low: Sectors, high: Sectors) -> bool {
        let claims = self.0.entry(no).or_default();
        let held = !claims.iter().any(|c| c.overlaps(low, high));
        claims.push(Claim { flight, low, high, held });
        held
    }

    /// Gives back what `flight` holds of `stripe`; returns who may start now, in order of arrival.
    pub fn release(&mut self, flight: FlightId, no: StripeNo) -> Vec<FlightId> {
        let claims = self.0.get_mut(&no).expect("a claimed stripe is in the table");
        let index = claims.iter().position(|c| c.flight == flight).expect("the claim is there");
        let claim = claims.remove(index);
        assert!(claim.held, "only a held claim is released");
        let mut granted = Vec::new();
        for i in 0..claims.len() {
            let (before, rest) = claims.split_at_mut(i);
            let this = &mut rest[0];
            if !this.held && !before.iter().any(|c| c.overlaps(this.low, this.high)) {
                this.held = true;
                granted.push(this.flight);
            }
        }
        if claims.is_empty() {
            self.0.remove(&no);
        }
        granted
    }

    /// Claims held and awaited.
    pub fn counts(&self) -> (usize, usize) {
        let held = self.0.values().flatten().filter(|c| c.held).count();
        (held, self.0.values().map(Vec::len).sum::<usize>() - held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_bands_take_turns_and_others_do_not() {
        let mut stripes = Stripes::default();
        let no = StripeNo(7);
        assert!(stripes.claim(1, no, Sectors(0), Sectors(8)));
        assert!(stripes.claim(2, no, Sectors(8), Sectors(16)));
        assert!(!stripes.claim(3, no, Sectors(4), Sectors(12)));
        assert!(!stripes.claim(4, no, Sectors(0), Sectors(4 + 1)), "waits behind 3");
        assert!(stripes.claim(5, StripeNo(8), Sectors(0), Sectors(16)));
        assert!(stripes.release(1, no).is_empty());
        assert_eq!(stripes.counts(), (2, 2));
        assert_eq!(stripes.release(2, no), [3]);
        assert_eq!(stripes.release(3, no), [4]);
        assert!(stripes.release(4, no).is_empty());
        stripes.release(5, StripeNo(8));
        assert_eq!(stripes.counts(), (0, 0));
    }
}
