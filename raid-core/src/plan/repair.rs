//! Making a band consistent: copies from the first good one, parity from data (resync).

use super::read::solvable;
use super::{Access, Band, Lost, Phase, Plan, Units, first_copy, pick};
use crate::layout::{Code, Role};

/// The plan that makes the redundancy of `band` agree with its data, as md's resync does:
/// the first readable copy wins; P and Q are computed anew.
///
/// Units that take writes but cannot be read (their member is being rebuilt) are written too.
pub fn repair(band: &Band, code: Code, access: &[Access]) -> Result<Plan, Lost> {
    let plan = match code {
        Code::None => Plan::default(),
        Code::Copy => {
            let source = first_copy(access).ok_or(Lost)?;
            let targets = pick(&band.stripe, |i, _| i != source && access[i].write);
            match targets.is_empty() {
                true => Plan::default(),
                false => {
                    let read = Phase::Read(Units::from_slice(&[source as u16]));
                    Plan::of([read, Phase::Commit(targets)])
                }
            }
        }
        Code::P | Code::PQ => {
            let (reads, lost) = solvable(band, access)?;
            let targets = pick(&band.stripe, |i, role| {
                access[i].write && (!matches!(role, Role::Data(_)) || !access[i].read)
            });
            match targets.is_empty() {
                // All that could be made is on members that are gone.
                true => Plan::default(),
                false => Plan::of([
                    Phase::Read(reads),
                    Phase::Solve(lost),
                    Phase::Encode,
                    Phase::Commit(targets),
                ]),
            }
        }
    };
    plan.check(access);
    Ok(plan)
}
