//! A simulated member: what it would answer now, and what would be left of it after a power cut.
//!
//! Writes are visible at once and durable after a flush that began after them. At a crash every
//! write that was not flushed is kept, lost, or torn (some of its sectors), in any combination,
//! whatever their order: caches promise nothing.

use super::rng::Rng;
use crate::units::{SECTOR, Sectors};

/// A member in memory.
#[derive(Clone, Debug)]
pub struct Disk {
    now: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Write>,
    written: u64,
    /// Sectors that fail to read until they are written.
    bad: Vec<u64>,
    /// Every operation fails.
    pub vanished: bool,
}

#[derive(Clone, Debug)]
struct Write {
    number: u64,
    at: Sectors,
    data: Vec<u8>,
}

impl Disk {
    /// A disk of `sectors` zero sectors.
    pub fn new(sectors: Sectors) -> Disk {
        let now = vec![0; sectors.len()];
        Disk {
            durable: now.clone(),
            now,
            unsynced: Vec::new(),
            written: 0,
            bad: Vec::new(),
            vanished: false,
        }
    }

    /// A place of `sectors` where no disk is: everything fails.
    pub fn hole(sectors: Sectors) -> Disk {
        Disk { vanished: true, ..Disk::new(sectors) }
    }

    /// Its size.
    pub fn sectors(&self) -> Sectors {
        Sectors::floor_bytes(self.now.len() as u64)
    }

    /// What it holds now.
    pub fn bytes(&self) -> &[u8] {
        &self.now
    }

    /// True if it holds nothing.
    pub fn is_blank(&self) -> bool {
        self.now.iter().all(|&byte| byte == 0)
    }

    /// Makes the sectors from `at` on fail to read until they are written.
    pub fn spoil(&mut self, at: Sectors, len: Sectors) {
        self.bad.extend(at.0..at.0 + len.0);
    }

    /// All sectors can be read again.
    pub fn mend(&mut self) {
        self.bad.clear();
    }

    /// Fills `buf` from `at`.
    pub fn read(&self, at: Sectors, buf: &mut [u8]) -> Result<(), String> {
        let end = at.0 + buf.len() as u64 / SECTOR;
        if self.vanished {
            return Err("no such device".into());
        }
        if let Some(bad) = self.bad.iter().find(|b| (at.0..end).contains(b)) {
            return Err(format!("medium error at sector {bad}"));
        }
        buf.copy_from_slice(&self.now[at.len()..at.len() + buf.len()]);
        Ok(())
    }

    /// Writes `data` at `at`.
    pub fn write(&mut self, at: Sectors, data: &[u8]) -> Result<(), String> {
        if self.vanished {
            return Err("no such device".into());
        }
        let end = at.0 + data.len() as u64 / SECTOR;
        self.bad.retain(|b| !(at.0..end).contains(b));
        self.now[at.len()..at.len() + data.len()].copy_from_slice(data);
        self.written += 1;
        self.unsynced.push(Write { number: self.written, at, data: data.to_vec() });
        Ok(())
    }

    /// Number of the latest write: what a flush that begins now will make durable.
    pub fn mark(&self) -> u64 {
        self.written
    }

    /// A flush that began at `mark` is over.
    pub fn flush(&mut self, mark: u64) -> Result<(), String> {
        if self.vanished {
            return Err("no such device".into());
        }
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unsynced).into_iter().partition(|w| w.number <= mark);
        for write in done {
            put(&mut self.durable, &write);
        }
        self.unsynced = rest;
        Ok(())
    }

    /// Writes that a power cut may undo, in whole or in part.
    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// A write is on its way to the medium and not answered yet: it may survive a power cut.
    pub fn receive(&mut self, at: Sectors, data: Vec<u8>) {
        if !self.vanished {
            self.written += 1;
            self.unsynced.push(Write { number: self.written, at, data });
        }
    }

    /// The power goes and comes back. `kept` is asked for each sector of each write that was not
    /// flushed (by its number among those, the sector's in it, and the write's sectors).
    pub fn cut(&mut self, mut kept: impl FnMut(usize, usize, usize) -> bool) {
        for (number, write) in std::mem::take(&mut self.unsynced).into_iter().enumerate() {
            let sectors = write.data.len() / SECTOR as usize;
            for (index, sector) in write.data.chunks(SECTOR as usize).enumerate() {
                if kept(number, index, sectors) {
                    let at = (write.at + Sectors(index as u64)).len();
                    self.durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        self.come_back();
    }

    fn come_back(&mut self) {
        self.now.clone_from(&self.durable);
        self.vanished = false;
        self.bad.clear();
    }

    /// The power goes, with `in_flight` writes not answered yet; then it comes back.
    pub fn crash(&mut self, in_flight: Vec<(Sectors, Vec<u8>)>, rng: &mut Rng) {
        for (at, data) in in_flight {
            self.receive(at, data);
        }
        for write in std::mem::take(&mut self.unsynced) {
            match rng.below(3) {
                0 => put(&mut self.durable, &write),
                1 => {}
                _ => self.tear(&write, rng),
            }
        }
        self.come_back();
    }

    /// Keeps some sectors of a write.
    fn tear(&mut self, write: &Write, rng: &mut Rng) {
        for (i, sector) in write.data.chunks(SECTOR as usize).enumerate() {
            if rng.once_in(2) {
                let at = (write.at + Sectors(i as u64)).len();
                self.durable[at..at + sector.len()].copy_from_slice(sector);
            }
        }
    }
}

fn put(bytes: &mut [u8], write: &Write) {
    bytes[write.at.len()..write.at.len() + write.data.len()].copy_from_slice(&write.data);
}
