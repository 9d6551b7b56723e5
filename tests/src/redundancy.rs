//! Whether all redundancy of an array of images is what its data make it.

use raid_core::assembly::{self, layout_of};
use raid_core::code;
use raid_core::device::file::{self, OpenOptions};
use raid_core::layout::{Code, Role, Stripe, Unit};
use raid_core::meta::record::MemberRecord;
use raid_core::units::{SECTOR, Sectors, StripeNo};
use std::fs;
use std::path::PathBuf;

/// Asserts that every copy, P and Q of a stopped array agrees with the data. `paths` by slot.
pub fn assert_consistent(paths: &[PathBuf]) {
    let mut array = None;
    let mut members = Vec::new();
    for path in paths {
        let device = file::open(path, &OpenOptions::reading()).expect("a member can be opened");
        let mut candidate = assembly::examine(&*device).expect("a member can be examined");
        assert_eq!(candidate.sightings.len(), 1, "{}", path.display());
        let found = candidate.sightings.remove(0).record.expect("a good superblock");
        assert_eq!(found.array.resync, None, "{}: the superblock says in sync", path.display());
        let bytes = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        members.push((found.member, bytes));
        array = Some(found.array);
    }
    let lens: Vec<Sectors> = members.iter().map(|(member, _)| member.data_len).collect();
    let array = array.expect("an array has members");
    let layout = layout_of(&array, &lens).expect("a layout of ours");
    let shape = layout.shape();
    for no in 0..shape.stripes {
        let stripe = layout.stripe(StripeNo(no));
        let wrong = wrong_units(shape.code, &stripe, &members);
        assert!(wrong.is_empty(), "stripe {no}: wrong {wrong:?} in {stripe:?}");
    }
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
