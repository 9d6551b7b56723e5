//! Every kernel against known bytes, against the scalar one, and against itself.

use super::*;

/// P and Q of `byte(i, j) = i * 131 + j * 17 + (j >> 8) * 7 + 5`, 512 bytes: first bytes and
/// CRC-32.
/// Other programs (ISA-L, SnapRAID, md's own functions) gave the same.
const VECTORS: &str = include_str!("vectors.txt");

/// SplitMix64.
struct Random(u64);

impl Random {
    /// A fresh seed, or the one in `RAID_SEED`; printed, so that a failure can be repeated.
    fn new(test: &str) -> Random {
        let fresh = || {
            let time = std::time::UNIX_EPOCH.elapsed().expect("a clock after 1970");
            time.as_nanos() as u64
        };
        let seed = std::env::var("RAID_SEED").ok().and_then(|text| text.parse().ok());
        let seed = seed.unwrap_or_else(fresh);
        println!("{test}: RAID_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// A slice of some length that starts anywhere, with guard bytes around it.
#[derive(Clone)]
struct Unit {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

const GUARD: u8 = 0xc3;
const MARGIN: usize = 128;

impl Unit {
    fn blank(random: &mut Random, len: usize) -> Unit {
        Unit { bytes: vec![GUARD; len + 2 * MARGIN], start: random.below(MARGIN), len }
    }

    fn random(random: &mut Random, len: usize) -> Unit {
        let mut unit = Unit::blank(random, len);
        unit.fill(random);
        unit
    }

    fn fill(&mut self, random: &mut Random) {
        // Zeros and high bits are where the field arithmetic can go wrong.
        let kind = random.below(4);
        for byte in self.get_mut() {
            *byte = match kind {
                0 => random.next() as u8 & 0x80,
                _ => random.next() as u8,
            };
        }
    }

    fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }

    fn check_guards(&self) {
        let around = self.bytes[..self.start].iter().chain(&self.bytes[self.start + self.len..]);
        assert!(around.copied().all(|byte| byte == GUARD), "written outside of the unit");
    }
}

/// Units with holes and with their parity from the scalar kernel.
struct Stripe {
    units: Vec<Option<Unit>>,
    p: Unit,
    q: Unit,
}

impl Stripe {
    fn random(random: &mut Random, n: usize, len: usize, holes: bool) -> Stripe {
        let mut unit = || {
            let hole = holes && random.chance(3);
            (!hole).then(|| Unit::random(random, len))
        };
        let units: Vec<_> = (0..n).map(|_| unit()).collect();
        let (p, q) = (Unit::blank(random, len), Unit::blank(random, len));
        let mut stripe = Stripe { units, p: p.clone(), q: q.clone() };
        let (mut p, mut q) = (p, q);
        scalar().pq(Store::Cached, &stripe.data(), p.get_mut(), q.get_mut());
        (stripe.p, stripe.q) = (p, q);
        stripe
    }

    fn data(&self) -> Vec<Option<&[u8]>> {
        self.units.iter().map(|unit| unit.as_ref().map(Unit::get)).collect()
    }

    fn sources(&self) -> Vec<&[u8]> {
        self.data().into_iter().flatten().collect()
    }

    fn unit(&self, x: usize) -> Vec<u8> {
        self.units[x].as_ref().map_or(vec![0; self.p.len], |unit| unit.get().to_vec())
    }
}

fn scalar() -> &'static Kernel {
    Kernel::by_name("scalar").expect("the scalar kernel runs everywhere")
}

fn fast() -> impl Iterator<Item = &'static Kernel> {
    Kernel::all().filter(|kernel| kernel.name != "scalar")
}

/// Lengths with every kind of end: none, odd, whole vectors, whole tiles and one more.
fn some_len(random: &mut Random) -> usize {
    const EDGES: [usize; 14] = [0, 1, 31, 63, 64, 65, 127, 128, 512, 1023, 1024, 1088, 4096, 4097];
    match random.below(3) {
        0 => EDGES[random.below(EDGES.len())],
        1 => random.below(300),
        _ => random.below(5000),
    }
}

fn some_store(random: &mut Random) -> Store {
    if random.chance(2) { Store::Cached } else { Store::Streaming }
}

/// Generation and checks of one stripe, and of the stripe with one bit wrong.
fn check_generation(kernel: &Kernel, stripe: &Stripe, random: &mut Random) {
    let (n, len) = (stripe.units.len(), stripe.p.len);
    let what = format!("{}: {n} units of {len} bytes", kernel.name);
    let data = stripe.data();
    let (mut p, mut q) = (Unit::blank(random, len), Unit::blank(random, len));

    kernel.pq(some_store(random), &data, p.get_mut(), q.get_mut());
    assert!(p.get() == stripe.p.get(), "P of {what}");
    assert!(q.get() == stripe.q.get(), "Q of {what}");

    p.get_mut().fill(1);
    q.get_mut().fill(1);
    kernel.xor(some_store(random), &stripe.sources(), p.get_mut());
    kernel.q(&data, q.get_mut());
    assert!(p.get() == stripe.p.get(), "XOR of {what}");
    assert!(q.get() == stripe.q.get(), "Q alone of {what}");
    p.check_guards();
    q.check_guards();

    assert!(kernel.check_p(&stripe.sources(), p.get()), "check of P of {what}");
    assert_eq!(kernel.check_pq(&data, p.get(), q.get()), (true, true), "check of {what}");
    if len > 0 {
        let at = random.below(len);
        p.get_mut()[at] ^= 1 << random.below(8);
        assert!(!kernel.check_p(&stripe.sources(), p.get()), "P wrong at {at} of {what}");
        assert_eq!(kernel.check_pq(&data, p.get(), q.get()), (false, true), "{at} of {what}");
        q.get_mut()[at] ^= 1 << random.below(8);
        assert_eq!(kernel.check_pq(&data, p.get(), q.get()), (false, false), "{at} of {what}");
        let good = stripe.p.get();
        assert_eq!(kernel.check_pq(&data, good, q.get()), (true, false), "{at} of {what}");
    }
}

/// Gets units `x` and `y` back, with the lost ones replaced by rubbish of the wrong length.
fn check_recovery(kernel: &Kernel, stripe: &Stripe, x: usize, y: usize, random: &mut Random) {
    let (n, len) = (stripe.units.len(), stripe.p.len);
    let what = format!("{}: {x} and {y} of {n} units of {len} bytes", kernel.name);
    let (p, q) = (stripe.p.get(), stripe.q.get());
    let mut data = stripe.data();
    let (mut one, mut two) = (Unit::blank(random, len), Unit::blank(random, len));

    data[x] = Some(b"lost");
    kernel.rec_data_q(&data, x, q, one.get_mut());
    assert!(one.get() == stripe.unit(x), "from Q alone, {what}");
    one.get_mut().fill(0);
    kernel.rec_data_p(&data, x, q, one.get_mut(), two.get_mut());
    assert!(one.get() == stripe.unit(x), "with P lost, {what}");
    assert!(two.get() == p, "P lost, {what}");

    if x != y {
        data[y] = None;
        kernel.rec_two(&data, x, y, p, q, one.get_mut(), two.get_mut());
        assert!(one.get() == stripe.unit(x), "first of {what}");
        assert!(two.get() == stripe.unit(y), "second of {what}");
    }
    one.check_guards();
    two.check_guards();
}

/// Replaces unit `x` and compares the updated parity with newly made one.
fn check_update(kernel: &Kernel, stripe: &Stripe, x: usize, random: &mut Random) {
    let len = stripe.p.len;
    let what = format!("{}: unit {x} of {len} bytes", kernel.name);
    let (old, new) = (stripe.unit(x), Unit::random(random, len));
    let mut data = stripe.data();
    data[x] = Some(new.get());
    let (mut p_made, mut q_made) = (vec![0; len], vec![0; len]);
    scalar().pq(Store::Cached, &data, &mut p_made, &mut q_made);

    let (mut p, mut q) = (stripe.p.clone(), stripe.q.clone());
    kernel.update_p(&old, new.get(), p.get_mut());
    kernel.update_q(&old, new.get(), x as u8, q.get_mut());
    assert!(p.get() == p_made, "P of {what}");
    assert!(q.get() == q_made, "Q of {what}");

    // And back again, both at once.
    kernel.update_pq(new.get(), &old, x as u8, p.get_mut(), q.get_mut());
    assert!(p.get() == stripe.p.get(), "P back of {what}");
    assert!(q.get() == stripe.q.get(), "Q back of {what}");
    p.check_guards();
    q.check_guards();
}

#[test]
fn known_bytes() {
    let byte = |i: usize, j: usize| (i * 131 + j * 17 + (j >> 8) * 7 + 5) as u8;
    let digest = |parity: &[u8; 512]| {
        let start: String = parity[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{start}  {:08x}", crc32fast::hash(parity))
    };
    let vectors: Vec<&str> = VECTORS.lines().skip(1).collect();
    assert_eq!(vectors.len(), 10);
    for vector in vectors {
        let n: usize = vector.split_whitespace().next().unwrap().parse().unwrap();
        let units: Vec<Vec<u8>> = (0..n).map(|i| (0..512).map(|j| byte(i, j)).collect()).collect();
        let data: Vec<_> = units.iter().map(|unit| Some(&unit[..])).collect();
        for kernel in Kernel::all() {
            let (mut p, mut q) = ([0; 512], [0; 512]);
            kernel.pq(Store::Cached, &data, &mut p, &mut q);
            let found = format!("{n:5}  {}  {}", digest(&p), digest(&q));
            assert_eq!(found, vector, "{}", kernel.name);
        }
    }
}

#[test]
fn power_is_the_index_of_the_unit() {
    for kernel in Kernel::all() {
        for power in 0..POWERS {
            let one = [1; 200];
            let mut data = vec![None; power + 1];
            data[power] = Some(&one[..]);
            let (mut p, mut q) = ([0; 200], [0; 200]);
            kernel.pq(Store::Cached, &data, &mut p, &mut q);
            assert_eq!(p, one);
            assert_eq!(q, [gf256::power(power as i32); 200], "{}: g^{power}", kernel.name);
        }
    }
}

#[test]
fn generation_equals_scalar_for_every_count() {
    let mut random = Random::new("generation_equals_scalar_for_every_count");
    for n in (0..=40).chain([64, 100, 128, 200, 253, 254, 255]) {
        for turn in 0..if n <= 40 { 12 } else { 3 } {
            let len = some_len(&mut random);
            let stripe = Stripe::random(&mut random, n, len, turn % 2 == 1);
            for kernel in fast() {
                check_generation(kernel, &stripe, &mut random);
            }
        }
    }
}

#[test]
fn generation_equals_scalar_for_every_length() {
    let mut random = Random::new("generation_equals_scalar_for_every_length");
    for len in (0..=300).chain(1000..1100) {
        let n = 1 + random.below(12);
        let stripe = Stripe::random(&mut random, n, len, false);
        for kernel in fast() {
            check_generation(kernel, &stripe, &mut random);
        }
    }
}

#[test]
fn every_pair_comes_back() {
    let mut random = Random::new("every_pair_comes_back");
    for n in 1..=20 {
        let len = random.below(400);
        let stripe = Stripe::random(&mut random, n, len, false);
        for (x, y) in (0..n * n).map(|pair| (pair / n, pair % n)) {
            for kernel in fast() {
                check_recovery(kernel, &stripe, x, y, &mut random);
            }
        }
    }
}

#[test]
fn wide_stripes_with_holes_come_back() {
    let mut random = Random::new("wide_stripes_with_holes_come_back");
    for _ in 0..60 {
        let n = 2 + random.below(POWERS - 1);
        let len = random.below(600);
        let stripe = Stripe::random(&mut random, n, len, true);
        let (x, y) = (random.below(n), random.below(n));
        for kernel in Kernel::all() {
            check_recovery(kernel, &stripe, x, y, &mut random);
            check_update(kernel, &stripe, y, &mut random);
        }
    }
}

#[test]
fn highest_powers_come_back() {
    let mut random = Random::new("highest_powers_come_back");
    let stripe = Stripe::random(&mut random, POWERS, 777, false);
    for (x, y) in [(0, 254), (254, 0), (253, 254), (127, 128), (254, 254)] {
        for kernel in Kernel::all() {
            check_recovery(kernel, &stripe, x, y, &mut random);
        }
    }
}

#[test]
fn update_equals_regeneration() {
    let mut random = Random::new("update_equals_regeneration");
    for x in 0..POWERS {
        let len = some_len(&mut random) % 1500;
        let stripe = Stripe::random(&mut random, x + 1, len, true);
        for kernel in fast() {
            check_update(kernel, &stripe, x, &mut random);
        }
    }
}

#[test]
fn streaming_works_on_every_alignment() {
    let mut random = Random::new("streaming_works_on_every_alignment");
    for offset in (0..=64).chain([128, 192]) {
        let stripe = Stripe::random(&mut random, 1 + offset % 19, 4096 + offset, false);
        for kernel in fast() {
            let mut memory = vec![GUARD; 3 * 8192];
            let aligned = memory.as_ptr().align_offset(64);
            let (first, second) = memory[aligned..].split_at_mut(8192);
            let len = stripe.p.len;
            let (p, q) = (&mut first[offset..][..len], &mut second[offset..][..len]);
            kernel.pq(Store::Streaming, &stripe.data(), p, q);
            assert!(p == stripe.p.get() && q == stripe.q.get(), "{} at {offset}", kernel.name);
            p.fill(0);
            kernel.xor(Store::Streaming, &stripe.sources(), p);
            assert!(p == stripe.p.get(), "XOR, {} at {offset}", kernel.name);
            let outside = first[..offset].iter().chain(&first[offset + len..]);
            assert!(outside.copied().all(|byte| byte == GUARD), "{} at {offset}", kernel.name);
        }
    }
}

#[test]
fn wrong_unit_is_located() {
    let mut random = Random::new("wrong_unit_is_located");
    for _ in 0..50 {
        let n = 1 + random.below(POWERS);
        let stripe = Stripe::random(&mut random, n, 300, false);
        let (x, at) = (random.below(n), random.below(300));
        let mut wrong = stripe.unit(x);
        wrong[at] ^= 1 + random.below(255) as u8;
        wrong[299 - at] ^= 1 + random.below(255) as u8;
        let mut data = stripe.data();
        data[x] = Some(&wrong);
        let (mut p, mut q) = ([0; 300], [0; 300]);
        pq(&data, &mut p, &mut q);
        let p: Vec<u8> = p.iter().zip(stripe.p.get()).map(|(a, b)| a ^ b).collect();
        let q: Vec<u8> = q.iter().zip(stripe.q.get()).map(|(a, b)| a ^ b).collect();
        assert_eq!(locate(&p, &q), Culprit::Data(x as u8), "{n} units");
    }
}

#[test]
fn nothing_in_nothing_out() {
    for kernel in Kernel::all() {
        let (mut p, mut q) = ([7; 333], [7; 333]);
        kernel.pq(Store::Cached, &[], &mut p, &mut q);
        assert!(p == [0; 333] && q == [0; 333], "{}", kernel.name);
        p.fill(7);
        kernel.xor(Store::Cached, &[], &mut p);
        assert!(p == [0; 333], "{}", kernel.name);
        kernel.q(&[None; 9], &mut q);
        assert!(q == [0; 333], "{}", kernel.name);
        kernel.pq(Store::Cached, &[Some(&[])], &mut [], &mut []);
        assert_eq!(kernel.check_pq(&[Some(&[])], &[], &[]), (true, true));
    }
}

#[test]
fn best_is_the_first_that_runs() {
    assert_eq!(Kernel::best().name, Kernel::all().next().unwrap().name);
    assert_eq!(Kernel::by_name("abacus").map(|kernel| kernel.name), None);
    let names: std::collections::BTreeSet<_> = KERNELS.iter().map(|kernel| kernel.name).collect();
    assert_eq!(names.len(), KERNELS.len(), "names are unique");
}

#[test]
#[should_panic(expected = "length of P")]
fn unequal_parity_is_refused() {
    pq(&[Some(&[0; 4])], &mut [0; 5], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "length of a data unit")]
fn short_unit_is_refused() {
    q(&[Some(&[0; 3])], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "256 data units")]
fn too_many_units_are_refused() {
    q(&[None; 256], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "power 255")]
fn power_255_is_refused() {
    update_q(&[1], &[2], 255, &mut [0]);
}

#[test]
#[should_panic(expected = "must differ")]
fn same_unit_twice_is_refused() {
    rec_two(&[None; 4], 2, 2, &[0], &[0], &mut [0], &mut [0]);
}
