//! A power cut: from one moment on nothing reaches any of the members that share a supply.

use crate::ours::{self, Expected, Random};
use crate::pattern::Pattern;
use raid_core::device::{Device, Facts, Shared};
use raid_core::driver::Array;
use raid_core::units::{SECTOR, Sectors};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What several members hang on: it lasts for some writes.
#[derive(Debug)]
pub struct Supply {
    writes_left: AtomicI64,
}

impl Supply {
    /// Power that never ends before [`Supply::last`] is called.
    pub fn new() -> Arc<Supply> {
        Arc::new(Supply { writes_left: AtomicI64::new(i64::MAX) })
    }

    /// Lets the power last for `writes` more writes to the members.
    pub fn last(&self, writes: u32) {
        self.writes_left.store(writes.into(), Ordering::SeqCst);
    }

    /// True once a write found no power.
    pub fn is_cut(&self) -> bool {
        self.writes_left.load(Ordering::SeqCst) < 0
    }

    /// The devices, on this supply.
    pub fn feed(self: &Arc<Supply>, devices: &[Shared]) -> Vec<Shared> {
        let feed = |inner: &Shared| {
            let (facts, supply) = (inner.facts().without_fd(), self.clone());
            Arc::new(Powered { facts, inner: inner.clone(), supply }) as Shared
        };
        devices.iter().map(feed).collect()
    }

    fn check(&self) -> io::Result<()> {
        if self.is_cut() { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
    }
}

/// A device that works while there is power.
struct Powered {
    facts: Facts,
    inner: Shared,
    supply: Arc<Supply>,
}

impl Device for Powered {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.supply.check()?;
        self.inner.read(at, bufs)
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.supply.check()?;
        self.supply.writes_left.fetch_sub(1, Ordering::SeqCst);
        self.supply.check()?;
        self.inner.write(at, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.supply.check()?;
        self.inner.flush()
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        self.supply.check()?;
        self.inner.discard(at, len)
    }
}

/// A request: where and what.
pub type Request = (Range<u64>, Vec<u8>);

/// Writes to one part of the array until the power is gone; what was answered, what was not.
fn write_until_cut(array: &Array, part: Range<u64>, seed: u64) -> (Vec<Request>, Request) {
    let (mut random, mut done) = (Random(seed), Vec::new());
    loop {
        let range = random.range(array);
        let range = range.start.max(part.start)..range.end.min(part.end);
        if range.is_empty() {
            continue;
        }
        let mut data = vec![0; (range.end - range.start) as usize];
        Pattern::Seeded(random.below(u64::MAX)).fill(range.start, &mut data);
        match array.write(range.start, &data) {
            Ok(()) => done.push((range, data)),
            Err(_) => return (done, (range, data)),
        }
    }
}

/// Threads that write to an array, each to its part.
const WRITERS: u64 = 3;

/// Cuts the power of an array under writes. What must be in it, and the requests left open.
pub fn cut(
    members: &[PathBuf],
    mut expected: Expected,
    random: &mut Random,
) -> (Expected, Vec<Request>) {
    let supply = Supply::new();
    let array = ours::start(&supply.feed(&ours::open(members)));
    expected.write(&array, 5, random);
    // Enough to mark the array clean and dirty once more.
    let writes = 3 * members.len() as u32 + 4 + random.below(80) as u32;
    cut_running(array, &supply, writes, expected, random)
}

/// The same for an array that runs on `supply`, which lasts for so many more writes to members.
pub fn cut_running(
    array: Array,
    supply: &Supply,
    writes: u32,
    mut expected: Expected,
    random: &mut Random,
) -> (Expected, Vec<Request>) {
    supply.last(writes);
    // On a border inside a sector two open requests could meet.
    let border = |i: u64| array.size() * i / WRITERS / SECTOR * SECTOR;
    let part = |i: u64| border(i)..border(i + 1);
    let results: Vec<(Vec<Request>, Request)> = std::thread::scope(|scope| {
        let start = |i| (i, random.below(u64::MAX));
        let seeds: Vec<(u64, u64)> = (0..WRITERS).map(start).collect();
        let threads: Vec<_> = (seeds.into_iter())
            .map(|(i, seed)| {
                scope.spawn({
                    let (array, part) = (&array, part(i));
                    move || write_until_cut(array, part, seed)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(supply.is_cut());
    drop(array);
    let mut open = Vec::new();
    for (done, last) in results {
        done.into_iter().for_each(|(range, data)| expected.put(range, &data));
        open.push(last);
    }
    (expected, open)
}
