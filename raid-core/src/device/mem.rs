//! Memory as a member: for tests, demonstrations and as the fastest disk there can be.
//!
//! Sparse: a piece that was never written costs nothing and reads as zeros. Nothing survives the
//! process, so `flush` has nothing to do.

use super::{Device, DeviceKind, Facts, Shared, bounds, spec};
use crate::error::{Error, Result};
use crate::units::Sectors;
use parking_lot::RwLock;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// `mem:64M`.
pub const KIND: DeviceKind = DeviceKind {
    scheme: "mem",
    summary: "memory, gone with the process",
    usage: "mem:SIZE, as mem:64M",
    filter: false,
    inner_read_only: false,
    open: |args, _, _| {
        let wrong = || Error::invalid(format!("found `{args}`, expected a size, as mem:64M"));
        let bytes = spec::parse_bytes(args).ok_or_else(wrong)?;
        let device = MemDevice::new(format!("mem:{args}"), Sectors::floor_bytes(bytes))?;
        Ok(Arc::new(device) as Shared)
    },
};

/// Bytes of one piece; each has its own lock, so that threads far apart do not meet.
const PIECE: u64 = 1 << 20;

/// Largest device, in bytes (1 TiB): its locks alone take 16 MiB.
const SIZE_MAX: u64 = 1 << 40;

/// Bytes of a piece; nothing where none were written.
type Piece = RwLock<Option<Box<[u8]>>>;

/// A sparse array of bytes.
pub struct MemDevice {
    facts: Facts,
    pieces: Box<[Piece]>,
}

impl MemDevice {
    /// A device of `sectors` sectors of zeros, called `name`.
    ///
    /// # Errors
    /// `Invalid` for no sectors and for more than 1 TiB.
    pub fn new(name: impl Into<String>, sectors: Sectors) -> Result<MemDevice> {
        let name = name.into();
        if sectors.is_empty() || sectors > Sectors::floor_bytes(SIZE_MAX) {
            let text = format!("{name}: found {sectors} sectors; memory holds 1 sector to 1 TiB");
            return Err(Error::invalid(text));
        }
        let count = sectors.bytes().div_ceil(PIECE);
        let pieces = (0..count).map(|_| RwLock::new(None)).collect();
        Ok(MemDevice { facts: Facts::plain(name, sectors), pieces })
    }

    /// Bytes of memory in use.
    pub fn resident(&self) -> u64 {
        self.pieces.iter().filter(|p| p.read().is_some()).count() as u64 * PIECE
    }

    /// The piece and the place in it for byte `at`, and how many bytes of `len` lie in it.
    fn place(&self, at: u64, len: usize) -> (&Piece, usize, usize) {
        let inside = (at % PIECE) as usize;
        (&self.pieces[(at / PIECE) as usize], inside, len.min(PIECE as usize - inside))
    }

    fn read_buf(&self, mut at: u64, mut buf: &mut [u8]) {
        while !buf.is_empty() {
            let (piece, inside, now) = self.place(at, buf.len());
            let (head, rest) = buf.split_at_mut(now);
            match piece.read().as_ref() {
                Some(bytes) => head.copy_from_slice(&bytes[inside..inside + now]),
                None => head.fill(0),
            }
            at += now as u64;
            buf = rest;
        }
    }

    fn write_buf(&self, mut at: u64, mut buf: &[u8]) {
        while !buf.is_empty() {
            let (piece, inside, now) = self.place(at, buf.len());
            let (head, rest) = buf.split_at(now);
            let mut piece = piece.write();
            let bytes = piece.get_or_insert_with(|| vec![0; PIECE as usize].into());
            bytes[inside..inside + now].copy_from_slice(head);
            at += now as u64;
            buf = rest;
        }
    }
}

impl Device for MemDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        bounds::check_read(&self.facts, at, bounds::total(bufs))?;
        let mut at = at.bytes();
        for buf in bufs {
            self.read_buf(at, buf);
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        bounds::check_write(&self.facts, at, bounds::total(bufs))?;
        let mut at = at.bytes();
        for buf in bufs {
            self.write_buf(at, buf);
            at += buf.len() as u64;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Frees whole pieces; their content reads as zeros afterwards.
    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        bounds::check_discard(&self.facts, at, len)?;
        let first = at.bytes().div_ceil(PIECE);
        let end = (at + len).bytes() / PIECE;
        for piece in first..end {
            *self.pieces[piece as usize].write() = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{read_at, write_at};

    #[test]
    fn only_what_was_written_takes_memory() {
        let device = MemDevice::new("m", Sectors::floor_bytes(64 << 30)).unwrap();
        assert_eq!(device.resident(), 0);
        write_at(&device, Sectors(4095), &[7; 1024]).unwrap();
        write_at(&device, Sectors(100 << 20), &[8; 512]).unwrap();
        assert_eq!(device.resident(), 3 * PIECE);
        device.discard(Sectors(2048), Sectors(4096)).unwrap();
        assert_eq!(device.resident(), PIECE);
        let mut buf = [1; 1024];
        read_at(&device, Sectors(4095), &mut buf).unwrap();
        assert_eq!(buf, [0; 1024]);
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        assert!(MemDevice::new("m", Sectors::ZERO).is_err());
        assert!(MemDevice::new("m", Sectors(u64::MAX)).is_err());
    }
}
