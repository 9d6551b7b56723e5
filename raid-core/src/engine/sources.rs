//! Which devices a flight reads from and writes to.

use super::flight::{Flight, Kind};
use super::health::Devices;
use super::{DeviceId, Engine, FlightId, Member};
use crate::layout::Unit;
use crate::plan::{self, Units};

impl Engine {
    /// Units of the band with a live device that does not hold what it should, or did not read.
    pub(super) fn unfilled(&self, id: FlightId) -> Units {
        let Flight { band, unreadable, kind, .. } = &self.flights[id];
        if !matches!(kind, Kind::Recover | Kind::Scrub(_)) {
            return Units::new();
        }
        let lacks = |unit: &Unit| {
            let (from, to) = (unit.at + band.low, unit.at + band.high);
            let bad = |m: &Member| !m.holds(from, to) || unreadable.contains(&m.device);
            self.health.live_in(unit.slot).any(bad)
        };
        plan::pick(&band.stripe, |i, _| lacks(&band.stripe.units[i]))
    }

    /// The devices that unit `unit` is written to: all of its slot, but for a device that is
    /// filled only those that lack it.
    pub(super) fn receivers(&self, id: FlightId, unit: u16) -> Devices {
        let Flight { band, unreadable, kind, .. } = &self.flights[id];
        let unit = &band.stripe.units[unit as usize];
        let (from, to) = (unit.at + band.low, unit.at + band.high);
        let filling = *kind == Kind::Recover;
        let wanted = |m: &&Member| !filling || !m.holds(from, to) || unreadable.contains(&m.device);
        self.health.live_in(unit.slot).filter(wanted).map(|m| m.device).collect()
    }

    /// Where unit `unit` can be read.
    pub(super) fn source_of(&self, id: FlightId, unit: u16) -> Option<DeviceId> {
        let Flight { band, unreadable, .. } = &self.flights[id];
        let unit = &band.stripe.units[unit as usize];
        self.health.source(unit, band.low, band.high, unreadable).map(|m| m.device)
    }

    /// The copy that is right by definition when copies differ: the first that can be read, and
    /// of those not marked write-mostly if there is one.
    pub(super) fn first_copy(&self, id: FlightId) -> u16 {
        let Flight { band, unreadable, .. } = &self.flights[id];
        let access = self.health.access(&band.stripe, band.low, band.high, unreadable);
        plan::first_copy(&access).unwrap_or(0) as u16
    }
}
