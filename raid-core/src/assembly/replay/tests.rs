//! Arrays that a crash left torn, replayed: with all members and without any one of them, once and
//! after being interrupted anywhere.
//!
//! The truth is an array of bytes. What a crash may have torn is known; all else must be as it was.

mod journal;

use super::*;
use crate::assembly::{self, StartOptions, decide, examine, layout_of, make};
use crate::device::mem::MemDevice;
use crate::device::{Device, Facts, read_at, write_at};
use crate::layout::Role;
use crate::meta::assemble::Options;
use crate::meta::create::{Creation, NewLog, NewMember, Request, create};
use crate::meta::md_ppl::{self, Entry, Header};
use crate::sim::Rng;
use crate::units::Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

const CHUNK: Sectors = Sectors(16);
const COMPONENT: Sectors = Sectors(16 * 12);
const UUID: [u8; 16] = *b"replay replay re";
const DEVICE: Sectors = Sectors(4800);

/// An array on memory, its truth, and what may be anything.
struct Bench {
    creation: Creation,
    layout: Box<dyn Layout>,
    devices: Vec<Shared>,
    truth: Vec<u8>,
    /// Array sectors that were being written: old or new.
    torn: BTreeMap<u64, [Vec<u8>; 2]>,
    rng: Rng,
}

impl Bench {
    fn new(level: i32, slots: usize, journal: bool, seed: u64) -> Bench {
        let new = |n: usize| NewMember {
            sectors: DEVICE,
            device_uuid: [n as u8 + 1; 16],
            write_mostly: false,
            failfast: false,
        };
        let log = if journal { NewLog::Journal(new(slots)) } else { NewLog::Ppl };
        let creation = create(&Request {
            format: crate::meta::format("1.2").unwrap(),
            level,
            layout: None,
            chunk: Some(CHUNK),
            members: (0..slots).map(|n| Some(new(n))).collect(),
            name: b"r".to_vec(),
            homehost: None,
            uuid: UUID,
            ctime: 1_700_000_000,
            size: Some(COMPONENT),
            data_at: None,
            assume_clean: true,
            zeroed: false,
            bitmap: None,
            log: Some(log),
            force: false,
        })
        .unwrap();
        let device = |n| Arc::new(MemDevice::new(format!("d{n}"), DEVICE).unwrap()) as Shared;
        let devices: Vec<Shared> = (0..slots + usize::from(journal)).map(device).collect();
        make(&creation, &devices).unwrap();
        let layout = layout_of(&creation.array, &[]).unwrap();
        let mut rng = Rng::new(seed);
        let truth = bytes(&mut rng, layout.shape().size.len());
        let bench = Bench { creation, layout, devices, truth, torn: BTreeMap::new(), rng };
        for no in 0..bench.layout.shape().stripes {
            let start = CHUNK.times(no * u64::from(bench.layout.shape().data_units));
            bench.put_rows(start, Sectors::ZERO, CHUNK, |_| true);
        }
        bench
    }

    /// Writes truth and its parity to the members, for `len` rows from `row` of the stripe at
    /// `start`, where `keep` is asked about the role.
    fn put_rows(&self, start: Sectors, row: Sectors, len: Sectors, keep: impl Fn(Role) -> bool) {
        for (role, slot, at, bytes) in self.units(start, row, len) {
            if keep(role) {
                self.put(slot, at, &bytes);
            }
        }
    }

    /// Data and parity of some rows of a stripe as the truth has them.
    fn units(
        &self,
        start: Sectors,
        row: Sectors,
        len: Sectors,
    ) -> Vec<(Role, Slot, Sectors, Vec<u8>)> {
        let stripe = self.layout.stripe(self.layout.locate(start));
        let data = |n: u16| {
            let at = stripe.start + CHUNK.times(n.into()) + row;
            self.truth[at.len()..(at + len).len()].to_vec()
        };
        let count = stripe.data().count() as u16;
        let list: Vec<Vec<u8>> = (0..count).map(data).collect();
        let refs: Vec<&[u8]> = list.iter().map(Vec::as_slice).collect();
        let mut powers = vec![None; 256];
        stripe
            .data()
            .zip(&refs)
            .for_each(|(unit, &bytes)| powers[unit.power as usize] = Some(bytes));
        let last = powers.iter().rposition(Option::is_some).unwrap_or(0);
        let units = stripe.units.iter().map(|unit| {
            let mut bytes = vec![0; len.len()];
            match unit.role {
                Role::Data(n) => bytes = list[n as usize].clone(),
                Role::P => crate::code::xor(&refs, &mut bytes),
                _ => crate::code::q(&powers[..=last], &mut bytes),
            }
            (unit.role, unit.slot, unit.at + row, bytes)
        });
        units.collect()
    }

    fn data_at(&self) -> Sectors {
        self.creation.members[0].member.data_at
    }

    fn put(&self, slot: Slot, at: Sectors, bytes: &[u8]) {
        write_at(&*self.devices[slot.index()], self.data_at() + at, bytes).unwrap();
    }

    /// Says in all superblocks that the array was in use.
    fn mark_dirty(&self) {
        let array =
            ArrayRecord { resync: Some(Sectors::ZERO), events: 9, ..self.creation.array.clone() };
        for (planned, device) in self.creation.members.iter().zip(&self.devices) {
            let (at, bytes) = (self.creation.format.emit)(&array, &planned.member).unwrap();
            write_at(&**device, at, &bytes).unwrap();
        }
    }

    /// A copy of all devices.
    fn copies(&self) -> Vec<Shared> {
        let copy = |device: &Shared| {
            let len = device.facts().sectors;
            let copy = MemDevice::new(device.facts().name.clone(), len).unwrap();
            let mut bytes = vec![0; len.len()];
            read_at(&**device, Sectors::ZERO, &mut bytes).unwrap();
            write_at(&copy, Sectors::ZERO, &bytes).unwrap();
            Arc::new(copy) as Shared
        };
        self.devices.iter().map(copy).collect()
    }

    /// What the array reads as without the members `lost`, started for reading.
    fn read_without(&self, devices: &[Shared], lost: &[usize]) -> Vec<u8> {
        let power = Arc::new(AtomicI64::new(0));
        let left: Vec<Shared> = powered(&without(devices, lost), &power);
        let assembly = decided(&left, true);
        let options = StartOptions { read_only: true, ..StartOptions::default() };
        let array = assembly::start(&assembly, &left, &options).unwrap();
        let mut bytes = vec![0; array.size() as usize];
        array.read(0, &mut bytes).unwrap();
        drop(array);
        assert_eq!(power.load(Ordering::Relaxed), 0, "reading writes nothing");
        bytes
    }

    /// Compares with the truth; where a lost member was being written anything may be.
    fn check(&self, found: &[u8], lost: bool, what: &str) {
        for (sector, bytes) in found.chunks(512).enumerate() {
            match self.torn.get(&(sector as u64)) {
                Some(_) if lost => {}
                Some(either) => {
                    assert!(either.iter().any(|e| e == bytes), "{what}: sector {sector} is torn");
                }
                None => assert!(
                    bytes == &self.truth[sector * 512..][..512],
                    "{what}: sector {sector} is wrong"
                ),
            }
        }
    }

    /// Every promise of a replay, with up to `tolerance` members lost.
    fn check_all(&mut self, what: &str) {
        let slots = self.creation.members.len();
        let mut losses = vec![vec![]];
        losses.extend((0..slots).map(|slot| vec![slot]));
        if self.layout.shape().tolerance == 2 {
            losses.extend((1..slots).map(|slot| vec![0, slot]));
        }
        for lost in losses {
            let what = format!("{what}, without {lost:?}");
            let found = self.read_without(&self.devices, &lost);
            self.check(&found, !lost.is_empty(), &what);
            let whole = without(&self.copies(), &lost);
            let writes = replayed(&whole, i64::MAX).unwrap();
            self.check(&self.read_without(&whole, &[]), !lost.is_empty(), &what);
            for _ in 0..2 {
                let cut = without(&self.copies(), &lost);
                let end = self.rng.below(writes as u64 + 1) as i64;
                assert_eq!(replayed(&cut, end).is_ok(), end >= writes);
                replayed(&cut, i64::MAX).unwrap();
                let what = format!("{what}, cut after {end} of {writes}");
                self.check(&self.read_without(&cut, &[]), !lost.is_empty(), &what);
            }
        }
    }
}

fn without(devices: &[Shared], lost: &[usize]) -> Vec<Shared> {
    let left = devices.iter().enumerate().filter(|(n, _)| !lost.contains(n));
    left.map(|(_, device)| device.clone()).collect()
}

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len.div_ceil(8)).flat_map(|_| rng.number().to_le_bytes()).take(len).collect()
}

fn decided(devices: &[Shared], read_only: bool) -> Assembly {
    let candidates: Vec<_> = devices.iter().map(|device| examine(&**device).unwrap()).collect();
    let options = Options { degraded: true, read_only, ..Options::default() };
    decide(&candidates, &options).unwrap()
}

/// A device whose power ends after some writes, counted over all that share it.
struct Cut {
    facts: Facts,
    inner: Shared,
    left: Arc<AtomicI64>,
}

impl Device for Cut {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read(at, bufs)
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::Relaxed) > 0 {
            true => self.inner.write(at, bufs),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        self.inner.discard(at, len)
    }
}

/// The devices, with power for `left` writes.
fn powered(devices: &[Shared], left: &Arc<AtomicI64>) -> Vec<Shared> {
    let cut = |inner: &Shared| {
        let (facts, left) = (inner.facts().clone(), left.clone());
        Arc::new(Cut { facts, inner: inner.clone(), left }) as Shared
    };
    devices.iter().map(cut).collect()
}

/// Replays for writing with power for so many writes; how many it took.
fn replayed(devices: &[Shared], power: i64) -> Result<i64> {
    let left = Arc::new(AtomicI64::new(power));
    let devices = powered(devices, &left);
    let assembly = decided(&devices, false);
    let layout = layout_of(&assembly.array, &[]).unwrap();
    let seats = assembly.seats.iter();
    let mut seated: Vec<Option<Shared>> =
        seats.map(|seat| seat.as_ref().map(|seat| devices[seat.candidate].clone())).collect();
    let mut array = assembly.array.clone();
    replay(&assembly, &mut array, &*layout, &mut seated, &devices, false)?;
    Ok(power - left.load(Ordering::Relaxed))
}

/// Writes some sectors of what is written and of parity; the slot of the parity.
fn put_torn(
    bench: &mut Bench,
    new: &[(Role, Slot, Sectors, Vec<u8>)],
    old: &[(Role, Slot, Sectors, Vec<u8>)],
    written: impl Fn(Role) -> bool,
) -> Slot {
    let mut holder = Slot(0);
    for ((role, slot, at, fresh), (.., before)) in new.iter().zip(old) {
        if *role == Role::P {
            holder = *slot;
        } else if !written(*role) {
            continue;
        }
        for (k, (fresh, before)) in fresh.chunks(512).zip(before.chunks(512)).enumerate() {
            let bytes = if bench.rng.once_in(2) { fresh } else { before };
            bench.put(*slot, *at + Sectors(k as u64), bytes);
        }
    }
    holder
}

/// Writes half done, each in the log of its parity's member.
fn tear_ppl(bench: &mut Bench) {
    let shape = bench.layout.shape().clone();
    let mut logs: BTreeMap<Slot, Vec<(Entry, Vec<u8>)>> = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for _ in 0..bench.rng.below(8) {
        let no = bench.rng.below(shape.stripes);
        if !taken.insert(no) {
            continue;
        }
        let units = u64::from(shape.data_units);
        let first = bench.rng.below(units);
        let count = 1 + bench.rng.below(units - first);
        let low = bench.rng.below(CHUNK.0);
        let height = Sectors(1 + bench.rng.below(CHUNK.0 - low));
        let (start, low) = (CHUNK.times(no * units), Sectors(low));
        let wanted = first..first + count;
        let written = |role: Role| matches!(role, Role::Data(n) if wanted.contains(&n.into()));
        let old = bench.units(start, low, height);
        let mut parity = vec![0; height.len()];
        let rest: Vec<&[u8]> = (old.iter())
            .filter(|(role, ..)| matches!(role, Role::Data(_)) && !written(*role))
            .map(|(.., bytes)| bytes.as_slice())
            .collect();
        let is_full = rest.is_empty();
        if !is_full {
            crate::code::xor(&rest, &mut parity);
        } else {
            parity.clear();
        }
        let mut new = Vec::new();
        for n in first..first + count {
            let at = start + CHUNK.times(n) + low;
            let fresh = bytes(&mut bench.rng, height.len());
            for (k, sector) in fresh.chunks(512).enumerate() {
                let place = at.0 + k as u64;
                let before = bench.truth[place as usize * 512..][..512].to_vec();
                bench.torn.insert(place, [before, sector.to_vec()]);
            }
            bench.truth[at.len()..][..height.len()].copy_from_slice(&fresh);
        }
        new.extend(bench.units(start, low, height));
        let holder = put_torn(bench, &new, &old, written);
        let entry = Entry {
            at: start + CHUNK.times(first) + low,
            parity: Sectors::floor_bytes(parity.len() as u64),
            data: height.times(count),
            slot: holder,
            checksum: md_ppl::checksum(&parity),
        };
        logs.entry(holder).or_default().push((entry, parity));
    }
    for (slot, list) in logs {
        let (entries, parity): (Vec<Entry>, Vec<Vec<u8>>) = list.into_iter().unzip();
        let header = Header { generation: 4, entries };
        // An older log lies before it and must not be taken for the newest.
        let old = md_ppl::empty(&UUID, 3);
        let bytes = [old, md_ppl::emit(&header, &UUID).unwrap(), parity.concat()].concat();
        let area = bench.creation.members[slot.index()].member.ppl.unwrap();
        write_at(&*bench.devices[slot.index()], area.at, &bytes).unwrap();
    }
    bench.mark_dirty();
}

#[test]
fn a_partial_parity_log_closes_the_write_hole() {
    for seed in 0..6 {
        let mut bench = Bench::new(5, 3 + seed as usize % 3, false, seed);
        tear_ppl(&mut bench);
        bench.check_all(&format!("seed {seed}"));
    }
}

#[test]
fn a_torn_log_speaks_of_writes_that_had_not_begun() {
    let mut bench = Bench::new(5, 3, false, 1);
    let area = bench.creation.members[1].member.ppl.unwrap();
    let entry = |checksum| Entry {
        at: Sectors(0),
        parity: Sectors(8),
        data: Sectors(8),
        slot: Slot(1),
        checksum,
    };
    bench.mark_dirty();
    for entries in [vec![entry(1)], vec![]] {
        let mut bytes = md_ppl::emit(&Header { generation: 1, entries }, &UUID).unwrap();
        bytes[3000] ^= u8::from(bytes[528] == 0);
        write_at(&*bench.devices[1], area.at, &bytes).unwrap();
        bench.check_all("a torn log");
    }
}

#[test]
fn an_entry_at_the_end_of_the_array_has_rows_beyond_it() {
    let mut bench = Bench::new(5, 3, false, 2);
    let (size, len) = (bench.layout.shape().size, Sectors(4));
    let at = size - len;
    let stripe = bench.layout.stripe(bench.layout.locate(at));
    let holder = stripe.units.iter().find(|unit| unit.role == Role::P).unwrap().slot;
    // As it is on the members already: a chunk of partial parity, of which a part says something.
    let units = bench.units(stripe.start, Sectors::ZERO, CHUNK);
    let parity = units[0].3[(CHUNK - len).len()..].to_vec();
    let parity = [parity, vec![0; (CHUNK - len).len()]].concat();
    let checksum = md_ppl::checksum(&parity);
    let entry = Entry { at, parity: CHUNK, data: len, slot: holder, checksum };
    let header = Header { generation: 1, entries: vec![entry] };
    let bytes = [md_ppl::emit(&header, &UUID).unwrap(), parity].concat();
    let area = bench.creation.members[holder.index()].member.ppl.unwrap();
    write_at(&*bench.devices[holder.index()], area.at, &bytes).unwrap();
    bench.mark_dirty();
    bench.check_all("an entry at the end");
}

#[test]
fn the_kernels_rule_says_when_the_array_is_clean() {
    let mut bench = Bench::new(5, 3, false, 7);
    bench.mark_dirty();
    let settled = |devices: &[Shared]| {
        let assembly = decided(devices, false);
        let layout = layout_of(&assembly.array, &[]).unwrap();
        let seats = assembly.seats.iter();
        let mut seated: Vec<Option<Shared>> =
            seats.map(|seat| seat.as_ref().map(|seat| devices[seat.candidate].clone())).collect();
        let mut array = assembly.array.clone();
        replay(&assembly, &mut array, &*layout, &mut seated, devices, false).unwrap();
        array.resync.is_none()
    };
    // Nothing was under way as far as the logs know: resync all the same, if all members are there.
    assert!(!settled(&bench.copies()));
    assert!(settled(&without(&bench.copies(), &[0])));
    while bench.torn.is_empty() {
        tear_ppl(&mut bench);
    }
    assert!(settled(&bench.copies()));
}
