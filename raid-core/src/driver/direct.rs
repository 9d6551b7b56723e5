//! Plain reads without the engine: which member holds the bytes, straight into the caller's buffer.
//!
//! Most of what arrays do is reading units that can be read. Such a read has one phase and takes
//! no turn, so it needs only a snapshot of who can be trusted. If that changed meanwhile, or
//! anything fails, the caller asks the engine instead.

use super::batch::{Executor, MemberIo, Verb};
use crate::buf::{Buf, Pool};
use crate::device::{self, Lent};
use crate::engine::{DeviceId, Member};
use crate::layout::{Code, Layout, Stripe, Unit};
use crate::units::Sectors;
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
    device: DeviceId,
    /// Sector of the device.
    at: Sectors,
    /// Byte of the request.
    from: usize,
    /// Bytes.
    len: usize,
}

impl Piece {
    /// True if `next` is on the same device right behind.
    fn touches(&self, next: &Piece) -> bool {
        self.device == next.device && next.at == self.at + Sectors::floor_bytes(self.len as u64)
    }
}

type Pieces = SmallVec<[Piece; 32]>;

impl View {
    pub fn new(generation: u64, layout: Arc<dyn Layout>, members: &[Option<Member>]) -> View {
        let live = |m: &Option<Member>| m.clone().filter(Member::is_live);
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
        let one_member = pieces.iter().all(|p| p.device == pieces[0].device);
        match ring.filter(|_| !one_member) {
            Some((ring, pool)) => read_at_once(pieces, buf, devices, ring, pool),
            None => read_in_turn(pieces, buf, devices).is_some(),
        }
    }

    /// Where `len` bytes from array sector `at` lie in memory of the members, in order.
    pub fn lend(
        &self,
        at: Sectors,
        len: usize,
        devices: &[Option<device::Shared>],
    ) -> Option<SmallVec<[Lent; 32]>> {
        let mut pieces = self.pieces(at, len)?;
        let mut places: SmallVec<[(usize, Lent); 32]> = SmallVec::new();
        // What touches on a member is looked up at once.
        pieces.sort_by_key(|p| (p.device, p.at));
        for run in pieces.chunk_by(Piece::touches) {
            let device = devices.get(run[0].device.0)?.as_ref()?;
            let mut base = device.lend(run[0].at, run.iter().map(|p| p.len).sum())?.base;
            for piece in run {
                places.push((piece.from, Lent { base, len: piece.len }));
                base = base.wrapping_byte_add(piece.len);
            }
        }
        places.sort_by_key(|(from, _)| *from);
        Some(places.into_iter().map(|(_, lent)| lent).collect())
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
                let member = self.members[unit.slot.index()].as_ref()?;
                let at = member.record.data_at + unit.at + low;
                pieces.push(Piece { device: member.device, at, from, len: height.len() });
                from += height.len();
                inside += height;
            }
            at = stripe.start + inside;
        }
        Some(pieces)
    }

    /// The unit to read data unit `index` from: itself, or the first readable copy.
    fn pick(&self, stripe: &Stripe, index: usize, low: Sectors, high: Sectors) -> Option<Unit> {
        let holder = |unit: &Unit| {
            let member = self.members[unit.slot.index()].as_ref()?;
            member.holds(unit.at + low, unit.at + high).then_some(member)
        };
        let is_bad = |unit: &Unit| {
            let member = self.members[unit.slot.index()].as_ref();
            member.is_some_and(|m| m.record.bad_in(unit.at + low, unit.at + high))
        };
        let readable = |unit: &Unit| holder(unit).is_some();
        let willing = |unit: &Unit| holder(unit).is_some_and(|m| !m.record.write_mostly);
        match self.layout.shape().code {
            // Which of the copies counts where one is bad in part is the engine's to say.
            Code::Copy if stripe.units.iter().any(is_bad) => None,
            Code::Copy => {
                let first = stripe.units.iter().find(|u| willing(u));
                first.or_else(|| stripe.units.iter().find(|u| readable(u))).copied()
            }
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
    parts.sort_by_key(|(p, _)| (p.device, p.at));
    let mut parts = parts.into_iter().peekable();
    while let Some((first, part)) = parts.next() {
        let device = devices.get(first.device.0)?.as_ref()?;
        let mut end = first.at + Sectors::floor_bytes(first.len as u64);
        let mut run: SmallVec<[IoSliceMut<'_>; 16]> = SmallVec::new();
        run.push(IoSliceMut::new(part));
        while let Some((next, part)) =
            parts.next_if(|(p, _)| p.device == first.device && p.at == end)
        {
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
        batch.push(MemberIo::read(piece.device.0, piece.at, [rest.split_to(piece.len)]));
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
