//! `raid-fuse explain-write`: what a write reads and writes, in both ways, and which is taken.
//!
//! With the contents of a stripe it also computes the parity both ways lead to, and tells where
//! the parity that was given is not that of the data.

mod contents;

use super::explain_read::check_range;
use super::geometry::{self, Geometry, slot_numbers};
use super::out;
use super::survives::braces;
use raid_core::error::{Error, Result};
use raid_core::layout::Role;
use raid_core::teach::{self, Part, Step, Way};
use raid_core::units::{SECTOR, Sectors, SlotSet};
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Most stripes explained: this is for eyes.
const STRIPES_MAX: u64 = 256;

/// Say what a write reads and writes: read-modify-write or reconstruct-write
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit status: 0, or 2 if something cannot be written without the failed members.

Examples:
  raid-fuse explain-write -l5 -n5 -c64 0 4K           a small write
  raid-fuse explain-write -l5 -n5 -c64 0 4c           a whole stripe
  raid-fuse explain-write -l6 -n6 -c64 --failed 2 100K 200K
  raid-fuse explain-write --values D0=AB9C,D1=AABB,D2=0098,D3=549C,P=2FFF --new D0=7453")]
pub struct Args {
    /// First byte to write, in the array; with --values: a byte of the stripe meant
    #[arg(value_name = "OFFSET", required_unless_present = "values")]
    offset: Option<String>,

    /// How much to write
    #[arg(value_name = "LENGTH", required_unless_present = "values", conflicts_with = "values")]
    length: Option<String>,

    /// These slots are missing
    #[arg(long, visible_aliases = ["missing", "lost"], value_name = "SLOTS", value_delimiter = ',')]
    failed: Vec<u16>,

    /// Parity is not known to match the data: the array was never synchronised
    #[arg(long)]
    unsynced: bool,

    /// Contents of a stripe in hexadecimal: D0=AB9C,D1=AABB,P=0127
    #[arg(long, value_name = "UNITS", value_delimiter = ',', requires = "new")]
    values: Vec<String>,

    /// New contents of neighbouring data units: D0=7453
    #[arg(long, value_name = "UNITS", value_delimiter = ',', requires = "values")]
    new: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    geometry: geometry::Args,
}

/// Explains.
pub fn run(args: &Args) -> Result<ExitCode> {
    let contents = match args.values.is_empty() {
        true => None,
        false => Some(contents::Contents::parse(&args.values, &args.new)?),
    };
    let geometry = match &contents {
        Some(contents) => contents.geometry(&args.geometry)?,
        None => args.geometry.build()?,
    };
    let missing = geometry.slots("--failed", &args.failed)?;
    let (start, len) = range(args, &geometry, contents.as_ref())?;
    let (at, sectors) = (Sectors::floor_bytes(start), Sectors::floor_bytes(len));
    let parts = teach::write(&*geometry.layout, at, sectors, &missing, !args.unsynced);
    let result = contents.as_ref().map(|contents| contents.result(&parts[0])).transpose()?;
    if args.json {
        out::json(&json!({
            "geometry": geometry.json(),
            "failed": slot_numbers(&missing),
            "array_offset": start,
            "bytes": len,
            "parts": parts.iter().map(part_json).collect::<Vec<_>>(),
            "values": result.as_ref().map(contents::Outcome::json),
        }))?;
    } else {
        let mut out = head(args, &geometry, &missing, start, len);
        parts.iter().for_each(|part| part_text(&geometry, part, &mut out));
        if let Some(result) = &result {
            result.write_text(&mut out);
        }
        out::print(&out)?;
    }
    let lost = parts.iter().any(|part| part.way == Way::Lost);
    Ok(if lost { ExitCode::from(super::exit::DEAD) } else { ExitCode::SUCCESS })
}

/// The bytes of the array that are written.
fn range(
    args: &Args,
    geometry: &Geometry,
    contents: Option<&contents::Contents>,
) -> Result<(u64, u64)> {
    let start = match &args.offset {
        Some(text) => geometry.offset("OFFSET", text)?,
        None => 0,
    };
    if let Some(contents) = contents {
        check_range(geometry, start, 1)?;
        return Ok(contents.range(geometry, start));
    }
    let len = match &args.length {
        Some(text) => geometry.offset("LENGTH", text)?,
        None => SECTOR,
    };
    check_range(geometry, start, len)?;
    if !start.is_multiple_of(SECTOR) || !len.is_multiple_of(SECTOR) {
        let first = start / SECTOR;
        let count = (start + len).div_ceil(SECTOR) - first;
        return Err(Error::invalid(format!(
            "a member is written in whole sectors of {SECTOR} bytes; these bytes are in {first}s \
             {count}s"
        )));
    }
    let shape = geometry.layout.shape();
    let stripe = geometry.chunk().bytes().saturating_mul(u64::from(shape.data_units));
    let limit = stripe.saturating_mul(STRIPES_MAX);
    match len <= limit {
        true => Ok((start, len)),
        false => Err(Error::invalid(format!(
            "{len} bytes are more than {STRIPES_MAX} stripes ({limit} bytes); ask for less"
        ))),
    }
}

fn head(args: &Args, geometry: &Geometry, missing: &SlotSet, start: u64, len: u64) -> String {
    let mut out = format!("{}\n", geometry.title());
    if args.values.is_empty() {
        let _ = write!(out, "{}write of {len} bytes at byte {start}", geometry.note());
    } else {
        let _ = write!(out, "write of {}", args.new.join(", "));
    }
    if !missing.is_empty() {
        let _ = write!(out, ", without {}", braces(missing));
    }
    out.push('\n');
    out
}

fn part_text(geometry: &Geometry, part: &Part, out: &mut String) {
    let (low, high) = (part.low.bytes(), part.high.bytes());
    let _ = writeln!(
        out,
        "\nstripe {}, bytes {low} to {} of each unit: new {}",
        part.stripe.no.0,
        high - 1,
        names(&part.new)
    );
    let has_parity = geometry.layout.shape().code.has_parity();
    if has_parity && part.way != Way::Lost {
        let writes = part.writes.len();
        for (way, reads) in [(Way::Modify, &part.modify), (Way::Reconstruct, &part.reconstruct)] {
            let _ = match reads {
                Some(reads) => writeln!(
                    out,
                    "  {:<18} reads {}{}, writes {writes}",
                    way.word(),
                    reads.len(),
                    in_brackets(reads)
                ),
                None => writeln!(out, "  {:<18} cannot: a unit it reads is missing", way.word()),
            };
        }
    }
    let _ = writeln!(out, "  taken: {}: {}", part.way.word(), reason(part));
    if !part.plan.is_empty() {
        let _ = writeln!(out, "  plan: {}", part.plan);
    }
    for (word, steps) in [("read", &part.reads), ("write", &part.writes)] {
        for step in steps {
            let Step { role, slot, at } = step;
            let (role, bytes, offset) = (role.to_string(), high - low, at.bytes());
            let _ = writeln!(
                out,
                "    {word:<5} {role:<3} slot {slot}, {bytes} bytes at byte {offset}"
            );
        }
    }
}

fn in_brackets(roles: &[Role]) -> String {
    if roles.is_empty() { String::new() } else { format!(" ({})", names(roles)) }
}

fn names(roles: &[Role]) -> String {
    roles.iter().map(Role::to_string).collect::<Vec<_>>().join(" ")
}

/// Why this way was taken.
fn reason(part: &Part) -> String {
    let count = |reads: &Option<Vec<Role>>| reads.as_ref().map(Vec::len);
    let (modify, reconstruct) = (count(&part.modify), count(&part.reconstruct));
    match (part.way, modify, reconstruct) {
        (Way::Copies, ..) => "there is no parity, what is there is written".to_string(),
        (Way::Full, ..) => "all data is new, parity comes from it, nothing is read".to_string(),
        (Way::DataOnly, ..) => "the members of parity are missing".to_string(),
        (Way::Lost, ..) => "too many members are missing, the write fails".to_string(),
        (Way::Solve, ..) => {
            "a unit that stays is lost: it is solved from parity first, then parity is made anew"
                .to_string()
        }
        (Way::Modify, Some(modify), Some(reconstruct)) => {
            format!("it reads less ({modify} < {reconstruct})")
        }
        (Way::Modify, ..) => {
            "a unit that stays is missing, so parity cannot be made anew".to_string()
        }
        (Way::Reconstruct, Some(modify), Some(reconstruct)) if modify < reconstruct => {
            "parity is not known to be right, and read-modify-write would keep it wrong".to_string()
        }
        (Way::Reconstruct, Some(modify), Some(reconstruct)) if modify == reconstruct => {
            format!("both read {modify}, and this one also repairs a wrong parity")
        }
        (Way::Reconstruct, Some(modify), Some(reconstruct)) => {
            format!("it reads less ({reconstruct} < {modify})")
        }
        (Way::Reconstruct, ..) => "old content that the other way reads is missing".to_string(),
    }
}

fn part_json(part: &Part) -> Value {
    let bytes = (part.high - part.low).bytes();
    let names = |roles: &[Role]| roles.iter().map(Role::to_string).collect::<Vec<_>>();
    let step = |step: &Step| {
        json!({
            "role": step.role.to_string(),
            "slot": step.slot.0,
            "member_offset": step.at.bytes(),
            "bytes": bytes,
        })
    };
    json!({
        "stripe": part.stripe.no.0,
        "unit_start": part.low.bytes(),
        "unit_end": part.high.bytes(),
        "new": names(&part.new),
        "read_modify_write": part.modify.as_deref().map(names),
        "reconstruct_write": part.reconstruct.as_deref().map(names),
        "taken": part.way.word(),
        "plan": part.plan,
        "reads": part.reads.iter().map(step).collect::<Vec<_>>(),
        "writes": part.writes.iter().map(step).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(words: &str, start: u64, len: u64, failed: &[u16], unsynced: bool) -> String {
        let geometry = Geometry::of(words).unwrap();
        let missing = geometry.slots("--failed", failed).unwrap();
        let (at, len) = (Sectors::floor_bytes(start), Sectors::floor_bytes(len));
        let mut out = String::new();
        for part in teach::write(&*geometry.layout, at, len, &missing, !unsynced) {
            part_text(&geometry, &part, &mut out);
        }
        out
    }

    #[test]
    fn a_small_write_in_words() {
        let text = explained("-l5 -n5 -c64", 0, 4096, &[], false);
        let expected = "
stripe 0, bytes 0 to 4095 of each unit: new D0
  read-modify-write  reads 2 (D0 P), writes 2
  reconstruct-write  reads 3 (D1 D2 D3), writes 2
  taken: read-modify-write: it reads less (2 < 3)
  plan: read D0 P | update | commit D0 P
    read  D0  slot 0, 4096 bytes at byte 0
    read  P   slot 4, 4096 bytes at byte 0
    write D0  slot 0, 4096 bytes at byte 0
    write P   slot 4, 4096 bytes at byte 0
";
        assert_eq!(text, expected);
    }

    #[test]
    fn every_way_has_its_reason() {
        #[rustfmt::skip]
        let cases: &[(&str, u64, &[u16], bool, &str)] = &[
            ("-l5 -n5 -c4", 16_384, &[], false, "full-stripe-write: all data is new"),
            ("-l5 -n4 -c4", 4096, &[], false, "reconstruct-write: both read 2"),
            ("-l5 -n5 -c4", 12_288, &[], false, "reconstruct-write: it reads less (1 < 4)"),
            ("-l5 -n5 -c4", 4096, &[], true, "reconstruct-write: parity is not known"),
            ("-l5 -n5 -c4", 4096, &[0], false, "reconstruct-write: old content"),
            ("-l5 -n5 -c4", 4096, &[1], false, "read-modify-write: "),
            ("-l5 -n5 -c4", 4096, &[4], false, "write-data-only: "),
            ("-l5 -n5 -c4", 8192, &[1], false, "reconstruct-write: "),
            ("-l5 -n5 -c4", 4096, &[0, 1], false, "lost: too many"),
            ("-l10 -n4 -c4", 4096, &[0], false, "write-copies: "),
        ];
        for &(words, len, failed, unsynced, expected) in cases {
            let text = explained(words, 0, len, failed, unsynced);
            assert!(text.contains(&format!("taken: {expected}")), "{words} {failed:?}: {text}");
        }
    }
}
