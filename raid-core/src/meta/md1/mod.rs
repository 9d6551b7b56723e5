//! md metadata 1.0, 1.1 and 1.2: one structure in three places.
//!
//! ```text
//! 1.0   [ data ................ ][ bitmap ][ bad blocks ][ superblock, 8 to 12 KiB from the end ]
//! 1.1   [ superblock ][ bitmap or PPL ][ bad blocks ][ room ][ data ....................... ]
//! 1.2   [ 4 KiB ][ superblock ][ bitmap or PPL ][ bad blocks ][ room ][ data .............. ]
//! ```
//!
//! [`packet`] sees the bytes, [`parse`] makes a record that is only ever valid, [`emit`] makes
//! bytes again, [`features`] knows the feature bits.

pub mod emit;
pub mod features;
pub mod packet;
pub mod parse;
#[cfg(test)]
mod tests;

use super::bytes::le32;
use super::examine::examine_md1;
use super::{Format, Identity};
use crate::units::Sectors;
use packet::{Packet, field};

/// Superblock 4 KiB from the start; the default.
pub const V1_2: Format = Format {
    name: "1.2",
    summary: "superblock 4 KiB from the start of each member (the default)",
    super_at: |device| at_start(Sectors(8), device),
    recognise,
    identity,
    examine: |bytes, at, device| examine_md1("1.2", bytes, at, device),
    parse: |bytes, at, device| parse::parse(&V1_2, bytes, at, device),
    emit: emit::emit,
};

/// Superblock at the very start.
pub const V1_1: Format = Format {
    name: "1.1",
    summary: "superblock at the start of each member",
    super_at: |device| at_start(Sectors(0), device),
    recognise,
    identity,
    examine: |bytes, at, device| examine_md1("1.1", bytes, at, device),
    parse: |bytes, at, device| parse::parse(&V1_1, bytes, at, device),
    emit: emit::emit,
};

/// Superblock near the end.
pub const V1_0: Format = Format {
    name: "1.0",
    summary: "superblock 8 to 12 KiB before the end of each member; data begins at its start",
    super_at: near_end,
    recognise,
    identity,
    examine: |bytes, at, device| examine_md1("1.0", bytes, at, device),
    parse: |bytes, at, device| parse::parse(&V1_0, bytes, at, device),
    emit: emit::emit,
};

/// Smallest device mdadm puts a 1.x superblock on.
const DEVICE_MIN: Sectors = Sectors(24);

fn at_start(at: Sectors, device: Sectors) -> Option<Sectors> {
    (device >= DEVICE_MIN).then_some(at)
}

fn near_end(device: Sectors) -> Option<Sectors> {
    (device >= DEVICE_MIN).then(|| (device - Sectors(16)).round_down(Sectors(8)))
}

fn recognise(bytes: &[u8]) -> bool {
    le32(bytes, field::MAGIC) == packet::MAGIC && le32(bytes, field::MAJOR) == 1
}

fn identity(bytes: &[u8]) -> Identity {
    let packet = Packet::new(bytes);
    Identity {
        uuid: packet.uuid(),
        name: packet.name().to_vec(),
        level: packet.level(),
        events: packet.events(),
        utime: packet.utime(),
        is_sound: packet.checksum_matches(),
    }
}
