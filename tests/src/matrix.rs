//! One array of every level and layout the kernel can make: what our code must read.
//!
//! The rows walk through chunks, metadata versions and numbers of members, so that every value of
//! each occurs with every level; they do not multiply, to keep the whole table under minutes.

use crate::images::{self, Images, MIB};
use crate::md::{self, Geometry, Job};
use crate::pattern::Pattern;
use std::path::{Path, PathBuf};

/// Chunks in KiB, dealt out in turn. Eight of them and three metadata versions: all pairs occur.
const CHUNKS_KIB: [u64; 8] = [4, 64, 512, 16, 128, 8, 256, 32];

/// Metadata versions, dealt out in turn.
const METADATA: [&str; 3] = ["1.2", "1.1", "1.0"];

/// What the arrays are filled with.
pub const CONTENT: Pattern = Pattern::Seeded(0x6d64);

/// mdadm's names and words of the RAID 5 layouts.
const RAID5: [(&str, u32); 6] = [
    ("left-asymmetric", 0),
    ("right-asymmetric", 1),
    ("left-symmetric", 2),
    ("right-symmetric", 3),
    ("parity-first", 4),
    ("parity-last", 5),
];

/// The RAID 6 layouts that RAID 5 does not have.
const RAID6: [(&str, u32); 8] = [
    ("ddf-zero-restart", 8),
    ("ddf-N-restart", 9),
    ("ddf-N-continue", 10),
    ("left-asymmetric-6", 16),
    ("right-asymmetric-6", 17),
    ("left-symmetric-6", 18),
    ("right-symmetric-6", 19),
    ("parity-first-6", 20),
];

/// RAID 10 layouts and the numbers of members to try, even and odd.
const RAID10: [(&str, u32, &[usize]); 7] = [
    ("n2", 0x102, &[2, 3, 4, 5, 8]),
    ("n3", 0x103, &[3, 4, 5, 7]),
    ("n4", 0x104, &[6]),
    ("f2", 0x201, &[2, 3, 4, 5, 8]),
    ("f3", 0x301, &[3, 5]),
    ("o2", 0x10201, &[2, 3, 4, 5, 7]),
    ("o3", 0x10301, &[4, 5]),
];

/// An array to be made.
#[derive(Clone, Debug)]
pub struct Row {
    /// What mdadm is told.
    pub geometry: Geometry,
    /// md's number of the level.
    pub number: i32,
    /// md's layout word; zero where the superblock does not say.
    pub word: u32,
    /// Bytes of each member, by slot.
    pub sizes: Vec<u64>,
}

impl Row {
    /// A name for messages: `raid5 left-symmetric 64K x3 1.2`.
    pub fn name(&self) -> String {
        let Geometry { level, layout, chunk_kib, metadata } = self.geometry;
        let layout = layout.map(|layout| format!(" {layout}")).unwrap_or_default();
        let chunk = chunk_kib.map(|kib| format!(" {kib}K")).unwrap_or_default();
        format!("level {level}{layout}{chunk} x{} {metadata}", self.sizes.len())
    }
}

/// Deals out chunks and metadata versions to rows.
#[derive(Default)]
struct Deal {
    rows: Vec<Row>,
}

impl Deal {
    fn add(&mut self, number: i32, layout: Option<&'static str>, word: u32, members: usize) {
        let chunk_kib = CHUNKS_KIB[self.rows.len() % CHUNKS_KIB.len()];
        // Big chunks need bigger members, so that roles go around all slots at least once.
        let size = if chunk_kib > 128 { 12 * MIB } else { 8 * MIB };
        self.add_sized(number, layout, word, vec![size; members]);
    }

    fn add_sized(&mut self, number: i32, layout: Option<&'static str>, word: u32, sizes: Vec<u64>) {
        let turn = self.rows.len();
        let level = match number {
            -1 => "linear",
            0 => "0",
            1 => "1",
            4 => "4",
            5 => "5",
            6 => "6",
            _ => "10",
        };
        let chunk_kib = (number != 1).then(|| CHUNKS_KIB[turn % CHUNKS_KIB.len()]);
        let metadata = METADATA[turn % METADATA.len()];
        let geometry = Geometry { level, layout, chunk_kib, metadata };
        self.rows.push(Row { geometry, number, word, sizes });
    }
}

/// Linear, RAID 0 and RAID 1, members of equal and of different sizes.
pub fn plain() -> Vec<Row> {
    let mut deal = Deal::default();
    for members in [2, 3, 5] {
        deal.add(-1, None, 0, members);
        deal.add(1, None, 0, members);
    }
    deal.add_sized(-1, None, 0, vec![8 * MIB, 12 * MIB, 5 * MIB + 40960]);
    for members in [2, 3, 4, 7, 8] {
        // Members of one size have one zone: mdadm does not say (feature bit) which order it is.
        deal.add(0, None, 0, members);
    }
    let unequal = [
        vec![5 * MIB, 12 * MIB, 8 * MIB],
        vec![12 * MIB, 12 * MIB, 6 * MIB, 8 * MIB, 6 * MIB + 20480],
    ];
    for (layout, word) in [("original", 1), ("alternate", 2)] {
        for sizes in &unequal {
            deal.add_sized(0, Some(layout), word, sizes.clone());
        }
    }
    deal.rows
}

/// RAID 4 and RAID 5.
pub fn single_parity() -> Vec<Row> {
    let mut deal = Deal::default();
    for members in [2, 3, 4, 8] {
        deal.add(4, None, 0, members);
    }
    for (layout, word) in RAID5 {
        for members in [3, 4, 5] {
            deal.add(5, Some(layout), word, members);
        }
    }
    for (layout, members) in [(2, 2), (2, 8), (0, 7), (3, 6)] {
        deal.add(5, Some(RAID5[layout].0), RAID5[layout].1, members);
    }
    deal.rows
}

/// RAID 6.
pub fn double_parity() -> Vec<Row> {
    let mut deal = Deal::default();
    for (layout, word) in RAID5.into_iter().chain(RAID6) {
        for members in [4, 5] {
            deal.add(6, Some(layout), word, members);
        }
    }
    for (layout, members) in [(2, 6), (2, 7), (2, 8)] {
        deal.add(6, Some(RAID5[layout].0), RAID5[layout].1, members);
    }
    for (layout, members) in [(1, 7), (2, 8), (5, 6)] {
        deal.add(6, Some(RAID6[layout].0), RAID6[layout].1, members);
    }
    deal.rows
}

/// RAID 10.
pub fn copies() -> Vec<Row> {
    let mut deal = Deal::default();
    for (layout, word, counts) in RAID10 {
        for &members in counts {
            deal.add(10, Some(layout), word, members);
        }
    }
    deal.rows
}

/// An array the kernel made, filled to its last byte with [`CONTENT`], and stopped.
#[derive(Clone, Debug)]
pub struct KernelArray {
    /// What was asked for.
    pub row: Row,
    /// The directory of its members.
    pub dir: PathBuf,
    /// Its members by slot.
    pub members: Vec<PathBuf>,
    /// The kernel's size of the array, in bytes.
    pub size: u64,
}

/// Lets the kernel make and fill an array for every row, below `images`, in one boot.
///
/// Most are made over zeroes without a resync, which leaves their redundancy right; every eighth
/// goes through md's own resync.
pub fn kernel_made(images: &Images, rows: &[Row]) -> Vec<KernelArray> {
    let content = images.path("content");
    let largest = rows.iter().map(|row| row.sizes.iter().sum()).max().unwrap_or(0);
    CONTENT.write_file(&content, largest).expect("a file of the pattern");
    let mut arrays: Vec<KernelArray> =
        rows.iter().enumerate().map(|(i, row)| empty(images, i, row)).collect();
    let jobs: Vec<Job> = arrays.iter().enumerate().map(|(i, a)| job(i, a, &content)).collect();
    for (array, report) in arrays.iter_mut().zip(&md::run(&jobs)) {
        array.size = report.expect_success().number("size");
    }
    arrays
}

/// Empty members for a row.
fn empty(images: &Images, i: usize, row: &Row) -> KernelArray {
    let dir = images.subdir(&format!("array{i}"));
    let member = |(slot, &size)| images::sparse(&dir.join(format!("m{slot}.img")), size);
    let members = row.sizes.iter().enumerate().map(member).collect();
    KernelArray { row: row.clone(), dir, members, size: 0 }
}

fn job(i: usize, array: &KernelArray, content: &Path) -> Job {
    let row = &array.row;
    let job = Job::new(row.name(), &array.members);
    let redundant = row.number > 0;
    let job = match redundant && i % 8 == 7 {
        true => job.create(&row.geometry),
        false if redundant => job.create_zeroed(&row.geometry),
        false => job.create_with(&row.geometry, ""),
    };
    job.write(content).stop()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_chunk_and_metadata_version_occurs_with_every_family() {
        for rows in [plain(), single_parity(), double_parity(), copies()] {
            let chunks: BTreeSet<_> = rows.iter().filter_map(|r| r.geometry.chunk_kib).collect();
            let metadata: BTreeSet<_> = rows.iter().map(|r| r.geometry.metadata).collect();
            assert_eq!((chunks.len(), metadata.len()), (CHUNKS_KIB.len(), METADATA.len()));
        }
    }
}
