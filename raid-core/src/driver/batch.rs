//! Member I/O in batches: independent operations on many members, done together.
//!
//! Memory moves in with an operation and is still there when the batch comes back. Operations of
//! one batch may be done in any order and at the same time: what must follow goes into the next
//! batch. In particular a flush covers the writes of earlier batches, not those beside it.

use super::merge::{Kind, Piece, Run, merge};
use crate::buf::{Buf, Shared};
use crate::device::{self, Device};
use crate::units::Sectors;
use smallvec::SmallVec;
use std::io::{self, IoSlice, IoSliceMut};

/// Memory of a read; one buffer is the common case and needs no heap.
pub type Bufs = SmallVec<[Buf; 1]>;

/// Memory of a write.
pub type Views = SmallVec<[Shared; 1]>;

/// One result per operation, in the order of the batch.
pub type Results = SmallVec<[io::Result<()>; 8]>;

/// What to do on a member.
#[derive(Debug)]
pub enum Verb {
    /// Fill the buffers.
    Read(Bufs),
    /// Write the views.
    Write(Views),
    /// Make durable what earlier batches wrote.
    Flush,
}

/// One operation on one member.
#[derive(Debug)]
pub struct MemberIo {
    /// Index into the devices that the batch is run on.
    pub device: usize,
    /// Where it begins; without meaning for a flush.
    pub at: Sectors,
    /// What to do, with its memory.
    pub verb: Verb,
}

impl MemberIo {
    /// A read of whole sectors into `bufs`.
    pub fn read(device: usize, at: Sectors, bufs: impl IntoIterator<Item = Buf>) -> MemberIo {
        MemberIo { device, at, verb: Verb::Read(bufs.into_iter().collect()) }
    }

    /// A write of whole sectors from `views`.
    pub fn write(device: usize, at: Sectors, views: impl IntoIterator<Item = Shared>) -> MemberIo {
        MemberIo { device, at, verb: Verb::Write(views.into_iter().collect()) }
    }

    /// A flush.
    pub fn flush(device: usize) -> MemberIo {
        MemberIo { device, at: Sectors::ZERO, verb: Verb::Flush }
    }

    /// Bytes it moves.
    pub fn bytes(&self) -> u64 {
        match &self.verb {
            Verb::Read(bufs) => bufs.iter().map(|b| b.len() as u64).sum(),
            Verb::Write(views) => views.iter().map(|v| v.len() as u64).sum(),
            Verb::Flush => 0,
        }
    }

    fn piece(&self) -> Piece {
        let (kind, at, buffers) = match &self.verb {
            Verb::Read(bufs) => (Kind::Read, self.at, bufs.len()),
            Verb::Write(views) => (Kind::Write, self.at, views.len()),
            Verb::Flush => (Kind::Flush, Sectors::ZERO, 0),
        };
        let len = Sectors::floor_bytes(self.bytes());
        Piece { device: self.device, kind, at, len, buffers }
    }
}

/// Does batches. Any number of threads may call it at once.
pub trait Executor: Send + Sync {
    /// Does every operation of `batch` on `devices` (by slot; nothing where a slot is empty, which
    /// an operation finds out by failing) and returns when all are done. An operation
    /// fails alone: a bad sector under one does not fail another that was joined with it.
    fn run(&self, devices: &[Option<device::Shared>], batch: &mut [MemberIo]) -> Results;

    /// Lets go of all members, so that their locks end with the last descriptor.
    fn release(&self) {}
}

/// Does operations one after the other, each with one verb of its device, in the caller's thread.
///
/// The right way for members in memory and in the page cache, where nothing waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Executor for Inline {
    fn run(&self, devices: &[Option<device::Shared>], batch: &mut [MemberIo]) -> Results {
        let mut results = all_done(batch);
        if let [only] = batch {
            results[0] = run_one(devices, only);
            return results;
        }
        for run in &runs_of(batch) {
            run_inline(devices, batch, run, &mut results);
        }
        results
    }
}

/// A result for every operation, to be replaced where one fails.
pub(super) fn all_done(batch: &[MemberIo]) -> Results {
    batch.iter().map(|_| Ok(())).collect()
}

/// The joined transfers of a batch.
pub(super) fn runs_of(batch: &[MemberIo]) -> SmallVec<[Run; 8]> {
    let pieces: SmallVec<[Piece; 8]> = batch.iter().map(MemberIo::piece).collect();
    merge(&pieces)
}

/// Does one run with one verb; where that fails, its operations one by one, so that each gets its
/// own result. A flush is not repeated: the kernel reports a lost write once.
pub(super) fn run_inline(
    devices: &[Option<device::Shared>],
    batch: &mut [MemberIo],
    run: &Run,
    results: &mut Results,
) {
    if let [only] = run.pieces[..] {
        results[only] = run_one(devices, &mut batch[only]);
        return;
    }
    let Err(error) = run_joined(devices, batch, run) else { return };
    for &index in &run.pieces {
        results[index] = match run.kind {
            Kind::Flush => Err(same_again(&error)),
            _ => run_one(devices, &mut batch[index]),
        };
    }
}

fn run_one(devices: &[Option<device::Shared>], op: &mut MemberIo) -> io::Result<()> {
    let device = find(devices, op.device)?;
    match &mut op.verb {
        Verb::Read(bufs) => {
            let mut slices: SmallVec<[IoSliceMut<'_>; 8]> =
                bufs.iter_mut().map(|b| IoSliceMut::new(b)).collect();
            device.read(op.at, &mut slices)
        }
        Verb::Write(views) => {
            let slices: SmallVec<[IoSlice<'_>; 8]> =
                views.iter().map(|v| IoSlice::new(v)).collect();
            device.write(op.at, &slices)
        }
        Verb::Flush => device.flush(),
    }
}

fn run_joined(
    devices: &[Option<device::Shared>],
    batch: &mut [MemberIo],
    run: &Run,
) -> io::Result<()> {
    let device = find(devices, run.device)?;
    match run.kind {
        Kind::Read => read_joined(device, batch, run),
        Kind::Write => {
            let views = run.pieces.iter().flat_map(|&i| match &batch[i].verb {
                Verb::Write(views) => &views[..],
                _ => &[],
            });
            let slices: SmallVec<[IoSlice<'_>; 16]> = views.map(|v| IoSlice::new(v)).collect();
            device.write(run.at, &slices)
        }
        Kind::Flush => device.flush(),
    }
}

/// The buffers leave their operations for the length of the call, since the order of the run is
/// not the order of the batch.
fn read_joined(device: &dyn Device, batch: &mut [MemberIo], run: &Run) -> io::Result<()> {
    let mut taken: SmallVec<[Bufs; 8]> = SmallVec::new();
    for &index in &run.pieces {
        if let Verb::Read(bufs) = &mut batch[index].verb {
            taken.push(std::mem::take(bufs));
        }
    }
    let mut slices: SmallVec<[IoSliceMut<'_>; 16]> =
        taken.iter_mut().flatten().map(|b| IoSliceMut::new(b)).collect();
    let result = device.read(run.at, &mut slices);
    drop(slices);
    for (&index, bufs) in run.pieces.iter().zip(taken) {
        batch[index].verb = Verb::Read(bufs);
    }
    result
}

fn find(devices: &[Option<device::Shared>], index: usize) -> io::Result<&dyn Device> {
    match devices.get(index) {
        Some(Some(device)) => Ok(&**device),
        _ => {
            let text = format!("no device {index} among the {} of the batch", devices.len());
            Err(io::Error::new(io::ErrorKind::InvalidInput, text))
        }
    }
}

/// The same error for another operation.
pub(super) fn same_again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(number) => io::Error::from_raw_os_error(number),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

#[cfg(test)]
mod tests;
