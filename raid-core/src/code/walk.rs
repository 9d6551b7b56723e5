//! One pass over the units of a stripe, written once for every vector and every goal.
//!
//! Up to six units (eight where there is no Q) are read side by side, their number known to the
//! compiler, so that all pointers stay in registers. More units are done group by group over a
//! tile small enough that the running sums wait in the L1 cache. Six, because units that start at
//! the same offset of a page compete for the same eight ways of L1, and results need theirs too.
//!
//! ```text
//!   n = 15:     tile 0        tile 1        tile 2 ...
//!   D14..D12    sum  |
//!   D11..D6     sum  v next
//!   D5 ..D0     sum, then the goal: write, compare, solve
//! ```

use std::mem::MaybeUninit;

use super::goal::{
    CheckP, CheckPq, Goal, SolveOne, SolveOneAndP, SolveTwo, Sum, Update, UpdateP, WriteP, WritePq,
    WriteQ,
};
use super::kernel::{Job, Store, Verdict};
use super::lanes::{Lanes, Task};

/// Units of a group where there are several. Measured: 4 and 8 are slower for most counts.
const GROUP: usize = 6;

/// Units of a group where two are enough: 4 + 4 is faster than 2 + 6.
const HALF: usize = 4;

/// Bytes of a tile when one group is enough: so much may be read of [`ZEROS`].
const TILE: usize = 4096;

/// Bytes of a tile when sums wait for the next group: two kinds of sums and six units are 8 KiB.
const TILE_OF_GROUPS: usize = 1024;

/// What is read in place of holes and lost units.
static ZEROS: Aligned<TILE> = Aligned([0; TILE]);

/// Aligned like the tiles of the units, so that the sums can wait half a tile away from them. A
/// waiting sum a few lines below the place where a result is streamed to (modulo 4096) would look
/// to the CPU as if it overlapped, at half the speed; one at that place costs a fifth.
#[repr(align(1024))]
struct Aligned<const N: usize>([u8; N]);

/// Does a job with vectors `V`; where nothing is doubled, with the wider `W`.
///
/// # Safety
/// The CPU must have the instruction set of both; the job was checked by
/// [`Kernel`](super::Kernel).
#[inline(always)]
pub(super) unsafe fn run<V: Lanes, W: Lanes>(job: Job<'_>) -> Verdict {
    // SAFETY: the caller's promise; all slices of a job are equally long, and outputs are
    // exclusive borrows, so nothing overlaps them.
    unsafe {
        match job {
            Job::Xor { sources, out, store } => {
                let (p, len) = (out.as_mut_ptr(), out.len());
                if streams(store, &[p]) {
                    walk::<V, _, _>(sources, WriteP::<true> { p }, len)
                } else {
                    walk::<W, _, _>(sources, WriteP::<false> { p }, len)
                }
            }
            Job::CheckXor { sources, parity } => {
                walk::<W, _, _>(sources, CheckP { p: parity.as_ptr() }, parity.len())
            }
            Job::Q { data, q } => {
                walk::<V, _, _>(Data::all(data), WriteQ { q: q.as_mut_ptr() }, q.len())
            }
            Job::Pq { data, p, q, store } => {
                let len = q.len();
                let (p, q) = (p.as_mut_ptr(), q.as_mut_ptr());
                if streams(store, &[p, q]) {
                    walk::<V, _, _>(Data::all(data), WritePq::<true> { p, q }, len)
                } else {
                    walk::<V, _, _>(Data::all(data), WritePq::<false> { p, q }, len)
                }
            }
            Job::CheckPq { data, p, q } => {
                let goal = CheckPq { p: p.as_ptr(), q: q.as_ptr() };
                walk::<V, _, _>(Data::all(data), goal, q.len())
            }
            Job::One { data, x, q, out } => {
                let goal = SolveOne { x, q: q.as_ptr(), out: out.as_mut_ptr() };
                walk::<V, _, _>(Data { units: data, lost: [x, x] }, goal, q.len())
            }
            Job::OneAndP { data, x, q, out, p } => {
                let (out, p) = (out.as_mut_ptr(), p.as_mut_ptr());
                let goal = SolveOneAndP { x, q: q.as_ptr(), out, p };
                walk::<V, _, _>(Data { units: data, lost: [x, x] }, goal, q.len())
            }
            Job::Two { data, lost, p, q, out } => {
                let out = out.map(|unit| unit.as_mut_ptr());
                let goal = SolveTwo { lost, p: p.as_ptr(), q: q.as_ptr(), out };
                walk::<V, _, _>(Data { units: data, lost }, goal, q.len())
            }
            Job::UpdateP { old, new, p } => {
                let goal = UpdateP { p: p.as_mut_ptr() };
                walk::<W, _, _>(&[old, new][..], goal, old.len())
            }
            Job::UpdateQ { old, new, factor, q } => {
                let (p, q) = (std::ptr::null_mut(), q.as_mut_ptr());
                walk::<W, _, _>(&[old, new][..], Update::<false> { factor, q, p }, old.len())
            }
            Job::UpdatePq { old, new, factor, p, q } => {
                let (p, q) = (p.as_mut_ptr(), q.as_mut_ptr());
                walk::<W, _, _>(&[old, new][..], Update::<true> { factor, q, p }, old.len())
            }
        }
    }
}

/// Streams need every result aligned.
fn streams(store: Store, results: &[*mut u8]) -> bool {
    store == Store::Streaming && results.iter().all(|result| result.addr() % 64 == 0)
}

/// The units of a walk; the index is the power.
trait Units: Copy {
    fn count(self) -> usize;
    /// The unit's bytes, `None` if they are all zero.
    fn unit(self, power: usize) -> Option<*const u8>;
}

impl Units for &[&[u8]] {
    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }
    #[inline(always)]
    fn unit(self, power: usize) -> Option<*const u8> {
        self.get(power).map(|unit| unit.as_ptr())
    }
}

/// Data with holes, of which up to two units are lost.
#[derive(Clone, Copy)]
struct Data<'a> {
    units: &'a [Option<&'a [u8]>],
    lost: [usize; 2],
}

impl<'a> Data<'a> {
    fn all(units: &'a [Option<&'a [u8]>]) -> Data<'a> {
        Data { units, lost: [usize::MAX; 2] }
    }
}

impl Units for Data<'_> {
    #[inline(always)]
    fn count(self) -> usize {
        self.units.len()
    }
    #[inline(always)]
    fn unit(self, power: usize) -> Option<*const u8> {
        if power == self.lost[0] || power == self.lost[1] {
            return None;
        }
        self.units.get(power).copied().flatten().map(|unit| unit.as_ptr())
    }
}

/// # Safety
/// The CPU has the instruction set of `V`; all units and the goal's pointers are good for `len`
/// bytes; the goal's outputs overlap nothing else.
#[inline(always)]
unsafe fn walk<V: Lanes, U: Units, G: Goal>(units: U, goal: G, len: usize) -> Verdict {
    // SAFETY: the caller's promise.
    unsafe { V::with(Walk { units, goal, len }) }
}

struct Walk<U, G> {
    units: U,
    goal: G,
    len: usize,
}

impl<U: Units, G: Goal> Task for Walk<U, G> {
    #[inline(always)]
    unsafe fn run<V: Lanes>(self) -> Verdict {
        const { assert!(TILE_OF_GROUPS.is_multiple_of(V::BYTES)) };
        let body = self.len - self.len % V::BYTES;
        // SAFETY: the promise of `walk`; body and tail are within `len`.
        unsafe {
            let mut kept = self.goal.start::<V>();
            match self.units.count() {
                count if count <= G::TOGETHER => self.one_group(body, &mut kept),
                count if count <= 2 * HALF => self.groups::<V, HALF>(body, &mut kept),
                _ => self.groups::<V, GROUP>(body, &mut kept),
            }
            if G::STREAMS {
                V::fence();
            }
            let start = G::verdict::<V>(kept);
            if body == self.len {
                return start;
            }
            let tail = self.tail(body);
            Verdict { p: start.p && tail.p, q: start.q && tail.q }
        }
    }
}

impl<U: Units, G: Goal> Walk<U, G> {
    #[inline(always)]
    unsafe fn one_group<V: Lanes>(&self, body: usize, kept: &mut G::Kept<V>) {
        let mut at = 0;
        while at < body && !hopeless::<V, G>(*kept) {
            let part = Part { from: 0, at, bytes: TILE.min(body - at) };
            let sums = Sums::NONE;
            // SAFETY: the promise of `walk`; the part lies within `len`, and no sums are kept.
            unsafe {
                match self.units.count() {
                    0 | 1 => self.group::<V, 1, true, true>(part, sums, kept),
                    2 => self.group::<V, 2, true, true>(part, sums, kept),
                    3 => self.group::<V, 3, true, true>(part, sums, kept),
                    4 => self.group::<V, 4, true, true>(part, sums, kept),
                    5 => self.group::<V, 5, true, true>(part, sums, kept),
                    6 => self.group::<V, 6, true, true>(part, sums, kept),
                    7 => self.group::<V, 7, true, true>(part, sums, kept),
                    _ => self.group::<V, 8, true, true>(part, sums, kept),
                }
            }
            at += TILE;
        }
    }

    #[inline(always)]
    unsafe fn groups<V: Lanes, const N: usize>(&self, body: usize, kept: &mut G::Kept<V>) {
        let mut memory = MaybeUninit::<[Aligned<TILE_OF_GROUPS>; 3]>::uninit();
        // SAFETY: half a tile into three tiles.
        let start = unsafe { memory.as_mut_ptr().cast::<u8>().add(TILE_OF_GROUPS / 2) };
        // The highest group takes what the others leave: one to `N` units.
        let highest = (self.units.count() - 1) / N * N;
        let mut at = 0;
        while at < body && !hopeless::<V, G>(*kept) {
            let bytes = TILE_OF_GROUPS.min(body - at);
            let mut part = Part { from: highest, at, bytes };
            // SAFETY: the promise of `walk`; the part lies within `len`, two tiles follow `start`,
            // and the first group writes what the next ones read.
            unsafe {
                let sums = Sums { p: start, q: start.add(TILE_OF_GROUPS) };
                match self.units.count() - highest {
                    1 => self.group::<V, 1, true, false>(part, sums, kept),
                    2 => self.group::<V, 2, true, false>(part, sums, kept),
                    3 => self.group::<V, 3, true, false>(part, sums, kept),
                    4 => self.group::<V, 4, true, false>(part, sums, kept),
                    5 => self.group::<V, 5, true, false>(part, sums, kept),
                    _ => self.group::<V, 6, true, false>(part, sums, kept),
                }
                while part.from > N {
                    part.from -= N;
                    self.group::<V, N, false, false>(part, sums, kept);
                }
                part.from = 0;
                self.group::<V, N, false, true>(part, sums, kept);
            }
            at += bytes;
        }
    }

    /// Adds `N` units to the sums of a part; the last group hands them to the goal.
    #[inline(always)]
    unsafe fn group<V: Lanes, const N: usize, const FIRST: bool, const LAST: bool>(
        &self,
        part: Part,
        sums: Sums,
        kept: &mut G::Kept<V>,
    ) {
        let mut units = [ZEROS.0.as_ptr(); N];
        for (i, unit) in units.iter_mut().enumerate() {
            if let Some(start) = self.units.unit(part.from + i) {
                // SAFETY: the part lies within the unit.
                *unit = unsafe { start.add(part.at) };
            }
        }
        let mut held = *kept;
        let mut i = 0;
        while i < part.bytes {
            // SAFETY: `i + V::BYTES` is within the part, the part within all units, the goal's
            // pointers and a tile; ZEROS is as long as the longest part.
            unsafe {
                let mut sum = if FIRST {
                    G::Sum::first(V::load(units[N - 1].add(i)))
                } else {
                    let sum: G::Sum<V> = Sum::load(sums.p.add(i), sums.q.add(i));
                    sum.next(V::load(units[N - 1].add(i)))
                };
                let mut unit = N - 1;
                while unit > 0 {
                    unit -= 1;
                    sum = sum.next(V::load(units[unit].add(i)));
                }
                if LAST {
                    self.goal.put(&mut held, part.at + i, sum);
                } else {
                    sum.save(sums.p.add(i), sums.q.add(i));
                }
            }
            i += V::BYTES;
        }
        *kept = held;
    }

    /// The bytes after the last whole vector.
    #[inline(never)]
    unsafe fn tail(&self, body: usize) -> Verdict {
        // SAFETY: the promise of `walk`; single bytes demand no instruction set.
        unsafe {
            let mut kept = self.goal.start::<u8>();
            for at in body..self.len {
                let byte = |power| self.units.unit(power).map_or(0, |unit| unit.add(at).read());
                let highest = self.units.count().saturating_sub(1);
                let mut sum: G::Sum<u8> = Sum::first(byte(highest));
                for power in (0..highest).rev() {
                    sum = sum.next(byte(power));
                }
                self.goal.put(&mut kept, at, sum);
            }
            G::verdict::<u8>(kept)
        }
    }
}

/// Which units from which place on, and how many bytes of them.
#[derive(Clone, Copy)]
struct Part {
    from: usize,
    at: usize,
    bytes: usize,
}

/// Where sums wait for the next group.
#[derive(Clone, Copy)]
struct Sums {
    p: *mut u8,
    q: *mut u8,
}

impl Sums {
    const NONE: Sums = Sums { p: std::ptr::null_mut(), q: std::ptr::null_mut() };
}

/// Whether nothing further can change the answer.
#[inline(always)]
fn hopeless<V: Lanes, G: Goal>(kept: G::Kept<V>) -> bool {
    let verdict = G::verdict::<V>(kept);
    !verdict.p && !verdict.q
}
