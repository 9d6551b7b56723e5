//! From the bytes of an md 1.x superblock to records that make sense, or the reason why not.
//!
//! Checks what the kernel checks (`super_1_load`, Linux 6.1) and more: the kernel starts an
//! array whose data is said to lie beyond the member's end; we do not.

use super::features;
use super::packet::{MAGIC, MAX_DEV, MAX_SECTOR, Packet};
use crate::error::Result;
use crate::meta::bytes::{overlap, relative};
use crate::meta::record::{Area, ArrayRecord, DeviceRole, MemberRecord, Reshape};
use crate::meta::{Format, Found, damaged, md_ppl};
use crate::units::{SECTOR, Sectors, Slot};

/// Sizes and places at or above this are nonsense: bytes must fit in 63 bits.
const SECTORS_END: u64 = 1 << 54;
/// The kernel keeps the chunk as a signed number of sectors.
const CHUNK_MAX: u32 = i32::MAX as u32;
/// Roles from here on are not slots (`MD_DISK_ROLE_MAX`).
const ROLE_END: u16 = 0xff00;
/// The kernel refuses members with less data.
const DATA_MIN: u64 = 10;
/// The kernel refuses longer bad-block logs.
const BAD_LOG_MAX: u16 = 8;

/// Translates the superblock found at sector `at` of a device of `device` sectors.
pub fn parse(format: &'static Format, bytes: &[u8], at: Sectors, device: Sectors) -> Result<Found> {
    let packet = Packet::new(bytes);
    check_envelope(&packet, bytes, at)?;
    let array = array_record(&packet)?;
    let member = member_record(&packet, &array, at)?;
    check_areas(&packet, &array, &member, device)?;
    let bits = packet.features();
    Ok(Found {
        format,
        array,
        member,
        has_bad_blocks: bits & features::BAD_BLOCKS != 0,
        bars_starting: features::bars_starting(bits).or_else(|| unknown_padding(&packet)),
        bars_writing: features::bars_writing(bits).map(String::from).or(odd_block(&packet)),
    })
}

/// What role map entry `value` means; `None` for numbers that mean nothing.
pub fn role(value: u16) -> Option<DeviceRole> {
    match value {
        0xffff => Some(DeviceRole::Spare),
        0xfffe => Some(DeviceRole::Faulty),
        0xfffd => Some(DeviceRole::Journal),
        slot if slot < ROLE_END => Some(DeviceRole::Active(Slot(slot))),
        _ => None,
    }
}

fn check_envelope(packet: &Packet, bytes: &[u8], at: Sectors) -> Result<()> {
    if packet.magic() != MAGIC || packet.major() != 1 {
        return Err(damaged("there is no md 1.x superblock here"));
    }
    if packet.max_dev() > MAX_DEV {
        return Err(damaged(format!(
            "its role map claims {} entries; at most {MAX_DEV} fit",
            packet.max_dev()
        )));
    }
    if bytes.len() < packet.used() {
        return Err(damaged(format!(
            "it is cut off: {} bytes are needed, {} are there",
            packet.used(),
            bytes.len()
        )));
    }
    if !packet.checksum_matches() {
        return Err(damaged(format!(
            "its checksum is wrong: {:#010x} stored, {:#010x} expected",
            packet.checksum(),
            packet.expected_checksum().unwrap_or_default()
        )));
    }
    if packet.super_offset() != at.0 {
        return Err(damaged(format!(
            "it says it lies at sector {}, but it was found at sector {at}: \
             perhaps a copy, or a partition seen through its disk",
            packet.super_offset()
        )));
    }
    if packet.pad0() != 0 {
        return Err(damaged("its padding is not zero"));
    }
    match features::contradiction(packet.features(), packet.level()) {
        Some(why) => Err(damaged(why)),
        None => Ok(()),
    }
}

fn array_record(packet: &Packet) -> Result<ArrayRecord> {
    let slots = slots(packet)?;
    let chunk = packet.chunk();
    if chunk > CHUNK_MAX || (matches!(packet.level(), 0 | 4 | 5 | 6 | 10) && chunk == 0) {
        return Err(damaged(format!("a chunk of {chunk} sectors makes no sense")));
    }
    let component = bounded("component size", packet.size())?;
    if matches!(packet.level(), 1 | 4 | 5 | 6 | 10) && component.is_empty() {
        return Err(damaged("its component size is zero"));
    }
    Ok(ArrayRecord {
        uuid: packet.uuid(),
        name: packet.name().to_vec(),
        ctime: packet.ctime(),
        level: packet.level(),
        layout: layout(packet),
        chunk: Sectors(u64::from(chunk)),
        slots,
        component,
        utime: packet.utime(),
        events: packet.events(),
        resync: resync(packet)?,
        roles: roles(packet, slots)?,
        logical_block: (packet.logical_block() != 0).then(|| packet.logical_block()),
        reshape: reshape(packet),
    })
}

fn slots(packet: &Packet) -> Result<u16> {
    match packet.raid_disks() {
        n @ 1..=MAX_DEV => Ok(n as u16),
        n => Err(damaged(format!("{n} slots make no sense; an md array has 1 to {MAX_DEV}"))),
    }
}

/// A RAID 0 without the feature bit does not say its order, whatever the word holds.
fn layout(packet: &Packet) -> u32 {
    match packet.level() == 0 && packet.features() & features::RAID0_LAYOUT == 0 {
        true => 0,
        false => packet.layout(),
    }
}

/// RAID 0 and linear have nothing to resync; the word means nothing there.
fn resync(packet: &Packet) -> Result<Option<Sectors>> {
    match packet.resync_offset() {
        MAX_SECTOR => Ok(None),
        _ if !matches!(packet.level(), 1 | 4 | 5 | 6 | 10) => Ok(None),
        at => bounded("resync position", at).map(Some),
    }
}

/// The role map without the spares at its end.
fn roles(packet: &Packet, slots: u16) -> Result<Vec<DeviceRole>> {
    let mut roles = Vec::new();
    for number in 0..packet.max_dev() {
        let value = packet.role(number);
        match role(value) {
            Some(DeviceRole::Active(slot)) if slot.0 >= slots && packet.delta_disks() == 0 => {
                return Err(damaged(format!(
                    "device {number} is said to fill slot {slot}, but there are {slots} slots"
                )));
            }
            Some(role) => roles.push(role),
            None => {
                return Err(damaged(format!("role {value:#06x} of device {number} is unknown")));
            }
        }
    }
    let len = roles.iter().rposition(|&role| role != DeviceRole::Spare).map_or(0, |last| last + 1);
    roles.truncate(len);
    Ok(roles)
}

fn reshape(packet: &Packet) -> Option<Reshape> {
    (packet.features() & features::RESHAPE_ACTIVE != 0).then(|| Reshape {
        position: Sectors(packet.reshape_position()),
        delta_slots: packet.delta_disks(),
        new_level: packet.new_level(),
        new_layout: packet.new_layout(),
        new_chunk: Sectors(u64::from(packet.new_chunk())),
        backwards: packet.features() & features::RESHAPE_BACKWARDS != 0,
    })
}

fn member_record(packet: &Packet, array: &ArrayRecord, at: Sectors) -> Result<MemberRecord> {
    let bits = packet.features();
    let number = packet.dev_number();
    if number >= MAX_DEV {
        return Err(damaged(format!("device number {number} is beyond every role map")));
    }
    let is_active = matches!(array.role(number), DeviceRole::Active(_));
    let recovering = is_active && bits & features::RECOVERY_OFFSET != 0;
    Ok(MemberRecord {
        super_at: at,
        data_at: bounded("data offset", packet.data_offset())?,
        data_len: bounded("data size", packet.data_size())?,
        number,
        device_uuid: packet.device_uuid(),
        recovery: match recovering {
            true => recovery(packet)?,
            false => None,
        },
        replacement: bits & features::REPLACEMENT != 0,
        write_mostly: packet.devflags() & 1 != 0,
        failfast: packet.devflags() & 2 != 0,
        bad_log: bad_log(packet, at)?,
        bad_blocks: Vec::new(),
        bitmap_at: bitmap_at(packet, at)?,
        ppl: ppl(packet, at)?,
        journal_tail: (array.role(number) == DeviceRole::Journal)
            .then(|| Sectors(packet.recovery_offset())),
        corrected_reads: packet.corrected_reads(),
        raw: packet.bytes().to_vec(),
    })
}

/// A finished recovery says [`MAX_SECTOR`] where the bit was not dropped yet.
fn recovery(packet: &Packet) -> Result<Option<Sectors>> {
    match packet.recovery_offset() {
        MAX_SECTOR => Ok(None),
        at => bounded("recovery position", at).map(Some),
    }
}

fn bad_log(packet: &Packet, at: Sectors) -> Result<Option<Area>> {
    let in_use = packet.features() & features::BAD_BLOCKS != 0;
    if packet.bblog_offset() == 0 {
        return match in_use {
            true => Err(damaged("it has bad blocks but no place where their log is kept")),
            false => Ok(None),
        };
    }
    if in_use && packet.bblog_size() > BAD_LOG_MAX {
        return Err(damaged(format!(
            "its bad-block log of {} sectors is too long; md allows {BAD_LOG_MAX}",
            packet.bblog_size()
        )));
    }
    let len = Sectors(u64::from(packet.bblog_size().min(BAD_LOG_MAX)));
    let place = relative(at, packet.bblog_offset());
    place
        .map(|at| Some(Area { at, len }))
        .ok_or_else(|| damaged("its bad-block log is said to lie before the start of the member"))
}

fn bitmap_at(packet: &Packet, at: Sectors) -> Result<Option<Sectors>> {
    if packet.features() & features::BITMAP == 0 {
        return Ok(None);
    }
    match relative(at, packet.bitmap_offset()) {
        Some(place) if place != at => Ok(Some(place)),
        _ => Err(damaged(format!(
            "its bitmap offset of {} sectors makes no sense",
            packet.bitmap_offset()
        ))),
    }
}

fn ppl(packet: &Packet, at: Sectors) -> Result<Option<Area>> {
    if packet.features() & (features::PPL | features::MULTIPLE_PPLS) == 0 {
        return Ok(None);
    }
    let len = Sectors(u64::from(packet.ppl_size()));
    match relative(at, packet.ppl_offset().into()) {
        Some(place) if place != at && len >= md_ppl::HEADER_LEN => {
            Ok(Some(Area { at: place, len }))
        }
        _ => Err(damaged(format!(
            "a partial parity log of {len} sectors at offset {} makes no sense",
            packet.ppl_offset()
        ))),
    }
}

/// Data must lie on the member, must hold the component and must not cover the metadata.
fn check_areas(
    packet: &Packet,
    array: &ArrayRecord,
    member: &MemberRecord,
    device: Sectors,
) -> Result<()> {
    let data = Area { at: member.data_at, len: member.data_len };
    if data.len.0 < DATA_MIN {
        return Err(damaged(format!("{} data sectors are too few to be true", data.len)));
    }
    let room = match packet.super_offset() > packet.data_offset() {
        true => member.super_at,
        false => device.checked_sub(data.at).unwrap_or_default(),
    };
    if data.len > room {
        return Err(damaged(format!(
            "it says {} sectors are for data, but the member has room for {room} only: \
             it was cut off or is another device",
            data.len
        )));
    }
    let is_journal = array.role(member.number) == DeviceRole::Journal;
    if array.component > data.len && !is_journal {
        return Err(damaged(format!(
            "each member gives {} sectors to the array, but this one has only {} for data",
            array.component, data.len
        )));
    }
    let used = if array.component.is_empty() || is_journal { data.len } else { array.component };
    let used = Area { at: data.at, len: used };
    let own = Sectors((packet.used() as u64).div_ceil(SECTOR));
    check_apart("superblock", used, Area { at: member.super_at, len: own })?;
    if let Some(log) = member.bad_log {
        if log.end() > device {
            return Err(damaged("its bad-block log is said to lie beyond the member's end"));
        }
        check_apart("bad-block log", used, log)?;
    }
    if let Some(ppl) = member.ppl {
        if ppl.end() > device {
            return Err(damaged("its partial parity log is said to lie beyond the member's end"));
        }
        check_apart("partial parity log", used, ppl)?;
    }
    match member.bitmap_at {
        Some(at) => check_apart("bitmap", used, Area { at, len: Sectors(1) }),
        None => Ok(()),
    }
}

fn check_apart(what: &str, data: Area, other: Area) -> Result<()> {
    match overlap(data, other) {
        false => Ok(()),
        true => Err(damaged(format!(
            "its data (sectors {} to {}) covers its {what} (at sector {})",
            data.at,
            data.end(),
            other.at
        ))),
    }
}

fn bounded(what: &str, sectors: u64) -> Result<Sectors> {
    match sectors < SECTORS_END {
        true => Ok(Sectors(sectors)),
        false => Err(damaged(format!("a {what} of {sectors} sectors makes no sense"))),
    }
}

/// Padding that a later version gave a meaning.
fn unknown_padding(packet: &Packet) -> Option<String> {
    packet.pad3().iter().any(|&byte| byte != 0).then(|| {
        "bytes that should be zero are in use: it was written by a later version of md".into()
    })
}

/// Linux 6.19 and later record the logical block; it does not move data. We read and write
/// whole sectors, so 512 and 4096 (what real members have) are fine; others are kept unwritten.
fn odd_block(packet: &Packet) -> Option<String> {
    match packet.logical_block() {
        0 | 512 | 4096 => None,
        bytes => Some(format!("its logical block of {bytes} bytes is not one we can honour")),
    }
}
