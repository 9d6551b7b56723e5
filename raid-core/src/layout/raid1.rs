//! RAID 1: every member holds the whole array.
//!
//! A stripe is 64 KiB on every member, md's own step when it synchronises; the last may be
//! shorter. The chunk and the layout word of a superblock mean nothing here and are ignored.

use super::{Code, Layout, Level, Params, Role, Shape, Stripe, Unit, check, names};
use crate::error::Result;
use crate::units::{Sectors, Slot, SlotSet, StripeNo};

/// RAID 1 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid1",
    aliases: &["1", "mirror"],
    number: 1,
    summary: "the same data on every member; survives until the last one",
    slots_min: 1,
    layouts: &[],
    parse_layout: |text| names::parse_none("raid1", text),
    layout_name: names::name_none,
    make,
};

/// Sectors in a stripe: md's `RESYNC_BLOCK_SIZE` of 64 KiB.
pub const UNIT: Sectors = Sectors::kib(64);

#[derive(Debug)]
struct Raid1 {
    shape: Shape,
}

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    check::slots(&LEVEL, params, check::SLOTS_MAX)?;
    check::component(&LEVEL, params.component, Sectors(1))?;
    let shape = Shape {
        level: LEVEL.number,
        slots: params.slots,
        chunk: Sectors::ZERO,
        data_units: 1,
        stripes: params.component.0.div_ceil(UNIT.0),
        size: params.component,
        code: Code::Copy,
        tolerance: params.slots - 1,
        period: 1,
    };
    Ok(Box::new(Raid1 { shape }))
}

impl Layout for Raid1 {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn locate(&self, at: Sectors) -> StripeNo {
        self.shape.stripe_at(at, UNIT)
    }

    fn stripe(&self, no: StripeNo) -> Stripe {
        assert!(no.0 < self.shape.stripes, "stripe {} is beyond the array", no.0);
        let start = UNIT.times(no.0);
        let units = (0..self.shape.slots)
            .map(|slot| {
                let role = if slot == 0 { Role::Data(0) } else { Role::Copy(slot) };
                Unit { role, power: 0, slot: Slot(slot), at: start }
            })
            .collect();
        Stripe { no, start, len: UNIT.min(self.shape.size - start), units }
    }

    fn find(&self, slot: Slot, at: Sectors) -> Option<StripeNo> {
        let used = slot.0 < self.shape.slots && at < self.shape.size;
        used.then(|| StripeNo(at.div_floor(UNIT)))
    }

    fn survives(&self, missing: &SlotSet) -> bool {
        (0..self.shape.slots).any(|slot| !missing.contains(Slot(slot)))
    }

    fn io_opt(&self) -> Sectors {
        Sectors::ZERO
    }

    fn steps(&self, at: Sectors) -> Vec<String> {
        let slots = self.shape.slots;
        vec![
            format!("every one of the {slots} members holds the whole array"),
            format!("member sector = array sector = {at}, on each of them"),
        ]
    }

    fn steps_back(&self, slot: Slot, at: Sectors) -> Vec<String> {
        if self.find(slot, at).is_none() {
            let size = self.shape.size;
            return vec![format!("the array ends at sector {size}: the sector is not used")];
        }
        vec![format!("array sector = member sector = {at}: every member holds the whole array")]
    }
}
