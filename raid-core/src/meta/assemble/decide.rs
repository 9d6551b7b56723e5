//! The decision itself: seats, what is missing, what may be written.

use super::gather::{Entry, Verdicts, gather};
use super::{Assembly, Candidate, Fate, Journal, Options, Refusal, Seat, SeatState, rank, words};
use crate::error::ErrorKind;
use crate::meta::examine;
use crate::meta::md1::features;
use crate::meta::md1::packet::Packet;
use crate::meta::record::{ArrayRecord, DeviceRole};
use crate::meta::{Found, md0};
use crate::units::{Sectors, Slot, SlotSet};

/// Decides which `candidates` serve the array, or refuses with the reasons.
///
/// `survives` says if an array can be read without the given slots
/// ([`crate::layout::Layout::survives`], or [`crate::meta::enough`] where no layout is built).
pub fn assemble(
    candidates: &[Candidate],
    options: &Options,
    survives: &dyn Fn(&ArrayRecord, &SlotSet) -> bool,
) -> Result<Assembly, Refusal> {
    let (entries, verdicts) = gather(candidates, options, Verdicts::new(candidates))?;
    let verdicts = rank::refuse_copies(&entries, verdicts)?;
    let (&freshest, verdicts) = rank::freshest(&entries, verdicts)?;
    let (entries, verdicts) = rank::drop_strangers(entries, &freshest, verdicts)?;
    let mut table = Table::new(freshest, verdicts);
    table.check_startable(&entries, options)?;
    for &entry in &entries {
        match entries.iter().find(|other| rank::supersedes(other, &entry)) {
            None => table.place(entry)?,
            Some(other) => {
                let number = entry.number();
                let why = format!("{} has its number {number} now", other.name);
                table.verdicts.set(entry.index, Fate::Out, why);
            }
        }
    }
    table.seat_replacements();
    if options.force {
        table.force_stale(survives);
    }
    table.check_survival(survives)?;
    table.check_degraded(options)?;
    table.check_dirty(options)?;
    table.check_journal(options)?;
    Ok(table.finish(&entries, options))
}

/// The table at which members take their seats.
struct Table<'a> {
    freshest: Entry<'a>,
    seats: Vec<Option<(Entry<'a>, SeatState)>>,
    stale: Vec<Entry<'a>>,
    spares: Vec<Entry<'a>>,
    journal: Option<Entry<'a>>,
    replacements: Vec<(Slot, Entry<'a>)>,
    replacing: Vec<(Slot, Entry<'a>)>,
    forced: Vec<usize>,
    bars_writing: Option<String>,
    mark_clean: bool,
    warnings: Vec<String>,
    verdicts: Verdicts,
}

impl<'a> Table<'a> {
    fn new(freshest: Entry<'a>, verdicts: Verdicts) -> Table<'a> {
        Table {
            freshest,
            seats: vec![None; freshest.found.array.slots.into()],
            stale: Vec::new(),
            spares: Vec::new(),
            journal: None,
            replacements: Vec::new(),
            replacing: Vec::new(),
            forced: Vec::new(),
            bars_writing: None,
            mark_clean: false,
            warnings: Vec::new(),
            verdicts,
        }
    }

    fn array(&self) -> &'a ArrayRecord {
        &self.freshest.found.array
    }

    fn refuse(&mut self, kind: ErrorKind, reason: impl Into<String>) -> Refusal {
        let verdicts = std::mem::replace(&mut self.verdicts, Verdicts::new(&[]));
        verdicts.refuse(kind, reason)
    }

    /// Metadata whose data cannot be mapped ends it here; unknown bits can be forced, to read.
    fn check_startable(&mut self, entries: &[Entry<'a>], options: &Options) -> Result<(), Refusal> {
        let Some(why) = entries.iter().find_map(|e| e.found.startable().err()) else {
            return Ok(());
        };
        let is_reshape = entries.iter().any(|e| e.found.array.reshape.is_some());
        if is_reshape || !options.force || !options.read_only {
            let advice = match is_reshape {
                true => String::new(),
                false => format!("; to read it all the same: {}", words::READ_BY_FORCE),
            };
            let reason = format!("{} cannot be started: {why}{advice}", self.title());
            return Err(self.refuse(ErrorKind::Metadata, reason));
        }
        self.warnings.push(format!("forced to read an array although {why}"));
        self.bars_writing = Some(why);
        Ok(())
    }

    /// One member finds its place by the freshest member's map.
    fn place(&mut self, entry: Entry<'a>) -> Result<(), Refusal> {
        let role = self.array().role(entry.number());
        let (index, own) = (entry.index, entry.own_role());
        if own == DeviceRole::Journal || role == DeviceRole::Journal {
            self.place_journal(entry, role);
        } else if own == DeviceRole::Spare && role == DeviceRole::Spare {
            self.spares.push(entry);
            self.verdicts.set(index, Fate::Spare, "");
        } else if rank::is_stale(&entry, &self.freshest) {
            self.stale.push(entry);
            self.verdicts.set(index, Fate::Out, words::behind(&entry, &self.freshest));
        } else if index != self.freshest.index
            && entry.calls_failed(&self.freshest)
            && !entry.never_met(&self.freshest)
        {
            let why = format!("it reports {} as failed: it ran without it", self.freshest.name);
            self.verdicts.set(index, Fate::Out, why);
        } else {
            match role {
                DeviceRole::Active(slot) => return self.seat(entry, slot),
                DeviceRole::Faulty => {
                    let why = format!("{} says that it failed", self.freshest.name);
                    self.verdicts.set(index, Fate::Out, why);
                }
                _ => {
                    let why = format!("{} no longer counts it as a member", self.freshest.name);
                    self.verdicts.set(index, Fate::Out, why);
                }
            }
        }
        Ok(())
    }

    /// A journal counts under the same conditions as a member: fresh, and still in the map.
    fn place_journal(&mut self, entry: Entry<'a>, role: DeviceRole) {
        let out = if rank::is_stale(&entry, &self.freshest) {
            Some(words::behind(&entry, &self.freshest))
        } else if rank::is_stale(&self.freshest, &entry) {
            Some(format!("it has {} events, but no member has as many", entry.events()))
        } else if role != DeviceRole::Journal {
            Some(format!("{} does not count it as the journal", self.freshest.name))
        } else {
            self.journal.map(|other| format!("{} is the journal already", other.name))
        };
        match out {
            Some(why) => self.verdicts.set(entry.index, Fate::Out, why),
            None => {
                self.verdicts.set(entry.index, Fate::Journal, "");
                self.journal = Some(entry);
            }
        }
    }

    fn seat(&mut self, entry: Entry<'a>, slot: Slot) -> Result<(), Refusal> {
        if entry.found.member.replacement {
            self.replacements.push((slot, entry));
            let why = "it was being made ready to take over; the old member serves";
            self.verdicts.set(entry.index, Fate::Replacement(slot), why);
            return Ok(());
        }
        let other = self.seats.get(slot.index()).copied().flatten().map(|(other, _)| other);
        if let Some(newcomer) = [Some(entry), other].into_iter().flatten().find(Entry::is_unaware)
            && let Some(other) = other
        {
            // It was about to replace the other, and neither is told: it waits as before.
            self.spares.push(newcomer);
            let why = "it was about to take over; the old member serves";
            self.verdicts.set(newcomer.index, Fate::Spare, why);
            if newcomer.index == other.index {
                self.take(entry, slot, entry.recovery());
            }
            return Ok(());
        }
        if let Some(other) = other {
            let reason = format!(
                "{} and {} both claim slot {slot} with events {} and {}; give only one of them",
                other.name,
                entry.name,
                other.events(),
                entry.events()
            );
            return Err(self.refuse(ErrorKind::Refused, reason));
        }
        // The map counts it, but its own superblock was not told yet: a rebuild had just begun.
        let position = entry.recovery().or(entry.is_unaware().then_some(Sectors::ZERO));
        self.take(entry, slot, position);
        Ok(())
    }

    fn take(&mut self, entry: Entry<'a>, slot: Slot, recovery: Option<Sectors>) {
        let Some(seat) = self.seats.get_mut(slot.index()) else {
            let why = format!("slot {slot} does not exist in this array");
            return self.verdicts.set(entry.index, Fate::Out, why);
        };
        match recovery {
            None => {
                *seat = Some((entry, SeatState::InSync));
                self.verdicts.set(entry.index, Fate::In(slot), "");
            }
            Some(at) => {
                *seat = Some((entry, SeatState::Recovering(at)));
                let why = format!("complete up to sector {at}");
                self.verdicts.set(entry.index, Fate::Recovering(slot), why);
            }
        }
    }

    /// A replacement that is complete serves where the old member is gone.
    fn seat_replacements(&mut self) {
        for (slot, entry) in std::mem::take(&mut self.replacements) {
            let Some(seat) = self.seats.get(slot.index()) else { continue };
            match seat {
                None if entry.recovery().is_none() => self.take(entry, slot, None),
                Some(_) => self.replacing.push((slot, entry)),
                None => {}
            }
        }
    }

    /// Brings in stale members, the newest first, until the array can be read.
    fn force_stale(&mut self, survives: &dyn Fn(&ArrayRecord, &SlotSet) -> bool) {
        self.stale.sort_by_key(|e| (std::cmp::Reverse(e.events()), e.index));
        for entry in self.stale.clone() {
            let DeviceRole::Active(slot) = entry.own_role() else { continue };
            let is_free = self.seats.get(slot.index()).is_some_and(Option::is_none);
            let usable = is_free && entry.recovery().is_none();
            if !usable || survives(self.array(), &self.incomplete()) {
                continue;
            }
            self.take(entry, slot, None);
            self.forced.push(entry.index);
            let why = format!("forced, although {}", words::behind(&entry, &self.freshest));
            self.verdicts.set(entry.index, Fate::In(slot), why);
            self.warnings.push(format!(
                "{} is used although it is stale: all that was written between events {} and {} \
                 is old or garbled in slot {slot}",
                entry.name,
                entry.events(),
                self.freshest.events()
            ));
        }
    }

    fn check_survival(
        &mut self,
        survives: &dyn Fn(&ArrayRecord, &SlotSet) -> bool,
    ) -> Result<(), Refusal> {
        let incomplete = self.incomplete();
        let complete = self.seats.len() - incomplete.len();
        if complete > 0 && (incomplete.is_empty() || survives(self.array(), &incomplete)) {
            return Ok(());
        }
        let stale = match self.stale.is_empty() {
            true => String::new(),
            false => {
                format!("; stale members are there: to look at them {}", words::READ_BY_FORCE)
            }
        };
        let reason = format!(
            "{} cannot be served: complete members for {complete} of {} slots were found, \
             {} had none{stale}",
            self.title(),
            self.seats.len(),
            words::slots(&incomplete)
        );
        Err(self.refuse(ErrorKind::Dead, reason))
    }

    fn check_degraded(&mut self, options: &Options) -> Result<(), Refusal> {
        let missing = self.missing();
        if missing.is_empty() {
            return Ok(());
        }
        let known = self.array().roles.iter().filter(|r| matches!(r, DeviceRole::Active(_)));
        let before = match known.count() < self.seats.len() {
            true => " (as when it was last used)",
            false => "",
        };
        let state = format!(
            "{} has {} slots, but {} had no usable member{before}",
            self.title(),
            self.seats.len(),
            words::slots(&missing)
        );
        if !options.degraded && !options.force {
            let reason = format!("{state}; give the missing members, or say --degraded");
            return Err(self.refuse(ErrorKind::Degraded, reason));
        }
        self.warnings.push(state);
        Ok(())
    }

    /// RAID 4/5/6 that was interrupted and lacks a member cannot know what the member held.
    fn check_dirty(&mut self, options: &Options) -> Result<(), Refusal> {
        let incomplete = self.incomplete();
        let parity = matches!(self.array().level, 4..=6);
        let Some(from) = self.resync().filter(|_| parity && !incomplete.is_empty()) else {
            return Ok(());
        };
        // Where nothing is known to be consistent, the log knows all that is not.
        if from.is_empty() && self.has(features::PPL | features::MULTIPLE_PPLS) {
            return Ok(());
        }
        let risk = format!(
            "it was not stopped cleanly and {} {} incomplete: from sector {from} of the members \
             on, what was held there may be wrong wherever a write was interrupted",
            words::slots(&incomplete),
            if incomplete.len() == 1 { "is" } else { "are" }
        );
        if options.read_only {
            self.warnings.push(risk);
            return Ok(());
        }
        // What is left of a RAID 6 that lacks one can still disagree: it stays marked.
        let agrees = self.array().level != 6 || incomplete.len() > 1;
        if options.force {
            self.mark_clean = agrees;
            let how =
                if agrees { "forced and marked clean" } else { "forced, to be resynced later" };
            self.warnings.push(format!("{how}, although {risk}"));
            return Ok(());
        }
        let reason = format!(
            "{} is dirty and degraded: {risk}; read it with --read-only, give the missing \
             members, or accept the risk with --force",
            self.title()
        );
        Err(self.refuse(ErrorKind::Refused, reason))
    }

    /// Whether the array has one of these features.
    fn has(&self, bits: u32) -> bool {
        let Found { format, member, .. } = self.freshest.found;
        format.name != md0::V0_90.name && Packet::new(&member.raw).features() & bits != 0
    }

    /// What was acknowledged may be in the journal alone.
    fn check_journal(&mut self, options: &Options) -> Result<(), Refusal> {
        if !self.has(features::JOURNAL) || self.journal.is_some() {
            return Ok(());
        }
        let state = "its write journal is missing or stale, and the last writes may be there alone";
        if !options.force {
            let reason = format!(
                "{} cannot be started: {state}; give the journal device, or read what the \
                 members hold without it: {}",
                self.title(),
                words::READ_BY_FORCE
            );
            return Err(self.refuse(ErrorKind::Refused, reason));
        }
        self.bars_writing.get_or_insert_with(|| state.into());
        Ok(())
    }

    fn finish(mut self, entries: &[Entry<'a>], options: &Options) -> Assembly {
        let why = entries.iter().find_map(|e| e.found.writable().err());
        let bars = self.bars_writing.take().or(why);
        if let Some(why) = &bars {
            self.warnings.push(format!("read-only: {why}"));
        }
        let forced_bare = !self.forced.is_empty() && !options.overlay;
        if forced_bare && !options.read_only {
            self.warnings.push(
                "read-only: stale members are in use; to write, put an overlay over the members"
                    .into(),
            );
        }
        let missing = self.missing();
        let journal = self.journal.map(|entry| Journal {
            candidate: entry.index,
            name: entry.name.to_string(),
            member: entry.found.member.clone(),
        });
        let resync = self.resync().filter(|_| !self.mark_clean);
        let mut array = self.array().clone();
        array.resync = resync;
        // A power cut can fall between a journal's superblock and those of the members.
        let journal_events = self.journal.map_or(0, |entry| entry.events());
        array.events = array.events.max(journal_events);
        self.clear_absent(&mut array);
        let seats = self.seats.into_iter().map(|seat| seat.map(|(e, state)| into_seat(e, state)));
        let replacing = self.replacing.into_iter().map(|(slot, entry)| {
            let state = match entry.recovery() {
                Some(at) => SeatState::Recovering(at),
                None => SeatState::InSync,
            };
            (slot, into_seat(entry, state))
        });
        Assembly {
            format: self.freshest.found.format,
            dirty: resync.is_some(),
            array,
            seats: seats.collect(),
            spares: self.spares.into_iter().map(|e| into_seat(e, SeatState::InSync)).collect(),
            replacements: replacing.collect(),
            journal,
            missing,
            read_only: options.read_only || bars.is_some() || forced_bare,
            trust: options.force,
            forced: self.forced,
            verdicts: self.verdicts.into_vec(),
            warnings: self.warnings,
        }
    }

    /// Numbers that are called active but have no seat become "nobody", as the kernel does.
    fn clear_absent(&self, array: &mut ArrayRecord) {
        let seated = self.seats.iter().flatten().map(|(e, _)| e.number());
        let seated: Vec<u32> =
            seated.chain(self.replacing.iter().map(|(_, e)| e.number())).collect();
        for (number, role) in array.roles.iter_mut().enumerate() {
            if matches!(role, DeviceRole::Active(_)) && !seated.contains(&(number as u32)) {
                *role = DeviceRole::Spare;
            }
        }
        for (slot, seat) in self.seats.iter().enumerate() {
            if let Some((entry, _)) = seat {
                array.set_role(entry.number(), DeviceRole::Active(Slot(slot as u16)));
            }
        }
    }

    /// The lowest position any member with the most events says; only such were told last.
    fn resync(&self) -> Option<Sectors> {
        let latest = self.seats.iter().flatten().map(|(e, _)| e);
        let latest = latest.filter(|e| e.events() == self.freshest.events());
        latest.filter_map(|e| e.found.array.resync).min().or(self.array().resync)
    }

    fn missing(&self) -> SlotSet {
        self.slots_where(|seat| seat.is_none())
    }

    fn incomplete(&self) -> SlotSet {
        self.slots_where(|seat| !matches!(seat, Some((_, SeatState::InSync))))
    }

    fn slots_where(&self, test: impl Fn(&Option<(Entry<'a>, SeatState)>) -> bool) -> SlotSet {
        let slots = self.seats.iter().enumerate().filter(|(_, seat)| test(seat));
        slots.map(|(slot, _)| Slot(slot as u16)).collect()
    }

    /// `array "home"`; where it has no name, `the raid5 array`: the members are named beside it.
    fn title(&self) -> String {
        match self.array().name.is_empty() {
            true => format!("the {} array", examine::level_name(self.array().level)),
            false => format!("array {:?}", examine::printable(&self.array().name)),
        }
    }
}

fn into_seat(entry: Entry<'_>, state: SeatState) -> Seat {
    Seat {
        candidate: entry.index,
        name: entry.name.to_string(),
        member: entry.found.member.clone(),
        state,
        events: entry.events(),
    }
}
