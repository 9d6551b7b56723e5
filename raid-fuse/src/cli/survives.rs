//! `raid-fuse survives`: which losses an array survives, and what a fatal one takes with it.

use super::geometry::{self, Geometry, counts_chunks, slot_numbers};
use super::out;
use raid_core::error::{Error, Result};
use raid_core::layout::{Lost, lost, surviving_sets};
use raid_core::units::SlotSet;
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::Range;
use std::process::ExitCode;

/// Sets printed on each side before the rest is only counted.
const SETS_SHOWN: usize = 200;

/// Most members whose pairs are counted without being asked for.
const PAIRS_OF_MAX: u16 = 400;

/// Most ways that are counted without being asked for.
const WAYS_MAX: u64 = 100_000;

/// Columns of the lists.
const WIDTH: usize = 96;

/// Say which losses of members an array survives
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit status: with --missing 0 if the array survives that, 2 if not.

Examples:
  raid-fuse survives -l10 -n4                 which pairs of members mirror each other
  raid-fuse survives -l10 -n6 -p f2           f2 with 6 members: 9 of 15 pairs
  raid-fuse survives -l6 -n8 --failures 3
  raid-fuse survives -l10 -n4 --missing 0,1   what is lost")]
pub struct Args {
    /// How many members are lost [default: 1, 2 ... until one more than any loss survived]
    #[arg(short = 'k', long, value_name = "K")]
    failures: Option<u16>,

    /// Say what is lost without these slots
    #[arg(
        long,
        visible_aliases = ["failed", "lost"],
        value_name = "SLOTS",
        value_delimiter = ',',
        conflicts_with = "failures"
    )]
    missing: Vec<u16>,

    /// Most ranges of the array to list as lost
    #[arg(long, value_name = "N", default_value_t = 20)]
    ranges: usize,

    /// Print every set, however many there are
    #[arg(long)]
    all: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    geometry: geometry::Args,
}

/// Counts and lists.
pub fn run(args: &Args) -> Result<ExitCode> {
    let geometry = args.geometry.build()?;
    if !args.missing.is_empty() {
        return run_missing(args, &geometry);
    }
    let counts = counts(args, &geometry)?;
    if args.json {
        let failures: Vec<Value> = counts.iter().map(Count::json).collect();
        out::json(&json!({
            "geometry": geometry.json(),
            "tolerance": geometry.layout.shape().tolerance,
            "hazard": hazard(&geometry),
            "failures": failures,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = format!("{}\n", geometry.title());
    if let Some(hazard) = hazard(&geometry) {
        let _ = writeln!(out, "warning: {hazard}");
    }
    for count in &counts {
        count.write_text(args.all, &mut out);
    }
    out::print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// The sets of so many members, by what becomes of the array without them.
struct Count {
    failures: u16,
    slots: u16,
    live: Vec<SlotSet>,
    dead: Vec<SlotSet>,
}

fn counts(args: &Args, geometry: &Geometry) -> Result<Vec<Count>> {
    let slots = geometry.layout.shape().slots;
    let failures = match args.failures {
        Some(failures) if failures == 0 || failures > slots => {
            return Err(Error::invalid(format!(
                "--failures: {failures} of {slots} members cannot be lost; give 1 to {slots}"
            )));
        }
        Some(failures) => failures..=failures,
        None if slots > PAIRS_OF_MAX => 1..=1,
        None => 1..=counted_until(geometry),
    };
    let count = |failures| {
        let sets = surviving_sets(&*geometry.layout, failures)?;
        let (live, dead): (Vec<_>, Vec<_>) = sets.into_iter().partition(|(_, survives)| *survives);
        let only = |sets: Vec<(SlotSet, bool)>| sets.into_iter().map(|(set, _)| set).collect();
        Ok(Count { failures, slots, live: only(live), dead: only(dead) })
    };
    failures.map(count).collect()
}

/// Two, or the first number of losses that some array of this geometry does not survive; fewer
/// where there are too many ways to lose so many.
fn counted_until(geometry: &Geometry) -> u16 {
    let shape = geometry.layout.shape();
    let wanted = shape.tolerance.saturating_add(1).max(2).min(shape.slots);
    let listable = |&count: &u16| combinations(shape.slots, count) <= WAYS_MAX;
    (2..=wanted).take_while(listable).last().unwrap_or(1)
}

/// Ways to lose `count` of `slots` members, as far as they matter here.
fn combinations(slots: u16, count: u16) -> u64 {
    (0..u64::from(count))
        .fold(1u64, |ways, k| ways.saturating_mul(u64::from(slots).saturating_sub(k)) / (k + 1))
}

fn hazard(geometry: &Geometry) -> Option<String> {
    geometry.layout.hazard().map(|hazard| hazard.to_string())
}

impl Count {
    fn write_text(&self, all: bool, out: &mut String) {
        let total = self.live.len() + self.dead.len();
        let Count { failures, slots, live, dead } = self;
        let live_count = live.len();
        let _ = writeln!(
            out,
            "\nwithout {failures} of {slots} members: {live_count} of {total} ways survive"
        );
        // A list that repeats the count says nothing.
        if live.is_empty() || dead.is_empty() {
            return;
        }
        sets_text("survives", live, all, out);
        sets_text("dies", dead, all, out);
    }

    fn json(&self) -> Value {
        let sets = |sets: &[SlotSet]| sets.iter().map(slot_numbers).collect::<Vec<_>>();
        json!({
            "failures": self.failures,
            "ways": self.live.len() + self.dead.len(),
            "surviving": self.live.len(),
            "survives": sets(&self.live),
            "dies": sets(&self.dead),
        })
    }
}

/// `sets` in lines of some width, behind `name`.
fn sets_text(name: &str, sets: &[SlotSet], all: bool, out: &mut String) {
    let shown = if all { sets.len() } else { sets.len().min(SETS_SHOWN) };
    let mut line = format!("  {name:<8} ");
    let indent = " ".repeat(line.len());
    for set in &sets[..shown] {
        let text = braces(set);
        if line.len() + text.len() > WIDTH && line.trim() != "" {
            let _ = writeln!(out, "{}", line.trim_end());
            line = indent.clone();
        }
        line += &format!("{text} ");
    }
    let _ = writeln!(out, "{}", line.trim_end());
    if shown < sets.len() {
        let _ = writeln!(out, "{indent}... and {} more (--all)", sets.len() - shown);
    }
}

/// `{0,2}`: as sets are written.
pub fn braces(set: &SlotSet) -> String {
    let slots: Vec<String> = set.iter().map(|slot| slot.to_string()).collect();
    format!("{{{}}}", slots.join(","))
}

/// What is lost without certain members.
fn run_missing(args: &Args, geometry: &Geometry) -> Result<ExitCode> {
    let missing = geometry.slots("--missing", &args.missing)?;
    let layout = &*geometry.layout;
    let survives = layout.survives(&missing);
    let lost = lost(layout, &missing, args.ranges.max(1));
    if args.json {
        let ranges: Vec<Value> = lost.ranges.iter().map(range_json).collect();
        out::json(&json!({
            "geometry": geometry.json(),
            "missing": slot_numbers(&missing),
            "survives": survives,
            "lost": ranges,
            "lost_more": lost.more,
        }))?;
    } else {
        let mut out = format!("{}\n{}", geometry.title(), geometry.note());
        write_lost(geometry, &missing, survives, &lost, &mut out);
        out::print(&out)?;
    }
    Ok(if survives { ExitCode::SUCCESS } else { ExitCode::from(super::exit::DEAD) })
}

fn write_lost(
    geometry: &Geometry,
    missing: &SlotSet,
    survives: bool,
    lost: &Lost,
    out: &mut String,
) {
    if survives {
        let _ = writeln!(out, "without {}: survives, nothing is lost", braces(missing));
        return;
    }
    let _ = writeln!(out, "without {}: dies; lost of the array are", braces(missing));
    for range in &lost.ranges {
        let (start, end) = (range.start.bytes(), range.end.bytes());
        let _ = write!(out, "  bytes {start} to {}", end - 1);
        let chunk = geometry.chunk().bytes();
        if counts_chunks(&*geometry.layout) {
            let (first, last) = (start / chunk, (end - 1) / chunk);
            let _ = match first == last {
                true => write!(out, " (chunk {first})"),
                false => write!(out, " (chunks {first} to {last})"),
            };
        }
        out.push('\n');
    }
    if lost.more {
        out.push_str("  ... and more (--ranges N lists N)\n");
    }
}

fn range_json(range: &Range<raid_core::units::Sectors>) -> Value {
    json!({ "start": range.start.bytes(), "end": range.end.bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(words: &str, failures: u16) -> Count {
        let geometry = Geometry::of(words).unwrap();
        let args = Args {
            failures: Some(failures),
            missing: Vec::new(),
            ranges: 20,
            all: false,
            json: false,
            geometry: geometry::Args::default(),
        };
        counts(&args, &geometry).unwrap().remove(0)
    }

    #[test]
    fn mirror_pairs_are_the_pairs_that_die() {
        let pairs = counted("-l10 -n4", 2);
        let sets = |sets: &[SlotSet]| sets.iter().map(braces).collect::<Vec<_>>();
        assert_eq!(sets(&pairs.live), ["{0,2}", "{0,3}", "{1,2}", "{1,3}"]);
        assert_eq!(sets(&pairs.dead), ["{0,1}", "{2,3}"]);
    }

    #[test]
    fn far_sets_change_how_many_pairs_survive() {
        for (layout, surviving) in [("f2", 9), ("0x20201", 9), ("0x40201", 12)] {
            let pairs = counted(&format!("-l10 -n6 -p {layout}"), 2);
            assert_eq!((pairs.live.len(), pairs.dead.len()), (surviving, 15 - surviving));
        }
    }

    #[test]
    fn long_lists_are_cut_and_folded() {
        let mut out = String::new();
        counted("-l6 -n14", 3).write_text(false, &mut out);
        assert!(out.contains("0 of 364 ways survive"), "{out}");
        let mut out = String::new();
        counted("-l10 -n30", 2).write_text(false, &mut out);
        assert!(out.contains("420 of 435 ways survive") && out.contains("and 220 more"), "{out}");
        assert!(out.lines().all(|line| line.len() <= WIDTH), "{out}");
    }
}
