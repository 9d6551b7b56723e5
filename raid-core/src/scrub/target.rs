//! What is scanned: a layout, the members in their slots, and how far each can be trusted.

use super::finding::{Finding, Part};
use super::unsynced::Unsynced;
use crate::assembly::{check_room, layout_of};
use crate::device::{Device, Shared, read_at};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::meta::assemble::{Assembly, Seat, SeatState};
use crate::meta::md_bitmap::{self, Bitmap};
use crate::meta::record::{ArrayRecord, MemberRecord};
use crate::units::{SECTOR, Sectors, Slot, SlotSet};

/// A member and what can be read of it.
pub struct Member {
    /// Its path.
    pub name: String,
    /// The device.
    pub device: Shared,
    /// Where its data begin on the device.
    pub data_at: Sectors,
    /// It holds everything below this, counted from `data_at`; `None`: all.
    pub complete: Option<Sectors>,
    /// Sectors its bad-block log lists, from the start of the device.
    pub bad_blocks: Vec<(Sectors, Sectors)>,
    /// md reads from it only if nothing else has the data.
    pub write_mostly: bool,
}

impl Member {
    /// True if the bad-block log lists any of `len` sectors at `at`, counted from `data_at`.
    pub(super) fn is_bad(&self, at: Sectors, len: Sectors) -> bool {
        let (first, end) = (self.data_at + at, self.data_at + at + len);
        self.bad_blocks.iter().any(|(at, len)| *at < end && first.0 < at.0.saturating_add(len.0))
    }
}

/// An array to scan.
pub struct Target {
    /// Where its units lie.
    pub layout: Box<dyn Layout>,
    /// Its members by slot.
    pub members: Vec<Option<Member>>,
    /// What may be inconsistent without being wrong.
    pub unsynced: Unsynced,
}

impl Target {
    /// The array that was decided on; `devices` as the candidates were. Only reads.
    ///
    /// # Errors
    /// `Metadata` if the geometry cannot be mapped or does not fit the devices.
    pub fn of(assembly: &Assembly, devices: &[Shared]) -> Result<Target> {
        let seats = assembly.seats.iter();
        let lens: Vec<Sectors> =
            seats.map(|s| s.as_ref().map_or(Sectors::ZERO, |s| s.member.data_len)).collect();
        Target::new(&assembly.array, &lens, &assembly.seats, devices)
    }

    /// The same from an array record and seats that somebody chose.
    pub fn new(
        array: &ArrayRecord,
        lens: &[Sectors],
        seats: &[Option<Seat>],
        devices: &[Shared],
    ) -> Result<Target> {
        let layout = layout_of(array, lens)?;
        let mut unsynced = Unsynced::new(array.resync.filter(|_| array.has_redundancy()));
        let mut members = Vec::with_capacity(seats.len());
        for seat in seats {
            let Some(seat) = seat else {
                members.push(None);
                continue;
            };
            let device = devices.get(seat.candidate).cloned();
            let device =
                device.ok_or_else(|| Error::invalid(format!("no device for {}", seat.name)))?;
            check_room(array, &*device, seat)?;
            if !unsynced.is_empty() {
                add_bitmap(&mut unsynced, array, seat, &*device);
            }
            members.push(Some(member(seat, device)));
        }
        Ok(Target { layout, members, unsynced })
    }

    /// Slots without a member, and those whose rebuild is not done.
    pub fn incomplete(&self) -> SlotSet {
        let slots = self.members.iter().zip(0..);
        slots
            .filter(|(member, _)| member.as_ref().is_none_or(|member| member.complete.is_some()))
            .map(|(_, slot)| Slot(slot))
            .collect()
    }

    /// The sector of the device where `part` of `finding` begins; none without a member.
    pub fn device_at(&self, finding: &Finding, part: &Part) -> Option<Sectors> {
        let member = self.members.get(part.unit.slot.index())?.as_ref()?;
        Some(member.data_at + finding.member_at(part))
    }
}

fn member(seat: &Seat, device: Shared) -> Member {
    Member {
        name: seat.name.clone(),
        device,
        data_at: seat.member.data_at,
        complete: match seat.state {
            SeatState::InSync => None,
            SeatState::Recovering(at) => Some(at),
        },
        bad_blocks: seat.member.bad_blocks.clone(),
        write_mostly: seat.member.write_mostly,
    }
}

/// A bitmap that cannot be read or is out of date says nothing, which is no error.
fn add_bitmap(unsynced: &mut Unsynced, array: &ArrayRecord, seat: &Seat, device: &dyn Device) {
    let Some((bitmap, area)) = bitmap_of(&array.uuid, &seat.member, device) else { return };
    if bitmap.writable().is_ok() && !bitmap.is_stale(seat.events) {
        unsynced.add_bitmap(&bitmap, &area);
    }
}

/// The write-intent bitmap of a member of array `uuid`, superblock and bits; nothing if it has
/// none that makes sense.
pub fn bitmap_of(
    uuid: &[u8; 16],
    member: &MemberRecord,
    device: &dyn Device,
) -> Option<(Bitmap, Vec<u8>)> {
    let at = member.bitmap_at?;
    let mut head = vec![0; SECTOR as usize];
    read_at(device, at, &mut head).ok()?;
    let bitmap = md_bitmap::parse(&head, uuid).ok()?;
    let area = bitmap.area(at);
    let end = area.at.0.checked_add(area.len.0)?;
    if end > device.facts().sectors.0 {
        return None;
    }
    let mut bytes = vec![0; area.len.len()];
    read_at(device, at, &mut bytes).ok()?;
    Some((bitmap, bytes))
}
