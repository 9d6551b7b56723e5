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

/// DDF's rotations are some of the common ones.
const LAYOUTS: names::Names = &names::rotations::<3, 33>([
    ("ddf-zero-restart", 1),
    ("ddf-N-restart", 0),
    ("ddf-N-continue", 2),
]);

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
