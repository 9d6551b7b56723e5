//! Members: anything that can be read and written at a place.
//!
//! A device has five verbs, all blocking, all by shared reference, so that any number of threads
//! can use it at once. Filters are devices around a device. A device is named by a spec that is
//! read from the outside in: `fault:seed=7,read=1e-4+file:a.img`; see [`open`].
//!
//! To add a kind: write `device/x.rs` with a `pub const KIND: DeviceKind`, add `pub mod x;` and a
//! line in [`DEVICES`], and give the conformance suite a way to make one. A device that belongs to
//! no spec (an array as a member of another) only needs to implement [`Device`].

use crate::error::Result;
use crate::units::Sectors;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::RawFd;

mod bounds;
pub mod cow;
pub mod fault;
pub mod file;
mod length;
pub mod mem;
pub mod slice;
mod spec;
pub mod trace;
pub mod zero;

pub use file::{OpenOptions, Storage};
pub use length::Length;
pub use spec::open;

#[cfg(test)]
pub(crate) mod conformance;

/// What a device says about itself.
#[derive(Clone, Debug)]
pub struct Facts {
    /// How to name it to people: the path, or a made-up name for memory.
    pub name: String,
    /// Whole sectors it holds.
    pub sectors: Sectors,
    /// True if writes must not be tried.
    pub read_only: bool,
    /// A descriptor on which reads and writes, `fd_start` further on, do the same as the verbs:
    /// present only where a ring may bypass the verbs (never on filters that change anything).
    pub fd: Option<RawFd>,
    /// Where sector 0 of this device lies on `fd`; zero except in a window of another device.
    pub fd_start: Sectors,
    /// Memory address, length and offset alignment that `fd` demands, in bytes; 1 if it takes
    /// anything. A request that does not fit goes through the verbs, which take everything.
    pub fd_align: usize,
    /// True if transfers on `fd` complete without blocking the submitter (O_DIRECT on a block
    /// device, ext4, xfs): there a ring is faster than the verbs. On tmpfs and in the page cache
    /// a ring hands every operation to a kernel thread and is slower.
    pub fd_async: bool,
    /// What a write past the verbs checks first: the file has not become shorter. Nothing where it
    /// cannot, and on filters.
    pub length: Option<Length>,
    /// Which bytes of which file or disk it is, where that can be known: two devices that overlap
    /// are the same storage under two names.
    pub identity: Option<Storage>,
}

impl Facts {
    /// Facts of a device that only its verbs can reach, which can be written and is alone.
    pub fn plain(name: impl Into<String>, sectors: Sectors) -> Facts {
        Facts {
            name: name.into(),
            sectors,
            read_only: false,
            fd: None,
            fd_start: Sectors::ZERO,
            fd_align: 1,
            fd_async: false,
            length: None,
            identity: None,
        }
    }

    /// The same facts without the way around the verbs: what a filter says of itself.
    pub fn without_fd(&self) -> Facts {
        let fd_start = Sectors::ZERO;
        Facts { fd: None, fd_start, fd_align: 1, fd_async: false, length: None, ..self.clone() }
    }
}

/// Five verbs. Offsets are sectors from the start of the device; buffers are whole sectors
/// together (each alone may be of any length and at any address).
///
/// A read or write either moves every byte or fails; after a failed write the sectors it covered
/// may hold old or new data, each sector whole. What reaches past the end fails with
/// [`io::ErrorKind::InvalidInput`] and moves nothing; a request of no bytes succeeds.
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

    /// Where `len` bytes from `at` lie in memory right now, to be handed to a system call; `None`
    /// where they do not, or not as [`Device::read`] would give them. Nobody but the kernel may
    /// look there, and only while the device lives (see [`Lent`]).
    fn lend(&self, _at: Sectors, _len: usize) -> Option<Lent> {
        None
    }

    /// What happened to its file or disk outside of it that people should know, as a sentence
    /// without its subject: `its file was deleted; ...`. Looked up when asked.
    fn warning(&self) -> Option<String> {
        None
    }
}

/// Bytes of a device in memory that others change as they like and take away when they like: an
/// address for a system call, which then gets what is there, or fails with EFAULT.
#[derive(Clone, Copy, Debug)]
pub struct Lent {
    /// The first byte.
    pub base: *mut libc::c_void,
    /// Bytes.
    pub len: usize,
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

/// A row of [`DEVICES`]: a kind of device that a spec can name.
#[derive(Debug)]
pub struct DeviceKind {
    /// The word before the colon.
    pub scheme: &'static str,
    /// One line for people.
    pub summary: &'static str,
    /// The form of a spec.
    pub usage: &'static str,
    /// True if it needs a device behind a `+`.
    pub filter: bool,
    /// True if that device is opened for reading only, whatever is wanted of this one.
    pub inner_read_only: bool,
    /// Opens one from what is between the colon and the `+`.
    pub open: fn(args: &str, inner: Option<Shared>, options: &OpenOptions) -> Opened,
}

/// Every kind a spec can name.
pub const DEVICES: &[&DeviceKind] =
    &[&file::KIND, &mem::KIND, &slice::KIND, &fault::KIND, &trace::KIND, &cow::KIND];
