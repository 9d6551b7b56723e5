//! `raid-fuse info`: what a geometry gives: size, tolerance, and the numbers a file system wants.

use super::geometry::{self, Geometry};
use super::{amount, meaning, out};
use raid_core::error::Result;
use raid_core::layout::Region;
use raid_core::units::{Slot, StripeNo};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Block of ext4 unless told otherwise.
const BLOCK: u64 = 4096;

/// Zones listed: there can be one per member.
const ZONES_MAX: usize = 32;

/// Say what a geometry gives: size, tolerance, optimal sizes, options of mkfs
#[derive(clap::Args, Debug)]
#[command(after_help = "\
The optimal and minimum I/O sizes are those md exports in /sys/block/mdX/queue.

Examples:
  raid-fuse info -l10 -n6 -c64           near copies: optimal 196608
  raid-fuse info -l10 -n6 -c64 -p f2     far copies: optimal 393216
  raid-fuse info -l6 -n8 -z 4T
  raid-fuse info --from d0.img")]
pub struct Args {
    /// Facts of the geometry: what is printed in any case
    #[arg(long = "geometry", hide = true)]
    only_geometry: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    geometry: geometry::Args,
}

/// Prints the facts.
pub fn run(args: &Args) -> Result<ExitCode> {
    let geometry = args.geometry.build()?;
    let facts = Facts::of(&geometry);
    match args.json {
        true => out::json(&facts.json(&geometry))?,
        false => out::print(&facts.text(&geometry))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What there is to say, in bytes.
struct Facts {
    size: u64,
    raw: u64,
    io_min: u64,
    io_opt: u64,
    /// Chunks in the optimal size, where that is a whole number of them above zero.
    width: Option<u64>,
    zones: Vec<Zone>,
}

/// A part of a raid0 or linear.
struct Zone {
    start: u64,
    end: u64,
    slots: Vec<u16>,
}

impl Facts {
    fn of(geometry: &Geometry) -> Facts {
        let shape = geometry.layout.shape();
        let (io_min, io_opt) = (shape.chunk.bytes(), geometry.layout.io_opt().bytes());
        let whole = io_min > 0 && io_opt > 0 && io_opt.is_multiple_of(io_min);
        let layout = &*geometry.layout;
        let zone = |region: &Region| {
            let mut slots: Vec<Slot> = (0..region.period.min(region.stripes))
                .flat_map(|n| layout.stripe(StripeNo(region.first.0 + n)).units)
                .map(|unit| unit.slot)
                .collect();
            slots.sort_unstable();
            slots.dedup();
            let last = layout.stripe(StripeNo(region.first.0 + region.stripes - 1));
            Zone {
                start: layout.stripe(region.first).start.bytes(),
                end: (last.start + last.len.times(u64::from(shape.data_units))).bytes(),
                slots: slots.iter().map(|slot| slot.0).collect(),
            }
        };
        let regions = if matches!(shape.level, -1 | 0) { layout.regions() } else { Vec::new() };
        Facts {
            size: shape.size.bytes(),
            // No sum of sectors that passed the layout's checks overflows.
            raw: geometry.members.iter().map(|size| size.bytes()).fold(0, u64::saturating_add),
            io_min,
            io_opt,
            width: whole.then(|| io_opt / io_min),
            zones: regions.iter().take(ZONES_MAX).map(zone).collect(),
        }
    }

    /// Of the members' data space, the part that holds the array's data, in per mille.
    fn efficiency(&self) -> u64 {
        (u128::from(self.size) * 1000 / u128::from(self.raw.max(1))) as u64
    }

    /// `mkfs.ext4` options: blocks in a chunk and in a row of data.
    fn ext4(&self) -> Option<(u64, u64)> {
        let stride = self.io_min.is_multiple_of(BLOCK).then_some(self.io_min / BLOCK)?;
        self.width.map(|width| (stride, stride * width))
    }

    /// `mkfs.xfs` options: bytes in a chunk and chunks in a row of data.
    fn xfs(&self) -> Option<(u64, u64)> {
        self.width.filter(|_| self.io_min.is_multiple_of(BLOCK)).map(|width| (self.io_min, width))
    }

    fn text(&self, geometry: &Geometry) -> String {
        let shape = geometry.layout.shape();
        let mut out = format!("{}\n{}", geometry.title(), geometry.note());
        let meaning = meaning::meaning(geometry.level, geometry.word);
        if !meaning.is_empty() {
            let _ = writeln!(out, "{meaning}");
        }
        if let Some(hazard) = geometry.layout.hazard() {
            let end = if hazard.read_only() { "; it can only be read" } else { "" };
            let _ = writeln!(out, "warning: {hazard}{end}");
        }
        out.push('\n');
        let mut line = |name: &str, text: String| {
            let _ = writeln!(out, "{name:<20} {text}");
        };
        line("array size", with_unit(self.size));
        let (percent, rest) = (self.efficiency() / 10, self.efficiency() % 10);
        line("efficiency", format!("{percent}.{rest} % of {}", with_unit(self.raw)));
        line("tolerance", tolerance_text(shape.tolerance, shape.slots));
        let none = |size: u64, why: &str| if size == 0 { why.into() } else { with_unit(size) };
        line("minimum io size", none(self.io_min, "that of the members"));
        line("optimal io size", none(self.io_opt, "none: any size is as good"));
        for hint in self.hints() {
            line(hint.0, hint.1);
        }
        for (index, zone) in self.zones.iter().enumerate() {
            let slots: Vec<String> = zone.slots.iter().map(u16::to_string).collect();
            let (from, to) = (zone.start, zone.end - 1);
            let members = slots.join(", ");
            line(&format!("zone {index}"), format!("bytes {from} to {to} on slots {members}"));
        }
        if self.zones.len() == ZONES_MAX {
            line("", "... there may be more zones".to_string());
        }
        out
    }

    /// What to tell mkfs.
    fn hints(&self) -> Vec<(&'static str, String)> {
        let ext4 = self.ext4().map(|(stride, width)| {
            ("mkfs.ext4", format!("-E stride={stride},stripe-width={width}  (4 KiB blocks)"))
        });
        let xfs = self.xfs().map(|(unit, width)| ("mkfs.xfs", format!("-d su={unit},sw={width}")));
        ext4.into_iter().chain(xfs).collect()
    }

    fn json(&self, geometry: &Geometry) -> Value {
        let shape = geometry.layout.shape();
        let hazard = geometry.layout.hazard();
        let zone =
            |zone: &Zone| json!({ "start": zone.start, "end": zone.end, "slots": zone.slots });
        json!({
            "geometry": geometry.json(),
            "meaning": meaning::meaning(geometry.level, geometry.word),
            "array_bytes": self.size,
            "data_bytes_of_members": self.raw,
            "efficiency_per_mille": self.efficiency(),
            "tolerance": shape.tolerance,
            "minimum_io_bytes": self.io_min,
            "optimal_io_bytes": self.io_opt,
            "ext4": self.ext4().map(|(stride, width)| {
                json!({ "stride": stride, "stripe_width": width })
            }),
            "xfs": self.xfs().map(|(su, sw)| json!({ "su": su, "sw": sw })),
            "hazard": hazard.as_ref().map(ToString::to_string),
            "read_only": hazard.is_some_and(|hazard| hazard.read_only()),
            "zones": self.zones.iter().map(zone).collect::<Vec<_>>(),
        })
    }
}

fn with_unit(bytes: u64) -> String {
    let text = amount::size(bytes);
    if text.ends_with("bytes") { text } else { format!("{bytes} ({text})") }
}

fn tolerance_text(tolerance: u16, slots: u16) -> String {
    match tolerance {
        0 => format!("0 of {slots} members: the loss of one can lose data"),
        1 => format!("any 1 of {slots} members"),
        _ => format!("any {tolerance} of {slots} members"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(words: &str) -> Facts {
        Facts::of(&Geometry::of(words).unwrap())
    }

    #[test]
    fn optimal_sizes_are_those_of_the_kernel() {
        #[rustfmt::skip]
        let cases = [
            ("-l10 -n6 -c64", 196_608, Some((16, 48)), Some((65_536, 3))),
            ("-l10 -n6 -c64 -p f2", 393_216, Some((16, 96)), Some((65_536, 6))),
            ("-l5 -n4 -c64", 196_608, Some((16, 48)), Some((65_536, 3))),
            ("-l6 -n8", 3_145_728, Some((128, 768)), Some((524_288, 6))),
            ("-l0 -n3 -c12", 36_864, Some((3, 9)), Some((12_288, 3))),
            ("-l0 -n3 -c6", 18_432, None, None),
            ("-l1 -n2", 0, None, None),
        ];
        for (words, io_opt, ext4, xfs) in cases {
            let facts = facts(words);
            assert_eq!((facts.io_opt, facts.ext4(), facts.xfs()), (io_opt, ext4, xfs), "{words}");
        }
    }

    #[test]
    fn zones_and_efficiency() {
        let uneven = facts("-l0 -c64 --member-sizes 3c,6c,6c");
        let zones: Vec<_> =
            uneven.zones.iter().map(|zone| (zone.start, zone.end, zone.slots.clone())).collect();
        assert_eq!(zones, [(0, 589_824, vec![0, 1, 2]), (589_824, 983_040, vec![1, 2])]);
        assert_eq!(uneven.efficiency(), 1000);
        assert_eq!(facts("-l5 -n4 -c64").efficiency(), 750);
        assert_eq!(facts("-l10 -n3 -c64").efficiency(), 500);
    }

    #[test]
    fn no_redundancy_is_said_in_these_words() {
        let geometry = Geometry::of("-l10 -n2 -p 0x20201").unwrap();
        let text = Facts::of(&geometry).text(&geometry);
        assert!(text.contains("warning: no redundancy: all 2 copies of chunk 0 are on member 0"));
        assert!(text.contains("it can only be read"), "{text}");
        assert!(Geometry::of("-l10 -n4 -p 0x60201").is_err(), "bits 17 and 18");
    }
}
