//! From candidates to the members of one array: readable superblocks, grouped by array id.

use super::group::{Group, groups, sound};
use super::{Candidate, Fate, Options, Refusal, Verdict, words};
use crate::error::ErrorKind;
use crate::meta::record::DeviceRole;
use crate::meta::{Found, Sighting, examine, uuid};
use crate::units::Sectors;

/// A candidate with the one superblock that counts.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Index into the candidates.
    pub index: usize,
    /// The candidate's name.
    pub name: &'a str,
    /// Its superblock.
    pub found: &'a Found,
}

impl Entry<'_> {
    /// The update counter.
    pub fn events(&self) -> u64 {
        self.found.array.events
    }

    /// The device number.
    pub fn number(&self) -> u32 {
        self.found.member.number
    }

    /// How far it was filled, if not to the end.
    pub fn recovery(&self) -> Option<Sectors> {
        let component = self.found.array.component;
        self.found.member.recovery.filter(|&at| at < component || component.is_empty())
    }

    /// What the member's own map says it is.
    pub fn own_role(&self) -> DeviceRole {
        self.found.array.role(self.number())
    }

    /// True if the member's map does not count `other` as active.
    pub fn calls_failed(&self, other: &Entry<'_>) -> bool {
        let theirs = self.found.array.role(other.number());
        matches!(theirs, DeviceRole::Faulty | DeviceRole::Spare)
    }
}

impl Entry<'_> {
    /// True if this member has served in the array without `other` and without anybody in its
    /// place. A map from before `other` joined does not say that: devices that join later get
    /// numbers beyond the slots, and are nobody in older maps.
    pub fn ran_without(&self, other: &Entry<'_>) -> bool {
        let DeviceRole::Active(slot) = other.own_role() else { return false };
        let held = self.found.array.roles.contains(&DeviceRole::Active(slot));
        self.calls_failed(other) && !held && !self.never_met(other)
    }

    /// True if the member's map is from before `other` joined.
    pub fn never_met(&self, other: &Entry<'_>) -> bool {
        let array = &self.found.array;
        other.number() >= u32::from(array.slots) && array.role(other.number()) == DeviceRole::Spare
    }

    /// True if the member's own superblock was not told yet that it has a place: what is to be in
    /// it is not there.
    pub fn is_unaware(&self) -> bool {
        !matches!(self.own_role(), DeviceRole::Active(_))
    }
}

/// Fates by candidate, filled as decisions fall.
#[derive(Debug)]
pub struct Verdicts(Vec<Verdict>);

impl Verdicts {
    /// Nothing decided yet.
    pub fn new(candidates: &[Candidate]) -> Verdicts {
        let undecided = |candidate: &Candidate| Verdict {
            name: candidate.name.clone(),
            fate: Fate::Out,
            why: String::new(),
        };
        Verdicts(candidates.iter().map(undecided).collect())
    }

    /// Decides about candidate `index`.
    pub fn set(&mut self, index: usize, fate: Fate, why: impl Into<String>) {
        self.0[index].fate = fate;
        self.0[index].why = why.into();
    }

    /// Forgets those about whom `wanted` says no.
    pub fn keep(&mut self, wanted: impl Fn(usize) -> bool) {
        let mut index = 0..;
        self.0.retain(|_| wanted(index.next().expect("the range has no end")));
    }

    /// Ends in a refusal.
    pub fn refuse(self, kind: ErrorKind, reason: impl Into<String>) -> Refusal {
        Refusal { kind, reason: reason.into(), verdicts: self.0 }
    }

    /// All of them.
    pub fn into_vec(self) -> Vec<Verdict> {
        self.0
    }
}

/// The members of the one array that is meant.
pub fn gather<'a>(
    candidates: &'a [Candidate],
    options: &Options,
    mut verdicts: Verdicts,
) -> Result<(Vec<Entry<'a>>, Verdicts), Refusal> {
    let Some(uuid) = chosen(candidates, options, &mut verdicts) else {
        return Err(unchosen(candidates, options, verdicts));
    };
    let groups = groups(candidates);
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        match superblock_of(candidate, &groups, &uuid) {
            Ok(found) => {
                // Stays where the array is refused before anything is decided about members.
                let (events, time) = (found.array.events, words::time(&found.array));
                verdicts.set(index, Fate::Out, format!("{events} events, last updated {time}"));
                entries.push(Entry { index, name: &candidate.name, found });
            }
            Err(why) => verdicts.set(index, Fate::Out, why),
        }
    }
    if entries.is_empty() {
        let reason = format!("no member of array {} can be used", uuid::to_text(&uuid));
        return Err(verdicts.refuse(ErrorKind::Metadata, reason));
    }
    Ok((entries, verdicts))
}

/// The array id: the one asked for, or the only one there is.
fn chosen(
    candidates: &[Candidate],
    options: &Options,
    verdicts: &mut Verdicts,
) -> Option<[u8; 16]> {
    let groups = groups(candidates);
    for (index, candidate) in candidates.iter().enumerate() {
        let why = match sound(candidate).next() {
            Some(identity) => stranger(&groups, &identity.uuid),
            None => superblock_of(candidate, &groups, &[0; 16]).err().unwrap_or_default(),
        };
        verdicts.set(index, Fate::Out, why);
    }
    match (options.uuid, groups.as_slice()) {
        (Some(uuid), groups) => groups.iter().any(|group| group.uuid == uuid).then_some(uuid),
        (None, [only]) => Some(only.uuid),
        (None, _) => None,
    }
}

/// No array was meant clearly: none is there, or several.
fn unchosen(candidates: &[Candidate], options: &Options, mut verdicts: Verdicts) -> Refusal {
    let groups = groups(candidates);
    // Who belongs to an array is told with it.
    verdicts.keep(|index| !groups.iter().any(|group| group.members.contains(&index)));
    let line = |group: &Group| {
        let names: Vec<&str> =
            group.members.iter().map(|&index| candidates[index].name.as_str()).collect();
        let (id, level) = (uuid::to_text(&group.uuid), examine::level_name(group.level));
        let name = examine::printable(&group.name);
        format!("\n  --uuid {id}  {level}, name {name:?}: {}", names.join(", "))
    };
    let list: String = groups.iter().map(line).collect();
    match (&options.uuid, groups.len()) {
        (uuid, 0) => verdicts.refuse(
            if uuid.is_some() { ErrorKind::Refused } else { ErrorKind::Metadata },
            "none of the devices carries an md superblock that can be used",
        ),
        (Some(uuid), _) => verdicts.refuse(
            ErrorKind::Refused,
            format!("no device belongs to array {}; there are:{list}", uuid::to_text(uuid)),
        ),
        (None, n) => verdicts.refuse(
            ErrorKind::Refused,
            format!("the devices belong to {n} arrays; choose one with --uuid:{list}"),
        ),
    }
}

/// `a member of another array, raid1 "bob"`.
fn stranger(groups: &[Group], uuid: &[u8; 16]) -> String {
    match groups.iter().find(|group| group.uuid == *uuid) {
        Some(group) => format!("a member of another array, {}", group.title()),
        None => format!("a member of another array, {}", uuid::to_text(uuid)),
    }
}

/// The candidate's superblock of array `uuid`, or in words why there is none.
fn superblock_of<'a>(
    candidate: &'a Candidate,
    groups: &[Group],
    uuid: &[u8; 16],
) -> Result<&'a Found, String> {
    let mut others = Vec::new();
    let mut found: Option<(&Found, &Sighting)> = None;
    for sighting in &candidate.sightings {
        match (&sighting.record, found) {
            (Ok(record), None) if record.array.uuid == *uuid => found = Some((record, sighting)),
            (Ok(record), Some((_, first))) if record.array.uuid == *uuid => {
                return Err(format!(
                    "it carries two superblocks of this array, {} at sector {} and {} at sector \
                     {}; erase the wrong one",
                    first.format, first.at, sighting.format, sighting.at
                ));
            }
            (Ok(record), _) => {
                others.push(stranger(groups, &record.array.uuid));
            }
            (Err(error), _) => others.push(format!(
                "its {} superblock at sector {} cannot be used: {error}",
                sighting.format, sighting.at
            )),
        }
    }
    match (found, others.is_empty()) {
        (Some((found, _)), _) => Ok(found),
        (None, true) => Err("it carries no md superblock".into()),
        (None, false) => Err(others.join("; ")),
    }
}
