//! One page of a stripe: does it agree, and if not, who is wrong?
//!
//! P alone tells that something is wrong, never who. P and Q together name a single wrong unit
//! ([`code::locate`]); with one unit missing, one equation is left and nobody can be named. Copies
//! are compared sector by sector, and three or more of them vote.

use super::finding::{Finding, Verdict};
use crate::code::{self, Culprit};
use crate::layout::{Code, Role, Stripe};
use crate::units::Sectors;

/// Units that may be absent while there is still something to compare.
fn spare(code: Code) -> usize {
    match code {
        Code::PQ => 1,
        Code::None | Code::Copy | Code::P => 0,
    }
}

/// True if the units that are there can be compared with each other.
pub(super) fn is_comparable(code: Code, present: usize, units: usize) -> bool {
    match code {
        Code::None => false,
        Code::Copy => present >= 2,
        Code::P | Code::PQ => present + spare(code) >= units,
    }
}

/// True if all units are there and agree: the quick answer for runs of any length.
pub(super) fn agrees(code: Code, stripe: &Stripe, contents: &[&[u8]]) -> bool {
    let unit = |role| stripe.units.iter().position(|unit| unit.role == role).map(|i| contents[i]);
    match (code, unit(Role::P), unit(Role::Q)) {
        (Code::None, ..) => true,
        (Code::Copy, ..) => contents.windows(2).all(|pair| pair[0] == pair[1]),
        (_, Some(p), None) => code::check_p(&contents[..contents.len() - 1], p),
        (_, Some(p), Some(q)) => {
            let all: Vec<Option<&[u8]>> = contents.iter().map(|bytes| Some(*bytes)).collect();
            code::check_pq(&by_power(stripe, &all), p, q) == (true, true)
        }
        _ => panic!("a stripe of code {code:?} has its parity: {stripe:?}"),
    }
}

/// What disagrees in the sectors from `low` of each unit of `stripe`: nothing, one finding for
/// parity, one for each run of sectors for copies. `contents` by unit, equally long, whole
/// sectors; absent ones are `None`.
pub fn judge(
    code: Code,
    stripe: &Stripe,
    low: Sectors,
    contents: &[Option<&[u8]>],
) -> Vec<Finding> {
    let present = contents.iter().flatten().count();
    if !is_comparable(code, present, stripe.units.len()) {
        return Vec::new();
    }
    let whole: Option<Vec<&[u8]>> = contents.iter().copied().collect();
    if whole.is_some_and(|whole| agrees(code, stripe, &whole)) {
        return Vec::new();
    }
    match code {
        Code::None => Vec::new(),
        Code::Copy => copies(stripe, low, contents),
        Code::P => vec![parity(stripe, low, contents)],
        Code::PQ if present == contents.len() => vec![two_parities(stripe, low, contents)],
        Code::PQ => one_absent(stripe, low, contents).into_iter().collect(),
    }
}

/// Data of the stripe by their power in Q.
pub(super) fn by_power<'a>(
    stripe: &Stripe,
    contents: &[Option<&'a [u8]>],
) -> Vec<Option<&'a [u8]>> {
    let data = stripe.units.iter().zip(contents).filter(|(u, _)| matches!(u.role, Role::Data(_)));
    let top = data.clone().map(|(unit, _)| usize::from(unit.power)).max().unwrap_or(0);
    let mut table = vec![None; top + 1];
    for (unit, content) in data {
        table[usize::from(unit.power)] = *content;
    }
    table
}

fn sectors(contents: &[Option<&[u8]>]) -> Sectors {
    Sectors::floor_bytes(contents.iter().flatten().next().map_or(0, |bytes| bytes.len() as u64))
}

/// RAID 4 and 5: each unit may be wrong, and would then be the sum of the others.
fn parity(stripe: &Stripe, low: Sectors, contents: &[Option<&[u8]>]) -> Finding {
    let mut finding = Finding::new(stripe, low, sectors(contents), contents);
    let difference = sum(contents.iter().flatten().copied());
    for (part, content) in finding.parts.iter_mut().zip(contents.iter().flatten()) {
        part.implied = Some(sum([*content, &difference]));
    }
    finding
}

fn sum<'a>(sources: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let sources: Vec<&[u8]> = sources.into_iter().collect();
    let mut out = vec![0; sources.first().map_or(0, |bytes| bytes.len())];
    code::xor(&sources, &mut out);
    out
}

/// RAID 6 with all units there.
fn two_parities(stripe: &Stripe, low: Sectors, contents: &[Option<&[u8]>]) -> Finding {
    let mut finding = Finding::new(stripe, low, sectors(contents), contents);
    let place = |role| stripe.units.iter().position(|unit| unit.role == role);
    let (p_at, q_at) = (place(Role::P), place(Role::Q));
    let [p_at, q_at] = [p_at, q_at].map(|at| at.expect("a stripe with Q has P and Q"));
    let [p, q] = [p_at, q_at].map(|at| contents[at].expect("all units are there"));
    let (mut true_p, mut true_q) = (vec![0; p.len()], vec![0; q.len()]);
    code::pq(&by_power(stripe, contents), &mut true_p, &mut true_q);
    let p_difference = sum([p, &true_p]);
    let liar = match code::locate(&p_difference, &sum([q, &true_q])) {
        Culprit::P => Some((p_at, true_p)),
        Culprit::Q => Some((q_at, true_q)),
        Culprit::Data(power) => {
            let is_it = |role, unit| matches!(role, Role::Data(_)) && unit == power;
            let at = stripe.units.iter().position(|unit| is_it(unit.role, unit.power));
            at.map(|at| (at, sum([contents[at].expect("all units are there"), &p_difference])))
        }
        Culprit::Several | Culprit::Nothing => None,
    };
    finding.verdict = match liar {
        Some((at, implied)) => {
            finding.parts[at].implied = Some(implied);
            Verdict::Liars(vec![at])
        }
        None => Verdict::Several,
    };
    finding
}

/// RAID 6 with one unit absent: one equation is left, so it can be broken, but by anybody.
fn one_absent(stripe: &Stripe, low: Sectors, contents: &[Option<&[u8]>]) -> Option<Finding> {
    let absent = contents.iter().position(Option::is_none)?;
    let place = |role| stripe.units.iter().position(|unit| unit.role == role);
    let (p_at, q_at) = (place(Role::P)?, place(Role::Q)?);
    if absent == q_at {
        let rest: Vec<&[u8]> = contents.iter().flatten().copied().collect();
        let agrees = code::check_p(&rest[..rest.len() - 1], rest[rest.len() - 1]);
        return (!agrees).then(|| parity(stripe, low, contents));
    }
    let data = by_power(stripe, contents);
    let q = contents[q_at]?;
    let mut finding = Finding::new(stripe, low, sectors(contents), contents);
    let mut out = vec![0; q.len()];
    let lost = usize::from(stripe.units[absent].power);
    // Q as the data say; a lost data unit comes from P.
    let solved = match contents[p_at] {
        Some(p) if absent != p_at => Some(sum(data.iter().flatten().copied().chain([p]))),
        _ => None,
    };
    let mut complete = data.clone();
    if let Some(solved) = &solved {
        complete[lost] = Some(solved);
    }
    code::q(&complete, &mut out);
    if out == q {
        return None;
    }
    finding.parts[q_at].implied = Some(out);
    for at in (0..contents.len()).filter(|at| *at != absent && *at != q_at) {
        let power = usize::from(stripe.units[at].power);
        let (mut out, mut other) = (vec![0; q.len()], vec![0; q.len()]);
        match contents[p_at] {
            None => code::rec_data_q(&data, power, q, &mut out),
            Some(_) if at == p_at => code::rec_data_p(&data, lost, q, &mut other, &mut out),
            Some(p) => code::rec_two(&data, lost, power, p, q, &mut other, &mut out),
        }
        finding.parts[at].implied = Some(out);
    }
    Some(finding)
}

/// Which copies hold the same, one number for each content; absent copies have none.
type Groups = Vec<Option<usize>>;

/// Copies: runs of sectors in which the same copies differ from the same others.
fn copies(stripe: &Stripe, low: Sectors, contents: &[Option<&[u8]>]) -> Vec<Finding> {
    let mut findings: Vec<(Groups, Finding)> = Vec::new();
    for sector in 0..sectors(contents).0 {
        let bytes = Sectors(sector).len()..Sectors(sector + 1).len();
        let here: Vec<Option<&[u8]>> =
            contents.iter().map(|content| content.map(|all| &all[bytes.clone()])).collect();
        let groups = groups(&here);
        if groups.iter().flatten().all(|group| *group == 0) {
            continue;
        }
        let finding = vote(Finding::new(stripe, low + Sectors(sector), Sectors(1), &here), &groups);
        match findings.last_mut() {
            Some((last, run)) if *last == groups && run.low + run.len == finding.low => {
                run.join(finding);
            }
            _ => findings.push((groups, finding)),
        }
    }
    findings.into_iter().map(|(_, finding)| finding).collect()
}

fn groups(contents: &[Option<&[u8]>]) -> Groups {
    let mut seen: Vec<&[u8]> = Vec::new();
    let mut groups = Groups::with_capacity(contents.len());
    for content in contents {
        groups.push(content.map(|content| {
            let known = seen.iter().position(|known| *known == content);
            known.unwrap_or_else(|| {
                seen.push(content);
                seen.len() - 1
            })
        }));
    }
    groups
}

/// Most of three or more copies are right; of two each may be.
fn vote(mut finding: Finding, groups: &Groups) -> Finding {
    let present = groups.iter().flatten().count();
    let votes = |group: usize| groups.iter().flatten().filter(|g| **g == group).count();
    let winner = (0..present).find(|group| 2 * votes(*group) > present);
    let content_of = |finding: &Finding, group| {
        let at = groups.iter().position(|g| *g == Some(group))?;
        finding.parts[at].content.clone()
    };
    if let Some(winner) = winner {
        let right = content_of(&finding, winner);
        let is_wrong = |at: &usize| groups[*at].is_some_and(|group| group != winner);
        let liars: Vec<usize> = (0..groups.len()).filter(is_wrong).collect();
        liars.iter().for_each(|at| finding.parts[*at].implied.clone_from(&right));
        finding.verdict = Verdict::Liars(liars);
    } else if present == 2 {
        for (at, group) in groups.iter().enumerate() {
            let other = group.map(|group| 1 - group);
            finding.parts[at].implied = other.and_then(|group| content_of(&finding, group));
        }
    }
    finding
}
