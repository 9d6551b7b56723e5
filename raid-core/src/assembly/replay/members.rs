//! The members of an array while its logs are replayed: units read and written by slot.

use crate::device::cow::MemoryOverlay;
use crate::device::{Shared, read_at, write_at};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::meta::assemble::{Assembly, Seat, SeatState};
use crate::units::{Sectors, Slot};
use std::sync::Arc;

/// A member in its place.
struct Place<'a> {
    seat: &'a Seat,
    device: Shared,
    overlay: Option<Arc<MemoryOverlay>>,
}

/// The members by slot.
pub struct Members<'a> {
    /// Where units are.
    pub layout: &'a dyn Layout,
    places: Vec<Option<Place<'a>>>,
}

impl<'a> Members<'a> {
    /// The members of `assembly` on the devices in `seated`.
    pub fn new(
        assembly: &'a Assembly,
        layout: &'a dyn Layout,
        seated: &[Option<Shared>],
    ) -> Members<'a> {
        let places = assembly.seats.iter().zip(seated).map(|(seat, device)| {
            let (seat, device) = seat.as_ref().zip(device.clone())?;
            Some(Place { seat, device, overlay: None })
        });
        Members { layout, places: places.collect() }
    }

    /// From now on writes go to memory.
    pub fn veil(&mut self) {
        for place in self.places.iter_mut().flatten() {
            let overlay = Arc::new(MemoryOverlay::new(place.device.clone()));
            place.overlay = Some(overlay.clone());
            place.device = overlay;
        }
    }

    /// Puts the overlays that were written to in the places of their members.
    pub fn seat(self, seated: &mut [Option<Shared>]) {
        for (place, device) in self.places.into_iter().zip(seated) {
            let overlay = place.and_then(|place| place.overlay);
            if let Some(overlay) = overlay.filter(|overlay| !overlay.is_empty()) {
                *device = Some(overlay);
            }
        }
    }

    /// The members that are there, with their devices.
    pub fn present(&self) -> impl Iterator<Item = (Slot, &Seat, &Shared)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(slot, place)| {
            place.as_ref().map(|place| (Slot(slot as u16), place.seat, &place.device))
        })
    }

    /// True if every slot has a member that holds all its data.
    pub fn is_complete(&self) -> bool {
        let complete = |place: &Place<'_>| place.seat.state == SeatState::InSync;
        self.places.iter().all(|place| place.as_ref().is_some_and(complete))
    }

    /// True if what `slot` holds at `at` (from the start of data) can be trusted.
    pub fn can_read(&self, slot: Slot, at: Sectors) -> bool {
        match self.place(slot).map(|place| place.seat.state) {
            Some(SeatState::InSync) => true,
            Some(SeatState::Recovering(end)) => at < end,
            None => false,
        }
    }

    /// Reads from `slot`, which is there, at `at` from the start of data.
    pub fn read(&self, slot: Slot, at: Sectors, buf: &mut [u8]) -> Result<()> {
        let place = self.place(slot).expect("only members that are there are read");
        read_at(&*place.device, place.seat.member.data_at + at, buf)
            .map_err(|e| Error::io(format!("reading {} at {at}", place.seat.name), e))
    }

    /// Writes to `slot` at `at` from the start of data; nothing where there is no member.
    pub fn write(&self, slot: Slot, at: Sectors, bytes: &[u8]) -> Result<()> {
        let Some(place) = self.place(slot) else { return Ok(()) };
        write_at(&*place.device, place.seat.member.data_at + at, bytes)
            .map_err(|e| Error::io(format!("writing {} at {at}", place.seat.name), e))
    }

    /// Makes everything durable.
    pub fn flush(&self) -> Result<()> {
        self.present().try_for_each(|(_, seat, device)| {
            device.flush().map_err(|e| Error::io(format!("flushing {}", seat.name), e))
        })
    }

    fn place(&self, slot: Slot) -> Option<&Place<'a>> {
        self.places.get(slot.index())?.as_ref()
    }
}
