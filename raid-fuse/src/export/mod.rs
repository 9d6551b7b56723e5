//! The narrow front-end contract: what an exported volume must answer, and nothing of FUSE.
//!
//! A front end (FUSE today, a ring transport later) serves one [`Volume`] and its text files.

pub mod fuse;
pub mod gate;
pub mod null;
pub mod options;
pub mod tree;
pub mod truncation;

use raid_core::buf::{Buf, Pool};
use raid_core::error::Result;

/// One big file and a few text files, answered by any number of threads at once.
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

    /// Writes all of `data` at byte `at`; the range is inside the volume.
    fn write(&self, at: u64, data: &[u8]) -> Result<()>;

    /// Returns when everything written before is durable on the members.
    fn flush(&self) -> Result<()>;

    /// Read-only text files beside the volume: name and content at the moment of the call.
    fn texts(&self) -> Vec<(&'static str, String)>;
}
