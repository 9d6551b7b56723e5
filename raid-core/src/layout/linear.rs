//! Linear: members end to end, no striping, no redundancy.
//!
//! A member is used up to its size rounded down to the chunk (md calls it rounding here; zero
//! means none, so sizes may be odd). A stripe is a piece of one member of up to 1 MiB, so that
//! locks and plans stay small; pieces never straddle members.

use super::{Code, Layout, Level, Params, Region, Role, Shape, Stripe, Unit, check, names};
use crate::error::{Error, Result};
use crate::units::{Sectors, Slot, StripeNo};
use smallvec::smallvec;

/// Linear in the table of levels.
pub const LEVEL: Level = Level {
    name: "linear",
    aliases: &["-1", "concat"],
    number: -1,
    summary: "members end to end; no redundancy",
    slots_min: 1,
    layouts: &[],
    parse_layout: |text| names::parse_none("linear", text),
    layout_name: names::name_none,
    make,
};

/// Most sectors in a piece.
pub const PIECE: Sectors = Sectors::kib(1024);

#[derive(Debug)]
struct Linear {
    shape: Shape,
    /// By slot.
    members: Vec<Member>,
}

/// The part of the array one member holds.
#[derive(Debug)]
struct Member {
    /// First array sector.
    start: Sectors,
    /// First stripe.
    first: u64,
    size: Sectors,
}

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    check::slots(&LEVEL, params, check::SLOTS_MAX)?;
    if params.chunk > check::CHUNK_MAX {
        let found = params.chunk;
        return Err(Error::invalid(format!("a rounding of {found} sectors is impossible")));
    }
    let sizes = check::members(&LEVEL, params, params.chunk)?;
    let size = check::array_sum(&LEVEL, &sizes)?;
    let (mut start, mut first) = (Sectors::ZERO, 0);
    let mut members = Vec::with_capacity(sizes.len());
    for size in sizes {
        members.push(Member { start, first, size });
        start += size;
        first += size.0.div_ceil(PIECE.0);
    }
    let shape = Shape {
        level: LEVEL.number,
        slots: params.slots,
        chunk: params.chunk,
        data_units: 1,
        stripes: first,
        size,
        code: Code::None,
        tolerance: 0,
        period: if params.slots == 1 { 1 } else { first },
    };
    Ok(Box::new(Linear { shape, members }))
}

impl Linear {
    /// The slot of the member that holds array sector `at`.
    fn member_at(&self, at: Sectors) -> usize {
        assert!(at < self.shape.size, "sector {at} is beyond the array ({})", self.shape.size);
        self.members.partition_point(|member| member.start <= at) - 1
    }
}

impl Layout for Linear {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn locate(&self, at: Sectors) -> StripeNo {
        let member = &self.members[self.member_at(at)];
        StripeNo(member.first + (at - member.start).div_floor(PIECE))
    }

    fn stripe(&self, no: StripeNo) -> Stripe {
        assert!(no.0 < self.shape.stripes, "stripe {} is beyond the array", no.0);
        let slot = self.members.partition_point(|member| member.first <= no.0) - 1;
        let member = &self.members[slot];
        let at = PIECE.times(no.0 - member.first);
        let unit = Unit { role: Role::Data(0), power: 0, slot: Slot(slot as u16), at };
        let len = PIECE.min(member.size - at);
        Stripe { no, start: member.start + at, len, units: smallvec![unit] }
    }

    fn find(&self, slot: Slot, at: Sectors) -> Option<StripeNo> {
        let member = self.members.get(slot.index()).filter(|member| at < member.size)?;
        Some(StripeNo(member.first + at.div_floor(PIECE)))
    }

    fn regions(&self) -> Vec<Region> {
        let region = |member: &Member| Region {
            first: StripeNo(member.first),
            stripes: member.size.0.div_ceil(PIECE.0),
            period: 1,
        };
        self.members.iter().map(region).collect()
    }

    fn io_opt(&self) -> Sectors {
        Sectors::ZERO
    }

    fn steps(&self, at: Sectors) -> Vec<String> {
        let slot = self.member_at(at);
        let (start, size) = (self.members[slot].start, self.members[slot].size);
        let end = start + size;
        vec![
            format!("members are end to end; slot {slot} holds array sectors {start} to {end} - 1"),
            format!("member sector = array sector {at} - {start} = {}", at - start),
        ]
    }

    fn steps_back(&self, slot: Slot, at: Sectors) -> Vec<String> {
        let Some(member) = self.members.get(slot.index()) else {
            return vec![format!("there is no slot {slot}")];
        };
        let (start, size) = (member.start, member.size);
        if at >= size {
            return vec![format!("slot {slot} is used up to sector {size}: {at} is not used")];
        }
        vec![
            format!("the members before slot {slot} hold the first {start} array sectors"),
            format!("array sector = {start} + member sector {at} = {}", start + at),
        ]
    }
}
