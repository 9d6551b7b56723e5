//! Plain Rust the compiler turns into vector code: SSE2 on x86-64, NEON on aarch64, and whatever
//! vectors other machines have. There is no NEON kernel by hand: none could be run by its tests.

use super::gf256;
use super::kernel::{Job, Kernel, Verdict};
use super::lanes::{Lanes, Task};
use super::walk;

/// The row of this kernel.
pub(super) const KERNEL: Kernel = Kernel { name: "portable", usable: || true, run };

fn run(job: Job<'_>) -> Verdict {
    // SAFETY: `Block` demands no instruction set.
    unsafe { walk::run::<Block<64>, Block<128>>(job) }
}

/// So many bytes, worked on by loops without branches, which compilers know how to vectorise.
#[derive(Clone, Copy)]
struct Block<const N: usize>([u8; N]);

impl<const N: usize> Lanes for Block<N> {
    const BYTES: usize = N;
    /// For each bit of the factor, 0xff where it is set.
    type Factor = [u8; 8];

    /// Not inlined: one function for each goal keeps the optimiser at its best.
    #[inline(never)]
    unsafe fn with<T: Task>(task: T) -> Verdict {
        // SAFETY: no instruction set is demanded; the rest is the caller's promise.
        unsafe { task.run::<Self>() }
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        Block([0; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: readable, says the caller; an array of bytes has no alignment.
        Block(unsafe { from.cast::<[u8; N]>().read() })
    }
    #[inline(always)]
    unsafe fn factor(factor: u8) -> Self::Factor {
        std::array::from_fn(|bit| if factor >> bit & 1 == 1 { 0xff } else { 0 })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: writable, says the caller; an array of bytes has no alignment.
        unsafe { to.cast::<[u8; N]>().write(self.0) }
    }
    #[inline(always)]
    fn xor(mut self, other: Self) -> Self {
        for i in 0..N {
            self.0[i] ^= other.0[i];
        }
        self
    }
    #[inline(always)]
    fn twice(mut self) -> Self {
        for i in 0..N {
            let overflow = ((self.0[i] as i8) >> 7) as u8;
            self.0[i] = (self.0[i] << 1) ^ (overflow & gf256::POLYNOMIAL);
        }
        self
    }
    #[inline(always)]
    fn times(self, factor: Self::Factor) -> Self {
        let mut product = Block([0; N]);
        let mut power = self;
        for mask in factor {
            for i in 0..N {
                product.0[i] ^= power.0[i] & mask;
            }
            power = power.twice();
        }
        product
    }
    #[inline(always)]
    fn or(mut self, other: Self) -> Self {
        for i in 0..N {
            self.0[i] |= other.0[i];
        }
        self
    }
    #[inline(always)]
    fn is_zero(self) -> bool {
        self.0.iter().fold(0, |any, byte| any | byte) == 0
    }
}
