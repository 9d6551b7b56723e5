//! The table, for people and as JSON.

use serde_json::{Value, json};

use raid_core::code::Store;

use super::Place;
use super::measure::{Samples, quantile};
use super::ring::Shape;
use super::rivals::{CACHED, ISA_L, PORTABLE, READ, STREAMING, Work};

/// One line: a shape at a place.
pub struct Row {
    /// Hot or DRAM.
    pub place: Place,
    /// P and Q, or P.
    pub work: Work,
    /// Chunk and number of units.
    pub shape: Shape,
    /// What was measured.
    pub samples: Vec<Samples>,
}

/// All lines of a run, and what they were measured on.
pub struct Table {
    /// The lines.
    pub rows: Vec<Row>,
    /// The processor.
    pub cpu: String,
    /// Our kernel.
    pub kernel: &'static str,
    /// Whether ISA-L was there.
    pub isa_l: bool,
    /// Bytes between units.
    pub gap: usize,
    /// Best speed of the probe, GB/s.
    pub probe: f64,
}

impl Row {
    fn of(&self, name: &str) -> Option<&Samples> {
        self.samples.iter().find(|samples| samples.name == name)
    }

    fn median(&self, name: &str) -> Option<f64> {
        self.of(name).map(|samples| quantile(&samples.sorted(), 0.5))
    }

    /// The stores to take for results that only go to a device.
    fn ours(&self) -> &'static str {
        let parities = match self.work {
            Work::Pq => 2,
            Work::Xor => 1,
        };
        match (self.place, Store::for_stripe(self.shape.chunk * (self.shape.data + parities))) {
            (Place::Hot, Store::Cached) => CACHED,
            _ => STREAMING,
        }
    }

    /// Our speed over that of another: median and quartiles.
    fn ratio(&self, other: &str) -> Option<[f64; 3]> {
        let ratios = self.of(self.ours())?.ratios(self.of(other)?);
        Some([0.5, 0.25, 0.75].map(|part| quantile(&ratios, part)))
    }

    fn noisy(&self) -> bool {
        self.samples.iter().any(|samples| samples.noisy)
    }

    fn to_json(&self) -> Value {
        let candidate = |samples: &Samples| {
            let sorted = samples.sorted();
            let [p10, p50, p90] = [0.1, 0.5, 0.9].map(|part| quantile(&sorted, part));
            json!({ "name": samples.name, "gb_per_s": { "p10": p10, "p50": p50, "p90": p90 },
                    "samples": sorted.len(), "noisy": samples.noisy })
        };
        json!({
            "place": self.place.name(),
            "work": self.work.name(),
            "chunk": self.shape.chunk,
            "data": self.shape.data,
            "stores": self.ours(),
            "ratio_to_isa_l": self.ratio(ISA_L),
            "ratio_to_read": self.ratio(READ),
            "candidates": self.samples.iter().map(candidate).collect::<Vec<_>>(),
        })
    }
}

impl Table {
    /// JSON to standard output.
    pub fn print_json(&self) {
        let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
        let table = json!({ "cpu": self.cpu, "kernel": self.kernel, "isa_l": self.isa_l,
                            "gap": self.gap, "probe_gb_per_s": self.probe, "rows": rows });
        println!("{table:#}");
    }

    /// Text to standard output.
    pub fn print(&self) {
        println!(
            "{}; kernel {}; gap {}; probe {:.0} GB/s",
            self.cpu, self.kernel, self.gap, self.probe
        );
        if !self.isa_l {
            println!("ISA-L is not installed (Debian: apt-get install libisal2): no comparison");
        }
        println!("GB/s of data, medians. * = the stores to take for a device; ratios are of");
        println!("these, with quartiles. ! = the machine was not quiet: take with care.");
        println!();
        println!(
            "{:<5}{:<5}{:>6}{:>5} {:>8}{:>8}{:>9}{:>11}{:>9}  {:<20} of read",
            "place", " work", "chunk", "data", READ, ISA_L, CACHED, STREAMING, PORTABLE, "of ISA-L"
        );
        for row in &self.rows {
            println!("{}", self.line(row));
        }
    }

    fn line(&self, row: &Row) -> String {
        let speed = |name: &str| {
            let mark = if name == row.ours() { "*" } else { "" };
            row.median(name).map_or("-".to_string(), |median| format!("{median:.1}{mark}"))
        };
        let ratio = |other: &str| {
            row.ratio(other).map_or("-".to_string(), |[median, low, high]| {
                format!("{median:.2} ({low:.2}..{high:.2})")
            })
        };
        format!(
            "{:<5} {:<4}{:>5}K{:>5} {:>8}{:>8}{:>9}{:>11}{:>9}  {:<20} {}{}",
            row.place.name(),
            row.work.name(),
            row.shape.chunk >> 10,
            row.shape.data,
            speed(READ),
            speed(ISA_L),
            speed(CACHED),
            speed(STREAMING),
            speed(PORTABLE),
            ratio(ISA_L),
            ratio(READ),
            if row.noisy() { " !" } else { "" }
        )
    }
}

/// The processor as the kernel names it, with family and model.
pub fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.split(':').next().map(str::trim) == Some(name));
        line.and_then(|line| line.split_once(':')).map_or("?", |(_, value)| value.trim())
    };
    format!("{}, family {}, model {}", field("model name"), field("cpu family"), field("model"))
}
