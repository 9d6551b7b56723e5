//! Where a new array's superblock, bitmap, bad-block log and data lie: mdadm 4.2's formulas
//! (`validate_geometry1`, `choose_bm_space`, `add_internal_bitmap1`, `write_init_super1`).

use super::{Areas, DAEMON_SLEEP, NewBitmap, NewLog, Request, old};
use crate::error::{Error, Result};
use crate::meta::Format;
use crate::meta::bytes::overlap;
use crate::meta::md_bitmap::{self, Bitmap};
use crate::meta::record::{Area, ArrayRecord, MemberRecord};
use crate::meta::sizes::{self, Geometry};
use crate::meta::{md_ppl, md0};
use crate::units::{SECTOR, Sectors};

/// Data begins at a multiple of 1 MiB.
const DATA_ALIGN: u64 = 2048;
/// Superblock and bad-block log at the start, with some air.
const HEAD_ROOM: u64 = 24;
/// Most room kept for a later reshape: 128 MiB.
const RESHAPE_ROOM_MAX: u64 = 128 * 1024 * 2;
/// The shortest journal: 1 MiB behind its metadata.
const JOURNAL_MIN: Sectors = Sectors::kib(1024);
/// Sectors of a bad-block log.
const BAD_LOG_LEN: Sectors = Sectors(8);
/// A bitmap follows the superblock at this distance.
const BITMAP_AFTER: Sectors = Sectors(8);
/// Fewest bytes per bit.
const BITMAP_CHUNK_MIN: u64 = 4096;
/// Bytes per bit unless more are needed or others asked for.
const BITMAP_CHUNK_DEFAULT: u64 = 64 << 20;

/// Sectors kept for a bitmap on a device of `sectors`, in whole 4 KiB.
fn bitmap_room(sectors: Sectors) -> Sectors {
    const GIB: u64 = 1024 * 1024 * 2;
    Sectors(match sectors.0 {
        n if n < 128 => 0,
        n if n - 128 >= 200 * GIB => 256,
        n if n - 8 > 8 * GIB => 128,
        _ => 8,
    })
}

/// Sectors kept for what lies between superblock and bad-block log on a device of `sectors`.
fn log_room(request: &Request, sectors: Sectors) -> Sectors {
    match request.log {
        Some(NewLog::Ppl) => md_ppl::AREA_LEN,
        _ => bitmap_room(sectors),
    }
}

/// True if the superblock lies behind the data.
fn is_at_end(format: &Format) -> bool {
    format.name == "1.0" || old::is(format)
}

/// Where data begins on every member: the first member decides, as with mdadm.
pub fn data_at(request: &Request, chunk: Sectors) -> Result<Sectors> {
    if is_at_end(request.format) {
        return match request.data_at {
            None | Some(Sectors::ZERO) => Ok(Sectors::ZERO),
            Some(_) => Err(Error::invalid(format!(
                "metadata {} keeps data at the start of a member; \
                 leave out --data-offset or choose --metadata 1.2",
                request.format
            ))),
        };
    }
    if let Some(at) = request.data_at {
        return Ok(at);
    }
    let first = request.members.iter().flatten().next().map(|member| member.sectors);
    let device = first.unwrap_or_default();
    let chunk_kib = chunk.0 / 2;
    let mut headroom = RESHAPE_ROOM_MAX;
    while headroom << 10 > device.0 && (chunk_kib == 0 || headroom / 2 >= chunk_kib * 4) {
        headroom /= 2;
    }
    let end = HEAD_ROOM + log_room(request, device).0 + headroom;
    Ok(Sectors(end.next_multiple_of(DATA_ALIGN)))
}

/// Data sectors a member of `device` sectors can give to the array.
pub fn room(request: &Request, device: Sectors, data_at: Sectors) -> Result<Sectors> {
    let (end, overhead) = match is_at_end(request.format) {
        true if old::is(request.format) => (device.round_down(md0::RESERVED), md0::RESERVED),
        true => (device.round_down(Sectors(8)), Sectors(HEAD_ROOM) + log_room(request, device)),
        false => (device, data_at),
    };
    end.checked_sub(overhead).filter(|room| !room.is_empty()).ok_or_else(|| {
        Error::invalid(format!(
            "a member of {} bytes is too small: metadata and the room before the data need {}; \
             give a larger one, or a smaller --data-offset or --chunk",
            device.bytes(),
            overhead.bytes()
        ))
    })
}

/// The bitmap that fits the array, all of it dirty.
///
/// # Errors
/// The array has no redundancy, or no room for it.
pub fn bitmap(format: &Format, wanted: &NewBitmap, array: &ArrayRecord) -> Result<Bitmap> {
    if !array.has_redundancy() {
        return Err(Error::invalid(
            "a write-intent bitmap makes sense only with redundancy; leave out --bitmap",
        ));
    }
    let room = match old::is(format) {
        true => md0::BITMAP_ROOM,
        false => bitmap_room(array.component),
    };
    let bits_max = (room.bytes().saturating_sub(md_bitmap::HEAD as u64)) * 8;
    if bits_max == 0 {
        return Err(Error::invalid("members are too small for a bitmap; leave out --bitmap"));
    }
    let covered = covered(array)?;
    let mut chunk_min = BITMAP_CHUNK_MIN;
    // In sectors: the bytes of a hostile size may not fit.
    while covered.0 / (chunk_min / SECTOR) + 1 > bits_max {
        chunk_min *= 2;
    }
    let chunk = match wanted.chunk_bytes {
        None => chunk_min.max(BITMAP_CHUNK_DEFAULT),
        Some(chunk) if chunk.is_power_of_two() && u64::from(chunk) >= chunk_min => chunk.into(),
        Some(chunk) => {
            return Err(Error::invalid(format!(
                "a bitmap chunk of {chunk} bytes does not fit: give a power of two from \
                 {chunk_min} on"
            )));
        }
    };
    let chunk_bytes =
        u32::try_from(chunk).map_err(|_| Error::invalid("the array is too large for a bitmap"))?;
    Ok(Bitmap {
        version: 4,
        uuid: match old::is(format) {
            true => md0::bitmap_id(&array.uuid, md0::ByteOrder::OWN),
            false => array.uuid,
        },
        events: array.events,
        events_cleared: array.events,
        sync_size: covered,
        state: 0,
        chunk_bytes,
        daemon_sleep: DAEMON_SLEEP,
        write_behind: 0,
        sectors_reserved: 0,
        nodes: 0,
    })
}

/// What the bits cover: a member, for RAID 10 the array.
fn covered(array: &ArrayRecord) -> Result<Sectors> {
    if array.level != 10 {
        return Ok(array.component);
    }
    let geometry = Geometry {
        level: array.level,
        layout: array.layout,
        chunk: array.chunk,
        slots: u64::from(array.slots),
        component: array.component,
        members: &[],
    };
    sizes::array_size(&geometry).ok_or_else(|| Error::invalid("this layout word makes no sense"))
}

/// Where things lie on a member of `device` sectors.
pub fn areas(
    request: &Request,
    array: &ArrayRecord,
    bitmap: Option<&Bitmap>,
    device: Sectors,
    data_at: Sectors,
    is_journal: bool,
) -> Result<Areas> {
    let super_at = (request.format.super_at)(device)
        .ok_or_else(|| Error::invalid("a member is too small for a superblock"))?;
    // A journal keeps no less room than a member, but its length is its own.
    let component = if is_journal { Sectors::ZERO } else { array.component };
    let log = match request.log {
        Some(NewLog::Ppl) => md_ppl::AREA_LEN,
        _ => bitmap_len(array, bitmap),
    };
    let (mut areas, log_at) = match is_at_end(request.format) {
        true if old::is(request.format) => areas_of_old(super_at),
        true => areas_at_end(component, log, super_at)?,
        false => areas_at_start(log, super_at, data_at, device),
    };
    areas.bitmap_at = bitmap.map(|_| log_at);
    if let Some(NewLog::Ppl) = request.log {
        areas.ppl = Some(Area { at: log_at, len: md_ppl::AREA_LEN });
    }
    if is_journal && areas.data_len < JOURNAL_MIN {
        return Err(Error::invalid(format!(
            "a journal of {} bytes is too small: after metadata it has {}, and needs {}",
            device.bytes(),
            areas.data_len.bytes(),
            JOURNAL_MIN.bytes()
        )));
    }
    let used = if component.is_empty() { areas.data_len } else { component };
    let data = Area { at: data_at, len: used };
    let map = Area { at: super_at, len: Sectors(8) };
    let bits = areas.bitmap_at.zip(bitmap).map(|(at, bitmap)| bitmap.area(at)).or(areas.ppl);
    let clash = [Some(map), areas.bad_log, bits].into_iter().flatten().any(|a| overlap(a, data));
    let log_clash = areas.bad_log.zip(bits).is_some_and(|(log, bits)| overlap(log, bits));
    match clash || log_clash {
        false => Ok(areas),
        true => Err(Error::invalid(format!(
            "data from byte {} on leaves no room for the metadata; give a larger --data-offset",
            data_at.bytes()
        ))),
    }
}

/// `[ data ][ superblock ][ bitmap ]`; also the place of the last.
fn areas_of_old(super_at: Sectors) -> (Areas, Sectors) {
    let areas = Areas { super_at, data_len: super_at, bad_log: None, bitmap_at: None, ppl: None };
    (areas, super_at + md0::BITMAP_AFTER)
}

/// `[ data ][ bitmap or partial parity log ][ bad-block log ][ superblock ]`; also the place of
/// the second, `log` sectors long.
fn areas_at_end(component: Sectors, log: Sectors, super_at: Sectors) -> Result<(Areas, Sectors)> {
    let before = |len: Sectors| super_at.checked_sub(len).unwrap_or_default();
    let free = super_at
        .checked_sub(component)
        .ok_or_else(|| Error::invalid("a member is too small for its metadata"))?;
    let kept = (log + BAD_LOG_LEN).min(free);
    let areas = Areas {
        super_at,
        data_len: super_at - kept,
        bad_log: (kept >= BAD_LOG_LEN).then(|| Area { at: before(BAD_LOG_LEN), len: BAD_LOG_LEN }),
        bitmap_at: None,
        ppl: None,
    };
    Ok((areas, before(kept)))
}

/// `[ superblock ][ bitmap or partial parity log ][ bad-block log ][ room ][ data ]`, or without
/// room the bad-block log just before the data; also the place of the first, `log` sectors long.
fn areas_at_start(
    log: Sectors,
    super_at: Sectors,
    data_at: Sectors,
    device: Sectors,
) -> (Areas, Sectors) {
    let log_at = super_at + BITMAP_AFTER;
    let behind = log_at + log;
    let bad_log_at = if data_at >= behind + BAD_LOG_LEN {
        Some(behind)
    } else {
        data_at.checked_sub(BAD_LOG_LEN).filter(|&at| at >= log_at)
    };
    let areas = Areas {
        super_at,
        data_len: device.checked_sub(data_at).unwrap_or_default(),
        bad_log: bad_log_at.map(|at| Area { at, len: BAD_LOG_LEN }),
        bitmap_at: None,
        ppl: None,
    };
    (areas, log_at)
}

/// The bitmap's own length, or the room kept for one.
fn bitmap_len(array: &ArrayRecord, bitmap: Option<&Bitmap>) -> Sectors {
    match bitmap {
        Some(bitmap) => bitmap.area(Sectors::ZERO).len,
        None => bitmap_room(array.component),
    }
}

/// Where a bitmap of `len` sectors goes on a member that has none: behind the superblock, with
/// metadata 1.0 before the bad-block log, as mdadm puts it. Nothing where there is no room.
pub fn bitmap_place(
    format: &Format,
    array: &ArrayRecord,
    member: &MemberRecord,
    len: Sectors,
) -> Option<Sectors> {
    let at = match is_at_end(format) {
        true => member.bad_log.map_or(member.super_at, |log| log.at).checked_sub(len)?,
        false => member.super_at + BITMAP_AFTER,
    };
    let bits = Area { at, len };
    let data = Area { at: member.data_at, len: array.component };
    let others = [Some(data), member.bad_log, member.ppl];
    let clash = others.into_iter().flatten().any(|area| overlap(area, bits));
    (!clash).then_some(at)
}
