//! Laws every layout obeys, tried over the whole table of levels; and the rules of md's documents
//! and source, written a second time without looking at ours.

use super::*;
use std::collections::{BTreeSet, HashMap};

/// RAID 10 words of all kinds; those that collide on some member counts are refused there.
const WORDS_10: &[u32] = &[
    0x102, 0x103, 0x104, 0x201, 0x301, 0x401, 0x10201, 0x10301, 0x10102, 0x202, 0x203, 0x302,
    0x10202, 0x20201, 0x20202, 0x20301, 0x30201, 0x40201, 0x40301, 0x40202, 0x50201, 0x50202,
];

fn params(layout: u32, chunk: u64, slots: u16, component: u64) -> Params {
    let members = (0..slots).map(|slot| Sectors(component + slot as u64 % 3 * 5 * chunk)).collect();
    Params { layout, chunk: Sectors(chunk), slots, component: Sectors(component), members }
}

/// The layout words to try for a level.
fn words(level: &Level) -> Vec<u32> {
    match level.number {
        10 => WORDS_10.to_vec(),
        _ if level.layouts.is_empty() => vec![0],
        _ => level
            .layouts
            .iter()
            .map(|&(_, word)| word)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
    }
}

/// Every layout of the table with 1 to 8 and 16 members and several sizes, with its parameters.
fn every_layout(mut check: impl FnMut(&dyn Layout, &Params)) {
    let mut built = HashMap::new();
    for level in LEVELS {
        for word in words(level) {
            for slots in (1..=8).chain([16]) {
                for (chunk, component) in [(8, 8 * 6), (8, 507), (24, 24 * 13), (128, 128 * 9 + 3)]
                {
                    let params = params(word, chunk, slots, component);
                    if let Ok(layout) = (level.make)(&params) {
                        *built.entry(level.name).or_insert(0) += 1;
                        check(&*layout, &params);
                    }
                }
            }
        }
    }
    for level in LEVELS {
        assert!(built[level.name] >= 20, "{}: too few layouts to call it a law", level.name);
    }
}

fn units_once(layout: &dyn Layout) -> bool {
    layout.hazard().is_none()
}

#[test]
fn stripes_tile_the_array() {
    every_layout(|layout, params| {
        let shape = layout.shape();
        let mut end = Sectors::ZERO;
        for no in (0..shape.stripes).map(StripeNo) {
            let stripe = layout.stripe(no);
            assert_eq!(stripe.no, no);
            assert_eq!(stripe.start, end, "{layout:?} {params:?} stripe {no:?}");
            assert!(!stripe.len.is_empty());
            end += stripe.len.times(shape.data_units as u64);
            assert_eq!(layout.locate(stripe.start), no);
            assert_eq!(layout.locate(end - Sectors(1)), no);
        }
        assert_eq!(end, shape.size, "{params:?}");
        assert_eq!(shape.slots, params.slots);
    });
}

#[test]
fn no_two_units_share_a_sector_and_find_inverts_stripe() {
    every_layout(|layout, params| {
        let shape = layout.shape();
        let mut owners: HashMap<(Slot, u64), StripeNo> = HashMap::new();
        for no in (0..shape.stripes).map(StripeNo) {
            let stripe = layout.stripe(no);
            for unit in &stripe.units {
                assert!(unit.slot.0 < shape.slots);
                for sector in unit.at.0..unit.at.0 + stripe.len.0 {
                    let before = owners.insert((unit.slot, sector), no);
                    assert_eq!(before, None, "{params:?} {no:?} slot {} {sector}", unit.slot);
                }
            }
        }
        let size = params.component.0 + 11 * params.chunk.0;
        for slot in (0..=shape.slots).map(Slot) {
            for at in 0..size {
                let owner = owners.remove(&(slot, at));
                assert_eq!(layout.find(slot, Sectors(at)), owner, "{params:?} slot {slot} {at}");
            }
        }
        assert!(owners.is_empty(), "{params:?} uses sectors beyond its members: {owners:?}");
    });
}

#[test]
fn stripes_use_a_member_once_and_have_every_role_in_order() {
    every_layout(|layout, params| {
        let shape = layout.shape();
        for no in (0..shape.stripes).map(StripeNo) {
            let stripe = layout.stripe(no);
            let slots: SlotSet = stripe.units.iter().map(|unit| unit.slot).collect();
            assert!(slots.len() == stripe.units.len() || !units_once(layout), "{params:?} {no:?}");
            let data = (0..shape.data_units).map(Role::Data);
            let copies = (1..stripe.units.len() as u16).map(Role::Copy);
            let expected: Vec<Role> = match shape.code {
                Code::None => data.collect(),
                Code::Copy => data.chain(copies).collect(),
                Code::P => data.chain([Role::P]).collect(),
                Code::PQ => data.chain([Role::P, Role::Q]).collect(),
            };
            assert_eq!(stripe.units.iter().map(|unit| unit.role).collect::<Vec<_>>(), expected);
            let powers: BTreeSet<u8> = stripe.data().map(|unit| unit.power).collect();
            match shape.code {
                Code::PQ => assert_eq!(powers.len(), shape.data_units as usize),
                _ => assert_eq!(powers, BTreeSet::from([0])),
            }
        }
    });
}

#[test]
fn roles_repeat_with_the_period_of_their_region() {
    every_layout(|layout, params| {
        let roles = |no: u64| -> Vec<(Role, Slot, u8)> {
            let stripe = layout.stripe(StripeNo(no));
            stripe.units.iter().map(|unit| (unit.role, unit.slot, unit.power)).collect()
        };
        let mut next = 0;
        for region in layout.regions() {
            assert_eq!(region.first.0, next, "{params:?}");
            next += region.stripes;
            for no in region.first.0 + region.period..next {
                assert_eq!(roles(no), roles(no - region.period), "{params:?} stripe {no}");
            }
        }
        assert_eq!(next, layout.shape().stripes, "{params:?}");
        let period = layout.shape().period;
        for no in period..layout.shape().stripes {
            assert_eq!(roles(no), roles(no - period), "{params:?} stripe {no}");
        }
    });
}

#[test]
fn survival_is_what_the_stripes_say() {
    every_layout(|layout, params| {
        let shape = layout.shape();
        for bits in 0..1u32 << shape.slots.min(7) {
            let missing: SlotSet = (0..7).filter(|bit| bits >> bit & 1 == 1).map(Slot).collect();
            let lost = lost(layout, &missing, 3);
            let loses = |no| {
                let gone = |unit: &&Unit| missing.contains(unit.slot);
                let stripe = layout.stripe(StripeNo(no));
                let count = stripe.units.iter().filter(gone).count();
                match shape.code {
                    Code::Copy => count == stripe.units.len(),
                    Code::None => count > 0,
                    Code::P => count > 1,
                    Code::PQ => count > 2,
                }
            };
            let dead = (0..shape.stripes.min(120)).any(loses);
            assert_eq!(layout.survives(&missing), !dead, "{params:?} without {missing}");
            // Only parity may be gone where an array does not survive, so this is one-way.
            assert!(dead || lost.is_empty());
            if missing.len() <= shape.tolerance as usize {
                assert!(!dead, "{params:?} tolerates {} but not {missing}", shape.tolerance);
            }
            for range in &lost.ranges {
                assert!(loses(layout.locate(range.start).0));
            }
        }
    });
}

#[test]
fn words_and_answers_agree_both_ways() {
    every_layout(|layout, params| {
        let size = layout.shape().size.bytes();
        for offset in (0..size).step_by(size as usize / 7 + 4099).chain([size - 1]) {
            let explained = explain::array_offset(layout, offset).unwrap();
            for place in &explained.places {
                let sector = Sectors::floor_bytes(place.offset);
                let says = format!("= {sector}");
                let same_sector = |step: &String| {
                    step.ends_with(&says) || step.ends_with(&format!("{says}, on each of them"))
                };
                assert!(explained.steps.iter().any(same_sector), "{params:?} {explained:?}");
                let back = explain::member_offset(layout, place.slot, place.offset).unwrap();
                assert_eq!(back.stripe, Some(explained.stripe));
                let copy = match place.role {
                    Role::Data(_) => 0,
                    Role::Copy(copy) => copy,
                    Role::P => {
                        assert_eq!(back.owner, explain::Owner::P);
                        continue;
                    }
                    Role::Q => {
                        assert_eq!(back.owner, explain::Owner::Q);
                        continue;
                    }
                };
                assert_eq!(back.owner, explain::Owner::Data { offset, copy }, "{params:?}");
                let says = format!("= {}", Sectors::floor_bytes(offset));
                let last = back.steps.last().unwrap();
                assert!(last.contains(&says), "{params:?} '{says}' {:?}", back.steps);
            }
        }
    });
}

#[test]
fn what_is_printed_can_be_typed() {
    for level in LEVELS {
        let numbers = words(level).into_iter().chain([0, 1, 7, 8, 10, 0x101, 0xffff_ffff, 0x70202]);
        for word in numbers {
            let name = (level.layout_name)(word);
            assert_eq!((level.parse_layout)(&name).unwrap(), word, "{} '{name}'", level.name);
            assert_eq!((level.parse_layout)(&format!("{word:#x}")).unwrap(), word);
            assert_eq!((level.parse_layout)(&word.to_string()).unwrap(), word);
        }
        for (name, word) in level.layouts {
            assert_eq!((level.parse_layout)(name).unwrap(), *word);
            assert_eq!(
                (level.parse_layout)(&name.to_uppercase().replace('-', "_")).unwrap(),
                *word
            );
        }
        assert!((level.parse_layout)("sideways").is_err());
        assert!(std::ptr::eq(
            level_by_number(level.number).unwrap(),
            level_by_name(level.name).unwrap()
        ));
        for alias in level.aliases {
            assert_eq!(level_by_name(alias).unwrap().number, level.number);
        }
    }
}

/// md's rules for RAID 4, 5 and 6 as `raid5_compute_sector` has them: (data slot, P, Q).
fn compute_sector(level: i32, word: u32, n: i64, stripe: i64, mut d: i64) -> (i64, i64, i64) {
    let dd = n - if level == 6 { 2 } else { 1 };
    match (level, word) {
        (4, _) | (5, 5) => (d, dd, -1),
        (5, 0 | 1) => {
            let p = if word == 0 { dd - stripe % n } else { stripe % n };
            (if d >= p { d + 1 } else { d }, p, -1)
        }
        (5, 2 | 3) => {
            let p = if word == 2 { dd - stripe % n } else { stripe % n };
            ((p + 1 + d) % n, p, -1)
        }
        (5, 4) => (d + 1, 0, -1),
        (6, 0 | 1 | 8 | 9) => {
            let p = match word {
                0 => n - 1 - stripe % n,
                9 => n - 1 - (stripe + 1) % n,
                _ => stripe % n,
            };
            if p == n - 1 {
                return (d + 1, p, 0);
            }
            if d >= p {
                d += 2;
            }
            (d, p, p + 1)
        }
        (6, 2 | 3) => {
            let p = if word == 2 { n - 1 - stripe % n } else { stripe % n };
            ((p + 2 + d) % n, p, (p + 1) % n)
        }
        (6, 4) => (d + 2, 0, 1),
        (6, 5) => (d, dd, dd + 1),
        (6, 10) => {
            let p = n - 1 - stripe % n;
            ((p + 1 + d) % n, p, (p + n - 1) % n)
        }
        (6, 16 | 17) => {
            let p = if word == 16 { dd - stripe % (n - 1) } else { stripe % (n - 1) };
            (if d >= p { d + 1 } else { d }, p, n - 1)
        }
        (6, 18 | 19) => {
            let p = if word == 18 { dd - stripe % (n - 1) } else { stripe % (n - 1) };
            ((p + 1 + d) % (n - 1), p, n - 1)
        }
        (6, 20) => (d + 1, 0, n - 1),
        _ => panic!("no such layout"),
    }
}

/// md's exponents: a walk over the slots from behind Q, or DDF's slot numbers.
fn exponents(word: u32, n: i64, p: i64, q: i64) -> HashMap<i64, u8> {
    if (8..=10).contains(&word) {
        return (0..n)
            .filter(|&slot| slot != p && slot != q)
            .map(|slot| (slot, slot as u8))
            .collect();
    }
    let (mut slot, mut next) = (if q == n - 1 { 0 } else { q + 1 }, 0);
    let mut exponents = HashMap::new();
    for _ in 0..n {
        if slot != p && slot != q {
            exponents.insert(slot, next);
            next += 1;
        }
        slot = (slot + 1) % n;
    }
    exponents
}

#[test]
fn parity_levels_follow_compute_sector() {
    every_layout(|layout, params| {
        let shape = layout.shape();
        if !matches!(shape.level, 4..=6) {
            return;
        }
        let n = shape.slots as i64;
        for no in 0..shape.stripes {
            let stripe = layout.stripe(StripeNo(no));
            for unit in &stripe.units {
                assert_eq!(unit.at.0, no * params.chunk.0);
            }
            for (d, unit) in stripe.data().enumerate() {
                let (slot, p, q) =
                    compute_sector(shape.level, params.layout, n, no as i64, d as i64);
                assert_eq!(unit.slot.0 as i64, slot, "{params:?} stripe {no} data {d}");
                assert_eq!(stripe.units[shape.data_units as usize].slot.0 as i64, p);
                if shape.level == 6 {
                    assert_eq!(stripe.units[shape.data_units as usize + 1].slot.0 as i64, q);
                    assert_eq!(unit.power, exponents(params.layout, n, p, q)[&slot]);
                }
            }
        }
    });
}

/// `__raid10_find_phys`: slot and sector of every copy of array sector `r`.
fn find_phys(word: u32, n: u64, chunk: u64, component: u64, r: u64) -> Vec<(u64, u64)> {
    let (near, far, offset) = (word as u64 & 255, word as u64 >> 8 & 255, word >> 16 & 1 == 1);
    let set_size = [n, n / far, far * near][(word >> 17) as usize];
    let chunks = component / chunk / far * n / near;
    let used = (chunks * near * far).div_ceil(n);
    let stride = if offset { chunk } else { used / far * chunk };
    let last_start = (n / set_size - 1) * set_size;
    let last_size = set_size + n % set_size;
    let mut stripe = r / chunk * near / n;
    let mut dev = r / chunk * near % n;
    if offset {
        stripe *= far;
    }
    let mut sector = stripe * chunk + r % chunk;
    let mut found = Vec::new();
    for _ in 0..near {
        let (mut d, mut s) = (dev, sector);
        found.push((d, s));
        for _ in 1..far {
            let set = d / set_size;
            d += near;
            if !n.is_multiple_of(set_size) && d > last_start {
                d = (d - last_start) % last_size + last_start;
            } else {
                d = d % set_size + set_size * set;
            }
            s += stride;
            found.push((d, s));
        }
        dev += 1;
        if dev >= n {
            dev = 0;
            sector += chunk;
        }
    }
    found
}

#[test]
fn raid10_follows_find_phys() {
    every_layout(|layout, params| {
        let shape = layout.shape();
        if shape.level != 10 {
            return;
        }
        let (n, chunk) = (params.slots as u64, params.chunk.0);
        for no in 0..shape.stripes {
            let stripe = layout.stripe(StripeNo(no));
            let ours: Vec<_> = stripe.units.iter().map(|u| (u.slot.0 as u64, u.at.0)).collect();
            let theirs = find_phys(params.layout, n, chunk, params.component.0, no * chunk);
            assert_eq!(ours, theirs, "{params:?} chunk {no}");
        }
    });
}
