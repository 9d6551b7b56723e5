//! Where the sectors that were given go: so many usable, so many for redundancy, so many lost.

use super::Request;
use crate::meta::record::ArrayRecord;
use crate::meta::sizes::Copies;
use crate::units::Sectors;

/// An account that balances: given + missing = usable + redundancy + metadata + rounding + unused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Breakdown {
    /// All sectors of all members that are there.
    pub given: Sectors,
    /// What members that are missing would have to hold.
    pub missing: Sectors,
    /// The array's size.
    pub usable: Sectors,
    /// Parity and further copies.
    pub redundancy: Sectors,
    /// Superblocks, logs, bitmaps and the room before or behind the data.
    pub metadata: Sectors,
    /// Lost to rounding.
    pub rounding: Sectors,
    /// Room of members that are larger than the smallest, or than the size asked for: the array
    /// uses as much of each.
    pub unused: Sectors,
}

impl Breakdown {
    pub(super) fn new(
        request: &Request,
        array: &ArrayRecord,
        rooms: &[Option<Sectors>],
        size: Sectors,
    ) -> Breakdown {
        let given: Sectors = request.members.iter().flatten().map(|member| member.sectors).sum();
        let room: Sectors = rooms.iter().flatten().copied().sum();
        let absent = rooms.iter().filter(|room| room.is_none()).count() as u64;
        let missing = array.component.times(absent);
        let redundancy = redundancy(array, size);
        // With metadata 1.0 a RAID 0 keeps no room for a bitmap, so it may use a few sectors
        // more than the room that was reckoned with.
        let used = size + redundancy;
        let metadata = given - room;
        let unused = unused(request, array, rooms);
        let beyond = used.checked_sub(room + missing).unwrap_or_default();
        Breakdown {
            given,
            missing,
            usable: size,
            redundancy,
            metadata: metadata - beyond,
            rounding: (room + missing + beyond) - used - unused,
            unused,
        }
    }
}

/// What members have beyond the smallest one or the size asked for; nothing where each is used
/// whole.
fn unused(request: &Request, array: &ArrayRecord, rooms: &[Option<Sectors>]) -> Sectors {
    if array.component.is_empty() {
        return Sectors::ZERO;
    }
    let smallest = rooms.iter().flatten().copied().min().unwrap_or_default();
    let used = request.size.map_or(smallest, |_| array.component);
    rooms.iter().flatten().map(|room| room.checked_sub(used).unwrap_or_default()).sum()
}

/// Sectors of parity and further copies.
fn redundancy(array: &ArrayRecord, size: Sectors) -> Sectors {
    match array.level {
        1 => array.component.times(u64::from(array.slots) - 1),
        4 | 5 => array.component,
        6 => array.component.times(2),
        10 => size.times(Copies::of(array.layout).count() - 1),
        _ => Sectors::ZERO,
    }
}
