//! Looking whether redundancy agrees with data (check), and making it agree (repair).

use super::repair::repair;
use super::{Access, Band, Lost, Phase, Plan, Units, pick};
use crate::layout::Code;

/// The plan that reads all of `band` and compares; `fix`: where they differ, redundancy is made
/// anew as md's repair does: the first copy wins, P and Q follow the data.
///
/// Where a unit cannot be read there is less to compare: of copies the others; of parity nothing,
/// since what is left defines the missing unit. Such a plan is empty.
pub fn scrub(band: &Band, code: Code, access: &[Access], fix: bool) -> Result<Plan, Lost> {
    let readable = pick(&band.stripe, |i, _| access[i].read);
    let plan = match code {
        Code::None => Plan::default(),
        Code::Copy if readable.len() < 2 => Plan::default(),
        Code::P | Code::PQ if readable.len() < access.len() => Plan::default(),
        _ => {
            let targets = match fix {
                true => committed(repair(band, code, access)?),
                false => Units::new(),
            };
            Plan::of([Phase::Read(readable), Phase::Compare, Phase::Commit(targets)])
        }
    };
    plan.check(access);
    Ok(plan)
}

fn committed(plan: Plan) -> Units {
    match plan.phases.last() {
        Some(Phase::Commit(units)) => units.clone(),
        _ => Units::new(),
    }
}
