//! A copy-on-write overlay: what is written goes to a file beside, the base is only ever read.
//!
//! For each base the overlay directory holds two files: `NAME.delta`, sparse, with changed blocks
//! at their own places, and `NAME.map`, which says what it is an overlay of and which blocks are
//! changed. Both survive a restart. A block counts as changed on disk only after its data is
//! durable (data, then map), so a crash loses at most what was not flushed, as on a disk.
//!
//! Refused: a base that is not the one the overlay was made over (its beginning or end, where
//! superblocks lie, has changed), and an overlay whose commit was interrupted; committing again
//! finishes it.

mod admin;
mod header;
mod map;
mod memory;

pub use admin::{Overlay, list};
pub use memory::MemoryOverlay;

use super::file::transfer::Scatter;
use super::file::{FileDevice, OpenOptions};
use super::spec::Args;
use super::{Device, DeviceKind, Facts, Shared, bounds, read_at, write_at};
use crate::buf::{Buf, Pool};
use crate::error::{Error, Result};
use crate::units::Sectors;
use map::{Map, MapFile};
use parking_lot::{Mutex, RwLock};
use std::io::{self, IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

/// `cow:dir=DIR+file:a.img`.
pub const KIND: DeviceKind = DeviceKind {
    scheme: "cow",
    summary: "a writable overlay over a device that is only read",
    usage: "cow:dir=DIR+DEVICE",
    filter: true,
    inner_read_only: true,
    open: |args, inner, options| {
        let mut args = Args::parse(args)?;
        let wrong = || Error::invalid("say where the overlay lies: cow:dir=DIR+DEVICE");
        let dir = args.take("dir").ok_or_else(wrong)?;
        args.finish(KIND.usage)?;
        let inner = inner.expect("a filter is opened with its inner device");
        Ok(Arc::new(CowDevice::open(inner, Path::new(dir), options.read_only)?) as Shared)
    },
};

/// Sectors of a block: what is copied before a part of it is written. A page, so that requests of
/// file systems are whole blocks, and the map of a 1 TiB member is 32 MiB.
const BLOCK: Sectors = Sectors::kib(4);

/// A base and what was written over it.
pub struct CowDevice {
    facts: Facts,
    base: Shared,
    delta: FileDevice,
    map: Mutex<Map>,
    pages: MapFile,
    /// Held alone while a block is being copied, shared by other writes.
    copying: RwLock<()>,
    /// One flush at a time, so that none returns before the map of another is written.
    flushing: Mutex<()>,
    pool: Pool,
}

impl CowDevice {
    /// The overlay of `base` in `dir`, made if there is none.
    ///
    /// # Errors
    /// `Refused` if the base changed or a commit was interrupted, `Busy` if the overlay is in use,
    /// `Metadata` if its files are damaged.
    pub fn open(base: Shared, dir: &Path, read_only: bool) -> Result<CowDevice> {
        let files = admin::find_or_make(&*base, dir)?;
        let delta = FileDevice::open(&files.delta(), &OpenOptions::default())?;
        let (header, pages, map) = MapFile::load(&files.map())?;
        header.check_open(&*base, &files.map())?;
        let whole = base.facts().without_fd();
        let facts = Facts { name: format!("{} (overlay)", whole.name), read_only, ..whole };
        Ok(CowDevice {
            facts,
            base,
            delta,
            map: Mutex::new(map),
            pages,
            copying: RwLock::new(()),
            flushing: Mutex::new(()),
            pool: Pool::new(0),
        })
    }

    /// Sectors that differ from the base, in whole blocks.
    pub fn changed(&self) -> Sectors {
        self.map.lock().changed()
    }

    /// True if all blocks of a range are changed, or none is; nothing if some are.
    fn uniform(&self, at: Sectors, len: Sectors) -> Option<bool> {
        let (changed, end) = self.map.lock().run(at, at + len);
        (end == at + len).then_some(changed)
    }

    /// Reads a range part by part, from where each part is.
    fn read_parts(&self, at: Sectors, buf: &mut Buf) -> io::Result<()> {
        let mut done = Sectors::ZERO;
        let len = Sectors::floor_bytes(buf.len() as u64);
        while done < len {
            let (changed, end) = self.map.lock().run(at + done, at + len);
            let part = &mut buf[done.len()..(end - at).len()];
            match changed {
                true => read_at(&self.delta, at + done, part)?,
                false => read_at(&*self.base, at + done, part)?,
            }
            done = end - at;
        }
        Ok(())
    }

    /// Copies what a write of this range leaves of its first and last block, where those are not
    /// in the delta yet.
    fn copy_edges(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        let end = at + len;
        let first = at.round_down(BLOCK);
        let last = (end + BLOCK - Sectors(1)).round_down(BLOCK).min(self.facts.sectors);
        if !self.is_changed(first) {
            self.copy(first, at - first)?;
        }
        if last > end && !self.is_changed(end.round_down(BLOCK)) {
            self.copy(end, last - end)?;
        }
        Ok(())
    }

    fn is_changed(&self, at: Sectors) -> bool {
        self.map.lock().run(at, at + Sectors(1)).0
    }

    fn copy(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        if len.is_empty() {
            return Ok(());
        }
        let mut buf = self.pool.take(len.len());
        read_at(&*self.base, at, &mut buf)?;
        write_at(&self.delta, at, &buf)
    }

    /// Whether every block of a range is in the delta already or will be written whole.
    fn needs_no_copy(&self, at: Sectors, len: Sectors) -> bool {
        let end = at + len;
        let starts = at == at.round_down(BLOCK) || self.is_changed(at);
        let ends = end == end.round_down(BLOCK)
            || end == self.facts.sectors
            || self.is_changed(end.round_down(BLOCK));
        starts && ends
    }
}

impl Device for CowDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let bytes = bounds::total(bufs);
        bounds::check_read(&self.facts, at, bytes)?;
        match self.uniform(at, Sectors::floor_bytes(bytes)) {
            Some(true) => self.delta.read(at, bufs),
            Some(false) => self.base.read(at, bufs),
            None => {
                let mut buf = self.pool.take(bytes as usize);
                self.read_parts(at, &mut buf)?;
                Scatter::new(bufs).put(&buf);
                Ok(())
            }
        }
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = bounds::total(bufs);
        bounds::check_write(&self.facts, at, bytes)?;
        let len = Sectors::floor_bytes(bytes);
        if len.is_empty() {
            return Ok(());
        }
        let together = self.copying.read();
        if self.needs_no_copy(at, len) {
            self.delta.write(at, bufs)?;
            self.map.lock().set(at, len);
            return Ok(());
        }
        drop(together);
        let _alone = self.copying.write();
        self.copy_edges(at, len)?;
        self.delta.write(at, bufs)?;
        self.map.lock().set(at, len);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let _one = self.flushing.lock();
        let pages = self.map.lock().take_dirty();
        let done = self.delta.flush().and_then(|()| self.pages.store(&pages));
        if done.is_err() {
            self.map.lock().mark_dirty(&pages);
        }
        done
    }

    /// Nothing: the content is undefined afterwards, and the old one is as good as any.
    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        bounds::check_discard(&self.facts, at, len)
    }

    /// The base is only read; what is written is in the overlay.
    fn warning(&self) -> Option<String> {
        self.delta.warning()
    }
}

impl Drop for CowDevice {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            // Nobody is left to return it to; who wanted to know has flushed.
            eprintln!("{}: the last changes may be lost: {error}", self.facts.name);
        }
    }
}

#[cfg(test)]
mod tests;
