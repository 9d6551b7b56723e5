//! What an array seems to hold, and how far that is consistent: which of two readings is right.
//!
//! The start of a file system alone proves nothing about later parts of an array, so copies that
//! the formats keep further on are looked for: backup superblocks of ext2/3/4 (block groups 1 and
//! powers of 3, 5 and 7), allocation group headers of XFS, the second GPT header, the mirror of
//! Btrfs' superblock. Offsets are those of the formats' documentation. Reads only.

use raid_core::driver::Array;
use raid_core::error::{Error, Result};
use raid_core::meta::foreign;
use raid_core::units::{SECTOR, Sectors};

/// Copies looked for at most.
const COPIES_MAX: usize = 64;

/// What is there, in a line for people.
pub fn of(array: &Array) -> String {
    match look(array) {
        Ok(text) => text,
        Err(error) => format!("cannot be read: {error}"),
    }
}

fn look(array: &Array) -> Result<String> {
    let mut window =
        |at: Sectors, buf: &mut [u8]| array.read(at.bytes(), buf).map_err(std::io::Error::other);
    let found = foreign::probe(Sectors::floor_bytes(array.size()), &mut window)?;
    if found.is_empty() {
        return Ok("nothing that is known".into());
    }
    let mut parts = Vec::new();
    for thing in found {
        let copies = match thing.name {
            "ext2" | "ext3" | "ext4" => ext_copies(array)?,
            "xfs" => xfs_copies(array)?,
            "gpt" => gpt_copies(array),
            "btrfs" => vec![(BTRFS_MIRROR, 64, b"_BHRfS_M".to_vec())],
            _ => Vec::new(),
        };
        let (good, all) = count(array, &copies)?;
        parts.push(match (good, all) {
            (_, 0) => format!("{} (no copies to compare with)", thing.summary),
            (good, all) if good == all => {
                format!("{}, consistent: {all} of {all} copies found", thing.summary)
            }
            _ => format!("{}, damaged: {good} of {all} copies found", thing.summary),
        });
    }
    Ok(parts.join("; "))
}

/// The second superblock of Btrfs, in bytes.
const BTRFS_MIRROR: u64 = 64 << 20;

/// A place in the array, the offset there, and the bytes that must be found.
type Copy = (u64, usize, Vec<u8>);

/// How many copies are as they must be, of those that lie in the array.
fn count(array: &Array, copies: &[Copy]) -> Result<(usize, usize)> {
    let (mut good, mut all) = (0, 0);
    for (at, skip, wanted) in copies {
        let len = (skip + wanted.len()) as u64;
        if at.checked_add(len).is_none_or(|end| end > array.size()) {
            continue;
        }
        let mut bytes = vec![0; len as usize];
        array.read(*at, &mut bytes)?;
        all += 1;
        good += usize::from(bytes[*skip..] == wanted[..]);
    }
    Ok((good, all))
}

/// Backup superblocks carry the magic, their own group number and the same id.
fn ext_copies(array: &Array) -> Result<Vec<Copy>> {
    const SUPERBLOCK: u64 = 1024;
    let mut head = vec![0; 1024];
    array.read(SUPERBLOCK, &mut head)?;
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let (blocks, first, per_group) = (u64::from(word(4)), u64::from(word(20)), word(32));
    let block = 1024u64.checked_shl(word(24)).filter(|_| word(24) <= 6);
    let (Some(block), true) = (block, per_group > 0) else {
        return Err(Error::invalid("the superblock makes no sense"));
    };
    let sparse = word(100) & 1 != 0;
    let is_power = |mut n: u64, base: u64| {
        while n > 1 && n.is_multiple_of(base) {
            n /= base;
        }
        n == 1
    };
    let groups = blocks.saturating_sub(first).div_ceil(u64::from(per_group));
    let has_copy = |group: &u64| !sparse || [3, 5, 7].iter().any(|&base| is_power(*group, base));
    let copies = (1..groups.min(1 << 20)).filter(has_copy).take(COPIES_MAX).map(|group| {
        let at = (first + group * u64::from(per_group)).saturating_mul(block);
        // Magic at 56, state and policy differ, so: group number at 90, then features and id.
        let mut wanted = (group as u16).to_le_bytes().to_vec();
        wanted.extend_from_slice(&head[92..96]);
        (at, 90, wanted)
    });
    let copies: Vec<Copy> = copies.collect();
    let ids = copies.iter().map(|(at, _, _)| (*at, 104, head[104..120].to_vec()));
    Ok(ids.chain(copies.clone()).collect())
}

/// Each allocation group begins with a copy of the superblock.
fn xfs_copies(array: &Array) -> Result<Vec<Copy>> {
    let mut head = vec![0; SECTOR as usize];
    array.read(0, &mut head)?;
    let word = |at: usize| {
        u64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]))
    };
    let (block, group_blocks, groups) = (word(4), word(84), word(88));
    let copies = (1..groups).take(COPIES_MAX).map(|group| {
        let at = (group * group_blocks).saturating_mul(block);
        (at, 0, head[..8].to_vec())
    });
    Ok(copies.collect())
}

/// The second header is in the last sector.
fn gpt_copies(array: &Array) -> Vec<Copy> {
    vec![(array.size() - SECTOR, 0, b"EFI PART".to_vec())]
}
