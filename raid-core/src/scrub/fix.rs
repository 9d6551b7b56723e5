//! What to write to make a finding right.
//!
//! md's `repair` believes the data (RAID 4, 5, 6) or the first copy (RAID 1, 10): it makes
//! redundancy agree and may so make a wrong content final. Where the liar is known, writing what
//! the others say is right, and is refused where it is not known.

use super::finding::{Finding, Verdict};
use super::judge::by_power;
use crate::code;
use crate::layout::{Code, Role, Stripe, Unit};
use crate::units::{Sectors, Slot};

/// Whom to believe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// As md: parity from data, copies from the first one.
    Md,
    /// Correct who is known to be wrong (RAID 6), or the minority (three and more copies).
    Liars,
}

/// Something to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// The member's slot.
    pub slot: Slot,
    /// What the unit is.
    pub role: Role,
    /// First sector, counted from the member's data offset.
    pub at: Sectors,
    /// What was there.
    pub old: Vec<u8>,
    /// What to write.
    pub new: Vec<u8>,
}

/// What to write for `finding`; nothing (`None`) where the policy cannot decide or a unit that
/// would have to be known is absent.
pub fn fixes(code: Code, finding: &Finding, policy: Policy) -> Option<Vec<Fix>> {
    let targets: Vec<(usize, Vec<u8>)> = match (policy, &finding.verdict, code) {
        (Policy::Liars, Verdict::Liars(liars), _) => liars
            .iter()
            .map(|at| Some((*at, finding.parts[*at].implied.clone()?)))
            .collect::<Option<_>>()?,
        (Policy::Liars, _, _) | (_, _, Code::None) => return None,
        (Policy::Md, _, Code::Copy) => from_first(finding)?,
        (Policy::Md, _, Code::P | Code::PQ) => from_data(finding)?,
    };
    let fix = |(at, new): (usize, Vec<u8>)| {
        let part = &finding.parts[at];
        let old = part.content.clone()?;
        let (slot, role) = (part.unit.slot, part.unit.role);
        (old != new).then(|| Fix { slot, role, at: finding.member_at(part), old, new })
    };
    Some(targets.into_iter().filter_map(fix).collect())
}

fn from_first(finding: &Finding) -> Option<Vec<(usize, Vec<u8>)>> {
    let first = finding.parts.iter().find_map(|part| part.content.clone())?;
    Some((0..finding.parts.len()).map(|at| (at, first.clone())).collect())
}

fn from_data(finding: &Finding) -> Option<Vec<(usize, Vec<u8>)>> {
    let contents: Vec<Option<&[u8]>> =
        finding.parts.iter().map(|part| part.content.as_deref()).collect();
    let all: Option<Vec<&[u8]>> = contents.iter().copied().collect();
    let all = all?;
    let place = |role| finding.parts.iter().position(|part| part.unit.role == role);
    let p_at = place(Role::P)?;
    let (mut p, mut q) = (vec![0; all[0].len()], vec![0; all[0].len()]);
    let Some(q_at) = place(Role::Q) else {
        code::xor(&all[..p_at], &mut p);
        return Some(vec![(p_at, p)]);
    };
    let units: Vec<Unit> = finding.parts.iter().map(|part| part.unit).collect();
    let (no, start, len) = (finding.stripe, Sectors::ZERO, finding.len);
    let stripe = Stripe { no, start, len, units: units.into() };
    code::pq(&by_power(&stripe, &contents), &mut p, &mut q);
    Some(vec![(p_at, p), (q_at, q)])
}
