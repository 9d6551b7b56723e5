//! Reading a band: straight from the units that can be read, the rest solved from redundancy.

use super::{Access, Band, Lost, Phase, Plan, Units, first_copy, pick};
use crate::layout::{Code, Role};

/// The plan that fills the wanted units of `band`.
///
/// `heal`: units whose content is solved are written back to their members where these take
/// writes (a sector that could not be read is rewritten, as md does).
pub fn read(band: &Band, code: Code, access: &[Access], heal: bool) -> Result<Plan, Lost> {
    let plan = match code {
        Code::None => none(band, access)?,
        Code::Copy => copies(band, access, heal)?,
        Code::P | Code::PQ => parity(band, access, heal)?,
    };
    plan.check(access);
    Ok(plan)
}

fn none(band: &Band, access: &[Access]) -> Result<Plan, Lost> {
    match access[band.first as usize].read {
        true => Ok(Plan::of([Phase::Read(Units::from_slice(&[band.first])), Phase::Answer])),
        false => Err(Lost),
    }
}

/// The first copy that can be read: md's order, which for far layouts is the fast outer half;
/// members marked write-mostly come last.
fn copies(band: &Band, access: &[Access], heal: bool) -> Result<Plan, Lost> {
    let source = first_copy(access).ok_or(Lost)? as u16;
    let lost = pick(&band.stripe, |i, _| heal && !access[i].read && access[i].write);
    let read = Phase::Read(Units::from_slice(&[source]));
    Ok(Plan::of([read, Phase::Answer, Phase::Commit(lost)]))
}

fn parity(band: &Band, access: &[Access], heal: bool) -> Result<Plan, Lost> {
    let wanted = |role| matches!(role, Role::Data(n) if band.wants(n));
    let lost_wanted = pick(&band.stripe, |i, role| wanted(role) && !access[i].read);
    if lost_wanted.is_empty() {
        let units = pick(&band.stripe, |_, role| wanted(role));
        return Ok(Plan::of([Phase::Read(units), Phase::Answer]));
    }
    let (reads, lost) = solvable(band, access)?;
    let healed = pick(&band.stripe, |i, role| {
        heal && access[i].write && matches!(role, Role::Data(_)) && !access[i].read
    });
    Ok(Plan::of([Phase::Read(reads), Phase::Solve(lost), Phase::Answer, Phase::Commit(healed)]))
}

/// What to read so that every lost data unit of the stripe can be solved, and which these are:
/// all readable data and as many parity units as data units are lost, P first.
pub(super) fn solvable(band: &Band, access: &[Access]) -> Result<(Units, Units), Lost> {
    let is_data = |role| matches!(role, Role::Data(_));
    let lost = pick(&band.stripe, |i, role| is_data(role) && !access[i].read);
    let mut reads = pick(&band.stripe, |i, role| is_data(role) && access[i].read);
    let parity = pick(&band.stripe, |i, role| !is_data(role) && access[i].read);
    if parity.len() < lost.len() {
        return Err(Lost);
    }
    reads.extend(parity.into_iter().take(lost.len()));
    Ok((reads, lost))
}
