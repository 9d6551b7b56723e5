//! Short histories with the power cut after every single event, for every level and log.
//!
//! A failure tells the moment and the fate of the writes that were not flushed; it replays by
//! itself, since nothing here is random but the seed of the members' pace.

use Step::{Add, Fail, Flush, Quiet, Replace, Stop, Wait, Write};
use raid_core::sim::Story;
use raid_core::sim::exhaustive::{History, Step, Tally, play};
use raid_core::units::Sectors;

/// What an array has beside its members.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    Nothing,
    Bitmap,
    Ppl,
    Journal,
}

/// Level, layout word, slots.
type Kind = (i32, u32, u16);

fn array(kind: Kind, beside: Beside, seed: u64) -> Story {
    let (level, layout, slots) = kind;
    let is_large = level == 1 || beside == Beside::Bitmap;
    // mdadm's bitmap needs members of some size.
    let chunk = Sectors(if is_large { 32 } else { 8 });
    Story {
        seed,
        level,
        layout,
        slots,
        chunk,
        height: chunk.times(4),
        ops: 0,
        events: 0,
        life: false,
        bitmap: beside == Beside::Bitmap,
        ppl: beside == Beside::Ppl,
        journal: beside == Beside::Journal,
    }
}

/// Writes of parts and wholes of stripes that overlap in time, with and without a flush.
const WRITES: &[Step] = &[
    Write(0, 3),
    Write(14, 6),
    Flush,
    Wait,
    Write(1, 2),
    Write(16, 24),
    Wait,
    Flush,
    Write(2, 1),
    Wait,
    Quiet,
    Write(7, 2),
    Flush,
    Wait,
    Stop,
];

/// A member fails between writes, a new one is filled meanwhile.
const FAILURE: &[Step] = &[
    Write(0, 4),
    Flush,
    Fail(1),
    Write(2, 9),
    Wait,
    Flush,
    Quiet,
    Add,
    Write(9, 3),
    Wait,
    Write(30, 2),
    Flush,
    Quiet,
    Stop,
];

/// A member is replaced while it serves.
const REPLACEMENT: &[Step] =
    &[Write(0, 4), Add, Wait, Replace(0), Write(3, 8), Flush, Wait, Write(24, 3), Quiet, Stop];

/// For arrays with a log, which are tried without each of their members, too: few writes, so that
/// all of it takes seconds.
const LOGGED: &[Step] = &[Write(0, 3), Write(14, 6), Flush, Wait, Write(2, 9), Wait, Quiet, Stop];

/// The same with a member that fails in the middle.
const LOGGED_FAILURE: &[Step] =
    &[Write(0, 4), Flush, Wait, Fail(1), Write(2, 9), Wait, Flush, Wait, Add, Wait, Quiet, Stop];

fn run(kinds: &[Kind], beside: Beside, steps: &[&[Step]]) {
    let mut all = Tally::default();
    for &kind in kinds {
        for (number, steps) in steps.iter().enumerate() {
            let array = array(kind, beside, 1 + number as u64);
            let history = History { array, steps: steps.to_vec() };
            let tally =
                play(&history).unwrap_or_else(|e| panic!("{kind:?} {beside:?}: {e}\n{history:?}"));
            assert!(tally.moments > steps.len() as u64, "{kind:?}: {tally:?}");
            all.moments += tally.moments;
            all.restarts += tally.restarts;
            all.refused += tally.refused;
            all.degraded += tally.degraded;
            all.answered += tally.answered;
        }
    }
    println!("{beside:?}: {all:?}");
    let fails = steps.iter().any(|steps| steps.contains(&Fail(1)));
    assert!(all.degraded > 0 || !fails, "{all:?}");
    // Half of the restarts and more must get through, or nothing was tried.
    assert!(all.refused * 2 < all.restarts, "{all:?}");
}

const ALL: &[&[Step]] = &[WRITES, FAILURE, REPLACEMENT];
const MIRRORS: &[Kind] = &[(1, 0, 2), (1, 0, 3)];
const PARITY: &[Kind] = &[(4, 0, 3), (5, 2, 3), (5, 0, 4), (6, 2, 4)];
const TENS: &[Kind] = &[(10, 0x102, 4), (10, 0x201, 3), (10, 0x10201, 3)];

#[test]
fn mirrors() {
    run(MIRRORS, Beside::Nothing, ALL);
}

#[test]
fn mirrors_with_a_bitmap() {
    run(MIRRORS, Beside::Bitmap, ALL);
}

#[test]
fn parity() {
    run(PARITY, Beside::Nothing, ALL);
}

#[test]
fn parity_with_a_bitmap() {
    run(PARITY, Beside::Bitmap, ALL);
}

#[test]
fn raid_10() {
    run(TENS, Beside::Nothing, ALL);
}

#[test]
fn raid_10_with_a_bitmap() {
    run(TENS, Beside::Bitmap, ALL);
}

#[test]
fn partial_parity_log() {
    run(&[(5, 2, 3)], Beside::Ppl, &[LOGGED, LOGGED_FAILURE]);
}

#[test]
fn write_journal() {
    run(&[(5, 2, 3), (6, 2, 4)], Beside::Journal, &[LOGGED, LOGGED_FAILURE]);
}

#[test]
fn striping() {
    run(&[(0, 2, 2), (-1, 0, 2)], Beside::Nothing, &[WRITES]);
}
