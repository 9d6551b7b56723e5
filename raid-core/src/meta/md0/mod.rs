//! md metadata 0.90, in either byte order.
//!
//! ```text
//! [ data ..................... ][ superblock, 4 KiB ][ bitmap, up to 60 KiB ][ up to 64 KiB ]
//! ```
//! The superblock is 1024 words in the byte order of the machine that made it, in the last whole
//! 64 KiB of the member; data begins at sector zero. It knows 27 devices, no names, no ids of
//! members, no bad blocks and no half-done rebuilds, and it does not say where it lies: that of a
//! disk's last partition is also where the disk's own would be (see [`owner`]).
//!
//! [`packet`] sees the words, [`parse`] makes a record that is only ever valid, [`emit`] makes
//! words again in the byte order they had.
//!
//! Refuses: a reshape (minor version 91), which would have to be mapped.

pub mod emit;
pub mod owner;
pub mod packet;
pub mod parse;
mod sha1;
#[cfg(test)]
pub(in crate::meta) mod tests;

use super::examine::examine_md0;
use super::{Format, Identity};
use crate::units::Sectors;
use packet::Packet;

pub use emit::other_byte_order;
pub use packet::ByteOrder;

/// Superblock near the end, without saying so; the only one of old arrays.
pub const V0_90: Format = Format {
    name: "0.90",
    summary: "superblock in the last 64 to 128 KiB of each member; at most 27 members of 4 TiB",
    super_at,
    recognise: |bytes| Packet::new(bytes).is_some(),
    identity: |bytes| Packet::new(bytes).map(|packet| identity(&packet)).unwrap_or_default(),
    examine: examine_md0,
    parse: |bytes, at, _| parse::parse(&V0_90, bytes, at),
    emit: emit::emit,
};

/// Descriptors in a superblock, and so devices of an array (`MD_SB_DISKS`).
pub const DEVICES_MAX: u32 = 27;
/// A component of 4 TiB or more cannot be recorded: the size is 32 bits of KiB.
pub const COMPONENT_END: Sectors = Sectors(1 << 33);
/// The superblock begins the last whole 64 KiB.
pub const RESERVED: Sectors = Sectors(128);
/// The bitmap follows the superblock at this distance, and fills the 64 KiB at most.
pub const BITMAP_AFTER: Sectors = Sectors(8);
/// Sectors there are for a bitmap.
pub const BITMAP_ROOM: Sectors = Sectors(120);

/// The sector of the superblock on a device of `device` sectors; data ends there.
pub fn super_at(device: Sectors) -> Option<Sectors> {
    device.round_down(RESERVED).checked_sub(RESERVED).filter(|at| !at.is_empty())
}

/// The id as a bitmap of the array repeats it: in the order of the bytes on disk.
pub fn bitmap_id(uuid: &[u8; 16], order: ByteOrder) -> [u8; 16] {
    match order {
        ByteOrder::Big => *uuid,
        ByteOrder::Little => reversed_words(uuid),
    }
}

/// `uuid` with the bytes of each of its four words reversed.
pub(super) fn reversed_words(uuid: &[u8; 16]) -> [u8; 16] {
    let mut id = *uuid;
    id.chunks_exact_mut(4).for_each(<[u8]>::reverse);
    id
}

/// `uuid` with mdadm's mark of the host it was made for: the last eight bytes on disk are the
/// first of the SHA-1 of the host's name.
pub fn id_with_host(uuid: &[u8; 16], host: &[u8]) -> [u8; 16] {
    let mut on_disk = bitmap_id(uuid, ByteOrder::OWN);
    on_disk[8..].copy_from_slice(&sha1::digest(host)[..8]);
    bitmap_id(&on_disk, ByteOrder::OWN)
}

fn identity(packet: &Packet) -> Identity {
    Identity {
        uuid: packet.uuid(),
        name: Vec::new(),
        level: packet.level(),
        events: packet.events(),
        utime: packet.utime(),
        is_sound: packet.checksum_matches(),
    }
}
