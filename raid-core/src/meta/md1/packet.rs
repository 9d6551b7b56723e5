//! The bytes of an md 1.x superblock as fields: a view that never fails and hides nothing.
//!
//! Whether the values make sense is decided elsewhere; `examine` shows them also when they
//! do not. The byte table is `struct mdp_superblock_1` of the kernel's `md_p.h`.

use crate::meta::bytes::{array, le16, le32, le64, without_padding};

/// First word of every md superblock.
pub const MAGIC: u32 = 0xa92b_4efc;
/// Bytes before the role map.
pub const HEAD: usize = 256;
/// A superblock never takes more: eight sectors.
pub const SIZE_MAX: usize = 4096;
/// So many entries of two bytes fit behind the head.
pub const MAX_DEV: u32 = ((SIZE_MAX - HEAD) / 2) as u32;
/// "Never": resync position of a clean array.
pub const MAX_SECTOR: u64 = u64::MAX;

/// Byte offsets of the fields.
pub mod field {
    /// 0xa92b4efc.
    pub const MAGIC: usize = 0;
    /// 1.
    pub const MAJOR: usize = 4;
    /// Feature bits.
    pub const FEATURES: usize = 8;
    /// Zero.
    pub const PAD0: usize = 12;
    /// Array id, 16 bytes.
    pub const UUID: usize = 16;
    /// Name, 32 bytes, padded with zeros.
    pub const NAME: usize = 32;
    /// Creation time.
    pub const CTIME: usize = 64;
    /// Level, signed.
    pub const LEVEL: usize = 72;
    /// Layout word.
    pub const LAYOUT: usize = 76;
    /// Used sectors per member.
    pub const SIZE: usize = 80;
    /// Chunk in sectors.
    pub const CHUNK: usize = 88;
    /// Number of slots.
    pub const RAID_DISKS: usize = 92;
    /// Bitmap, in sectors from the superblock, signed; or PPL offset (i16) and size (u16).
    pub const BITMAP_OFFSET: usize = 96;
    /// Sectors of the PPL area.
    pub const PPL_SIZE: usize = 98;
    /// Reshape: level afterwards.
    pub const NEW_LEVEL: usize = 100;
    /// Reshape: array sectors done.
    pub const RESHAPE_POSITION: usize = 104;
    /// Reshape: slots gained, signed.
    pub const DELTA_DISKS: usize = 112;
    /// Reshape: layout afterwards.
    pub const NEW_LAYOUT: usize = 116;
    /// Reshape: chunk afterwards.
    pub const NEW_CHUNK: usize = 120;
    /// Reshape: how far data moves on this member, signed sectors.
    pub const NEW_OFFSET: usize = 124;
    /// First data sector.
    pub const DATA_OFFSET: usize = 128;
    /// Data sectors.
    pub const DATA_SIZE: usize = 136;
    /// Where this superblock lies.
    pub const SUPER_OFFSET: usize = 144;
    /// In sync up to here; on a journal, where its tail is.
    pub const RECOVERY_OFFSET: usize = 152;
    /// Index into the role map.
    pub const DEV_NUMBER: usize = 160;
    /// Corrected read errors.
    pub const CORRECTED_READS: usize = 164;
    /// Member id, 16 bytes.
    pub const DEVICE_UUID: usize = 168;
    /// 1 write-mostly, 2 failfast.
    pub const DEVFLAGS: usize = 184;
    /// Unit of the bad-block log: 512 << shift bytes.
    pub const BBLOG_SHIFT: usize = 185;
    /// Sectors of the bad-block log.
    pub const BBLOG_SIZE: usize = 186;
    /// Bad-block log, in sectors from the superblock, signed.
    pub const BBLOG_OFFSET: usize = 188;
    /// Last update.
    pub const UTIME: usize = 192;
    /// Update counter.
    pub const EVENTS: usize = 200;
    /// In sync below.
    pub const RESYNC_OFFSET: usize = 208;
    /// Checksum.
    pub const CHECKSUM: usize = 216;
    /// Entries of the role map.
    pub const MAX_DEV: usize = 220;
    /// Bytes in a logical block; zero before Linux 6.19.
    pub const LOGICAL_BLOCK: usize = 224;
    /// Zero up to the role map.
    pub const PAD3: usize = 228;
    /// The role map, two bytes an entry.
    pub const ROLES: usize = 256;
}

/// The fields of a superblock, whatever they hold. Missing bytes read as zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    block: Box<[u8; SIZE_MAX]>,
}

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $read:ident($at:ident);)*) => {
        impl Packet {
            $($(#[$doc])* pub fn $name(&self) -> $type {
                $read(&self.block[..], field::$at) as $type
            })*
        }
    };
}

fields! {
    /// First word.
    magic: u32 = le32(MAGIC);
    /// Major version.
    major: u32 = le32(MAJOR);
    /// Feature bits.
    features: u32 = le32(FEATURES);
    /// Must be zero.
    pad0: u32 = le32(PAD0);
    /// Creation time.
    ctime: u64 = le64(CTIME);
    /// Level.
    level: i32 = le32(LEVEL);
    /// Layout word.
    layout: u32 = le32(LAYOUT);
    /// Used sectors per member.
    size: u64 = le64(SIZE);
    /// Chunk in sectors.
    chunk: u32 = le32(CHUNK);
    /// Slots.
    raid_disks: u32 = le32(RAID_DISKS);
    /// Bitmap, sectors from the superblock.
    bitmap_offset: i32 = le32(BITMAP_OFFSET);
    /// PPL, sectors from the superblock.
    ppl_offset: i16 = le16(BITMAP_OFFSET);
    /// Sectors of the PPL.
    ppl_size: u16 = le16(PPL_SIZE);
    /// Level after a reshape.
    new_level: i32 = le32(NEW_LEVEL);
    /// Array sectors reshaped.
    reshape_position: u64 = le64(RESHAPE_POSITION);
    /// Slots gained by a reshape.
    delta_disks: i32 = le32(DELTA_DISKS);
    /// Layout after a reshape.
    new_layout: u32 = le32(NEW_LAYOUT);
    /// Chunk after a reshape, in sectors.
    new_chunk: u32 = le32(NEW_CHUNK);
    /// Sectors the data of this member moves by.
    new_offset: i32 = le32(NEW_OFFSET);
    /// First data sector.
    data_offset: u64 = le64(DATA_OFFSET);
    /// Data sectors.
    data_size: u64 = le64(DATA_SIZE);
    /// Where the superblock says it lies.
    super_offset: u64 = le64(SUPER_OFFSET);
    /// Recovery position or journal tail.
    recovery_offset: u64 = le64(RECOVERY_OFFSET);
    /// Device number.
    dev_number: u32 = le32(DEV_NUMBER);
    /// Corrected read errors.
    corrected_reads: u32 = le32(CORRECTED_READS);
    /// Sectors of the bad-block log.
    bblog_size: u16 = le16(BBLOG_SIZE);
    /// Bad-block log, sectors from the superblock.
    bblog_offset: i32 = le32(BBLOG_OFFSET);
    /// Last update.
    utime: u64 = le64(UTIME);
    /// Update counter.
    events: u64 = le64(EVENTS);
    /// In sync below.
    resync_offset: u64 = le64(RESYNC_OFFSET);
    /// Checksum as stored.
    checksum: u32 = le32(CHECKSUM);
    /// Entries of the role map.
    max_dev: u32 = le32(MAX_DEV);
    /// Bytes of a logical block, or zero.
    logical_block: u32 = le32(LOGICAL_BLOCK);
}

impl Packet {
    /// The view over `bytes`: at most the first 4096 count, missing ones are zero.
    pub fn new(bytes: &[u8]) -> Packet {
        Packet { block: Box::new(array(bytes, 0)) }
    }

    /// All 4096 bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.block[..]
    }

    /// Array id.
    pub fn uuid(&self) -> [u8; 16] {
        array(self.bytes(), field::UUID)
    }

    /// Array name without its padding.
    pub fn name(&self) -> &[u8] {
        without_padding(&self.block[field::NAME..field::CTIME])
    }

    /// Member id.
    pub fn device_uuid(&self) -> [u8; 16] {
        array(self.bytes(), field::DEVICE_UUID)
    }

    /// 1 write-mostly, 2 failfast.
    pub fn devflags(&self) -> u8 {
        self.block[field::DEVFLAGS]
    }

    /// log2 of the bad-block log's unit over 512 bytes.
    pub fn bblog_shift(&self) -> u8 {
        self.block[field::BBLOG_SHIFT]
    }

    /// The padding before the role map.
    pub fn pad3(&self) -> &[u8] {
        &self.block[field::PAD3..field::ROLES]
    }

    /// Entry `number` of the role map; beyond the map 0xffff.
    pub fn role(&self, number: u32) -> u16 {
        match number < self.max_dev().min(MAX_DEV) {
            true => le16(self.bytes(), field::ROLES + 2 * number as usize),
            false => 0xffff,
        }
    }

    /// Bytes in use: the head and the role map; bounded by 4096.
    pub fn used(&self) -> usize {
        HEAD + 2 * self.max_dev().min(MAX_DEV) as usize
    }

    /// The checksum the bytes should have; `None` if the role map would not fit.
    pub fn expected_checksum(&self) -> Option<u32> {
        (self.max_dev() <= MAX_DEV).then(|| checksum(&self.block[..self.used()]))
    }

    /// True if the stored checksum is right.
    pub fn checksum_matches(&self) -> bool {
        self.expected_checksum() == Some(self.checksum())
    }
}

/// md's checksum: 64-bit sum of the words (the checksum's own taken as zero), and the last
/// two bytes if they make no word; then the two halves added.
pub fn checksum(bytes: &[u8]) -> u32 {
    let own = field::CHECKSUM / 4;
    let words = bytes.chunks_exact(4);
    let rest = u64::from(le16(words.remainder(), 0));
    let sum: u64 = words
        .enumerate()
        .filter(|&(index, _)| index != own)
        .map(|(_, word)| u64::from(le32(word, 0)))
        .sum();
    let sum = sum + rest;
    (sum as u32).wrapping_add((sum >> 32) as u32)
}
