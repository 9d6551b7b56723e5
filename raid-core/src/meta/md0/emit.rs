//! From records to the words of an md 0.90 superblock.
//!
//! The words that were read are patched, in the byte order they had: whatever a record does not
//! say stays as it was. Descriptors and counters are made anew from the role map, as the kernel's
//! `super_90_sync` does: an active device has the number of its slot, the others follow behind
//! the slots, and a slot that nobody fills is "faulty, removed".

use super::packet::{ByteOrder, DISK_WORDS, Disk, MAGIC, Packet, disk_state, state, word};
use super::{BITMAP_AFTER, COMPONENT_END, DEVICES_MAX};
use crate::error::{Error, Result};
use crate::meta::Placed;
use crate::meta::record::{ArrayRecord, DeviceRole, MemberRecord};
use crate::meta::time;

/// Active and in sync.
const IN_SYNC: u32 = disk_state::ACTIVE | disk_state::SYNC;
/// Device numbers in memory end here: a spare may have a number that is not written.
const NUMBERS_END: u32 = 1 << 16;
/// Words of a descriptor with a meaning.
const KNOWN_WORDS: usize = 5;
/// A slot without a device.
const GAP: u32 = disk_state::FAULTY | disk_state::REMOVED;

/// The superblock of `member` as part of `array`: its sector and its bytes.
///
/// A member whose `raw` holds no superblock gets a new one in this machine's byte order, with
/// the words mdadm writes before the kernel's first update.
///
/// # Errors
/// `Invalid` if the records cannot be written down: too many devices, a size of 4 TiB or more, a
/// name, bad blocks.
pub fn emit(array: &ArrayRecord, member: &MemberRecord) -> Result<Placed> {
    check(array, member)?;
    let old = Packet::new(&member.raw);
    let is_new = old.is_none();
    let mut packet = old.unwrap_or_else(|| Packet::blank(ByteOrder::OWN));
    put_array(&mut packet, array)?;
    put_state(&mut packet, array, member, is_new);
    put_disks(&mut packet, array, member)?;
    if is_new {
        as_mdadm_makes(&mut packet, array);
    }
    packet.sign();
    Ok((member.super_at, packet.to_bytes()))
}

/// The same superblock in the other byte order; `None` if `bytes` hold no sound one.
pub fn other_byte_order(bytes: &[u8]) -> Option<Vec<u8>> {
    let packet = Packet::new(bytes).filter(Packet::checksum_matches)?;
    Some(packet.turned().to_bytes())
}

/// What there is no word for.
fn check(array: &ArrayRecord, member: &MemberRecord) -> Result<()> {
    let fault = if array.component >= COMPONENT_END {
        format!(
            "metadata 0.90 cannot record {} KiB of each member; it ends at 4 TiB",
            array.component.0 / 2
        )
    } else if u32::from(array.slots) > DEVICES_MAX {
        format!("metadata 0.90 lists {DEVICES_MAX} devices, not {}", array.slots)
    } else if !array.name.is_empty() {
        "metadata 0.90 has no place for an array's name".into()
    } else if !member.bad_blocks.is_empty() {
        "metadata 0.90 has no place for bad blocks".into()
    } else if array.reshape.is_some() {
        "a reshape cannot be continued with metadata 0.90".into()
    } else if member.bitmap_at.is_some_and(|at| at != member.super_at + BITMAP_AFTER) {
        "with metadata 0.90 the bitmap follows the superblock".into()
    } else {
        return Ok(());
    };
    Err(Error::invalid(fault))
}

fn put_array(packet: &mut Packet, array: &ArrayRecord) -> Result<()> {
    let chunk = u32::try_from(array.chunk.bytes()).map_err(|_| {
        let chunk = array.chunk.0 / 2;
        Error::invalid(format!("metadata 0.90 cannot record a chunk of {chunk} KiB"))
    })?;
    packet.put(word::MAGIC, MAGIC);
    packet.put(word::MAJOR, 0);
    packet.put(word::MINOR, 90);
    for (place, n) in array.uuid.chunks_exact(4).zip(word::UUID) {
        let bytes: [u8; 4] = place.try_into().expect("chunks of four bytes");
        packet.put(n, u32::from_be_bytes(bytes));
    }
    packet.put(word::CTIME, seconds(array.ctime));
    packet.put(word::LEVEL, array.level as u32);
    if array.level > 0 {
        packet.put(word::SIZE, (array.component.0 / 2) as u32);
    }
    packet.put(word::RAID_DISKS, array.slots.into());
    if array.level != 0 || array.layout != 0 {
        packet.put(word::LAYOUT, array.layout);
    }
    packet.put(word::CHUNK, chunk);
    packet.put(word::UTIME, seconds(array.utime));
    packet.put_pair(word::EVENTS, array.events);
    Ok(())
}

/// Seconds since 1970 as far as 32 bits go: to 2106.
fn seconds(time: u64) -> u32 {
    u32::try_from(time::seconds(time)).unwrap_or(u32::MAX)
}

/// Clean or not, and up to where; levels that keep nothing in sync stay as they are.
fn put_state(packet: &mut Packet, array: &ArrayRecord, member: &MemberRecord, is_new: bool) {
    let old = packet.word(word::STATE) & !state::BITMAP;
    let bitmap = if member.bitmap_at.is_some() { state::BITMAP } else { 0 };
    if !array.has_redundancy() {
        let clean = if is_new { state::CLEAN } else { 0 };
        return packet.put(word::STATE, old | clean | bitmap);
    }
    let (clean, checked, position) = match array.resync {
        // The kernel's "everything", cut to the word.
        None => (state::CLEAN, array.events, u32::MAX),
        Some(at) => match u32::try_from(at.0) {
            Ok(at @ 1..) => (0, array.events, at),
            _ => (0, 0, 0),
        },
    };
    packet.put(word::STATE, old & !state::CLEAN | clean | bitmap);
    packet.put_pair(word::CP_EVENTS, checked);
    packet.put(word::RECOVERY_CP, position);
}

/// The descriptors and how many there are of each kind.
fn put_disks(packet: &mut Packet, array: &ArrayRecord, member: &MemberRecord) -> Result<()> {
    let own = own_number(array, member);
    let mut table = Table::new(packet.clone());
    let mut behind = u32::from(array.slots);
    let mut this = None;
    let end = (array.roles.len() as u32).max(own.number.saturating_add(1));
    for number in 0..end.clamp(DEVICES_MAX, NUMBERS_END) {
        let is_own = number == own.number;
        let role = if is_own { own.role } else { array.role(number) };
        let old = table.old.disk(number);
        let (at, state) = match role {
            DeviceRole::Active(slot) => (u32::from(slot.0), IN_SYNC),
            DeviceRole::Faulty if old.is_there() && old.has(disk_state::FAULTY) => {
                (behind, disk_state::FAULTY)
            }
            DeviceRole::Spare if is_own || is_spare(&old) => (behind, 0),
            _ => continue,
        };
        behind += u32::from(at == behind);
        let advice = match is_own {
            true => advice(member),
            false => old.state & disk_state::ADVICE,
        };
        table.put(number, at, state | advice)?;
        if is_own {
            this = Some(at);
        }
    }
    table.fill_gaps(array.slots.into());
    table.count(packet, array.slots.into());
    table.copy_to(packet, this);
    Ok(())
}

struct Own {
    number: u32,
    role: DeviceRole,
}

/// A member that is being rebuilt is a spare in its own eyes: how far it came has no place, so
/// that whoever assembles the array next must begin again.
fn own_number(array: &ArrayRecord, member: &MemberRecord) -> Own {
    let role = match array.role(member.number) {
        DeviceRole::Active(_) if member.recovery.is_some() => DeviceRole::Spare,
        role => role,
    };
    Own { number: member.number, role }
}

/// True if a spare was listed.
fn is_spare(old: &Disk) -> bool {
    old.is_there() && old.state & (GAP | IN_SYNC) == 0
}

fn advice(member: &MemberRecord) -> u32 {
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    bit(member.write_mostly, disk_state::WRITE_MOSTLY) | bit(member.failfast, disk_state::FAILFAST)
}

/// New descriptors out of old ones.
struct Table {
    old: Packet,
    new: Packet,
}

impl Table {
    fn new(old: Packet) -> Table {
        let mut new = old.clone();
        (word::DISKS..word::THIS_DISK).for_each(|n| new.put(n, 0));
        Table { old, new }
    }

    /// The device that was `number` becomes `at`; what is known of it moves along.
    fn put(&mut self, number: u32, at: u32, state: u32) -> Result<()> {
        if at >= DEVICES_MAX {
            return Err(Error::invalid(format!(
                "metadata 0.90 lists {DEVICES_MAX} devices; there is no place for one more"
            )));
        }
        let to = place(at);
        // A device that moved before the old table was written is found at its new place.
        let known = [number, at].into_iter().find(|&n| self.old.disk(n).is_there());
        if let Some(known) = known {
            (0..DISK_WORDS).for_each(|n| self.new.put(to + n, self.old.word(place(known) + n)));
        }
        self.new.put(to, at);
        self.new.put(to + 3, at);
        self.new.put(to + 4, state);
        Ok(())
    }

    fn fill_gaps(&mut self, slots: u32) {
        for slot in 0..slots {
            if self.new.disk(slot) == Disk::default() {
                self.new.put(place(slot), slot);
                self.new.put(place(slot) + 3, slot);
                self.new.put(place(slot) + 4, GAP);
            }
        }
    }

    /// A failed device that is still there counts as a device and its slot as failed.
    fn count(&self, packet: &mut Packet, slots: u32) {
        let count = |numbers: std::ops::Range<u32>, test: &dyn Fn(&Disk) -> bool| {
            numbers.filter(|&number| test(&self.new.disk(number))).count() as u32
        };
        let all = 0..DEVICES_MAX;
        let active = count(all.clone(), &|disk| disk.has(IN_SYNC));
        let spare = count(all.clone(), &is_spare);
        packet.put(word::NR_DISKS, count(all, &Disk::is_there));
        packet.put(word::ACTIVE, active);
        packet.put(word::WORKING, active + spare);
        packet.put(word::FAILED, count(0..slots, &|disk| disk.has(GAP)));
        packet.put(word::SPARE, spare);
    }

    /// Puts the descriptors into `packet`, that of `this` member twice.
    fn copy_to(&self, packet: &mut Packet, this: Option<u32>) {
        (word::DISKS..word::THIS_DISK).for_each(|n| packet.put(n, self.new.word(n)));
        if let Some(this) = this {
            let from = place(this);
            (0..KNOWN_WORDS).for_each(|n| packet.put(word::THIS_DISK + n, self.new.word(from + n)));
        }
    }
}

fn place(number: u32) -> usize {
    word::DISKS + DISK_WORDS * number as usize
}

/// mdadm counts missing devices, leaves their descriptors empty, and notes no checkpoint.
fn as_mdadm_makes(packet: &mut Packet, array: &ArrayRecord) {
    packet.put(word::NR_DISKS, array.slots.into());
    packet.put_pair(word::CP_EVENTS, 0);
    packet.put(word::RECOVERY_CP, 0);
    for slot in 0..u32::from(array.slots) {
        if packet.disk(slot).has(GAP) {
            (0..DISK_WORDS).for_each(|n| packet.put(place(slot) + n, 0));
        }
    }
}
