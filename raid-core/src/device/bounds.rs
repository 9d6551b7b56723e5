//! The checks every device makes before it moves a byte: inside the device, whole sectors,
//! writable.

use super::Facts;
use crate::units::{SECTOR, Sectors};
use std::io;
use std::ops::Deref;

/// Bytes in all of `bufs` together.
pub(super) fn total<B: Deref<Target = [u8]>>(bufs: &[B]) -> u64 {
    bufs.iter().map(|b| b.len() as u64).sum()
}

/// Checks a read of `bytes` bytes at `at`.
pub(super) fn check_read(facts: &Facts, at: Sectors, bytes: u64) -> io::Result<()> {
    if !bytes.is_multiple_of(SECTOR) {
        return Err(invalid(facts, format!("{bytes} bytes are not whole sectors")));
    }
    check_range(facts, at, Sectors::floor_bytes(bytes))
}

/// Checks a write of `bytes` bytes at `at`.
pub(super) fn check_write(facts: &Facts, at: Sectors, bytes: u64) -> io::Result<()> {
    check_writable(facts)?;
    check_read(facts, at, bytes)
}

/// Checks a discard of `len` sectors at `at`.
pub(super) fn check_discard(facts: &Facts, at: Sectors, len: Sectors) -> io::Result<()> {
    check_writable(facts)?;
    check_range(facts, at, len)
}

/// Checks that `at` and `len` lie inside the device.
pub(super) fn check_range(facts: &Facts, at: Sectors, len: Sectors) -> io::Result<()> {
    match at.0.checked_add(len.0) {
        Some(end) if end <= facts.sectors.0 => Ok(()),
        _ => {
            let size = facts.sectors;
            Err(invalid(facts, format!("{len} sectors at {at} reach past the end at {size}")))
        }
    }
}

fn check_writable(facts: &Facts) -> io::Result<()> {
    if facts.read_only {
        return Err(io::Error::new(
            io::ErrorKind::ReadOnlyFilesystem,
            format!("{}: opened read-only", facts.name),
        ));
    }
    Ok(())
}

fn invalid(facts: &Facts, what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", facts.name))
}
