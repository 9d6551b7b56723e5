//! A kernel: one implementation of the parity arithmetic, and the checks in front of all of them.
//!
//! Here the arguments are checked, so that kernels may rely on them: equal lengths, at most
//! [`POWERS`] units, lost units that exist and differ. A breach is a bug of the caller: it panics.

use super::gf256;

/// Units a P+Q stripe can have: powers 0 to 254, the order of the generator.
pub const POWERS: usize = gf256::ORDER;

/// Where results go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Store {
    /// Into the caches: right whenever the CPU reads them soon, or the stripe fits the L2 cache.
    Cached,
    /// Past the caches, for results only a device will read. Falls back to cached stores where
    /// a result does not start on a 64-byte boundary.
    Streaming,
}

impl Store {
    /// The right one for results that only go to a device, by the bytes of the whole stripe,
    /// data and parity, when the data is in the caches. If it is not, `Streaming` always is.
    ///
    /// Measured by `raid-bench parity`: while a stripe fits the cache next to the core, streaming
    /// is up to four times slower; beyond that it saves reading what is about to be overwritten.
    pub fn for_stripe(bytes: usize) -> Store {
        /// The L2 cache of most server cores; larger ones only move the point where both tie.
        const CACHED_MAX: usize = 512 << 10;
        if bytes <= CACHED_MAX { Store::Cached } else { Store::Streaming }
    }
}

/// One thing a kernel can do; the arguments are already checked.
pub(super) enum Job<'a> {
    /// `out` = sum of the sources.
    Xor { sources: &'a [&'a [u8]], out: &'a mut [u8], store: Store },
    /// Is `parity` the sum of the sources? Answered in [`Verdict::p`].
    CheckXor { sources: &'a [&'a [u8]], parity: &'a [u8] },
    /// Q of the data.
    Q { data: &'a [Option<&'a [u8]>], q: &'a mut [u8] },
    /// P and Q of the data.
    Pq { data: &'a [Option<&'a [u8]>], p: &'a mut [u8], q: &'a mut [u8], store: Store },
    /// Are `p` and `q` those of the data?
    CheckPq { data: &'a [Option<&'a [u8]>], p: &'a [u8], q: &'a [u8] },
    /// Unit `x` from Q and the other data.
    One { data: &'a [Option<&'a [u8]>], x: usize, q: &'a [u8], out: &'a mut [u8] },
    /// Unit `x` and P from Q and the other data.
    OneAndP {
        data: &'a [Option<&'a [u8]>],
        x: usize,
        q: &'a [u8],
        out: &'a mut [u8],
        p: &'a mut [u8],
    },
    /// Units `x` and `y` from P, Q and the other data.
    Two {
        data: &'a [Option<&'a [u8]>],
        lost: [usize; 2],
        p: &'a [u8],
        q: &'a [u8],
        out: [&'a mut [u8]; 2],
    },
    /// Add `old + new` to P.
    UpdateP { old: &'a [u8], new: &'a [u8], p: &'a mut [u8] },
    /// Add `factor (old + new)` to Q.
    UpdateQ { old: &'a [u8], new: &'a [u8], factor: u8, q: &'a mut [u8] },
    /// Both of the above in one pass.
    UpdatePq { old: &'a [u8], new: &'a [u8], factor: u8, p: &'a mut [u8], q: &'a mut [u8] },
}

/// The answer of the checking jobs; the others answer yes to both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Verdict {
    pub(super) p: bool,
    pub(super) q: bool,
}

impl Verdict {
    pub(super) const GOOD: Verdict = Verdict { p: true, q: true };
}

/// One implementation of the parity arithmetic; get one from `KERNELS`, `best` or `by_name`.
///
/// All kernels give the same bytes. Slices of one call have one length, any, at any address.
/// In `data` the index is the power of the unit, and `None` is a unit of zeros.
pub struct Kernel {
    /// What it is called: the instruction set.
    pub name: &'static str,
    /// Whether this CPU has the instructions.
    pub(super) usable: fn() -> bool,
    /// Does a job. Only called after `usable` said yes.
    pub(super) run: fn(Job<'_>) -> Verdict,
}

impl Kernel {
    /// `out` = XOR of all sources: P of a RAID 4, 5 or 6, or a unit lost from one.
    pub fn xor(&self, store: Store, sources: &[&[u8]], out: &mut [u8]) {
        check_sources(sources, out.len());
        (self.run)(Job::Xor { sources, out, store });
    }

    /// Whether `parity` is the XOR of all sources.
    pub fn check_p(&self, sources: &[&[u8]], parity: &[u8]) -> bool {
        check_sources(sources, parity.len());
        (self.run)(Job::CheckXor { sources, parity }).p
    }

    /// P and Q of the data.
    pub fn pq(&self, store: Store, data: &[Option<&[u8]>], p: &mut [u8], q: &mut [u8]) {
        check_data(data, &[], q.len());
        check_len("P", p.len(), q.len());
        (self.run)(Job::Pq { data, p, q, store });
    }

    /// Q of the data.
    pub fn q(&self, data: &[Option<&[u8]>], q: &mut [u8]) {
        check_data(data, &[], q.len());
        (self.run)(Job::Q { data, q });
    }

    /// Whether `p` and whether `q` belong to the data.
    pub fn check_pq(&self, data: &[Option<&[u8]>], p: &[u8], q: &[u8]) -> (bool, bool) {
        check_data(data, &[], q.len());
        check_len("P", p.len(), q.len());
        let verdict = (self.run)(Job::CheckPq { data, p, q });
        (verdict.p, verdict.q)
    }

    /// Makes up for replacing `old` by `new` in P, whichever unit it was.
    pub fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]) {
        check_len("old data", old.len(), p.len());
        check_len("new data", new.len(), p.len());
        (self.run)(Job::UpdateP { old, new, p });
    }

    /// Makes up for replacing `old` by `new` in Q, for the unit of the given power.
    pub fn update_q(&self, old: &[u8], new: &[u8], power: u8, q: &mut [u8]) {
        check_len("old data", old.len(), q.len());
        check_len("new data", new.len(), q.len());
        (self.run)(Job::UpdateQ { old, new, factor: check_power(power), q });
    }

    /// Makes up for replacing `old` by `new` in P and Q, for the unit of the given power.
    pub fn update_pq(&self, old: &[u8], new: &[u8], power: u8, p: &mut [u8], q: &mut [u8]) {
        check_len("old data", old.len(), q.len());
        check_len("new data", new.len(), q.len());
        check_len("P", p.len(), q.len());
        (self.run)(Job::UpdatePq { old, new, factor: check_power(power), p, q });
    }

    /// Unit `x` from Q and the other data; P is not needed. `data[x]` is not looked at.
    pub fn rec_data_q(&self, data: &[Option<&[u8]>], x: usize, q: &[u8], out: &mut [u8]) {
        check_data(data, &[x], q.len());
        check_len("the lost unit", out.len(), q.len());
        (self.run)(Job::One { data, x, q, out });
    }

    /// Unit `x` and P, both lost, from Q and the other data. `data[x]` is not looked at.
    pub fn rec_data_p(
        &self,
        data: &[Option<&[u8]>],
        x: usize,
        q: &[u8],
        out: &mut [u8],
        p: &mut [u8],
    ) {
        check_data(data, &[x], q.len());
        check_len("the lost unit", out.len(), q.len());
        check_len("P", p.len(), q.len());
        (self.run)(Job::OneAndP { data, x, q, out, p });
    }

    /// Units `x` and `y` from P, Q and the other data. `data[x]` and `data[y]` are not looked at.
    #[expect(clippy::too_many_arguments, reason = "two lost units, two parities, as in the paper")]
    pub fn rec_two(
        &self,
        data: &[Option<&[u8]>],
        x: usize,
        y: usize,
        p: &[u8],
        q: &[u8],
        out_x: &mut [u8],
        out_y: &mut [u8],
    ) {
        assert_ne!(x, y, "two lost units must differ");
        check_data(data, &[x, y], q.len());
        check_len("P", p.len(), q.len());
        check_len("the first lost unit", out_x.len(), q.len());
        check_len("the second lost unit", out_y.len(), q.len());
        (self.run)(Job::Two { data, lost: [x, y], p, q, out: [out_x, out_y] });
    }
}

fn check_sources(sources: &[&[u8]], len: usize) {
    for source in sources {
        check_len("a source", source.len(), len);
    }
}

fn check_data(data: &[Option<&[u8]>], lost: &[usize], len: usize) {
    assert!(data.len() <= POWERS, "{} data units, Q can tell apart {POWERS}", data.len());
    for x in lost {
        assert!(*x < data.len(), "lost unit {x} of {} data units", data.len());
    }
    for (power, unit) in data.iter().enumerate() {
        if let Some(unit) = unit
            && !lost.contains(&power)
        {
            check_len("a data unit", unit.len(), len);
        }
    }
}

fn check_len(what: &str, found: usize, expected: usize) {
    assert_eq!(found, expected, "length of {what} differs from that of the parity");
}

fn check_power(power: u8) -> u8 {
    assert!(usize::from(power) < POWERS, "power {power}, Q can tell apart {POWERS} units");
    gf256::EXP[usize::from(power)]
}
