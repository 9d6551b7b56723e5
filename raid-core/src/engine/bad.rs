//! Bad blocks: what a member could not write is listed on it, where it keeps a list, instead of
//! failing the member; a later write that succeeds takes it off the list. As md does
//! (`rdev_set_badblocks`, `rdev_clear_badblocks`).

use super::flight::Flight;
use super::health::DeviceId;
use super::{Actions, Engine, FlightId};
use crate::layout::Code;
use crate::meta::bad_blocks;
use crate::meta::record::MemberRecord;
use crate::plan::Band;
use crate::units::Sectors;
use smallvec::SmallVec;
use std::collections::BTreeSet;

impl MemberRecord {
    /// Notes `len` sectors from `at` (from the data offset) as bad; false where there is no list,
    /// or it is full.
    pub fn add_bad(&mut self, at: Sectors, len: Sectors) -> bool {
        let mut runs = self.bad_blocks.clone();
        runs.push((self.data_at + at, len));
        self.set_bad(bad_blocks::joined(runs))
    }

    /// Notes `len` sectors from `at` (from the data offset) as good again; false where nothing
    /// of them was bad, or the list has no room for what is left of a run.
    pub fn clear_bad(&mut self, at: Sectors, len: Sectors) -> bool {
        let (from, to) = (self.data_at + at, self.data_at + at + len);
        let left = |&(at, len): &(Sectors, Sectors)| {
            let end = at + len;
            let before = (at, from.min(end).checked_sub(at).unwrap_or_default());
            let start = to.max(at);
            let after = (start, end.checked_sub(start).unwrap_or_default());
            let parts = if to <= at || end <= from {
                [(at, len), (at, Sectors::ZERO)]
            } else {
                [before, after]
            };
            parts.into_iter().filter(|part| !part.1.is_empty())
        };
        let runs: Vec<(Sectors, Sectors)> = self.bad_blocks.iter().flat_map(left).collect();
        runs != self.bad_blocks && self.set_bad(runs)
    }

    fn set_bad(&mut self, runs: Vec<(Sectors, Sectors)>) -> bool {
        let Some(log) = self.bad_log else { return false };
        let fits = bad_blocks::emit(&runs, log.len, bad_blocks::shift(self)).is_ok();
        if fits {
            self.bad_blocks = runs;
        }
        fits
    }

    /// True if `from..to`, counted from the data offset, touches a known bad block.
    pub fn bad_in(&self, from: Sectors, to: Sectors) -> bool {
        let (from, to) = (self.data_at + from, self.data_at + to);
        self.bad_blocks.iter().any(|&(at, len)| at < to && from < at + len)
    }
}

impl Engine {
    /// Notes `len` sectors from `at` (from the data offset) of `device` as bad; false where it
    /// keeps no list, or the list is full.
    pub(super) fn add_bad(&mut self, device: DeviceId, at: Sectors, len: Sectors) -> bool {
        let Some(member) = self.health.member_mut(device) else { return false };
        if !member.record.add_bad(at, len) {
            return false;
        }
        member.bad_changed = true;
        self.health.generation += 1;
        true
    }

    /// `bands` in pieces that are each bad as a whole or not at all on every member: what is bad is
    /// read elsewhere, and no more than that.
    pub(super) fn cut_at_bad(&self, bands: SmallVec<[Band; 2]>) -> SmallVec<[Band; 2]> {
        if self.health.all().all(|m| m.record.bad_blocks.is_empty()) {
            return bands;
        }
        bands.into_iter().flat_map(|band| self.pieces_of(band)).collect()
    }

    fn pieces_of(&self, band: Band) -> Vec<Band> {
        let mut edges = BTreeSet::from([band.low, band.high]);
        for unit in &band.stripe.units {
            for member in self.health.live_in(unit.slot) {
                let start = member.record.data_at + unit.at;
                let runs = member.record.bad_blocks.iter();
                let ends = runs.flat_map(|&(at, len)| [at, at + len]);
                let inside = ends.filter_map(|end| end.checked_sub(start));
                edges.extend(inside.filter(|edge| band.low < *edge && *edge < band.high));
            }
        }
        let edges: Vec<Sectors> = edges.into_iter().collect();
        let piece = |pair: &[Sectors]| Band { low: pair[0], high: pair[1], ..band.clone() };
        edges.windows(2).map(piece).collect()
    }

    /// `device` failed to write its part of `unit`: that is listed as bad, or the member fails.
    /// `Err` says why neither saves what was written.
    pub(super) fn write_failed(
        &mut self,
        id: FlightId,
        (unit, device): (u16, DeviceId),
        trouble: &str,
        out: &mut Actions,
    ) -> Result<(), String> {
        let Flight { band, .. } = &self.flights[id];
        let (at, len) = (band.stripe.units[unit as usize].at + band.low, band.height());
        let lists =
            self.health.member(device).is_some_and(|m| m.is_live() && m.record.bad_log.is_some());
        if !lists || self.read_only {
            return self.device_failed(device, trouble, out);
        }
        if !self.spared_here(id, unit, device) {
            let name = self.health.member(device).map_or_else(String::new, |m| m.name.clone());
            self.count_write_error(device);
            if self.shape.code.has_parity() {
                self.broken = true;
                self.give_up_publishing(out);
            }
            return Err(format!("member {name}: {trouble}"));
        }
        if !self.add_bad(device, at, len) {
            return self.device_failed(device, trouble, out);
        }
        self.count_write_error(device);
        // Whoever waits for a failure to be told waits for this as well.
        self.failure_version = self.changed(out);
        Ok(())
    }

    fn count_write_error(&mut self, device: DeviceId) {
        self.stats.write_errors += 1;
        if let Some(member) = self.health.member_mut(device) {
            member.errors += 1;
        }
    }

    /// True if the band of a flight can do without what `device` should hold of `unit`.
    fn spared_here(&self, id: FlightId, unit: u16, device: DeviceId) -> bool {
        let Flight { band, unreadable, .. } = &self.flights[id];
        let mut without = unreadable.clone();
        without.push(device);
        let lost = |index: usize| {
            let unit_of = &band.stripe.units[index];
            let not = if index == unit as usize { &without } else { unreadable };
            self.health.source(unit_of, band.low, band.high, not).is_none()
        };
        let lost = (0..band.stripe.units.len()).filter(|&index| lost(index)).count();
        let tolerated = match self.shape.code {
            Code::None => 0,
            Code::Copy => band.stripe.units.len() - 1,
            Code::P => 1,
            Code::PQ => 2,
        };
        lost <= tolerated
    }

    /// `device` wrote its part of `unit`: what was bad of it is not any more. Said on the member
    /// only once the data is durable.
    pub(super) fn made_good(
        &mut self,
        id: FlightId,
        (unit, device): (u16, DeviceId),
        out: &mut Actions,
    ) {
        let Flight { band, .. } = &self.flights[id];
        let (at, len) = (band.stripe.units[unit as usize].at + band.low, band.height());
        let Some(member) = self.health.member_mut(device) else { return };
        if member.record.bad_blocks.is_empty() || !member.record.clear_bad(at, len) {
            return;
        }
        member.bad_changed = true;
        self.health.generation += 1;
        self.data_changed(out);
    }
}
