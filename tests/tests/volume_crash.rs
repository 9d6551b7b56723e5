//! kill -9 of the daemon, over and over: what was acknowledged as durable is there afterwards, and
//! the resync makes all redundancy right again.

use raid_core::sim::Rng;
use raid_tests::blocks;
use raid_tests::guards::{Loop, Mount};
use raid_tests::images::{MIB, flip};
use raid_tests::mount::fine;
use raid_tests::pattern::Pattern;
use raid_tests::redundancy::assert_consistent;
use raid_tests::requires::{self, Need};
use raid_tests::served::{ImageArray, Served};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

/// Crashes of each array.
const ROUNDS: u64 = 6;

/// Threads that write at the same time.
const WRITERS: u64 = 4;

/// The daemon dies so long after the writers have started, at random.
const LIFE_MS: std::ops::Range<u64> = 20..700;

/// What is created, and of how many members.
const ARRAYS: &[(&str, usize)] = &[("-l 5 -c 64", 4), ("-l 6 -c 64", 6), ("-l 10 -c 64", 4)];

fn life(rng: &mut Rng) -> Duration {
    Duration::from_millis(LIFE_MS.start + rng.below(LIFE_MS.end - LIFE_MS.start))
}

/// A file that was written and whose fsync returned.
struct Durable {
    name: String,
    seed: u64,
    size: usize,
}

/// Writes files with fsync until one fails; keeps the account of those that did not.
fn write_files(dir: &Path, seed: u64, durable: &Mutex<Vec<Durable>>) {
    let mut rng = Rng::new(seed);
    for number in 0.. {
        let name = format!("file-{seed:x}-{number}");
        let (seed, size) = (rng.number(), rng.below(64 << 10) as usize);
        let content = Pattern::Seeded(seed).bytes(size);
        let write = || -> io::Result<()> {
            let mut file = File::create_new(dir.join(&name))?;
            file.write_all(&content)?;
            file.sync_all()
        };
        if write().is_err() {
            return;
        }
        durable.lock().unwrap().push(Durable { name, seed, size });
    }
}

fn check_files(dir: &Path, durable: &[Durable]) {
    for Durable { name, seed, size } in durable {
        let found = fs::read(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(found == Pattern::Seeded(*seed).bytes(*size), "{name} has its content");
    }
}

/// ext4 on a loop device on the volume; dropped before the array is.
struct Ext4 {
    mount: Mount,
    _device: Loop,
}

impl Ext4 {
    fn mount(served: &Served, at: &Path) -> Ext4 {
        let device = Loop::with_options(&served.volume(), &["--direct-io=on"]);
        let mount = Mount::new(device.device(), at, &["-t", "ext4"]);
        Ext4 { mount, _device: device }
    }
}

fn crash_under_ext4(create: &str, members: usize, rng: &mut Rng) {
    let array = ImageArray::create(create, members, 96 * MIB);
    let at = array.images().subdir("files");
    let durable = Mutex::new(Vec::new());
    let mut resyncs = 0;
    let mut served = array.mount();
    fine(&format!("mkfs.ext4 -q -F {}", served.volume().display()));
    for round in 0..ROUNDS {
        let files = Ext4::mount(&served, &at);
        check_files(&at, &durable.lock().unwrap());
        let (seed, life) = (rng.number(), life(rng));
        let daemon = served;
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (at, durable) = (&at, &durable);
                scope.spawn(move || write_files(at, seed + writer, durable));
            }
            thread::sleep(life);
            daemon.kill();
        });
        eprintln!(
            "{create}, round {round}: {} files after {life:?}",
            durable.lock().unwrap().len()
        );
        drop(files);
        served = array.mount();
        resyncs += !served.status()["resync"].is_null() as u64;
        // In the other rounds the file system is mounted and checked while the resync runs.
        if round % 2 == 0 {
            served.wait_in_sync();
        }
    }
    let files = Ext4::mount(&served, &at);
    check_files(&at, &durable.lock().unwrap());
    assert!(!durable.lock().unwrap().is_empty(), "something was written");
    assert!(resyncs > 0, "some crash left a dirty array");
    files.mount.unmount();
    drop(files._device);
    fine(&format!("e2fsck -f -n {}", served.volume().display()));
    served.wait_in_sync();
    served.unmount();
    assert_consistent(array.members());
}

#[test]
fn every_fsynced_file_survives_kill_9() {
    if !requires::met(&[Need::Fuse, Need::Loop, Need::Ext4]) {
        return;
    }
    let mut rng = Rng::new(blocks::seed());
    ARRAYS.iter().for_each(|(create, members)| crash_under_ext4(create, *members, &mut rng));
}

fn crash_under_blocks(create: &str, members: usize, rng: &mut Rng) {
    let array = ImageArray::create(create, members, 16 * MIB);
    let mut served = array.mount();
    let size = fs::metadata(served.volume()).unwrap().len();
    let blocks = blocks::new(size);
    for round in 0..ROUNDS {
        let (seed, life) = (rng.number(), life(rng));
        let (volume, daemon) = (served.volume(), served);
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (volume, blocks) = (&volume, &blocks);
                let share = (writer, WRITERS);
                scope.spawn(move || blocks::write(volume, blocks, share, seed + writer));
            }
            thread::sleep(life);
            daemon.kill();
        });
        let writes = blocks::written(&blocks);
        eprintln!("{create}, round {round}: {writes} writes after {life:?}");
        let again = array.mount();
        blocks::check(&again.volume(), &blocks);
        again.wait_in_sync();
        again.unmount();
        assert_consistent(array.members());
        served = array.mount();
    }
    blocks::check(&served.volume(), &blocks);
    served.unmount();
}

#[test]
fn every_synced_block_survives_kill_9_and_the_redundancy_is_made_right() {
    if !requires::met(&[Need::Fuse]) {
        return;
    }
    let mut rng = Rng::new(blocks::seed());
    ARRAYS.iter().for_each(|(create, members)| crash_under_blocks(create, *members, &mut rng));
}

#[test]
fn the_check_of_redundancy_finds_one_wrong_byte_in_any_member() {
    // Data begin at 1 MiB: the first stripe has a unit of every role.
    for (create, members) in [("-l 1", 2), ("-l 5 -c 64", 3), ("-l 6 -c 64", 4)] {
        let array = ImageArray::create(create, members, 4 * MIB);
        assert_consistent(array.members());
        for member in array.members() {
            flip(member, MIB + 4321, 1);
            let wrong = std::panic::catch_unwind(|| assert_consistent(array.members()));
            assert!(wrong.is_err(), "{create}, {}", member.display());
            flip(member, MIB + 4321, 1);
        }
    }
}
