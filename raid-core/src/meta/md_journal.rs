//! md's write journal of RAID 4, 5 and 6: data and parity lie in a ring on a device of their own
//! before they go to the members.
//!
//! ```text
//! ring    | meta | page | page | meta | page | ...     blocks of 4 KiB, from the data offset on
//! meta    | magic u32 | checksum u32 | version u8 | zeros | bytes used u32 | seq u64 | place u64 |
//!         | payload | payload | ...                    from byte 32, up to the bytes used
//! data    | 0 u16 | flags u16 | sectors u32 | array sector u64 | checksum u32 of each page |
//! parity  | 1 u16 | flags u16 | sectors u32 | member sector u64 | checksum of P | of Q |
//! flush   | 2 u16 | flags u16 | bytes u32 | member sector u64 | ... |
//! ```
//! All little-endian; the tables are those of the kernel's `md_p.h`. Pages follow their meta block
//! in the order of the payloads. A page of data is followed, in the same block or a later one, by
//! the parity of its *row*: the 4 KiB at the same member sector of every member. A row with parity
//! is replayed as it is; one without was acknowledged while only the journal had it (write-back).
//! A flush payload says that rows have reached the members.
//!
//! Checksums are CRC32C from a seed made of the array's id, without the usual inversions.
//!
//! No bytes make it panic; what does not add up ends the log.

use super::bytes::{le16, le32, le64, put};
use crate::units::Sectors;
use smallvec::{SmallVec, smallvec};
use std::io;

/// Sectors of a block: a meta block or a page.
pub const BLOCK: Sectors = Sectors(8);
/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// What a restart adds to the sequence number, so that nothing old seems to follow.
pub const SEQ_GAP: u64 = 10_000;

/// "Its checksum is wrong" cannot be told from "nothing was written here": both end the log.
const MAGIC: u32 = 0x6433_c509;
const VERSION: u8 = 1;
const DATA: u16 = 0;
const PARITY: u16 = 1;
const FLUSH: u16 = 2;

/// Byte offsets of a meta block's fields.
mod field {
    pub const MAGIC: usize = 0;
    pub const CHECKSUM: usize = 4;
    pub const VERSION: usize = 8;
    pub const USED: usize = 12;
    pub const SEQ: usize = 16;
    pub const POSITION: usize = 24;
    pub const PAYLOADS: usize = 32;
}

/// What checksums of an array's journal begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(u32);

impl Seed {
    /// The seed of the array with this id.
    pub fn of(uuid: &[u8; 16]) -> Seed {
        Seed(crc32c::crc32c(uuid))
    }

    /// The checksum of a page.
    pub fn checksum(self, bytes: &[u8]) -> u32 {
        !crc32c::crc32c_append(self.0, bytes)
    }

    /// The checksum of a meta block: its own field counts as zero.
    fn meta_checksum(self, block: &[u8]) -> u32 {
        let sum = crc32c::crc32c_append(self.0, &block[..field::CHECKSUM]);
        let sum = crc32c::crc32c_append(sum, &[0; 4]);
        !crc32c::crc32c_append(sum, &block[field::VERSION..])
    }
}

/// A first number for a log that nothing is known of, made of a device's id and a time: no old
/// block that may lie there should seem to follow (the kernel takes a random one).
pub fn fresh_seq(id: &[u8; 16], time: u64) -> u64 {
    let id = id.iter().fold(0u32, |n, &byte| n.rotate_left(5) ^ u32::from(byte));
    u64::from(id ^ time as u32)
}

/// The ring of blocks on the journal device; places are sectors from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    /// Its length, a multiple of a block.
    pub len: Sectors,
}

impl Ring {
    /// The ring on a device with so many data sectors; none if not even a block fits.
    pub fn on(data_len: Sectors) -> Option<Ring> {
        let len = data_len.round_down(BLOCK);
        (!len.is_empty()).then_some(Ring { len })
    }

    /// The place `by` (at most the ring's length) behind `at`.
    pub fn add(self, at: Sectors, by: Sectors) -> Sectors {
        let next = at + by;
        next.checked_sub(self.len).unwrap_or(next)
    }

    /// How far `to` lies behind `from`.
    pub fn distance(self, from: Sectors, to: Sectors) -> Sectors {
        if to >= from { to - from } else { to + self.len - from }
    }

    /// True if a block can lie at `at`.
    pub fn holds(self, at: Sectors) -> bool {
        at < self.len && at.rem(BLOCK).is_empty()
    }
}

/// One thing a meta block lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// A page of data.
    Data {
        /// Its first array sector.
        at: Sectors,
        /// Checksum of the page.
        checksum: u32,
    },
    /// The parity of a row: P, and Q where the level has one.
    Parity {
        /// The row: its first sector on each member, from the start of data.
        row: Sectors,
        /// Checksums of the pages.
        checksums: SmallVec<[u32; 2]>,
    },
    /// These rows have reached the members.
    Flush {
        /// The rows.
        rows: Vec<Sectors>,
    },
}

impl Payload {
    /// Pages that follow the meta block because of it.
    pub fn pages(&self) -> u64 {
        match self {
            Payload::Data { .. } => 1,
            Payload::Parity { checksums, .. } => checksums.len() as u64,
            Payload::Flush { .. } => 0,
        }
    }

    /// Bytes it takes in a meta block.
    pub fn bytes(&self) -> usize {
        match self {
            Payload::Data { .. } => 20,
            Payload::Parity { checksums, .. } => 16 + 4 * checksums.len(),
            Payload::Flush { rows } => 8 + 8 * rows.len(),
        }
    }

    fn checksums(&self) -> &[u32] {
        match self {
            Payload::Data { checksum, .. } => std::slice::from_ref(checksum),
            Payload::Parity { checksums, .. } => checksums,
            Payload::Flush { .. } => &[],
        }
    }
}

/// A meta block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its number; the next block has the next one.
    pub seq: u64,
    /// Where it lies in the ring.
    pub position: Sectors,
    /// What it lists.
    pub payloads: Vec<Payload>,
}

/// Bytes a meta block has for payloads.
pub const PAYLOAD_BYTES: usize = BLOCK_BYTES - field::PAYLOADS;

impl Meta {
    /// A block that lists nothing.
    pub fn empty(seq: u64, position: Sectors) -> Meta {
        Meta { seq, position, payloads: Vec::new() }
    }

    /// Sectors of the block and its pages.
    pub fn len(&self) -> Sectors {
        BLOCK + BLOCK.times(self.payloads.iter().map(Payload::pages).sum())
    }

    /// True if it lists nothing.
    pub fn is_empty(&self) -> bool {
        self.payloads.is_empty()
    }

    /// Each payload with the place in the ring of its first page.
    pub fn places(&self, ring: Ring) -> impl Iterator<Item = (Sectors, &Payload)> {
        let start = ring.add(self.position, BLOCK);
        self.payloads.iter().scan(start, move |next, payload| {
            let at = *next;
            *next = ring.add(at, BLOCK.times(payload.pages()));
            Some((at, payload))
        })
    }
}

/// The meta block in `bytes`, if there is a whole one.
pub fn parse(bytes: &[u8], seed: Seed) -> Option<Meta> {
    let is_whole = bytes.len() == BLOCK_BYTES
        && le32(bytes, field::MAGIC) == MAGIC
        && bytes[field::VERSION] == VERSION
        && le32(bytes, field::CHECKSUM) == seed.meta_checksum(bytes);
    let used = le32(bytes, field::USED) as usize;
    if !is_whole || !(field::PAYLOADS..=BLOCK_BYTES).contains(&used) {
        return None;
    }
    let (mut payloads, mut rest) = (Vec::new(), &bytes[field::PAYLOADS..used]);
    while !rest.is_empty() {
        let len = payload(rest, &mut payloads)?;
        rest = rest.get(len..)?;
    }
    let (seq, position) = (le64(bytes, field::SEQ), Sectors(le64(bytes, field::POSITION)));
    Some(Meta { seq, position, payloads })
}

/// Reads one payload (of data, one for each page) and says how many bytes it takes.
fn payload(bytes: &[u8], out: &mut Vec<Payload>) -> Option<usize> {
    let (kind, size, location) = (le16(bytes, 0), le32(bytes, 4), le64(bytes, 8));
    if kind == FLUSH {
        let len = size as usize;
        let rows = bytes.get(8..8usize.checked_add(len)?)?.chunks_exact(8);
        out.push(Payload::Flush { rows: rows.map(|row| Sectors(le64(row, 0))).collect() });
        return Some(8 + len);
    }
    let pages = u64::from(size) / BLOCK.0;
    let sums = bytes.get(16..16 + 4 * usize::try_from(pages).ok()?)?;
    let is_sane = u64::from(size) % BLOCK.0 == 0 && pages > 0 && location % BLOCK.0 == 0;
    if !is_sane {
        return None;
    }
    let checksums = sums.chunks_exact(4).map(|sum| le32(sum, 0));
    match kind {
        DATA => {
            for (page, checksum) in (0..).zip(checksums) {
                let at = Sectors(location.checked_add(BLOCK.0.checked_mul(page)?)?);
                out.push(Payload::Data { at, checksum });
            }
        }
        PARITY if pages <= 2 => {
            let checksums = checksums.collect();
            out.push(Payload::Parity { row: Sectors(location), checksums });
        }
        _ => return None,
    }
    Some(16 + sums.len())
}

/// The bytes of a meta block. Its payloads take at most [`PAYLOAD_BYTES`].
pub fn emit(meta: &Meta, seed: Seed) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    put(&mut block, field::MAGIC, &MAGIC.to_le_bytes());
    block[field::VERSION] = VERSION;
    put(&mut block, field::SEQ, &meta.seq.to_le_bytes());
    put(&mut block, field::POSITION, &meta.position.0.to_le_bytes());
    let mut at = field::PAYLOADS;
    for payload in &meta.payloads {
        let len = payload.bytes();
        assert!(at + len <= BLOCK_BYTES, "the payloads of a meta block fit into it");
        put_payload(&mut block[at..at + len], payload);
        at += len;
    }
    put(&mut block, field::USED, &(at as u32).to_le_bytes());
    let sum = seed.meta_checksum(&block);
    put(&mut block, field::CHECKSUM, &sum.to_le_bytes());
    block
}

fn put_payload(out: &mut [u8], payload: &Payload) {
    let sectors = (BLOCK.0 * payload.pages()) as u32;
    let (kind, size, locations): (u16, u32, SmallVec<[Sectors; 1]>) = match payload {
        Payload::Data { at, .. } => (DATA, sectors, smallvec![*at]),
        Payload::Parity { row, .. } => (PARITY, sectors, smallvec![*row]),
        Payload::Flush { rows } => (FLUSH, 8 * rows.len() as u32, rows.iter().copied().collect()),
    };
    put(out, 0, &kind.to_le_bytes());
    put(out, 4, &size.to_le_bytes());
    for (index, location) in locations.iter().enumerate() {
        put(out, 8 + 8 * index, &location.0.to_le_bytes());
    }
    for (index, checksum) in payload.checksums().iter().enumerate() {
        put(out, 16 + 4 * index, &checksum.to_le_bytes());
    }
}

/// What a journal holds, from its tail on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The whole blocks with whole pages, in order.
    pub metas: Vec<Meta>,
    /// Where the next block would lie.
    pub end: Sectors,
    /// The number the next block would have.
    pub seq: u64,
}

/// Reads the log from `tail` on, as the kernel does at assembly: the first block may have any
/// number, each further one the next. The log ends before a block that is not whole, that is out
/// of place or order, or whose pages are not whole (nothing after it was ever committed).
///
/// Nothing if not even the first block is right: then the journal is empty as far as anybody can
/// know, and the kernel begins it anew. `read` counts from the start of the ring and is never
/// asked to read across its end.
pub fn scan(
    ring: Ring,
    tail: Sectors,
    seed: Seed,
    read: &mut dyn FnMut(Sectors, &mut [u8]) -> io::Result<()>,
) -> io::Result<Option<Scan>> {
    let tail = if ring.holds(tail) { tail } else { Sectors::ZERO };
    let mut block = vec![0; BLOCK_BYTES];
    read(tail, &mut block)?;
    let Some(first) = parse(&block, seed).filter(|meta| meta.position == tail) else {
        return Ok(None);
    };
    let mut scan = Scan { metas: Vec::new(), end: tail, seq: first.seq };
    let (mut next, mut seen) = (Some(first), Sectors::ZERO);
    while let Some(meta) = next {
        seen += meta.len();
        if seen > ring.len || !pages_match(&meta, ring, seed, read)? {
            break;
        }
        scan.end = ring.add(meta.position, meta.len());
        scan.seq = meta.seq.wrapping_add(1);
        scan.metas.push(meta);
        read(scan.end, &mut block)?;
        next = parse(&block, seed).filter(|meta| meta.position == scan.end && meta.seq == scan.seq);
    }
    Ok(Some(scan))
}

fn pages_match(
    meta: &Meta,
    ring: Ring,
    seed: Seed,
    read: &mut dyn FnMut(Sectors, &mut [u8]) -> io::Result<()>,
) -> io::Result<bool> {
    let mut page = vec![0; BLOCK_BYTES];
    for (place, payload) in meta.places(ring) {
        let mut at = place;
        for &checksum in payload.checksums() {
            read(at, &mut page)?;
            if seed.checksum(&page) != checksum {
                return Ok(false);
            }
            at = ring.add(at, BLOCK);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests;
