//! Eight threads on one array in memory. Their parts lie between each other, so that they share
//! stripes, 4 KiB blocks and even sectors, but no byte: each knows what its bytes must be.
//!
//! `RAID_SEED=N` repeats the choices of a run, not the order in which its threads ran.

use raid_core::assembly::{self, StartOptions};
use raid_core::device::fault::FaultDevice;
use raid_core::device::mem::MemDevice;
use raid_core::device::{self, write_at};
use raid_core::driver::{self, Array};
use raid_core::layout::surviving_sets;
use raid_core::meta::assemble;
use raid_core::meta::create::{NewMember, Request, create};
use raid_core::meta::md1;
use raid_core::sim::Rng;
use raid_core::units::{Sectors, Slot, SlotSet};
use raid_tests::guards::wait_until;
use raid_tests::pattern::first_difference;
use std::env;
use std::ops::Range;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 8;

/// How long each story is.
const LENGTH: Duration = Duration::from_millis(500);

/// Longest part of a thread, in bytes; the shortest is a sector.
const PART_MAX: u64 = 64 << 10;

/// Where data begin on the members.
const DATA_AT: Sectors = Sectors(2048);

/// Sectors of data on each member.
const DATA: Sectors = Sectors::kib(768);

/// Operations of a member before it vanishes, if it is one of those.
const BEFORE_VANISHING: u64 = 2000;

struct Story {
    level: i32,
    slots: u16,
    chunk_kib: u64,
    /// Members that are not there from the beginning.
    missing: &'static [u16],
    /// Members that vanish in the middle.
    vanishing: &'static [u16],
    /// The members begin with noise: a resync runs at the same time.
    resync: bool,
}

const WHOLE: Story =
    Story { level: 5, slots: 4, chunk_kib: 64, missing: &[], vanishing: &[], resync: false };

fn mem(story: &Story, slot: u16, rng: &mut Rng) -> device::Shared {
    let sectors = DATA_AT + DATA;
    let device = MemDevice::new(format!("mem{slot}"), sectors).unwrap();
    if story.resync {
        let noise: Vec<u8> = (0..DATA.len() / 8).flat_map(|_| rng.number().to_le_bytes()).collect();
        write_at(&device, DATA_AT, &noise).unwrap();
    }
    Arc::new(device)
}

/// New members by slot, with their superblocks.
fn make(story: &Story, rng: &mut Rng) -> Vec<device::Shared> {
    let devices: Vec<_> = (0..story.slots).map(|slot| mem(story, slot, rng)).collect();
    let member = |slot: u16| NewMember {
        sectors: DATA_AT + DATA,
        device_uuid: [slot as u8 + 1; 16],
        write_mostly: false,
        failfast: false,
    };
    let request = Request {
        format: &md1::V1_2,
        level: story.level,
        layout: None,
        chunk: (story.level != 1).then_some(Sectors::kib(story.chunk_kib)),
        members: (0..story.slots).map(|slot| Some(member(slot))).collect(),
        name: b"concurrent".to_vec(),
        homehost: None,
        uuid: [9; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: Some(DATA_AT),
        assume_clean: false,
        zeroed: !story.resync,
        bitmap: None,
        log: None,
        force: false,
    };
    assembly::make(&create(&request).unwrap(), &devices).unwrap();
    devices
}

/// The array of the devices that are not `missing`.
fn start(devices: &[device::Shared], missing: &SlotSet, read_only: bool, direct: bool) -> Array {
    let there = |(slot, _): &(usize, _)| !missing.contains(Slot(*slot as u16));
    let devices: Vec<device::Shared> =
        devices.iter().enumerate().filter(there).map(|(_, device)| device.clone()).collect();
    let candidates: Vec<_> = devices.iter().map(|d| assembly::examine(&**d).unwrap()).collect();
    let options = assemble::Options { degraded: true, read_only, ..Default::default() };
    let decided = assembly::decide(&candidates, &options).unwrap();
    assert_eq!(&decided.missing, missing);
    let driver = driver::Options { no_direct: !direct };
    let options = StartOptions { read_only, driver, ..Default::default() };
    assembly::start(&decided, &devices, &options).unwrap()
}

fn slots(numbers: &[u16]) -> SlotSet {
    numbers.iter().map(|slot| Slot(*slot)).collect()
}

/// The parts of each thread: ranges of bytes cut anywhere, dealt out one after the other.
fn deal(size: u64, rng: &mut Rng) -> Vec<Vec<Range<u64>>> {
    let mut parts = vec![Vec::new(); THREADS];
    let (mut at, mut turn) = (0, 0);
    while at < size {
        // Short ones are as frequent as long ones, so that many threads meet in one block.
        let longest = *rng.pick(&[600, 1500, 5000, PART_MAX]);
        let end = (at + 512 + rng.below(longest - 511)).min(size);
        parts[turn % THREADS].push(at..end);
        (at, turn) = (end, turn + 1);
    }
    parts
}

/// A range inside of `part`: all of it, whole sectors of it, or any bytes.
fn choose(part: &Range<u64>, rng: &mut Rng) -> Range<u64> {
    let from = part.start + rng.below(part.end - part.start);
    let any = from..from + 1 + rng.below(part.end - from);
    match rng.below(3) {
        0 => part.clone(),
        1 => {
            let whole = any.start.next_multiple_of(512)..any.end / 512 * 512;
            if whole.is_empty() { any } else { whole }
        }
        _ => any,
    }
}

fn check(found: &[u8], expected: &[u8], at: u64, when: &str) {
    if let Some(i) = first_difference(found, expected) {
        let (f, e) = (found[i], expected[i]);
        panic!("{when}: byte {} is {f:#04x}, not {e:#04x}", at + i as u64);
    }
}

/// Writes and reads at random in the parts of one thread; what they hold in the end.
fn use_parts(array: &Array, parts: &[Range<u64>], mut rng: Rng) -> Vec<Vec<u8>> {
    let len = |range: &Range<u64>| (range.end - range.start) as usize;
    let load = |part: &Range<u64>| {
        // What a member with noise holds is not known, but must not change by itself.
        let mut bytes = vec![0; len(part)];
        array.read(part.start, &mut bytes).unwrap();
        bytes
    };
    let mut shadows: Vec<Vec<u8>> = parts.iter().map(load).collect();
    let end = Instant::now() + LENGTH;
    while Instant::now() < end {
        let which = rng.below(parts.len() as u64) as usize;
        let range = choose(&parts[which], &mut rng);
        let skip = (range.start - parts[which].start) as usize;
        let shadow = &mut shadows[which][skip..skip + len(&range)];
        if rng.once_in(3) {
            let mut found = vec![0; len(&range)];
            array.read(range.start, &mut found).unwrap();
            check(&found, shadow, range.start, "read while others write");
        } else {
            let mark = rng.number();
            shadow.iter_mut().enumerate().for_each(|(i, b)| *b = (mark >> (i % 57)) as u8);
            array.write(range.start, shadow).unwrap();
        }
        if rng.once_in(200) {
            array.flush().unwrap();
        }
    }
    shadows
}

fn use_array(array: &Array, rng: &mut Rng) -> Vec<u8> {
    let parts = deal(array.size(), rng);
    let mut content = vec![0; array.size() as usize];
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for parts in &parts {
            let rng = Rng::new(rng.number());
            threads.push((parts, scope.spawn(move || use_parts(array, parts, rng))));
        }
        for (parts, thread) in threads {
            for (part, bytes) in parts.iter().zip(thread.join().unwrap()) {
                content[part.start as usize..part.end as usize].copy_from_slice(&bytes);
            }
        }
    });
    content
}

fn check_whole(array: &Array, content: &[u8], when: &str) {
    let mut found = vec![0; content.len()];
    array.read(0, &mut found).unwrap();
    check(&found, content, 0, when);
}

/// Reads everything back without every set of members that can be missing.
fn check_all_sets(devices: &[device::Shared], gone: &SlotSet, content: &[u8]) {
    let layout = start(devices, gone, true, true).layout().clone();
    let counts = 0..layout.shape().slots;
    let sets = counts.flat_map(|count| surviving_sets(&*layout, count).unwrap());
    let all_gone = |set: &SlotSet| gone.iter().all(|slot| set.contains(slot));
    for (missing, _) in sets.filter(|(set, survives)| *survives && all_gone(set)) {
        let array = start(devices, &missing, true, true);
        check_whole(&array, content, &format!("afterwards without {missing}"));
    }
}

fn run(story: &Story) {
    let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let given = env::var("RAID_SEED").ok().map(|text| text.parse().expect("RAID_SEED is a number"));
    let seed = given.unwrap_or(clock.as_nanos() as u64);
    let Story { level, slots: n, chunk_kib, missing, vanishing, resync } = story;
    eprintln!(
        "RAID {level} of {n}, {chunk_kib}K, without {missing:?}, losing {vanishing:?}, \
         resync {resync}: RAID_SEED={seed}"
    );
    let mut rng = Rng::new(seed);
    let devices = make(story, &mut rng);
    let mut used = devices.clone();
    for slot in *vanishing {
        let plan = format!("vanish after {BEFORE_VANISHING}").parse().unwrap();
        let device = &mut used[*slot as usize];
        *device = Arc::new(FaultDevice::new(device.clone(), plan));
    }
    let array = start(&used, &slots(missing), false, rng.once_in(2));
    let content = use_array(&array, &mut rng);
    array.flush().unwrap();
    check_whole(&array, &content, "at the end");
    let gone = slots(&[*missing, *vanishing].concat());
    assert_eq!(array.status().degraded, gone, "who is gone");
    assert!(wait_until(|| !array.status().unsynced), "the resync ends: {:?}", array.status());
    array.stop().unwrap();
    check_all_sets(&devices, &gone, &content);
}

/// The story with small chunks and with large ones.
fn run_chunks(story: Story) {
    for chunk_kib in [4, 64] {
        run(&Story { chunk_kib, ..story });
    }
}

#[test]
fn raid5_whole() {
    run_chunks(WHOLE);
}

#[test]
fn raid5_without_one() {
    run_chunks(Story { missing: &[1], ..WHOLE });
}

#[test]
fn raid5_losing_one() {
    run_chunks(Story { vanishing: &[2], ..WHOLE });
}

#[test]
fn raid5_in_a_resync() {
    run_chunks(Story { resync: true, ..WHOLE });
}

const WHOLE6: Story = Story { level: 6, slots: 6, ..WHOLE };

#[test]
fn raid6_whole() {
    run_chunks(WHOLE6);
}

#[test]
fn raid6_without_one() {
    run_chunks(Story { missing: &[3], ..WHOLE6 });
}

#[test]
fn raid6_without_two() {
    run_chunks(Story { missing: &[0, 4], ..WHOLE6 });
}

#[test]
fn raid6_losing_two() {
    run_chunks(Story { vanishing: &[1, 2], ..WHOLE6 });
}

#[test]
fn raid6_without_one_losing_another() {
    run_chunks(Story { missing: &[5], vanishing: &[0], ..WHOLE6 });
}

#[test]
fn raid6_in_a_resync() {
    run_chunks(Story { resync: true, ..WHOLE6 });
}

#[test]
fn raid10_whole_losing_one_and_in_a_resync() {
    let whole = Story { level: 10, ..WHOLE };
    run_chunks(Story { ..whole });
    run_chunks(Story { vanishing: &[3], ..whole });
    run_chunks(Story { resync: true, ..whole });
}
