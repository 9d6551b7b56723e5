//! The ways to start, and how each comes out.

use super::witness::{Witness, events_max, is_stale};
use crate::report::evidence;
use raid_core::assembly::{self, StartOptions};
use raid_core::device::Shared;
use raid_core::error::{Error, Result};
use raid_core::meta::assemble::{Assembly, Options, Seat, SeatState};
use raid_core::scrub::{self, Summary, Target};
use raid_core::units::Sectors;
use std::collections::BTreeSet;
use std::ops::Range;

/// Ways tried at most: each reads from all members.
const TRIES_MAX: usize = 24;

/// Options of `mount`, the gentlest first.
const LADDER: &[Flags] = &[
    Flags { degraded: false, read_only: false, force: false },
    Flags { degraded: true, read_only: false, force: false },
    Flags { degraded: true, read_only: true, force: false },
    FORCED,
];

const FORCED: Flags = Flags { degraded: true, read_only: false, force: true };

/// Options of `mount`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// `--degraded`.
    pub degraded: bool,
    /// `--read-only`.
    pub read_only: bool,
    /// `--force`, on an overlay.
    pub force: bool,
}

/// A way to start.
pub struct Try {
    /// In words: which members, which options.
    pub label: String,
    /// The options.
    pub flags: Flags,
    /// How it came out, or why it does not start.
    pub result: Result<Start>,
}

/// An array that starts.
pub struct Start {
    /// The decision, for reading only.
    pub assembly: Assembly,
    /// Paths of the members that serve.
    pub names: Vec<String>,
    /// What the comparison of random rows came to.
    pub check: Check,
    /// The file system that is seen.
    pub shows: String,
    /// Rows that an interrupted write may have left inconsistent, where a member that is missing
    /// makes that matter; and whether a bitmap says so.
    pub at_risk: Option<(Vec<Range<u64>>, bool)>,
}

/// What a comparison of random rows came to.
pub struct Check {
    /// The count.
    pub summary: Summary,
    /// Rows that do not agree.
    pub rows: u64,
}

impl Check {
    fn of(target: &Target, sample: (u64, u64)) -> Check {
        let options = scrub::Options { sample: Some(sample), limit: None, unsynced_too: true };
        let mut rows = BTreeSet::new();
        let mut found = |finding: scrub::Finding| {
            rows.insert(finding.stripe);
        };
        let summary = scrub::scan(target, &options, &mut found, &mut |_, _| {});
        Check { summary, rows: rows.len() as u64 }
    }

    /// True if there was something to compare.
    pub fn is_telling(&self) -> bool {
        self.summary.pages > 0
    }
}

/// All ways, each with how it came out; ways that seat the same members are tried once.
pub fn all(
    devices: &[Shared],
    witnesses: &[Witness],
    uuid: &[u8; 16],
    sample: (u64, u64),
) -> Vec<Try> {
    let mut round =
        Round { devices, witnesses, uuid, sample, tries: Vec::new(), seen: BTreeSet::new() };
    let sets = sets(witnesses);
    for (number, (label, chosen)) in sets.iter().enumerate() {
        // By force only all of them, as long as there may be a way without.
        let rungs = if number == 0 { LADDER } else { &LADDER[..LADDER.len() - 1] };
        round.climb(label, chosen, rungs);
    }
    let gentle = |attempt: &Try| attempt.result.is_ok() && !attempt.flags.force;
    if !round.tries.iter().any(gentle) {
        sets.iter().skip(1).for_each(|(label, chosen)| round.climb(label, chosen, &[FORCED]));
    }
    round.tries
}

struct Round<'a> {
    devices: &'a [Shared],
    witnesses: &'a [Witness],
    uuid: &'a [u8; 16],
    sample: (u64, u64),
    tries: Vec<Try>,
    seen: BTreeSet<Vec<String>>,
}

impl Round<'_> {
    /// The gentlest of these options with which the `chosen` start.
    fn climb(&mut self, label: &str, chosen: &[usize], rungs: &[Flags]) {
        let everybody = chosen.len() == self.witnesses.len();
        let chosen: Vec<Shared> = match everybody {
            // Strangers too: why they are left out is part of the answer.
            true => self.devices.to_vec(),
            false => {
                let device = |at: &usize| self.devices[self.witnesses[*at].index].clone();
                chosen.iter().map(device).collect()
            }
        };
        for flags in rungs {
            if self.tries.len() == TRIES_MAX {
                return;
            }
            let decided = decide(&chosen, self.uuid, *flags);
            let started = decided.is_ok();
            let worth = match &decided {
                Ok(assembly) => self.seen.insert(who(assembly)),
                Err(_) => everybody && *flags == LADDER[0],
            };
            if worth {
                let result = decided.and_then(|assembly| start(assembly, &chosen, self.sample));
                self.tries.push(Try { label: named(label, *flags), flags: *flags, result });
            }
            if started {
                return;
            }
        }
    }
}

/// Groups of members that may belong together, as words and places in the list of witnesses.
fn sets(witnesses: &[Witness]) -> Vec<(String, Vec<usize>)> {
    let everybody: Vec<usize> = (0..witnesses.len()).collect();
    let mut sets = vec![("all members".to_string(), everybody.clone())];
    let mut add = |label: String, chosen: Vec<usize>| {
        if !chosen.is_empty() && sets.iter().all(|(_, known)| *known != chosen) {
            sets.push((label, chosen));
        }
    };
    for (at, witness) in witnesses.iter().enumerate() {
        let accused = witnesses.iter().any(|judge| judge.accuses.contains(&at));
        let twin =
            witnesses.iter().enumerate().any(|(other, w)| other != at && is_copy(w, witness));
        if twin || accused || !witness.accuses.is_empty() || is_stale(witness, witnesses) {
            let rest = everybody.iter().copied().filter(|other| *other != at).collect();
            add(format!("without {}", witness.name), rest);
        }
    }
    for (at, witness) in witnesses.iter().enumerate().filter(|(_, w)| !w.accuses.is_empty()) {
        let friend = |other: &usize| !witness.accuses.contains(other);
        let friends = everybody.iter().copied().filter(friend).collect();
        add(format!("those that {} counts as members", witnesses[at].name), friends);
    }
    let events: BTreeSet<u64> = witnesses.iter().map(Witness::events).collect();
    for count in events.into_iter().rev().filter(|count| *count < events_max(witnesses)) {
        let near = |at: &usize| count.abs_diff(witnesses[*at].events()) <= 1;
        let group = everybody.iter().copied().filter(near).collect();
        add(format!("those with about {count} events"), group);
    }
    sets
}

/// One member twice: two files with the same superblock, however old.
fn is_copy(a: &Witness, b: &Witness) -> bool {
    let (a, b) = (&a.member, &b.member);
    match a.device_uuid == [0; 16] {
        // Metadata 0.90 gives its members no ids.
        true => b.device_uuid == [0; 16] && a.number == b.number,
        false => a.device_uuid == b.device_uuid,
    }
}

fn named(label: &str, flags: Flags) -> String {
    let words = [
        (flags.degraded && !flags.force, " --degraded"),
        (flags.read_only, " --read-only"),
        (flags.force, " --force"),
    ];
    let options: String = words.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
    match options.is_empty() {
        true => format!("{label}, as they are"),
        false => format!("{label}, with{options}"),
    }
}

/// As `mount` would decide; then again for reading, which keeps what is known of the dirt.
fn decide(devices: &[Shared], uuid: &[u8; 16], flags: Flags) -> Result<Assembly> {
    let options = Options {
        uuid: Some(*uuid),
        degraded: flags.degraded,
        read_only: flags.read_only,
        overlay: flags.force,
        force: flags.force,
    };
    let candidates = super::examine(devices);
    assembly::decide(&candidates, &options)?;
    assembly::decide(&candidates, &Options { read_only: true, ..options })
}

/// The members that serve, by slot.
fn who(assembly: &Assembly) -> Vec<String> {
    let name = |seat: &Option<Seat>| seat.as_ref().map_or(String::new(), |seat| seat.name.clone());
    assembly.seats.iter().map(name).collect()
}

fn start(assembly: Assembly, devices: &[Shared], sample: (u64, u64)) -> Result<Start> {
    let target = Target::of(&assembly, devices)?;
    let check = Check::of(&target, sample);
    let options = StartOptions { read_only: true, ..StartOptions::default() };
    let shows = assembly::start(&assembly, devices, &options).and_then(|array| {
        let shows = evidence::of(&array);
        array.stop()?;
        Ok(shows)
    });
    let parity = target.layout.shape().code.has_parity();
    let risky = parity && !target.unsynced.is_empty() && !target.incomplete().is_empty();
    let at_risk =
        risky.then(|| (target.unsynced.stripes(&*target.layout), target.unsynced.has_bitmap()));
    Ok(Start {
        names: who(&assembly).into_iter().filter(|name| !name.is_empty()).collect(),
        check,
        shows: shows.unwrap_or_else(|error: Error| format!("cannot be read: {error}")),
        at_risk,
        assembly,
    })
}

/// Everybody in the slot they claim, however stale and accused: not a way to start, but how well
/// they agree tells how much they have grown apart. Nothing if two claim one slot, if members
/// differ in geometry, or if nobody is stale or accused.
pub fn together(witnesses: &[Witness], devices: &[Shared], sample: (u64, u64)) -> Option<Check> {
    let doubted = |witness: &Witness| !witness.accuses.is_empty() || is_stale(witness, witnesses);
    if !witnesses.iter().any(doubted) {
        return None;
    }
    let first = &witnesses.first()?.array;
    let geometry = |array: &raid_core::meta::record::ArrayRecord| {
        (array.level, array.layout, array.chunk, array.slots, array.component)
    };
    let mut seats: Vec<Option<Seat>> = vec![None; first.slots.into()];
    for witness in witnesses {
        let Some(slot) = witness.slot.filter(|_| !witness.member.replacement) else { continue };
        let seat = seats.get_mut(slot.index()).filter(|seat| seat.is_none())?;
        if geometry(&witness.array) != geometry(first) {
            return None;
        }
        *seat = Some(Seat {
            candidate: witness.index,
            name: witness.name.clone(),
            member: witness.member.clone(),
            state: witness.member.recovery.map_or(SeatState::InSync, SeatState::Recovering),
            events: witness.events(),
        });
    }
    let lens: Vec<Sectors> =
        seats.iter().map(|s| s.as_ref().map_or(Sectors::ZERO, |s| s.member.data_len)).collect();
    let target = Target::new(first, &lens, &seats, devices).ok()?;
    Some(Check::of(&target, sample))
}
