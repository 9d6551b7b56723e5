//! How large an array is by its metadata alone, as md computes it.
//!
//! Used where no layout is built: to show foreign or damaged superblocks and to plan a new
//! array. All arithmetic is checked: the numbers may come from a damaged disk.

use crate::units::Sectors;

/// RAID 10's layout word taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// Copies in neighbouring slots (bits 0-7).
    pub near: u64,
    /// Copies in sections or rows of their own (bits 8-15).
    pub far: u64,
    /// The far copies are in the next rows (bit 16).
    pub offset: bool,
}

impl Copies {
    /// The copies a layout word asks for.
    pub fn of(layout: u32) -> Copies {
        Copies {
            near: u64::from(layout & 0xff),
            far: u64::from(layout >> 8 & 0xff),
            offset: layout & 0x1_0000 != 0,
        }
    }

    /// Copies of each chunk.
    pub fn count(self) -> u64 {
        self.near * self.far
    }
}

/// What the size of an array depends on.
#[derive(Clone, Debug)]
pub struct Geometry<'a> {
    /// md's level number.
    pub level: i32,
    /// md's layout word.
    pub layout: u32,
    /// Chunk; zero where there is none.
    pub chunk: Sectors,
    /// Number of slots.
    pub slots: u64,
    /// Used sectors per member, where the level has that.
    pub component: Sectors,
    /// Data sectors of each member; RAID 0 and linear are built from these.
    pub members: &'a [Sectors],
}

/// The array size; `None` if the numbers make no sense for the level.
pub fn array_size(g: &Geometry<'_>) -> Option<Sectors> {
    match g.level {
        -1 => sum(g.members, |len| linear_share(len, g.chunk)),
        0 if g.chunk.is_empty() => None,
        0 => sum(g.members, |len| raid0_share(len, g.chunk)),
        1 => Some(g.component),
        4 | 5 => striped(g, g.slots.checked_sub(1)?),
        6 => striped(g, g.slots.checked_sub(2)?),
        10 => raid10(g),
        _ => None,
    }
}

/// What a member of `len` data sectors adds to a linear array.
pub fn linear_share(len: Sectors, chunk: Sectors) -> Sectors {
    if chunk.is_empty() { len } else { len.round_down(chunk) }
}

/// What a member of `len` data sectors adds to a RAID 0. For a chunk that is no power of two
/// md cuts bits off the rounded length (`raid0_size`), so the array is a bit smaller than its
/// zones.
pub fn raid0_share(len: Sectors, chunk: Sectors) -> Sectors {
    Sectors(len.round_down(chunk).0 & !(chunk.0 - 1))
}

fn sum(members: &[Sectors], share: impl Fn(Sectors) -> Sectors) -> Option<Sectors> {
    members.iter().try_fold(0u64, |sum, &len| sum.checked_add(share(len).0)).map(Sectors)
}

fn striped(g: &Geometry<'_>, data: u64) -> Option<Sectors> {
    let used = (!g.chunk.is_empty()).then(|| g.component.round_down(g.chunk))?;
    used.0.checked_mul(data).map(Sectors)
}

/// Rounded in the order of md's `calc_sectors`.
fn raid10(g: &Geometry<'_>) -> Option<Sectors> {
    let copies = Copies::of(g.layout);
    if copies.count() == 0 || g.chunk.is_empty() {
        return None;
    }
    let rows = g.component.div_floor(g.chunk) / copies.far;
    let chunks = rows.checked_mul(g.slots)? / copies.near;
    chunks.checked_mul(g.chunk.0).map(Sectors)
}
