//! Spoiling bytes: flips, cuts, splices and numbers at the edges of their types, with checksums
//! made right again where that lets the bytes get further.

use raid_core::meta::{md0, md1};
use raid_core::sim::Rng;

/// Numbers at which things go wrong.
const EDGES: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    9,
    15,
    16,
    63,
    64,
    65,
    127,
    128,
    255,
    256,
    384,
    511,
    512,
    513,
    1919,
    1920,
    1921,
    4095,
    4096,
    4097,
    0x7fff,
    0x8000,
    0xfffd,
    0xfffe,
    0xffff,
    0x1_0000,
    0x10202,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fffe,
    0xffff_ffff,
    0x1_0000_0000,
    1 << 53,
    (1 << 54) - 1,
    1 << 54,
    1 << 55,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 7,
    u64::MAX - 1,
    u64::MAX,
];

/// A number at an edge, near a power of two, small, or any.
pub fn number(rng: &mut Rng) -> u64 {
    match rng.below(5) {
        0 | 1 => *rng.pick(EDGES),
        2 => (1u64 << rng.below(64)).wrapping_add(rng.below(3)).wrapping_sub(1),
        3 => rng.below(300),
        _ => rng.number(),
    }
}

/// Spoils `bytes` in one to four ways; they may get shorter.
pub fn bytes(rng: &mut Rng, bytes: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(4) {
        match rng.below(10) {
            0 => bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize),
            1 => splice(rng, bytes),
            2..5 => flip(rng, bytes),
            _ => field(rng, bytes),
        }
    }
}

/// Changes one bit or one byte.
pub fn flip(rng: &mut Rng, bytes: &mut [u8]) {
    if !bytes.is_empty() {
        let at = rng.below(bytes.len() as u64) as usize;
        match rng.once_in(2) {
            true => bytes[at] ^= 1 << rng.below(8),
            false => bytes[at] = rng.number() as u8,
        }
    }
}

/// Puts a number into an aligned place of 1, 2, 4 or 8 bytes, in either byte order.
fn field(rng: &mut Rng, bytes: &mut [u8]) {
    let width = 1usize << rng.below(4);
    let count = bytes.len() / width;
    if count > 0 {
        // Heads hold most of what matters.
        let count = if rng.once_in(4) { count } else { count.min(320 / width) };
        let at = rng.below(count as u64) as usize * width;
        let value = number(rng);
        match rng.once_in(5) {
            true => bytes[at..at + width].copy_from_slice(&value.to_be_bytes()[8 - width..]),
            false => bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]),
        }
    }
}

/// Copies a part of the bytes over another.
fn splice(rng: &mut Rng, bytes: &mut [u8]) {
    let len = bytes.len() as u64;
    if len > 0 {
        let (from, to) = (rng.below(len) as usize, rng.below(len) as usize);
        let most = bytes.len() - from.max(to);
        let part = 1 + rng.below(most as u64) as usize;
        bytes.copy_within(from..from + part, to);
    }
}

/// Makes the checksum of an md superblock right, whichever kind it is.
pub fn sign(block: &mut [u8]) {
    if block.len() < md1::packet::SIZE_MAX {
        return;
    }
    let is_one = block[md1::packet::field::MAJOR..][..4] == 1u32.to_le_bytes();
    if let Some(mut packet) = md0::packet::Packet::new(block).filter(|_| !is_one) {
        packet.sign();
        block[..md0::packet::SIZE].copy_from_slice(&packet.to_bytes());
    } else if let Some(sum) = md1::packet::Packet::new(block).expected_checksum() {
        block[md1::packet::field::CHECKSUM..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Makes the checksum of a partial parity log's header right.
pub fn sign_ppl(header: &mut [u8]) {
    const CHECKSUM: usize = 532;
    if header.len() >= 4096 {
        header[CHECKSUM..CHECKSUM + 4].fill(0);
        let sum = crc32c::crc32c(&header[..4096]);
        header[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// Makes the checksum of a journal's meta block right.
pub fn sign_journal(block: &mut [u8], uuid: &[u8; 16]) {
    if block.len() == 4096 {
        block[4..8].fill(0);
        let sum = raid_core::meta::md_journal::Seed::of(uuid).checksum(block);
        block[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}
