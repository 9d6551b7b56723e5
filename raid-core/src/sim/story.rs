//! One run: an array is made, used, broken, crashed and checked, all from one seed.

use super::disk::Disk;
use super::life;
use super::oracle::Oracle;
use super::rng::Rng;
use super::users::Users;
use super::verify::{check_end, check_redundancy};
use super::world::World;
use crate::engine::{Ask, DeviceId, Manage, Member, Outcome, State, Status, SyncAction};
use crate::layout::Code;
use crate::meta::create::{NewBitmap, NewLog, NewMember, Request, create};
use crate::meta::md1;
use crate::time::Instant;
use crate::units::{Sectors, Slot, SlotSet};

/// What to play.
#[derive(Clone, Debug)]
pub struct Story {
    /// Decides everything below that is not fixed.
    pub seed: u64,
    /// md's level number.
    pub level: i32,
    /// md's layout word.
    pub layout: u32,
    /// Number of slots.
    pub slots: u16,
    /// Chunk; ignored where the level has none.
    pub chunk: Sectors,
    /// Sectors of each member's data area.
    pub height: Sectors,
    /// Requests between two events of the story.
    pub ops: u64,
    /// Events of the story: crashes and quiet moments.
    pub events: u64,
    /// Devices are failed, removed, added, brought back and replaced, and checks run, meanwhile.
    pub life: bool,
    /// The array has a write-intent bitmap.
    pub bitmap: bool,
    /// The array, a RAID 5, keeps a partial parity log.
    pub ppl: bool,
    /// The array, a RAID 4, 5 or 6, has a write journal.
    pub journal: bool,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Requests answered.
    pub ops: u64,
    /// Power cuts survived.
    pub crashes: u64,
    /// Members that failed.
    pub failures: u64,
    /// Reads that failed on a member.
    pub read_errors: u64,
    /// Units written back after a failed read.
    pub healed: u64,
    /// Changes of the devices that were asked for and done.
    pub changes: u64,
    /// Devices that were filled.
    pub filled: u64,
    /// Requests refused because a lost unit lay where parity was not resynced yet.
    pub refused: u64,
    /// The story ended early: crashed while degraded, which parity alone does not survive.
    pub write_hole: bool,
}

/// Plays `story`; `Err` says what went wrong, to be replayed with the same story.
pub fn run(story: &Story) -> Result<Report, String> {
    let mut rng = Rng::new(story.seed);
    let disks = make_disks(story, &mut rng)?;
    let begin = Instant(1_700_000_000_000_000_000);
    let mut world = World::start(disks, false, begin).map_err(|e| e.to_string())?;
    let mut oracle = Oracle::new(world.layout().shape().size.0);
    let mut users = Users::new();
    let mut report = Report::default();
    for _ in 0..story.events {
        doom(&mut world, &mut rng);
        if story.life {
            live(story, &mut world, &mut users, &mut oracle, &mut rng)?;
        }
        users.run(&mut world, &mut oracle, &mut rng, story.ops)?;
        if !rng.once_in(3) {
            users.settle(&mut world, &mut oracle, &mut rng)?;
            if story.life {
                scrub(&mut world, &mut users, &mut oracle, &mut rng)?;
            }
            if !may_refuse(&world) {
                read_all(&mut world, &mut rng, |at, data| oracle.check_read(at, data, u64::MAX))?;
            }
            continue;
        }
        report.add(&world);
        users.forget();
        report.crashes += 1;
        match crash(story, world, &mut oracle, &mut rng)? {
            Some(next) => world = next,
            None => {
                report.write_hole = true;
                report.ops = users.done;
                return Ok(report);
            }
        }
    }
    users.settle(&mut world, &mut oracle, &mut rng)?;
    report.add(&world);
    report.ops = users.done;
    report.refused = users.refused;
    report.changes = users.changes;
    check_end(world, &oracle, &mut rng)?;
    Ok(report)
}

impl Report {
    fn add(&mut self, world: &World) {
        let status = world.status();
        let failed = |m: &&crate::engine::Member| m.state == State::Failed;
        self.failures += status.members.iter().flatten().filter(failed).count() as u64;
        self.read_errors += status.stats.read_errors;
        self.healed += status.stats.healed;
        self.filled += status.stats.filled;
    }
}

pub(super) fn make_disks(story: &Story, rng: &mut Rng) -> Result<Vec<Disk>, String> {
    // Room for superblock, logs, bitmap and bad-block log, and little to copy at every start.
    let data_at = Sectors(if story.ppl { 2048 + 128 } else { 128 });
    let sectors = data_at + story.height;
    let member = |_| {
        let device_uuid = std::array::from_fn(|_| rng.number() as u8);
        Some(NewMember { sectors, device_uuid, write_mostly: false, failfast: false })
    };
    let request = Request {
        format: &md1::V1_2,
        level: story.level,
        layout: Some(story.layout),
        chunk: (story.level != 1).then_some(story.chunk),
        members: (0..story.slots).map(member).collect(),
        name: b"sim".to_vec(),
        homehost: None,
        uuid: [7; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: Some(data_at),
        assume_clean: false,
        zeroed: true,
        bitmap: story.bitmap.then_some(NewBitmap { chunk_bytes: Some(4096) }),
        log: log(story),
        force: true,
    };
    let creation = create(&request).map_err(|e| e.to_string())?;
    let mut disks = Vec::new();
    for mut planned in creation.members.into_iter().chain(creation.journal) {
        if story.seed.is_multiple_of(3) {
            // Without a list of bad blocks a failed write fails the member.
            planned.member.bad_log = None;
            let (at, bytes) =
                (md1::V1_2.emit)(&creation.array, &planned.member).map_err(|e| e.to_string())?;
            planned.superblock = (at, bytes);
        }
        let mut disk = Disk::new(sectors.max(planned.member.data_at + planned.member.data_len));
        let areas = [planned.bitmap, planned.log, Some(planned.superblock)];
        for (at, bytes) in areas.into_iter().flatten() {
            disk.write(at, &bytes)?;
        }
        disk.flush(disk.mark())?;
        disks.push(disk);
    }
    Ok(disks)
}

/// Slots that cannot stand in for another everywhere: gone, not filled, or with bad blocks.
pub(super) fn weak(status: &Status) -> SlotSet {
    let bad = |m: &Member| !m.record.bad_blocks.is_empty();
    let slots = status.members.iter().enumerate();
    let slots = slots.filter(|(_, m)| m.as_ref().is_some_and(bad));
    slots.map(|(slot, _)| Slot(slot as u16)).chain(status.degraded.iter()).collect()
}

/// Draws the slots whose members may fail from now on.
fn doom(world: &mut World, rng: &mut Rng) {
    let mut gone = weak(&world.status());
    let slots = world.layout().shape().slots;
    let mut doomed = Vec::new();
    for _ in 0..slots {
        let slot = Slot(rng.below(slots as u64) as u16);
        let mut more = gone.clone();
        more.insert(slot);
        let code = world.layout().shape().code;
        if code != Code::None && world.layout().survives(&more) && rng.once_in(2) {
            gone = more;
            doomed.extend(world.status().members[slot.index()].as_ref().map(|m| m.device));
        }
    }
    // What others lost before would come on top of what the level survives.
    for (index, disk) in world.disks.iter_mut().enumerate() {
        if !doomed.contains(&DeviceId(index)) {
            disk.mend();
        }
    }
    world.doomed = doomed;
    world.fault_rate = *rng.pick(&[0, 20, 100, 400]);
}

/// Somebody changes the devices while users go on, a few times.
fn live(
    story: &Story,
    world: &mut World,
    users: &mut Users,
    oracle: &mut Oracle,
    rng: &mut Rng,
) -> Result<(), String> {
    for _ in 0..rng.below(4) {
        if let Some(change) = life::change(world, rng) {
            users.manage(world, change, rng);
        }
        let ops = 1 + rng.below(story.ops);
        users.run(world, oracle, rng, ops)?;
    }
    Ok(())
}

/// A check finds nothing to complain about, where nothing was lost.
fn scrub(
    world: &mut World,
    users: &mut Users,
    oracle: &mut Oracle,
    rng: &mut Rng,
) -> Result<(), String> {
    let before = world.status();
    if before.dirty || before.job.is_some() {
        return Err(format!("a quiet array is dirty or busy: {:?}", before.job));
    }
    users.manage(world, Manage::Sync(SyncAction::Check), rng);
    users.settle(world, oracle, rng)?;
    let status = world.status();
    match status.mismatches {
        0 => Ok(()),
        _ if may_refuse(world) => Ok(()),
        n => Err(format!("a check found {n} sectors that do not agree: {:?}", status.stats)),
    }
}

/// True if an array with parity was refused because it lacks a member and was not stopped.
pub(super) fn lame(code: Code, error: &crate::error::Error) -> bool {
    code.has_parity() && error.to_string().contains("dirty and degraded")
}

/// Cuts the power, starts again, checks what is left; sometimes more than once, and sometimes
/// the story goes on before the resync is done. `None`: not startable, as it should be.
fn crash(
    story: &Story,
    world: World,
    oracle: &mut Oracle,
    rng: &mut Rng,
) -> Result<Option<World>, String> {
    let mut world = world;
    let mut before = Vec::new();
    loop {
        let now = world.now();
        let (code, disks) = (world.layout().shape().code, world.crash(rng));
        let left =
            if (story.ppl || story.journal) && !story.life { disks.clone() } else { Vec::new() };
        world = match World::start(disks, false, now) {
            Ok(world) => world,
            Err(error) if lame(code, &error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let bad = weak(&world.status()) != world.status().degraded;
        if bad && code.has_parity() && may_refuse(&world) {
            // What is bad lay where parity was being made.
            return Ok(None);
        }
        oracle.crashed();
        let is_whole = weak(&world.status()).is_empty();
        if is_whole {
            check_hole(story, &left, oracle, now, rng)?;
        }
        before.clear();
        read_all(&mut world, rng, |at, data| {
            before.extend_from_slice(data);
            match is_whole || story.journal {
                true => oracle.check_crash(at, data),
                false => oracle.check_hole(at, data),
            }
        })?;
        if !is_whole && story.ppl && !story.journal {
            // What was being written where a member is gone may be anything, but is that now.
            oracle.settle(&before);
        }
        if !rng.once_in(4) {
            break;
        }
        // Again, in the middle of the resync.
        for _ in 0..rng.below(60) {
            world.step(rng);
        }
    }
    if !rng.once_in(3) {
        resynced(&mut world, oracle, &before, rng)?;
    }
    Ok(Some(world))
}

/// Lets the resync after a crash end: it must not change what the array holds, `before`.
fn resynced(
    world: &mut World,
    oracle: &mut Oracle,
    before: &[u8],
    rng: &mut Rng,
) -> Result<(), String> {
    while world.step(rng) {}
    if world.status().unsynced || !world.is_idle() {
        return Err("the resync after the crash did not end".into());
    }
    let mut after = Vec::new();
    read_all(world, rng, |_, data| {
        after.extend_from_slice(data);
        Ok(())
    })?;
    if before != after {
        let differs = (0..before.len()).find(|&i| before[i] != after[i]).unwrap_or_default() / 512;
        return Err(format!(
            "the resync changed what the array holds, first at sector {differs}: {:?}",
            world.status()
        ));
    }
    check_redundancy(world)?;
    oracle.settle(&after);
    Ok(())
}

/// What a partial parity log is for: after a crash any one member may be lost, too, and all that
/// was not being written is there.
pub(super) fn check_hole(
    story: &Story,
    disks: &[Disk],
    oracle: &Oracle,
    now: Instant,
    rng: &mut Rng,
) -> Result<(), String> {
    for slot in (0..disks.len()).take(story.slots.into()) {
        let mut left = disks.to_vec();
        left[slot] = Disk::new(left[slot].sectors());
        let mut world = match World::start(left, false, now) {
            Ok(world) => world,
            // Parity was still being made when the power went: no log tells what it should be.
            Err(error) if lame(Code::P, &error) => continue,
            Err(error) => return Err(error.to_string()),
        };
        let check = |at, data: &[u8]| match story.journal {
            // A journal keeps also what was being written: it is old or new.
            true => oracle.check_crash(at, data),
            false => oracle.check_hole(at, data),
        };
        read_all(&mut world, rng, check)
            .map_err(|e| format!("slot {slot} lost after a crash: {e}"))?;
    }
    Ok(())
}

/// The log the story's array has.
fn log(story: &Story) -> Option<NewLog> {
    let journal = || NewMember {
        sectors: Sectors(4096 + 64),
        device_uuid: [9; 16],
        write_mostly: false,
        failfast: false,
    };
    match (story.ppl, story.journal) {
        (true, _) => Some(NewLog::Ppl),
        (_, true) => Some(NewLog::Journal(journal())),
        _ => None,
    }
}

/// True if reads may be refused, or parity may be wrong for good: a member or a sector was lost
/// before the resync was done.
pub(super) fn may_refuse(world: &World) -> bool {
    let status = world.status();
    status.stats.resync_skipped > 0 || status.unsynced
}

/// Reads the whole array in pieces and hands each to `check`.
pub(super) fn read_all(
    world: &mut World,
    rng: &mut Rng,
    mut check: impl FnMut(u64, &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let size = world.layout().shape().size.0;
    let mut at = 0;
    while at < size {
        let len = (1 + rng.below(100)).min(size - at);
        let buf = world.buffer(Sectors(len).len());
        let id = world.ask(Ask::Read { at: Sectors(at), buf }, rng);
        let outcome = loop {
            if let Some((_, outcome)) = world.replies().into_iter().find(|r| r.0 == id) {
                break outcome;
            }
            if !world.step(rng) {
                return Err("a read hangs".into());
            }
        };
        match outcome {
            Outcome::Read(buf) => check(at, &buf)?,
            other => return Err(format!("reading sector {at} failed: {other:?}")),
        }
        at += len;
    }
    Ok(())
}
