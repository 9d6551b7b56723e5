//! Making a new array: what is there first, then what was planned.

use crate::device::{self, Device, read_at, write_at, zero};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::create::{Creation, PlannedMember};
use crate::meta::foreign::{self, Foreign};
use crate::meta::partitions::{self, Partition};
use crate::meta::{self, Sighting};
use crate::units::Sectors;

/// Sectors read at most to find out whether data areas hold zeros, per member: holes are free,
/// and what was written is not worth minutes of reading.
const ZERO_READ_MAX: Sectors = Sectors::kib(64 << 10);

/// What a device carries.
#[derive(Debug)]
pub struct Content {
    /// md superblocks, right or wrong.
    pub md: Vec<Sighting>,
    /// Everything else with a name.
    pub foreign: Vec<Foreign>,
    /// Where its partition table says that partitions lie.
    pub partitions: Vec<Partition>,
}

impl Content {
    /// True if nothing was recognised.
    pub fn is_empty(&self) -> bool {
        self.md.is_empty() && self.foreign.is_empty()
    }
}

/// Looks at what `device` carries; writes nothing.
pub fn content(device: &dyn Device) -> Result<Content> {
    let sectors = device.facts().sectors;
    let mut window = |at: Sectors, buf: &mut [u8]| read_at(device, at, buf);
    let md = meta::probe(sectors, &mut window)?;
    let foreign = foreign::probe(sectors, &mut window)?;
    let partitions = partitions::read(sectors, &mut window);
    Ok(Content { md, foreign, partitions })
}

/// True if `device` is known to hold something other than zeros, recognised or not. Looks at no
/// more than a bounded part of what was written; an answer of false promises nothing.
pub fn holds_data(device: &dyn Device) -> bool {
    let all = device.facts().sectors;
    // An error here only means that nothing is known; the write that follows will tell it.
    matches!(zero::is_zero(device, Sectors::ZERO, all, ZERO_READ_MAX), Ok(Some(false)))
}

/// True if everything from sector `from` on is known to be zero: the parity of zeros is zero, so
/// a new array of such members needs no resync.
pub fn data_is_zero(device: &dyn Device, from: Sectors) -> bool {
    let Some(len) = device.facts().sectors.checked_sub(from) else { return false };
    // An error here only means that nothing is known; the write that follows will tell it.
    matches!(zero::is_zero(device, from, len, ZERO_READ_MAX), Ok(Some(true)))
}

/// Writes the new members: logs and bitmap first, superblock last, each made durable. `devices`
/// in the order of [`Creation::members`], the journal last. Superblocks elsewhere on a member are
/// wiped, so that nobody finds two.
pub fn make(creation: &Creation, devices: &[device::Shared]) -> Result<()> {
    let planned: Vec<&PlannedMember> = creation.members.iter().chain(&creation.journal).collect();
    assert_eq!(planned.len(), devices.len(), "one device for each planned member");
    for (planned, device) in planned.into_iter().zip(devices) {
        let name = &device.facts().name;
        let io = |e| Error::io(format!("writing the metadata of {name}"), e);
        for sighting in content(&**device)?.md {
            if sighting.at != planned.superblock.0 {
                write_at(&**device, sighting.at, &vec![0; sighting.bytes.len()]).map_err(io)?;
            }
        }
        let areas = [planned.bad_log.as_ref(), planned.bitmap.as_ref(), planned.log.as_ref()];
        for (at, bytes) in areas.into_iter().flatten() {
            write_at(&**device, *at, bytes).map_err(io)?;
        }
        device.flush().map_err(io)?;
        let (at, bytes) = &planned.superblock;
        write_at(&**device, *at, bytes).map_err(io)?;
        device.flush().map_err(io)?;
    }
    match devices.is_empty() {
        true => Err(Error::new(ErrorKind::Invalid, "no member to write to")),
        false => Ok(()),
    }
}
