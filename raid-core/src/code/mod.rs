//! How lost units come back: P and Q of RAID 4, 5 and 6, made, updated, checked, solved.
//!
//! Read [`gf256`] for the mathematics. The bytes are those of md: `P = sum D_i` and
//! `Q = sum 2^i D_i` over GF(2^8) with polynomial 0x11d. Which data unit has which power `i` is
//! the layout's business; a power without a unit is `None` and counts as zeros.
//!
//! The arithmetic is written once and for any vector:
//!
//! ```text
//!   kernel.rs    Job: what is asked; checks the arguments
//!   walk.rs      how the units are passed over              goal.rs  what becomes of the sums
//!   lanes.rs     what a vector must be able to do
//!   portable.rs  avx2.rs                                    the vectors
//!   scalar.rs    the same jobs from the formulas, byte by byte: the oracle
//!   locate.rs    which unit is wrong
//! ```
//!
//! A new instruction set is one file with a `Lanes` (see `lanes.rs`) and a row in [`KERNELS`]; the
//! tests run every row this CPU can run.
//!
//! Slices of one call have the same length: any, also none, at any address. It refuses nothing
//! at run time: wrong lengths or powers are bugs and panic.

#[cfg(target_arch = "x86_64")]
mod avx2;
pub mod gf256;
mod goal;
mod kernel;
mod lanes;
mod locate;
mod portable;
mod scalar;
#[cfg(test)]
mod tests;
mod walk;

use std::sync::OnceLock;

pub use kernel::{Kernel, POWERS, Store};
pub use locate::{Culprit, locate};

/// All kernels, the fastest first.
pub static KERNELS: &[Kernel] = &[
    #[cfg(target_arch = "x86_64")]
    avx2::KERNEL,
    portable::KERNEL,
    scalar::KERNEL,
];

impl Kernel {
    /// The fastest kernel this CPU can run; always the same one.
    pub fn best() -> &'static Kernel {
        static BEST: OnceLock<&'static Kernel> = OnceLock::new();
        BEST.get_or_init(|| Kernel::all().next().expect("the portable kernel runs on every CPU"))
    }

    /// The kernel of that name, unless this CPU cannot run it: for tests and measurements.
    pub fn by_name(name: &str) -> Option<&'static Kernel> {
        Kernel::all().find(|kernel| kernel.name == name)
    }

    /// All kernels this CPU can run, the fastest first.
    pub fn all() -> impl Iterator<Item = &'static Kernel> {
        KERNELS.iter().filter(|kernel| (kernel.usable)())
    }
}

/// `out` = XOR of all sources: P of a RAID 4, 5 or 6, or one unit lost from it.
pub fn xor(sources: &[&[u8]], out: &mut [u8]) {
    Kernel::best().xor(Store::Cached, sources, out);
}

/// [`xor`], with the result stored as the caller says.
pub fn xor_with(store: Store, sources: &[&[u8]], out: &mut [u8]) {
    Kernel::best().xor(store, sources, out);
}

/// P and Q of the data; the index is the power.
pub fn pq(data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8]) {
    Kernel::best().pq(Store::Cached, data, p, q);
}

/// [`pq`], with the results stored as the caller says.
pub fn pq_with(store: Store, data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8]) {
    Kernel::best().pq(store, data, p, q);
}

/// Q of the data; the index is the power.
pub fn q(data: &[Option<&[u8]>], q: &mut [u8]) {
    Kernel::best().q(data, q);
}

/// Makes up for replacing `old` by `new` in P, whichever unit it was.
pub fn update_p(old: &[u8], new: &[u8], p: &mut [u8]) {
    Kernel::best().update_p(old, new, p);
}

/// Makes up for replacing `old` by `new` in Q, for the unit of the given power.
pub fn update_q(old: &[u8], new: &[u8], power: u8, q: &mut [u8]) {
    Kernel::best().update_q(old, new, power, q);
}

/// Makes up for replacing `old` by `new` in P and Q, for the unit of the given power.
pub fn update_pq(old: &[u8], new: &[u8], power: u8, p: &mut [u8], q: &mut [u8]) {
    Kernel::best().update_pq(old, new, power, p, q);
}

/// Unit `x` from Q and the other data; P is not needed. `data[x]` is not looked at.
///
/// With P at hand, [`xor`] of P and the other data does the same, faster.
pub fn rec_data_q(data: &[Option<&[u8]>], x: usize, q: &[u8], out: &mut [u8]) {
    Kernel::best().rec_data_q(data, x, q, out);
}

/// Unit `x` and P, both lost, from Q and the other data. `data[x]` is not looked at.
pub fn rec_data_p(data: &[Option<&[u8]>], x: usize, q: &[u8], out: &mut [u8], p: &mut [u8]) {
    Kernel::best().rec_data_p(data, x, q, out, p);
}

/// Units `x` and `y` from P, Q and the other data. `data[x]` and `data[y]` are not looked at.
pub fn rec_two(
    data: &[Option<&[u8]>],
    x: usize,
    y: usize,
    p: &[u8],
    q: &[u8],
    out_x: &mut [u8],
    out_y: &mut [u8],
) {
    Kernel::best().rec_two(data, x, y, p, q, out_x, out_y);
}

/// Whether `parity` is the XOR of all sources.
pub fn check_p(sources: &[&[u8]], parity: &[u8]) -> bool {
    Kernel::best().check_p(sources, parity)
}

/// Whether `p` and whether `q` belong to the data.
pub fn check_pq(data: &[Option<&[u8]>], p: &[u8], q: &[u8]) -> (bool, bool) {
    Kernel::best().check_pq(data, p, q)
}
