//! md's internal write-intent bitmap: a superblock of its own and one bit per chunk.
//!
//! ```text
//! byte 0    | bitmap superblock, 256 bytes, little-endian |
//! byte 256  | bit i = chunk i may differ between members; the area is rounded up to 4 KiB |
//! ```
//! We keep it truthful in the simplest way: before the first write every bit is set on every
//! member ("anything may be dirty"), and its events follow the superblock's. The kernel then
//! resyncs everything after a crash, and never too little.
//!
//! Refuses: cluster bitmaps, lockless bitmaps and host-endian ones: they may be read past,
//! not written.

use super::bytes::{array, le32, le64, put};
use super::damaged;
use super::md0::reversed_words;
use super::record::Area;
use crate::error::Result;
use crate::units::{SECTOR, Sectors};

/// "bitm".
pub const MAGIC: u32 = 0x6d74_6962;
/// Bytes of the bitmap superblock; bits begin here.
pub const HEAD: usize = 256;
/// The kernel and mdadm write bitmaps in blocks of 4 KiB.
const BLOCK: u64 = 4096;
/// Little-endian bits: the one version we write.
const VERSION_LE: u32 = 4;
/// The kernel refuses more write-behind.
const WRITE_BEHIND_MAX: u32 = 16383;
/// `BITMAP_STALE` of the kernel: the bits cannot be trusted.
const STATE_STALE: u32 = 2;
/// A bitmap that would take more is nonsense (mdadm gives it at most 128 KiB), and what is known of
/// each bit takes memory.
const BYTES_MAX: u64 = 1 << 20;

/// Byte offsets of the fields.
mod field {
    pub const MAGIC: usize = 0;
    pub const VERSION: usize = 4;
    pub const UUID: usize = 8;
    pub const EVENTS: usize = 24;
    pub const EVENTS_CLEARED: usize = 32;
    pub const SYNC_SIZE: usize = 40;
    pub const STATE: usize = 48;
    pub const CHUNK: usize = 52;
    pub const DAEMON_SLEEP: usize = 56;
    pub const WRITE_BEHIND: usize = 60;
    pub const SECTORS_RESERVED: usize = 64;
    pub const NODES: usize = 68;
}

/// What a bitmap superblock says, once it made sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    /// 3 host-endian, 4 little-endian, 5 clustered, 6 lockless.
    pub version: u32,
    /// Id of the array.
    pub uuid: [u8; 16],
    /// Update counter, in step with the superblock's.
    pub events: u64,
    /// The counter when bits were last cleared with all members there.
    pub events_cleared: u64,
    /// Sectors covered: of a member, for RAID 10 of the array.
    pub sync_size: Sectors,
    /// 2 stale, 4 write error.
    pub state: u32,
    /// Bytes per bit.
    pub chunk_bytes: u32,
    /// Seconds between sweeps of the kernel.
    pub daemon_sleep: u32,
    /// Writes that may lag on write-mostly members.
    pub write_behind: u32,
    /// Sectors set aside for the bitmap; zero: unknown.
    pub sectors_reserved: u32,
    /// Nodes of a cluster.
    pub nodes: u32,
}

impl Bitmap {
    /// Bits in use: one for each chunk or part of one.
    pub fn bits(&self) -> u64 {
        self.sync_size.bytes().div_ceil(u64::from(self.chunk_bytes))
    }

    /// Bytes of superblock and bits, rounded up to whole blocks of 4 KiB.
    pub fn byte_len(&self) -> u64 {
        (HEAD as u64 + self.bits().div_ceil(8)).next_multiple_of(BLOCK)
    }

    /// The sectors it takes when it lies at sector `at` of a member.
    pub fn area(&self, at: Sectors) -> Area {
        Area { at, len: Sectors(self.byte_len() / SECTOR) }
    }

    /// True if the bits say nothing, because they are marked stale or behind `events` of the
    /// superblock: everything counts as dirty then.
    pub fn is_stale(&self, events: u64) -> bool {
        self.state & STATE_STALE != 0 || self.events < events
    }

    /// `Err` with a sentence if we cannot keep this bitmap truthful.
    pub fn writable(&self) -> std::result::Result<(), String> {
        match self.version {
            VERSION_LE if self.nodes == 0 => Ok(()),
            VERSION_LE | 5 => Err("its bitmap belongs to a cluster".into()),
            3 => Err("its bitmap has the byte order of the machine that made it".into()),
            6 => Err("its bitmap is a lockless one, which this version does not keep".into()),
            n => Err(format!("its bitmap has the unknown version {n}")),
        }
    }
}

/// Reads a bitmap superblock; `uuid` is the array's, which it must repeat: in the order of bytes,
/// or, after a 0.90 superblock of a little-endian machine, with the bytes of each word reversed.
/// Checks what the kernel checks (`md_bitmap_read_sb`), and that its size is not absurd.
pub fn parse(bytes: &[u8], uuid: &[u8; 16]) -> Result<Bitmap> {
    let bitmap = read(bytes);
    let fault = if bytes.len() < HEAD {
        Some("it is cut off".to_string())
    } else if le32(bytes, field::MAGIC) != MAGIC {
        Some("its magic number is not there".into())
    } else if !(3..=6).contains(&bitmap.version) {
        Some(format!("its version is {}", bitmap.version))
    } else if bitmap.chunk_bytes < 512 || !bitmap.chunk_bytes.is_power_of_two() {
        Some(format!("a chunk of {} bytes is not a power of two from 512 on", bitmap.chunk_bytes))
    } else if bitmap.daemon_sleep < 1 {
        Some("its sweep interval is zero".into())
    } else if bitmap.write_behind > WRITE_BEHIND_MAX {
        Some(format!("{} writes behind are too many", bitmap.write_behind))
    } else if bitmap.uuid != *uuid && bitmap.uuid != reversed_words(uuid) {
        Some("it belongs to another array".into())
    } else if bitmap.sync_size.0 >= 1 << 54 || bitmap.bits() / 8 >= BYTES_MAX {
        Some(format!("it claims to cover {} sectors", bitmap.sync_size))
    } else {
        None
    };
    match fault {
        None => Ok(bitmap),
        Some(fault) => Err(damaged(format!("the write-intent bitmap is damaged: {fault}"))),
    }
}

/// Marks every chunk as dirty. `area` is the whole area: superblock and bits.
pub fn set_all(area: &mut [u8]) {
    if let Some(bits) = area.get_mut(HEAD..) {
        bits.fill(0xff);
    }
}

/// Writes the counters and the state of `bitmap` into the superblock at the head of `area`.
pub fn patch_counters(area: &mut [u8], bitmap: &Bitmap) {
    if area.len() >= HEAD {
        put(area, field::EVENTS, &bitmap.events.to_le_bytes());
        put(area, field::EVENTS_CLEARED, &bitmap.events_cleared.to_le_bytes());
        put(area, field::STATE, &bitmap.state.to_le_bytes());
    }
}

/// Sets the array id, in the order of bytes as the superblock's.
pub fn patch_uuid(area: &mut [u8], uuid: &[u8; 16]) {
    if area.len() >= HEAD {
        put(area, field::UUID, uuid);
    }
}

/// True if every bit in use is set.
pub fn all_set(area: &[u8], bitmap: &Bitmap) -> bool {
    count_set(area, bitmap) == bitmap.bits()
}

/// How many of the bits in use are set.
pub fn count_set(area: &[u8], bitmap: &Bitmap) -> u64 {
    let bytes = area.get(HEAD..).unwrap_or_default();
    let (whole, rest) = ((bitmap.bits() / 8) as usize, bitmap.bits() % 8);
    let full: u64 = bytes.iter().take(whole).map(|byte| u64::from(byte.count_ones())).sum();
    let last = bytes.get(whole).copied().unwrap_or(0) & ((1u16 << rest) - 1) as u8;
    full + u64::from(last.count_ones())
}

/// A new bitmap area with every bit set, as mdadm writes it at creation.
pub fn emit_new(bitmap: &Bitmap) -> Vec<u8> {
    let mut area = vec![0; bitmap.byte_len() as usize];
    put(&mut area, field::MAGIC, &MAGIC.to_le_bytes());
    put(&mut area, field::VERSION, &bitmap.version.to_le_bytes());
    put(&mut area, field::UUID, &bitmap.uuid);
    put(&mut area, field::EVENTS, &bitmap.events.to_le_bytes());
    put(&mut area, field::EVENTS_CLEARED, &bitmap.events_cleared.to_le_bytes());
    put(&mut area, field::SYNC_SIZE, &bitmap.sync_size.0.to_le_bytes());
    put(&mut area, field::STATE, &bitmap.state.to_le_bytes());
    put(&mut area, field::CHUNK, &bitmap.chunk_bytes.to_le_bytes());
    put(&mut area, field::DAEMON_SLEEP, &bitmap.daemon_sleep.to_le_bytes());
    put(&mut area, field::WRITE_BEHIND, &bitmap.write_behind.to_le_bytes());
    put(&mut area, field::SECTORS_RESERVED, &bitmap.sectors_reserved.to_le_bytes());
    put(&mut area, field::NODES, &bitmap.nodes.to_le_bytes());
    set_all(&mut area);
    area
}

fn read(bytes: &[u8]) -> Bitmap {
    Bitmap {
        version: le32(bytes, field::VERSION),
        uuid: array(bytes, field::UUID),
        events: le64(bytes, field::EVENTS),
        events_cleared: le64(bytes, field::EVENTS_CLEARED),
        sync_size: Sectors(le64(bytes, field::SYNC_SIZE)),
        state: le32(bytes, field::STATE),
        chunk_bytes: le32(bytes, field::CHUNK),
        daemon_sleep: le32(bytes, field::DAEMON_SLEEP),
        write_behind: le32(bytes, field::WRITE_BEHIND),
        sectors_reserved: le32(bytes, field::SECTORS_RESERVED),
        nodes: le32(bytes, field::NODES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Bitmap {
        Bitmap {
            version: 4,
            uuid: [7; 16],
            events: 12,
            events_cleared: 10,
            sync_size: Sectors(1_000_001),
            state: 0,
            chunk_bytes: 65536,
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 8,
            nodes: 0,
        }
    }

    #[test]
    fn a_new_bitmap_reads_back_and_says_all_is_dirty() {
        let mut area = emit_new(&sample());
        let bitmap = parse(&area, &[7; 16]).unwrap();
        assert_eq!(bitmap, sample());
        assert_eq!(bitmap.bits(), 7813);
        assert_eq!(area.len(), 4096);
        assert!(all_set(&area, &bitmap));
        area[300] = 0;
        assert_eq!(count_set(&area, &bitmap), 7805);
        patch_counters(&mut area, &Bitmap { events: 77, ..bitmap });
        set_all(&mut area);
        let bitmap = parse(&area, &[7; 16]).unwrap();
        assert_eq!((bitmap.events, all_set(&area, &bitmap)), (77, true));
        assert!(bitmap.is_stale(78) && !bitmap.is_stale(77));
    }

    #[test]
    fn what_the_kernel_refuses_is_refused() {
        let good = emit_new(&sample());
        let cases: &[(usize, &[u8], &str)] = &[
            (0, b"x", "magic"),
            (4, &[9], "version"),
            (8, &[8], "another array"),
            (47, &[9], "cover"),
            (43, &[0x40], "cover"),
            (52, &[0, 1, 0, 0], "power of two"),
            (52, &[1, 2, 0, 0], "power of two"),
            (56, &[0], "sweep"),
            (61, &[0x40], "writes behind"),
        ];
        for (at, bytes, word) in cases {
            let mut area = good.clone();
            put(&mut area, *at, bytes);
            let error = parse(&area, &[7; 16]).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(parse(&good[..255], &[7; 16]).unwrap_err().to_string().contains("cut off"));
    }

    #[test]
    fn only_bitmaps_of_our_kind_may_be_written() {
        for (version, nodes, ok) in [(4, 0, true), (4, 2, false), (3, 0, false), (6, 0, false)] {
            assert_eq!(Bitmap { version, nodes, ..sample() }.writable().is_ok(), ok);
        }
    }
}
