//! AVX2: x86-64 CPUs since 2013.
//!
//! Doubling in five operations instead of six: `vpshufb` with 0x1d in every place gives 0 where
//! bit 7 is set and 0x1d elsewhere, the opposite of what is wanted: `2q + 0x1d`. So q travels with
//! `GUISE` added, the fixpoint `c = 2c + 0x1d`, and the 0x1d cancels.

use core::arch::x86_64::*;

use super::gf256;
use super::kernel::{Job, Kernel, Verdict};
use super::lanes::{Lanes, Task};
use super::walk;

/// The row of this kernel.
pub(super) const KERNEL: Kernel =
    Kernel { name: "avx2", usable: || is_x86_feature_detected!("avx2"), run };

/// The solution of `c = 2c + 0x1d`, which is `3c = 0x1d`.
const GUISE: u8 = gf256::mul(gf256::POLYNOMIAL, gf256::inverse(3));

fn run(job: Job<'_>) -> Verdict {
    debug_assert!((KERNEL.usable)());
    // SAFETY: a kernel runs only after its `usable` said that the CPU has the instructions.
    unsafe { walk::run::<Avx2<2>, Avx2<4>>(job) }
}

/// So many registers of 32 bytes.
#[derive(Clone, Copy)]
struct Avx2<const N: usize>([__m256i; N]);

/// Products with the low and with the high half of a byte.
#[derive(Clone, Copy)]
struct Factor {
    low: __m256i,
    high: __m256i,
}

impl<const N: usize> Lanes for Avx2<N> {
    const BYTES: usize = 32 * N;
    type Factor = Factor;

    #[inline(always)]
    unsafe fn with<T: Task>(task: T) -> Verdict {
        #[inline(never)]
        #[target_feature(enable = "avx2")]
        unsafe fn enabled<const N: usize, T: Task>(task: T) -> Verdict {
            // SAFETY: the caller's promise.
            unsafe { task.run::<Avx2<N>>() }
        }
        // SAFETY: the caller's promise.
        unsafe { enabled::<N, T>(task) }
    }
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the CPU has AVX2, says the caller.
        Avx2([unsafe { _mm256_setzero_si256() }; N])
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: the CPU has AVX2 and `BYTES` bytes are readable, says the caller.
        unsafe {
            let mut value = Self::zero();
            for i in 0..N {
                value.0[i] = _mm256_loadu_si256(from.add(32 * i).cast());
            }
            value
        }
    }
    #[inline(always)]
    unsafe fn factor(factor: u8) -> Factor {
        let table = gf256::NIBBLES[usize::from(factor)].as_ptr();
        // SAFETY: the CPU has AVX2, says the caller; the table has 32 bytes.
        unsafe {
            Factor {
                low: _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast())),
                high: _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast())),
            }
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for i in 0..N {
            // SAFETY: `BYTES` bytes are writable, says the caller.
            unsafe { _mm256_storeu_si256(to.add(32 * i).cast(), self.0[i]) }
        }
    }
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        for i in 0..N {
            // SAFETY: `BYTES` bytes are writable and aligned, says the caller.
            unsafe { _mm256_stream_si256(to.add(32 * i).cast(), self.0[i]) }
        }
    }
    #[inline(always)]
    fn fence() {
        // SAFETY: SSE is part of x86-64.
        unsafe { _mm_sfence() }
    }
    #[inline(always)]
    fn xor(mut self, other: Self) -> Self {
        for i in 0..N {
            // SAFETY: a value proves AVX2.
            self.0[i] = unsafe { _mm256_xor_si256(self.0[i], other.0[i]) };
        }
        self
    }
    #[inline(always)]
    fn guise(mut self) -> Self {
        for i in 0..N {
            // SAFETY: a value proves AVX2.
            self.0[i] = unsafe { _mm256_xor_si256(self.0[i], _mm256_set1_epi8(GUISE as i8)) };
        }
        self
    }
    #[inline(always)]
    fn twice(mut self) -> Self {
        for i in 0..N {
            let q = self.0[i];
            // SAFETY: a value proves AVX2.
            self.0[i] = unsafe {
                let polynomial = _mm256_set1_epi8(gf256::POLYNOMIAL as i8);
                _mm256_xor_si256(_mm256_add_epi8(q, q), _mm256_shuffle_epi8(polynomial, q))
            };
        }
        self
    }
    #[inline(always)]
    fn times(mut self, factor: Factor) -> Self {
        for i in 0..N {
            let x = self.0[i];
            // SAFETY: a value proves AVX2.
            self.0[i] = unsafe {
                let nibble = _mm256_set1_epi8(0x0f);
                let low = _mm256_and_si256(x, nibble);
                let high = _mm256_and_si256(_mm256_srli_epi64::<4>(x), nibble);
                _mm256_xor_si256(
                    _mm256_shuffle_epi8(factor.low, low),
                    _mm256_shuffle_epi8(factor.high, high),
                )
            };
        }
        self
    }
    #[inline(always)]
    fn or(mut self, other: Self) -> Self {
        for i in 0..N {
            // SAFETY: a value proves AVX2.
            self.0[i] = unsafe { _mm256_or_si256(self.0[i], other.0[i]) };
        }
        self
    }
    #[inline(always)]
    fn is_zero(self) -> bool {
        // SAFETY: a value proves AVX2.
        self.0.iter().all(|part| unsafe { _mm256_testz_si256(*part, *part) } == 1)
    }
}
