//! A device joins a running array: as a spare, or back in its place.

use super::make::{content, holds_data};
use crate::device::{self, Device, write_at};
use crate::driver::Array;
use crate::engine::{DeviceId, Manage, Member, State, Status};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::record::{Area, DeviceRole};
use crate::meta::{Format, Found, join, md_ppl, uuid};
use crate::units::{Sectors, Slot};

/// Whether a device that was a member may come back without being filled anew.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Back {
    /// If it missed only what the bitmap knows; else it becomes a spare (`mdadm --add`).
    #[default]
    IfPossible,
    /// Or not at all (`mdadm --re-add`).
    Only,
    /// It becomes a spare in any case.
    Never,
}

/// How to join.
#[derive(Clone, Debug, Default)]
pub struct JoinOptions {
    /// Take the device whatever it carries.
    pub force: bool,
    /// Read it only when no other member can be.
    pub write_mostly: bool,
    /// Whether it may take up where it left off.
    pub back: Back,
    /// Id of a new member: 16 random bytes.
    pub device_uuid: [u8; 16],
}

/// What became of it.
#[derive(Clone, Copy, Debug)]
pub struct Joined {
    /// Its id.
    pub device: DeviceId,
    /// It is back in its slot; only what it missed is copied.
    pub back: bool,
}

/// Lets `device` join `array`, whose metadata has this `format`; returns when the members'
/// superblocks say so. What it has to be filled with is filled afterwards.
///
/// # Errors
/// It is too small, carries something, belongs to another array, or cannot come back.
pub fn join(
    array: &Array,
    format: &'static Format,
    device: device::Shared,
    options: &JoinOptions,
) -> Result<Joined> {
    let name = device.facts().name.clone();
    let named = |error: Error| error.context(name.clone());
    let status = array.status();
    let known = member_of(&status, &*device).map_err(named)?;
    if let Some(other) = known.as_ref().and_then(|found| ran_without(&status, found))
        && !options.force
    {
        let text = format!(
            "{name} was used without {other}, which is in the array now: it may hold writes that \
             nobody else has, and they would be lost; look at it by itself first, or say --force"
        );
        return Err(Error::new(ErrorKind::Refused, text));
    }
    let split = known.as_ref().is_some_and(|found| ran_without(&status, found).is_some());
    let back = match &known {
        Some(_) if split => Err("it went its own way".to_string()),
        Some(found) => comes_back(&status, found),
        None => Err("it carries no superblock of this array".to_string()),
    };
    let back = match (options.back, back) {
        (Back::Never, _) => None,
        (_, Ok(place)) => Some(place),
        (Back::IfPossible, Err(_)) => None,
        (Back::Only, Err(why)) => {
            let text = format!("{name} cannot be re-added: {why}; `add` would fill it anew");
            return Err(Error::new(ErrorKind::Refused, text));
        }
    };
    let mut record = match (&back, known) {
        (Some(_), Some(found)) => found.member,
        (_, known) => {
            if known.is_none() && !options.force {
                check_empty(&*device).map_err(named)?;
            }
            let sectors = device.facts().sectors;
            let like = like(&status).map_err(named)?;
            let bits = status.bitmap.as_ref().map(|b| b.area(Sectors::ZERO).len);
            let id = options.device_uuid;
            let record = join::plan(format, &status.array, like, bits, sectors, id);
            let record = record.map_err(named)?;
            wipe(&*device, record.super_at).map_err(named)?;
            record
        }
    };
    record.write_mostly |= options.write_mostly;
    if let Some(area) = record.ppl {
        clear_log(&*device, area, &status.array.uuid).map_err(named)?;
    }
    let id = array.attach(device);
    let mut member = Member::new(id, name.clone(), record, State::Spare);
    // A log that was there before is not this array's.
    member.bad_changed = back.is_none();
    let came_back = back.is_some();
    array.manage(Manage::Add { member: Box::new(member), back }).map_err(|error| {
        array.detach(id);
        error.context(name.clone())
    })?;
    Ok(Joined { device: id, back: came_back })
}

/// What `device` says as a member of this array; nothing if it is none.
fn member_of(status: &Status, device: &dyn Device) -> Result<Option<Found>> {
    let found = content(device)?.md.into_iter().filter_map(|sighting| sighting.record.ok());
    Ok(found.into_iter().find(|found| found.array.uuid == status.array.uuid))
}

/// A member of the running array without which the device was used, each by its own word: the
/// two went separate ways. Numbers beyond the slots that the device never heard of say nothing.
fn ran_without(status: &Status, found: &Found) -> Option<String> {
    let theirs = &found.array;
    let absent = |(slot, member): (usize, &Member)| {
        let role = theirs.role(member.record.number);
        let unknown = role == DeviceRole::Spare && member.record.number >= u32::from(theirs.slots);
        let held = theirs.roles.contains(&DeviceRole::Active(Slot(slot as u16)));
        (!held && !unknown && !matches!(role, DeviceRole::Active(_))).then(|| member.name.clone())
    };
    let members = status.members.iter().enumerate();
    let live =
        members.filter_map(|(slot, m)| m.as_ref().filter(|m| m.is_live()).map(|m| (slot, m)));
    let own = matches!(theirs.role(found.member.number), DeviceRole::Active(_));
    live.filter(|_| own).find_map(absent)
}

/// The slot it had and the events it saw; or why it cannot go back there.
fn comes_back(status: &Status, found: &Found) -> std::result::Result<(Slot, u64), String> {
    let DeviceRole::Active(slot) = found.array.role(found.member.number) else {
        return Err("it was not in a slot".into());
    };
    let Some(seat) = status.members.get(slot.index()) else {
        return Err(format!("the array has no slot {slot}"));
    };
    if seat.as_ref().is_some_and(Member::is_live) {
        return Err(format!("slot {slot} has another member now"));
    }
    if found.member.recovery.is_some() || found.member.replacement {
        return Err("it was not complete".into());
    }
    let (seen, now) = (found.array.events, status.array.events);
    match status.bitmap.as_ref().map(|bitmap| bitmap.events_cleared) {
        Some(cleared) if seen >= cleared => Ok((slot, seen)),
        Some(cleared) => Err(format!(
            "it saw {seen} events, and the bitmap tells only what changed since {cleared}"
        )),
        None if seen >= now => Ok((slot, seen)),
        None => Err(format!(
            "it saw {seen} of {now} events, and without a bitmap nobody knows what it missed"
        )),
    }
}

/// A member to do as.
fn like(status: &Status) -> Result<&crate::meta::record::MemberRecord> {
    let mut live = status.members.iter().flatten().filter(|m| m.is_live());
    let first = live.next().map(|m| &m.record);
    first.ok_or_else(|| Error::new(ErrorKind::Dead, "the array has no member left"))
}

/// Refuses a device that carries anything.
fn check_empty(device: &dyn Device) -> Result<()> {
    let content = content(device)?;
    let md = content.md.iter().filter_map(|sighting| sighting.record.as_ref().ok());
    let arrays = md.map(|found| format!("array {}", uuid::to_text(&found.array.uuid)));
    let foreign = content.foreign.iter().map(ToString::to_string);
    let mut carried: Vec<String> = arrays.chain(foreign).collect();
    carried.dedup();
    let what = match carried.first() {
        Some(first) => first.clone(),
        None if content.md.is_empty() && !holds_data(device) => return Ok(()),
        None => "something that was not recognised".into(),
    };
    let text = format!("it carries {what}, which would be lost; to take it all the same, --force");
    Err(Error::new(ErrorKind::Refused, text))
}

/// Makes the partial parity log of a device that joins an empty one.
fn clear_log(device: &dyn Device, area: Area, uuid: &[u8; 16]) -> Result<()> {
    let mut bytes = md_ppl::empty(uuid, 0);
    bytes.resize(area.len.len(), 0);
    let io = |e| Error::io("clearing its partial parity log", e);
    write_at(device, area.at, &bytes).map_err(io)?;
    device.flush().map_err(io)
}

/// Removes superblocks that lie elsewhere, so that nobody finds two.
fn wipe(device: &dyn Device, keep: Sectors) -> Result<()> {
    let io = |e| Error::io("removing an old superblock", e);
    for sighting in content(device)?.md.iter().filter(|s| s.at != keep) {
        write_at(device, sighting.at, &vec![0; sighting.bytes.len()]).map_err(io)?;
    }
    device.flush().map_err(io)
}
