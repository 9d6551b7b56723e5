//! A vector of bytes as one instruction set has it: all that a fast kernel must bring along.

use super::gf256;
use super::kernel::Verdict;

/// Several bytes worked on at once.
///
/// A value can only come from [`load`](Lanes::load) or [`zero`](Lanes::zero), which demand the
/// instruction set. So a value proves that the CPU has it, and the arithmetic is safe to call.
///
/// Q travels in a *guise*: XORed with a constant `c` chosen so that doubling is cheaper. It must
/// satisfy `c = 2c + d`, where `d` is what the cheap doubling adds. Without a trick `c` is 0.
pub(super) trait Lanes: Copy {
    /// Bytes in a value.
    const BYTES: usize;

    /// A factor prepared for [`times`](Lanes::times).
    type Factor: Copy;

    /// Runs a task with the instruction set switched on for the compiler.
    ///
    /// # Safety
    /// The CPU must have the instruction set.
    unsafe fn with<T: Task>(task: T) -> Verdict;

    /// All bytes zero.
    ///
    /// # Safety
    /// The CPU must have the instruction set.
    unsafe fn zero() -> Self;

    /// Reads `BYTES` bytes at any address.
    ///
    /// # Safety
    /// The CPU must have the instruction set, and the bytes must be readable.
    unsafe fn load(from: *const u8) -> Self;

    /// Prepares a factor.
    ///
    /// # Safety
    /// The CPU must have the instruction set.
    unsafe fn factor(factor: u8) -> Self::Factor;

    /// Writes `BYTES` bytes at any address.
    ///
    /// # Safety
    /// The bytes must be writable.
    unsafe fn store(self, to: *mut u8);

    /// Writes `BYTES` bytes past the caches, where the instruction set can.
    ///
    /// # Safety
    /// The bytes must be writable, and `to` a multiple of 64; [`fence`](Lanes::fence) before
    /// another thread or device may look.
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: the same demands, less the alignment.
        unsafe { self.store(to) }
    }

    /// Orders the [`stream`](Lanes::stream)s of this thread before its later stores.
    fn fence() {}

    /// The sum of two values.
    fn xor(self, other: Self) -> Self;

    /// Puts a value into its guise, or takes it out of it.
    fn guise(self) -> Self {
        self
    }

    /// Twice a value: both in their guise.
    fn twice(self) -> Self;

    /// The product with a factor.
    fn times(self, factor: Self::Factor) -> Self;

    /// Both bits.
    fn or(self, other: Self) -> Self;

    /// Whether every byte is zero.
    fn is_zero(self) -> bool;
}

/// Work written once for all vectors.
pub(super) trait Task {
    /// Does it with this vector.
    ///
    /// # Safety
    /// The CPU must have the instruction set; the task's own pointers must be good.
    unsafe fn run<V: Lanes>(self) -> Verdict;
}

/// One byte at a time: the odd bytes at the end of a unit.
impl Lanes for u8 {
    const BYTES: usize = 1;
    type Factor = &'static [u8; 32];

    #[inline(always)]
    unsafe fn with<T: Task>(task: T) -> Verdict {
        // SAFETY: no instruction set is demanded; the rest is the caller's promise.
        unsafe { task.run::<u8>() }
    }
    #[inline(always)]
    unsafe fn zero() -> u8 {
        0
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> u8 {
        // SAFETY: readable, says the caller.
        unsafe { from.read() }
    }
    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        &gf256::NIBBLES[usize::from(factor)]
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: writable, says the caller.
        unsafe { to.write(self) }
    }
    #[inline(always)]
    fn xor(self, other: u8) -> u8 {
        self ^ other
    }
    #[inline(always)]
    fn twice(self) -> u8 {
        gf256::double(self)
    }
    #[inline(always)]
    fn times(self, factor: Self::Factor) -> u8 {
        factor[usize::from(self & 15)] ^ factor[16 + usize::from(self >> 4)]
    }
    #[inline(always)]
    fn or(self, other: u8) -> u8 {
        self | other
    }
    #[inline(always)]
    fn is_zero(self) -> bool {
        self == 0
    }
}
