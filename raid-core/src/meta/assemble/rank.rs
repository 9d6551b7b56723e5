//! Who is fresh, who is stale, who went its own way.

use super::gather::{Entry, Verdicts, gather};
use super::{Candidate, Fate, Options, Refusal, words};
use crate::error::ErrorKind;
use crate::meta::record::{ArrayRecord, DeviceRole};
use crate::meta::uuid;

/// Refuses two copies of one member.
pub fn refuse_copies(entries: &[Entry<'_>], verdicts: Verdicts) -> Result<Verdicts, Refusal> {
    for (k, a) in entries.iter().enumerate() {
        let same = |b: &&Entry<'_>| {
            (b.found.member.device_uuid == a.found.member.device_uuid
                && a.found.member.device_uuid != [0; 16])
                || (b.found.member.device_uuid == [0; 16]
                    && b.number() == a.number()
                    && b.events() == a.events())
        };
        if let Some(b) = entries[k + 1..].iter().find(same) {
            let reason = format!(
                "{} and {} are two copies of one member (device {}, id {}; events {} and {}); \
                 give only one of them",
                a.name,
                b.name,
                a.number(),
                uuid::to_text(&a.found.member.device_uuid),
                a.events(),
                b.events()
            );
            return Err(verdicts.refuse(ErrorKind::Refused, reason));
        }
    }
    Ok(verdicts)
}

/// True if `other` got the number of `entry` after that had left the array as a spare.
pub fn supersedes(other: &Entry<'_>, entry: &Entry<'_>) -> bool {
    let waits = |e: &Entry<'_>| e.own_role() == DeviceRole::Spare;
    other.index != entry.index
        && other.number() == entry.number()
        && waits(entry)
        && (!waits(other) || other.events() > entry.events())
}

/// The entry that speaks for the array: of those that are active by their own word the one
/// with most events, and of equals one that no equal calls failed.
pub fn freshest<'a, 'b>(
    entries: &'b [Entry<'a>],
    verdicts: Verdicts,
) -> Result<(&'b Entry<'a>, Verdicts), Refusal> {
    let is_active = |e: &&Entry<'_>| matches!(e.own_role(), DeviceRole::Active(_));
    let active: Vec<&Entry<'a>> = entries.iter().filter(is_active).collect();
    let Some(most) = active.iter().map(|e| e.events()).max() else {
        return Err(verdicts.refuse(
            ErrorKind::Dead,
            "all members that were found are spares, failed or journals: none holds data",
        ));
    };
    if let Some(reason) = split(&active) {
        return Err(verdicts.refuse(ErrorKind::Refused, reason));
    }
    let equals: Vec<&&Entry<'a>> = active.iter().filter(|e| e.events() == most).collect();
    let trusted = equals
        .iter()
        .filter(|e| !equals.iter().any(|judge| judge.index != e.index && judge.calls_failed(e)));
    match trusted.min_by_key(|e| (e.number(), e.index)) {
        Some(&&freshest) => Ok((freshest, verdicts)),
        None => {
            let names: Vec<&str> = equals.iter().map(|e| e.name).collect();
            let reason = format!(
                "the members {} have equally many events, but each is called failed by another; \
                 give only those that belong together, with --degraded --read-only",
                names.join(", ")
            );
            Err(verdicts.refuse(ErrorKind::Refused, reason))
        }
    }
}

/// The two sides of a split array, as indices into the candidates; none where
/// the members of array `uuid` agree on who is active.
pub fn halves(candidates: &[Candidate], uuid: [u8; 16]) -> Option<[Vec<usize>; 2]> {
    let options = Options { uuid: Some(uuid), ..Options::default() };
    let (entries, _) = gather(candidates, &options, Verdicts::new(candidates)).ok()?;
    let is_active = |e: &&Entry<'_>| matches!(e.own_role(), DeviceRole::Active(_));
    let active: Vec<&Entry<'_>> = entries.iter().filter(is_active).collect();
    let foes = foes(&active)?;
    Some(foes.map(|foe| friends(&active, foe).map(|e| e.index).collect()))
}

/// Two members that call each other failed: both have run without the other.
fn foes<'b, 'a>(active: &[&'b Entry<'a>]) -> Option<[&'b Entry<'a>; 2]> {
    active.iter().enumerate().find_map(|(k, a)| {
        let b = active[k + 1..].iter().find(|b| a.ran_without(b) && b.ran_without(a))?;
        Some([*a, *b])
    })
}

/// Those that `of` counts as active, and itself.
fn friends<'b, 'a>(
    active: &[&'b Entry<'a>],
    of: &'b Entry<'a>,
) -> impl Iterator<Item = &'b Entry<'a>> {
    active.iter().copied().filter(move |e| e.index == of.index || !of.calls_failed(e))
}

/// Split brain, in words.
fn split<'b, 'a>(active: &[&'b Entry<'a>]) -> Option<String> {
    let [a, b] = foes(active)?;
    let half = |of| words::quoted(friends(active, of).map(|e| e.name));
    let side = |e: &Entry<'_>| {
        format!("{} ({} events, updated {})", e.name, e.events(), words::time(&e.found.array))
    };
    Some(format!(
        "each member says the other is faulty: {} and {} were both used without the other, \
         and their data may differ. Look at either half by itself with --degraded --read-only: \
         {}, or {}; where they differ: `raid-fuse assemble --explain --diff {}`",
        side(a),
        side(b),
        half(a),
        half(b),
        words::quoted(active.iter().map(|e| e.name))
    ))
}

/// Sorts out who differs from the freshest in what all must agree on: a stale one is left
/// out, a fresh one is reason to refuse.
pub fn drop_strangers<'a>(
    entries: Vec<Entry<'a>>,
    freshest: &Entry<'a>,
    mut verdicts: Verdicts,
) -> Result<(Vec<Entry<'a>>, Verdicts), Refusal> {
    let mut kept = Vec::with_capacity(entries.len());
    for entry in entries {
        let difference = difference(&freshest.found.array, &entry.found.array).or_else(|| {
            let (a, b) = (freshest.found.format.name, entry.found.format.name);
            (a != b).then(|| format!("metadata {b} instead of {a}"))
        });
        match difference {
            None => kept.push(entry),
            Some(what) if is_stale(&entry, freshest) => verdicts.set(
                entry.index,
                Fate::Out,
                format!("{}, and it has {what}", words::behind(&entry, freshest)),
            ),
            Some(what) => {
                let reason = format!(
                    "{} does not match {}: it has {what}; if it does not belong there, \
                     leave it out",
                    entry.name, freshest.name
                );
                return Err(verdicts.refuse(ErrorKind::Metadata, reason));
            }
        }
    }
    Ok((kept, verdicts))
}

/// More than the one event behind that a power cut explains.
pub fn is_stale(entry: &Entry<'_>, freshest: &Entry<'_>) -> bool {
    entry.events().saturating_add(1) < freshest.events()
}

/// The first thing members must agree on and do not.
fn difference(ours: &ArrayRecord, theirs: &ArrayRecord) -> Option<String> {
    let checks = [
        ("level", i64::from(ours.level), i64::from(theirs.level)),
        ("layout", i64::from(ours.layout), i64::from(theirs.layout)),
        ("a chunk (sectors) of", ours.chunk.0 as i64, theirs.chunk.0 as i64),
        ("slots", i64::from(ours.slots), i64::from(theirs.slots)),
        ("a component size (sectors) of", ours.component.0 as i64, theirs.component.0 as i64),
        ("creation time", ours.ctime as i64, theirs.ctime as i64),
    ];
    let differing = checks.into_iter().find(|(_, a, b)| a != b);
    differing.map(|(what, a, b)| format!("{what} {b} instead of {a}"))
}
