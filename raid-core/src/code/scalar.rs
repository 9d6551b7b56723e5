//! The reference: the formulas of [`gf256`](super::gf256), one byte at a time. Slow, obvious, and
//! sharing no code with the fast kernels: the oracle of their tests.

use super::gf256::{inverse, mul, power};
use super::kernel::{Job, Kernel, Verdict};

/// The row of this kernel.
pub(super) const KERNEL: Kernel = Kernel { name: "scalar", usable: || true, run };

type Data<'a> = [Option<&'a [u8]>];

fn run(job: Job<'_>) -> Verdict {
    match job {
        Job::Xor { sources, out, .. } => {
            fill(out, |i| sum(sources, i));
        }
        Job::CheckXor { sources, parity } => {
            let p = parity.iter().enumerate().all(|(i, byte)| sum(sources, i) == *byte);
            return Verdict { p, q: true };
        }
        Job::Q { data, q } => fill(q, |i| q_of(data, &[], i)),
        Job::Pq { data, p, q, .. } => {
            fill(p, |i| p_of(data, &[], i));
            fill(q, |i| q_of(data, &[], i));
        }
        Job::CheckPq { data, p, q } => {
            return Verdict {
                p: p.iter().enumerate().all(|(i, byte)| p_of(data, &[], i) == *byte),
                q: q.iter().enumerate().all(|(i, byte)| q_of(data, &[], i) == *byte),
            };
        }
        Job::One { data, x, q, out } => fill(out, |i| one(data, x, q, i)),
        Job::OneAndP { data, x, q, out, p } => {
            fill(out, |i| one(data, x, q, i));
            fill(p, |i| p_of(data, &[x], i) ^ out[i]);
        }
        Job::Two { data, lost, p, q, out: [out_x, out_y] } => {
            fill(out_x, |i| two(data, lost, p, q, i));
            fill(out_y, |i| p[i] ^ p_of(data, &lost, i) ^ out_x[i]);
        }
        Job::UpdateP { old, new, p } => fill_with(p, |i, was| was ^ old[i] ^ new[i]),
        Job::UpdateQ { old, new, factor, q } => {
            fill_with(q, |i, was| was ^ mul(factor, old[i] ^ new[i]));
        }
        Job::UpdatePq { old, new, factor, p, q } => {
            fill_with(p, |i, was| was ^ old[i] ^ new[i]);
            fill_with(q, |i, was| was ^ mul(factor, old[i] ^ new[i]));
        }
    }
    Verdict::GOOD
}

fn sum(sources: &[&[u8]], i: usize) -> u8 {
    sources.iter().fold(0, |sum, source| sum ^ source[i])
}

/// Byte `i` of the unit of a power; zero for holes and lost units.
fn byte(data: &Data, lost: &[usize], power: usize, i: usize) -> u8 {
    if lost.contains(&power) { 0 } else { data[power].map_or(0, |unit| unit[i]) }
}

fn p_of(data: &Data, lost: &[usize], i: usize) -> u8 {
    (0..data.len()).fold(0, |sum, x| sum ^ byte(data, lost, x, i))
}

fn q_of(data: &Data, lost: &[usize], i: usize) -> u8 {
    (0..data.len()).fold(0, |sum, x| sum ^ mul(power(x as i32), byte(data, lost, x, i)))
}

fn one(data: &Data, x: usize, q: &[u8], i: usize) -> u8 {
    mul(inverse(power(x as i32)), q[i] ^ q_of(data, &[x], i))
}

/// `D_x` from `(g^x + g^y) D_x = Q' + g^y P'`: the step before the closed form.
fn two(data: &Data, lost: [usize; 2], p: &[u8], q: &[u8], i: usize) -> u8 {
    let [gx, gy] = lost.map(|power_of_lost| power(power_of_lost as i32));
    let p = p[i] ^ p_of(data, &lost, i);
    let q = q[i] ^ q_of(data, &lost, i);
    mul(inverse(gx ^ gy), q ^ mul(gy, p))
}

fn fill(out: &mut [u8], mut value: impl FnMut(usize) -> u8) {
    fill_with(out, |i, _| value(i));
}

fn fill_with(out: &mut [u8], mut value: impl FnMut(usize, u8) -> u8) {
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = value(i, *byte);
    }
}
