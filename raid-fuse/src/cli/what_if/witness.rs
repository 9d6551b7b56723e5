//! What each member says of itself and of the others.

use raid_core::device::Shared;
use raid_core::meta::assemble::Candidate;
use raid_core::meta::md_bitmap::{Bitmap, count_set};
use raid_core::meta::record::{ArrayRecord, DeviceRole, MemberRecord};
use raid_core::meta::time;
use raid_core::scrub::bitmap_of;
use raid_core::units::Slot;

/// A member of the array with its superblock.
pub struct Witness {
    /// Index into the devices.
    pub index: usize,
    /// Its path.
    pub name: String,
    /// What it says of the array.
    pub array: ArrayRecord,
    /// What it says of itself.
    pub member: MemberRecord,
    /// The slot it claims; none for spares and journals.
    pub slot: Option<Slot>,
    /// Witnesses (by place in the list) it says have failed or are gone.
    pub accuses: Vec<usize>,
    /// Its write-intent bitmap: the head, and how many bits are set.
    pub bitmap: Option<(Bitmap, u64)>,
}

impl Witness {
    /// Update counter.
    pub fn events(&self) -> u64 {
        self.array.events
    }

    /// Last update, seconds since 1970.
    pub fn updated(&self) -> u64 {
        time::seconds(self.array.utime)
    }
}

/// All members of array `uuid`, in the order they were given.
pub fn all(candidates: &[Candidate], devices: &[Shared], uuid: &[u8; 16]) -> Vec<Witness> {
    let mut witnesses: Vec<Witness> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let records = candidate.sightings.iter().filter_map(|s| s.record.as_ref().ok());
        let Some(found) = records.into_iter().find(|found| found.array.uuid == *uuid) else {
            continue;
        };
        let slot = match found.array.role(found.member.number) {
            DeviceRole::Active(slot) => Some(slot),
            DeviceRole::Spare | DeviceRole::Faulty | DeviceRole::Journal => None,
        };
        let bitmap = bitmap_of(uuid, &found.member, &*devices[index]);
        witnesses.push(Witness {
            index,
            name: candidate.name.clone(),
            array: found.array.clone(),
            member: found.member.clone(),
            slot,
            accuses: Vec::new(),
            bitmap: bitmap.map(|(bitmap, area)| {
                let set = count_set(&area, &bitmap);
                (bitmap, set)
            }),
        });
    }
    for judge in 0..witnesses.len() {
        let failed = |other: &usize| {
            let number = witnesses[*other].member.number;
            *other != judge
                && witnesses[judge].slot.is_some()
                && witnesses[*other].slot.is_some()
                && matches!(
                    witnesses[judge].array.role(number),
                    DeviceRole::Faulty | DeviceRole::Spare
                )
        };
        let accused: Vec<usize> = (0..witnesses.len()).filter(failed).collect();
        witnesses[judge].accuses = accused;
    }
    witnesses
}

/// The most events any active member has.
pub fn events_max(witnesses: &[Witness]) -> u64 {
    let active = witnesses.iter().filter(|witness| witness.slot.is_some());
    active.map(Witness::events).max().unwrap_or(0)
}

/// More than the one event behind that a power cut explains.
pub fn is_stale(witness: &Witness, witnesses: &[Witness]) -> bool {
    witness.slot.is_some() && witness.events().saturating_add(1) < events_max(witnesses)
}

/// What a bitmap says of the time since a member dropped out.
pub enum Change {
    /// At most so many bytes of each member were written since.
    AtMost(u64),
    /// The bitmap knows only what was written after so many events.
    TooOld(u64),
    /// The bitmap itself was not kept up to date.
    OutOfDate,
}

/// What was written since a stale member dropped out, by the bitmap of a fresh one; nothing
/// without a bitmap.
pub fn changed_since(stale: &Witness, witnesses: &[Witness]) -> Option<Change> {
    let max = events_max(witnesses);
    let fresh = witnesses.iter().filter(|witness| witness.events() == max);
    let (bitmap, set) = fresh.filter_map(|witness| witness.bitmap.as_ref()).next()?;
    Some(if bitmap.is_stale(max) {
        Change::OutOfDate
    } else if stale.events() < bitmap.events_cleared {
        Change::TooOld(bitmap.events_cleared)
    } else {
        Change::AtMost(set * u64::from(bitmap.chunk_bytes))
    })
}
