//! A member of any size up to the largest there can be, of which only what was written costs
//! memory, sector by sector.

use raid_core::device::{Device, Facts};
use raid_core::units::{SECTOR, Sectors};
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Mutex;

/// A sparse disk in memory.
#[derive(Debug)]
pub struct SparseDisk {
    facts: Facts,
    sectors: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl SparseDisk {
    /// A disk of `sectors` zero sectors called `name`.
    pub fn new(name: impl Into<String>, sectors: Sectors) -> SparseDisk {
        SparseDisk { facts: Facts::plain(name, sectors), sectors: Mutex::default() }
    }

    /// The same contents on a disk of another size.
    pub fn resized(&self, sectors: Sectors) -> SparseDisk {
        let disk = SparseDisk::new(self.facts.name.clone(), sectors);
        let all = self.sectors.lock().unwrap();
        let left = all.range(..sectors.0).map(|(&at, bytes)| (at, bytes.clone()));
        *disk.sectors.lock().unwrap() = left.collect();
        disk
    }

    /// `len` bytes from sector `at` on, zeros behind the end.
    pub fn bytes(&self, at: Sectors, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.next_multiple_of(SECTOR as usize)];
        self.fill(at.0, &mut bytes);
        bytes.truncate(len);
        bytes
    }

    /// Puts `bytes` at sector `at`, as far as the disk reaches.
    pub fn put(&self, at: Sectors, bytes: &[u8]) {
        let mut all = self.sectors.lock().unwrap();
        for (sector, bytes) in (at.0..self.facts.sectors.0).zip(bytes.chunks(SECTOR as usize)) {
            let mut whole = vec![0; SECTOR as usize];
            whole[..bytes.len()].copy_from_slice(bytes);
            match whole.iter().all(|&byte| byte == 0) {
                true => all.remove(&sector),
                false => all.insert(sector, whole.into()),
            };
        }
    }

    /// The sectors that hold something.
    pub fn written(&self) -> Vec<Sectors> {
        self.sectors.lock().unwrap().keys().map(|&at| Sectors(at)).collect()
    }

    fn fill(&self, at: u64, buf: &mut [u8]) {
        buf.fill(0);
        let end = at.saturating_add(buf.len() as u64 / SECTOR);
        for (sector, bytes) in self.sectors.lock().unwrap().range(at..end) {
            let place = ((sector - at) * SECTOR) as usize;
            buf[place..place + bytes.len()].copy_from_slice(bytes);
        }
    }

    fn check(&self, at: Sectors, len: usize) -> io::Result<()> {
        let end = at.0.checked_add(len as u64 / SECTOR);
        let fits = (len as u64).is_multiple_of(SECTOR);
        let inside = end.is_some_and(|end| end <= self.facts.sectors.0);
        (fits && inside).then_some(()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}

impl Device for SparseDisk {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.check(at, len)?;
        let mut rest = &self.bytes(at, len)[..];
        for buf in bufs {
            let (head, tail) = rest.split_at(buf.len());
            buf.copy_from_slice(head);
            rest = tail;
        }
        Ok(())
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.check(at, bytes.len())?;
        self.put(at, &bytes);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        let end = at.0.checked_add(len.0).filter(|&end| end <= self.facts.sectors.0);
        end.map(|_| ()).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }
}
