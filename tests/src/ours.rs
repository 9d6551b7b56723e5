//! Arrays that our code makes, runs and fills on files, and a copy of what must be in them.

use crate::matrix::{CONTENT, Row};
use crate::pattern::{Pattern, first_difference};
use raid_core::assembly::{self, StartOptions};
use raid_core::device::{self, OpenOptions, file};
use raid_core::driver::Array;
use raid_core::meta::assemble::{Assembly, Options};
use raid_core::meta::create::{NewBitmap, NewMember, Request, create};
use raid_core::meta::{self, assemble};
use raid_core::units::{SECTOR, Sectors, Slot, StripeNo};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest request of [`Random::range`], in bytes.
const REQUEST_MAX: u64 = 768 * 1024;

/// How long a resync of small members may take on a busy machine.
const RESYNC_MAX: Duration = Duration::from_secs(120);

/// Numbers that look random and are the same for the same seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    /// The bytes of a request inside `size` that begins at `at`: whole stripes, whole pages, whole
    /// sectors, or any bytes.
    fn range_at(&mut self, at: u64, size: u64, stripe: u64) -> Range<u64> {
        let end = match self.below(5) {
            0 | 1 => (at / stripe + 1 + self.below(3)) * stripe,
            2 => (at / 4096 + 1 + self.below(16)) * 4096,
            3 => (at / SECTOR + 1 + self.below(64)) * SECTOR,
            _ => at + 1 + self.below(40_000),
        };
        at..end.min(size).min(at + REQUEST_MAX)
    }

    /// A request anywhere inside the array.
    pub fn range(&mut self, array: &Array) -> Range<u64> {
        let (size, stripe) = (array.size(), stripe_bytes(array));
        let at = self.below(size);
        let at = match self.below(4) {
            0 => at - at % stripe,
            1 => at - at % 4096,
            2 => at - at % SECTOR,
            _ => at,
        };
        self.range_at(at, size, stripe)
    }

    /// The whole array cut into requests, in no order.
    pub fn ranges(&mut self, array: &Array) -> Vec<Range<u64>> {
        let (size, stripe) = (array.size(), stripe_bytes(array));
        let (mut ranges, mut at) = (Vec::new(), 0);
        while at < size {
            let range = self.range_at(at, size, stripe);
            at = range.end;
            ranges.push(range);
        }
        for i in (1..ranges.len()).rev() {
            ranges.swap(i, self.below(i as u64 + 1) as usize);
        }
        ranges
    }
}

/// The data of a stripe, or what is long enough where a stripe is a whole member.
fn stripe_bytes(array: &Array) -> u64 {
    let stripe = array.layout().stripe(StripeNo(0));
    stripe.len.times(stripe.data().count() as u64).bytes().min(REQUEST_MAX)
}

/// Makes the array a row asks for, with `size` used of each member. Members that are `zeroed`
/// need no resync.
pub fn make(row: &Row, members: &[PathBuf], size: Option<Sectors>, zeroed: bool) {
    make_with(row, members, size, zeroed, None);
}

/// The same with a write-intent bitmap, if any is wanted.
pub fn make_with(
    row: &Row,
    members: &[PathBuf],
    size: Option<Sectors>,
    zeroed: bool,
    bitmap: Option<NewBitmap>,
) {
    let devices = open(members);
    let seed = crc32fast::hash(format!("{} {zeroed}", row.name()).as_bytes());
    let id = |number: usize| {
        let mut id = [number as u8; 16];
        id[..4].copy_from_slice(&seed.to_le_bytes());
        id
    };
    let member = |(slot, device): (usize, &device::Shared)| {
        let sectors = device.facts().sectors;
        let device_uuid = id(slot + 1);
        Some(NewMember { sectors, device_uuid, write_mostly: false, failfast: false })
    };
    let request = Request {
        format: meta::format(row.geometry.metadata).unwrap(),
        level: row.number,
        layout: (row.geometry.layout.is_some()).then_some(row.word),
        chunk: row.geometry.chunk_kib.map(Sectors::kib),
        members: devices.iter().enumerate().map(member).collect(),
        name: if row.geometry.metadata == "0.90" { Vec::new() } else { b"ours".to_vec() },
        homehost: None,
        uuid: id(0),
        ctime: 1_700_000_000,
        size,
        data_at: None,
        assume_clean: false,
        zeroed,
        bitmap,
        log: None,
        force: false,
    };
    let planned = create(&request).unwrap_or_else(|e| panic!("{}: {e}", row.name()));
    assembly::make(&planned, &devices).unwrap();
}

/// The members, to be written.
pub fn open(members: &[PathBuf]) -> Vec<device::Shared> {
    members.iter().map(|path| file::open(path, &OpenOptions::default()).unwrap()).collect()
}

/// Decides over members that may be fewer than the slots.
pub fn decide(devices: &[device::Shared]) -> Assembly {
    let candidates: Vec<assemble::Candidate> =
        devices.iter().map(|device| assembly::examine(&**device).unwrap()).collect();
    let options = Options { degraded: true, ..Options::default() };
    assembly::decide(&candidates, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// Starts the array of these members, to be written.
pub fn start(devices: &[device::Shared]) -> Array {
    let decided = decide(devices);
    assert!(!decided.read_only, "{:?}", decided.warnings);
    assembly::start(&decided, devices, &StartOptions::default()).unwrap()
}

/// Waits for the end of a resync.
pub fn settle(array: &Array) {
    let deadline = Instant::now() + RESYNC_MAX;
    while array.status().unsynced {
        assert!(Instant::now() < deadline, "a resync never ended: {:?}", array.status());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Fills an array with [`CONTENT`] in requests of all kinds, over some that are overwritten.
pub fn fill(array: &Array, random: &mut Random) {
    for i in 0..8 {
        let range = random.range(array);
        write(array, range, Pattern::Seeded(i));
    }
    for range in random.ranges(array) {
        write(array, range, CONTENT);
    }
}

/// Writes bytes of a pattern to where they belong.
fn write(array: &Array, range: Range<u64>, pattern: Pattern) {
    let mut data = vec![0; (range.end - range.start) as usize];
    pattern.fill(range.start, &mut data);
    array.write(range.start, &data).unwrap();
}

/// What must be in an array, byte by byte.
#[derive(Clone, Debug)]
pub struct Expected {
    bytes: Vec<u8>,
}

impl Expected {
    /// An array full of `pattern`.
    pub fn of(pattern: Pattern, array: &Array) -> Expected {
        Expected { bytes: pattern.bytes(array.size() as usize) }
    }

    /// An array of zeroes.
    pub fn zeroes(array: &Array) -> Expected {
        Expected { bytes: vec![0; array.size() as usize] }
    }

    /// Writes `count` requests of all kinds to the array and to the copy.
    pub fn write(&mut self, array: &Array, count: u64, random: &mut Random) {
        for _ in 0..count {
            let range = random.range(array);
            let data = self.next(&range, random);
            array.write(range.start, &data).unwrap();
            self.put(range, &data);
        }
    }

    /// New bytes for a request.
    pub fn next(&self, range: &Range<u64>, random: &mut Random) -> Vec<u8> {
        let mut data = vec![0; (range.end - range.start) as usize];
        Pattern::Seeded(random.below(u64::MAX)).fill(range.start, &mut data);
        data
    }

    /// Puts what was written into the copy.
    pub fn put(&mut self, range: Range<u64>, data: &[u8]) {
        self.bytes[range.start as usize..range.end as usize].copy_from_slice(data);
    }

    /// Asserts that the array gives these bytes.
    pub fn check(&self, array: &Array) {
        let mut found = vec![0; self.bytes.len()];
        array.read(0, &mut found).unwrap();
        assert_eq!(first_difference(&found, &self.bytes), None, "the array differs from its copy");
    }

    /// The copy as a file, for the guest to compare with.
    pub fn save(&self, path: &Path) -> PathBuf {
        fs::write(path, &self.bytes).unwrap();
        path.to_path_buf()
    }

    /// Asserts that `found` holds these bytes, except in sectors of `open`, requests that were
    /// never answered: each sector of those may hold its old or its new bytes.
    pub fn check_torn(&self, name: &str, found: &[u8], open: &[(Range<u64>, Vec<u8>)]) {
        assert_eq!(found.len(), self.bytes.len(), "{name}: the size");
        let mut new = self.clone();
        for (range, data) in open {
            new.put(range.clone(), data);
        }
        let sector = SECTOR as usize;
        let chunks = found.chunks(sector).zip(self.bytes.chunks(sector));
        for (i, ((found, old), new)) in chunks.zip(new.bytes.chunks(sector)).enumerate() {
            assert!(found == old || found == new, "{name}: sector {i} is neither old nor new");
        }
    }
}

/// The paths of the members but those in `without`, with their places in the array.
pub fn slots_without(members: &[PathBuf], without: &[usize]) -> Vec<Option<PathBuf>> {
    let member = |(slot, path): (usize, &PathBuf)| (!without.contains(&slot)).then(|| path.clone());
    members.iter().enumerate().map(member).collect()
}

/// The slots of an array that have no good member, as numbers.
pub fn missing(decided: &Assembly) -> Vec<usize> {
    decided.missing.iter().map(Slot::index).collect()
}
