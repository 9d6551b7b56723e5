//! Members: anything that can be read and written at a place.
//!
//! A device has five verbs, all blocking, all by shared reference, so that any number of threads
//! can use it at once. Filters are devices around a device.

use crate::error::Result;
use crate::units::Sectors;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;

/// What a device says about itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How to name it to people: the path, or a made-up name for memory.
    pub name: String,
    /// Whole sectors it holds.
    pub sectors: Sectors,
    /// True if writes must not be tried.
    pub read_only: bool,
    /// A descriptor on which reads and writes at the same offsets do the same as the verbs:
    /// present only where a ring may bypass the verbs (never on filters).
    pub fd: Option<RawFd>,
    /// Memory address and offset alignment that `fd` demands, in bytes; 1 if it takes anything.
    pub fd_align: usize,
}

/// Five verbs. Offsets are sectors from the start of the device; buffers are whole sectors.
///
/// A read or write either moves every byte or fails; after a failed write the sectors it covered
/// may hold old or new data, each sector whole.
pub trait Device: Send + Sync {
    /// Name, size, and how a ring may reach it.
    fn facts(&self) -> &Facts;

    /// Fills `bufs`, in order, from `at`.
    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()>;

    /// Writes `bufs`, in order, at `at`. Durable only after [`Device::flush`].
    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()>;

    /// Returns when everything written before the call is durable.
    fn flush(&self) -> io::Result<()>;

    /// Says that `len` sectors at `at` are not needed; their content is undefined afterwards.
    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()>;
}

/// Reads one buffer; see [`Device::read`].
pub fn read_at(device: &dyn Device, at: Sectors, buf: &mut [u8]) -> io::Result<()> {
    device.read(at, &mut [IoSliceMut::new(buf)])
}

/// Writes one buffer; see [`Device::write`].
pub fn write_at(device: &dyn Device, at: Sectors, buf: &[u8]) -> io::Result<()> {
    device.write(at, &[IoSlice::new(buf)])
}

/// A device that has been opened, behind a shared pointer.
pub type Shared = std::sync::Arc<dyn Device>;

/// Result of opening a device.
pub type Opened = Result<Shared>;
