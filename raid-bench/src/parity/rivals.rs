//! Who computes: our kernels with both kinds of stores, ISA-L if it is installed, and a loop
//! that only reads the data, as the bound set by memory.

use std::ffi::{CStr, c_int, c_void};
use std::hint::black_box;

use clap::ValueEnum;
use raid_core::code::{Kernel, Store};

use super::ring::{Ring, Stripe};

/// What is computed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Work {
    /// P and Q.
    Pq,
    /// P alone.
    Xor,
}

impl Work {
    /// For titles.
    pub fn name(self) -> &'static str {
        match self {
            Work::Pq => "pq",
            Work::Xor => "xor",
        }
    }
}

/// Names of candidates, as far as the report speaks of them.
pub const CACHED: &str = "cached";
/// Our best kernel with streaming stores.
pub const STREAMING: &str = "streaming";
/// Our portable kernel.
pub const PORTABLE: &str = "portable";
/// Intel's library.
pub const ISA_L: &str = "isa-l";
/// Only reading the data.
pub const READ: &str = "read";

/// Somebody who computes the parity of a stripe.
pub struct Candidate<'a> {
    /// What it is called in the report.
    pub name: &'static str,
    /// Does it once.
    pub run: Box<dyn Fn(&mut Stripe<'_>) + 'a>,
}

/// All candidates for a work.
pub fn candidates(work: Work, isa_l: &Option<IsaL>) -> Vec<Candidate<'_>> {
    let portable = Kernel::by_name(PORTABLE).expect("the portable kernel runs everywhere");
    let mut candidates = vec![
        Candidate { name: READ, run: Box::new(|stripe| read(&stripe.sources)) },
        ours(CACHED, work, Kernel::best(), Store::Cached),
        ours(STREAMING, work, Kernel::best(), Store::Streaming),
        ours(PORTABLE, work, portable, Store::Cached),
    ];
    if let Some(isa_l) = isa_l {
        candidates
            .push(Candidate { name: ISA_L, run: Box::new(move |stripe| isa_l.run(work, stripe)) });
    }
    candidates
}

fn ours(
    name: &'static str,
    work: Work,
    kernel: &'static Kernel,
    store: Store,
) -> Candidate<'static> {
    let run: Box<dyn Fn(&mut Stripe<'_>)> = match work {
        Work::Pq => Box::new(move |stripe| kernel.pq(store, &stripe.data, stripe.p, stripe.q)),
        Work::Xor => Box::new(move |stripe| kernel.xor(store, &stripe.sources, stripe.p)),
    };
    Candidate { name, run }
}

/// Panics unless the candidate gives the bytes of the scalar kernel on every stripe.
pub fn check(candidate: &Candidate<'_>, ring: &mut Ring<'_>, work: Work) {
    if candidate.name == READ {
        return;
    }
    let scalar = Kernel::by_name("scalar").expect("the scalar kernel runs everywhere");
    let (mut p, mut q) = (vec![0; ring.shape.chunk], vec![0; ring.shape.chunk]);
    let last = ring.stripes.len() - 1;
    for stripe in [0, last] {
        let stripe = &mut ring.stripes[stripe];
        stripe.p.fill(0);
        stripe.q.fill(0);
        (candidate.run)(stripe);
        scalar.pq(Store::Cached, &stripe.data, &mut p, &mut q);
        assert!(stripe.p == p, "P of {} is wrong: its speed would mean nothing", candidate.name);
        if work == Work::Pq {
            assert!(
                stripe.q == q,
                "Q of {} is wrong: its speed would mean nothing",
                candidate.name
            );
        }
    }
}

/// Intel's Intelligent Storage Acceleration Library, opened at run time.
pub struct IsaL {
    pq_gen: Function,
    xor_gen: Function,
}

/// Units in all, bytes of each, their addresses with the results last; 0 if it went well.
type Function = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

impl IsaL {
    /// `None` where it is not installed.
    pub fn load() -> Option<IsaL> {
        // SAFETY: opening a library runs its initialisers; those of ISA-L do nothing special.
        let library = unsafe { libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        let function = |name: &CStr| {
            // SAFETY: the library is open, and is never closed.
            let address = unsafe { libc::dlsym(library, name.as_ptr()) };
            // SAFETY: both functions of ISA-L's raid.h have this type.
            (!address.is_null())
                .then(|| unsafe { std::mem::transmute::<*mut c_void, Function>(address) })
        };
        Some(IsaL { pq_gen: function(c"pq_gen")?, xor_gen: function(c"xor_gen")? })
    }

    fn run(&self, work: Work, stripe: &mut Stripe<'_>) {
        let data = stripe.sources.len();
        let len = c_int::try_from(stripe.p.len()).expect("chunks are below 2 GiB");
        let (function, units) = match work {
            Work::Pq => (self.pq_gen, data + 2),
            Work::Xor => (self.xor_gen, data + 1),
        };
        // SAFETY: the pointers are those of the stripe's units, `len` bytes each, aligned to 32;
        // the stripe is borrowed exclusively.
        let result = unsafe { function(units as c_int, len, stripe.pointers.as_mut_ptr()) };
        assert_eq!(result, 0, "ISA-L refused {data} data units of {len} bytes");
    }
}

/// Reads all units and does next to nothing with the bytes.
fn read(units: &[&[u8]]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        unsafe { read_avx2(units) };
        return;
    }
    read_any(units);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn read_avx2(units: &[&[u8]]) {
    read_any(units);
}

#[inline(always)]
fn read_any(units: &[&[u8]]) {
    const BLOCK: usize = 256;
    let mut sum = [0_u8; BLOCK];
    for unit in units {
        for block in unit.as_chunks::<BLOCK>().0 {
            for i in 0..BLOCK {
                sum[i] ^= block[i];
            }
        }
    }
    black_box(sum);
}
