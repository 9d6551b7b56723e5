//! The words of an md 0.90 superblock as fields: a view that never fails and hides nothing.
//!
//! The word table is `struct mdp_superblock_s` of the kernel's `md_p.h`.

use super::DEVICES_MAX;
use crate::meta::bytes::array;
use crate::units::Sectors;

/// First word of every md superblock.
pub const MAGIC: u32 = 0xa92b_4efc;
/// Bytes of the structure.
pub const SIZE: usize = 4096;
const WORDS: usize = SIZE / 4;

/// Word numbers.
pub mod word {
    /// 0xa92b4efc.
    pub const MAGIC: usize = 0;
    /// 0.
    pub const MAJOR: usize = 1;
    /// 90, or 91 while a reshape runs.
    pub const MINOR: usize = 2;
    /// The array id, one word first and three later.
    pub const UUID: [usize; 4] = [5, 13, 14, 15];
    /// Creation time, seconds since 1970.
    pub const CTIME: usize = 6;
    /// Level.
    pub const LEVEL: usize = 7;
    /// Used KiB of each member.
    pub const SIZE: usize = 8;
    /// Devices that are there.
    pub const NR_DISKS: usize = 9;
    /// Slots.
    pub const RAID_DISKS: usize = 10;
    /// The number the array had: 0 for md0.
    pub const MD_MINOR: usize = 11;
    /// Time of the last update, seconds since 1970.
    pub const UTIME: usize = 32;
    /// Bits of [`super::state`].
    pub const STATE: usize = 33;
    /// Devices in sync.
    pub const ACTIVE: usize = 34;
    /// Devices in sync or spare.
    pub const WORKING: usize = 35;
    /// Slots without a device.
    pub const FAILED: usize = 36;
    /// Spares.
    pub const SPARE: usize = 37;
    /// Sum of all other words.
    pub const CHECKSUM: usize = 38;
    /// Update counter, a pair.
    pub const EVENTS: usize = 39;
    /// The counter when `RECOVERY_CP` was written, a pair.
    pub const CP_EVENTS: usize = 41;
    /// Redundancy is consistent below this sector.
    pub const RECOVERY_CP: usize = 43;
    /// How far a reshape got, in array sectors, a pair.
    pub const RESHAPE_POSITION: usize = 44;
    /// Level after the reshape.
    pub const NEW_LEVEL: usize = 46;
    /// New slots minus old.
    pub const DELTA_DISKS: usize = 47;
    /// Layout after the reshape.
    pub const NEW_LAYOUT: usize = 48;
    /// Chunk in bytes after the reshape.
    pub const NEW_CHUNK: usize = 49;
    /// Layout.
    pub const LAYOUT: usize = 64;
    /// Chunk in bytes.
    pub const CHUNK: usize = 65;
    /// Descriptors.
    pub const DISKS: usize = 128;
    /// This member's descriptor again.
    pub const THIS_DISK: usize = 992;
    /// Pairs of words that are one number: low word first, on big-endian machines high word first.
    pub const PAIRS: [usize; 3] = [EVENTS, CP_EVENTS, RESHAPE_POSITION];
}

/// Bits of the state word.
pub mod state {
    /// Stopped cleanly.
    pub const CLEAN: u32 = 1;
    /// There were errors; never set by Linux.
    pub const ERRORS: u32 = 1 << 1;
    /// A bitmap follows.
    pub const BITMAP: u32 = 1 << 8;
}

/// Bits of a descriptor's state.
pub mod disk_state {
    /// Failed.
    pub const FAULTY: u32 = 1;
    /// Counts as a member.
    pub const ACTIVE: u32 = 1 << 1;
    /// Its content is complete.
    pub const SYNC: u32 = 1 << 2;
    /// Not there.
    pub const REMOVED: u32 = 1 << 3;
    /// Read only if nothing else has the data.
    pub const WRITE_MOSTLY: u32 = 1 << 9;
    /// Fails at the first error.
    pub const FAILFAST: u32 = 1 << 10;
    /// What a disk is told to do, in whatever state it is.
    pub const ADVICE: u32 = WRITE_MOSTLY | FAILFAST;
}

/// In which order a word's bytes lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// Lowest byte first: PCs.
    Little,
    /// Highest byte first: PowerPC and MIPS boxes.
    Big,
}

impl ByteOrder {
    /// That of the machine this runs on, and so of its kernel.
    pub const OWN: ByteOrder =
        if cfg!(target_endian = "big") { ByteOrder::Big } else { ByteOrder::Little };

    /// `little-endian` or `big-endian`.
    pub fn name(self) -> &'static str {
        match self {
            ByteOrder::Little => "little-endian",
            ByteOrder::Big => "big-endian",
        }
    }

    /// The other one.
    pub fn other(self) -> ByteOrder {
        match self {
            ByteOrder::Little => ByteOrder::Big,
            ByteOrder::Big => ByteOrder::Little,
        }
    }
}

/// Words between the descriptors of two disks.
pub const DISK_WORDS: usize = 32;

/// What is said of a disk; all zero where nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Its number.
    pub number: u32,
    /// The kernel's numbers of the device it was.
    pub major: u32,
    /// The kernel's numbers of the device it was.
    pub minor: u32,
    /// Its slot; for those without one their number again.
    pub raid_disk: u32,
    /// Bits of [`disk_state`].
    pub state: u32,
}

impl Disk {
    /// True if all `bits` are set.
    pub fn has(&self, bits: u32) -> bool {
        self.state & bits == bits
    }

    /// True if a device is meant, not a gap.
    pub fn is_there(&self) -> bool {
        !self.has(disk_state::REMOVED) && *self != Disk::default()
    }
}

/// The words of a 0.90 superblock, whatever they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    words: Box<[u32; WORDS]>,
    order: ByteOrder,
}

impl Packet {
    /// The view over `bytes`, if they begin with md's magic in either byte order and major 0;
    /// bytes that are not there read as zero.
    pub fn new(bytes: &[u8]) -> Option<Packet> {
        let order = match array::<4>(bytes, 0) {
            first if first == MAGIC.to_le_bytes() => ByteOrder::Little,
            first if first == MAGIC.to_be_bytes() => ByteOrder::Big,
            _ => return None,
        };
        let mut packet = Packet::blank(order);
        for (n, word) in packet.words.iter_mut().enumerate() {
            *word = match order {
                ByteOrder::Little => u32::from_le_bytes(array(bytes, n * 4)),
                ByteOrder::Big => u32::from_be_bytes(array(bytes, n * 4)),
            };
        }
        (packet.word(word::MAJOR) == 0).then_some(packet)
    }

    /// All zero.
    pub fn blank(order: ByteOrder) -> Packet {
        Packet { words: Box::new([0; WORDS]), order }
    }

    /// The bytes, in the packet's byte order.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes = self.words.iter().flat_map(|word| match self.order {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        });
        bytes.collect()
    }

    /// The same numbers, to be written in the other byte order.
    pub fn turned(mut self) -> Packet {
        word::PAIRS.iter().for_each(|&n| self.words.swap(n, n + 1));
        self.order = self.order.other();
        self.sign();
        self
    }

    /// Word `n`.
    pub fn word(&self, n: usize) -> u32 {
        self.words[n]
    }

    /// Sets word `n`.
    pub fn put(&mut self, n: usize, value: u32) {
        self.words[n] = value;
    }

    /// The number in the pair of words at `n`.
    pub fn pair(&self, n: usize) -> u64 {
        let (a, b) = (u64::from(self.word(n)), u64::from(self.word(n + 1)));
        match self.order {
            ByteOrder::Little => b << 32 | a,
            ByteOrder::Big => a << 32 | b,
        }
    }

    /// Sets the number in the pair of words at `n`.
    pub fn put_pair(&mut self, n: usize, value: u64) {
        let (low, high) = (value as u32, (value >> 32) as u32);
        let (a, b) = match self.order {
            ByteOrder::Little => (low, high),
            ByteOrder::Big => (high, low),
        };
        self.put(n, a);
        self.put(n + 1, b);
    }

    /// The order its bytes had.
    pub fn byte_order(&self) -> ByteOrder {
        self.order
    }

    /// Minor version: 90, and 91 while a reshape runs.
    pub fn minor(&self) -> u32 {
        self.word(word::MINOR)
    }

    /// Array id, in the order mdadm prints it.
    pub fn uuid(&self) -> [u8; 16] {
        let mut uuid = [0; 16];
        for (place, n) in uuid.chunks_exact_mut(4).zip(word::UUID) {
            place.copy_from_slice(&self.word(n).to_be_bytes());
        }
        uuid
    }

    /// Creation time, seconds since 1970.
    pub fn ctime(&self) -> u64 {
        self.word(word::CTIME).into()
    }

    /// Level.
    pub fn level(&self) -> i32 {
        self.word(word::LEVEL) as i32
    }

    /// Used part of each member.
    pub fn component(&self) -> Sectors {
        Sectors::kib(self.word(word::SIZE).into())
    }

    /// Number of slots.
    pub fn raid_disks(&self) -> u32 {
        self.word(word::RAID_DISKS)
    }

    /// Last update, seconds since 1970.
    pub fn utime(&self) -> u64 {
        self.word(word::UTIME).into()
    }

    /// True if it was stopped cleanly.
    pub fn is_clean(&self) -> bool {
        self.word(word::STATE) & state::CLEAN != 0
    }

    /// True if a bitmap follows.
    pub fn has_bitmap(&self) -> bool {
        self.word(word::STATE) & state::BITMAP != 0
    }

    /// Update counter.
    pub fn events(&self) -> u64 {
        self.pair(word::EVENTS)
    }

    /// Layout word.
    pub fn layout(&self) -> u32 {
        self.word(word::LAYOUT)
    }

    /// Chunk in bytes.
    pub fn chunk_bytes(&self) -> u32 {
        self.word(word::CHUNK)
    }

    /// Redundancy is consistent below this sector, if that can be believed: only a superblock
    /// whose counter did not move since says so.
    pub fn recovery_cp(&self) -> u32 {
        match self.pair(word::CP_EVENTS) == self.events() {
            true => self.word(word::RECOVERY_CP),
            false => 0,
        }
    }

    /// The descriptor of device `number`; nobody beyond the last.
    pub fn disk(&self, number: u32) -> Disk {
        match number < DEVICES_MAX {
            true => self.disk_at(word::DISKS + DISK_WORDS * number as usize),
            false => Disk::default(),
        }
    }

    /// This member's own descriptor.
    pub fn this_disk(&self) -> Disk {
        self.disk_at(word::THIS_DISK)
    }

    fn disk_at(&self, at: usize) -> Disk {
        let [number, major, minor, raid_disk, state] = std::array::from_fn(|n| self.word(at + n));
        Disk { number, major, minor, raid_disk, state }
    }

    /// Checksum as stored.
    pub fn checksum(&self) -> u32 {
        self.word(word::CHECKSUM)
    }

    /// The checksum the words should have: their sum, folded to 32 bits.
    pub fn expected_checksum(&self) -> u32 {
        let words = (0..WORDS).filter(|&n| n != word::CHECKSUM);
        let sum: u64 = words.map(|n| u64::from(self.word(n))).sum();
        (sum as u32).wrapping_add((sum >> 32) as u32)
    }

    /// As the kernel compares: some machines stored the sum folded to 16 bits.
    pub fn checksum_matches(&self) -> bool {
        fold(self.checksum()) == fold(self.expected_checksum())
    }

    /// Makes the checksum right.
    pub fn sign(&mut self) {
        let sum = self.expected_checksum();
        self.put(word::CHECKSUM, sum);
    }
}

/// A sum of words folded to 16 bits, the carries of the first fold included.
fn fold(sum: u32) -> u32 {
    let once = (sum & 0xffff) + (sum >> 16);
    (once & 0xffff) + (once >> 16)
}
