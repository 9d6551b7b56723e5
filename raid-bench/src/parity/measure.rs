//! Timing on a machine that others use too.
//!
//! * The candidates take turns, in an order that rotates, on the same stripes.
//! * A sample is short: about 100 us on a hot stripe, half a millisecond in DRAM.
//! * Just before and just after each sample a probe runs: P and Q of a stripe that never leaves
//!   the L1 cache. A sample counts only if both probes reached 90 % of the best probe so far:
//!   else somebody else had the core, or half of it, or its clock was low.
//! * Medians; ratios are taken within a turn, so that slow drift cancels.

use std::time::{Duration, Instant};

use raid_core::code::{Kernel, Store};

use super::Place;
use super::ring::Ring;
use super::rivals::Candidate;

/// A probe must reach this part of the best one.
const GATE: f64 = 0.9;

/// When to stop.
#[derive(Clone, Copy)]
pub struct Limits {
    /// Good samples wanted of each candidate.
    pub samples: usize,
    /// Time after which fewer must do.
    pub time: Duration,
}

/// What was measured of one candidate.
pub struct Samples {
    /// Who.
    pub name: &'static str,
    /// GB/s of data by turn; `None` where the machine was not quiet.
    pub turns: Vec<Option<f64>>,
    /// Whether too few samples were quiet, and all of them are here.
    pub noisy: bool,
}

impl Samples {
    /// The quiet samples in ascending order.
    pub fn sorted(&self) -> Vec<f64> {
        sorted(self.turns.iter().flatten().copied())
    }

    /// Our speed over another's, turn by turn, in ascending order.
    pub fn ratios(&self, other: &Samples) -> Vec<f64> {
        let pairs = self.turns.iter().zip(&other.turns);
        sorted(pairs.filter_map(|(ours, theirs)| Some((*ours)? / (*theirs)?)))
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// The value below which so much of an ascending list lies; NaN of an empty one.
pub fn quantile(ascending: &[f64], part: f64) -> f64 {
    match ascending.len() {
        0 => f64::NAN,
        len => ascending[((len - 1) as f64 * part).round() as usize],
    }
}

/// Tells whether this core is ours alone just now.
pub struct Probe {
    units: [[u8; Probe::UNIT]; 6],
    best: f64,
}

impl Probe {
    const UNIT: usize = 2048;
    /// About five microseconds.
    const REPEATS: usize = 48;

    /// Runs until it has seen a quiet moment, most likely.
    pub fn new() -> Probe {
        let mut probe = Probe { units: [[0x5a; Probe::UNIT]; 6], best: 0.0 };
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            probe.quiet_now();
        }
        probe
    }

    /// The best speed seen, in GB/s.
    pub fn quiet(&self) -> f64 {
        self.best
    }

    fn quiet_now(&mut self) -> bool {
        let [a, b, c, d, p, q] = &mut self.units;
        let data = [Some(&a[..]), Some(&b[..]), Some(&c[..]), Some(&d[..])];
        let kernel = Kernel::best();
        // Once before: to have it in L1 again.
        kernel.pq(Store::Cached, &data, p, q);
        let start = Instant::now();
        for _ in 0..Probe::REPEATS {
            kernel.pq(Store::Cached, &data, p, q);
        }
        let speed = speed(4 * Probe::UNIT * Probe::REPEATS, start.elapsed());
        self.best = self.best.max(speed);
        speed >= GATE * self.best
    }
}

/// Measures all candidates, in turns.
pub fn measure(
    candidates: &[Candidate<'_>],
    ring: &mut Ring<'_>,
    place: Place,
    limits: Limits,
    probe: &mut Probe,
) -> Vec<Samples> {
    let (aim, mut next) = match place {
        Place::Hot => (Duration::from_micros(100), 0),
        Place::Dram => (Duration::from_micros(500), 0),
    };
    let repeats: Vec<usize> =
        candidates.iter().map(|candidate| calibrate(candidate, ring, aim, &mut next)).collect();
    let mut quiet: Vec<Vec<Option<f64>>> = vec![Vec::new(); candidates.len()];
    let mut all = quiet.clone();
    let start = Instant::now();
    for turn in 0.. {
        let enough = |turns: &Vec<Option<f64>>| turns.iter().flatten().count() >= limits.samples;
        if quiet.iter().all(enough) || start.elapsed() > limits.time {
            break;
        }
        for i in (0..candidates.len()).map(|i| (i + turn) % candidates.len()) {
            let before = probe.quiet_now();
            let speed = sample(&candidates[i], ring, repeats[i], &mut next);
            let after = probe.quiet_now();
            quiet[i].push((before && after).then_some(speed));
            all[i].push(Some(speed));
        }
    }
    let finish = |(candidate, (quiet, all)): (&Candidate<'_>, (Vec<_>, Vec<_>))| {
        let noisy = quiet.iter().flatten().count() < limits.samples.min(5);
        Samples { name: candidate.name, turns: if noisy { all } else { quiet }, noisy }
    };
    candidates.iter().zip(quiet.into_iter().zip(all)).map(finish).collect()
}

/// Calls until the time aimed at is over, at least one.
fn calibrate(
    candidate: &Candidate<'_>,
    ring: &mut Ring<'_>,
    aim: Duration,
    next: &mut usize,
) -> usize {
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed() < aim {
        run(candidate, ring, next);
        calls += 1;
    }
    calls.max(1)
}

/// GB/s of data of so many calls.
fn sample(candidate: &Candidate<'_>, ring: &mut Ring<'_>, repeats: usize, next: &mut usize) -> f64 {
    if ring.stripes.len() == 1 {
        // The probe, and candidates with streaming stores, leave a hot stripe less than hot.
        run(candidate, ring, next);
        run(candidate, ring, next);
    }
    let start = Instant::now();
    for _ in 0..repeats {
        run(candidate, ring, next);
    }
    speed(ring.shape.data_bytes() * repeats, start.elapsed())
}

fn run(candidate: &Candidate<'_>, ring: &mut Ring<'_>, next: &mut usize) {
    (candidate.run)(&mut ring.stripes[*next]);
    *next += 1;
    if *next == ring.stripes.len() {
        *next = 0;
    }
}

fn speed(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64().max(1e-9) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(quantile(&values, 0.0), 1.0);
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert_eq!(quantile(&values, 1.0), 5.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn ratios_pair_only_turns_that_were_quiet_for_both() {
        let samples =
            |turns: &[Option<f64>]| Samples { name: "", turns: turns.to_vec(), noisy: false };
        let ours = samples(&[Some(8.0), None, Some(3.0), Some(9.0)]);
        let theirs = samples(&[Some(2.0), Some(1.0), Some(3.0), None]);
        assert_eq!(ours.ratios(&theirs), [1.0, 4.0]);
        assert_eq!(ours.sorted(), [3.0, 8.0, 9.0]);
    }
}
