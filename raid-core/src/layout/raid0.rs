//! RAID 0: striping without redundancy, also over members of unequal size.
//!
//! Where members differ, the array has zones: the first uses all members up to the size of the
//! smallest, the next those that go on, and so on (`create_strip_zones` in `drivers/md/raid0.c`).
//! Inside a later zone md has used two orders: *original* (kernels before 3.14 and, chosen by the
//! layout word 1, since 5.4) takes the chunk's number in the array modulo the zone's members,
//! *alternate* (3.14 to 5.3, word 2) its number in the zone. Without a word the layout is built
//! only if both give the same; otherwise it is refused, as a guess would scramble data.

use super::{Code, Layout, Level, Params, Region, Role, Shape, Stripe, Unit, check, names};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{Sectors, Slot, StripeNo};
use smallvec::smallvec;

/// RAID 0 in the table of levels.
pub const LEVEL: Level = Level {
    name: "raid0",
    aliases: &["0", "stripe"],
    number: 0,
    summary: "striping; no redundancy",
    slots_min: 1,
    layouts: LAYOUTS,
    parse_layout: |text| names::parse("raid0", LAYOUTS, text),
    layout_name: |word| names::name(LAYOUTS, word),
    make,
};

/// The layout word of the original order.
pub const ORIGINAL: u32 = 1;

/// The layout word of the alternate order.
pub const ALTERNATE: u32 = 2;

/// `dangerous` is mdadm's word for leaving the choice to the kernel.
const LAYOUTS: names::Names =
    &[("original", ORIGINAL), ("alternate", ALTERNATE), ("unset", 0), ("dangerous", 0)];

/// True if the members of `params` are such that the original and the alternate order place some
/// chunk differently; false also for parameters that [`LEVEL`] refuses.
pub fn layout_matters(params: &Params) -> bool {
    Raid0::new(params, Order::Original).is_ok_and(|layout| layout.order_matters())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Original,
    Alternate,
}

#[derive(Debug)]
struct Raid0 {
    shape: Shape,
    order: Order,
    zones: Vec<Zone>,
}

/// A run of array chunks striped over the same members.
#[derive(Debug)]
struct Zone {
    /// First chunk, as a number in the array.
    first: u64,
    chunks: u64,
    /// Where it begins on each of its members.
    at: Sectors,
    /// Its members, ascending.
    slots: Vec<Slot>,
}

fn make(params: &Params) -> Result<Box<dyn Layout>> {
    let order = if params.layout == ALTERNATE { Order::Alternate } else { Order::Original };
    let layout = Raid0::new(params, order)?;
    let chosen = params.layout == ORIGINAL || params.layout == ALTERNATE;
    if !chosen && layout.order_matters() {
        return Err(Error::new(
            ErrorKind::Refused,
            "the members differ in size and nothing says in which of md's two orders the later \
             zones are striped; give `--raid0-layout original` (array made by a kernel before \
             3.14) or `--raid0-layout alternate` (3.14 to 5.3): the wrong one scrambles the data",
        ));
    }
    Ok(Box::new(layout))
}

impl Raid0 {
    fn new(params: &Params, order: Order) -> Result<Raid0> {
        check::slots(&LEVEL, params, check::SLOTS_MAX)?;
        check::chunk_whole_kib(&LEVEL, params.chunk)?;
        let sizes = check::members(&LEVEL, params, params.chunk)?;
        let zones = zones(&sizes, params.chunk);
        let size = array_size(&sizes, params.chunk)?;
        let stripes = size.0.div_ceil(params.chunk.0);
        let one_zone = zones.get(1).is_none_or(|zone| zone.first >= stripes);
        let shape = Shape {
            level: LEVEL.number,
            slots: params.slots,
            chunk: params.chunk,
            data_units: 1,
            stripes,
            size,
            code: Code::None,
            tolerance: 0,
            period: if one_zone { params.slots as u64 } else { stripes },
        };
        Ok(Raid0 { shape, order, zones })
    }

    /// True if a zone inside the array begins at a chunk that the two orders place differently.
    fn order_matters(&self) -> bool {
        self.zones.iter().any(|zone| {
            zone.first < self.shape.stripes && !zone.first.is_multiple_of(zone.slots.len() as u64)
        })
    }

    /// The zone of array chunk `number`.
    fn zone_of(&self, number: u64) -> &Zone {
        &self.zones[self.zones.partition_point(|zone| zone.first <= number) - 1]
    }

    /// By how much the order turns the slots of `zone`: chunk 0 of the zone is on this one.
    fn turn(&self, zone: &Zone) -> u64 {
        match self.order {
            Order::Original => zone.first % zone.slots.len() as u64,
            Order::Alternate => 0,
        }
    }

    /// Sectors of stripe `no` that are in the array: the last may be cut.
    fn len(&self, no: u64) -> Sectors {
        self.shape.chunk.min(self.shape.size - self.shape.chunk.times(no))
    }
}

impl Layout for Raid0 {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn locate(&self, at: Sectors) -> StripeNo {
        self.shape.stripe_at(at, self.shape.chunk)
    }

    fn stripe(&self, no: StripeNo) -> Stripe {
        assert!(no.0 < self.shape.stripes, "stripe {} is beyond the array", no.0);
        let zone = self.zone_of(no.0);
        let (rank, count) = (no.0 - zone.first, zone.slots.len() as u64);
        let slot = zone.slots[((self.turn(zone) + rank) % count) as usize];
        let at = zone.at + self.shape.chunk.times(rank / count);
        let unit = Unit { role: Role::Data(0), power: 0, slot, at };
        let start = self.shape.chunk.times(no.0);
        Stripe { no, start, len: self.len(no.0), units: smallvec![unit] }
    }

    fn find(&self, slot: Slot, at: Sectors) -> Option<StripeNo> {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.at <= at) - 1];
        let index = zone.slots.binary_search(&slot).ok()? as u64;
        let count = zone.slots.len() as u64;
        let row = (at - zone.at).div_floor(self.shape.chunk);
        if row >= zone.chunks / count {
            return None;
        }
        let no = zone.first + row * count + (index + count - self.turn(zone)) % count;
        let inside = no < self.shape.stripes && (at - zone.at).rem(self.shape.chunk) < self.len(no);
        inside.then_some(StripeNo(no))
    }

    fn regions(&self) -> Vec<Region> {
        let inside = self.zones.iter().filter(|zone| zone.first < self.shape.stripes);
        inside
            .map(|zone| Region {
                first: StripeNo(zone.first),
                stripes: zone.chunks.min(self.shape.stripes - zone.first),
                period: zone.slots.len() as u64,
            })
            .collect()
    }

    fn io_opt(&self) -> Sectors {
        self.shape.chunk.times(self.shape.slots as u64)
    }

    fn steps(&self, at: Sectors) -> Vec<String> {
        let chunk = self.shape.chunk;
        let (number, within) = (at.div_floor(chunk), at.rem(chunk));
        let zone = self.zone_of(number);
        let (rank, count) = (number - zone.first, zone.slots.len() as u64);
        let unit = self.stripe(StripeNo(number)).units[0];
        let mut steps =
            vec![format!("chunk = sector {at} / {chunk} sectors = {number}, {within} into it")];
        steps.extend(self.zone_step(zone));
        steps.push(self.order_step(zone, number));
        let row = rank / count;
        steps.push(format!("row in the zone = {rank} / {count} members = {row}"));
        let place = unit.at + within;
        steps.push(format!("member sector = {} + {row} x {chunk} + {within} = {place}", zone.at));
        steps
    }

    fn steps_back(&self, slot: Slot, at: Sectors) -> Vec<String> {
        let Some(no) = self.find(slot, at) else {
            return vec![format!("no zone of the array uses sector {at} of slot {slot}")];
        };
        let (chunk, zone) = (self.shape.chunk, self.zone_of(no.0));
        let (row, within) = ((at - zone.at).div_floor(chunk), (at - zone.at).rem(chunk));
        let (count, begin) = (zone.slots.len() as u64, zone.at);
        let mut steps: Vec<String> = self.zone_step(zone).into_iter().collect();
        steps.push(format!(
            "row in the zone = (member sector {at} - {begin}) / {chunk} = {row}, {within} into it"
        ));
        let (low, high) = (zone.first + row * count, zone.first + (row + 1) * count - 1);
        steps.push(format!("that row holds chunks {low} to {high}; slot {slot} has {}", no.0));
        let place = chunk.times(no.0) + within;
        steps.push(format!("array sector = chunk {} x {chunk} + {within} = {place}", no.0));
        steps
    }
}

/// The words for zones and orders.
impl Raid0 {
    fn zone_step(&self, zone: &Zone) -> Option<String> {
        let last = zone.first + zone.chunks - 1;
        let slots: Vec<String> = zone.slots.iter().map(Slot::to_string).collect();
        (self.zones.len() > 1).then(|| {
            format!(
                "the members differ in size: chunks {} to {last} are striped over slots {} \
                 from member sector {} on",
                zone.first,
                slots.join(", "),
                zone.at
            )
        })
    }

    fn order_step(&self, zone: &Zone, number: u64) -> String {
        let count = zone.slots.len() as u64;
        let slot = self.stripe(StripeNo(number)).units[0].slot;
        let (base, what) = match self.order {
            Order::Original => (number, format!("chunk {number}")),
            Order::Alternate if zone.first == 0 => (number, format!("chunk {number}")),
            Order::Alternate => {
                (number - zone.first, format!("(chunk {number} - {} before the zone)", zone.first))
            }
        };
        let index = base % count;
        format!("member = {what} mod {count} members = {index} (from 0) of them: slot {slot}")
    }
}

/// The zones of members with these sizes (multiples of the chunk, none zero).
fn zones(sizes: &[Sectors], chunk: Sectors) -> Vec<Zone> {
    let mut ends = sizes.to_vec();
    ends.sort_unstable();
    ends.dedup();
    let (mut at, mut first) = (Sectors::ZERO, 0);
    let mut zones = Vec::with_capacity(ends.len());
    for end in ends {
        let slots: Vec<Slot> =
            (0..).map(Slot).zip(sizes).filter(|&(_, &size)| size > at).map(|(s, _)| s).collect();
        let chunks = (end - at).div_floor(chunk) * slots.len() as u64;
        zones.push(Zone { first, chunks, at, slots });
        (at, first) = (end, first + chunks);
    }
    zones
}

/// md's size of the array: for a chunk that is no power of two its mask `& ~(chunk - 1)` cuts
/// more than the rounding to chunks (`raid0_size`), and the end of the last zones is not used.
fn array_size(sizes: &[Sectors], chunk: Sectors) -> Result<Sectors> {
    // The zones span the unmasked sum: it too must not overflow.
    check::array_sum(&LEVEL, sizes)?;
    Ok(sizes.iter().map(|size| Sectors(size.0 & !(chunk.0 - 1))).sum())
}
