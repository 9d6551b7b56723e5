//! Which blocks are changed: a bitmap in memory by pages, and its file.
//!
//! ```text
//! map file:  0       header
//!            4096    page 0: bit b of byte a = block 8a + b is in the delta
//!            8192    page 1: the next 32768 blocks, ...
//! ```
//! Bits only ever go from 0 to 1, so a page that was written in part holds for each block what was
//! true before or after, and both are safe.

use super::BLOCK;
use super::header::{HEADER, Header};
use crate::device::zero::seek_data;
use crate::error::{Error, ErrorKind, Result};
use crate::units::Sectors;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Blocks of a page.
const PAGE_BLOCKS: u64 = PAGE as u64 * 8;

type Page = Box<[u8; PAGE]>;

/// The bitmap.
#[derive(Default)]
pub(super) struct Map {
    /// Pages with a bit set, by number.
    pages: BTreeMap<u64, Page>,
    /// Pages that the file does not have yet.
    dirty: BTreeSet<u64>,
    /// Blocks that are changed.
    blocks: u64,
}

impl Map {
    /// Whether the block of sector `at` is changed, and where a run of blocks that are alike ends,
    /// at most at `end`.
    pub(super) fn run(&self, at: Sectors, end: Sectors) -> (bool, Sectors) {
        let (first, last) = (at.div_floor(BLOCK), end.0.div_ceil(BLOCK.0));
        let changed = self.get(first);
        let mut block = first + 1;
        while block < last && self.get(block) == changed {
            block += 1;
        }
        (changed, BLOCK.times(block).min(end).max(at))
    }

    /// Says that the blocks which the range touches are changed.
    pub(super) fn set(&mut self, at: Sectors, len: Sectors) {
        for block in at.div_floor(BLOCK)..(at + len).0.div_ceil(BLOCK.0) {
            let (page, byte, bit) = place(block);
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            if bytes[byte] & bit == 0 {
                bytes[byte] |= bit;
                self.blocks += 1;
                self.dirty.insert(page);
            }
        }
    }

    /// Sectors of the changed blocks.
    pub(super) fn changed(&self) -> Sectors {
        BLOCK.times(self.blocks)
    }

    /// A copy of the pages that the file does not have, which now count as stored.
    pub(super) fn take_dirty(&mut self) -> Vec<(u64, Page)> {
        let numbers = std::mem::take(&mut self.dirty);
        numbers.into_iter().filter_map(|n| Some((n, self.pages.get(&n)?.clone()))).collect()
    }

    /// Takes back that these pages are stored.
    pub(super) fn mark_dirty(&mut self, pages: &[(u64, Page)]) {
        self.dirty.extend(pages.iter().map(|(number, _)| *number));
    }

    /// The runs of changed sectors of a device of this size, in order.
    pub(super) fn runs(&self, size: Sectors) -> Vec<(Sectors, Sectors)> {
        let mut runs: Vec<(Sectors, Sectors)> = Vec::new();
        for (number, page) in &self.pages {
            for block in number * PAGE_BLOCKS..(number + 1) * PAGE_BLOCKS {
                let (_, byte, bit) = place(block);
                if page[byte] & bit == 0 {
                    continue;
                }
                let (at, end) = (BLOCK.times(block), BLOCK.times(block + 1).min(size));
                match runs.last_mut() {
                    Some((start, len)) if *start + *len == at => *len = end - *start,
                    _ => runs.push((at, end - at)),
                }
            }
        }
        runs
    }

    fn get(&self, block: u64) -> bool {
        let (page, byte, bit) = place(block);
        self.pages.get(&page).is_some_and(|bytes| bytes[byte] & bit != 0)
    }
}

/// Page, byte and bit of a block.
fn place(block: u64) -> (u64, usize, u8) {
    let inside = block % PAGE_BLOCKS;
    (block / PAGE_BLOCKS, (inside / 8) as usize, 1 << (inside % 8))
}

/// The file of a map.
pub(super) struct MapFile(File);

impl MapFile {
    /// Writes a file for an overlay without changes; durable when it returns.
    pub(super) fn create(path: &Path, header: &Header) -> Result<()> {
        let told = |e| Error::io(path.display(), e);
        let file = File::create(path).map_err(told)?;
        file.write_all_at(&header.emit()?, 0).map_err(told)?;
        file.set_len(file_len(header.sectors)).map_err(told)?;
        file.sync_all().map_err(told)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `Metadata` if it is not the map of an overlay.
    pub(super) fn load(path: &Path) -> Result<(Header, MapFile, Map)> {
        let told = |e| Error::io(path.display(), e);
        let damaged = |what: &str| {
            let text = format!("{}: {what}; drop the overlay and its changes", path.display());
            Error::new(ErrorKind::Metadata, text)
        };
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(told)?;
        let mut page = [0; HEADER];
        file.read_exact_at(&mut page, 0).map_err(|_| damaged("is not the map of an overlay"))?;
        let header = Header::parse(&page).ok_or_else(|| damaged("is not the map of an overlay"))?;
        if file.metadata().map_err(told)?.len() != file_len(header.sectors) {
            return Err(damaged("has the wrong size"));
        }
        let map = read_pages(&file, header.sectors).map_err(told)?;
        let end = header.sectors.0.div_ceil(BLOCK.0);
        let last = map.runs(Sectors(u64::MAX)).last().map_or(0, |(at, len)| (*at + *len).0);
        if last > end * BLOCK.0 {
            return Err(damaged("names blocks behind the end"));
        }
        Ok((header, MapFile(file), map))
    }

    /// Writes the header; durable when it returns.
    pub(super) fn write_header(&self, header: &Header) -> Result<()> {
        let page = header.emit()?;
        let written = self.0.write_all_at(&page, 0).and_then(|()| self.0.sync_data());
        written.map_err(|e| Error::io("the map of the overlay", e))
    }

    /// Writes pages; durable when it returns.
    pub(super) fn store(&self, pages: &[(u64, Page)]) -> io::Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        for (number, page) in pages {
            self.0.write_all_at(&page[..], page_at(*number))?;
        }
        self.0.sync_data()
    }
}

fn read_pages(file: &File, sectors: Sectors) -> io::Result<Map> {
    let mut map = Map::default();
    let count = (file_len(sectors) - HEADER as u64) / PAGE as u64;
    let mut number = 0;
    while number < count {
        match seek_data(file.as_raw_fd(), page_at(number)) {
            Ok(None) => break,
            Ok(Some(at)) => {
                let found = at.saturating_sub(HEADER as u64) / PAGE as u64;
                number = found.max(number);
            }
            // A file system that cannot tell holes: read everything.
            Err(_) => {}
        }
        if number >= count {
            break;
        }
        let mut page: Page = Box::new([0; PAGE]);
        file.read_exact_at(&mut page[..], page_at(number))?;
        let set: u32 = page.iter().map(|b| b.count_ones()).sum();
        if set > 0 {
            map.blocks += u64::from(set);
            map.pages.insert(number, page);
        }
        number += 1;
    }
    Ok(map)
}

fn page_at(number: u64) -> u64 {
    HEADER as u64 + number * PAGE as u64
}

fn file_len(sectors: Sectors) -> u64 {
    page_at(sectors.0.div_ceil(BLOCK.0).div_ceil(PAGE_BLOCKS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_was_set() {
        let mut map = Map::default();
        map.set(Sectors(3), Sectors(6));
        map.set(Sectors(16), Sectors(8));
        map.set(BLOCK.times(PAGE_BLOCKS) - Sectors(1), Sectors(2));
        assert_eq!(map.changed(), BLOCK.times(5));
        let edge = BLOCK.times(PAGE_BLOCKS - 1);
        let runs = [(Sectors(0), Sectors(24)), (edge, Sectors(16))];
        assert_eq!(map.runs(Sectors(1 << 40)), runs);
        assert_eq!(map.runs(edge + Sectors(9)), [runs[0], (edge, Sectors(9))]);
        assert_eq!(map.run(Sectors(5), Sectors(100)), (true, Sectors(24)));
        assert_eq!(map.run(Sectors(5), Sectors(7)), (true, Sectors(7)));
        assert_eq!(map.run(Sectors(24), Sectors(100)), (false, Sectors(100)));
        assert_eq!(map.take_dirty().len(), 2);
        assert!(map.take_dirty().is_empty());
        map.set(Sectors(0), Sectors(1));
        assert!(map.take_dirty().is_empty(), "was set already");
    }
}
