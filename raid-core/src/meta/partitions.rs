//! Partition tables, read as far as needed to know where partitions lie: MBR and GPT.
//!
//! Promises: no bytes make it panic, read much or run long; partitions that do not fit on the
//! device are left out. It repairs nothing and believes a GPT without its checksums: who asks
//! compares the places with what is found there.

use super::bytes::{array, le32, le64};
use super::record::Area;
use super::{Window, read_area};
use crate::units::Sectors;

/// A partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as in `sda1`.
    pub number: u32,
    /// Where it lies on the disk.
    pub area: Area,
}

/// Kinds of MBR entries that hold a chain of further tables.
const EXTENDED: [u8; 3] = [0x05, 0x0f, 0x85];
/// The kind of the entry that protects a GPT.
const PROTECTIVE: u8 = 0xee;
/// Logical partitions followed; Linux has names for no more.
const LOGICAL_MAX: u32 = 60;
/// Where a table's entries begin in its sector.
const ENTRIES: usize = 446;
/// Sectors in a block of the disks a GPT may be of.
const BLOCKS: [u64; 2] = [1, 8];
/// Entries of a GPT looked at; tables have 128.
const GPT_ENTRIES_MAX: u64 = 1024;

/// The partitions of a device of `device` sectors; none where no table can be read.
pub fn read(device: Sectors, read: Window<'_>) -> Vec<Partition> {
    let Some(table) = sector(Sectors::ZERO, read).filter(|table| is_table(table)) else {
        return Vec::new();
    };
    let protected = entries(&table).any(|entry| entry.kind == PROTECTIVE);
    let found = match protected {
        true => gpt(read),
        false => mbr(&table, read),
    };
    let fits = |partition: &Partition| {
        let end = partition.area.at.0.checked_add(partition.area.len.0);
        let real = !partition.area.at.is_empty() && !partition.area.len.is_empty();
        real && end.is_some_and(|end| end <= device.0)
    };
    found.into_iter().filter(fits).collect()
}

/// An entry of an MBR or of a link in its chain; places count from the table or the chain's start.
struct Entry {
    kind: u8,
    area: Area,
}

fn entries(table: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    (0..4).map(|n| {
        let entry = array::<16>(table, ENTRIES + 16 * n);
        let (at, len) = (le32(&entry, 8).into(), le32(&entry, 12).into());
        Entry { kind: entry[4], area: Area { at: Sectors(at), len: Sectors(len) } }
    })
}

/// Boot sectors of file systems have the same mark, but other bytes where the flags are.
fn is_table(sector: &[u8]) -> bool {
    let flags = (0..4).map(|n| sector[ENTRIES + 16 * n]);
    sector[510..512] == [0x55, 0xaa] && flags.into_iter().all(|flag| flag & 0x7f == 0)
}

fn mbr(table: &[u8], read: Window<'_>) -> Vec<Partition> {
    let mut found = Vec::new();
    for (number, entry) in (1..).zip(entries(table)) {
        if EXTENDED.contains(&entry.kind) {
            found.extend(logical(entry.area.at, read));
        } else if entry.kind != 0 {
            found.push(Partition { number, area: entry.area });
        }
    }
    found
}

/// The chain of tables in an extended partition: each has one partition, and a link to the next.
fn logical(start: Sectors, read: Window<'_>) -> Vec<Partition> {
    let mut found = Vec::new();
    let mut next = start;
    for number in (5..).take(LOGICAL_MAX as usize) {
        let Some(table) = sector(next, read).filter(|table| is_table(table)) else { break };
        let data = entries(&table).find(|e| e.kind != 0 && !EXTENDED.contains(&e.kind));
        if let Some(Entry { area, .. }) = data {
            let area = Area { at: Sectors(next.0.saturating_add(area.at.0)), len: area.len };
            found.push(Partition { number, area });
        }
        let link = entries(&table).find(|entry| EXTENDED.contains(&entry.kind));
        match link {
            Some(link) if !link.area.at.is_empty() => next = start + link.area.at,
            _ => break,
        }
    }
    found
}

/// The entries of the table at the start of the disk, for either size of block.
fn gpt(read: Window<'_>) -> Vec<Partition> {
    for block in BLOCKS {
        let head = sector(Sectors(block), read);
        if let Some(head) = head.filter(|head| head.starts_with(b"EFI PART")) {
            return gpt_entries(&head, block, read);
        }
    }
    Vec::new()
}

fn gpt_entries(head: &[u8], block: u64, read: Window<'_>) -> Vec<Partition> {
    let (start, count) = (le64(head, 72), u64::from(le32(head, 80)).min(GPT_ENTRIES_MAX));
    let size = u64::from(le32(head, 84));
    let Some(at) = start.checked_mul(block).filter(|&at| at < 1 << 54) else { return Vec::new() };
    if !(128..=4096).contains(&size) {
        return Vec::new();
    }
    let area = Area { at: Sectors(at), len: Sectors((count * size).div_ceil(512)) };
    let Ok(table) = read_area(area, read) else { return Vec::new() };
    let partition = |n: u64| {
        let entry = table.get((n * size) as usize..)?;
        let (first, last) = (le64(entry, 32), le64(entry, 40));
        let len = last.checked_sub(first)?.checked_add(1)?.checked_mul(block)?;
        let at = Sectors(first.checked_mul(block)?);
        let used = array::<16>(entry, 0) != [0; 16];
        used.then_some(Partition { number: n as u32 + 1, area: Area { at, len: Sectors(len) } })
    };
    (0..count).filter_map(partition).collect()
}

/// A sector, if it can be read.
fn sector(at: Sectors, read: Window<'_>) -> Option<Vec<u8>> {
    read_area(Area { at, len: Sectors(1) }, read).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::bytes::put;

    const DEVICE: Sectors = Sectors(8192);

    fn partitions(image: &[u8]) -> Vec<(u32, u64, u64)> {
        let mut window = |at: Sectors, buffer: &mut [u8]| {
            let end = image.len().min(at.len() + buffer.len());
            let bytes = image.get(at.len()..end).filter(|bytes| bytes.len() == buffer.len());
            buffer.copy_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
            Ok(())
        };
        let device = Sectors::floor_bytes(image.len() as u64);
        let found = read(device, &mut window);
        found.iter().map(|p| (p.number, p.area.at.0, p.area.len.0)).collect()
    }

    fn entry(image: &mut [u8], sector: u64, n: usize, kind: u8, at: u32, len: u32) {
        let base = sector as usize * 512;
        put(image, base + 510, &[0x55, 0xaa]);
        put(image, base + ENTRIES + 16 * n + 4, &[kind]);
        put(image, base + ENTRIES + 16 * n + 8, &at.to_le_bytes());
        put(image, base + ENTRIES + 16 * n + 12, &len.to_le_bytes());
    }

    #[test]
    fn primary_and_logical_partitions_are_found() {
        let mut image = vec![0; DEVICE.len()];
        entry(&mut image, 0, 0, 0xfd, 63, 1000);
        entry(&mut image, 0, 1, 0x05, 2000, 6000);
        entry(&mut image, 0, 3, 0x83, 8000, 1000);
        entry(&mut image, 2000, 0, 0xfd, 10, 500);
        entry(&mut image, 2000, 1, 0x05, 1000, 900);
        entry(&mut image, 3000, 0, 0xfd, 10, 600);
        let expected = [(1, 63, 1000), (5, 2010, 500), (6, 3010, 600)];
        assert_eq!(partitions(&image), expected, "the one that does not fit is left out");
    }

    #[test]
    fn a_gpt_of_either_block_size_is_read() {
        for block in BLOCKS {
            let mut image = vec![0; DEVICE.len()];
            entry(&mut image, 0, 0, PROTECTIVE, 1, 8191);
            let head = block as usize * 512;
            put(&mut image, head, b"EFI PART");
            put(&mut image, head + 72, &2u64.to_le_bytes());
            put(&mut image, head + 80, &[128, 0, 0, 0, 128, 0, 0, 0]);
            let second = head * 2 + 128;
            put(&mut image, second, &[1; 16]);
            put(&mut image, second + 32, &64u64.to_le_bytes());
            put(&mut image, second + 40, &127u64.to_le_bytes());
            assert_eq!(partitions(&image), [(2, 64 * block, 64 * block)]);
        }
    }

    #[test]
    fn chains_that_bite_their_tail_and_noise_end() {
        let mut image = vec![0; DEVICE.len()];
        entry(&mut image, 0, 0, 0x05, 2000, 6000);
        entry(&mut image, 2000, 0, 0xfd, 10, 500);
        entry(&mut image, 2000, 1, 0x05, 1000, 900);
        entry(&mut image, 3000, 1, 0x05, 1000, 900);
        assert_eq!(partitions(&image).len(), 1);
        for byte in [0u8, 0xff, 0x55, 0x05, 0xee] {
            let mut image = vec![byte; 40 * 512];
            partitions(&image);
            put(&mut image, 510, &[0x55, 0xaa]);
            put(&mut image, 512, b"EFI PART");
            (0..4).for_each(|n| put(&mut image, ENTRIES + 16 * n, &[0]));
            partitions(&image);
        }
        assert!(partitions(&[]).is_empty());
    }
}
