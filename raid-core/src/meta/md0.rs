//! md metadata 0.90, in either byte order: recognised and named, not yet served.
//!
//! The structure is 1024 words in the byte order of the machine that made it, 64 to 128 KiB
//! before the end of the member. The word table is `struct mdp_superblock_s` of the kernel.

use super::bytes::array;
use super::examine::examine_md0;
use super::record::{ArrayRecord, MemberRecord};
use super::{Format, Found, Identity, damaged};
use crate::error::{Error, ErrorKind, Result};
use crate::units::Sectors;

/// md 0.90: found and named; assembling it is refused.
pub const V0_90: Format = Format {
    name: "0.90",
    summary: "superblock in the last 64 to 128 KiB; recognised only",
    super_at,
    recognise: |bytes| Packet::new(bytes).is_some(),
    identity: |bytes| Packet::new(bytes).map(|packet| packet.identity()).unwrap_or_default(),
    examine: examine_md0,
    parse,
    emit: |_: &ArrayRecord, _: &MemberRecord| Err(not_yet()),
};

const MAGIC: u32 = 0xa92b_4efc;
/// Bytes of the structure.
const SIZE: usize = 4096;
/// The superblock lies in the last whole 64 KiB.
const RESERVED: Sectors = Sectors(128);

/// Word numbers.
mod word {
    pub const MAJOR: usize = 1;
    pub const MINOR: usize = 2;
    pub const UUID0: usize = 5;
    pub const CTIME: usize = 6;
    pub const LEVEL: usize = 7;
    pub const SIZE: usize = 8;
    pub const RAID_DISKS: usize = 10;
    pub const UUID1: usize = 13;
    pub const UTIME: usize = 32;
    pub const STATE: usize = 33;
    pub const CHECKSUM: usize = 38;
    pub const EVENTS: usize = 39;
    pub const LAYOUT: usize = 64;
    pub const CHUNK: usize = 65;
    pub const THIS_DISK: usize = 992;
}

/// The words of a 0.90 superblock, whatever they hold.
#[derive(Clone, Debug)]
pub struct Packet {
    block: Box<[u8; SIZE]>,
    big_endian: bool,
}

impl Packet {
    /// The view over `bytes`, if they begin with md's magic in either byte order and major 0.
    pub fn new(bytes: &[u8]) -> Option<Packet> {
        let big_endian = match array::<4>(bytes, 0) {
            first if first == MAGIC.to_le_bytes() => false,
            first if first == MAGIC.to_be_bytes() => true,
            _ => return None,
        };
        let packet = Packet { block: Box::new(array(bytes, 0)), big_endian };
        (packet.word(word::MAJOR) == 0).then_some(packet)
    }

    /// Word `n` in the byte order of the superblock.
    fn word(&self, n: usize) -> u32 {
        match self.big_endian {
            true => u32::from_be_bytes(array(&self.block[..], n * 4)),
            false => u32::from_le_bytes(array(&self.block[..], n * 4)),
        }
    }

    /// True if it was written by a big-endian machine.
    pub fn is_big_endian(&self) -> bool {
        self.big_endian
    }

    /// Minor version: 90, and 91 while a reshape runs.
    pub fn minor(&self) -> u32 {
        self.word(word::MINOR)
    }

    /// Array id, in the order mdadm prints it.
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        let words = [word::UUID0, word::UUID1, word::UUID1 + 1, word::UUID1 + 2];
        for (place, n) in uuid.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&self.word(n).to_be_bytes());
        }
        uuid
    }

    /// Creation time, seconds since 1970.
    pub fn ctime(&self) -> u64 {
        self.word(word::CTIME).into()
    }

    /// Level.
    pub fn level(&self) -> i32 {
        self.word(word::LEVEL) as i32
    }

    /// Used part of each member.
    pub fn component(&self) -> Sectors {
        Sectors::kib(self.word(word::SIZE).into())
    }

    /// Number of slots.
    pub fn raid_disks(&self) -> u32 {
        self.word(word::RAID_DISKS)
    }

    /// Last update, seconds since 1970.
    pub fn utime(&self) -> u64 {
        self.word(word::UTIME).into()
    }

    /// True if it was stopped cleanly.
    pub fn is_clean(&self) -> bool {
        self.word(word::STATE) & 1 != 0
    }

    /// Update counter; the halves change places with the byte order.
    pub fn events(&self) -> u64 {
        let (a, b) = (self.word(word::EVENTS), self.word(word::EVENTS + 1));
        let (low, high) = if self.big_endian { (b, a) } else { (a, b) };
        u64::from(high) << 32 | u64::from(low)
    }

    /// Layout word.
    pub fn layout(&self) -> u32 {
        self.word(word::LAYOUT)
    }

    /// Chunk in bytes.
    pub fn chunk_bytes(&self) -> u32 {
        self.word(word::CHUNK)
    }

    /// This member's own entry: number, slot, state bits.
    pub fn this_disk(&self) -> (u32, u32, u32) {
        let at = word::THIS_DISK;
        (self.word(at), self.word(at + 3), self.word(at + 4))
    }

    /// Checksum as stored.
    pub fn checksum(&self) -> u32 {
        self.word(word::CHECKSUM)
    }

    /// The checksum the words should have: their sum, folded to 32 bits.
    pub fn expected_checksum(&self) -> u32 {
        let words = (0..SIZE / 4).filter(|&n| n != word::CHECKSUM);
        let sum: u64 = words.map(|n| u64::from(self.word(n))).sum();
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }

    fn identity(&self) -> Identity {
        Identity {
            uuid: self.uuid(),
            name: Vec::new(),
            level: self.level(),
            events: self.events(),
            utime: self.utime(),
            is_sound: self.checksum() == self.expected_checksum(),
        }
    }
}

fn super_at(device: Sectors) -> Option<Sectors> {
    device.round_down(RESERVED).checked_sub(RESERVED)
}

fn parse(bytes: &[u8], _: Sectors, _: Sectors) -> Result<Found> {
    match Packet::new(bytes) {
        Some(packet) if packet.checksum() == packet.expected_checksum() => Err(not_yet()),
        Some(packet) => Err(damaged(format!(
            "its checksum is wrong: {:#010x} stored, {:#010x} expected",
            packet.checksum(),
            packet.expected_checksum()
        ))),
        None => Err(damaged("there is no md 0.90 superblock here")),
    }
}

fn not_yet() -> Error {
    Error::new(ErrorKind::Metadata, "0.90 metadata is read by a later version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::bytes::put;

    /// A superblock in one byte order, with the same meaning in both.
    fn sample(big_endian: bool) -> Vec<u8> {
        let mut bytes = vec![0; SIZE];
        let mut set = |n: usize, value: u32| {
            let word = if big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
            put(&mut bytes, n * 4, &word);
        };
        let (low, high) = if big_endian { (40, 39) } else { (39, 40) };
        let words = [(0, MAGIC), (2, 90), (5, 0x0102_0304), (13, 5), (14, 6), (15, 7), (7, 5)];
        words.iter().for_each(|&(n, value)| set(n, value));
        [(10, 3), (low, 77), (high, 1), (32, 1_700_000_000)].iter().for_each(|&(n, v)| set(n, v));
        let sum = Packet::new(&bytes).unwrap().expected_checksum();
        let word = if big_endian { sum.to_be_bytes() } else { sum.to_le_bytes() };
        put(&mut bytes, 38 * 4, &word);
        bytes
    }

    #[test]
    fn both_byte_orders_say_the_same() {
        for big_endian in [false, true] {
            let bytes = sample(big_endian);
            let packet = Packet::new(&bytes).unwrap();
            assert_eq!(packet.is_big_endian(), big_endian);
            assert_eq!((packet.level(), packet.raid_disks(), packet.minor()), (5, 3, 90));
            assert_eq!(packet.events(), (1 << 32) + 77);
            assert_eq!(packet.uuid(), [1, 2, 3, 4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7]);
            assert!((V0_90.identity)(&bytes).is_sound);
            let error = (V0_90.parse)(&bytes, Sectors(0), Sectors(256)).unwrap_err();
            assert_eq!(error.to_string(), "0.90 metadata is read by a later version");
        }
    }

    #[test]
    fn it_lies_in_the_last_whole_64_kib() {
        assert_eq!(super_at(Sectors(256)), Some(Sectors(128)));
        assert_eq!(super_at(Sectors(383)), Some(Sectors(128)));
        assert_eq!(super_at(Sectors(384)), Some(Sectors(256)));
        assert_eq!(super_at(Sectors(127)), None);
    }
}
