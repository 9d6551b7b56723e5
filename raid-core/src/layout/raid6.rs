//! RAID 6: striping with two parities, in md's fourteen layouts.
//!
//! Words 8 to 10 are DDF's: the same places as others, but Q counts data by slot number.
//! Words 16 to 20 are a RAID 5 layout over all slots but the last, which always holds Q; md
//! passes through them when it turns RAID 5 into RAID 6.

use super::rotation::{Fill, QOrder, QPlace, Rotated, Rotation, Walk};
use super::{Layout, Level, Params, names};
use crate::error::{Error, Result};

/// RAID 6 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid6",
    aliases: &["6"],
    number: 6,
    summary: "striping with two rotating parities; survives two losses",
    slots_min: 4,
    layouts: LAYOUTS,
    parse_layout: |text| names::parse("raid6", LAYOUTS, text),
    layout_name: |word| names::name(LAYOUTS, word),
    make,
};

/// Most slots: the powers of two in Q repeat after 255, and md's Q code stops there as well.
pub const SLOTS_MAX: u16 = 255;

/// DDF's count Q in their own way, so they are rotations of their own.
const LAYOUTS: names::Names = &names::rotations::<8, 38>([
    ("ddf-zero-restart", 8),
    ("ddf-N-restart", 9),
    ("ddf-N-continue", 10),
    ("left-asymmetric-6", 16),
    ("right-asymmetric-6", 17),
    ("left-symmetric-6", 18),
    ("right-symmetric-6", 19),
    ("parity-first-6", 20),
]);

static ROTATIONS: [Rotation; 14] = [
    row(0, "left-asymmetric", Walk::Left, Fill::Skip, QPlace::BehindP),
    row(1, "right-asymmetric", Walk::Right, Fill::Skip, QPlace::BehindP),
    row(2, "left-symmetric", Walk::Left, Fill::Follow, QPlace::BehindP),
    row(3, "right-symmetric", Walk::Right, Fill::Follow, QPlace::BehindP),
    row(4, "parity-first", Walk::First, Fill::Skip, QPlace::BehindP),
    row(5, "parity-last", Walk::Last, Fill::Skip, QPlace::BehindP),
    ddf(8, "ddf-zero-restart", Walk::Right, Fill::Skip, QPlace::BehindP),
    ddf(9, "ddf-N-restart", Walk::LeftAhead, Fill::Skip, QPlace::BehindP),
    ddf(10, "ddf-N-continue", Walk::Left, Fill::Follow, QPlace::BeforeP),
    row(16, "left-asymmetric-6", Walk::Left, Fill::Skip, QPlace::LastSlot),
    row(17, "right-asymmetric-6", Walk::Right, Fill::Skip, QPlace::LastSlot),
    row(18, "left-symmetric-6", Walk::Left, Fill::Follow, QPlace::LastSlot),
    row(19, "right-symmetric-6", Walk::Right, Fill::Follow, QPlace::LastSlot),
    row(20, "parity-first-6", Walk::First, Fill::Skip, QPlace::LastSlot),
];

const fn row(word: u32, name: &'static str, walk: Walk, fill: Fill, q_place: QPlace) -> Rotation {
    Rotation { word, name, walk, fill, q_place, q_order: QOrder::BehindQ }
}

const fn ddf(word: u32, name: &'static str, walk: Walk, fill: Fill, q_place: QPlace) -> Rotation {
    Rotation { word, name, walk, fill, q_place, q_order: QOrder::BySlot }
}

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    let rotation = ROTATIONS.iter().find(|row| row.word == params.layout).ok_or_else(|| {
        Error::invalid(format!(
            "layout {} does not exist for raid6; it has 0 to 5, 8 to 10 and 16 to 20",
            params.layout
        ))
    })?;
    Ok(Box::new(Rotated::new(&LEVEL, rotation, params, SLOTS_MAX)?))
}
