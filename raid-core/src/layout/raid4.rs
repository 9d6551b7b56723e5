//! RAID 4: striping with parity always on the last slot. md ignores the layout word.

use super::rotation::{Fill, QOrder, QPlace, Rotated, Rotation, Walk};
use super::{Layout, Level, Params, check, names};
use crate::error::Result;

/// RAID 4 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid4",
    aliases: &["4"],
    number: 4,
    summary: "striping with parity on the last member; survives one loss",
    slots_min: 2,
    layouts: &[],
    parse_layout: |text| names::parse_none("raid4", text),
    layout_name: names::name_none,
    make,
};

const ROTATION: Rotation = Rotation {
    word: 0,
    name: "parity-last",
    walk: Walk::Last,
    fill: Fill::Skip,
    q_place: QPlace::Nowhere,
    q_order: QOrder::BehindQ,
};

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    Ok(Box::new(Rotated::new(&LEVEL, &ROTATION, params, check::SLOTS_MAX)?))
}
