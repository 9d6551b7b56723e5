//! What metadata says, in neutral form. Formats translate; nobody else knows bytes.

use crate::units::{Sectors, Slot};

/// A run of sectors of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// First sector, counted from the start of the member.
    pub at: Sectors,
    /// How many sectors.
    pub len: Sectors,
}

impl Area {
    /// The first sector after the area.
    pub fn end(self) -> Sectors {
        self.at + self.len
    }
}

/// What all members of an array agree on, and the running state they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayRecord {
    /// Array id, in the order mdadm prints it (with 1.x that of the bytes on disk).
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
    /// Number of slots (`raid_disks`); during a reshape already the new number.
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
    /// What each device number is: the role map of md 1.x or the descriptors of 0.90, without
    /// the spares at its end.
    pub roles: Vec<DeviceRole>,
    /// Logical block of the array in bytes, where the metadata fixes one (Linux 6.19 and later).
    pub logical_block: Option<u32>,
    /// A reshape that was running when the superblock was written.
    pub reshape: Option<Reshape>,
}

impl ArrayRecord {
    /// What the role map says of device `number`; beyond its end every number is a spare.
    pub fn role(&self, number: u32) -> DeviceRole {
        self.roles.get(number as usize).copied().unwrap_or(DeviceRole::Spare)
    }

    /// Sets what `number` is, growing the map as needed.
    pub fn set_role(&mut self, number: u32, role: DeviceRole) {
        let index = number as usize;
        if index >= self.roles.len() {
            self.roles.resize(index + 1, DeviceRole::Spare);
        }
        self.roles[index] = role;
    }

    /// True if the level keeps redundancy, so that a resync can mean something.
    pub fn has_redundancy(&self) -> bool {
        matches!(self.level, 1 | 4 | 5 | 6 | 10)
    }
}

/// A change of geometry in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// How far it got, in array sectors.
    pub position: Sectors,
    /// New slots minus old slots.
    pub delta_slots: i32,
    /// Level after the reshape.
    pub new_level: i32,
    /// Layout word after the reshape.
    pub new_layout: u32,
    /// Chunk after the reshape.
    pub new_chunk: Sectors,
    /// It runs from the end of the array to its start.
    pub backwards: bool,
}

/// What the role map says of a device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Id of this member; zero with 0.90, which has none.
    pub device_uuid: [u8; 16],
    /// In sync up to here only (a rebuild was interrupted), from the start of data;
    /// `None`: fully.
    pub recovery: Option<Sectors>,
    /// It is to replace the member that is in its slot.
    pub replacement: bool,
    /// Read from it only if nothing else has the data.
    pub write_mostly: bool,
    /// Fails at the first error.
    pub failfast: bool,
    /// Where the bad-block log is kept; `None`: a bad block fails the member.
    pub bad_log: Option<Area>,
    /// Unreadable sectors, counted from the start of the member, and how many.
    pub bad_blocks: Vec<(Sectors, Sectors)>,
    /// Sector of the write-intent bitmap on the member, if the array has an internal one.
    pub bitmap_at: Option<Sectors>,
    /// Where the partial parity log is kept, if the array has one.
    pub ppl: Option<Area>,
    /// On a write journal: where its log begins, from the start of data.
    pub journal_tail: Option<Sectors>,
    /// Read errors corrected so far.
    pub corrected_reads: u32,
    /// The superblock as it was read or last written, so that bytes we do not know survive.
    pub raw: Vec<u8>,
}
