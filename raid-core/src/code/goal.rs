//! What a walk over the units adds up, and what is done with the sum at each place.
//!
//! Every job of a kernel is one pass: the lost units count as zero on the way, and the solving is
//! done on the sums while they are in registers.

use super::gf256;
use super::kernel::Verdict;
use super::lanes::Lanes;

/// Running sums over the units, from the highest power to the lowest.
pub(super) trait Sum<V: Lanes>: Copy {
    /// The sum of one unit.
    fn first(unit: V) -> Self;
    /// With one more unit, the next lower power.
    fn next(self, unit: V) -> Self;
    /// Takes up a sum left by `save`.
    ///
    /// # Safety
    /// `save` wrote to the same pointers with the same type before.
    unsafe fn load(p: *const u8, q: *const u8) -> Self;
    /// Leaves the sum for later.
    ///
    /// # Safety
    /// `V::BYTES` bytes at each pointer are writable.
    unsafe fn save(self, p: *mut u8, q: *mut u8);
}

/// The sum for P.
#[derive(Clone, Copy)]
pub(super) struct P<V>(V);

/// The sum for Q, in its guise.
#[derive(Clone, Copy)]
pub(super) struct Q<V>(V);

/// Both sums.
#[derive(Clone, Copy)]
pub(super) struct Pq<V>(P<V>, Q<V>);

impl<V: Lanes> Sum<V> for P<V> {
    #[inline(always)]
    fn first(unit: V) -> Self {
        P(unit)
    }
    #[inline(always)]
    fn next(self, unit: V) -> Self {
        P(self.0.xor(unit))
    }
    #[inline(always)]
    unsafe fn load(p: *const u8, _: *const u8) -> Self {
        // SAFETY: the caller's promise.
        P(unsafe { V::load(p) })
    }
    #[inline(always)]
    unsafe fn save(self, p: *mut u8, _: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(p) }
    }
}

impl<V: Lanes> Sum<V> for Q<V> {
    #[inline(always)]
    fn first(unit: V) -> Self {
        Q(unit.guise())
    }
    #[inline(always)]
    fn next(self, unit: V) -> Self {
        Q(self.0.twice().xor(unit))
    }
    #[inline(always)]
    unsafe fn load(_: *const u8, q: *const u8) -> Self {
        // SAFETY: the caller's promise.
        Q(unsafe { V::load(q) })
    }
    #[inline(always)]
    unsafe fn save(self, _: *mut u8, q: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { self.0.store(q) }
    }
}

impl<V: Lanes> Sum<V> for Pq<V> {
    #[inline(always)]
    fn first(unit: V) -> Self {
        Pq(P::first(unit), Q::first(unit))
    }
    #[inline(always)]
    fn next(self, unit: V) -> Self {
        Pq(self.0.next(unit), self.1.next(unit))
    }
    #[inline(always)]
    unsafe fn load(p: *const u8, q: *const u8) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Pq(P::load(p, q), Q::load(p, q)) }
    }
    #[inline(always)]
    unsafe fn save(self, p: *mut u8, q: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            self.0.save(p, q);
            self.1.save(p, q);
        }
    }
}

impl<V: Lanes> Pq<V> {
    #[inline(always)]
    fn plain(self) -> (V, V) {
        (self.0.0, self.1.0.guise())
    }
}

/// What to do with the sums.
pub(super) trait Goal: Copy {
    /// Which sums it needs.
    type Sum<V: Lanes>: Sum<V>;
    /// What it keeps in registers during the walk: factors, or differences found so far.
    type Kept<V: Lanes>: Copy;
    /// Whether it writes past the caches.
    const STREAMS: bool = false;
    /// Up to so many units are read side by side, without groups; at most 8.
    const TOGETHER: usize = 6;

    /// What it keeps, before the first place.
    ///
    /// # Safety
    /// The CPU must have the instruction set of `V`.
    unsafe fn start<V: Lanes>(self) -> Self::Kept<V>;

    /// Uses the sum at place `at`.
    ///
    /// # Safety
    /// The goal's pointers are good for `at + V::BYTES` bytes, and nobody else uses those bytes;
    /// streams go to multiples of 64.
    unsafe fn put<V: Lanes>(self, kept: &mut Self::Kept<V>, at: usize, sum: Self::Sum<V>);

    /// The answer so far.
    #[inline(always)]
    fn verdict<V: Lanes>(_: Self::Kept<V>) -> Verdict {
        Verdict::GOOD
    }
}

/// P to memory.
#[derive(Clone, Copy)]
pub(super) struct WriteP<const STREAM: bool> {
    pub(super) p: *mut u8,
}

impl<const STREAM: bool> Goal for WriteP<STREAM> {
    type Sum<V: Lanes> = P<V>;
    type Kept<V: Lanes> = ();
    const STREAMS: bool = STREAM;
    const TOGETHER: usize = 8;

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) {}
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, _: &mut (), at: usize, sum: P<V>) {
        // SAFETY: the caller's promise.
        unsafe { write::<V, STREAM>(sum.0, self.p.add(at)) }
    }
}

/// Q to memory.
#[derive(Clone, Copy)]
pub(super) struct WriteQ {
    pub(super) q: *mut u8,
}

impl Goal for WriteQ {
    type Sum<V: Lanes> = Q<V>;
    type Kept<V: Lanes> = ();

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) {}
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, _: &mut (), at: usize, sum: Q<V>) {
        // SAFETY: the caller's promise.
        unsafe { sum.0.guise().store(self.q.add(at)) }
    }
}

/// P and Q to memory.
#[derive(Clone, Copy)]
pub(super) struct WritePq<const STREAM: bool> {
    pub(super) p: *mut u8,
    pub(super) q: *mut u8,
}

impl<const STREAM: bool> Goal for WritePq<STREAM> {
    type Sum<V: Lanes> = Pq<V>;
    type Kept<V: Lanes> = ();
    const STREAMS: bool = STREAM;
    /// Streams take no ways of L1.
    const TOGETHER: usize = if STREAM { 8 } else { 6 };

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) {}
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, _: &mut (), at: usize, sum: Pq<V>) {
        let (p, q) = sum.plain();
        // SAFETY: the caller's promise.
        unsafe {
            write::<V, STREAM>(p, self.p.add(at));
            write::<V, STREAM>(q, self.q.add(at));
        }
    }
}

/// Compare P with memory.
#[derive(Clone, Copy)]
pub(super) struct CheckP {
    pub(super) p: *const u8,
}

impl Goal for CheckP {
    type Sum<V: Lanes> = P<V>;
    /// All differences so far.
    type Kept<V: Lanes> = V;
    const TOGETHER: usize = 8;

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) -> V {
        // SAFETY: the caller's promise.
        unsafe { V::zero() }
    }
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, differences: &mut V, at: usize, sum: P<V>) {
        // SAFETY: the caller's promise.
        let p = unsafe { V::load(self.p.add(at)) };
        *differences = differences.or(p.xor(sum.0));
    }
    #[inline(always)]
    fn verdict<V: Lanes>(differences: V) -> Verdict {
        let good = differences.is_zero();
        Verdict { p: good, q: good }
    }
}

/// Compare P and Q with memory.
#[derive(Clone, Copy)]
pub(super) struct CheckPq {
    pub(super) p: *const u8,
    pub(super) q: *const u8,
}

impl Goal for CheckPq {
    type Sum<V: Lanes> = Pq<V>;
    /// All differences so far, of P and of Q.
    type Kept<V: Lanes> = (V, V);

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) -> (V, V) {
        // SAFETY: the caller's promise.
        unsafe { (V::zero(), V::zero()) }
    }
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, differences: &mut (V, V), at: usize, sum: Pq<V>) {
        // SAFETY: the caller's promise.
        let (p, q) = unsafe { rest(sum, self.p.add(at), self.q.add(at)) };
        *differences = (differences.0.or(p), differences.1.or(q));
    }
    #[inline(always)]
    fn verdict<V: Lanes>((p, q): (V, V)) -> Verdict {
        Verdict { p: p.is_zero(), q: q.is_zero() }
    }
}

/// One lost unit from Q.
#[derive(Clone, Copy)]
pub(super) struct SolveOne {
    pub(super) x: usize,
    pub(super) q: *const u8,
    pub(super) out: *mut u8,
}

impl Goal for SolveOne {
    type Sum<V: Lanes> = Q<V>;
    type Kept<V: Lanes> = V::Factor;

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) -> V::Factor {
        // SAFETY: the caller's promise.
        unsafe { V::factor(gf256::power(-(self.x as i32))) }
    }
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, factor: &mut V::Factor, at: usize, sum: Q<V>) {
        // SAFETY: the caller's promise.
        unsafe {
            let q = V::load(self.q.add(at)).xor(sum.0.guise());
            q.times(*factor).store(self.out.add(at));
        }
    }
}

/// One lost unit from Q, and P which is lost too.
#[derive(Clone, Copy)]
pub(super) struct SolveOneAndP {
    pub(super) x: usize,
    pub(super) q: *const u8,
    pub(super) out: *mut u8,
    pub(super) p: *mut u8,
}

impl Goal for SolveOneAndP {
    type Sum<V: Lanes> = Pq<V>;
    type Kept<V: Lanes> = V::Factor;

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) -> V::Factor {
        // SAFETY: the caller's promise.
        unsafe { V::factor(gf256::power(-(self.x as i32))) }
    }
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, factor: &mut V::Factor, at: usize, sum: Pq<V>) {
        let (p, q) = sum.plain();
        // SAFETY: the caller's promise.
        unsafe {
            let unit = V::load(self.q.add(at)).xor(q).times(*factor);
            unit.store(self.out.add(at));
            p.xor(unit).store(self.p.add(at));
        }
    }
}

/// Two lost units from P and Q.
#[derive(Clone, Copy)]
pub(super) struct SolveTwo {
    pub(super) lost: [usize; 2],
    pub(super) p: *const u8,
    pub(super) q: *const u8,
    pub(super) out: [*mut u8; 2],
}

impl Goal for SolveTwo {
    type Sum<V: Lanes> = Pq<V>;
    /// The factors of P and of Q.
    type Kept<V: Lanes> = (V::Factor, V::Factor);

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) -> Self::Kept<V> {
        let (of_p, of_q) = gf256::two_lost(self.lost[0], self.lost[1]);
        // SAFETY: the caller's promise.
        unsafe { (V::factor(of_p), V::factor(of_q)) }
    }
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, factors: &mut Self::Kept<V>, at: usize, sum: Pq<V>) {
        let (of_p, of_q) = *factors;
        // SAFETY: the caller's promise.
        unsafe {
            let (p, q) = rest(sum, self.p.add(at), self.q.add(at));
            let x = p.times(of_p).xor(q.times(of_q));
            x.store(self.out[0].add(at));
            p.xor(x).store(self.out[1].add(at));
        }
    }
}

/// Adds the sum to a parity in memory, times a factor: the update of Q, and with
/// `p` the update of P in the same pass.
#[derive(Clone, Copy)]
pub(super) struct Update<const WITH_P: bool> {
    pub(super) factor: u8,
    pub(super) q: *mut u8,
    pub(super) p: *mut u8,
}

impl<const WITH_P: bool> Goal for Update<WITH_P> {
    type Sum<V: Lanes> = P<V>;
    type Kept<V: Lanes> = V::Factor;

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) -> V::Factor {
        // SAFETY: the caller's promise.
        unsafe { V::factor(self.factor) }
    }
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, factor: &mut V::Factor, at: usize, sum: P<V>) {
        // SAFETY: the caller's promise.
        unsafe {
            if WITH_P {
                V::load(self.p.add(at)).xor(sum.0).store(self.p.add(at));
            }
            let q = V::load(self.q.add(at)).xor(sum.0.times(*factor));
            q.store(self.q.add(at));
        }
    }
}

/// Adds the sum to P in memory.
#[derive(Clone, Copy)]
pub(super) struct UpdateP {
    pub(super) p: *mut u8,
}

impl Goal for UpdateP {
    type Sum<V: Lanes> = P<V>;
    type Kept<V: Lanes> = ();

    #[inline(always)]
    unsafe fn start<V: Lanes>(self) {}
    #[inline(always)]
    unsafe fn put<V: Lanes>(self, _: &mut (), at: usize, sum: P<V>) {
        // SAFETY: the caller's promise.
        unsafe { V::load(self.p.add(at)).xor(sum.0).store(self.p.add(at)) }
    }
}

/// What the sums leave of the stored parity: the lost units alone, or zero.
///
/// # Safety
/// `V::BYTES` bytes at each pointer are readable.
#[inline(always)]
unsafe fn rest<V: Lanes>(sum: Pq<V>, p: *const u8, q: *const u8) -> (V, V) {
    let (p_sum, q_sum) = sum.plain();
    // SAFETY: the caller's promise.
    unsafe { (V::load(p).xor(p_sum), V::load(q).xor(q_sum)) }
}

/// # Safety
/// `V::BYTES` bytes are writable; for a stream at a multiple of 64.
#[inline(always)]
unsafe fn write<V: Lanes, const STREAM: bool>(value: V, to: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { if STREAM { value.stream(to) } else { value.store(to) } }
}
