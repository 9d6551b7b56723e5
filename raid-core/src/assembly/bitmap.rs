//! Reading the write-intent bitmap at the start.

use crate::device::{self, Device, read_at};
use crate::engine::Bitmap;
use crate::error::{Error, ErrorKind, Result};
use crate::meta::assemble::Seat;
use crate::meta::md_bitmap;
use crate::meta::record::{ArrayRecord, MemberRecord};
use crate::units::{SECTOR, Sectors};

/// The bitmap of the array, from the member whose copy is the newest; nothing if it has none.
///
/// # Errors
/// An array that will be written has a bitmap that no member holds in a form we can keep.
pub(super) fn load(
    array: &ArrayRecord,
    seats: &[Option<Seat>],
    devices: &[device::Shared],
    read_only: bool,
) -> Result<Option<Bitmap>> {
    let mut newest: Option<(u64, Vec<u8>)> = None;
    let mut trouble = None;
    for seat in seats.iter().flatten().filter(|s| s.member.bitmap_at.is_some()) {
        let Some(device) = devices.get(seat.candidate) else { continue };
        match image(array, &seat.member, &**device) {
            Ok((events, image)) if newest.as_ref().is_none_or(|n| n.0 < events) => {
                newest = Some((events, image));
            }
            Ok(_) => {}
            Err(error) => trouble = Some(error.context(format!("member {}", seat.name))),
        }
    }
    match (newest, trouble) {
        (Some((_, image)), _) => {
            let unclean = array.resync.is_some();
            Bitmap::load(image, &array.uuid, array.events, unclean).map(Some)
        }
        (None, Some(error)) if !read_only => Err(error),
        (None, _) => Ok(None),
    }
}

fn image(
    array: &ArrayRecord,
    member: &MemberRecord,
    device: &dyn Device,
) -> Result<(u64, Vec<u8>)> {
    let at = member.bitmap_at.unwrap_or_default();
    let io = |e| Error::io("its write-intent bitmap", e);
    let mut head = vec![0; SECTOR as usize];
    read_at(device, at, &mut head).map_err(io)?;
    let bitmap = md_bitmap::parse(&head, &array.uuid)?;
    bitmap.writable().map_err(|why| {
        Error::new(ErrorKind::Refused, format!("{why}; mount it with --read-only"))
    })?;
    let area = bitmap.area(at);
    let end = area.at.0.checked_add(area.len.0);
    if end.is_none_or(|end| end > device.facts().sectors.0) {
        return Err(Error::new(ErrorKind::Metadata, "its bitmap reaches past its end"));
    }
    let mut bytes = vec![0; Sectors(area.len.0).len()];
    read_at(device, at, &mut bytes).map_err(io)?;
    Ok((bitmap.events, bytes))
}
