//! Bad blocks: what a member could not write is listed on it, where it keeps a list, instead of
//! failing the member; a later write that succeeds takes it off the list. As md does
//! (`rdev_set_badblocks`, `rdev_clear_badblocks`).

use super::flight::Flight;
use super::health::{DeviceId, Devices, Member, Place};
use super::job::HEIGHT;
use super::{Actions, Engine, FlightId};
use crate::layout::{Code, Unit};
use crate::meta::bad_blocks;
use crate::meta::record::MemberRecord;
use crate::plan::Band;
use crate::units::{Sectors, Slot};
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
        let Flight { band, unreadable, .. } = &self.flights[id];
        let (at, len) = (band.stripe.units[unit as usize].at + band.low, band.height());
        let lists =
            self.health.member(device).is_some_and(|m| m.is_live() && m.record.bad_log.is_some());
        // A device that is to replace another must not lack what that one holds.
        let replaces = matches!(self.health.place(device), Some(Place::Replacement(_)));
        if !lists || replaces || self.read_only {
            return self.device_failed(device, trouble, out);
        }
        let (spared, parity) = (self.bears(band, unreadable, device), self.shape.code.has_parity());
        let error = || {
            let name = self.health.member(device).map_or_else(String::new, |m| m.name.clone());
            Err(format!("member {name}: {trouble}"))
        };
        // The last copy is what the disk makes of it; rows beyond their parity are lost.
        let said = if spared { Ok(()) } else { error() };
        if !spared && !parity {
            self.count_write_error(device);
            return said;
        }
        if !self.add_bad(device, at, len) {
            return self.device_failed(device, trouble, out);
        }
        self.count_write_error(device);
        // Whoever waits for a failure to be told waits for this as well.
        self.failure_version = self.changed(out);
        said
    }

    fn count_write_error(&mut self, device: DeviceId) {
        self.stats.write_errors += 1;
        if let Some(member) = self.health.member_mut(device) {
            member.errors += 1;
        }
    }

    /// True if nothing of `band` is lost without `device` and those that are `unreadable`.
    fn bears(&self, band: &Band, unreadable: &[DeviceId], device: DeviceId) -> bool {
        let mut not: Devices = unreadable.into();
        not.push(device);
        let lost = |unit: &&Unit| self.health.source(unit, band.low, band.high, &not).is_none();
        let lost = band.stripe.units.iter().filter(lost).count();
        let tolerated = match self.shape.code {
            Code::None => 0,
            Code::Copy => band.stripe.units.len() - 1,
            Code::P => 1,
            Code::PQ => 2,
        };
        lost <= tolerated
    }

    /// A member whose bad blocks `device` alone makes up for.
    pub(super) fn leans_on(&self, device: DeviceId) -> Option<&Member> {
        let others = self.health.all().filter(|m| m.is_live() && m.device != device);
        others.into_iter().find(|member| {
            let Some(Place::Slot(slot)) = self.health.place(member.device) else { return false };
            let runs = member.record.bad_blocks.iter();
            let grid = self.stripe_len.min(HEIGHT);
            let mut places = runs.flat_map(|&(at, len)| {
                let from = at.checked_sub(member.record.data_at).unwrap_or_default();
                let steps = (0..len.div_floor(grid) + 1).map(move |step| from + grid.times(step));
                steps.chain([Sectors((from + len).0.saturating_sub(1))])
            });
            places.any(|at| self.is_lost_at(slot, at, device))
        })
    }

    /// True if the rows around sector `at` of `slot` are lost without `device`.
    fn is_lost_at(&self, slot: Slot, at: Sectors, device: DeviceId) -> bool {
        let Some(no) = self.layout.find(slot, at) else { return false };
        let stripe = self.layout.stripe(no);
        let high = stripe.len;
        let band = Band { stripe, low: Sectors::ZERO, high, first: 0, last: 0 };
        let pieces = self.pieces_of(band);
        let whole = |piece: &&Band| self.bears(piece, &[], DeviceId(usize::MAX));
        pieces.iter().filter(whole).any(|piece| !self.bears(piece, &[], device))
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
