//! kill -9 of the daemon two hundred times, under load: the same command mounts again each time,
//! what was acknowledged is there, clean means consistent, and what is not lies in marked regions.

use raid_core::sim::Rng;
use raid_tests::blocks::{self, Block};
use raid_tests::guards::wait_until;
use raid_tests::images::MIB;
use raid_tests::redundancy;
use raid_tests::requires::{self, Need};
use raid_tests::served::{ImageArray, Served};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Kills of each array.
const KILLS: u64 = 50;

/// Every so many kills the resync is watched to its end.
const WATCHED: u64 = 5;

/// Threads that write at the same time.
const WRITERS: u64 = 2;

/// The daemon dies so long after the writers have started, at random. The array is marked clean
/// after 200 ms without a write.
const LIFE_MS: std::ops::Range<u64> = 5..150;

/// What is created, and of how many members.
const ARRAYS: [(&str, usize); 4] = [
    ("-l 1 -b internal --bitmap-chunk 64K", 2),
    ("-l 5 -c 64 -b internal --bitmap-chunk 64K", 4),
    ("-l 6 -c 64 -b internal --bitmap-chunk 64K", 5),
    ("-l 10 -c 64 -b internal --bitmap-chunk 64K", 4),
];

/// What all the kills of an array came to.
#[derive(Default, Debug)]
struct Seen {
    clean: u64,
    dirty: u64,
    /// Dirty with redundancy that was really wrong somewhere.
    wrong: u64,
}

/// Writes until the daemon is killed. Sometimes it is left in peace first until it is clean.
fn kill_under_load(
    (served, members): (Served, &[PathBuf]),
    blocks: &[Block],
    peace: bool,
    rng: &mut Rng,
) {
    let life = LIFE_MS.start + rng.below(LIFE_MS.end - LIFE_MS.start);
    let (seed, volume) = (rng.number(), served.volume());
    if peace {
        served.wait_in_sync();
        let clean = wait_until(|| !redundancy::is_dirty(members));
        assert!(clean, "idle arrays become clean: {}", served.status());
        return served.kill();
    }
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (volume, share) = (&volume, (writer, WRITERS));
            scope.spawn(move || blocks::write(volume, blocks, share, seed + writer));
        }
        thread::sleep(Duration::from_millis(life));
        served.kill();
    });
}

/// What the members look like when the daemon is dead; the stripes that are wrong or marked.
fn look(name: &str, members: &[PathBuf], peace: bool, seen: &mut Seen) -> Vec<u64> {
    let (wrong, marked) = (redundancy::wrong_stripes(members), redundancy::marked_stripes(members));
    match redundancy::is_dirty(members) {
        true => seen.dirty += 1,
        false => {
            assert!(wrong.is_empty(), "{name}: clean, but stripes {wrong:?} are wrong");
            seen.clean += 1;
        }
    }
    assert!(!(peace && redundancy::is_dirty(members)), "{name}: nobody wrote, but it is dirty");
    seen.wrong += u64::from(!wrong.is_empty());
    let unmarked: Vec<&u64> = wrong.iter().filter(|no| !marked.contains(no)).collect();
    assert!(unmarked.is_empty(), "{name}: stripes {unmarked:?} are wrong and not marked");
    [wrong, marked].concat()
}

/// The resync makes all right but a stripe that is wrong and not marked: nobody looks at it.
fn watch_resync(array: &ImageArray, name: &str, blocks: &[Block], known: &[u64]) {
    let members = array.members();
    let spoilt = (0..redundancy::count(members)).rev().find(|no| !known.contains(no));
    let spoilt: Vec<u64> = spoilt.into_iter().collect();
    redundancy::spoil(members, spoilt.iter().copied());
    let served = array.mount();
    served.wait_in_sync();
    served.unmount();
    assert_eq!(redundancy::wrong_stripes(members), spoilt, "{name}: after the resync");
    assert!(!redundancy::is_dirty(members), "{name}: after the resync");
    redundancy::spoil(members, spoilt);
    let served = array.mount();
    blocks::check(&served.volume(), blocks);
    served.unmount();
    redundancy::assert_consistent(members);
}

fn kill_over_and_over(create: &str, count: usize, seed: u64) {
    let (mut rng, mut seen) = (Rng::new(seed), Seen::default());
    let array = ImageArray::create(create, count, 5 * MIB);
    let mut served = array.mount();
    let blocks = blocks::new(fs::metadata(served.volume()).unwrap().len());
    for kill in 1..=KILLS {
        let (name, peace) = (format!("{create}, kill {kill}"), kill % 10 == 3);
        kill_under_load((served, array.members()), &blocks, peace, &mut rng);
        let known = look(&name, array.members(), peace, &mut seen);
        if kill % WATCHED == 0 {
            watch_resync(&array, &name, &blocks, &known);
        }
        served = array.mount();
        if !peace {
            blocks::check(&served.volume(), &blocks);
        }
    }
    served.wait_in_sync();
    served.unmount();
    redundancy::assert_consistent(array.members());
    eprintln!("{create}: {seen:?}, {} writes acknowledged", blocks::written(&blocks));
    assert!(seen.clean > 0, "{create}: {seen:?}");
    assert!(seen.dirty > seen.clean, "{create}: {seen:?}");
    assert!(blocks::written(&blocks) > KILLS, "{create}: something was written");
}

#[test]
fn two_hundred_kills_under_load_lose_nothing_that_was_acknowledged() {
    if !requires::met(&[Need::Fuse]) {
        return;
    }
    let seed = blocks::seed();
    thread::scope(|scope| {
        for (i, (create, count)) in (0..).zip(ARRAYS) {
            scope.spawn(move || kill_over_and_over(create, count, seed + i));
        }
    });
}
