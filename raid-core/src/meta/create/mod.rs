//! The plan of a new array: what mdadm 4.2 would choose, to the sector, without touching anything.
//!
//! Promises: data offset, component size, bad-block log, bitmap, role map, name and layout
//! words are those of `mdadm --create` (checked against tables made with mdadm and the
//! kernel); the same request gives the same bytes. Refuses: what could not be started.
//!
//! Differences from mdadm, on purpose:
//! - RAID 4/5 are not made "degraded with a spare": device number and slot are the same, and
//!   a new array whose redundancy is not known to be consistent is marked for a resync.
//! - An internal bitmap comes only when asked for, whatever the size (as mdadm 4.4 and later).
//! - Metadata 1.0 takes no data offset, and a bitmap never overlaps the data or the log.
//! - A name may use all 32 bytes; mdadm cuts the last one off.
//! - With 0.90, write-mostly is recorded from the start, and RAID 0 of equal members can be made.

mod breakdown;
mod log;
mod old;
mod place;
mod quorum;
#[cfg(test)]
mod tests;

pub use breakdown::Breakdown;
pub use log::NewLog;
pub use place::{bitmap as plan_bitmap, bitmap_place};

use super::md_bitmap::{self, Bitmap};
use super::md1::{self, features, packet};
use super::record::{Area, ArrayRecord, DeviceRole, MemberRecord};
use super::sizes::Copies;
use super::{Format, bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::layout;
use crate::units::{Sectors, Slot, SlotSet};

/// Chunk of a striped level if none is given: 512 KiB.
pub const CHUNK_DEFAULT: Sectors = Sectors::kib(512);
/// mdadm rounds a mirror to 64 KiB, "if this is ever reshaped to RAID 5".
const MIRROR_ROUNDING: Sectors = Sectors::kib(64);
/// Seconds between bitmap sweeps of the kernel.
const DAEMON_SLEEP: u32 = 5;
/// Bytes a name has room for.
const NAME_MAX: usize = 32;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Request {
    /// Where metadata goes.
    pub format: &'static Format,
    /// md's level number: -1, 0, 1, 4, 5, 6, 10.
    pub level: i32,
    /// md's layout word; `None`: the level's default.
    pub layout: Option<u32>,
    /// Chunk; `None`: 512 KiB for striped levels, none otherwise.
    pub chunk: Option<Sectors>,
    /// The members by slot; `None`: missing.
    pub members: Vec<Option<NewMember>>,
    /// The array's name without its host.
    pub name: Vec<u8>,
    /// The host to put before the name; `None`: no host. With 0.90 it is part of the id instead:
    /// see [`super::md0::id_with_host`].
    pub homehost: Option<Vec<u8>>,
    /// Array id.
    pub uuid: [u8; 16],
    /// Creation time, seconds since 1970.
    pub ctime: u64,
    /// Sectors to use of each member; `None`: as much as fits.
    pub size: Option<Sectors>,
    /// Where data begins; `None`: mdadm's choice.
    pub data_at: Option<Sectors>,
    /// The user says that the redundancy is consistent already.
    pub assume_clean: bool,
    /// All members are known to hold zeros: their redundancy is consistent.
    pub zeroed: bool,
    /// An internal write-intent bitmap.
    pub bitmap: Option<NewBitmap>,
    /// A log against the write hole.
    pub log: Option<NewLog>,
    /// Accept an array of one member.
    pub force: bool,
}

/// A member to be.
#[derive(Clone, Debug)]
pub struct NewMember {
    /// Its length.
    pub sectors: Sectors,
    /// Its id.
    pub device_uuid: [u8; 16],
    /// Read from it only if nothing else has the data.
    pub write_mostly: bool,
    /// Fail it at the first error.
    pub failfast: bool,
}

/// A bitmap to be.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewBitmap {
    /// Bytes per bit, a power of two; `None`: at least 64 MiB.
    pub chunk_bytes: Option<u32>,
}

/// A new array, ready to be written.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The metadata's format.
    pub format: &'static Format,
    /// What all members will say.
    pub array: ArrayRecord,
    /// What each member that is there gets.
    pub members: Vec<PlannedMember>,
    /// What the write journal gets, if there is one.
    pub journal: Option<PlannedMember>,
    /// Array size.
    pub size: Sectors,
    /// Where the given sectors go.
    pub breakdown: Breakdown,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// What to write to one member, in this order.
#[derive(Clone, Debug)]
pub struct PlannedMember {
    /// Its slot, which is also its number; a journal has the number behind the last slot.
    pub slot: Slot,
    /// Its record.
    pub member: MemberRecord,
    /// Sector and bytes of the bad-block log, empty of entries.
    pub bad_log: Option<(Sectors, Vec<u8>)>,
    /// Sector and bytes of the bitmap, if any: all bits set.
    pub bitmap: Option<(Sectors, Vec<u8>)>,
    /// Sector and bytes of an empty partial parity log, or of the journal's first block.
    pub log: Option<(Sectors, Vec<u8>)>,
    /// Sector and bytes of the superblock: last, so that a half-made member is no member.
    pub superblock: (Sectors, Vec<u8>),
}

/// Refuses a device of `sectors` that is too small to be a member of what `request` asks for: by
/// itself, so that the caller can say which one it is.
pub fn check_room(request: &Request, sectors: Sectors) -> Result<()> {
    let chunk = chunk(request)?;
    let data_at = place::data_at(request, chunk)?;
    let room = place::room(request, sectors, data_at)?;
    let unit = unit(chunk);
    match room >= unit {
        true => Ok(()),
        false => Err(too_small(unit)),
    }
}

/// Plans the array `request` asks for.
pub fn create(request: &Request) -> Result<Creation> {
    let chunk = chunk(request)?;
    check_members(request)?;
    log::check(request)?;
    let data_at = place::data_at(request, chunk)?;
    old::check(request, chunk)?;
    let rooms = request.members.iter().map(|member| match member {
        Some(member) => place::room(request, member.sectors, data_at).map(Some),
        None => Ok(None),
    });
    let rooms = rooms.collect::<Result<Vec<Option<Sectors>>>>()?;
    let (array, bitmap) = array_record(request, chunk, &rooms)?;
    let plan =
        |number, new: &NewMember| planned(request, &array, bitmap.as_ref(), data_at, number, new);
    let given = request.members.iter().enumerate();
    let given = given.filter_map(|(slot, member)| Some((slot, member.as_ref()?)));
    let members = given.map(|(slot, new)| plan(slot, new)).collect::<Result<Vec<_>>>()?;
    let journal = match &request.log {
        Some(NewLog::Journal(new)) => Some(plan(request.members.len(), new)?),
        _ => None,
    };
    let size = size(&array, &members)?;
    let breakdown = Breakdown::new(request, &array, &rooms, size);
    let warnings = warnings(request, &array, &rooms);
    Ok(Creation { format: request.format, array, members, journal, size, breakdown, warnings })
}

/// The name in the superblock: `host:name` if that is shorter than 32 bytes and the name does
/// not bring a host of its own (`other:name`), else the name.
pub fn full_name(homehost: Option<&[u8]>, name: &[u8]) -> Result<Vec<u8>> {
    if name.len() > NAME_MAX {
        return Err(Error::invalid(format!(
            "the name has {} bytes, but a superblock has room for {NAME_MAX}; give a shorter \
             --name",
            name.len()
        )));
    }
    Ok(match homehost {
        Some(host) if host.len() + 1 + name.len() < NAME_MAX && !name.contains(&b':') => {
            [host, b":", name].concat()
        }
        _ => name.to_vec(),
    })
}

/// The array's size by its layout, which also checks that the geometry makes sense.
fn size(array: &ArrayRecord, members: &[PlannedMember]) -> Result<Sectors> {
    let mut lens = vec![array.component; array.slots.into()];
    for planned in members {
        lens[planned.slot.index()] = planned.member.data_len;
    }
    let params = layout::Params {
        layout: array.layout,
        chunk: array.chunk,
        slots: array.slots,
        component: array.component,
        members: lens,
    };
    match layout::make(array.level, &params)?.shape().size {
        Sectors::ZERO => Err(Error::invalid("an array of this geometry would have no size")),
        size => Ok(size),
    }
}

/// The chunk to store: mirrors have none, striped levels must.
fn chunk(request: &Request) -> Result<Sectors> {
    let chunk = match request.level {
        1 => return Ok(Sectors::ZERO),
        -1 => request.chunk.unwrap_or(Sectors::ZERO),
        0 | 4 | 5 | 6 | 10 => request.chunk.unwrap_or(CHUNK_DEFAULT),
        level => return Err(Error::invalid(format!("level {level} cannot be created"))),
    };
    let wanted = match request.level {
        -1 => return Ok(chunk),
        0 => "a multiple of 4 KiB",
        _ => "a power of two from 4 KiB on",
    };
    let fits = match request.level {
        0 => !chunk.is_empty() && chunk.rem(Sectors(8)).is_empty(),
        _ => chunk.0 >= 8 && chunk.0.is_power_of_two(),
    };
    match fits && chunk.0 <= i32::MAX as u64 {
        true => Ok(chunk),
        false => Err(Error::invalid(format!(
            "a chunk of {} bytes does not fit: this level needs {wanted}; change --chunk",
            chunk.bytes()
        ))),
    }
}

fn check_members(request: &Request) -> Result<()> {
    let slots = request.members.len();
    let present: SlotSet = request
        .members
        .iter()
        .enumerate()
        .filter(|(_, member)| member.is_some())
        .map(|(slot, _)| Slot(slot as u16))
        .collect();
    let least = match request.level {
        4 | 5 | 10 => 2,
        6 => 4,
        _ => 1,
    };
    let most = old::members_max(request.format, packet::MAX_DEV);
    if slots < least || slots > most as usize {
        return Err(Error::invalid(format!(
            "{slots} members were given; this level takes {least} to {most} with metadata {}",
            request.format
        )));
    }
    if slots == 1 && !request.force {
        return Err(Error::new(
            ErrorKind::Refused,
            "an array of one member is probably a mistake; say --force if you mean it",
        ));
    }
    let layout = layout_word(request);
    let copies = Copies::of(layout).count();
    if request.level == 10 && !(2..=slots as u64).contains(&copies) {
        return Err(Error::invalid(format!(
            "{copies} copies on {slots} members do not work; change --layout"
        )));
    }
    quorum::check(request.level, layout, slots as u16, &present)
}

/// The layout word: RAID 0 always names its order, as mdadm 4.2 does, where there is a word.
fn layout_word(request: &Request) -> u32 {
    let default = match request.level {
        0 if old::is(request.format) => 0,
        0 => 1,
        5 | 6 => 2,
        10 => 0x102,
        _ => 0,
    };
    request.layout.unwrap_or(default)
}

fn array_record(
    request: &Request,
    chunk: Sectors,
    rooms: &[Option<Sectors>],
) -> Result<(ArrayRecord, Option<Bitmap>)> {
    let slots = request.members.len() as u16;
    let mut array = ArrayRecord {
        uuid: request.uuid,
        name: match old::is(request.format) {
            true => Vec::new(),
            false => full_name(request.homehost.as_deref(), &request.name)?,
        },
        ctime: request.ctime,
        level: request.level,
        layout: layout_word(request),
        chunk,
        slots,
        component: component(request, chunk, rooms)?,
        utime: request.ctime,
        events: u64::from(old::is(request.format)),
        resync: None,
        roles: Vec::new(),
        logical_block: None,
        reshape: None,
    };
    for (slot, _) in request.members.iter().enumerate().filter(|(_, member)| member.is_some()) {
        array.set_role(slot as u32, DeviceRole::Active(Slot(slot as u16)));
    }
    if matches!(request.log, Some(NewLog::Journal(_))) {
        array.set_role(slots.into(), DeviceRole::Journal);
    }
    array.resync = resync(request, &array)?;
    let bitmap = match &request.bitmap {
        Some(wanted) => Some(place::bitmap(request.format, wanted, &array)?),
        None => None,
    };
    Ok((array, bitmap))
}

/// Sectors used of each member, in whole KiB and whole chunks; zero for RAID 0 and linear.
fn component(request: &Request, chunk: Sectors, rooms: &[Option<Sectors>]) -> Result<Sectors> {
    let smallest = rooms.iter().flatten().min().copied().unwrap_or_default();
    let unit = unit(chunk);
    if matches!(request.level, -1 | 0) {
        return match (request.size, smallest >= unit) {
            (Some(_), _) => {
                Err(Error::invalid("RAID 0 and linear use each member whole; leave out --size"))
            }
            (None, true) => Ok(Sectors::ZERO),
            (None, false) => Err(too_small(unit)),
        };
    }
    let component = match request.size {
        Some(size) => size.round_down(unit),
        None if request.level == 1 => smallest.round_down(MIRROR_ROUNDING),
        None => smallest.round_down(unit),
    };
    if let Some(size) = request.size.filter(|&size| size > smallest) {
        return Err(Error::invalid(format!(
            "--size asks for {} bytes of each member, but the smallest has room for {}",
            size.bytes(),
            smallest.bytes()
        )));
    }
    old::check_component(request, component)?;
    if component.is_empty() { Err(too_small(unit)) } else { Ok(component) }
}

/// The least that a member gives: a chunk, or 1 KiB where there is none.
fn unit(chunk: Sectors) -> Sectors {
    if chunk.is_empty() { Sectors(2) } else { chunk }
}

fn too_small(unit: Sectors) -> Error {
    Error::invalid(format!(
        "the member is too small: after metadata less than {} bytes are left; \
         give a larger one or a smaller --chunk",
        unit.bytes()
    ))
}

/// Where redundancy is consistent: nowhere, unless the contents are known.
fn resync(request: &Request, array: &ArrayRecord) -> Result<Option<Sectors>> {
    if !array.has_redundancy() || request.assume_clean || request.zeroed {
        return Ok(None);
    }
    let missing = request.members.iter().filter(|member| member.is_none()).count();
    match (array.level, missing) {
        // A log cannot tell parity that was never made from parity that is right: the last
        // member is rebuilt instead, as mdadm does it.
        (4 | 5, 0) if request.log.is_some() => Ok(None),
        (4 | 5, 1) | (6, 2) => Ok(None),
        (6, 1) => Err(Error::new(
            ErrorKind::Refused,
            "RAID 6 with one missing member must know its parity: it would start dirty and \
             degraded, which md refuses; give all members, leave two missing, or use members \
             that hold only zeros",
        )),
        _ => Ok(Some(Sectors::ZERO)),
    }
}

/// What device `number` gets: a member by its slot, or the journal behind them.
fn planned(
    request: &Request,
    array: &ArrayRecord,
    bitmap: Option<&Bitmap>,
    data_at: Sectors,
    number: usize,
    new: &NewMember,
) -> Result<PlannedMember> {
    let slot = Slot(number as u16);
    let is_journal = number == request.members.len();
    let areas = place::areas(request, array, bitmap, new.sectors, data_at, is_journal)?;
    let member = MemberRecord {
        super_at: areas.super_at,
        data_at,
        data_len: areas.data_len,
        number: number as u32,
        device_uuid: match old::is(request.format) {
            true => [0; 16],
            false => new.device_uuid,
        },
        recovery: log::recovery(request, slot),
        replacement: false,
        write_mostly: new.write_mostly,
        failfast: new.failfast,
        bad_log: areas.bad_log,
        bad_blocks: Vec::new(),
        bitmap_at: areas.bitmap_at,
        ppl: areas.ppl,
        journal_tail: is_journal.then_some(Sectors::ZERO),
        corrected_reads: 0,
        raw: fresh_block(request),
    };
    planned_member(request.format, array, member, slot, bitmap)
}

fn planned_member(
    format: &Format,
    array: &ArrayRecord,
    mut member: MemberRecord,
    slot: Slot,
    bitmap: Option<&Bitmap>,
) -> Result<PlannedMember> {
    let superblock = (format.emit)(array, &member)?;
    member.raw = superblock.1.clone();
    let bad_log = md1::emit::emit_bad_blocks(&member)?;
    let bitmap = match (member.bitmap_at, bitmap) {
        (Some(at), Some(bitmap)) => Some((at, md_bitmap::emit_new(bitmap))),
        _ => None,
    };
    let log = log::first(array, &member);
    Ok(PlannedMember { slot, member, bad_log, bitmap, log, superblock })
}

/// The block a new superblock is patched into: room for the role map, and the feature bits no
/// record says: the log's, and RAID 0's, which mdadm 4.2 sets only where members differ in size.
/// Nothing with 0.90.
fn fresh_block(request: &Request) -> Vec<u8> {
    if old::is(request.format) {
        return Vec::new();
    }
    let mut raw = vec![0; packet::SIZE_MAX];
    let journals = matches!(request.log, Some(NewLog::Journal(_))) as u32;
    let devices = request.members.len() as u32 + journals;
    let entries = md1::emit::map_len(devices).min(packet::MAX_DEV);
    bytes::put(&mut raw, packet::field::MAX_DEV, &entries.to_le_bytes());
    let mut lens = request.members.iter().flatten().map(|member| member.sectors);
    let first = lens.next();
    let bits = match request.log {
        Some(NewLog::Ppl) => features::PPL,
        Some(NewLog::Journal(_)) => features::JOURNAL,
        None if request.level == 0 && lens.any(|len| Some(len) != first) => features::RAID0_LAYOUT,
        None => 0,
    };
    bytes::put(&mut raw, packet::field::FEATURES, &bits.to_le_bytes());
    raw
}

/// mdadm warns where more than one part in a hundred of a member stays unused.
fn warnings(request: &Request, array: &ArrayRecord, rooms: &[Option<Sectors>]) -> Vec<String> {
    let largest = rooms.iter().flatten().max().copied().unwrap_or_default();
    let wasteful = !array.component.is_empty()
        && request.size.is_none()
        && largest.0.saturating_sub(array.component.0) > array.component.0 / 100;
    match wasteful {
        true => vec![format!(
            "the largest member has room for {} bytes, but only {} of each member are used",
            largest.bytes(),
            array.component.bytes()
        )],
        false => Vec::new(),
    }
}

/// Where things lie on one member.
struct Areas {
    super_at: Sectors,
    data_len: Sectors,
    bad_log: Option<Area>,
    bitmap_at: Option<Sectors>,
    ppl: Option<Area>,
}
