//! What else a device carries: file systems, partition tables, volumes, other RAID metadata.
//!
//! A table of magic numbers, looked up through a window; nothing is parsed further. Creating
//! an array asks it before overwriting, scanning names what is not md by it. Promises: tiny,
//! truncated and random devices are fine. Magic numbers and places are those of the formats'
//! own documentation and headers; each can be seen in the samples of other probing tools.

use super::bytes::{array, le16, le32};
use super::record::Area;
use super::{Window, read_area};
use crate::error::Result;
use crate::units::{SECTOR, Sectors};
use std::fmt;

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files live in it.
    FileSystem,
    /// It divides the device.
    PartitionTable,
    /// Part of a volume manager's pool.
    Volume,
    /// An encrypted container.
    Encrypted,
    /// Swap space.
    Swap,
    /// A member of a RAID that is not md.
    Raid,
}

/// Something that is not md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Short stable name: `ext4`, `ddf`.
    pub name: &'static str,
    /// What kind of thing it is.
    pub kind: Kind,
    /// What it is, for people.
    pub summary: &'static str,
    /// The byte where its magic number lies.
    pub at: u64,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, at byte {})", self.summary, self.name, self.at)
    }
}

/// A place to look at.
#[derive(Clone, Copy)]
enum Place {
    /// So many bytes from the start.
    Start(u64),
    /// So many sectors before the end, and bytes from there.
    End(u64, u64),
}
use Place::{End, Start};

/// A row of the table: the magic in any of the places, and a second look where it is short.
struct Probe {
    name: &'static str,
    kind: Kind,
    summary: &'static str,
    places: &'static [Place],
    magic: &'static [u8],
    /// The sectors from the magic's own on.
    check: fn(&[u8]) -> bool,
}

const fn probe_row(
    name: &'static str,
    kind: Kind,
    summary: &'static str,
    places: &'static [Place],
    magic: &'static [u8],
) -> Probe {
    Probe { name, kind, summary, places, magic, check: always }
}

const fn checked(row: Probe, check: fn(&[u8]) -> bool) -> Probe {
    Probe { check, ..row }
}

fn always(_: &[u8]) -> bool {
    true
}

/// Sectors handed to a second look.
const CHECK_SECTORS: u64 = 2;

const FS: Kind = Kind::FileSystem;
const RAID: Kind = Kind::Raid;

#[rustfmt::skip]
const PROBES: &[Probe] = &[
    probe_row("gpt", Kind::PartitionTable, "GPT partition table",
        &[Start(512), Start(4096), End(1, 0), End(8, 0)], b"EFI PART"),
    checked(probe_row("dos", Kind::PartitionTable, "MBR partition table",
        &[Start(510)], &[0x55, 0xaa]), is_mbr),
    checked(probe_row("ext2", FS, "ext2 file system",
        &[Start(1080)], &[0x53, 0xef]), |s| ext(s) == 2),
    checked(probe_row("ext3", FS, "ext3 file system",
        &[Start(1080)], &[0x53, 0xef]), |s| ext(s) == 3),
    checked(probe_row("ext4", FS, "ext4 file system",
        &[Start(1080)], &[0x53, 0xef]), |s| ext(s) == 4),
    probe_row("xfs", FS, "XFS file system", &[Start(0)], b"XFSB"),
    probe_row("btrfs", FS, "Btrfs file system", &[Start(0x10040)], b"_BHRfS_M"),
    probe_row("f2fs", FS, "F2FS file system", &[Start(1024)], &[0x10, 0x20, 0xf5, 0xf2]),
    probe_row("reiserfs", FS, "ReiserFS file system", &[Start(65588)], b"ReIsEr"),
    probe_row("ntfs", FS, "NTFS file system", &[Start(3)], b"NTFS    "),
    probe_row("exfat", FS, "exFAT file system", &[Start(3)], b"EXFAT   "),
    checked(probe_row("vfat", FS, "FAT file system", &[Start(510)], &[0x55, 0xaa]), is_fat),
    probe_row("iso9660", FS, "ISO 9660 image", &[Start(32769)], b"CD001"),
    probe_row("udf", FS, "UDF file system", &[Start(32769), Start(34817)], b"NSR0"),
    probe_row("squashfs", FS, "SquashFS image", &[Start(0)], b"hsqs"),
    probe_row("erofs", FS, "EROFS image", &[Start(1024)], &[0xe2, 0xe1, 0xf5, 0xe0]),
    checked(probe_row("lvm2", Kind::Volume, "LVM2 physical volume",
        &[Start(0), Start(512), Start(1024), Start(1536)], b"LABELONE"),
        |s| &array::<8>(s, 24) == b"LVM2 001"),
    probe_row("bcache", Kind::Volume, "bcache device", &[Start(4120)],
        b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    probe_row("luks", Kind::Encrypted, "LUKS container", &[Start(0)], b"LUKS\xba\xbe"),
    probe_row("swap", Kind::Swap, "swap space",
        &[Start(4086), Start(8182), Start(16374), Start(65526)], b"SWAPSPACE2"),
    probe_row("swap", Kind::Swap, "old swap space",
        &[Start(4086), Start(8182), Start(16374), Start(65526)], b"SWAP-SPACE"),
    probe_row("ddf", RAID, "SNIA DDF RAID member", &[End(1, 0), End(257, 0)], b"\xde\x11\xde\x11"),
    probe_row("isw", RAID, "Intel Matrix (IMSM) RAID member",
        &[End(2, 0), End(16, 0)], b"Intel Raid ISM Cfg Sig. "),
    probe_row("nvidia", RAID, "nVidia RAID member", &[End(2, 0)], b"NVIDIA"),
    probe_row("promise", RAID, "Promise FastTrak RAID member",
        &[End(63, 0), End(255, 0), End(256, 0), End(16, 0), End(399, 0), End(591, 0),
          End(675, 0), End(735, 0), End(911, 0), End(974, 0), End(991, 0), End(3087, 0)],
        b"Promise Technology, Inc."),
    checked(probe_row("silicon", RAID, "Silicon Image Medley RAID member",
        &[End(1, 0x60), End(513, 0x60), End(1025, 0x60), End(1537, 0x60)],
        &[0, 0, 0, 0x2f]), is_silicon),
    checked(probe_row("via", RAID, "VIA RAID member", &[End(1, 0)], &[0x55, 0xaa]), is_via),
    checked(probe_row("jmicron", RAID, "JMicron RAID member", &[End(1, 0)], b"JM"), is_jmicron),
    probe_row("lsi", RAID, "LSI MegaRAID member", &[End(1, 0)], b"$XIDE$"),
    probe_row("hpt37x", RAID, "HighPoint 37x RAID member",
        &[Start(9 * 512 + 32)], &[0xf0, 0x16, 0x78, 0x5a]),
    probe_row("hpt37x", RAID, "HighPoint 37x RAID member (failed)",
        &[Start(9 * 512 + 32)], &[0xfd, 0x16, 0x78, 0x5a]),
    probe_row("hpt45x", RAID, "HighPoint 45x RAID member",
        &[End(11, 0)], &[0xf3, 0x16, 0x78, 0x5a]),
    checked(probe_row("adaptec", RAID, "Adaptec RAID member",
        &[End(1, 0)], &[0x37, 0xfc, 0x4d, 0x1e]), |s| contains(s, b"DPTM")),
    probe_row("gmirror", RAID, "FreeBSD gmirror member", &[End(1, 0)], b"GEOM::MIRROR"),
    probe_row("graid3", RAID, "FreeBSD graid3 member", &[End(1, 0)], b"GEOM::RAID3"),
    probe_row("gstripe", RAID, "FreeBSD gstripe member", &[End(1, 0)], b"GEOM::STRIPE"),
    probe_row("gconcat", RAID, "FreeBSD gconcat member", &[End(1, 0)], b"GEOM::CONCAT"),
    probe_row("geli", Kind::Encrypted, "FreeBSD GELI container", &[End(1, 0)], b"GEOM::ELI"),
];

/// Everything foreign on a device of `device` sectors, each name once.
/// Fails only where the device cannot be read.
pub fn probe(device: Sectors, read: Window<'_>) -> Result<Vec<Foreign>> {
    let mut found: Vec<Foreign> = Vec::new();
    for row in PROBES {
        for &place in row.places {
            if found.iter().any(|foreign| foreign.name == row.name) {
                break;
            }
            if let Some(at) = look(row, place, device, read)? {
                let &Probe { name, kind, summary, .. } = row;
                found.push(Foreign { name, kind, summary, at });
            }
        }
    }
    if let Some(at) = zfs(device, read)? {
        let (name, kind, summary) = ("zfs_member", Kind::Volume, "ZFS pool member");
        found.push(Foreign { name, kind, summary, at });
    }
    Ok(found)
}

/// The byte where the row's magic lies, if it does and the second look agrees.
fn look(row: &Probe, place: Place, device: Sectors, read: Window<'_>) -> Result<Option<u64>> {
    let Some(at) = byte_of(place, device) else { return Ok(None) };
    let start = Sectors::floor_bytes(at);
    let left = device.checked_sub(start).unwrap_or_default();
    let bytes = read_area(Area { at: start, len: left.min(Sectors(CHECK_SECTORS)) }, read)?;
    let within = (at % SECTOR) as usize;
    let fits = bytes.get(within..).is_some_and(|tail| tail.starts_with(row.magic));
    Ok((fits && (row.check)(&bytes)).then_some(at))
}

fn byte_of(place: Place, device: Sectors) -> Option<u64> {
    match place {
        Start(at) => Some(at),
        End(sectors, byte) => device.checked_sub(Sectors(sectors)).map(|s| s.bytes() + byte),
    }
}

/// An ext superblock's generation by its features; `s` begins at byte 1024 of the device.
fn ext(s: &[u8]) -> u8 {
    let (compatible, incompatible) = (le32(s, 0x5c), le32(s, 0x60));
    let read_only = le32(s, 0x64);
    // Journal; then anything ext3 did not have: extents, 64-bit, flexible groups, huge files.
    match (incompatible & !0x16 != 0 || read_only & !0x7 != 0, compatible & 4 != 0) {
        (true, _) => 4,
        (false, true) => 3,
        (false, false) => 2,
    }
}

/// Boot sectors of file systems end in 55aa too: ask for plausible entries, one in use.
/// The protective entry of a GPT is none.
fn is_mbr(s: &[u8]) -> bool {
    let entries = (0..4).map(|n| array::<16>(s, 446 + 16 * n));
    let used = |entry: &[u8; 16]| entry[4] != 0 && le32(entry, 12) != 0;
    let mut entries = entries.filter(|entry| entry.iter().any(|&byte| byte != 0)).peekable();
    let any = entries.peek().is_some();
    any && entries.all(|entry| entry[0] & 0x7f == 0 && used(&entry) && entry[4] != 0xee)
}

fn is_fat(s: &[u8]) -> bool {
    let name = |at: usize| matches!(&array::<5>(s, at), b"FAT12" | b"FAT16" | b"FAT32");
    let jump = matches!(array::<3>(s, 0), [0xeb, _, 0x90] | [0xe9, _, _]);
    jump && (name(54) || name(82))
}

/// The checksum makes the words up to it sum to zero.
fn is_silicon(s: &[u8]) -> bool {
    let sum = (0..0x9f).map(|n| le16(s, 2 * n)).fold(0u16, u16::wrapping_add);
    sum.wrapping_add(le16(s, 0x13e)) == 0
}

fn is_via(s: &[u8]) -> bool {
    let sum = array::<50>(s, 0).iter().copied().fold(0u8, u8::wrapping_add);
    sum == array::<1>(s, 50)[0]
}

/// The 64 words sum to zero or one.
fn is_jmicron(s: &[u8]) -> bool {
    let sum: u64 = (0..64).map(|n| u64::from(le16(s, 2 * n))).sum();
    matches!(sum as u16, 0 | 1)
}

fn contains(s: &[u8], word: &[u8]) -> bool {
    s.get(..SECTOR as usize).unwrap_or(s).windows(word.len()).any(|w| w == word)
}

/// ZFS keeps four labels of 256 KiB, two at either end; the upper half of each is a ring of
/// uberblocks, of which any may be filled.
fn zfs(device: Sectors, read: Window<'_>) -> Result<Option<u64>> {
    const MAGIC: u64 = 0x00ba_b10c;
    const LABEL: Sectors = Sectors::kib(256);
    const RING: Sectors = Sectors::kib(128);
    let ends = [LABEL.times(2), LABEL].map(|back| device.round_down(LABEL).checked_sub(back));
    for label in [Some(Sectors::ZERO), Some(LABEL), ends[0], ends[1]].into_iter().flatten() {
        let at = label + RING;
        if at + RING > device {
            continue;
        }
        let ring = read_area(Area { at, len: RING }, read)?;
        let is_uberblock = |n: &usize| {
            let word = array::<8>(&ring, n * 1024);
            u64::from_le_bytes(word) == MAGIC || u64::from_be_bytes(word) == MAGIC
        };
        if let Some(n) = (0..128).find(is_uberblock) {
            return Ok(Some(at.bytes() + n as u64 * 1024));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(image: &[u8]) -> Vec<&'static str> {
        let mut read = |at: Sectors, buffer: &mut [u8]| {
            let from = at.len();
            buffer.copy_from_slice(&image[from..from + buffer.len()]);
            Ok(())
        };
        let device = Sectors::floor_bytes(image.len() as u64);
        probe(device, &mut read).unwrap().iter().map(|foreign| foreign.name).collect()
    }

    fn with(len: usize, pieces: &[(usize, &[u8])]) -> Vec<u8> {
        let mut image = vec![0; len];
        for (at, bytes) in pieces {
            image[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        image
    }

    #[test]
    fn nothing_is_found_in_nothing() {
        for len in [0, 1, 511, 512, 1024, 4096, 9 * 512, 1 << 20] {
            assert!(names(&vec![0; len]).is_empty());
        }
    }

    #[test]
    fn every_row_finds_its_magic_and_nothing_else_of_its_kind() {
        const LEN: usize = 4 << 20;
        for row in PROBES {
            for &place in row.places {
                let at = byte_of(place, Sectors::floor_bytes(LEN as u64)).unwrap() as usize;
                let image = with(LEN, &[(at, row.magic)]);
                let found = names(&image);
                let plain = (row.check)(&image[at / 512 * 512..(at / 512 * 512 + 1024).min(LEN)]);
                assert_eq!(found.contains(&row.name), plain, "{} at {at}", row.name);
            }
        }
    }

    #[test]
    fn short_magics_need_their_second_look() {
        let mbr = |kind: u8| {
            let mut entry = [0u8; 16];
            (entry[4], entry[12]) = (kind, 9);
            with(1 << 20, &[(446, &entry), (510, &[0x55, 0xaa])])
        };
        assert_eq!(names(&mbr(0x83)), ["dos"]);
        assert!(names(&mbr(0xee)).is_empty(), "a protective MBR alone divides nothing");
        assert!(names(&with(1 << 20, &[(510, &[0x55, 0xaa])])).is_empty());
        let fat = with(1 << 20, &[(0, &[0xeb, 0x3c, 0x90]), (54, b"FAT16"), (510, &[0x55, 0xaa])]);
        assert_eq!(names(&fat), ["vfat"]);
        let lvm = with(1 << 20, &[(512, b"LABELONE"), (536, b"LVM2 001")]);
        assert_eq!(names(&lvm), ["lvm2"]);
        for (compatible, incompatible, name) in [(0, 2, "ext2"), (4, 6, "ext3"), (4, 0x42, "ext4")]
        {
            let pieces: &[(usize, &[u8])] =
                &[(1080, &[0x53, 0xef]), (1116, &[compatible]), (1120, &[incompatible])];
            assert_eq!(names(&with(1 << 20, pieces)), [name]);
        }
        let uberblock = 0x00ba_b10cu64.to_be_bytes();
        assert_eq!(names(&with(1 << 20, &[((128 + 5) * 1024, &uberblock)])), ["zfs_member"]);
        assert_eq!(names(&with(1 << 20, &[((512 + 256 - 8) * 1024, &uberblock)])), ["zfs_member"]);
    }
}
