//! What somebody may do to the devices of an array while it runs.

use super::disk::Disk;
use super::rng::Rng;
use super::story::weak;
use super::world::World;
use crate::engine::{DeviceId, Manage, Member, State, Status, SyncAction};
use crate::layout::Code;
use crate::meta::record::DeviceRole;
use crate::meta::{Found, join};
use crate::units::{Sectors, Slot};

/// Spares at once, at most.
const SPARES: usize = 3;

/// A change drawn at random; nothing where the draw makes no sense now. It may be refused.
pub fn change(world: &mut World, rng: &mut Rng) -> Option<Manage> {
    let status = world.status();
    if status.shape.code == Code::None {
        return None;
    }
    let any = |rng: &mut Rng| {
        let all = status.members.iter().flatten().chain(&status.others);
        let all = all.filter(|m| m.state != State::Journal);
        let all: Vec<DeviceId> = all.map(|m| m.device).collect();
        (!all.is_empty()).then(|| *rng.pick(&all))
    };
    match rng.below(12) {
        0..4 => add(world, &status, rng),
        4 | 5 => any(rng).filter(|&device| spared(world, &status, device)).map(Manage::Fail),
        6 => remove(&status, rng),
        7 => any(rng).map(|device| Manage::Replace(device, None)),
        8 => back(world, &status),
        9 => any(rng).map(|device| Manage::WriteMostly(device, rng.once_in(2))),
        10 => Some(Manage::Sync(*rng.pick(&[SyncAction::Check, SyncAction::Repair]))),
        _ => Some(Manage::Sync(*rng.pick(&[SyncAction::Idle, SyncAction::Resync]))),
    }
}

/// True if the array goes on without `device` even when all that are doomed go, too.
fn spared(world: &World, status: &Status, device: DeviceId) -> bool {
    let mut gone = weak(status);
    for (slot, member) in status.members.iter().enumerate() {
        let lost = |m: &Member| m.device == device || world.doomed.contains(&m.device);
        if member.as_ref().is_some_and(lost) {
            gone.insert(Slot(slot as u16));
        }
    }
    world.layout().survives(&gone)
}

/// A new disk, a little larger or smaller than the others.
pub(super) fn add(world: &mut World, status: &Status, rng: &mut Rng) -> Option<Manage> {
    let spares = status.others.iter().filter(|m| m.state == State::Spare).count();
    let like = status.members.iter().flatten().find(|m| m.is_live())?;
    if spares >= SPARES {
        return None;
    }
    let sectors = like.record.data_at + status.array.component + Sectors(8 * rng.below(5));
    let bits = status.bitmap.as_ref().map(|b| b.area(Sectors::ZERO).len);
    let id = std::array::from_fn(|_| rng.number() as u8);
    let (array, format) = (&status.array, world.format());
    let record = join::plan(format, array, &like.record, bits, sectors, id).ok()?;
    let device = world.plug(Disk::new(sectors));
    let mut member = Member::new(device, format!("new{}", device.0), record, State::Spare);
    member.bad_changed = true;
    Some(Manage::Add { member: Box::new(member), back: None })
}

/// A failed device leaves the array.
fn remove(status: &Status, rng: &mut Rng) -> Option<Manage> {
    let gone = |m: &&Member| matches!(m.state, State::Failed | State::Spare);
    let all = status.members.iter().flatten().chain(&status.others);
    let failed: Vec<DeviceId> = all.filter(gone).map(|m| m.device).collect();
    (!failed.is_empty()).then(|| Manage::Remove(*rng.pick(&failed)))
}

/// A disk that was a member and is none any more comes back.
fn back(world: &mut World, status: &Status) -> Option<Manage> {
    let known: Vec<DeviceId> = status
        .members
        .iter()
        .chain(&status.replacements)
        .flatten()
        .chain(&status.others)
        .map(|m| m.device)
        .collect();
    let free =
        |(index, disk): &(usize, &Disk)| !disk.vanished && !known.contains(&DeviceId(*index));
    let found = |disk: &Disk| found(world, disk).filter(|f| f.array.uuid == status.array.uuid);
    let (device, found) = world
        .disks
        .iter()
        .enumerate()
        .filter(free)
        .find_map(|(index, disk)| Some((DeviceId(index), found(disk)?)))?;
    let DeviceRole::Active(slot) = found.array.role(found.member.number) else { return None };
    if found.member.recovery.is_some() || found.member.replacement {
        return None;
    }
    let disk = world.pull(device);
    let device = world.plug(disk);
    let member = Member::new(device, format!("back{}", device.0), found.member, State::Spare);
    Some(Manage::Add { member: Box::new(member), back: Some((slot, found.array.events)) })
}

pub(super) fn found(world: &World, disk: &Disk) -> Option<Found> {
    let format = world.format();
    let at = (format.super_at)(disk.sectors())?;
    let bytes = &disk.bytes()[at.len()..at.len() + 4096];
    (format.parse)(bytes, at, disk.sectors()).ok()
}
