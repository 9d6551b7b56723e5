//! Plans as one line each, and laws over every pattern of what can be read and written.

use super::*;
use crate::layout::{Code, Unit};
use crate::units::{Slot, StripeNo};

/// A stripe of `data` units of 8 sectors with the parity of `code`.
pub(crate) fn stripe(data: u16, code: Code) -> Stripe {
    let mut roles: Vec<Role> = (0..data).map(Role::Data).collect();
    match code {
        Code::None => {}
        Code::Copy => roles = vec![Role::Data(0), Role::Copy(1), Role::Copy(2)],
        Code::P => roles.push(Role::P),
        Code::PQ => roles.extend([Role::P, Role::Q]),
    }
    let units = roles.iter().enumerate().map(|(i, &role)| {
        let power = if let Role::Data(n) = role { n as u8 } else { 0 };
        Unit { role, power, slot: Slot(i as u16), at: Sectors::ZERO }
    });
    Stripe { no: StripeNo(0), start: Sectors::ZERO, len: Sectors(8), units: units.collect() }
}

fn band(data: u16, code: Code, first: u16, last: u16) -> Band {
    Band { stripe: stripe(data, code), low: Sectors(0), high: Sectors(8), first, last }
}

fn access(units: usize, missing: &[usize]) -> Accesses {
    (0..units).map(|i| if missing.contains(&i) { Access::NONE } else { Access::FULL }).collect()
}

fn units_in(code: Code, data: u16) -> usize {
    stripe(data, code).units.len()
}

#[test]
fn writes_read_as_little_as_they_can() {
    #[rustfmt::skip]
    let cases = [
        (3, Code::P, 0, 2, &[][..], "encode | commit D0 D1 D2 P"),
        (3, Code::P, 1, 1, &[], "read D0 D2 | encode | commit D1 P"),
        (5, Code::P, 1, 1, &[], "read D1 P | update | commit D1 P"),
        (5, Code::P, 0, 2, &[], "read D3 D4 | encode | commit D0 D1 D2 P"),
        (4, Code::PQ, 1, 1, &[], "read D0 D2 D3 | encode | commit D1 P Q"),
        (6, Code::PQ, 1, 1, &[], "read D1 P Q | update | commit D1 P Q"),
        (3, Code::P, 1, 1, &[1], "read D0 D2 | encode | commit P"),
        (3, Code::P, 1, 1, &[0], "read D1 P | update | commit D1 P"),
        (3, Code::P, 1, 1, &[3], "commit D1"),
        (4, Code::PQ, 1, 1, &[1, 4], "read D0 D2 D3 | encode | commit Q"),
        (4, Code::PQ, 1, 1, &[4, 5], "commit D1"),
        (4, Code::PQ, 1, 1, &[0, 1], "read D2 D3 P Q | solve D0 D1 | encode | commit P Q"),
        (4, Code::PQ, 0, 1, &[1, 2], "read D0 D3 P Q | solve D1 D2 | encode | commit D0 P Q"),
        (1, Code::Copy, 0, 0, &[1], "commit D0 C2"),
        (1, Code::None, 0, 0, &[], "commit D0"),
    ];
    for (data, code, first, last, missing, expected) in cases {
        let band = band(data, code, first, last);
        let access = access(units_in(code, data), missing);
        let plan = write(&band, code, &access, true, false).unwrap();
        assert_eq!(
            plan.to_text(&band.stripe),
            expected,
            "{data} {code:?} {first}-{last} {missing:?}"
        );
    }
}

#[test]
fn parity_that_may_be_wrong_is_never_updated_from_itself() {
    let band = band(5, Code::P, 1, 1);
    let plan = write(&band, Code::P, &access(6, &[]), false, false).unwrap();
    assert_eq!(plan.to_text(&band.stripe), "read D0 D2 D3 D4 | encode | commit D1 P");
}

#[test]
fn reads_take_what_is_there_and_solve_the_rest() {
    #[rustfmt::skip]
    let cases = [
        (3, Code::P, 0, 1, &[][..], "read D0 D1 | answer"),
        (3, Code::P, 0, 1, &[1], "read D0 D2 P | solve D1 | answer"),
        (3, Code::P, 0, 0, &[1], "read D0 | answer"),
        (4, Code::PQ, 1, 1, &[1], "read D0 D2 D3 P | solve D1 | answer"),
        (4, Code::PQ, 1, 1, &[1, 4], "read D0 D2 D3 Q | solve D1 | answer"),
        (4, Code::PQ, 1, 1, &[1, 3], "read D0 D2 P Q | solve D1 D3 | answer"),
        (1, Code::Copy, 0, 0, &[0], "read C1 | answer"),
    ];
    for (data, code, first, last, missing, expected) in cases {
        let band = band(data, code, first, last);
        let access = access(units_in(code, data), missing);
        let plan = read(&band, code, &access, false).unwrap();
        assert_eq!(
            plan.to_text(&band.stripe),
            expected,
            "{data} {code:?} {first}-{last} {missing:?}"
        );
    }
}

#[test]
fn a_unit_that_cannot_be_read_but_takes_writes_is_healed() {
    let band = band(3, Code::P, 1, 1);
    let mut access = access(4, &[]);
    access[1].read = false;
    let plan = read(&band, Code::P, &access, true).unwrap();
    assert_eq!(plan.to_text(&band.stripe), "read D0 D2 P | solve D1 | answer | commit D1");
}

/// Every pattern of missing units of every code: a plan exists exactly when the code can make up
/// for it, and it keeps the promises of [`Plan::check`] (which the builders call themselves).
#[test]
fn a_plan_exists_exactly_when_redundancy_suffices() {
    for (code, data, tolerance) in
        [(Code::P, 4, 1), (Code::PQ, 4, 2), (Code::Copy, 1, 2), (Code::None, 1, 0)]
    {
        let count = units_in(code, data);
        for pattern in 0u32..1 << count {
            let missing: Vec<usize> = (0..count).filter(|i| pattern >> i & 1 == 1).collect();
            let access = access(count, &missing);
            for first in 0..data {
                for last in first..data {
                    let band = band(data, code, first, last);
                    let hit = missing.iter().any(|&m| m <= last as usize && m >= first as usize);
                    let enough = missing.len() <= tolerance;
                    let readable = enough || (!hit && matches!(code, Code::P | Code::PQ));
                    let read = read(&band, code, &access, false);
                    assert!(read.is_ok() || !enough, "{code:?} {missing:?}");
                    assert!(read.is_err() || readable || !hit, "{code:?} {missing:?}");
                    assert_eq!(
                        write(&band, code, &access, true, false).is_ok(),
                        enough,
                        "{missing:?}"
                    );
                }
            }
        }
    }
}

/// Whatever is missing, a repair that makes parity also writes some, and one that has nothing to
/// write reads nothing.
#[test]
fn a_repair_writes_what_it_makes_or_does_nothing() {
    for (code, data) in [(Code::P, 3), (Code::PQ, 3), (Code::Copy, 1)] {
        let count = units_in(code, data);
        for pattern in 0u32..1 << count {
            let missing: Vec<usize> = (0..count).filter(|i| pattern >> i & 1 == 1).collect();
            let band = band(data, code, 0, data - 1);
            let Ok(plan) = repair(&band, code, &access(count, &missing)) else { continue };
            let commits = matches!(plan.phases.last(), Some(Phase::Commit(_)));
            assert_eq!(commits, !plan.phases.is_empty(), "{code:?} {missing:?}: {plan:?}");
        }
    }
}

/// Bands of a range tile it exactly, whatever the range.
#[test]
fn bands_tile_the_range() {
    for units in 1..5u64 {
        let stripe = stripe(units as u16, Code::P);
        let total = units * 8;
        for from in 0..total {
            for to in from + 1..=total {
                let mut bands = Vec::new();
                bands_of(&stripe, Sectors(from), Sectors(to), &mut bands);
                let mut seen = vec![0; total as usize];
                for band in &bands {
                    for unit in band.first..=band.last {
                        let at = band.array_at(unit).0;
                        (at..at + band.height().0).for_each(|s| seen[s as usize] += 1);
                    }
                }
                let expected = (0..total).map(|s| (from..to).contains(&s) as i32);
                assert!(seen.into_iter().eq(expected), "{units} units, {from}..{to}: {bands:?}");
                for (a, b) in bands.iter().zip(&bands[1..]) {
                    assert!(a.high <= b.low, "bands do not overlap");
                }
            }
        }
    }
}
