//! Plain reads without the engine: which member holds the bytes, straight into the caller's buffer.
//!
//! Most of what arrays do is reading units that can be read. Such a read has one phase and takes
//! no turn, so it needs only a snapshot of who can be trusted. If that changed meanwhile, or
//! anything fails, the caller asks the engine instead.

use crate::device;
use crate::engine::{Member, State};
use crate::layout::{Code, Layout, Stripe, Unit};
use crate::units::{Sectors, Slot};
use smallvec::SmallVec;
use std::io::{self, IoSliceMut};
use std::sync::Arc;

/// Who can be read, as of one generation of the engine's health.
pub(super) struct View {
    pub generation: u64,
    layout: Arc<dyn Layout>,
    slots: Vec<Option<Readable>>,
}

struct Readable {
    device: device::Shared,
    member: Member,
}

/// A part of the caller's buffer and where its bytes lie.
struct Piece<'a> {
    slot: Slot,
    at: Sectors,
    buf: &'a mut [u8],
}

impl View {
    pub fn new(
        generation: u64,
        layout: Arc<dyn Layout>,
        members: &[Option<Member>],
        devices: &[Option<device::Shared>],
    ) -> View {
        let slots = members.iter().zip(devices).map(|(member, device)| {
            let member = member.clone().filter(|m| m.state != State::Failed)?;
            Some(Readable { device: device.clone()?, member })
        });
        View { generation, layout, slots: slots.collect() }
    }

    /// Fills `buf`, whole sectors, from array sector `at`; `None` if a unit has to be solved.
    pub fn read(&self, at: Sectors, buf: &mut [u8]) -> Option<io::Result<()>> {
        let mut pieces = self.pieces(at, buf)?;
        pieces.sort_by_key(|p| (p.slot, p.at));
        let mut pieces = pieces.into_iter().peekable();
        while let Some(first) = pieces.next() {
            let device = &self.slots[first.slot.index()].as_ref()?.device;
            let mut end = first.at + Sectors::floor_bytes(first.buf.len() as u64);
            let mut run: SmallVec<[IoSliceMut<'_>; 16]> = SmallVec::new();
            run.push(IoSliceMut::new(first.buf));
            while let Some(next) = pieces.next_if(|p| p.slot == first.slot && p.at == end) {
                end += Sectors::floor_bytes(next.buf.len() as u64);
                run.push(IoSliceMut::new(next.buf));
            }
            if let Err(error) = device.read(first.at, &mut run) {
                return Some(Err(error));
            }
        }
        Some(Ok(()))
    }

    fn pieces<'a>(&self, at: Sectors, buf: &'a mut [u8]) -> Option<SmallVec<[Piece<'a>; 32]>> {
        let mut pieces = SmallVec::new();
        let (mut at, mut rest) = (at, buf);
        while !rest.is_empty() {
            let stripe = self.layout.stripe(self.layout.locate(at));
            let mut inside = at - stripe.start;
            let end = stripe.len.times(self.layout.shape().data_units.into());
            while inside < end && !rest.is_empty() {
                let from = inside.rem(stripe.len);
                let left = Sectors::floor_bytes(rest.len() as u64);
                let len = (stripe.len - from).min(left);
                let index = inside.div_floor(stripe.len) as usize;
                let unit = self.pick(&stripe, index, from, from + len)?;
                let (head, tail) = rest.split_at_mut(len.len());
                let data_at = self.slots[unit.slot.index()].as_ref()?.member.record.data_at;
                pieces.push(Piece { slot: unit.slot, at: data_at + unit.at + from, buf: head });
                rest = tail;
                inside += len;
            }
            at = stripe.start + inside;
        }
        Some(pieces)
    }

    /// The unit to read data unit `index` from: itself, or the first readable copy.
    fn pick(&self, stripe: &Stripe, index: usize, low: Sectors, high: Sectors) -> Option<Unit> {
        let readable = |unit: &Unit| {
            let Some(slot) = &self.slots[unit.slot.index()] else { return false };
            let trusted = match slot.member.state {
                State::InSync => true,
                State::Recovering(cursor) => unit.at + high <= cursor,
                State::Failed => false,
            };
            trusted && !slot.member.record.bad_in(unit.at + low, unit.at + high)
        };
        match self.layout.shape().code {
            Code::Copy => stripe.units.iter().find(|u| readable(u)).copied(),
            _ => stripe.units.get(index).filter(|u| readable(u)).copied(),
        }
    }
}
