//! Hostile input by the thousand, for a bounded time: what no case of it may do is panic,
//! overflow, hang or take memory without measure.
//!
//! A case is a seed: it makes something valid ([`corpus`]), spoils it ([`mutate`]) and hands it to
//! the code under test, so a failure replays exactly with `RAID_FUZZ_SEED=N RAID_FUZZ_SECONDS=0`.
//! Each target takes `RAID_FUZZ_SECONDS` (default 2), from seed 1, or with `RAID_FUZZ_SEED=fresh`
//! from one nobody has played yet. Seeds that found something always run first.

pub mod corpus;
pub mod disk;
pub mod meter;
pub mod mutate;

use raid_core::sim::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A case that takes longer hangs, also on a busy machine.
const CASE_TIME_MAX: Duration = Duration::from_secs(30);

/// Memory of one case: far above what a case needs, far below what hurts.
pub const MEMORY_MAX: u64 = 256 << 20;

/// Plays cases of `target` until its time is up; `found` are the seeds that found something.
///
/// # Panics
/// A case panics, hangs, or takes more memory than [`MEMORY_MAX`]; its seed is told.
pub fn run(target: &'static str, found: &[u64], mut case: impl FnMut(&mut Rng)) {
    let seconds = number("RAID_FUZZ_SECONDS").unwrap_or(2);
    let first = match std::env::var("RAID_FUZZ_SEED").is_ok_and(|seed| seed == "fresh") {
        true => SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_nanos() as u64,
        false => number("RAID_FUZZ_SEED").unwrap_or(1),
    };
    println!("{target}: RAID_FUZZ_SEED={first}");
    let at = Arc::new(AtomicU64::new(first));
    let (alive, over) = channel();
    let watched = at.clone();
    let watcher = std::thread::spawn(move || {
        loop {
            match over.recv_timeout(CASE_TIME_MAX) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("{target}: RAID_FUZZ_SEED={} hangs", watched.load(Ordering::Relaxed));
                    std::process::abort();
                }
            }
        }
    });
    let (begin, mut cases) = (Instant::now(), 0u64);
    let mut play = |seed| {
        at.store(seed, Ordering::Relaxed);
        one(target, seed, &mut case);
        alive.send(()).expect("the watcher waits");
        cases += 1;
    };
    found.iter().for_each(|&seed| play(seed));
    play(first);
    while begin.elapsed() < Duration::from_secs(seconds) {
        play(at.load(Ordering::Relaxed).wrapping_add(1));
    }
    drop(alive);
    watcher.join().expect("the watcher only waits");
    println!("{target}: {cases} cases");
}

fn one(target: &str, seed: u64, case: &mut impl FnMut(&mut Rng)) {
    let before = meter::begin();
    let outcome = catch_unwind(AssertUnwindSafe(|| case(&mut Rng::new(seed))));
    let peak = meter::peak(before);
    if let Err(panic) = outcome {
        eprintln!("{target}: RAID_FUZZ_SEED={seed} panics");
        resume_unwind(panic);
    }
    assert!(peak <= MEMORY_MAX, "{target}: RAID_FUZZ_SEED={seed} takes {peak} bytes of memory");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
