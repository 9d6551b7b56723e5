//! Filling the units of a device that is being rebuilt, or that did not read.

use super::read::solvable;
use super::{Access, Band, Lost, Phase, Plan, Units, first_copy, pick};
use crate::layout::{Code, Role};

/// The plan that writes what the `targets` of `band` should hold, whatever they hold now.
///
/// A target that can be read (its member serves, another device is to replace it) is copied;
/// the others come back from redundancy.
pub fn recover(band: &Band, code: Code, access: &[Access], targets: &[u16]) -> Result<Plan, Lost> {
    let targets: Units = targets.iter().copied().filter(|&u| access[u as usize].write).collect();
    let readable = |unit: u16| access[unit as usize].read;
    let plan = match code {
        _ if targets.is_empty() => Plan::default(),
        Code::None | Code::Copy => {
            let source = first_copy(access).ok_or(Lost)? as u16;
            Plan::of([Phase::Read(Units::from_slice(&[source])), Phase::Commit(targets)])
        }
        Code::P | Code::PQ if targets.iter().all(|&u| readable(u)) => {
            Plan::of([Phase::Read(targets.clone()), Phase::Commit(targets)])
        }
        Code::P | Code::PQ => rebuilt(band, access, targets)?,
    };
    plan.check(access);
    Ok(plan)
}

/// All data is read or solved, then the parity that is wanted is made from it.
fn rebuilt(band: &Band, access: &[Access], targets: Units) -> Result<Plan, Lost> {
    let (reads, lost) = solvable(band, access)?;
    let is_parity = |u: u16| !matches!(band.stripe.units[u as usize].role, Role::Data(_));
    let mut phases = vec![Phase::Read(reads), Phase::Solve(lost)];
    if targets.iter().any(|&u| is_parity(u)) {
        phases.push(Phase::Encode);
    }
    let wanted = pick(&band.stripe, |i, _| targets.contains(&(i as u16)));
    phases.push(Phase::Commit(wanted));
    Ok(Plan::of(phases))
}
