//! Memory with stripes in it: a ring of one for the caches, of many for DRAM.

use std::ffi::c_void;

/// Memory is taken and aligned in pieces of this: the large page of x86-64 and aarch64.
const HUGE_PAGE: usize = 2 << 20;

/// Size and place of the units of a stripe.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Bytes of a unit.
    pub chunk: usize,
    /// Data units; two more are for P and Q.
    pub data: usize,
    /// Bytes between units.
    pub gap: usize,
}

impl Shape {
    fn stride(self) -> usize {
        self.chunk + self.gap
    }

    /// Bytes of memory for a stripe.
    pub fn bytes(self) -> usize {
        self.stride() * (self.data + 2)
    }

    /// Bytes of data in a stripe.
    pub fn data_bytes(self) -> usize {
        self.chunk * self.data
    }
}

/// Memory in large pages, kept from one ring to the next: getting it is slow.
pub struct Memory {
    bytes: Vec<u8>,
}

impl Memory {
    /// None yet.
    pub fn new() -> Memory {
        Memory { bytes: Vec::new() }
    }

    /// At least `len` bytes on a large page, filled with noise.
    fn at_least(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len + HUGE_PAGE {
            self.bytes = Vec::with_capacity(len + HUGE_PAGE);
            let start = self.bytes.as_mut_ptr();
            // SAFETY: advice on our own memory, rounded inwards to whole pages; it may fail.
            unsafe {
                let skip = start.align_offset(HUGE_PAGE);
                libc::madvise(start.add(skip).cast(), len, libc::MADV_HUGEPAGE);
            }
            let mut state = 0x9e37_79b9_7f4a_7c15_u64;
            self.bytes.extend((0..len + HUGE_PAGE).map(|_| {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                (state >> 56) as u8
            }));
        }
        let skip = self.bytes.as_ptr().align_offset(HUGE_PAGE);
        &mut self.bytes[skip..skip + len]
    }
}

/// A stripe in the forms the candidates want it.
pub struct Stripe<'a> {
    /// For P and Q.
    pub data: Vec<Option<&'a [u8]>>,
    /// For XOR.
    pub sources: Vec<&'a [u8]>,
    /// P.
    pub p: &'a mut [u8],
    /// Q.
    pub q: &'a mut [u8],
    /// For C: data, then P, then Q.
    pub pointers: Vec<*mut c_void>,
}

/// Stripes, each of them in memory of its own.
pub struct Ring<'a> {
    /// The stripes; at least one.
    pub stripes: Vec<Stripe<'a>>,
    /// Their shape.
    pub shape: Shape,
}

impl<'a> Ring<'a> {
    /// Cuts memory into stripes.
    pub fn new(shape: Shape, stripes: usize, memory: &'a mut Memory) -> Ring<'a> {
        let memory = memory.at_least(shape.bytes() * stripes);
        let stripes = memory.chunks_exact_mut(shape.bytes());
        Ring { shape, stripes: stripes.map(|memory| cut(shape, memory)).collect() }
    }
}

fn cut(shape: Shape, memory: &mut [u8]) -> Stripe<'_> {
    let (data, parity) = memory.split_at_mut(shape.stride() * shape.data);
    let (p, q) = parity.split_at_mut(shape.stride());
    let (p, q) = (&mut p[..shape.chunk], &mut q[..shape.chunk]);
    let sources: Vec<&[u8]> =
        data.chunks_exact(shape.stride()).map(|unit| &unit[..shape.chunk]).collect();
    // ISA-L takes all units as mutable pointers; it only reads the first ones.
    let mut pointers: Vec<*mut c_void> =
        sources.iter().map(|unit| unit.as_ptr().cast_mut().cast()).collect();
    pointers.extend([p.as_mut_ptr().cast(), q.as_mut_ptr().cast::<c_void>()]);
    Stripe { data: sources.iter().map(|unit| Some(*unit)).collect(), sources, p, q, pointers }
}
