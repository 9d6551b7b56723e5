//! A volume with nothing behind it: the ceiling of the front end, for benchmarks.
//!
//! Reads answer zeros that were written once into the front end's buffer; writes vanish. Nothing
//! is ever remembered, so it must not be used to check data.

use super::{Text, Volume};
use raid_core::error::Result;

/// `size` bytes of nothing.
pub struct Null {
    size: u64,
}

impl Null {
    /// A null volume of `size` bytes.
    pub fn new(size: u64) -> Null {
        Null { size }
    }
}

impl Volume for Null {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        false
    }

    /// Leaves `buf` as it is: the front end zeroed its buffers before their first use and only
    /// volumes write into them.
    fn read(&self, _at: u64, _buf: &mut [u8]) -> Result<()> {
        Ok(())
    }

    fn write(&self, _at: u64, _data: &[u8]) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn texts(&self) -> Vec<Text> {
        vec![Text::fixed("status", format!("null volume, {} bytes\n", self.size))]
    }
}
