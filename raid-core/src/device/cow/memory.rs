//! A copy-on-write overlay in memory: what is written is seen by this process only, and is gone
//! with it. For little: what a log has to put right before an array is read.

use crate::device::file::transfer::Scatter;
use crate::device::{Device, Facts, Shared, bounds, read_at};
use crate::units::Sectors;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};

/// A base that is only read, and what was written over it, sector by sector.
pub struct MemoryOverlay {
    facts: Facts,
    base: Shared,
    sectors: RwLock<BTreeMap<Sectors, Box<[u8]>>>,
}

impl MemoryOverlay {
    /// An overlay of `base`, which takes writes even where the base does not.
    pub fn new(base: Shared) -> MemoryOverlay {
        let facts = Facts { read_only: false, ..base.facts().without_fd() };
        MemoryOverlay { facts, base, sectors: RwLock::default() }
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.sectors.read().is_empty()
    }
}

impl Device for MemoryOverlay {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let bytes = bounds::total(bufs);
        bounds::check_read(&self.facts, at, bytes)?;
        let end = at + Sectors::floor_bytes(bytes);
        if self.sectors.read().range(at..end).next().is_none() {
            return self.base.read(at, bufs);
        }
        let mut buf = vec![0; bytes as usize];
        read_at(&*self.base, at, &mut buf)?;
        for (&sector, bytes) in self.sectors.read().range(at..end) {
            let place = (sector - at).len();
            buf[place..place + bytes.len()].copy_from_slice(bytes);
        }
        Scatter::new(bufs).put(&buf);
        Ok(())
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        bounds::check_write(&self.facts, at, bounds::total(bufs))?;
        let bytes: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        let mut sectors = self.sectors.write();
        for (index, sector) in bytes.chunks(Sectors(1).len()).enumerate() {
            sectors.insert(at + Sectors(index as u64), sector.into());
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Nothing: the content is undefined afterwards, and the old one is as good as any.
    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        bounds::check_discard(&self.facts, at, len)
    }
}
