//! What metadata says, in neutral form. Formats translate; nobody else knows bytes.

use crate::units::{Sectors, Slot};

/// What all members of an array agree on, and the running state they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayRecord {
    /// Array id, in disk order.
    pub uuid: [u8; 16],
    /// Array name, opaque bytes (`host:name`), without padding.
    pub name: Vec<u8>,
    /// Creation time: seconds since 1970 in the low 40 bits, microseconds above, as md stores it.
    pub ctime: u64,
    /// md's level number.
    pub level: i32,
    /// md's layout word.
    pub layout: u32,
    /// Chunk; zero where the level has none.
    pub chunk: Sectors,
    /// Number of slots (`raid_disks`).
    pub slots: u16,
    /// Used sectors per member; zero for RAID 0 and linear.
    pub component: Sectors,
    /// Time of the last update, in the form of `ctime`.
    pub utime: u64,
    /// Update counter; never goes down but by md's clean/dirty rule.
    pub events: u64,
    /// Redundancy is consistent below this sector (member sectors; array sectors for RAID 10);
    /// `None` means everywhere: the array is clean.
    pub resync: Option<Sectors>,
    /// What each device number is: the role map of md 1.x.
    pub roles: Vec<DeviceRole>,
}

/// What the role map says of a device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceRole {
    /// 0xffff: a spare, or nobody.
    Spare,
    /// 0xfffe: failed.
    Faulty,
    /// 0xfffd: write journal.
    Journal,
    /// Active in this slot.
    Active(Slot),
}

/// What one member's superblock says of that member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Sector of the superblock on the member.
    pub super_at: Sectors,
    /// Sector where data begins.
    pub data_at: Sectors,
    /// Sectors usable for data.
    pub data_len: Sectors,
    /// Index into the role map.
    pub number: u32,
    /// Id of this member.
    pub device_uuid: [u8; 16],
    /// In sync up to here only (a rebuild was interrupted); `None`: fully.
    pub recovery: Option<Sectors>,
    /// Read from it only if nothing else has the data.
    pub write_mostly: bool,
    /// Fails at the first error.
    pub failfast: bool,
    /// Unreadable sectors, counted from the start of the member, and how many.
    pub bad_blocks: Vec<(Sectors, Sectors)>,
    /// Read errors corrected so far.
    pub corrected_reads: u32,
    /// The superblock as it was read or last written, so that bytes we do not know survive.
    pub raw: Vec<u8>,
}
