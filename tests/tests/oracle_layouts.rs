//! Layouts against members that the kernel's md filled: every array sector, P and Q byte.
//!
//! The archives hold the members of arrays onto which md wrote one known pattern. P and Q are
//! summed here with the field arithmetic spelled out, so that nothing of ours but the layout is
//! under test. Skips loudly where the archives or `zstd` are absent.

use raid_core::layout::{self, Layout, Params, Role, Stripe};
use raid_core::units::{Sectors, Slot, StripeNo};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Unpacks an archive of the oracle; nothing (and a loud word) where that cannot be done.
fn unpack(name: &str) -> Option<tempfile::TempDir> {
    let archive: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "../../shared/md-oracle/fixtures", name].iter().collect();
    if !archive.exists() {
        eprintln!("SKIPPED: {} is not there", archive.display());
        return None;
    }
    let dir = tempfile::tempdir().expect("a scratch directory");
    let zstd = Command::new("zstd")
        .args(["-d", "--long=28", "-c"])
        .arg(&archive)
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut zstd) = zstd else {
        eprintln!("SKIPPED: zstd is not installed");
        return None;
    };
    let tar = Command::new("tar")
        .arg("-xf")
        .arg("-")
        .arg("-C")
        .arg(dir.path())
        .stdin(zstd.stdout.take().expect("a pipe"))
        .status();
    assert!(zstd.wait().expect("zstd ends").success());
    assert!(tar.expect("tar runs").success());
    Some(dir)
}

/// The members of one array as the kernel left them.
struct Members {
    images: Vec<Vec<u8>>,
}

impl Members {
    fn load(dir: &Path, id: &str, slots: u16) -> Members {
        let read = |slot| fs::read(dir.join(format!("{id}.{slot}"))).expect("a member image");
        Members { images: (0..slots).map(read).collect() }
    }

    fn bytes(&self, slot: Slot, at: Sectors, len: Sectors) -> &[u8] {
        let start = at.len();
        &self.images[slot.index()][start..start + len.len()]
    }
}

/// The product in GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1.
fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= 0x1d;
        }
        b >>= 1;
    }
    product
}

fn power_of_two(power: u8) -> u8 {
    (0..power).fold(1, |product, _| multiply(product, 2))
}

/// Compares data, copies, P and Q of one stripe; says what differs.
fn check_stripe(stripe: &Stripe, members: &Members, pattern: &[u8]) -> Result<(), String> {
    let len = stripe.len;
    let (mut p, mut q) = (vec![0u8; len.len()], vec![0u8; len.len()]);
    for unit in &stripe.units {
        let found = members.bytes(unit.slot, unit.at, len);
        let index = match unit.role {
            Role::Data(index) => index as u64,
            _ => 0,
        };
        let start = (stripe.start + len.times(index)).len();
        let expected = match unit.role {
            Role::Data(_) | Role::Copy(_) => &pattern[start..start + len.len()],
            Role::P => &p,
            Role::Q => &q,
        };
        if found != expected {
            return Err(format!("{:?} of stripe {} on slot {}", unit.role, stripe.no.0, unit.slot));
        }
        if matches!(unit.role, Role::Data(_)) {
            let factor = power_of_two(unit.power);
            let table: Vec<u8> = (0..=255).map(|byte| multiply(factor, byte)).collect();
            for (i, &byte) in found.iter().enumerate() {
                p[i] ^= byte;
                q[i] ^= table[byte as usize];
            }
        }
    }
    Ok(())
}

fn check_array(layout: &dyn Layout, members: &Members, pattern: &[u8]) -> Result<(), String> {
    (0..layout.shape().stripes)
        .try_for_each(|no| check_stripe(&layout.stripe(StripeNo(no)), members, pattern))
}

/// `key=value` of a line of the log.
fn field(line: &str, key: &str) -> u64 {
    let word = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
    word.unwrap_or_else(|| panic!("{key} in {line}")).parse().expect("a number")
}

#[test]
fn parity_and_copies_are_where_the_kernel_put_them() {
    let Some(dir) = unpack("outA.tar.zst") else { return };
    let pattern = fs::read(dir.path().join("extraA/pat")).expect("the pattern");
    let log = fs::read_to_string(dir.path().join("outA/log")).expect("the log");
    let mut arrays = 0;
    for line in log.lines().filter(|line| line.starts_with("CFG ")) {
        // CFG id level layout slots KiB-per-member size=.. layout=.. csz=..
        let words: Vec<&str> = line.split(' ').collect();
        let (id, level, name) = (words[1], words[2].parse().expect("a level"), words[3]);
        let slots = words[4].parse().expect("a count");
        let word = field(line, "layout") as u32;
        let level_row = layout::level_by_number(level).expect("a level");
        assert_eq!((level_row.parse_layout)(name).expect("a layout"), word, "{line}");
        let component = Sectors::kib(field(line, "csz"));
        let chunk = Sectors::kib(4);
        let params = Params { layout: word, chunk, slots, component, members: Vec::new() };
        let layout = layout::make(level, &params).expect("the kernel ran it");
        assert_eq!(layout.shape().size.0, field(line, "size"), "{line}");
        let members = Members::load(&dir.path().join("outA"), id, slots);
        if let Err(what) = check_array(&*layout, &members, &pattern) {
            panic!("{line}: {what}");
        }
        arrays += 1;
    }
    assert_eq!(arrays, 131);
}

#[test]
fn zones_and_linear_are_where_the_kernel_put_them() {
    let Some(dir) = unpack("outF.tar.zst") else { return };
    let pattern = fs::read(dir.path().join("extraF/pat")).expect("the pattern");
    let zones: [&[u64]; 5] = [
        &[200, 333, 333, 504],
        &[504, 200, 200],
        &[100, 504],
        &[500, 120, 500, 120, 300],
        &[96, 96, 192, 192, 192, 96],
    ];
    // (level, layout, chunk, members), in the order of the numbers of the images.
    let mut arrays: Vec<(i32, u32, u64, &[u64])> = Vec::new();
    for (chunk, layout) in [(8, 1), (8, 2), (24, 1), (24, 2)] {
        arrays.extend(zones.iter().map(|&members| (0, layout, chunk, members)));
    }
    let (two, three): (&[u64], &[u64]) = (&[200, 504], &[200, 333, 504]);
    arrays.extend([(0, 0, 8, two), (0, 0, 8, &[200, 300, 504])]);
    arrays.extend([(-1, 0, 0, three), (-1, 0, 24, three)]);
    let log = fs::read_to_string(dir.path().join("outF/log")).expect("the log");
    for (id, (level, layout, chunk, members)) in arrays.into_iter().enumerate() {
        let line = log.lines().find(|line| line.starts_with(&format!("CFG {id} ")));
        let size = field(line.expect("every array is in the log"), "size");
        let sizes: Vec<Sectors> = members.iter().copied().map(Sectors).collect();
        let (slots, component) = (sizes.len() as u16, Sectors::ZERO);
        let params = Params { layout, chunk: Sectors(chunk), slots, component, members: sizes };
        let made = layout::make(level, &params);
        if size == 0 {
            assert!(made.is_err(), "the kernel refused {params:?}");
            continue;
        }
        let layout = made.expect("the kernel ran it");
        assert_eq!(layout.shape().size.0, size, "{params:?}");
        let images = Members::load(&dir.path().join("outF"), &id.to_string(), slots);
        if let Err(what) = check_array(&*layout, &images, &pattern) {
            panic!("{params:?}: {what}");
        }
    }
}
