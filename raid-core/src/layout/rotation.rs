//! The arithmetic RAID 4, 5 and 6 share: how P and Q move from stripe to stripe, where data goes.
//!
//! md writes one branch per algorithm (`raid5_compute_sector` in `drivers/md/raid5.c`). Here an
//! algorithm is a row: a walk of P over the slots, a place of Q, a way to fill the rest, and the
//! order in which Q counts the data units (`raid6_d0`, `raid6_idx_to_slot`).

use super::{Code, Layout, Level, Params, Role, Shape, Stripe, Unit, check};
use crate::error::Result;
use crate::units::{Sectors, Slot, StripeNo};
use smallvec::SmallVec;

/// How P walks from stripe to stripe, over a ring of slots (all, or all but a fixed Q).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Walk {
    /// Always on the first slot.
    First,
    /// Always on the last slot, or the last but one where Q follows.
    Last,
    /// From the last slot towards the first: `last - stripe % ring`.
    Left,
    /// From the first slot towards the last: `stripe % ring`.
    Right,
    /// As `Left`, one stripe ahead: `last - (stripe + 1) % ring`.
    LeftAhead,
}

/// Where data units go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fill {
    /// From the first slot on, leaving out P and Q ("asymmetric", "restart").
    Skip,
    /// From the slot behind P (and Q) on, around the ring ("symmetric", "continue").
    Follow,
}

/// Where Q is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QPlace {
    /// There is none.
    Nowhere,
    /// On the slot behind P, around the ring.
    BehindP,
    /// On the slot before P, around the ring.
    BeforeP,
    /// Always on the last slot; P and data use only the slots before it.
    LastSlot,
}

/// Which power of two multiplies a data unit in Q.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QOrder {
    /// md's own: data units counted from the slot behind Q, around all slots.
    BehindQ,
    /// DDF's: the number of the slot itself.
    BySlot,
}

/// One algorithm of RAID 4, 5 or 6.
#[derive(PartialEq, Eq, Debug)]
pub struct Rotation {
    /// md's layout word.
    pub word: u32,
    /// mdadm's name.
    pub name: &'static str,
    /// How P walks.
    pub walk: Walk,
    /// Where data goes.
    pub fill: Fill,
    /// Where Q is.
    pub q_place: QPlace,
    /// How Q counts.
    pub q_order: QOrder,
}

/// A layout with rotating (or fixed) parity.
#[derive(Debug)]
pub struct Rotated {
    shape: Shape,
    rotation: &'static Rotation,
}

impl Rotated {
    /// Builds the layout of `level` with algorithm `rotation`, for at most `slots_max` slots.
    pub fn new(
        level: &Level,
        rotation: &'static Rotation,
        params: &Params,
        slots_max: u16,
    ) -> Result<Rotated> {
        check::slots(level, params, slots_max)?;
        check::chunk_power_of_two(level, params.chunk)?;
        check::component(level, params.component, params.chunk)?;
        let parities = if rotation.q_place == QPlace::Nowhere { 1 } else { 2 };
        let data_units = params.slots - parities;
        let used = params.component.round_down(params.chunk);
        let shape = Shape {
            level: level.number,
            slots: params.slots,
            chunk: params.chunk,
            data_units,
            stripes: used.div_floor(params.chunk),
            size: check::array_size(level, used, data_units as u64)?,
            code: if parities == 1 { Code::P } else { Code::PQ },
            tolerance: parities,
            period: 1,
        };
        let mut layout = Rotated { shape, rotation };
        layout.shape.period = match rotation.walk {
            Walk::First | Walk::Last => 1,
            Walk::Left | Walk::Right | Walk::LeftAhead => layout.ring(),
        };
        Ok(layout)
    }

    /// The algorithm.
    pub fn rotation(&self) -> &'static Rotation {
        self.rotation
    }

    /// The slots of P and, where there is one, Q in stripe `no`.
    pub fn parity(&self, no: StripeNo) -> (u64, Option<u64>) {
        let (ring, last) = (self.ring(), self.shape.slots as u64 - 1);
        let p = match self.rotation.walk {
            Walk::First => 0,
            Walk::Last if self.rotation.q_place == QPlace::BehindP => last - 1,
            Walk::Last => ring - 1,
            Walk::Left => ring - 1 - no.0 % ring,
            Walk::Right => no.0 % ring,
            Walk::LeftAhead => ring - 1 - (no.0 + 1) % ring,
        };
        let q = match self.rotation.q_place {
            QPlace::Nowhere => None,
            QPlace::BehindP => Some((p + 1) % ring),
            QPlace::BeforeP => Some((p + ring - 1) % ring),
            QPlace::LastSlot => Some(last),
        };
        (p, q)
    }

    /// The slot of data unit `index` beside P and Q.
    pub fn data_slot(&self, index: u64, p: u64, q: Option<u64>) -> u64 {
        match self.rotation.fill {
            Fill::Skip => {
                let (low, high) = match q {
                    Some(q) => (p.min(q), p.max(q)),
                    None => (p, u64::MAX),
                };
                let slot = index + u64::from(index >= low);
                slot + u64::from(slot >= high)
            }
            Fill::Follow => (self.follow_from(p, q) + index) % self.ring(),
        }
    }

    /// The exponent with which Q counts the data unit on `slot`.
    pub fn power(&self, slot: u64, p: u64, q: u64) -> u64 {
        match self.rotation.q_order {
            QOrder::BySlot => slot,
            QOrder::BehindQ => {
                let slots = self.shape.slots as u64;
                let behind_q = |s: u64| (s + slots - q - 1) % slots;
                behind_q(slot) - u64::from(behind_q(p) < behind_q(slot))
            }
        }
    }

    /// How many slots P walks over: all, or all but a fixed Q.
    pub fn ring(&self) -> u64 {
        match self.rotation.q_place {
            QPlace::LastSlot => self.shape.slots as u64 - 1,
            _ => self.shape.slots as u64,
        }
    }

    /// The slot from which following data starts, before going round the ring.
    fn follow_from(&self, p: u64, q: Option<u64>) -> u64 {
        match (self.rotation.q_place, q) {
            (QPlace::BehindP, Some(q)) => q + 1,
            _ => p + 1,
        }
    }

    fn parity_unit(&self, role: Role, slot: u64, at: Sectors) -> Unit {
        Unit { role, power: 0, slot: Slot(slot as u16), at }
    }
}

impl Layout for Rotated {
    fn shape(&self) -> &Shape {
        &self.shape
    }

    fn locate(&self, at: Sectors) -> StripeNo {
        self.shape.stripe_at(at, self.shape.chunk)
    }

    fn stripe(&self, no: StripeNo) -> Stripe {
        assert!(no.0 < self.shape.stripes, "stripe {} is beyond the array", no.0);
        let (p, q) = self.parity(no);
        let at = self.shape.chunk.times(no.0);
        let mut units: SmallVec<[Unit; 8]> = (0..self.shape.data_units as u64)
            .map(|index| {
                let slot = self.data_slot(index, p, q);
                let power = q.map_or(0, |q| self.power(slot, p, q)) as u8;
                Unit { role: Role::Data(index as u16), power, slot: Slot(slot as u16), at }
            })
            .collect();
        units.push(self.parity_unit(Role::P, p, at));
        units.extend(q.map(|q| self.parity_unit(Role::Q, q, at)));
        let start = at.times(self.shape.data_units as u64);
        Stripe { no, start, len: self.shape.chunk, units }
    }

    fn find(&self, slot: Slot, at: Sectors) -> Option<StripeNo> {
        let no = at.div_floor(self.shape.chunk);
        (slot.0 < self.shape.slots && no < self.shape.stripes).then_some(StripeNo(no))
    }

    fn steps(&self, at: Sectors) -> Vec<String> {
        let (chunk, data_units) = (self.shape.chunk, self.shape.data_units as u64);
        let (number, within) = (at.div_floor(chunk), at.rem(chunk));
        let (no, index) = (number / data_units, number % data_units);
        let (p, q) = self.parity(StripeNo(no));
        let slot = self.data_slot(index, p, q);
        let mut steps = vec![
            format!("chunk = sector {at} / {chunk} sectors = {number}, {within} sectors into it"),
            format!("stripe = chunk {number} / {data_units} data units = {no}"),
            format!("data unit = chunk {number} mod {data_units} = {index}"),
        ];
        steps.extend(self.parity_steps(no));
        steps.push(self.data_step(index, p, q));
        steps.extend(q.map(|q| self.power_step(slot, p, q)));
        let place = chunk.times(no) + within;
        steps.push(format!("member sector = stripe {no} x {chunk} + {within} = {place}"));
        steps
    }

    fn steps_back(&self, slot: Slot, at: Sectors) -> Vec<String> {
        let (chunk, data_units) = (self.shape.chunk, self.shape.data_units as u64);
        let (no, within) = (at.div_floor(chunk), at.rem(chunk));
        let mut steps =
            vec![format!("stripe = member sector {at} / {chunk} sectors = {no}, {within} into it")];
        if self.find(slot, at).is_none() {
            let stripes = self.shape.stripes;
            steps.push(format!("the array has only {stripes} stripes: the sector is not used"));
            return steps;
        }
        steps.extend(self.parity_steps(no));
        let (p, q) = self.parity(StripeNo(no));
        let own = slot.0 as u64;
        let index = (0..data_units).find(|&index| self.data_slot(index, p, q) == own);
        let Some(index) = index else {
            let role = if own == p { "P" } else { "Q" };
            steps.push(format!("slot {slot} is that slot: it holds {role} of stripe {no}"));
            return steps;
        };
        steps.push(self.data_step(index, p, q));
        let number = no * data_units + index;
        steps.push(format!("chunk = stripe {no} x {data_units} + {index} = {number}"));
        let place = chunk.times(number) + within;
        steps.push(format!("array sector = chunk {number} x {chunk} + {within} = {place}"));
        steps
    }
}

/// The words for each part of the arithmetic.
impl Rotated {
    fn parity_steps(&self, no: u64) -> Vec<String> {
        let ring = self.ring();
        let (p, q) = self.parity(StripeNo(no));
        let walk = match self.rotation.walk {
            Walk::First => format!("P is always on the first slot: {p}"),
            Walk::Last => format!("P is always on slot {p}"),
            Walk::Left => format!("P slot = ({ring} - 1) - stripe {no} mod {ring} = {p}"),
            Walk::Right => format!("P slot = stripe {no} mod {ring} = {p}"),
            Walk::LeftAhead => {
                format!("P slot = ({ring} - 1) - (stripe {no} + 1) mod {ring} = {p}")
            }
        };
        let behind = q.map(|q| match self.rotation.q_place {
            QPlace::BeforeP => format!("Q is on the slot before P: ({p} - 1) mod {ring} = {q}"),
            QPlace::LastSlot => format!("Q is always on the last slot: {q}"),
            _ => format!("Q is on the slot behind P: ({p} + 1) mod {ring} = {q}"),
        });
        [format!("{} ({})", walk, self.rotation.name)].into_iter().chain(behind).collect()
    }

    fn data_step(&self, index: u64, p: u64, q: Option<u64>) -> String {
        let slot = self.data_slot(index, p, q);
        match self.rotation.fill {
            Fill::Skip => {
                let skipped = match q {
                    Some(q) => format!("P (slot {p}) and Q (slot {q})"),
                    None => format!("P (slot {p})"),
                };
                format!(
                    "slot of data unit {index}: count from slot 0, leaving out {skipped}: {slot}"
                )
            }
            Fill::Follow => {
                let (from, ring) = (self.follow_from(p, q), self.ring());
                let behind = if from == p + 1 { "P" } else { "Q" };
                format!(
                    "slot of data unit {index}: it starts behind {behind}: \
                     ({from} + {index}) mod {ring} = {slot}"
                )
            }
        }
    }

    fn power_step(&self, slot: u64, p: u64, q: u64) -> String {
        let power = self.power(slot, p, q);
        match self.rotation.q_order {
            QOrder::BySlot => format!("in Q the unit counts as 2^{power}: its slot (DDF order)"),
            QOrder::BehindQ => format!(
                "in Q the unit counts as 2^{power}: data units counted from behind Q (slot {q}), \
                 leaving out P (slot {p})"
            ),
        }
    }
}
