//! The narrow front-end contract: what an exported volume must answer, and nothing of FUSE.
//!
//! A front end (FUSE today, a ring transport later) serves one [`Volume`] and its text files.

mod complaints;
pub mod connection;
pub mod fuse;
pub mod gate;
pub mod null;
pub mod options;
mod scratch;
mod texts;
pub mod tree;
pub mod truncation;

pub use texts::{Kind, Text};

use raid_core::buf::{Buf, Pool};
use raid_core::device::Lent;
use raid_core::error::{Error, Result};

/// One big file and small text files, answered by any number of threads at once.
pub trait Volume: Send + Sync + 'static {
    /// Size in bytes, fixed while exported.
    fn size(&self) -> u64;

    /// True if writes answer EROFS.
    fn read_only(&self) -> bool;

    /// A buffer the volume reads into best (aligned, registered with its ring); a front end keeps
    /// one per thread instead of asking per request.
    fn buffer(&self, len: usize) -> Buf {
        Pool::new(0).take(len)
    }

    /// Fills all of `buf` from byte `at`; the range is inside the volume.
    /// Never short: either every byte is right or the call fails.
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()>;

    /// Calls `give` with where `len` bytes from byte `at` lie in memory, in order, to be handed to
    /// a system call, and returns what it says; false, without a call, where they do not.
    fn lend(&self, _at: u64, _len: usize, _give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        false
    }

    /// Writes all of `data` at byte `at`; the range is inside the volume.
    fn write(&self, at: u64, data: &[u8]) -> Result<()>;

    /// Returns when everything written before is durable on the members.
    fn flush(&self) -> Result<()>;

    /// Text files beside the volume at the moment of the call. Those in folders may come and go;
    /// those beside the volume itself are the same as long as it is exported.
    fn texts(&self) -> Vec<Text>;

    /// Somebody wrote `bytes`, all at once, to the writable text at `path`.
    fn write_text(&self, path: &str, bytes: &[u8]) -> Result<()> {
        Err(Error::invalid(format!("{path}: {} bytes cannot be written there", bytes.len())))
    }
}

/// What a panic said.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}
