//! `raid-bench parity`: how fast P and Q are made, in the same run as ISA-L and reading memory.
//!
//! GB/s are 10^9 bytes of *data* a second; parity is not counted. What is timed, and how noise is
//! kept out, is told in [`measure`]; where the stripes lie in [`ring`]; by whom in [`rivals`].

mod measure;
mod report;
mod ring;
mod rivals;

use std::time::Duration;

use clap::ValueEnum;
use raid_core::code::Kernel;

use measure::Probe;
use report::{Row, Table};
use ring::{Memory, Ring, Shape};
use rivals::{IsaL, Work};

/// Options of `raid-bench parity`.
#[derive(clap::Args)]
pub struct Arguments {
    /// Chunk sizes in bytes; K and M are powers of 1024
    #[arg(long, value_delimiter = ',', default_value = "4K,16K,64K,512K", value_parser = size)]
    chunk: Vec<usize>,
    /// Numbers of data units in a stripe
    #[arg(long, value_delimiter = ',', default_value = "4,8,16", value_parser = data_units)]
    data: Vec<usize>,
    /// Where the stripe is when it is read
    #[arg(long, value_delimiter = ',', default_value = "hot,dram")]
    place: Vec<Place>,
    /// What to compute
    #[arg(long, value_delimiter = ',', default_value = "pq,xor")]
    work: Vec<Work>,
    /// Bytes between the end of one unit and the start of the next: 0 puts all units of a stripe
    /// at the same offset in a page, as buffers from a kernel are; 512 spreads them over L1
    #[arg(long, default_value_t = 0)]
    gap: usize,
    /// Memory to go through when the stripe is in DRAM; several times the last cache
    #[arg(long, default_value = "512M", value_parser = size)]
    ring: usize,
    /// Undisturbed samples wanted of each candidate
    #[arg(long, default_value_t = 15)]
    samples: usize,
    /// Longest time for one line of the table, in seconds
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// Where the stripe is when it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Place {
    /// One stripe over and over: in the first cache it fits.
    Hot,
    /// A new stripe each time, from a ring much larger than all caches.
    Dram,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Hot => "hot",
            Place::Dram => "dram",
        }
    }
}

/// Runs the whole table and prints it.
pub fn run(arguments: &Arguments) {
    let isa_l = IsaL::load();
    let mut probe = Probe::new();
    let mut memory = Memory::new();
    let mut rows = Vec::new();
    for place in &arguments.place {
        for work in &arguments.work {
            for chunk in &arguments.chunk {
                for data in &arguments.data {
                    let shape = Shape { chunk: *chunk, data: *data, gap: arguments.gap };
                    rows.push(case(
                        arguments,
                        *place,
                        *work,
                        shape,
                        &isa_l,
                        &mut probe,
                        &mut memory,
                    ));
                    eprint!("\r{} {} {} x {}      ", place.name(), work.name(), data, chunk);
                }
            }
        }
    }
    eprintln!();
    let table = Table {
        rows,
        cpu: report::cpu(),
        kernel: Kernel::best().name,
        isa_l: isa_l.is_some(),
        gap: arguments.gap,
        probe: probe.quiet(),
    };
    if arguments.json { table.print_json() } else { table.print() }
}

/// Measures all candidates for one line of the table.
fn case(
    arguments: &Arguments,
    place: Place,
    work: Work,
    shape: Shape,
    isa_l: &Option<IsaL>,
    probe: &mut Probe,
    memory: &mut Memory,
) -> Row {
    let stripes = match place {
        Place::Hot => 1,
        Place::Dram => (arguments.ring / shape.bytes()).max(2),
    };
    let mut ring = Ring::new(shape, stripes, memory);
    let candidates = rivals::candidates(work, isa_l);
    for candidate in &candidates {
        rivals::check(candidate, &mut ring, work);
    }
    let limits = measure::Limits {
        samples: arguments.samples,
        time: Duration::from_secs_f64(arguments.seconds),
    };
    let samples = measure::measure(&candidates, &mut ring, place, limits, probe);
    Row { place, work, shape, samples }
}

/// A number of bytes: `4096`, `64K`, `1M`.
fn size(text: &str) -> Result<usize, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (&text[..text.len() - 1], 10),
        Some(b'M' | b'm') => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| "expected a number such as 64K or 1M")?;
    let bytes = number.checked_shl(shift).filter(|bytes| bytes >> shift == number);
    match bytes {
        Some(bytes) if (64..=SIZE_MAX).contains(&bytes) && bytes % 64 == 0 => Ok(bytes),
        _ => Err("expected a multiple of 64 bytes, at most 16384M".to_string()),
    }
}

/// More memory than any ring needs.
const SIZE_MAX: usize = 16 << 30;

fn data_units(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(units @ 2..=253) => Ok(units),
        _ => Err("expected 2 to 253 data units".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(size("4096"), Ok(4096));
        assert_eq!(size("64K"), Ok(65536));
        assert_eq!(size("512M"), Ok(512 << 20));
        for text in ["", "K", "0", "100", "-4K", "99999999999999999999", "4Ki", "99999999999M"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_candidate_is_measured_and_right() {
        let isa_l = IsaL::load();
        let mut memory = Memory::new();
        for work in Work::value_variants() {
            for data in [2, 4, 9] {
                let mut ring = Ring::new(Shape { chunk: 4096, data, gap: 512 }, 3, &mut memory);
                for candidate in rivals::candidates(*work, &isa_l) {
                    rivals::check(&candidate, &mut ring, *work);
                }
            }
        }
    }
}
