//! Every moment of a short history: the power is cut after each single event, and what was not
//! flushed meets every simple fate.
//!
//! Random stories find what is far away; this finds what is rare, as a write that alone is lost
//! between two flushes. After each cut the array starts again, by itself, and must hold what the
//! oracle says, agree with its redundancy once it is quiet, and trust no member that is behind.

use super::disk::Disk;
use super::life;
use super::oracle::Oracle;
use super::rng::Rng;
use super::story::{self, Story};
use super::verify;
use super::world::World;
use crate::buf::Buf;
use crate::engine::{Ask, AskId, DeviceId, Keep, Manage, Outcome, State};
use crate::layout::Code;
use crate::time::Instant;
use crate::units::{SECTOR, Sectors};
use std::collections::BTreeMap;

/// One thing that happens. Requests do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Sectors from the first on are written.
    Write(u64, u64),
    /// What was answered is made durable.
    Flush,
    /// The member of this slot is declared failed.
    Fail(u16),
    /// A new device joins: it fills an empty slot, or waits as a spare.
    Add,
    /// A spare takes over from the member of this slot while it serves.
    Replace(u16),
    /// All requests are answered.
    Wait,
    /// Nothing is left to do: jobs are over, the array is marked clean.
    Quiet,
    /// A clean stop.
    Stop,
}

/// What to play.
#[derive(Clone, Debug)]
pub struct History {
    /// The array, and the seed of the members' pace; its requests and events are not looked at.
    pub array: Story,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Moments at which the power was cut.
    pub moments: u64,
    /// Restarts: fates of what was not flushed at those moments.
    pub restarts: u64,
    /// Restarts that were refused as they must be: parity in doubt, and a member missing.
    pub refused: u64,
    /// Restarts with a slot that nothing complete is in.
    pub degraded: u64,
    /// Requests answered.
    pub answered: u64,
}

/// What becomes of the writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Kept,
    Lost,
    /// Of each write only the first half of its sectors (or the second) is kept.
    Torn(bool),
    /// All but this one are kept.
    OneLost(usize),
    /// This one alone is kept.
    OneKept(usize),
}

impl Fate {
    fn all(writes: usize) -> impl Iterator<Item = Fate> {
        let whole = [Fate::Kept, Fate::Lost, Fate::Torn(false), Fate::Torn(true)];
        // Without writes there is but one fate, with one write two are the same.
        let single = if writes > 1 { writes } else { 0 };
        let singles = (0..single).flat_map(|n| [Fate::OneLost(n), Fate::OneKept(n)]);
        whole.into_iter().take(if writes == 0 { 1 } else { 4 }).chain(singles)
    }

    /// True if a sector of a write survives: of `sectors`, the one at `index`.
    fn keeps(self, write: usize, index: usize, sectors: usize) -> bool {
        match self {
            Fate::Kept => true,
            Fate::Lost => false,
            Fate::Torn(second) => (2 * index < sectors) != second,
            Fate::OneLost(n) => write != n,
            Fate::OneKept(n) => write == n,
        }
    }

    /// True if it meets all writes alike.
    fn is_broad(self) -> bool {
        !matches!(self, Fate::OneLost(_) | Fate::OneKept(_))
    }

    /// The disks after the cut.
    fn meet(self, disks: &[Disk]) -> Vec<Disk> {
        let mut disks = disks.to_vec();
        let mut before = 0;
        for disk in &mut disks {
            let own = disk.unsynced();
            disk.cut(|number, index, sectors| self.keeps(before + number, index, sectors));
            before += own;
        }
        disks.retain(|disk| !disk.is_blank());
        disks
    }
}

/// What somebody waits for.
enum Open {
    Write { at: u64, len: u64, number: u64 },
    Flush(u64),
    Other(Step),
}

struct Player<'a> {
    history: &'a History,
    world: World,
    oracle: Oracle,
    rng: Rng,
    open: BTreeMap<AskId, Open>,
    stamp: u64,
    /// What disks and askers had seen at the last cut.
    seen: Vec<(u64, usize)>,
    tally: Tally,
}

/// Plays `history` and cuts the power after every event; `Err` says when, what became of the
/// unflushed writes, and what was wrong then.
pub fn play(history: &History) -> Result<Tally, String> {
    let mut rng = Rng::new(history.array.seed);
    let disks = story::make_disks(&history.array, &mut rng)?;
    let begin = Instant(1_700_000_000_000_000_000);
    let world = World::start(disks, false, begin).map_err(|e| e.to_string())?;
    let oracle = Oracle::new(world.layout().shape().size.0);
    let mut player = Player {
        history,
        world,
        oracle,
        rng,
        open: BTreeMap::new(),
        stamp: 0,
        seen: Vec::new(),
        tally: Tally::default(),
    };
    player.cut()?;
    for &step in &history.steps {
        player.take(step).map_err(|e| format!("at {step:?}: {e}"))?;
    }
    Ok(player.tally)
}

impl Player<'_> {
    fn take(&mut self, step: Step) -> Result<(), String> {
        let ask = match step {
            Step::Wait => return self.until(|player| player.open.is_empty()),
            Step::Quiet => return self.until(|player| player.world.is_idle()),
            Step::Write(at, len) => return self.write(at, len),
            Step::Flush => Ask::Flush,
            Step::Fail(slot) => Ask::Manage(Manage::Fail(self.device(slot)?)),
            Step::Replace(slot) => Ask::Manage(Manage::Replace(self.device(slot)?, None)),
            Step::Add => {
                let status = self.world.status();
                let added = life::add(&mut self.world, &status, &mut self.rng);
                Ask::Manage(added.ok_or("no device can be added")?)
            }
            Step::Stop => Ask::Stop,
        };
        let open = match step {
            Step::Flush => Open::Flush(self.oracle.flush()),
            _ => Open::Other(step),
        };
        let id = self.world.ask(ask, &mut self.rng);
        self.open.insert(id, open);
        self.hear()?;
        self.cut()?;
        match step {
            Step::Stop => self.until(|player| player.open.is_empty()),
            _ => Ok(()),
        }
    }

    fn device(&self, slot: u16) -> Result<DeviceId, String> {
        let members = self.world.status().members;
        let member = members.get(usize::from(slot)).and_then(Option::as_ref);
        member.map(|member| member.device).ok_or_else(|| format!("nobody is in slot {slot}"))
    }

    fn write(&mut self, at: u64, len: u64) -> Result<(), String> {
        self.stamp += 1;
        let size = self.world.layout().shape().size.0;
        let (at, len) = (at.min(size - 1), len.min(size - at.min(size - 1)));
        let mut data = vec![0; Sectors(len).len()];
        for (index, sector) in data.chunks_mut(SECTOR as usize).enumerate() {
            let mut fill = Rng::new(self.stamp << 32 | (at + index as u64));
            let words = sector.chunks_mut(8);
            words.for_each(|word| word.copy_from_slice(&fill.number().to_le_bytes()));
        }
        let number = self.oracle.write(at, &data);
        let data = Buf::copy_of(&data).freeze();
        let ask = Ask::Write { at: Sectors(at), data, keep: Keep::default() };
        let id = self.world.ask(ask, &mut self.rng);
        self.open.insert(id, Open::Write { at, len, number });
        self.hear()?;
        self.cut()
    }

    /// Lets things happen one by one until `done`, with a power cut after each.
    fn until(&mut self, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        while !done(self) {
            if !self.world.step(&mut self.rng) {
                return Err(format!("{} requests hang", self.open.len()));
            }
            self.hear()?;
            self.cut()?;
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), String> {
        for (id, outcome) in self.world.replies() {
            let open = self.open.remove(&id).ok_or("a reply nobody waits for")?;
            self.tally.answered += 1;
            match (open, outcome) {
                (Open::Write { at, len, number }, Outcome::Done) => {
                    self.oracle.acked(at, len, number);
                }
                (Open::Flush(number), Outcome::Done) => self.oracle.flushed(number),
                (Open::Other(_), Outcome::Done) => {}
                (Open::Other(step), outcome) => return Err(format!("{step:?}: {outcome:?}")),
                (_, outcome) => return Err(format!("a request failed: {outcome:?}")),
            }
        }
        Ok(())
    }

    /// Cuts the power now, once for each fate, unless nothing changed since the last cut that a
    /// power cut could tell.
    fn cut(&mut self) -> Result<(), String> {
        let disks = self.world.power_cut();
        let mut seen: Vec<_> = disks.iter().map(|d| (d.mark(), d.unsynced())).collect();
        seen.push((self.tally.answered, 0));
        if seen == self.seen {
            return Ok(());
        }
        self.seen = seen;
        self.tally.moments += 1;
        let writes = disks.iter().map(Disk::unsynced).sum();
        let logged = self.history.array.ppl || self.history.array.journal;
        for fate in Fate::all(writes) {
            let told = |e| {
                let moment = self.tally.moments;
                format!("power cut at moment {moment}, {fate:?} of {writes} writes: {e}")
            };
            self.tally.restarts += 1;
            restart(self, fate.meet(&disks), logged && fate.is_broad()).map_err(told).map(
                |seen| match seen {
                    Seen::Refused => self.tally.refused += 1,
                    Seen::Degraded => self.tally.degraded += 1,
                    Seen::Complete => {}
                },
            )?;
        }
        Ok(())
    }
}

/// How the array came back.
enum Seen {
    Refused,
    Degraded,
    Complete,
}

/// Starts what the cut left, looks at it, lets it come to rest, and looks again.
/// With `holes` also without each member in turn, which a log makes up for.
fn restart(player: &Player<'_>, disks: Vec<Disk>, holes: bool) -> Result<Seen, String> {
    let (story, now) = (&player.history.array, player.world.now());
    let code = player.world.layout().shape().code;
    let mut rng = Rng::new(1);
    let events = events_of(&player.world, &disks);
    let mut world = match World::start(disks.clone(), false, now) {
        Ok(world) => world,
        Err(error) if may_be_refused(player, code, &error) => return Ok(Seen::Refused),
        Err(error) => return Err(error.to_string()),
    };
    let mut oracle = player.oracle.clone();
    oracle.crashed();
    let is_degraded = !world.status().degraded.is_empty();
    if !is_degraded && holes {
        story::check_hole(story, &disks, &oracle, now, &mut rng)?;
    }
    let is_exact = !is_degraded || story.journal || code == Code::Copy;
    let mut before = Vec::new();
    story::read_all(&mut world, &mut rng, |at, data| {
        before.extend_from_slice(data);
        match is_exact {
            true => oracle.check_crash(at, data),
            false => oracle.check_hole(at, data),
        }
    })?;
    while world.step(&mut rng) {}
    let status = world.status();
    if !world.is_idle() || status.dirty || (status.unsynced && !story::may_refuse(&world)) {
        return Err(format!("it did not come to rest: {:?}", status.job));
    }
    let mut after = Vec::new();
    story::read_all(&mut world, &mut rng, |_, data| {
        after.extend_from_slice(data);
        Ok(())
    })?;
    if let Some(at) = (0..before.len()).find(|&at| before[at] != after[at]) {
        return Err(format!("coming to rest changed array sector {}", at as u64 / SECTOR));
    }
    verify::check_redundancy(&world)?;
    check_events(&world, events)?;
    Ok(if is_degraded { Seen::Degraded } else { Seen::Complete })
}

/// Parity that may be wrong and a member that is missing: only then nothing may be started.
fn may_be_refused(player: &Player<'_>, code: Code, error: &crate::error::Error) -> bool {
    let steps = &player.history.steps;
    let was_degraded = steps.iter().any(|step| matches!(step, Step::Fail(_)));
    was_degraded && !player.history.array.journal && story::lame(code, error)
}

/// The newest update counter on the disks.
fn events_of(world: &World, disks: &[Disk]) -> u64 {
    let found = disks.iter().filter_map(|disk| life::found(world, disk));
    found.map(|found| found.array.events).max().unwrap_or(0)
}

/// Every member that serves says so with a counter that never went back.
fn check_events(world: &World, before: u64) -> Result<(), String> {
    let status = world.status();
    if status.array.events < before {
        return Err(format!("events went back from {before} to {}", status.array.events));
    }
    for member in status.members.iter().flatten().filter(|m| m.state == State::InSync) {
        let found = life::found(world, &world.disks[member.device.0]);
        let events = found.map(|found| found.array.events);
        if events != Some(status.array.events) {
            let (name, all) = (&member.name, status.array.events);
            return Err(format!("{name} serves with events {events:?}, the array has {all}"));
        }
    }
    Ok(())
}
