//! Every parser of bytes that a disk can hold, and layouts of any numbers, with input made to break
//! them. What people and programs say is in `fuzz_words.rs`.
//!
//! See [`raid_tests::fuzz`] for how to replay a failure and how long it runs.

use raid_core::assembly::{self, StartOptions};
use raid_core::device::{self, Device, read_at};
use raid_core::layout::{self, Code, LEVELS, Layout, Params, check, explain, lost};
use raid_core::meta::assemble::{Candidate, Options, groups, halves};
use raid_core::meta::md_journal::{self, Ring, Seed};
use raid_core::meta::{
    self, Sighting, bad_blocks, examine, foreign, md_bitmap, md_ppl, partitions,
};
use raid_core::sim::Rng;
use raid_core::units::{Sectors, Slot, SlotSet, StripeNo};
use raid_tests::fuzz::corpus::{self, Members, UUID};
use raid_tests::fuzz::disk::SparseDisk;
use raid_tests::fuzz::meter::Meter;
use raid_tests::fuzz::{mutate, run};
use std::io;
use std::sync::Arc;

#[global_allocator]
static METER: Meter = Meter;

/// A device that is nothing but `bytes` and zeros behind them.
fn window(bytes: &[u8]) -> impl FnMut(Sectors, &mut [u8]) -> io::Result<()> {
    move |at, buf| {
        let from = at.0.saturating_mul(512).min(bytes.len() as u64) as usize;
        let len = buf.len().min(bytes.len() - from);
        buf.fill(0);
        buf[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(())
    }
}

/// The superblock of a disk, if it has one.
fn superblock(disk: &SparseDisk) -> Option<Sighting> {
    let mut read = |at: Sectors, buf: &mut [u8]| read_at(disk, at, buf);
    meta::probe(disk.facts().sectors, &mut read).expect("memory can be read").into_iter().next()
}

/// Spoils superblocks: the same on all members, so that they still agree, or each for itself.
fn spoil_superblocks(rng: &mut Rng, members: &Members) {
    let (seed, together, signed) = (rng.number(), rng.below(3) > 0, rng.below(8) > 0);
    for (index, disk) in members.disks.iter().enumerate() {
        let Some(found) = superblock(disk) else { continue };
        let alone = index as u64 * u64::from(!together);
        let mut own = Rng::new(seed.wrapping_add(alone));
        if !together && own.once_in(2) {
            continue;
        }
        let mut block = disk.bytes(found.at, 4096);
        mutate::bytes(&mut own, &mut block);
        block.resize(4096, 0);
        if signed {
            mutate::sign(&mut block);
        }
        disk.put(found.at, &block);
    }
}

/// Spoils what else is written: logs, bitmaps, bad blocks, with checksums made right.
fn spoil_areas(rng: &mut Rng, members: &Members) {
    for disk in &members.disks {
        let written = disk.written();
        for _ in 0..rng.below(3) {
            let at = *rng.pick(&written);
            let block_at = at.round_down(Sectors(8));
            let mut block = disk.bytes(block_at, 4096);
            if block.get(512..516) == Some(&md_ppl::empty(&UUID, 0)[512..516]) {
                mutate::flip(rng, &mut block[520..700]);
                mutate::sign_ppl(&mut block);
            } else {
                mutate::bytes(rng, &mut block);
                block.resize(4096, 0);
                mutate::sign_journal(&mut block, &UUID);
            }
            disk.put(block_at, &block);
        }
    }
}

#[test]
fn superblocks() {
    run("superblocks", &[], |rng| {
        let members = corpus::array(rng);
        spoil_superblocks(rng, &members);
        if rng.once_in(4) {
            spoil_areas(rng, &members);
        }
        for disk in &members.disks {
            let disk = match rng.once_in(4) {
                true => &disk.resized(Sectors(mutate::number(rng))),
                false => &**disk,
            };
            look(disk);
        }
    });
}

/// Everything that is told about a disk, and back again.
fn look(disk: &SparseDisk) {
    let sectors = disk.facts().sectors;
    let mut read = |at: Sectors, buf: &mut [u8]| read_at(disk, at, buf);
    // A device shorter than it says cannot be read to its end, and that is an error.
    for sighting in meta::probe(sectors, &mut read).unwrap_or_default() {
        let shown = examine::examine(&sighting, sectors);
        assert!(!shown.to_string().is_empty());
        assert!(shown.values().count() > 0);
        let _ = (sighting.identity(), sighting.format.to_string());
        let Ok(found) = &sighting.record else { continue };
        let _ = found.startable();
        if found.writable().is_err() {
            continue;
        }
        let (at, bytes) = (sighting.format.emit)(&found.array, &found.member)
            .unwrap_or_else(|e| panic!("what was read cannot be written: {e}: {found:?}"));
        let again = (sighting.format.parse)(&bytes, at, sectors)
            .unwrap_or_else(|e| panic!("what was written cannot be read: {e}: {found:?}"));
        assert_eq!((again.array, at), (found.array.clone(), sighting.at));
    }
}

#[test]
fn arrays() {
    let (mut all, mut started) = (0u64, 0u64);
    run("arrays", &[], |rng| {
        let members = corpus::array(rng);
        match rng.below(4) {
            0 => spoil_areas(rng, &members),
            1 => {
                spoil_superblocks(rng, &members);
                spoil_areas(rng, &members);
            }
            _ => spoil_superblocks(rng, &members),
        }
        let mut devices: Vec<device::Shared> = Vec::new();
        for disk in &members.disks {
            if !rng.once_in(12) {
                devices.push(disk.clone());
            }
            if rng.once_in(40) {
                devices.push(Arc::new(disk.resized(Sectors(mutate::number(rng)))));
            }
        }
        all += 1;
        started += u64::from(assemble(rng, &devices));
    });
    println!("{started} of {all} arrays were started");
    assert!(all < 100 || started * 10 > all, "most are refused, so little was tried");
}

/// Decides, starts what is accepted, and reads and writes at both ends of it.
fn assemble(rng: &mut Rng, devices: &[device::Shared]) -> bool {
    let looks = devices.iter().map(|device| assembly::examine(&**device));
    let Ok(candidates) = looks.collect::<Result<Vec<Candidate>, _>>() else { return false };
    let _ = (groups(&candidates).len(), halves(&candidates, UUID).is_some());
    let options = Options {
        uuid: rng.once_in(2).then_some(UUID),
        degraded: rng.below(3) > 0,
        read_only: rng.once_in(2),
        overlay: false,
        force: rng.once_in(3),
    };
    let decision = match assembly::decide(&candidates, &options) {
        Ok(decision) => decision,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return false;
        }
    };
    let options = StartOptions { read_only: options.read_only, ..StartOptions::default() };
    let Ok(array) = assembly::start(&decision, devices, &options) else { return false };
    let mut buf = vec![0; 4096.min(array.size()) as usize];
    let last = array.size() - buf.len() as u64;
    for at in [0, last] {
        // A sector of a hostile array may well be bad or lie where no member is.
        let _ = array.read(at, &mut buf);
        if !options.read_only {
            let _ = array.write(at, &buf).and_then(|()| array.flush());
        }
    }
    let _ = array.status().stats.to_text();
    let _ = array.stop();
    true
}

#[test]
fn bitmaps() {
    run("bitmaps", &[], |rng| {
        let mut area = md_bitmap::emit_new(&md_bitmap::Bitmap {
            version: 4,
            uuid: UUID,
            events: rng.below(20),
            events_cleared: 3,
            sync_size: Sectors(rng.below(1 << 20)),
            state: 0,
            chunk_bytes: 4096 << rng.below(12),
            daemon_sleep: 5,
            write_behind: 0,
            sectors_reserved: 8,
            nodes: 0,
        });
        mutate::bytes(rng, &mut area);
        let Ok(bitmap) = md_bitmap::parse(&area, &UUID) else { return };
        assert!(md_bitmap::count_set(&area, &bitmap) <= bitmap.bits());
        let _ = (md_bitmap::all_set(&area, &bitmap), bitmap.writable(), bitmap.area(Sectors(8)));
        let loaded = raid_core::engine::Bitmap::load(area, &UUID, rng.below(20), rng.once_in(2));
        let loaded = loaded.expect("its head was right before");
        assert!(loaded.count_set() <= bitmap.bits());
        assert!(!loaded.region().is_empty());
    });
}

#[test]
fn bad_block_logs() {
    run("bad_block_logs", &[], |rng| {
        let shift = if rng.once_in(4) { rng.number() as u8 } else { rng.below(4) as u8 };
        let runs = corpus::bad_runs(rng, Sectors(2048), Sectors(1 << 40));
        let emitted = bad_blocks::emit(&runs, Sectors(8), rng.below(4) as u8);
        let mut log = emitted.expect("three runs fit");
        mutate::bytes(rng, &mut log);
        let Ok(found) = bad_blocks::parse(&log, shift) else { return };
        assert!(found.windows(2).all(|two| two[0].0.0 + two[0].1.0 < two[1].0.0), "{found:?}");
        if let Ok(again) = bad_blocks::emit(&found, Sectors(1 << 12), shift) {
            assert_eq!(bad_blocks::parse(&again, shift).unwrap(), found);
        }
    });
}

#[test]
fn partial_parity_logs() {
    run("partial_parity_logs", &[], |rng| {
        let (size, chunk) =
            (Sectors(1 + mutate::number(rng) % (1 << 54)), Sectors(8 << rng.below(9)));
        let (mut area, parity) = corpus::ppl(rng, size, chunk, Slot(0));
        area.extend(parity);
        mutate::bytes(rng, &mut area);
        if rng.below(8) > 0 {
            mutate::sign_ppl(&mut area);
        }
        let len = if rng.once_in(3) { mutate::number(rng) } else { 2048 } % 65536;
        let newest = md_ppl::newest(Sectors(len), &UUID, &mut window(&area));
        let Some((at, header)) = newest.expect("memory can be read") else { return };
        assert!(at + header.len() <= Sectors(len));
        for (_, entry) in header.places() {
            let units = rng.below(9);
            let Some(strip) = entry.strip(chunk, units) else { continue };
            assert!(strip.height <= chunk && strip.units <= units);
            for row in [Sectors::ZERO, strip.height - Sectors(1)] {
                assert!(strip.row(row, chunk).take(100).all(|at| at < strip.end));
            }
        }
        let again = md_ppl::emit(&header, &UUID).expect("it was in a header");
        assert_eq!(md_ppl::parse(&again, &UUID), Some(header));
    });
}

#[test]
fn write_journals() {
    run("write_journals", &[], |rng| {
        let ring = Ring { len: Sectors(8 * (1 + rng.below(64))) };
        let disk = SparseDisk::new("journal", ring.len);
        let size = Sectors(1 + rng.below(1 << 30));
        let copies = 1 + rng.below(2);
        for (at, mut block) in corpus::journal_blocks(rng, ring, size, copies) {
            if rng.once_in(3) {
                mutate::bytes(rng, &mut block);
                block.resize(md_journal::BLOCK_BYTES, 0);
                mutate::sign_journal(&mut block, &UUID);
            }
            disk.put(at, &block);
        }
        let tail = if rng.once_in(4) { Sectors(mutate::number(rng)) } else { Sectors::ZERO };
        let seed = Seed::of(&UUID);
        let mut read = |at: Sectors, buf: &mut [u8]| read_at(&disk, at, buf);
        let scan = md_journal::scan(ring, tail, seed, &mut read).expect("it stays inside the ring");
        let Some(scan) = scan else { return };
        assert!(ring.holds(scan.end));
        assert!(scan.metas.iter().map(|meta| meta.len()).sum::<Sectors>() <= ring.len);
        for meta in &scan.metas {
            assert!(meta.places(ring).all(|(at, _)| ring.holds(at)));
        }
    });
}

#[test]
fn foreign_formats_and_partition_tables() {
    run("foreign_formats_and_partition_tables", &[], |rng| {
        let mut disk = disk_with_tables(rng);
        mutate::bytes(rng, &mut disk);
        let sectors = match rng.once_in(4) {
            true => Sectors(mutate::number(rng) % (1 << 55)),
            false => Sectors::floor_bytes(disk.len() as u64),
        };
        let found = foreign::probe(sectors, &mut window(&disk)).expect("memory can be read");
        assert!(found.iter().all(|foreign| !foreign.to_string().is_empty()));
        for partition in partitions::read(sectors, &mut window(&disk)) {
            assert!(partition.area.end() <= sectors);
        }
    });
}

/// A disk with an MBR, a chain of logical partitions, a GPT, and a magic number somewhere.
fn disk_with_tables(rng: &mut Rng) -> Vec<u8> {
    const MAGICS: &[(usize, &[u8])] = &[
        (1080, &[0x53, 0xef]),
        (0, b"XFSB"),
        (0x10040, b"_BHRfS_M"),
        (32769, b"CD001"),
        (512, b"LABELONE"),
        (0, b"LUKS\xba\xbe"),
        (4086, b"SWAPSPACE2"),
        (3, b"NTFS    "),
        (131_072, &[0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0]),
    ];
    let mut disk = vec![0; 1 << rng.below(19)];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = disk.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    let kinds = [0x83, 0x05, 0x0f, 0xee, 0xfd];
    for table in 0..rng.below(4) {
        let base = table as usize * 512 * (1 + rng.below(8) as usize);
        put(base + 510, &[0x55, 0xaa]);
        for entry in 0..rng.below(5) as usize {
            let at = base + 446 + 16 * entry;
            put(at + 4, &[*rng.pick(&kinds)]);
            put(at + 8, &(rng.below(40) as u32).to_le_bytes());
            put(at + 12, &(rng.below(2000) as u32).to_le_bytes());
        }
    }
    for _ in 0..rng.below(3) {
        let (at, magic) = *rng.pick(MAGICS);
        put(at, magic);
    }
    if rng.once_in(2) {
        let block = *rng.pick(&[512, 4096]);
        put(block, b"EFI PART");
        put(block + 72, &mutate::number(rng).to_le_bytes());
        put(block + 80, &(rng.below(2000) as u32).to_le_bytes());
        put(block + 84, &128u32.to_le_bytes());
    }
    disk
}

#[test]
fn layouts() {
    run("layouts", &[], |rng| {
        let level = *rng.pick(LEVELS);
        let slots = if rng.once_in(9) { mutate::number(rng) } else { 1 + rng.below(9) } as u16;
        let hostile = rng.once_in(2);
        let mut length = |most: u64| match hostile {
            true => Sectors(mutate::number(rng)),
            false => Sectors(1 + rng.below(most)),
        };
        let (component, first, second) = (length(1 << 30), length(1 << 20), length(1 << 20));
        let members = (0..slots).map(|slot| if slot % 3 == 1 { first } else { second });
        let members = members.take(if rng.once_in(9) { 3 } else { slots.into() }).collect();
        let chunk = match rng.below(3) {
            0 => Sectors(mutate::number(rng)),
            _ => Sectors(8 << rng.below(14)),
        };
        let word = match rng.below(3) {
            0 => mutate::number(rng) as u32,
            _ if level.number == 10 => {
                rng.below(2) as u32 * 0x10000 + 0x101 * (1 + rng.below(3) as u32)
            }
            _ => rng.below(20) as u32,
        };
        let params = Params { layout: word, chunk, slots, component, members };
        let _ = (level.layout_name)(word);
        if let Ok(layout) = layout::make(level.number, &params) {
            map_both_ways(rng, &*layout, &params);
        }
    });
}

/// Every question, at both ends and in between.
fn map_both_ways(rng: &mut Rng, layout: &dyn Layout, params: &Params) {
    let shape = layout.shape();
    assert!(shape.size <= check::SIZE_MAX && shape.slots == params.slots, "{params:?}");
    let _ = (layout.hazard().map(|hazard| hazard.to_string()), layout.io_opt());
    let missing: SlotSet =
        (0..rng.below(3)).map(|_| Slot(rng.below(shape.slots.into()) as u16)).collect();
    let survives = layout.survives(&missing);
    // A member that holds nothing, since the array is too small to reach it, is no loss either.
    let is_lost = !lost(layout, &missing, 3).is_empty();
    let is_bare = shape.code == Code::None;
    assert!(is_lost != survives || is_bare && !is_lost, "{params:?} without {missing}");
    if shape.size.is_empty() {
        return;
    }
    let places = [0, shape.size.0 - 1, rng.below(shape.size.0), rng.below(shape.size.0)];
    for at in places.map(Sectors) {
        let stripe = layout.stripe(layout.locate(at));
        let end = stripe.start + stripe.len.times(shape.data_units.into());
        assert!(stripe.start <= at && at < end, "{params:?} at {at}: {stripe:?}");
        for unit in &stripe.units {
            let last = unit.at + stripe.len - Sectors(1);
            let owners = [unit.at, last].map(|at| layout.find(unit.slot, at));
            assert_eq!(owners, [Some(stripe.no); 2], "{params:?}: {unit:?}");
        }
        explain::array_offset(layout, at.bytes()).expect("inside the array");
        let _ = explain::read(layout, at.bytes(), &missing);
    }
    let last = layout.stripe(StripeNo(shape.stripes - 1));
    assert!(last.start < shape.size, "{params:?}");
    let slot = Slot(rng.below(shape.slots.into()) as u16);
    explain::member_offset(layout, slot, mutate::number(rng)).expect("the slot is there");
}
