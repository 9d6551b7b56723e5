//! Whether all redundancy of an array of images is what its data make it.

use crate::images;
use raid_core::assembly::{self, layout_of};
use raid_core::code;
use raid_core::device::file::{self, OpenOptions};
use raid_core::layout::{Code, Layout, Role, Stripe, Unit};
use raid_core::meta::record::{ArrayRecord, MemberRecord};
use raid_core::meta::{Found, md_bitmap};
use raid_core::units::{SECTOR, Sectors, StripeNo};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Asserts that every copy, P and Q of a stopped array agrees with the data. `paths` by slot.
pub fn assert_consistent(paths: &[PathBuf]) {
    let (array, layout) = look(paths);
    assert_eq!(array.resync, None, "the superblock says in sync");
    let wrong = wrong_stripes(paths);
    assert!(wrong.is_empty(), "of {} stripes these are wrong: {wrong:?}", layout.shape().stripes);
}

/// The stripes of a stopped array whose copies, P or Q do not agree with the data.
pub fn wrong_stripes(paths: &[PathBuf]) -> Vec<u64> {
    let (_, layout) = look(paths);
    let load = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (found(path).member, bytes)
    };
    let members: Vec<(MemberRecord, Vec<u8>)> = paths.iter().map(load).collect();
    let shape = layout.shape();
    let wrong =
        |no: &u64| !wrong_units(shape.code, &layout.stripe(StripeNo(*no)), &members).is_empty();
    (0..shape.stripes).filter(wrong).collect()
}

/// Makes the redundancy of these stripes of a stopped array wrong, and no data: the last unit of
/// each that is P, Q or not the first copy. What is wrong already may become right.
pub fn spoil(paths: &[PathBuf], stripes: impl IntoIterator<Item = u64>) {
    let (_, layout) = look(paths);
    for no in stripes {
        let stripe = layout.stripe(StripeNo(no));
        let extra = stripe.units.iter().skip(1).rfind(|unit| !matches!(unit.role, Role::Data(_)));
        let unit = extra.expect("a stripe has redundancy");
        let path = &paths[unit.slot.index()];
        let at = found(path).member.data_at + unit.at;
        images::flip(path, at.bytes() + 77, 1000);
    }
}

/// How many stripes an array has. `paths` by slot.
pub fn count(paths: &[PathBuf]) -> u64 {
    look(paths).1.shape().stripes
}

/// Whether the superblocks of a stopped array say that writes may be under way or that redundancy
/// may be wrong.
pub fn is_dirty(paths: &[PathBuf]) -> bool {
    paths.iter().any(|path| found(path).array.resync.is_some())
}

/// The stripes whose regions are marked in the bitmap of any member of a stopped array.
pub fn marked_stripes(paths: &[PathBuf]) -> Vec<u64> {
    let (array, layout) = look(paths);
    let len = layout.stripe(StripeNo(0)).len;
    let mut marked = BTreeSet::new();
    for path in paths {
        let bytes = fs::read(path).expect("a member can be read");
        let at = found(path).member.bitmap_at.expect("a member has a bitmap").bytes() as usize;
        let bitmap = md_bitmap::parse(&bytes[at..], &array.uuid).expect("a good bitmap");
        let bits = &bytes[at + md_bitmap::HEAD..];
        let is_set = |no: &u64| {
            let bit = len.times(*no).bytes() / u64::from(bitmap.chunk_bytes);
            bits[bit as usize / 8] >> (bit % 8) & 1 == 1
        };
        marked.extend((0..layout.shape().stripes).filter(is_set));
    }
    marked.into_iter().collect()
}

/// Where data begins on a member.
pub fn data_at(path: &Path) -> Sectors {
    found(path).member.data_at
}

/// The record and the layout of an array. `paths` by slot.
fn look(paths: &[PathBuf]) -> (ArrayRecord, Box<dyn Layout>) {
    let lens: Vec<Sectors> = paths.iter().map(|path| found(path).member.data_len).collect();
    let array = found(paths.first().expect("an array has members")).array;
    let layout = layout_of(&array, &lens).expect("a layout of ours");
    (array, layout)
}

/// The superblock of a member.
fn found(path: &Path) -> Found {
    let device = file::open(path, &OpenOptions::looking()).expect("a member can be opened");
    let mut candidate = assembly::examine(&*device).expect("a member can be examined");
    assert_eq!(candidate.sightings.len(), 1, "{}", path.display());
    candidate.sightings.remove(0).record.expect("a good superblock")
}

/// The roles of the units that do not agree with the data units.
fn wrong_units(code: Code, stripe: &Stripe, members: &[(MemberRecord, Vec<u8>)]) -> Vec<Role> {
    let bytes = |unit: &Unit| {
        let (member, bytes) = &members[unit.slot.index()];
        &bytes[((member.data_at + unit.at).0 * SECTOR) as usize..][..stripe.len.len()]
    };
    let unit_of = |role| stripe.units.iter().find(|unit| unit.role == role).map(bytes);
    let data: Vec<&[u8]> = stripe.data().map(bytes).collect();
    let mut wrong = Vec::new();
    match code {
        Code::None => {}
        Code::Copy => {
            let others = stripe.units.iter().filter(|unit| bytes(unit) != data[0]);
            wrong.extend(others.map(|unit| unit.role));
        }
        Code::P => {
            let good = code::check_p(&data, unit_of(Role::P).expect("a stripe has its P"));
            wrong.extend((!good).then_some(Role::P));
        }
        Code::PQ => {
            let mut by_power = vec![None; data.len()];
            for (unit, data) in stripe.data().zip(&data) {
                by_power[unit.power as usize] = Some(*data);
            }
            let [p, q] = [Role::P, Role::Q].map(|r| unit_of(r).expect("a stripe has P and Q"));
            let (p_good, q_good) = code::check_pq(&by_power, p, q);
            wrong.extend((!p_good).then_some(Role::P));
            wrong.extend((!q_good).then_some(Role::Q));
        }
    }
    wrong
}
