//! Numbered blocks of a volume, written with fdatasync until the server dies, and the account of
//! what was acknowledged.

use crate::pattern::Pattern;
use raid_core::sim::Rng;
use std::env;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a numbered block.
pub const BLOCK: u64 = 4096;

/// Sectors of members and lines of logs are of this size: what is in flight may be half written.
const SECTOR: usize = 512;

/// What is known of one block.
#[derive(Debug, Default)]
pub struct Block {
    /// The last version whose fdatasync returned; 0: never written.
    durable: AtomicU64,
    /// The last version a write was begun of.
    begun: AtomicU64,
}

/// Content of version `version` of block `number`: zeroes before the first.
fn content(number: u64, version: u64) -> Vec<u8> {
    match version {
        0 => vec![0; BLOCK as usize],
        _ => Pattern::Seeded(version << 32 | number).bytes(BLOCK as usize),
    }
}

/// The blocks of a volume of `size` bytes, none of them written yet.
pub fn new(size: u64) -> Vec<Block> {
    (0..size / BLOCK).map(|_| Block::default()).collect()
}

/// The seed of this run: another one each time, or that of `RAID_SEED`.
pub fn seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let given = env::var("RAID_SEED").ok().map(|text| text.parse().expect("RAID_SEED is a number"));
    let seed = given.unwrap_or(now.as_nanos() as u64);
    eprintln!("RAID_SEED={seed}");
    seed
}

/// Writes that were acknowledged so far.
pub fn written(blocks: &[Block]) -> u64 {
    blocks.iter().map(|block| block.durable.load(Ordering::SeqCst)).sum()
}

/// Writes blocks at random places until a write fails: of so many writers, this one its own.
pub fn write(volume: &Path, blocks: &[Block], (writer, writers): (u64, u64), seed: u64) {
    let mut rng = Rng::new(seed);
    // Opening fails if the daemon dies that early.
    let Ok(file) = OpenOptions::new().write(true).open(volume) else { return };
    loop {
        let number = rng.below(blocks.len() as u64 / writers) * writers + writer;
        let block = &blocks[number as usize];
        let version = block.begun.load(Ordering::SeqCst) + 1;
        block.begun.store(version, Ordering::SeqCst);
        let written = file.write_all_at(&content(number, version), number * BLOCK);
        if written.and_then(|()| file.sync_data()).is_err() {
            return;
        }
        block.durable.store(version, Ordering::SeqCst);
    }
}

/// Every block is what was acknowledged last, or in each sector that or what was in flight; that
/// is then written anew, so that every block is one version again.
pub fn check(volume: &Path, blocks: &[Block]) {
    let file = OpenOptions::new().read(true).write(true).open(volume).unwrap();
    let mut found = vec![0; BLOCK as usize];
    for (number, block) in (0..).zip(blocks) {
        file.read_exact_at(&mut found, number * BLOCK).unwrap();
        let durable = block.durable.load(Ordering::SeqCst);
        let begun = block.begun.load(Ordering::SeqCst);
        let (old, new) = (content(number, durable), content(number, begun));
        let sectors = found.chunks(SECTOR).zip(old.chunks(SECTOR).zip(new.chunks(SECTOR)));
        for (i, (found, (old, new))) in sectors.enumerate() {
            let good = found == old || found == new;
            assert!(good, "block {number}, sector {i}: neither version {durable} nor {begun}");
        }
        if begun != durable {
            file.write_all_at(&new, number * BLOCK).unwrap();
            block.durable.store(begun, Ordering::SeqCst);
        }
    }
    file.sync_data().unwrap();
}
