//! Where the two halves of a split array differ: what a user needs to know to give one up.
//!
//! Each half is started by itself, for reading only, and both are read from end to end. Whole
//! sectors are told apart, in bytes of the array.

use super::choice::line;
use super::{amount, members};
use raid_core::assembly::{self, StartOptions};
use raid_core::device::Shared;
use raid_core::driver::Array;
use raid_core::error::{Error, Result};
use raid_core::meta::assemble::{Candidate, Group, Options, halves};
use raid_core::units::SECTOR;
use std::ops::Range;

/// Bytes compared at a time.
const PIECE: usize = 1 << 20;

/// Ranges that are listed; the rest is only counted.
const RANGES_MAX: usize = 40;

/// The differences of the halves of array `group`, or that it has none.
pub fn text(group: &Group, candidates: &[Candidate], devices: &[Shared]) -> Result<String> {
    let Some(halves) = halves(candidates, group.uuid) else {
        let shown = line(group, candidates);
        return Ok(format!("no difference to show: {shown} has not gone separate ways\n"));
    };
    let [a, b] = halves.map(|half| start(&half, group.uuid, devices));
    let (a, b) = (a?, b?);
    let mut text = format!("comparing half {} with half {}:\n", a.names, b.names);
    let found = compare(&a.array, &b.array)?;
    a.array.stop()?;
    b.array.stop()?;
    text.push_str(&found.text(a.array.size().min(b.array.size())));
    Ok(text)
}

struct Half {
    names: String,
    array: Array,
}

/// One half by itself, for reading only.
fn start(half: &[usize], uuid: [u8; 16], devices: &[Shared]) -> Result<Half> {
    let devices: Vec<Shared> = half.iter().map(|&index| devices[index].clone()).collect();
    let candidates = members::examine(&devices);
    let names: Vec<&str> = candidates.iter().map(|candidate| candidate.name.as_str()).collect();
    let names = names.join(" ");
    let options =
        Options { uuid: Some(uuid), degraded: true, read_only: true, ..Options::default() };
    let context = |error: Error| error.context(format!("half {names}"));
    let assembly = assembly::decide(&candidates, &options).map_err(context)?;
    let options = StartOptions { read_only: true, ..StartOptions::default() };
    let array = assembly::start(&assembly, &devices, &options).map_err(context)?;
    Ok(Half { names, array })
}

/// What differs.
#[derive(Default)]
struct Differences {
    /// In bytes of the array, whole sectors.
    ranges: Vec<Range<u64>>,
    /// Ranges in all, also those that are not kept.
    count: u64,
    /// End of the last range.
    end: u64,
    /// Bytes in all ranges.
    covered: u64,
    /// Bytes that really differ.
    bytes: u64,
}

fn compare(a: &Array, b: &Array) -> Result<Differences> {
    let size = a.size().min(b.size());
    let (mut ours, mut theirs) = (a.pool().take(PIECE), b.pool().take(PIECE));
    let mut found = Differences::default();
    let mut at = 0;
    while at < size {
        let len = (size - at).min(PIECE as u64) as usize;
        a.read(at, &mut ours[..len])?;
        b.read(at, &mut theirs[..len])?;
        if ours[..len] != theirs[..len] {
            found.note(at, &ours[..len], &theirs[..len]);
        }
        at += len as u64;
    }
    Ok(found)
}

impl Differences {
    /// Takes in two pieces from byte `at` on.
    fn note(&mut self, at: u64, ours: &[u8], theirs: &[u8]) {
        let sectors = ours.chunks(SECTOR as usize).zip(theirs.chunks(SECTOR as usize));
        for (k, (ours, theirs)) in sectors.enumerate() {
            let differing = ours.iter().zip(theirs).filter(|(ours, theirs)| ours != theirs).count();
            if differing == 0 {
                continue;
            }
            let start = at + k as u64 * SECTOR;
            self.add(start..start + ours.len() as u64, differing as u64);
        }
    }

    fn add(&mut self, sector: Range<u64>, differing: u64) {
        self.covered += sector.end - sector.start;
        self.bytes += differing;
        let goes_on = self.count > 0 && self.end == sector.start;
        self.end = sector.end;
        match goes_on {
            true if self.count as usize <= RANGES_MAX => {
                let last = self.ranges.last_mut().expect("the first ranges are kept");
                last.end = sector.end;
            }
            true => {}
            false => {
                self.count += 1;
                if self.ranges.len() < RANGES_MAX {
                    self.ranges.push(sector);
                }
            }
        }
    }

    fn text(&self, size: u64) -> String {
        if self.count == 0 {
            return format!("  all {size} bytes of the array are the same: either half will do\n");
        }
        let range = |range: &Range<u64>| {
            let (start, len) = (range.start, range.end - range.start);
            format!("  bytes {start} to {} ({len} bytes)\n", range.end - 1)
        };
        let mut text: String = self.ranges.iter().map(range).collect();
        let more = self.count - self.ranges.len() as u64;
        if more > 0 {
            text.push_str(&format!("  ... and {more} more\n"));
        }
        let ranges = if self.count == 1 { "range" } else { "ranges" };
        text.push_str(&format!(
            "in all {} {ranges} with {} of {}; {} bytes in them differ\n",
            self.count,
            amount::human(self.covered),
            amount::human(size),
            self.bytes
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_range_and_many_are_counted() {
        let mut found = Differences::default();
        let (ours, mut theirs) = (vec![0; 4096], vec![0; 4096]);
        (theirs[511], theirs[512], theirs[2048]) = (1, 1, 1);
        found.note(8192, &ours, &theirs);
        assert_eq!(found.ranges, [8192..9216, 10240..10752]);
        assert_eq!((found.count, found.covered, found.bytes), (2, 1536, 3));
        // Goes on where the last piece ended.
        let mut theirs = vec![0; 4096];
        theirs[0] = 1;
        let mut found = Differences::default();
        found.note(0, &vec![0; 512], &vec![1; 512]);
        found.note(512, &ours, &theirs);
        assert_eq!((found.count, &found.ranges[0]), (1, &(0..1024)));
        for k in 0..100 {
            found.note(k * 4096 + 8192, &ours, &theirs);
        }
        assert_eq!((found.ranges.len(), found.count), (RANGES_MAX, 101));
        assert!(found.text(1 << 20).contains("... and 61 more"));
    }
}
