//! From records to the bytes of an md 1.x superblock.
//!
//! The block that was read is patched: whatever a record does not say stays as it was. Feature
//! bits that follow from the record are set anew, as the kernel's `super_1_sync` does.

use super::features;
use super::packet::{HEAD, MAGIC, MAX_DEV, MAX_SECTOR, Packet, checksum, field};
use crate::error::{Error, Result};
use crate::meta::bytes::put;
use crate::meta::record::{Area, ArrayRecord, DeviceRole, MemberRecord, Reshape};
use crate::meta::{bad_blocks, md_ppl};
use crate::units::{SECTOR, Sectors};

/// The role map grows to fill whole sectors, as mdadm makes it: 128 entries for small arrays.
pub fn map_len(entries: u32) -> u32 {
    let bytes = (HEAD as u64 + 2 * u64::from(entries)).next_multiple_of(SECTOR);
    ((bytes - HEAD as u64) / 2) as u32
}

/// The superblock of `member` as part of `array`: its sector and its bytes (whole sectors).
///
/// Fails if the records cannot be written down: too many devices, an area out of reach.
pub fn emit(array: &ArrayRecord, member: &MemberRecord) -> Result<(Sectors, Vec<u8>)> {
    let old = Packet::new(&member.raw);
    let entries = entries(array, member, old.max_dev())?;
    let mut block = old.bytes().to_vec();
    put_array(&mut block, array)?;
    put_member(&mut block, member)?;
    put_areas(&mut block, member)?;
    let bits = features_of(array, member, old.features());
    put(&mut block, field::FEATURES, &bits.to_le_bytes());
    put_roles(&mut block, array, entries);
    let len = HEAD + 2 * entries as usize;
    let sum = checksum(&block[..len]);
    put(&mut block, field::CHECKSUM, &sum.to_le_bytes());
    block.truncate((len as u64).next_multiple_of(SECTOR) as usize);
    block[len..].fill(0);
    Ok((member.super_at, block))
}

/// Says that the partial parity log of `member` is a ring of several logs, if it is long enough
/// for that: the kernel does so at its first update.
pub fn say_ring(member: &mut MemberRecord) {
    let bits = Packet::new(&member.raw).features();
    let is_ring = member.ppl.is_some_and(|area| area.len >= md_ppl::RING_MIN);
    if is_ring && bits & features::PPL != 0 && member.raw.len() >= HEAD {
        let bits = bits & !features::PPL | features::MULTIPLE_PPLS;
        put(&mut member.raw, field::FEATURES, &bits.to_le_bytes());
    }
}

/// The member's bad-block log and its sector; `None` if the member has no place for one.
pub fn emit_bad_blocks(member: &MemberRecord) -> Result<Option<(Sectors, Vec<u8>)>> {
    let Some(Area { at, len }) = member.bad_log else { return Ok(None) };
    let bytes = bad_blocks::emit(&member.bad_blocks, len, bad_blocks::shift(member))?;
    Ok(Some((at, bytes)))
}

/// Entries of the role map: as many as there were, and more if a number needs it.
fn entries(array: &ArrayRecord, member: &MemberRecord, old: u32) -> Result<u32> {
    let needed = (array.roles.len() as u64).max(u64::from(member.number) + 1);
    if needed > u64::from(MAX_DEV) {
        return Err(Error::invalid(format!(
            "device number {} does not fit: a superblock lists {MAX_DEV} devices",
            needed - 1
        )));
    }
    match needed as u32 {
        needed if needed <= old => Ok(old.min(MAX_DEV)),
        needed => Ok(map_len(needed).min(MAX_DEV)),
    }
}

/// A RAID 0 whose order is not known keeps the word it had.
fn put_array(block: &mut [u8], array: &ArrayRecord) -> Result<()> {
    if array.name.len() > field::CTIME - field::NAME {
        return Err(Error::invalid("an array name has at most 32 bytes"));
    }
    put(block, field::MAGIC, &MAGIC.to_le_bytes());
    put(block, field::MAJOR, &1u32.to_le_bytes());
    put(block, field::UUID, &array.uuid);
    block[field::NAME..field::CTIME].fill(0);
    put(block, field::NAME, &array.name);
    put(block, field::CTIME, &array.ctime.to_le_bytes());
    put(block, field::LEVEL, &array.level.to_le_bytes());
    if array.level != 0 || array.layout != 0 {
        put(block, field::LAYOUT, &array.layout.to_le_bytes());
    }
    put(block, field::SIZE, &array.component.0.to_le_bytes());
    put(block, field::CHUNK, &fit::<u32>("chunk", array.chunk.0)?.to_le_bytes());
    put(block, field::RAID_DISKS, &u32::from(array.slots).to_le_bytes());
    put(block, field::UTIME, &array.utime.to_le_bytes());
    put(block, field::EVENTS, &array.events.to_le_bytes());
    let resync = array.resync.map_or(MAX_SECTOR, |at| at.0);
    put(block, field::RESYNC_OFFSET, &resync.to_le_bytes());
    put(block, field::LOGICAL_BLOCK, &array.logical_block.unwrap_or(0).to_le_bytes());
    match &array.reshape {
        Some(reshape) => put_reshape(block, reshape),
        None => Ok(()),
    }
}

fn put_reshape(block: &mut [u8], reshape: &Reshape) -> Result<()> {
    put(block, field::RESHAPE_POSITION, &reshape.position.0.to_le_bytes());
    put(block, field::DELTA_DISKS, &reshape.delta_slots.to_le_bytes());
    put(block, field::NEW_LEVEL, &reshape.new_level.to_le_bytes());
    put(block, field::NEW_LAYOUT, &reshape.new_layout.to_le_bytes());
    let chunk = fit::<u32>("chunk", reshape.new_chunk.0)?;
    put(block, field::NEW_CHUNK, &chunk.to_le_bytes());
    Ok(())
}

fn put_member(block: &mut [u8], member: &MemberRecord) -> Result<()> {
    put(block, field::SUPER_OFFSET, &member.super_at.0.to_le_bytes());
    put(block, field::DATA_OFFSET, &member.data_at.0.to_le_bytes());
    put(block, field::DATA_SIZE, &member.data_len.0.to_le_bytes());
    put(block, field::DEV_NUMBER, &member.number.to_le_bytes());
    put(block, field::DEVICE_UUID, &member.device_uuid);
    put(block, field::CORRECTED_READS, &member.corrected_reads.to_le_bytes());
    let kept = block[field::DEVFLAGS] & !3;
    block[field::DEVFLAGS] = kept | u8::from(member.write_mostly) | u8::from(member.failfast) << 1;
    if let Some(at) = member.recovery.or(member.journal_tail) {
        put(block, field::RECOVERY_OFFSET, &at.0.to_le_bytes());
    }
    Ok(())
}

/// Places are written as distances from the superblock.
fn put_areas(block: &mut [u8], member: &MemberRecord) -> Result<()> {
    let distance = |at: Sectors| {
        let distance = at.0 as i128 - member.super_at.0 as i128;
        fit::<i32>("distance from the superblock", distance)
    };
    let (log_at, log_len) = match member.bad_log {
        Some(log) => (distance(log.at)?, fit::<u16>("bad-block log", log.len.0)?),
        None => (0, 0),
    };
    put(block, field::BBLOG_OFFSET, &log_at.to_le_bytes());
    put(block, field::BBLOG_SIZE, &log_len.to_le_bytes());
    if let Some(at) = member.bitmap_at {
        put(block, field::BITMAP_OFFSET, &distance(at)?.to_le_bytes());
    }
    if let Some(ppl) = member.ppl {
        let at = fit::<i16>("distance from the superblock", distance(ppl.at)?)?;
        put(block, field::BITMAP_OFFSET, &at.to_le_bytes());
        let len = fit::<u16>("partial parity log", ppl.len.0)?;
        put(block, field::PPL_SIZE, &len.to_le_bytes());
    }
    Ok(())
}

fn features_of(array: &ArrayRecord, member: &MemberRecord, old: u32) -> u32 {
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let backwards = array.reshape.is_some_and(|reshape| reshape.backwards);
    (old & !features::REBUILT)
        | bit(member.bitmap_at.is_some(), features::BITMAP)
        | bit(member.recovery.is_some(), features::RECOVERY_OFFSET)
        | bit(member.replacement, features::REPLACEMENT)
        | bit(!member.bad_blocks.is_empty(), features::BAD_BLOCKS)
        | bit(array.reshape.is_some(), features::RESHAPE_ACTIVE)
        | bit(backwards, features::RESHAPE_BACKWARDS)
}

fn put_roles(block: &mut [u8], array: &ArrayRecord, entries: u32) {
    put(block, field::MAX_DEV, &entries.to_le_bytes());
    for number in 0..entries {
        let value: u16 = match array.role(number) {
            DeviceRole::Spare => 0xffff,
            DeviceRole::Faulty => 0xfffe,
            DeviceRole::Journal => 0xfffd,
            DeviceRole::Active(slot) => slot.0,
        };
        put(block, field::ROLES + 2 * number as usize, &value.to_le_bytes());
    }
}

fn fit<T: TryFrom<i128>>(what: &str, value: impl Into<i128>) -> Result<T> {
    let value = value.into();
    T::try_from(value)
        .map_err(|_| Error::invalid(format!("a {what} of {value} sectors cannot be recorded")))
}
