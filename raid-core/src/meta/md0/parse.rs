//! From the words of an md 0.90 superblock to records that make sense, or the reason why not.
//!
//! Checks what the kernel checks (`super_90_load`, `super_90_validate`, Linux 6.1) and more.

use super::packet::{Disk, Packet, disk_state, word};
use super::{BITMAP_AFTER, DEVICES_MAX};
use crate::error::Result;
use crate::meta::record::{ArrayRecord, DeviceRole, MemberRecord, Reshape};
use crate::meta::{Format, Found, damaged};
use crate::units::{SECTOR, Sectors, Slot};

/// Translates the superblock found at sector `at`.
pub fn parse(format: &'static Format, bytes: &[u8], at: Sectors) -> Result<Found> {
    let packet =
        Packet::new(bytes).ok_or_else(|| damaged("there is no md 0.90 superblock here"))?;
    check_envelope(&packet, bytes)?;
    let array = array_record(&packet)?;
    let member = member_record(&packet, at)?;
    if array.component > member.data_len {
        return Err(damaged(format!(
            "each member gives {} sectors to the array, but this one has only {} for data: \
             it was cut off or is another device",
            array.component, member.data_len
        )));
    }
    let bars_starting = array.reshape.map(|_| {
        "a reshape is running (its version is 0.91): part of the data lies in the old geometry \
         and part in the new one, which this version cannot map; let the kernel's md finish it"
            .to_string()
    });
    Ok(Found { format, array, member, has_bad_blocks: false, bars_starting, bars_writing: None })
}

fn check_envelope(packet: &Packet, bytes: &[u8]) -> Result<()> {
    if bytes.len() < super::packet::SIZE {
        return Err(damaged(format!("it is cut off: only {} of its bytes are there", bytes.len())));
    }
    if !packet.checksum_matches() {
        return Err(damaged(format!(
            "its checksum is wrong: {:#010x} stored, {:#010x} expected",
            packet.checksum(),
            packet.expected_checksum()
        )));
    }
    match packet.minor() {
        90 | 91 => Ok(()),
        minor => Err(damaged(format!("its version 0.{minor} is unknown; md has 0.90 and 0.91"))),
    }
}

fn array_record(packet: &Packet) -> Result<ArrayRecord> {
    let level = packet.level();
    let slots = match packet.raid_disks() {
        n @ 1..=DEVICES_MAX => n as u16,
        n => {
            return Err(damaged(format!(
                "{n} slots make no sense; a 0.90 array has 1 to {DEVICES_MAX}"
            )));
        }
    };
    let chunk = chunk(packet)?;
    if matches!(level, 1 | 4 | 5 | 6 | 10) && packet.component().is_empty() {
        return Err(damaged("its component size is zero"));
    }
    Ok(ArrayRecord {
        uuid: packet.uuid(),
        name: Vec::new(),
        ctime: packet.ctime(),
        level,
        // The order of a RAID 0 is not recorded, whatever the word holds.
        layout: if level == 0 { 0 } else { packet.layout() },
        chunk,
        slots,
        component: if level > 0 { packet.component() } else { Sectors::ZERO },
        utime: packet.utime(),
        events: packet.events(),
        resync: resync(packet),
        roles: roles(packet, slots)?,
        logical_block: None,
        reshape: reshape(packet),
    })
}

fn chunk(packet: &Packet) -> Result<Sectors> {
    let bytes = u64::from(packet.chunk_bytes());
    let striped = matches!(packet.level(), 0 | 4 | 5 | 6 | 10);
    match bytes.is_multiple_of(SECTOR) && (bytes > 0 || !striped) {
        true => Ok(Sectors::floor_bytes(bytes)),
        false => Err(damaged(format!("a chunk of {bytes} bytes makes no sense"))),
    }
}

/// RAID 0 and linear have nothing to resync.
fn resync(packet: &Packet) -> Option<Sectors> {
    let redundant = matches!(packet.level(), 1 | 4 | 5 | 6 | 10);
    (redundant && !packet.is_clean()).then(|| Sectors(packet.recovery_cp().into()))
}

/// The descriptors without those of spares and gaps at their end.
fn roles(packet: &Packet, slots: u16) -> Result<Vec<DeviceRole>> {
    let mut roles = Vec::new();
    for number in 0..DEVICES_MAX {
        let role = role(&packet.disk(number));
        match role {
            DeviceRole::Active(slot) if slot.0 >= slots && packet.minor() == 90 => {
                return Err(damaged(format!(
                    "device {number} is said to fill slot {slot}, but there are {slots} slots"
                )));
            }
            _ => roles.push(role),
        }
    }
    let len = roles.iter().rposition(|&role| role != DeviceRole::Spare).map_or(0, |last| last + 1);
    roles.truncate(len);
    Ok(roles)
}

/// What the descriptor says. A device that is active but not in sync was being rebuilt; how far
/// it came is not recorded, so it counts as a spare.
fn role(disk: &Disk) -> DeviceRole {
    if disk.has(disk_state::FAULTY) {
        DeviceRole::Faulty
    } else if disk.has(disk_state::SYNC) {
        // No slot is that high: the number of slots bounds it from above.
        DeviceRole::Active(Slot(u16::try_from(disk.raid_disk).unwrap_or(u16::MAX)))
    } else {
        DeviceRole::Spare
    }
}

fn reshape(packet: &Packet) -> Option<Reshape> {
    (packet.minor() == 91).then(|| Reshape {
        position: Sectors(packet.pair(word::RESHAPE_POSITION)),
        delta_slots: packet.word(word::DELTA_DISKS) as i32,
        new_level: packet.word(word::NEW_LEVEL) as i32,
        new_layout: packet.word(word::NEW_LAYOUT),
        new_chunk: Sectors::floor_bytes(packet.word(word::NEW_CHUNK).into()),
        backwards: (packet.word(word::DELTA_DISKS) as i32) < 0,
    })
}

fn member_record(packet: &Packet, at: Sectors) -> Result<MemberRecord> {
    let number = packet.this_disk().number;
    if number >= DEVICES_MAX {
        return Err(damaged(format!(
            "its device number {number} is beyond the {DEVICES_MAX} that a superblock lists"
        )));
    }
    let advice = packet.disk(number);
    Ok(MemberRecord {
        super_at: at,
        data_at: Sectors::ZERO,
        data_len: at,
        number,
        device_uuid: [0; 16],
        recovery: None,
        replacement: false,
        write_mostly: advice.has(disk_state::WRITE_MOSTLY),
        failfast: advice.has(disk_state::FAILFAST),
        bad_log: None,
        bad_blocks: Vec::new(),
        bitmap_at: packet.has_bitmap().then(|| at + BITMAP_AFTER),
        ppl: None,
        journal_tail: None,
        corrected_reads: 0,
        raw: packet.to_bytes(),
    })
}
