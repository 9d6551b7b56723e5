//! md's partial parity log: what a RAID 5 needs to make parity right again after a crash, even
//! where a member is gone.
//!
//! Before data and parity of a stripe are written, the XOR of the data that is *not* written (the
//! partial parity) goes to an area beside the superblock of the member that holds the stripe's
//! parity. After a crash, parity is that XOR and whatever the written units hold by then.
//!
//! ```text
//! area    | log | log | log | ...      the next one behind, from the start again where it is full
//! log     | header, 4096 bytes | partial parity of entry 0 | of entry 1 | ...
//! header  | 0xff x 512 | signature | pad | generation u64 | count u32 | checksum u32 | entries |
//! entry   | array sector u64 | partial parity bytes u32 | data bytes u32 | slot u32 | checksum |
//! ```
//! Everything is little-endian; the byte table is `struct ppl_header` of the kernel's `md_p.h`.
//! Only the newest log of a member matters: an older one is overwritten only when all it speaks
//! of is durable.
//!
//! No bytes make it panic. What does not add up is no log.

use super::bytes::{le32, le64, put};
use crate::error::{Error, Result};
use crate::units::{SECTOR, Sectors, Slot};
use std::io;

/// Bytes of a header.
pub const HEADER: usize = 4096;
/// The same in sectors.
pub const HEADER_LEN: Sectors = Sectors(8);
/// Entries a header has room for.
pub const ENTRIES_MAX: usize = 148;
/// Most partial parity in one log: `PPL_SPACE_SIZE`, 128 KiB. A shorter area has less.
pub const PARITY_MAX: Sectors = Sectors::kib(128);
/// The shortest area that is used as a ring, by the kernel and by us: two of the largest logs.
pub const RING_MIN: Sectors = Sectors(2 * (PARITY_MAX.0 + HEADER_LEN.0));
/// Sectors mdadm gives the area: 1 MiB.
pub const AREA_LEN: Sectors = Sectors::kib(1024);

/// Byte offsets of the header's fields.
mod field {
    pub const SIGNATURE: usize = 512;
    pub const GENERATION: usize = 520;
    pub const COUNT: usize = 528;
    pub const CHECKSUM: usize = 532;
    pub const ENTRIES: usize = 536;
    pub const ENTRY_LEN: usize = 24;
}

/// One write to the units of a stripe, as the log tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First array sector that was written.
    pub at: Sectors,
    /// Sectors of partial parity: as many as each unit was written in; none where every unit of
    /// the stripe was.
    pub parity: Sectors,
    /// Sectors of data that were written, in all units together.
    pub data: Sectors,
    /// Who holds the parity: the member that has this log.
    pub slot: Slot,
    /// Checksum of the partial parity; zero without one.
    pub checksum: u32,
}

/// The array sectors an entry touched: a run in each of neighbouring units.
///
/// Row `r` (below `height`) has the sectors `at + r + k * chunk` that lie below `end`, for each
/// `k` below `units`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strip {
    /// First array sector.
    pub at: Sectors,
    /// One past the last array sector that counts.
    pub end: Sectors,
    /// Rows.
    pub height: Sectors,
    /// Units looked at.
    pub units: u64,
}

impl Entry {
    /// Where the entry wrote, in an array of this chunk and so many data units a stripe; the
    /// kernel reads it so (`ppl_recover_entry`). Nothing where the sizes make no sense.
    pub fn strip(&self, chunk: Sectors, data_units: u64) -> Option<Strip> {
        if self.data.is_empty() || self.parity > chunk || data_units == 0 {
            return None;
        }
        let strip = match () {
            () if !self.parity.is_empty() && self.parity < chunk => {
                let units = self.data.div_floor(self.parity);
                let below = chunk.0.checked_mul(units.checked_sub(1)?)?;
                let end = self.at.0.checked_add(below)?.checked_add(self.parity.0)?;
                Strip { at: self.at, end: Sectors(end), height: self.parity, units }
            }
            () if self.parity.is_empty() => {
                let height = Sectors(self.data.0 / data_units);
                let below = chunk.0.checked_mul(data_units - 1)?;
                let end = self.at.0.checked_add(below)?.checked_add(height.0)?;
                Strip { at: self.at, end: Sectors(end), height, units: data_units }
            }
            () => {
                let end = self.at.0.checked_add(self.data.0)?;
                Strip { at: self.at, end: Sectors(end), height: chunk, units: data_units }
            }
        };
        let fits = !strip.height.is_empty() && strip.height <= chunk;
        let is_sane = fits && strip.units <= data_units;
        is_sane.then_some(strip)
    }
}

impl Strip {
    /// The array sectors of row `row` that were written.
    pub fn row(&self, row: Sectors, chunk: Sectors) -> impl Iterator<Item = Sectors> + use<> {
        let (first, end) = (self.at + row, self.end);
        (0..self.units).map(move |k| first + chunk.times(k)).take_while(move |&at| at < end)
    }
}

/// A header that is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Grows from log to log.
    pub generation: u64,
    /// What was being written.
    pub entries: Vec<Entry>,
}

impl Header {
    /// Sectors of the header and its partial parity.
    pub fn len(&self) -> Sectors {
        HEADER_LEN + self.entries.iter().map(|entry| entry.parity).sum()
    }

    /// True if nothing was being written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Each entry with the place of its partial parity, counted from the header.
    pub fn places(&self) -> impl Iterator<Item = (Sectors, &Entry)> {
        self.entries.iter().scan(HEADER_LEN, |next, entry| {
            let at = *next;
            *next += entry.parity;
            Some((at, entry))
        })
    }
}

/// What the header of an array with this id is signed with.
fn signature(uuid: &[u8; 16]) -> u32 {
    crc32c::crc32c(uuid)
}

/// Checksum of partial parity.
pub fn checksum(parity: &[u8]) -> u32 {
    match parity.is_empty() {
        true => 0,
        false => crc32c::crc32c(parity),
    }
}

/// The header in `bytes`, if it is one of the array with this id and is whole.
pub fn parse(bytes: &[u8], uuid: &[u8; 16]) -> Option<Header> {
    let count = le32(bytes, field::COUNT) as usize;
    let is_ours = bytes.len() >= HEADER && le32(bytes, field::SIGNATURE) == signature(uuid);
    if !is_ours || count > ENTRIES_MAX || le32(bytes, field::CHECKSUM) != header_checksum(bytes) {
        return None;
    }
    let entries =
        (0..count).map(|index| entry(&bytes[field::ENTRIES + index * field::ENTRY_LEN..]));
    Some(Header {
        generation: le64(bytes, field::GENERATION),
        entries: entries.collect::<Option<_>>()?,
    })
}

/// An entry whose sizes are whole sectors.
fn entry(bytes: &[u8]) -> Option<Entry> {
    let sectors = |at| {
        let bytes = u64::from(le32(bytes, at));
        (bytes % SECTOR == 0).then(|| Sectors::floor_bytes(bytes))
    };
    Some(Entry {
        at: Sectors(le64(bytes, 0)),
        parity: sectors(8)?,
        data: sectors(12)?,
        slot: Slot(u16::try_from(le32(bytes, 16)).ok()?),
        checksum: le32(bytes, 20),
    })
}

/// The checksum of a header: its own field counts as zero.
fn header_checksum(bytes: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&bytes[..field::CHECKSUM]);
    let sum = crc32c::crc32c_append(sum, &[0; 4]);
    crc32c::crc32c_append(sum, &bytes[field::ENTRIES..HEADER])
}

/// A header of an array with this id.
///
/// # Errors
/// More entries than a header holds, or sizes that do not fit.
pub fn emit(header: &Header, uuid: &[u8; 16]) -> Result<Vec<u8>> {
    if header.entries.len() > ENTRIES_MAX {
        return Err(Error::invalid(format!(
            "a partial parity log lists {ENTRIES_MAX} writes, not {}",
            header.entries.len()
        )));
    }
    let mut bytes = vec![0; HEADER];
    bytes[..field::SIGNATURE].fill(0xff);
    put(&mut bytes, field::SIGNATURE, &signature(uuid).to_le_bytes());
    put(&mut bytes, field::GENERATION, &header.generation.to_le_bytes());
    put(&mut bytes, field::COUNT, &(header.entries.len() as u32).to_le_bytes());
    for (index, entry) in header.entries.iter().enumerate() {
        let at = field::ENTRIES + index * field::ENTRY_LEN;
        put(&mut bytes, at, &entry.at.0.to_le_bytes());
        put(&mut bytes, at + 8, &size(entry.parity)?);
        put(&mut bytes, at + 12, &size(entry.data)?);
        put(&mut bytes, at + 16, &u32::from(entry.slot.0).to_le_bytes());
        put(&mut bytes, at + 20, &entry.checksum.to_le_bytes());
    }
    let sum = header_checksum(&bytes);
    put(&mut bytes, field::CHECKSUM, &sum.to_le_bytes());
    Ok(bytes)
}

fn size(sectors: Sectors) -> Result<[u8; 4]> {
    let bytes = sectors.0.checked_mul(SECTOR).and_then(|bytes| u32::try_from(bytes).ok());
    let wrong = || Error::invalid("a write this long does not fit into a partial parity log");
    bytes.map(u32::to_le_bytes).ok_or_else(wrong)
}

/// The header that says "nothing is being written", as it is written at every start.
pub fn empty(uuid: &[u8; 16], generation: u64) -> Vec<u8> {
    let header = Header { generation, entries: Vec::new() };
    emit(&header, uuid).expect("no entries always fit")
}

/// The newest log in an area of `len` sectors, and its place in it: the last of the unbroken row
/// of headers with growing generations, as the kernel looks (`ppl_load_distributed`). `read`
/// counts from the start of the area.
pub fn newest(
    len: Sectors,
    uuid: &[u8; 16],
    read: &mut dyn FnMut(Sectors, &mut [u8]) -> io::Result<()>,
) -> io::Result<Option<(Sectors, Header)>> {
    let mut found: Option<(Sectors, Header)> = None;
    let (mut at, mut bytes) = (Sectors::ZERO, vec![0; HEADER]);
    while at + HEADER_LEN <= len {
        read(at, &mut bytes)?;
        let Some(header) = parse(&bytes, uuid) else { break };
        if found.as_ref().is_some_and(|(_, before)| before.generation > header.generation) {
            break;
        }
        let next = at + header.len();
        if next > len {
            break;
        }
        found = Some((at, header));
        at = next;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = *b"0123456789abcdef";
    const CHUNK: Sectors = Sectors(128);

    fn written(at: u64, parity: u64, data: u64) -> Entry {
        let (parity, data) = (Sectors(parity), Sectors(data));
        Entry { at: Sectors(at), parity, data, slot: Slot(2), checksum: 7 }
    }

    fn log(generation: u64, entries: &[Entry]) -> Vec<u8> {
        let header = Header { generation, entries: entries.to_vec() };
        let mut bytes = emit(&header, &UUID).unwrap();
        bytes.resize(header.len().len(), 0xaa);
        bytes
    }

    #[test]
    fn a_header_reads_back_and_any_wrong_bit_makes_it_none() {
        let entries = [written(24, 8, 8), written(1 << 40, 128, 256), written(512, 0, 256)];
        let good = log(77, &entries);
        let header = parse(&good, &UUID).unwrap();
        assert_eq!(header, Header { generation: 77, entries: entries.to_vec() });
        assert_eq!(header.len(), Sectors(8 + 8 + 128));
        let places: Vec<u64> = header.places().map(|(at, _)| at.0).collect();
        assert_eq!(places, [8, 16, 144]);
        assert!(parse(&good, &[1; 16]).is_none());
        for bit in 0..HEADER * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(parse(&bad, &UUID).is_none(), "bit {bit}");
        }
        for len in [0, 1, 535, 4095] {
            assert!(parse(&good[..len], &UUID).is_none());
        }
    }

    #[test]
    fn a_header_of_the_kernel_is_made_again_to_the_byte() {
        let uuid = 0x6897_eac1_0d55_2163_0910_9b14_bd4e_b4ca_u128.to_be_bytes();
        let entry = Entry { checksum: 0x214c_1a65, ..written(792, 24, 24) };
        let bytes = emit(&Header { generation: 5, entries: vec![entry] }, &uuid).unwrap();
        assert_eq!(le32(&bytes, field::SIGNATURE), 0xcb5e_cbca);
        assert_eq!(le32(&bytes, field::CHECKSUM), 0xda6e_b36a);
    }

    #[test]
    fn sizes_that_are_no_sectors_make_no_header() {
        let mut bytes = log(1, &[written(0, 8, 8)]);
        put(&mut bytes, field::ENTRIES + 8, &4095u32.to_le_bytes());
        let sum = header_checksum(&bytes);
        put(&mut bytes, field::CHECKSUM, &sum.to_le_bytes());
        assert!(parse(&bytes, &UUID).is_none());
        let header = Header { generation: 0, entries: vec![written(0, 8, 8); ENTRIES_MAX + 1] };
        assert!(emit(&header, &UUID).unwrap_err().to_string().contains("148"));
        let header = Header { generation: 0, entries: vec![written(0, 8, 1 << 23)] };
        assert!(emit(&header, &UUID).is_err());
    }

    #[test]
    fn the_newest_log_before_the_break_counts() {
        let one = log(1, &[written(24, 8, 8)]);
        let two = log(2, &[written(160, 8, 8), written(900, 8, 16)]);
        let five = log(5, &[]);
        for (logs, newest_at, generation) in [
            (vec![&one, &two, &five], 40, 5),
            (vec![&five, &one, &two], 0, 5),
            (vec![&one, &five, &two], 16, 5),
            (vec![&one], 0, 1),
        ] {
            let mut area: Vec<u8> = logs.into_iter().flatten().copied().collect();
            area.resize(64 * 512, 0);
            let (at, header) = find(&area).unwrap();
            assert_eq!((at.0, header.generation), (newest_at, generation));
        }
        assert!(find(&[0; 4096]).is_none());
        // A log that would reach past the area is none.
        assert!(find(&one[..4096]).is_none());
    }

    fn find(area: &[u8]) -> Option<(Sectors, Header)> {
        let mut read = |at: Sectors, buf: &mut [u8]| {
            buf.copy_from_slice(&area[at.len()..at.len() + buf.len()]);
            Ok(())
        };
        newest(Sectors::floor_bytes(area.len() as u64), &UUID, &mut read).unwrap()
    }

    #[test]
    fn strips_are_read_as_the_kernel_does() {
        let rows = |entry: Entry, row: u64, units: u64| -> Vec<u64> {
            let Some(strip) = entry.strip(CHUNK, units) else { return Vec::new() };
            strip.row(Sectors(row), CHUNK).map(|at| at.0).collect()
        };
        // One unit; two of three; a whole chunk of two; a whole stripe; parts of a whole stripe.
        assert_eq!(rows(written(24, 8, 8), 7, 2), [31]);
        assert_eq!(rows(written(24, 8, 16), 0, 3), [24, 152]);
        assert_eq!(rows(written(128, 128, 256), 5, 3), [133, 261]);
        assert_eq!(rows(written(512, 0, 256), 127, 2), [639, 767]);
        assert_eq!(rows(written(512, 0, 64), 31, 2), [543, 671]);
        for nonsense in [
            written(0, 8, 0),
            written(0, 8, 4),
            written(0, 256, 256),
            written(0, 8, 64),
            written(u64::MAX, 8, 8),
            written(u64::MAX, 128, 8),
            written(0, 0, 1),
        ] {
            assert_eq!(nonsense.strip(CHUNK, 2), None, "{nonsense:?}");
        }
    }
}
