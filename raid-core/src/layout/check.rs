//! Limits and checks every level applies to its parameters before it builds anything.
//!
//! After these checks no sum or product of a layout can overflow. Refuses with what was found
//! and what the level needs.

use super::{Level, Params};
use crate::error::{Error, Result};
use crate::units::Sectors;

/// Most slots: the roles that fit in a version 1 superblock of 4096 bytes, (4096 - 256) / 2.
pub const SLOTS_MAX: u16 = 1920;

/// Largest member and array: a byte offset must fit in a signed 64-bit number.
pub const SIZE_MAX: Sectors = Sectors((1 << 54) - 1);

/// Largest chunk: md counts the bytes of a chunk in a signed 32-bit number.
pub const CHUNK_MAX: Sectors = Sectors((1 << 22) - 1);

/// Smallest chunk: md works in pages of 4 KiB.
pub const CHUNK_MIN: Sectors = Sectors::kib(4);

/// The number of slots is what the level can have: at least its minimum, at most `max`.
pub fn slots(level: &Level, params: &Params, max: u16) -> Result<()> {
    let (name, found) = (level.name, params.slots);
    if found < level.slots_min {
        let least = level.slots_min;
        return Err(Error::invalid(format!("{name} needs at least {least} members, not {found}")));
    }
    if found > max {
        return Err(Error::invalid(format!("{name} can have at most {max} members, not {found}")));
    }
    Ok(())
}

/// The chunk is a power of two of at least 4 KiB: the rule of RAID 4, 5, 6 and 10.
pub fn chunk_power_of_two(level: &Level, chunk: Sectors) -> Result<()> {
    if chunk < CHUNK_MIN || chunk > CHUNK_MAX || !chunk.0.is_power_of_two() {
        return Err(Error::invalid(format!(
            "a chunk of {} does not work for {}: it must be a power of two of at least 4 KiB \
             (4, 8, 16 ... 1048576 KiB)",
            size_text(chunk),
            level.name
        )));
    }
    Ok(())
}

/// The chunk is a whole number of KiB, at least 4: the rule of RAID 0.
pub fn chunk_whole_kib(level: &Level, chunk: Sectors) -> Result<()> {
    if chunk < CHUNK_MIN || chunk > CHUNK_MAX || !chunk.0.is_multiple_of(2) {
        return Err(Error::invalid(format!(
            "a chunk of {} does not work for {}: it must be at least 4 KiB and whole KiB \
             (a multiple of 4 KiB is best)",
            size_text(chunk),
            level.name
        )));
    }
    Ok(())
}

/// The used size of each member is at least one `unit` and not absurd.
pub fn component(level: &Level, component: Sectors, unit: Sectors) -> Result<()> {
    if component > SIZE_MAX {
        return Err(Error::invalid(format!(
            "a member size of {component} sectors is impossible: the largest is {SIZE_MAX}"
        )));
    }
    if component < unit || component.is_empty() {
        return Err(Error::invalid(format!(
            "{} of each member is less than one chunk ({}) of {}",
            size_text(component),
            size_text(unit),
            level.name
        )));
    }
    Ok(())
}

/// The sizes of the members by slot, each rounded down to `rounding` (zero: not at all).
pub fn members(level: &Level, params: &Params, rounding: Sectors) -> Result<Vec<Sectors>> {
    if params.members.len() != params.slots as usize {
        return Err(Error::invalid(format!(
            "{} needs the size of each of its {} members, but {} are known",
            level.name,
            params.slots,
            params.members.len()
        )));
    }
    let unit = Sectors(rounding.0.max(1));
    for (slot, &size) in params.members.iter().enumerate() {
        component(level, size, unit).map_err(|error| error.context(format!("member {slot}")))?;
    }
    Ok(params.members.iter().map(|size| size.round_down(unit)).collect())
}

/// `size` times `count`, if an array can be that large.
pub fn array_size(level: &Level, size: Sectors, count: u64) -> Result<Sectors> {
    size.0
        .checked_mul(count)
        .map(Sectors)
        .filter(|&total| total <= SIZE_MAX)
        .ok_or_else(|| too_large(level))
}

/// The sum of `sizes`, if an array can be that large.
pub fn array_sum(level: &Level, sizes: &[Sectors]) -> Result<Sectors> {
    sizes
        .iter()
        .try_fold(0u64, |sum, size| sum.checked_add(size.0))
        .map(Sectors)
        .filter(|&total| total <= SIZE_MAX)
        .ok_or_else(|| too_large(level))
}

/// A number of sectors as people write it: `64 KiB`, or sectors where that is not whole.
pub fn size_text(size: Sectors) -> String {
    match size.0.is_multiple_of(2) {
        true => format!("{} KiB", size.0 / 2),
        false => format!("{size} sectors"),
    }
}

fn too_large(level: &Level) -> Error {
    Error::invalid(format!("the {} array would exceed {SIZE_MAX} sectors (8 EiB)", level.name))
}
