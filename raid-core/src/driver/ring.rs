//! A batch as one submission to io_uring: all members at once, one system call, one wait.
//!
//! Each thread that runs batches gets a ring of its own, with the members as fixed files and the
//! pool's arena as a fixed buffer where the limit on locked memory allows it. What a ring cannot
//! do, or does worse, goes through the device's verbs while the ring works: filters, members in
//! the page cache (there a ring hands every operation to a kernel thread), misaligned memory,
//! batches with a single transfer. Where rings are not allowed (containers, old kernels)
//! everything does; [`Ring::stats`] says so.
//!
//! A ring holds its fixed files open. Call [`Ring::release`] after taking a member out, so that
//! the member's lock goes with it.

mod thread;

use super::batch::same_again;
use super::batch::{Executor, Inline, MemberIo, Results, Verb, all_done, run_inline, runs_of};
use super::merge::{Kind, Run};
use crate::buf::Pool;
use crate::device::{self, Device};
use crate::units::SECTOR;
use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;
use thread::{Job, ThreadRing};

/// Transfers one ring has in flight; larger batches go in turns. Enough for one request over as
/// many members as md 0.90 knows (27), twice; the queues take about 10 KiB.
const ENTRIES: u32 = 64;

/// Threads that get a ring; more than any front end starts. The others do their work inline.
const THREADS_MAX: usize = 64;

/// How a [`Ring`] chooses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RingOptions {
    /// Transfers in flight per thread.
    pub entries: u32,
    /// Batches with fewer transfers for the ring go inline.
    pub transfers_min: usize,
    /// Also use the ring for members where it is slower (to measure, and to test).
    pub everywhere: bool,
}

impl Default for RingOptions {
    fn default() -> RingOptions {
        RingOptions { entries: ENTRIES, transfers_min: 2, everywhere: false }
    }
}

/// What went which way, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RingStats {
    /// Transfers done by a ring.
    pub ring: u64,
    /// Of these, with the arena as fixed buffer.
    pub fixed: u64,
    /// Transfers done by a verb from the start.
    pub inline: u64,
    /// Transfers a ring did not finish (short, interrupted, not supported), done again by a verb.
    pub again: u64,
    /// Threads that have a ring now.
    pub threads: u64,
    /// Of the threads' rings made so far, those without the arena (limit on locked memory).
    pub without_arena: u64,
    /// Why no ring could be made, as errno; zero if none was refused.
    pub refused: i32,
}

impl fmt::Display for RingStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RingStats { ring, fixed, inline, again, threads, without_arena, refused } = self;
        write!(f, "ring {ring} (fixed {fixed}), inline {inline}, again {again}, ")?;
        write!(f, "threads {threads} (without arena {without_arena})")?;
        match refused {
            0 => Ok(()),
            errno => write!(f, ", refused: {}", io::Error::from_raw_os_error(*errno)),
        }
    }
}

/// Does batches with io_uring, one ring per calling thread.
pub struct Ring(Arc<Inner>);

struct Inner {
    options: RingOptions,
    /// Rings by thread; a ring is only ever used by its thread, the lock is for its removal.
    rings: RwLock<Vec<(ThreadId, Arc<Mutex<ThreadRing>>)>>,
    pool: Option<Pool>,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    ring: AtomicU64,
    fixed: AtomicU64,
    inline: AtomicU64,
    again: AtomicU64,
    without_arena: AtomicU64,
    refused: AtomicI32,
}

/// Whether `device` gains by a ring: a direct descriptor whose transfers do not block.
pub fn prefers_ring(device: &dyn Device) -> bool {
    let facts = device.facts();
    facts.fd.is_some() && facts.fd_async
}

/// The executor for `devices`: a ring if two of them gain by it, else [`Inline`]. `pool` is where
/// the memory of their batches comes from.
pub fn executor_for(devices: &[Option<device::Shared>], pool: &Pool) -> Box<dyn Executor> {
    match devices.iter().flatten().filter(|d| prefers_ring(&***d)).count() {
        0 | 1 => Box::new(Inline),
        _ => Box::new(Ring::new(Some(pool), RingOptions::default())),
    }
}

impl Ring {
    /// An executor whose threads register the arena of `pool`, if there is one.
    pub fn new(pool: Option<&Pool>, options: RingOptions) -> Ring {
        Ring(Arc::new(Inner {
            options,
            pool: pool.cloned(),
            rings: RwLock::default(),
            counters: Counters::default(),
        }))
    }

    /// What went which way.
    pub fn stats(&self) -> RingStats {
        let Counters { ring, fixed, inline, again, without_arena, refused } = &self.0.counters;
        RingStats {
            ring: ring.load(Relaxed),
            fixed: fixed.load(Relaxed),
            inline: inline.load(Relaxed),
            again: again.load(Relaxed),
            threads: self.0.rings.read().len() as u64,
            without_arena: without_arena.load(Relaxed),
            refused: refused.load(Relaxed),
        }
    }
}

impl Executor for Ring {
    /// Waits for batches that are running; the next batch of a thread makes a new ring.
    fn release(&self) {
        let rings = std::mem::take(&mut *self.0.rings.write());
        for (_, ring) in rings {
            ring.lock().close();
        }
    }

    fn run(&self, devices: &[Option<device::Shared>], batch: &mut [MemberIo]) -> Results {
        let runs = runs_of(batch);
        let mut results = all_done(batch);
        let (fit, rest): (SmallVec<[&Run; 8]>, SmallVec<[&Run; 8]>) =
            runs.iter().partition(|run| self.0.fits(devices, batch, run));
        let ring = match fit.len() >= self.0.options.transfers_min.max(1) {
            true => self.0.ring(),
            false => None,
        };
        let Some(ring) = ring else {
            self.0.counters.inline.fetch_add(runs.len() as u64, Relaxed);
            runs.iter().for_each(|run| run_inline(devices, batch, run, &mut results));
            return results;
        };
        self.0.counters.inline.fetch_add(rest.len() as u64, Relaxed);
        self.0.counters.ring.fetch_add(fit.len() as u64, Relaxed);
        let outcomes = self.0.execute(&ring, devices, batch, &fit, |batch| {
            rest.iter().for_each(|run| run_inline(devices, batch, run, &mut results));
        });
        for (run, outcome) in fit.into_iter().zip(outcomes) {
            self.0.settle(devices, batch, run, outcome, &mut results);
        }
        results
    }
}

impl Inner {
    /// Whether the ring may do `run`: it has a descriptor, gains by it, and the kernel takes the
    /// request as it is. The checks of the verbs are made here, because a ring goes around them.
    fn fits(&self, devices: &[Option<device::Shared>], batch: &[MemberIo], run: &Run) -> bool {
        let Some(Some(device)) = devices.get(run.device) else { return false };
        let facts = device.facts();
        if facts.fd.is_none() || !(facts.fd_async || self.options.everywhere) {
            return false;
        }
        let writes = run.kind != Kind::Read;
        let end = run.at.0.checked_add(run.len.0);
        let inside = end.is_some_and(|end| end <= facts.sectors.0);
        let place = (facts.fd_start + run.at).bytes();
        // A file cut short: the verb fails, and says why.
        let cut = || run.kind == Kind::Write && facts.length.is_some_and(|l| l.check().is_err());
        inside
            && !(writes && facts.read_only)
            && (run.kind == Kind::Flush || !run.len.is_empty())
            && run.len.bytes() <= i32::MAX as u64
            && place.is_multiple_of(facts.fd_align as u64)
            && run.pieces.iter().all(|&i| memory_fits(&batch[i], facts.fd_align))
            && !cut()
    }

    /// This thread's ring, made on first use; nothing where none can be had.
    fn ring(self: &Arc<Inner>) -> Option<Arc<Mutex<ThreadRing>>> {
        let me = std::thread::current().id();
        let found = self.rings.read().iter().find(|(id, _)| *id == me).map(|(_, r)| r.clone());
        if let Some(ring) = found
            && ring.lock().is_usable()
        {
            return Some(ring);
        }
        self.make_ring(me)
    }

    fn make_ring(self: &Arc<Inner>, me: ThreadId) -> Option<Arc<Mutex<ThreadRing>>> {
        if self.counters.refused.load(Relaxed) != 0 || self.rings.read().len() >= THREADS_MAX {
            return None;
        }
        let arena = self.pool.as_ref().and_then(Pool::arena);
        let ring = match ThreadRing::new(self.options.entries, arena) {
            Ok(ring) => ring,
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.counters.refused.store(errno, Relaxed);
                return None;
            }
        };
        let without = arena.is_some() && !ring.has_arena();
        self.counters.without_arena.fetch_add(without as u64, Relaxed);
        let ring = Arc::new(Mutex::new(ring));
        let mut rings = self.rings.write();
        rings.retain(|(id, _)| *id != me);
        rings.push((me, ring.clone()));
        drop(rings);
        leave_at_exit(self, me);
        Some(ring)
    }

    /// Submits `fit`, does `meanwhile`, waits; the outcomes are those of the ring.
    fn execute(
        &self,
        ring: &Mutex<ThreadRing>,
        devices: &[Option<device::Shared>],
        batch: &mut [MemberIo],
        fit: &[&Run],
        meanwhile: impl FnOnce(&mut [MemberIo]),
    ) -> SmallVec<[i32; 8]> {
        let job = |run: &&Run| {
            let device = devices[run.device].as_ref().expect("runs that fit have a device");
            job(device, batch, run)
        };
        let jobs: SmallVec<[Job<'_>; 8]> = fit.iter().map(job).collect();
        let mut outcomes = smallvec::smallvec![0; jobs.len()];
        let mut ring = ring.lock();
        // SAFETY: the memory of a job belongs to buffers in `batch`, which is borrowed until the
        // ring is done with all of them; `meanwhile` works on the other operations only.
        let fixed = unsafe { ring.execute(&jobs, &mut outcomes, || meanwhile(batch)) };
        self.counters.fixed.fetch_add(fixed, Relaxed);
        outcomes
    }

    /// Turns the outcome of a run into the results of its operations. What the ring did not
    /// finish, and what failed as part of something larger, is done again by the verbs.
    fn settle(
        &self,
        devices: &[Option<device::Shared>],
        batch: &mut [MemberIo],
        run: &Run,
        outcome: i32,
        results: &mut Results,
    ) {
        let wanted = run.len.bytes() as i32;
        if outcome == wanted {
            return;
        }
        let final_error = outcome < 0 && !is_passing(-outcome);
        if final_error && (run.pieces.len() == 1 || run.kind == Kind::Flush) {
            let error = io::Error::from_raw_os_error(-outcome);
            for &index in &run.pieces {
                results[index] = Err(same_again(&error));
            }
            return;
        }
        self.counters.again.fetch_add(1, Relaxed);
        run_inline(devices, batch, run, results);
    }
}

/// Errors that concern the way and not the data: the same operation may work through the verbs.
fn is_passing(errno: i32) -> bool {
    matches!(
        errno,
        libc::EAGAIN
            | libc::EINTR
            | libc::EINVAL
            | libc::EOPNOTSUPP
            | libc::ENOMEM
            | libc::ECANCELED
            | libc::EFAULT
            | libc::EBADF
    )
}

fn memory_fits(op: &MemberIo, align: usize) -> bool {
    let fits = |bytes: &[u8]| {
        (bytes.as_ptr() as usize).is_multiple_of(align) && bytes.len().is_multiple_of(align)
    };
    op.bytes().is_multiple_of(SECTOR)
        && match &op.verb {
            Verb::Read(bufs) => bufs.iter().all(|b| fits(b)),
            Verb::Write(views) => views.iter().all(|v| fits(v)),
            Verb::Flush => true,
        }
}

/// The memory of `run`, piece by piece; pieces that touch in memory become one.
fn job<'a>(device: &'a device::Shared, batch: &mut [MemberIo], run: &Run) -> Job<'a> {
    let facts = device.facts();
    let mut memory: SmallVec<[libc::iovec; 4]> = SmallVec::new();
    for &index in &run.pieces {
        match &mut batch[index].verb {
            Verb::Read(bufs) => {
                bufs.iter_mut().for_each(|b| append(&mut memory, b.as_mut_ptr(), b.len()));
            }
            // A write only reads from its memory, whatever the type of iovec says.
            Verb::Write(views) => {
                views.iter().for_each(|v| append(&mut memory, v.as_ptr().cast_mut(), v.len()));
            }
            Verb::Flush => {}
        }
    }
    let at = if run.kind == Kind::Flush { 0 } else { (facts.fd_start + run.at).bytes() };
    Job { index: run.device, device, kind: run.kind, at, memory }
}

fn append(memory: &mut SmallVec<[libc::iovec; 4]>, start: *mut u8, len: usize) {
    if let Some(last) = memory.last_mut()
        && last.iov_base as usize + last.iov_len == start as usize
    {
        last.iov_len += len;
    } else if len > 0 {
        memory.push(libc::iovec { iov_base: start.cast(), iov_len: len });
    }
}

/// The rings of a thread end with it.
struct AtExit(Vec<(Weak<Inner>, ThreadId)>);

impl Drop for AtExit {
    fn drop(&mut self) {
        for (inner, me) in self.0.drain(..) {
            if let Some(inner) = inner.upgrade() {
                inner.rings.write().retain(|(id, _)| *id != me);
            }
        }
    }
}

thread_local! {
    /// Where this thread has rings. Not state: only what is needed to clean up.
    static AT_EXIT: RefCell<AtExit> = const { RefCell::new(AtExit(Vec::new())) };
}

fn leave_at_exit(inner: &Arc<Inner>, me: ThreadId) {
    // Fails only while the thread is ending; the ring then lives until `release`.
    let _ = AT_EXIT.try_with(|list| {
        let list = &mut list.borrow_mut().0;
        list.retain(|(known, _)| known.strong_count() > 0 && !known.ptr_eq(&Arc::downgrade(inner)));
        list.push((Arc::downgrade(inner), me));
    });
}

#[cfg(test)]
mod tests;
