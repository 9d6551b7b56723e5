//! Whose superblock it is: the disk's, or that of its last partition.
//!
//! A 0.90 superblock lies by its device's end alone and does not say where. A partition that ends
//! with the disk, or a little before, and begins at a multiple of 64 KiB has its place exactly
//! where the disk has its own:
//!
//! ```text
//! disk       [ table |              partition 1                 | sb | ]
//! as disk    [ data ....................................... ]    ^
//! as part 1          [ data ............................... ]    ^
//! ```
//! The partition is right: a member that is a whole disk has no table whose partitions reach over
//! its superblock, since the table would be part of the array, which ends before it.

use super::{V0_90, super_at};
use crate::error::Result;
use crate::meta::{Found, Window, damaged, partitions};
use crate::units::Sectors;

/// `found` on a device of `device` sectors, unless it is a partition's superblock.
pub fn check(found: Found, device: Sectors, read: Window<'_>) -> Result<Found> {
    if found.format.name != V0_90.name {
        return Ok(found);
    }
    let claims = |partition: &partitions::Partition| {
        let room = super_at(partition.area.len).unwrap_or_default();
        partition.area.at + room == found.member.super_at && found.array.component <= room
    };
    match partitions::read(device, read).into_iter().find(claims) {
        None => Ok(found),
        Some(partition) => {
            let (at, len) = (partition.area.at, partition.area.len);
            Err(damaged(format!(
                "it lies where this device and its partition {} (sectors {at} to {}) would both \
                 keep theirs, and counts as the partition's; give the partition as the member: \
                 its own device, or this name with slice:start={at},len={len}+ in front",
                partition.number,
                partition.area.end()
            )))
        }
    }
}
