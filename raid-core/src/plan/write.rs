//! Writing a band: whole stripe, read-modify-write, reconstruct-write; count the reads, take fewer.
//!
//! * *full*: every data unit is wanted: nothing is read.
//! * *reconstruct*: read the data units that are not written, encode parity from all.
//! * *read-modify-write*: read the old content of what is written and of parity, update parity.
//! * *solve*: a unit that is not written is lost and read-modify-write is not possible: bring it
//!   back from redundancy first, then encode.
//!
//! On a tie reconstruct wins: it also repairs parity that was wrong. md decides the same way
//! (`handle_stripe_dirtying` in its raid5.c takes read-modify-write only if it reads strictly
//! fewer units). Where parity may not be consistent (not yet resynced), read-modify-write would
//! keep it wrong, so it is not considered there; md does the same.

use super::read::solvable;
use super::{Access, Band, Lost, Phase, Plan, Units, pick};
use crate::layout::{Code, Role};

/// The plan that puts new content into the wanted units of `band`.
///
/// `consistent`: parity of this band is known to match its data. `told`: all of it is told to a
/// journal first, which must know all parity of a stripe or none: also what is not written.
/// Units whose member is gone are not written; their new content lives in redundancy alone.
pub fn write(
    band: &Band,
    code: Code,
    access: &[Access],
    consistent: bool,
    told: bool,
) -> Result<Plan, Lost> {
    let plan = match code {
        Code::None | Code::Copy => copies(band, access)?,
        Code::P | Code::PQ => parity(band, code, access, (consistent, told))?,
    };
    plan.check(access);
    Ok(plan)
}

/// The same plan where writes are told to a partial parity log before they are done. Without
/// parity to write there is nothing to tell, unless everything is told (`always`): to a journal.
pub fn logged(mut plan: Plan, band: &Band, always: bool) -> Plan {
    let is_parity = |u: &u16| band.stripe.units[*u as usize].role == Role::P;
    if let Some(Phase::Commit(units)) = plan.phases.last()
        && (always || units.iter().any(is_parity))
    {
        plan.phases.insert(plan.phases.len() - 1, Phase::Log);
    }
    plan
}

fn copies(band: &Band, access: &[Access]) -> Result<Plan, Lost> {
    let commit = pick(&band.stripe, |i, _| access[i].write);
    match commit.is_empty() {
        true => Err(Lost),
        false => Ok(Plan::of([Phase::Commit(commit)])),
    }
}

fn parity(
    band: &Band,
    code: Code,
    access: &[Access],
    (consistent, told): (bool, bool),
) -> Result<Plan, Lost> {
    let tolerance = if code == Code::PQ { 2 } else { 1 };
    if access.iter().filter(|a| !a.write).count() > tolerance {
        return Err(Lost);
    }
    let written = |role| match role {
        Role::Data(n) => band.wants(n),
        _ => true,
    };
    let commit = pick(&band.stripe, |i, role| written(role) && access[i].write);
    if !commit.iter().any(|&u| band.stripe.units[u as usize].role.is_parity()) {
        return Ok(Plan::of([Phase::Commit(commit)]));
    }
    let Ways { reconstruct, modify } = ways(band, access);
    let parity = pick(&band.stripe, |_, role| role.is_parity());
    let all_written = parity.iter().all(|u| access[*u as usize].write);
    let modify = modify.filter(|_| consistent && (all_written || !told));
    let (reads, compute) = match (reconstruct, modify) {
        (Some(rest), Some(old)) if old.len() < rest.len() => (old, Phase::Update),
        (Some(rest), _) => (rest, Phase::Encode),
        (None, Some(old)) => (old, Phase::Update),
        (None, None) => {
            let (reads, lost) = solvable(band, access)?;
            let phases =
                [Phase::Read(reads), Phase::Solve(lost), Phase::Encode, Phase::Commit(commit)];
            return Ok(Plan::of(phases));
        }
    };
    Ok(Plan::of([Phase::Read(reads), compute, Phase::Commit(commit)]))
}

/// The two ways to write a band of a stripe with parity, as what each must read; `None` where
/// a unit it needs cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ways {
    /// Reconstruct-write: the data units that are not written.
    pub reconstruct: Option<Units>,
    /// Read-modify-write: the old content of what is written, and of parity.
    pub modify: Option<Units>,
}

/// What [`write()`] chooses between.
pub fn ways(band: &Band, access: &[Access]) -> Ways {
    Ways { reconstruct: reconstruct(band, access), modify: modify(band, access) }
}

/// The data units that are not written, if all of them can be read.
fn reconstruct(band: &Band, access: &[Access]) -> Option<Units> {
    let rest = pick(&band.stripe, |_, role| matches!(role, Role::Data(n) if !band.wants(n)));
    rest.iter().all(|&u| access[u as usize].read).then_some(rest)
}

/// The written data units and the parity units that take writes, if all of them can be read.
fn modify(band: &Band, access: &[Access]) -> Option<Units> {
    let old = pick(&band.stripe, |i, role| match role {
        Role::Data(n) => band.wants(n),
        _ => access[i].write,
    });
    old.iter().all(|&u| access[u as usize].read).then_some(old)
}
