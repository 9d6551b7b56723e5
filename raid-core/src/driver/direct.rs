//! Plain reads without the engine: which member holds the bytes, straight into the caller's buffer.
//!
//! Most of what arrays do is reading units that can be read. Such a read has one phase and takes
//! no turn, so it needs only a snapshot of who can be trusted. If that changed meanwhile, or
//! anything fails, the caller asks the engine instead.

use super::batch::{Executor, MemberIo, Verb};
use crate::buf::{Buf, Pool};
use crate::device;
use crate::engine::{Member, State};
use crate::layout::{Code, Layout, Stripe, Unit};
use crate::units::{Sectors, Slot};
use smallvec::SmallVec;
use std::io::IoSliceMut;
use std::sync::Arc;

/// Who can be read, as of one generation of the engine's health.
pub(super) struct View {
    pub generation: u64,
    layout: Arc<dyn Layout>,
    members: Vec<Option<Member>>,
}

/// A part of the request and where its bytes lie.
struct Piece {
    slot: Slot,
    /// Sector of the device.
    at: Sectors,
    /// Byte of the request.
    from: usize,
    /// Bytes.
    len: usize,
}

type Pieces = SmallVec<[Piece; 32]>;

impl View {
    pub fn new(generation: u64, layout: Arc<dyn Layout>, members: &[Option<Member>]) -> View {
        let live = |m: &Option<Member>| m.clone().filter(|m| m.state != State::Failed);
        View { generation, layout, members: members.iter().map(live).collect() }
    }

    /// Fills `buf`, whole sectors, from array sector `at`; false if a unit has to be solved or
    /// failed to read. `ring`: does transfers of several members at once, with memory of `pool`.
    pub fn read(
        &self,
        at: Sectors,
        buf: &mut [u8],
        devices: &[Option<device::Shared>],
        ring: Option<(&dyn Executor, &Pool)>,
    ) -> bool {
        let Some(pieces) = self.pieces(at, buf.len()) else { return false };
        let one_member = pieces.iter().all(|p| p.slot == pieces[0].slot);
        match ring.filter(|_| !one_member) {
            Some((ring, pool)) => read_at_once(pieces, buf, devices, ring, pool),
            None => read_in_turn(pieces, buf, devices).is_some(),
        }
    }

    fn pieces(&self, at: Sectors, len: usize) -> Option<Pieces> {
        let mut pieces = Pieces::new();
        let (mut at, mut from) = (at, 0);
        while from < len {
            let stripe = self.layout.stripe(self.layout.locate(at));
            let mut inside = at - stripe.start;
            let end = stripe.len.times(self.layout.shape().data_units.into());
            while inside < end && from < len {
                let low = inside.rem(stripe.len);
                let left = Sectors::floor_bytes((len - from) as u64);
                let height = (stripe.len - low).min(left);
                let index = inside.div_floor(stripe.len) as usize;
                let unit = self.pick(&stripe, index, low, low + height)?;
                let data_at = self.members[unit.slot.index()].as_ref()?.record.data_at;
                let at = data_at + unit.at + low;
                pieces.push(Piece { slot: unit.slot, at, from, len: height.len() });
                from += height.len();
                inside += height;
            }
            at = stripe.start + inside;
        }
        Some(pieces)
    }

    /// The unit to read data unit `index` from: itself, or the first readable copy.
    fn pick(&self, stripe: &Stripe, index: usize, low: Sectors, high: Sectors) -> Option<Unit> {
        let readable = |unit: &Unit| {
            let Some(member) = &self.members[unit.slot.index()] else { return false };
            let trusted = match member.state {
                State::InSync => true,
                State::Recovering(cursor) => unit.at + high <= cursor,
                State::Failed => false,
            };
            trusted && !member.record.bad_in(unit.at + low, unit.at + high)
        };
        match self.layout.shape().code {
            Code::Copy => stripe.units.iter().find(|u| readable(u)).copied(),
            _ => stripe.units.get(index).filter(|u| readable(u)).copied(),
        }
    }
}

/// Member by member, what touches in one verb, straight into `buf`. `None`: something failed.
fn read_in_turn(pieces: Pieces, buf: &mut [u8], devices: &[Option<device::Shared>]) -> Option<()> {
    let mut parts: SmallVec<[(Piece, &mut [u8]); 32]> = SmallVec::new();
    let mut rest = buf;
    for piece in pieces {
        let (part, tail) = rest.split_at_mut(piece.len);
        parts.push((piece, part));
        rest = tail;
    }
    parts.sort_by_key(|(p, _)| (p.slot, p.at));
    let mut parts = parts.into_iter().peekable();
    while let Some((first, part)) = parts.next() {
        let device = devices[first.slot.index()].as_ref()?;
        let mut end = first.at + Sectors::floor_bytes(first.len as u64);
        let mut run: SmallVec<[IoSliceMut<'_>; 16]> = SmallVec::new();
        run.push(IoSliceMut::new(part));
        while let Some((next, part)) = parts.next_if(|(p, _)| p.slot == first.slot && p.at == end) {
            end += Sectors::floor_bytes(next.len as u64);
            run.push(IoSliceMut::new(part));
        }
        device.read(first.at, &mut run).ok()?;
    }
    Some(())
}

/// All members at once, into memory of the ring's own, then one copy.
fn read_at_once(
    pieces: Pieces,
    buf: &mut [u8],
    devices: &[Option<device::Shared>],
    ring: &dyn Executor,
    pool: &Pool,
) -> bool {
    let mut rest: Buf = pool.take(buf.len());
    let mut batch: SmallVec<[MemberIo; 32]> = SmallVec::new();
    for piece in &pieces {
        batch.push(MemberIo::read(piece.slot.index(), piece.at, [rest.split_to(piece.len)]));
    }
    if ring.run(devices, &mut batch).iter().any(Result::is_err) {
        return false;
    }
    for (piece, io) in pieces.iter().zip(batch) {
        let Verb::Read(bufs) = io.verb else { return false };
        buf[piece.from..piece.from + piece.len].copy_from_slice(&bufs[0]);
    }
    true
}
