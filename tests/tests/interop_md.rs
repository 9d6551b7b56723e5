//! Arrays the kernel made, read with our metadata and our layouts, byte by byte.
//!
//! For every level and layout: the superblocks say what mdadm was asked for; the layout has the
//! kernel's size to the sector; every data sector is where the layout says; and every copy, P and
//! Q is what the data make it, computed here from its definition and not by the code under test.
//! Then the array is assembled and read, whole and without every set of members it can do without.

use raid_core::assembly::{self, StartOptions};
use raid_core::device::file::{self, OpenOptions};
use raid_core::driver::Array;
use raid_core::layout::{Layout, Role, Stripe, Unit};
use raid_core::meta::{self, Found, assemble};
use raid_core::units::{SECTOR, Sectors, Slot, SlotSet, StripeNo};
use raid_tests::images::Images;
use raid_tests::matrix::{self, CONTENT, KernelArray, Row};
use raid_tests::pattern::first_difference;
use raid_tests::requires::{self, Need};
use std::fs;

/// The bytes of an array's members and what their superblocks say.
struct Members {
    bytes: Vec<Vec<u8>>,
    found: Vec<Found>,
}

impl Members {
    fn read(array: &KernelArray) -> Members {
        let bytes: Vec<Vec<u8>> =
            array.members.iter().map(|path| fs::read(path).unwrap()).collect();
        let found = bytes.iter().map(|bytes| superblock(bytes)).collect();
        Members { bytes, found }
    }

    fn layout(&self) -> Box<dyn Layout> {
        let lens: Vec<_> = self.found.iter().map(|found| found.member.data_len).collect();
        assembly::layout_of(&self.found[0].array, &lens).unwrap()
    }

    fn unit(&self, unit: &Unit, len: Sectors) -> &[u8] {
        let start = (self.found[unit.slot.index()].member.data_at + unit.at).len();
        &self.bytes[unit.slot.index()][start..start + len.len()]
    }
}

/// The one superblock of a member, which must be good.
fn superblock(bytes: &[u8]) -> Found {
    let mut window = |at: Sectors, buf: &mut [u8]| {
        buf.copy_from_slice(&bytes[at.len()..at.len() + buf.len()]);
        Ok(())
    };
    let device = Sectors(bytes.len() as u64 / SECTOR);
    let mut sightings = meta::probe(device, &mut window).unwrap();
    assert_eq!(sightings.len(), 1, "one superblock: {sightings:?}");
    sightings.remove(0).record.unwrap()
}

/// The superblocks say what mdadm was asked for.
fn check_records(row: &Row, members: &Members) {
    let name = row.name();
    for (slot, found) in members.found.iter().enumerate() {
        let array = &found.array;
        assert_eq!(found.format.name, row.geometry.metadata, "{name}");
        assert_eq!((array.level, array.layout), (row.number, row.word), "{name}");
        let chunk = Sectors::kib(row.geometry.chunk_kib.unwrap_or(0));
        assert_eq!((array.chunk, array.slots as usize), (chunk, row.sizes.len()), "{name}");
        let role = array.role(found.member.number);
        assert_eq!(role, meta::record::DeviceRole::Active(Slot(slot as u16)), "{name}");
        assert_eq!(array.resync, None, "{name}: md says it is clean");
        assert_eq!(array.uuid, members.found[0].array.uuid, "{name}");
        assert_eq!(array.events, members.found[0].array.events, "{name}");
    }
}

/// Every data sector is where the layout says, and the whole array is covered.
fn check_stripe_data(name: &str, members: &Members, stripe: &Stripe) -> u64 {
    let mut at = stripe.start.bytes();
    for unit in stripe.data() {
        if let Err(wrong) = CONTENT.check(at, members.unit(unit, stripe.len)) {
            panic!("{name}, stripe {}, {unit:?}: {wrong}", stripe.no.0);
        }
        at += stripe.len.bytes();
    }
    at - stripe.start.bytes()
}

/// Every unit that is no data is what the data make it.
fn check_stripe_redundancy(name: &str, members: &Members, stripe: &Stripe) {
    for unit in &stripe.units {
        let expected = match unit.role {
            Role::Data(_) => continue,
            Role::Copy(_) => members.unit(&stripe.units[0], stripe.len).to_vec(),
            Role::P => sum(members, stripe, |_| 0),
            Role::Q => sum(members, stripe, |data| data.power),
        };
        let found = members.unit(unit, stripe.len);
        if let Some(at) = first_difference(found, &expected) {
            let byte = (found[at], expected[at]);
            panic!("{name}, stripe {}, {unit:?}, byte {at}: {byte:02x?}", stripe.no.0);
        }
    }
}

/// The sum of 2^power * D over the data units, in md's field.
fn sum(members: &Members, stripe: &Stripe, power: impl Fn(&Unit) -> u8) -> Vec<u8> {
    let mut total = vec![0; stripe.len.len()];
    for unit in stripe.data() {
        let table: Vec<u8> = (0..=255).map(|byte| times_power_of_two(byte, power(unit))).collect();
        for (total, &byte) in total.iter_mut().zip(members.unit(unit, stripe.len)) {
            *total ^= table[byte as usize];
        }
    }
    total
}

/// `byte` * 2^power in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1, one doubling at a time.
fn times_power_of_two(byte: u8, power: u8) -> u8 {
    (0..power).fold(byte, |byte, _| (byte << 1) ^ if byte & 0x80 != 0 { 0x1d } else { 0 })
}

/// The array without the `missing` members, assembled and started by our code, read-only.
fn start(array: &KernelArray, missing: &SlotSet) -> Array {
    let there = |(slot, _): &(usize, _)| !missing.contains(Slot(*slot as u16));
    let paths = array.members.iter().enumerate().filter(there).map(|(_, path)| path);
    let devices: Vec<_> =
        paths.map(|path| file::open(path, &OpenOptions::reading()).unwrap()).collect();
    let candidates: Vec<_> =
        devices.iter().map(|device| assembly::examine(&**device).unwrap()).collect();
    let options = assemble::Options { degraded: true, read_only: true, ..Default::default() };
    let decided = assembly::decide(&candidates, &options)
        .unwrap_or_else(|e| panic!("{} without {missing}: {e}", array.row.name()));
    assert_eq!(&decided.missing, missing, "{}", array.row.name());
    let options = StartOptions { read_only: true, ..Default::default() };
    assembly::start(&decided, &devices, &options).unwrap()
}

/// Every set of at most two members, and one as large as possible, that the array can miss.
fn missing_sets(layout: &dyn Layout) -> Vec<SlotSet> {
    let slots = layout.shape().slots;
    let mut sets = vec![SlotSet::new()];
    for a in 0..slots {
        for b in a..slots {
            sets.push([Slot(a), Slot(b)].into_iter().collect());
        }
    }
    let mut largest = SlotSet::new();
    for slot in (0..slots).map(Slot) {
        let more: SlotSet = largest.iter().chain([slot]).collect();
        if layout.survives(&more) {
            largest = more;
        }
    }
    sets.push(largest);
    sets.retain(|set| layout.survives(set));
    sets
}

/// Reads around the borders of every unit of every assignment of roles to slots, and at the end.
fn read_borders(name: &str, array: &Array, missing: &SlotSet) {
    let layout = array.layout();
    let shape = layout.shape();
    let last = shape.stripes - 1;
    for no in (0..shape.period.min(last)).chain([last]) {
        let stripe = layout.stripe(StripeNo(no));
        for i in 0..=stripe.data().count() as u64 {
            let border = (stripe.start + stripe.len.times(i)).bytes();
            let (from, to) = (border.saturating_sub(4096), (border + 4096).min(array.size()));
            read_piece(name, array, missing, from, to);
        }
    }
}

fn read_piece(name: &str, array: &Array, missing: &SlotSet, from: u64, to: u64) {
    let mut bytes = vec![0; (to - from) as usize];
    array.read(from, &mut bytes).unwrap_or_else(|e| panic!("{name} without {missing}: {e}"));
    if let Err(wrong) = CONTENT.check(from, &bytes) {
        panic!("{name} without {missing}: {wrong}");
    }
}

fn check_reads(array: &KernelArray, members: &Members) {
    let name = array.row.name();
    let sets = missing_sets(&*members.layout());
    for (i, missing) in sets.iter().enumerate() {
        let running = start(array, missing);
        assert_eq!(running.size(), array.size, "{name}");
        if i == 0 || i == sets.len() - 1 {
            read_piece(&name, &running, missing, 0, array.size);
        }
        read_borders(&name, &running, missing);
        running.stop().unwrap();
    }
}

fn check(array: &KernelArray) {
    let name = array.row.name();
    let members = Members::read(array);
    check_records(&array.row, &members);
    let layout = members.layout();
    let shape = layout.shape();
    assert_eq!(shape.size.bytes(), array.size, "{name}: md's size");
    let mut data = 0;
    for no in 0..shape.stripes {
        let stripe = layout.stripe(StripeNo(no));
        data += check_stripe_data(&name, &members, &stripe);
        check_stripe_redundancy(&name, &members, &stripe);
    }
    assert_eq!(data, array.size, "{name}: the stripes cover the array");
    check_reads(array, &members);
}

fn check_all(rows: &[Row]) {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    for array in matrix::kernel_made(&images, rows) {
        check(&array);
    }
}

#[test]
fn linear_raid0_and_raid1_of_the_kernel_are_read_right() {
    check_all(&matrix::plain());
}

#[test]
fn raid4_and_raid5_of_the_kernel_are_read_right() {
    check_all(&matrix::single_parity());
}

#[test]
fn raid6_of_the_kernel_is_read_right() {
    check_all(&matrix::double_parity());
}

#[test]
fn raid10_of_the_kernel_is_read_right() {
    check_all(&matrix::copies());
}
