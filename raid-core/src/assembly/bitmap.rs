//! Keeping a write-intent bitmap truthful without maintaining it: everything may be dirty.
//!
//! Before an array with an internal bitmap is written to, every bit is set on every member; its
//! update counter then follows the superblocks'. The kernel clears what it finds clean.

use crate::device::{Device, read_at, write_at};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::md_bitmap;
use crate::meta::record::{ArrayRecord, MemberRecord};
use crate::units::{SECTOR, Sectors};

/// Sets all bits if the array will be written. Returns the bitmap's first sector, to be rewritten
/// with every superblock; nothing if there is no bitmap or nothing will be written.
pub(super) fn prepare(
    array: &ArrayRecord,
    member: &MemberRecord,
    device: &dyn Device,
    read_only: bool,
) -> Result<Option<Vec<u8>>> {
    let Some(at) = member.bitmap_at.filter(|_| !read_only) else { return Ok(None) };
    let mut head = vec![0; SECTOR as usize];
    let io = |e| Error::io("its write-intent bitmap", e);
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
    let mut bytes = vec![0; area.len.len()];
    read_at(device, at, &mut bytes).map_err(io)?;
    if !md_bitmap::all_set(&bytes, &bitmap) {
        md_bitmap::set_all(&mut bytes);
        write_at(device, at, &bytes).map_err(io)?;
        device.flush().map_err(io)?;
    }
    bytes.truncate(Sectors(1).len());
    Ok(Some(bytes))
}
