//! md's bad-block log: which sectors of a member cannot be read.
//!
//! ```text
//! entry  | 54 bits: first unit, from the start of the member | 10 bits: how many units |
//! ```
//! A unit is 512 << shift bytes. An entry of all ones ends the log. The kernel writes entries
//! in any order and splits long runs (at most 512 units fit in an entry).

use super::bytes::le64;
use super::damaged;
use super::md1::packet::field;
use super::record::MemberRecord;
use crate::error::{Error, ErrorKind, Result};
use crate::units::Sectors;

/// Units in one entry (`BB_MAX_LEN` of the kernel).
const ENTRY_MAX: u64 = 512;
/// A larger shift would give units of more than a terabyte.
const SHIFT_MAX: u8 = 31;
/// No device has so many sectors: bytes must fit in 63 bits.
const SECTORS_END: u128 = 1 << 54;

/// The unit's shift that `member`'s superblock asks for.
pub fn shift(member: &MemberRecord) -> u8 {
    member.raw.get(field::BBLOG_SHIFT).copied().unwrap_or(0)
}

/// The runs a log lists, sorted and joined: first sector and number of sectors.
pub fn parse(log: &[u8], shift: u8) -> Result<Vec<(Sectors, Sectors)>> {
    if shift > SHIFT_MAX {
        return Err(damaged(format!("a bad-block unit of 512 << {shift} bytes makes no sense")));
    }
    let mut runs = Vec::new();
    for entry in log.chunks_exact(8).map(|bytes| le64(bytes, 0)) {
        if entry == u64::MAX {
            break;
        }
        let (at, len) = (u128::from(entry >> 10) << shift, (entry & 0x3ff) << shift);
        if at + u128::from(len) > SECTORS_END {
            return Err(damaged("a bad block lies beyond every device"));
        }
        if len > 0 {
            runs.push((Sectors(at as u64), Sectors(len)));
        }
    }
    Ok(joined(runs))
}

/// The log of `len` sectors that lists `runs`; fails if they do not fit.
pub fn emit(runs: &[(Sectors, Sectors)], len: Sectors, shift: u8) -> Result<Vec<u8>> {
    if shift > SHIFT_MAX {
        return Err(damaged(format!("a bad-block unit of 512 << {shift} bytes makes no sense")));
    }
    let mut log = Vec::new();
    let room = len.len() / 8;
    for (at, len) in joined(runs.to_vec()) {
        let first = at.0 >> shift;
        let end = (at + len).0.div_ceil(1 << shift);
        for unit in (first..end).step_by(ENTRY_MAX as usize) {
            let count = ENTRY_MAX.min(end - unit);
            log.extend((unit << 10 | count).to_le_bytes());
        }
        if log.len() / 8 > room {
            return Err(Error::new(
                ErrorKind::Io,
                format!("the bad-block log is full: {room} entries do not hold all bad blocks"),
            ));
        }
    }
    log.resize(len.len(), 0xff);
    Ok(log)
}

/// Sorted, with touching and overlapping runs made one.
pub fn joined(mut runs: Vec<(Sectors, Sectors)>) -> Vec<(Sectors, Sectors)> {
    runs.sort_unstable();
    let mut out: Vec<(Sectors, Sectors)> = Vec::with_capacity(runs.len());
    for (at, len) in runs {
        match out.last_mut() {
            Some(last) if at.0 <= last.0.0 + last.1.0 => {
                let end = (last.0.0 + last.1.0).max(at.0.saturating_add(len.0));
                last.1 = Sectors(end - last.0.0);
            }
            _ => out.push((at, len)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_beyond_every_device_is_refused() {
        let end = SECTORS_END as u64;
        for (at, len, fits) in [(end - 33, 33, true), (end - 33, 34, false), (end - 1, 1, true)] {
            let log = (at << 10 | len).to_le_bytes();
            assert_eq!(parse(&log, 0).is_ok(), fits, "{at} {len}");
        }
    }
}
