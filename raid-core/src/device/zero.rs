//! Whether a range holds nothing but zeros, found out as cheaply as the device allows.
//!
//! Used at creation: the parity of zeros is zero, so members that are all holes need no resync.

use super::{Device, bounds, read_at};
use crate::buf::Pool;
use crate::units::Sectors;
use std::io;
use std::os::fd::RawFd;

/// Bytes read at a time.
const PIECE: Sectors = Sectors::kib(1024);

/// Whether the `len` sectors at `at` are all zero. Holes of a sparse file are skipped without
/// reading them; at most `read_max` sectors are read, and where that is not enough to know the
/// answer is nothing.
///
/// # Errors
/// Those of [`Device::read`].
pub fn is_zero(
    device: &dyn Device,
    at: Sectors,
    len: Sectors,
    read_max: Sectors,
) -> io::Result<Option<bool>> {
    bounds::check_range(device.facts(), at, len)?;
    let (mut at, end, mut budget) = (at, at + len, read_max);
    let mut buf = Pool::new(0).take(PIECE.len());
    while at < end {
        at = next_data(device, at).min(end);
        let piece = Sectors((end - at).0.min(PIECE.0));
        let Some(left) = budget.checked_sub(piece) else { return Ok(None) };
        budget = left;
        let buf = &mut buf[..piece.len()];
        read_at(device, at, buf)?;
        if !all_zero(buf) {
            return Ok(Some(false));
        }
        at += piece;
    }
    Ok(Some(true))
}

/// The first sector from `at` on that may hold something: the end where only holes follow, and
/// `at` itself where holes cannot be told.
fn next_data(device: &dyn Device, at: Sectors) -> Sectors {
    let facts = device.facts();
    let Some(fd) = facts.fd else { return at };
    match seek_data(fd, (facts.fd_start + at).bytes()) {
        Ok(Some(place)) => {
            Sectors::floor_bytes(place).checked_sub(facts.fd_start).unwrap_or(at).max(at)
        }
        Ok(None) => facts.sectors,
        Err(_) => at,
    }
}

/// Where the next data from byte `at` on begins, if any does. Moves the descriptor's own place,
/// which no transfer of ours uses.
pub(super) fn seek_data(fd: RawFd, at: u64) -> io::Result<Option<u64>> {
    let at = libc::off64_t::try_from(at).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: no memory is passed; the descriptor belongs to a device that is borrowed.
    let found = unsafe { libc::lseek64(fd, at, libc::SEEK_DATA) };
    match found {
        0.. => Ok(Some(found as u64)),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            e => Err(e),
        },
    }
}

fn all_zero(buf: &[u8]) -> bool {
    // By words: the compiler makes wide instructions of it.
    // SAFETY: any bytes are a valid u64.
    let (head, words, tail) = unsafe { buf.align_to::<u64>() };
    head.iter().chain(tail).all(|&b| b == 0)
        && words.chunks(512).all(|chunk| chunk.iter().fold(0, |all, w| all | w) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::conformance::{scratch, sparse};
    use crate::device::file::{FileDevice, OpenOptions};
    use crate::device::mem::MemDevice;
    use crate::device::slice::SliceDevice;
    use crate::device::trace::{TraceDevice, Verb};
    use crate::device::write_at;
    use std::sync::Arc;

    const ALL: Sectors = Sectors(u64::MAX);

    #[test]
    fn holes_are_known_without_reading() {
        let dir = scratch();
        let size = Sectors::floor_bytes(1 << 40);
        let path = sparse(dir.path(), "a.img", size);
        let file = FileDevice::open(&path, &OpenOptions::default()).unwrap();
        let ask = |at, len| is_zero(&file, at, len, Sectors(1 << 12)).unwrap();
        assert_eq!(ask(Sectors(0), size), Some(true));
        write_at(&file, Sectors(1 << 20), &[0; 4096]).unwrap();
        assert_eq!(ask(Sectors(0), size), Some(true), "written zeros are read");
        write_at(&file, Sectors((1 << 21) + 7), &[1; 512]).unwrap();
        assert_eq!(ask(Sectors(0), size), Some(false));
        assert_eq!(ask(Sectors((1 << 21) + 8), Sectors(1 << 20)), Some(true));
        assert_eq!(ask(Sectors(0), Sectors((1 << 21) + 7)), Some(true));
        let window = SliceDevice::new(Arc::new(file), Sectors(1 << 21), None).unwrap();
        let ask = |at, len| is_zero(&window, Sectors(at), Sectors(len), ALL).unwrap();
        assert_eq!(ask(0, 7), Some(true));
        assert_eq!(ask(0, 8), Some(false));
        assert_eq!(ask(8, 1 << 20), Some(true));
    }

    #[test]
    fn other_devices_are_read_up_to_the_limit() {
        let memory = Arc::new(MemDevice::new("m", Sectors(10_000)).unwrap());
        let trace = TraceDevice::new(memory);
        let ask = |at, len, max| is_zero(&trace, Sectors(at), Sectors(len), max).unwrap();
        assert_eq!(ask(0, 10_000, ALL), Some(true));
        assert_eq!(trace.count(Verb::Read).sectors, Sectors(10_000));
        assert_eq!(ask(0, 10_000, Sectors(9_999)), None);
        assert_eq!(ask(10_000, 0, Sectors(0)), Some(true));
        write_at(&trace, Sectors(9_999), &[1; 512]).unwrap();
        assert_eq!(ask(0, 10_000, ALL), Some(false));
        assert_eq!(ask(0, 9_999, ALL), Some(true));
        assert!(is_zero(&trace, Sectors(1), Sectors(10_000), ALL).is_err());
    }

    #[test]
    fn one_bit_anywhere_is_seen() {
        let mut buf = vec![0u8; 4096 + 3];
        assert!(all_zero(&buf[1..]));
        for at in 1..buf.len() {
            buf[at] = 0x80;
            assert!(!all_zero(&buf[1..]), "{at}");
            buf[at] = 0;
        }
    }
}
