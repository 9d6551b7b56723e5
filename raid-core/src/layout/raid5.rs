//! RAID 5: striping with one parity, in md's six layouts.
//!
//! Words 8 to 10 are RAID 6 only; they and everything unknown are refused.

use super::rotation::{Fill, QOrder, QPlace, Rotated, Rotation, Walk};
use super::{Layout, Level, Params, check, names};
use crate::error::{Error, Result};

/// RAID 5 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid5",
    aliases: &["5"],
    number: 5,
    summary: "striping with rotating parity; survives one loss",
    slots_min: 2,
    layouts: LAYOUTS,
    parse_layout: |text| names::parse("raid5", LAYOUTS, text),
    layout_name: |word| names::name(LAYOUTS, word),
    make,
};

/// mdadm's names first, then words other tools and books use for the same.
const LAYOUTS: names::Names = &[
    ("left-symmetric", 2),
    ("left-asymmetric", 0),
    ("right-symmetric", 3),
    ("right-asymmetric", 1),
    ("parity-first", 4),
    ("parity-last", 5),
    ("ls", 2),
    ("la", 0),
    ("rs", 3),
    ("ra", 1),
    ("ddf-zero-restart", 1),
    ("ddf-N-restart", 0),
    ("ddf-N-continue", 2),
    ("left-synchronous", 2),
    ("left-asynchronous", 0),
    ("right-synchronous", 3),
    ("right-asynchronous", 1),
    ("left-sync", 2),
    ("left-async", 0),
    ("right-sync", 3),
    ("right-async", 1),
    ("left-continuation", 2),
    ("left-restart", 0),
    ("right-continuation", 3),
    ("right-restart", 1),
    ("left-data-continuation", 2),
    ("left-data-restart", 0),
    ("right-data-continuation", 3),
    ("right-data-restart", 1),
    ("backward-dynamic", 2),
    ("backward", 0),
    ("forward-dynamic", 3),
    ("forward", 1),
];

static ROTATIONS: [Rotation; 6] = [
    row(0, "left-asymmetric", Walk::Left, Fill::Skip),
    row(1, "right-asymmetric", Walk::Right, Fill::Skip),
    row(2, "left-symmetric", Walk::Left, Fill::Follow),
    row(3, "right-symmetric", Walk::Right, Fill::Follow),
    row(4, "parity-first", Walk::First, Fill::Skip),
    row(5, "parity-last", Walk::Last, Fill::Skip),
];

const fn row(word: u32, name: &'static str, walk: Walk, fill: Fill) -> Rotation {
    Rotation { word, name, walk, fill, q_place: QPlace::Nowhere, q_order: QOrder::BehindQ }
}

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    let rotation = ROTATIONS.iter().find(|row| row.word == params.layout).ok_or_else(|| {
        Error::invalid(format!(
            "layout {} does not exist for raid5; it has 0 to 5 ({})",
            params.layout,
            ROTATIONS.each_ref().map(|row| row.name).join(", ")
        ))
    })?;
    Ok(Box::new(Rotated::new(&LEVEL, rotation, params, check::SLOTS_MAX)?))
}
