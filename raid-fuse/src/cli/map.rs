//! `raid-fuse map`: from a byte of the array to the members and back, with the arithmetic.

use super::geometry::{self, Geometry, counts_chunks};
use super::out;
use raid_core::error::{Error, Result};
use raid_core::layout::explain::{
    Explanation, Origin, Owner, Place, array_offset, member_offset, role_name,
};
use raid_core::layout::{Code, Role};
use raid_core::units::Slot;
use serde_json::{Value, json};
use std::fmt::Write;
use std::process::ExitCode;

/// Chunks in a table, if nobody says how many.
const TABLE_CHUNKS: u64 = 24;

/// Most chunks in a table.
const TABLE_MAX: u64 = 100_000;

/// Say where a byte of the array is on the members, or the other way round
#[derive(clap::Args, Debug)]
#[command(after_help = "\
A place is written (slot,row); a row is one chunk high. OFFSET is bytes, or 12c (chunks),
100s (sectors), 64K, 8M. On members it counts from where their data begins. What is printed can be
given back: '(2,5)' or 2,5 is what lies there, '4->(0,1)' is chunk 4.

Examples:
  raid-fuse map -l10 -pf2 -n3 -c64 -z8c          a table of the first chunks
  raid-fuse map -l10 -pf2 -n3 -c64 -z8c 1c       one chunk
  raid-fuse map -l5 -n4 -c64 1234567 --explain   the arithmetic
  raid-fuse map -l5 -n4 -c64 --member 1 448135   what is there on member 1
  raid-fuse map -l5 -n4 -c64 1,6                 the same place, as it is printed")]
pub struct Args {
    /// Where in the array, or with --member on that member; without it: a table
    #[arg(value_name = "OFFSET")]
    offset: Vec<String>,

    /// OFFSET is on the member in this slot
    #[arg(long, value_name = "SLOT", requires = "offset")]
    member: Option<u16>,

    /// Print the arithmetic, step by step
    #[arg(long, requires = "offset")]
    explain: bool,

    /// Chunks in the table
    #[arg(long, value_name = "N", default_value_t = TABLE_CHUNKS)]
    chunks: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    geometry: geometry::Args,
}

/// Maps.
pub fn run(args: &Args) -> Result<ExitCode> {
    let geometry = args.geometry.build()?;
    let answers = answers(args, &geometry)?;
    if args.json {
        let answers: Vec<Value> = answers.iter().map(|a| a.json(&geometry)).collect();
        out::json(&json!({ "geometry": geometry.json(), "answers": answers }))?;
    } else {
        out::print(&to_text(args, &geometry, &answers))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The answer to one offset.
enum Answer {
    Array(Explanation),
    Member(Origin),
}

fn answers(args: &Args, geometry: &Geometry) -> Result<Vec<Answer>> {
    if args.offset.is_empty() {
        return table(args, geometry);
    }
    let layout = &*geometry.layout;
    let answer = |text: &String| {
        match asked(geometry, text, args.member)? {
            Asked::Member(slot, offset) => member_offset(layout, slot, offset).map(Answer::Member),
            Asked::Array(offset) => array_offset(layout, offset).map(Answer::Array),
        }
        .map_err(|error| hinted(geometry, error))
    };
    args.offset.iter().map(answer).collect()
}

/// What a word asks for, in bytes.
#[derive(Debug, PartialEq)]
enum Asked {
    Array(u64),
    Member(Slot, u64),
}

/// An offset; or what we print ourselves: a place, as `(2,5)` or `P(2,5)`, and a line of the
/// table, as `4->(0,1),(1,5)`, which is about chunk 4.
fn asked(geometry: &Geometry, text: &str, member: Option<u16>) -> Result<Asked> {
    if let Some(place) = place(text) {
        let (slot, row) = place.map_err(|()| {
            Error::invalid(format!("OFFSET: found '{text}'; a place is SLOT,ROW, as in 2,5"))
        })?;
        let offset = geometry.chunk().bytes().checked_mul(row).ok_or_else(|| {
            Error::invalid(format!("OFFSET: row {row} is further than any member reaches"))
        })?;
        return match member {
            Some(other) if other != slot => Err(Error::invalid(format!(
                "OFFSET: {text} is on slot {slot}, but --member says {other}"
            ))),
            _ => Ok(Asked::Member(Slot(slot), offset)),
        };
    }
    let offset = match text.split_once("->") {
        Some((chunk, _)) => geometry.offset("OFFSET", &format!("{chunk}c"))?,
        None => geometry.offset("OFFSET", text)?,
    };
    Ok(member.map_or(Asked::Array(offset), |slot| Asked::Member(Slot(slot), offset)))
}

/// Slot and row, if `text` is written like a place; an error if it is only nearly one.
fn place(text: &str) -> Option<std::result::Result<(u16, u64), ()>> {
    let word = text.trim().trim_start_matches(['P', 'Q']);
    let inner = word.strip_prefix('(').and_then(|word| word.strip_suffix(')')).unwrap_or(word);
    if word.contains("->") || !inner.contains(',') {
        return None;
    }
    let (slot, row) = inner.split_once(',')?;
    let numbers = slot.trim().parse().ok().zip(row.trim().parse().ok());
    Some(numbers.ok_or(()))
}

/// The first chunks of the array.
fn table(args: &Args, geometry: &Geometry) -> Result<Vec<Answer>> {
    if args.chunks > TABLE_MAX {
        return Err(Error::invalid(format!("--chunks: at most {TABLE_MAX} are listed")));
    }
    let shape = geometry.layout.shape();
    let chunk = geometry.chunk();
    let count = shape.size.0.div_ceil(chunk.0).min(args.chunks);
    (0..count)
        .map(|n| array_offset(&*geometry.layout, chunk.times(n).bytes()).map(Answer::Array))
        .collect()
}

/// `error`, and that the size of members was only assumed if it was.
pub fn hinted(geometry: &Geometry, error: Error) -> Error {
    match geometry.assumed {
        true => Error::new(error.kind, format!("{error}; {}", geometry.note().trim_end())),
        false => error,
    }
}

fn to_text(args: &Args, geometry: &Geometry, answers: &[Answer]) -> String {
    let mut out = format!("{}\n{}", geometry.title(), geometry.note());
    if args.offset.is_empty() {
        let word = if counts_chunks(&*geometry.layout) { "chunk" } else { "piece of 64 KiB" };
        let _ = writeln!(out, "{word}->(slot,row) of each place; bytes on the members\n");
        out += &table_text(geometry, answers);
        let listed = geometry.chunk().times(answers.len() as u64);
        if let Some(rest) = geometry.layout.shape().size.checked_sub(listed) {
            let more = rest.0.div_ceil(geometry.chunk().0);
            if more > 0 {
                let _ = writeln!(out, "... and {more} more: --chunks N lists N");
            }
        }
        return out;
    }
    for answer in answers {
        out.push('\n');
        match answer {
            Answer::Array(explanation) => array_text(geometry, explanation, &mut out),
            Answer::Member(origin) => member_text(geometry, origin, &mut out),
        }
        for step in answer.steps().iter().filter(|_| args.explain) {
            let _ = writeln!(out, "  {step}");
        }
    }
    out
}

/// One line a chunk, with the bytes of each place in a column of its own.
fn table_text(geometry: &Geometry, answers: &[Answer]) -> String {
    let lines = answers.iter().filter_map(|answer| match answer {
        Answer::Array(e) => Some((arrow(geometry, e), bytes(geometry, e))),
        Answer::Member(_) => None,
    });
    let lines: Vec<(String, String)> = lines.collect();
    let width = lines.iter().map(|(arrow, _)| arrow.len()).max().unwrap_or(0);
    lines.iter().map(|(arrow, bytes)| format!("{arrow:<width$}  {bytes}\n")).collect()
}

/// `4->(0,1),(1,5)`; parity behind the data it belongs to: `4->(1,1) P(2,1)`.
fn arrow(geometry: &Geometry, explanation: &Explanation) -> String {
    let number = explanation.offset / geometry.chunk().bytes();
    let places: Vec<String> = data_places(explanation).map(|p| pair(geometry, p)).collect();
    let mut text = format!("{number}->{}", places.join(","));
    for place in explanation.places.iter().filter(|p| p.role.is_parity()) {
        text += &format!(" {}{}", role_name(place.role), pair(geometry, place));
    }
    text
}

fn bytes(geometry: &Geometry, explanation: &Explanation) -> String {
    let offsets: Vec<String> = match geometry.layout.shape().code {
        Code::Copy => data_places(explanation).map(|place| place.offset.to_string()).collect(),
        // Parity is in the same row as its data.
        _ => data_places(explanation).take(1).map(|place| place.offset.to_string()).collect(),
    };
    offsets.join(", ")
}

fn data_places(explanation: &Explanation) -> impl Iterator<Item = &Place> {
    explanation.places.iter().filter(|place| !place.role.is_parity())
}

fn pair(geometry: &Geometry, place: &Place) -> String {
    format!("({},{})", place.slot, row(geometry, place.offset))
}

fn row(geometry: &Geometry, offset: u64) -> u64 {
    offset / geometry.chunk().bytes()
}

fn array_text(geometry: &Geometry, explanation: &Explanation, out: &mut String) {
    let Explanation { offset, stripe, .. } = explanation;
    let chunk = geometry.chunk().bytes();
    let (number, within) = (offset / chunk, offset % chunk);
    // md has stripes only where there is parity.
    let parity = geometry.layout.shape().code.has_parity();
    let stripe = if parity { format!("; stripe {}", stripe.0) } else { String::new() };
    let _ = match counts_chunks(&*geometry.layout) {
        true => writeln!(
            out,
            "byte {offset} of the array: chunk {number}, {within} bytes into it{stripe}"
        ),
        false => writeln!(out, "byte {offset} of the array"),
    };
    let _ = writeln!(out, "{}", arrow(geometry, explanation));
    for place in &explanation.places {
        let row = row(geometry, place.offset);
        let Place { slot, offset, .. } = place;
        let role = role_name(place.role);
        let _ = write!(out, "  {role:<7} slot {slot}, row {row}: byte {offset} of its data");
        if geometry.layout.shape().code == Code::PQ && matches!(place.role, Role::Data(_)) {
            let _ = write!(out, "; 2^{} in Q", place.power);
        }
        out.push('\n');
    }
}

fn member_text(geometry: &Geometry, origin: &Origin, out: &mut String) {
    let Origin { slot, offset, .. } = origin;
    let what = match origin.owner {
        Owner::Data { offset, copy } => {
            let chunk = geometry.chunk().bytes();
            let (number, within) = (offset / chunk, offset % chunk);
            let of = match counts_chunks(&*geometry.layout) {
                true => format!(" (chunk {number}, {within} bytes into it)"),
                false => String::new(),
            };
            let copy = if copy == 0 { String::new() } else { format!("copy {copy} of ") };
            format!("{copy}byte {offset} of the array{of}")
        }
        Owner::P | Owner::Q => {
            let name = if origin.owner == Owner::P { "P" } else { "Q" };
            let stripe = origin.stripe.map_or(0, |stripe| stripe.0);
            format!("{name} of stripe {stripe}, {}", stripe_chunks(geometry, stripe))
        }
        Owner::Unused => "not used by the array".to_string(),
    };
    let row = row(geometry, *offset);
    let _ = writeln!(out, "byte {offset} of slot {slot} ({slot},{row}): {what}");
}

/// Which chunks a parity protects.
fn stripe_chunks(geometry: &Geometry, stripe: u64) -> String {
    let units = u64::from(geometry.layout.shape().data_units);
    match units {
        1 => format!("which holds chunk {stripe}"),
        _ => format!("which holds chunks {} to {}", stripe * units, (stripe + 1) * units - 1),
    }
}

impl Answer {
    fn steps(&self) -> &[String] {
        match self {
            Answer::Array(explanation) => &explanation.steps,
            Answer::Member(origin) => &origin.steps,
        }
    }

    fn json(&self, geometry: &Geometry) -> Value {
        let chunk = |offset: u64| {
            counts_chunks(&*geometry.layout).then(|| offset / geometry.chunk().bytes())
        };
        match self {
            Answer::Array(explanation) => json!({
                "array_offset": explanation.offset,
                "chunk": chunk(explanation.offset),
                "stripe": explanation.stripe.0,
                "places": places_json(geometry, &explanation.places),
                "steps": explanation.steps,
            }),
            Answer::Member(origin) => {
                let (role, at, copy) = match origin.owner {
                    Owner::Data { offset, copy } => ("data", Some(offset), Some(copy)),
                    Owner::P => ("p", None, None),
                    Owner::Q => ("q", None, None),
                    Owner::Unused => ("unused", None, None),
                };
                json!({
                    "slot": origin.slot.0,
                    "row": row(geometry, origin.offset),
                    "member_offset": origin.offset,
                    "kind": role,
                    "array_offset": at,
                    "chunk": at.and_then(chunk),
                    "copy": copy,
                    "stripe": origin.stripe.map(|stripe| stripe.0),
                    "steps": origin.steps,
                })
            }
        }
    }
}

/// Places for programs.
pub fn places_json(geometry: &Geometry, places: &[Place]) -> Vec<Value> {
    let place = |place: &Place| {
        json!({
            "role": role_name(place.role),
            "slot": place.slot.0,
            "row": row(geometry, place.offset),
            "member_offset": place.offset,
        })
    };
    places.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of `words`, without its columns of bytes.
    fn arrows(words: &str) -> Vec<String> {
        let geometry = Geometry::of(words).unwrap();
        let args = Args {
            offset: Vec::new(),
            member: None,
            explain: false,
            chunks: TABLE_CHUNKS,
            json: false,
            geometry: geometry::Args::default(),
        };
        let answers = table(&args, &geometry).unwrap();
        let explained = answers.iter().map(|answer| match answer {
            Answer::Array(explanation) => arrow(&geometry, explanation),
            Answer::Member(_) => panic!("a table is about the array"),
        });
        explained.collect()
    }

    #[test]
    fn far_copies_are_a_section_down_and_a_member_on() {
        let table = arrows("-l10 -pf2 -n3 -z 8c");
        let expected = ["0->(0,0),(1,4)", "1->(1,0),(2,4)", "2->(2,0),(0,4)", "3->(0,1),(1,5)"];
        assert_eq!((&table[..4], table.len()), (&expected.map(String::from)[..], 12));
    }

    #[test]
    fn rotations_of_raid5_under_their_names() {
        // Slot and parity slot of chunks 0 to 5 on four members.
        #[rustfmt::skip]
        let cases = [
            ("ls", [(0, 3), (1, 3), (2, 3), (3, 2), (0, 2), (1, 2)]),
            ("left-asynchronous", [(0, 3), (1, 3), (2, 3), (0, 2), (1, 2), (3, 2)]),
            ("right-symmetric", [(1, 0), (2, 0), (3, 0), (2, 1), (3, 1), (0, 1)]),
            ("right-data-restart", [(1, 0), (2, 0), (3, 0), (0, 1), (2, 1), (3, 1)]),
        ];
        for (name, slots) in cases {
            let table = arrows(&format!("-l5 -n4 -p {name}"));
            for (chunk, (slot, p)) in slots.into_iter().enumerate() {
                let row = chunk / 3;
                assert_eq!(table[chunk], format!("{chunk}->({slot},{row}) P({p},{row})"), "{name}");
            }
        }
    }

    #[test]
    fn zones_of_unequal_members_in_both_orders() {
        let sizes = "-l0 -c64 --member-sizes 3c,6c,6c";
        let original = arrows(sizes);
        assert_eq!(original[9..11], ["9->(2,3)", "10->(1,3)"]);
        let alternate = arrows(&format!("{sizes} -p alternate"));
        assert_eq!(alternate[9..11], ["9->(1,3)", "10->(2,3)"]);
        let unset = Geometry::of(&format!("{sizes} -p unset")).unwrap_err().to_string();
        assert!(unset.contains("original") || unset.contains("layout"), "{unset}");
        assert!(Geometry::of("-l0 -c64 --member-sizes 4c,6c,6c -p unset").is_ok());
    }

    #[test]
    fn every_place_that_is_printed_is_accepted_back() {
        for words in ["-l5 -n4", "-l6 -n5", "-l10 -pf2 -n3 -z8c", "-l10 -n5 -po2", "-l0 -n3"] {
            let geometry = Geometry::of(words).unwrap();
            for line in arrows(words) {
                let number: u64 = line.split("->").next().unwrap().parse().unwrap();
                let start = number * geometry.chunk().bytes();
                assert_eq!(asked(&geometry, &line, None).unwrap(), Asked::Array(start), "{line}");
                let data = line.split_once("->").unwrap().1.split(' ').next().unwrap();
                for place in data.split("),").map(|p| format!("{})", p.trim_end_matches(')'))) {
                    let Asked::Member(slot, at) = asked(&geometry, &place, None).unwrap() else {
                        panic!("{place} is on a member");
                    };
                    let origin = member_offset(&*geometry.layout, slot, at).unwrap();
                    let found =
                        matches!(origin.owner, Owner::Data { offset, .. } if offset == start);
                    assert!(found, "{words}: {line}: {place}: {origin:?}");
                }
                for parity in line.split(' ').filter(|word| word.starts_with(['P', 'Q'])) {
                    assert!(matches!(asked(&geometry, parity, None).unwrap(), Asked::Member(..)));
                }
            }
        }
        let geometry = Geometry::of("-l5 -n4").unwrap();
        assert!(matches!(asked(&geometry, "1,6", Some(1)).unwrap(), Asked::Member(Slot(1), _)));
        for wrong in ["(1,6", "1,x", ",", "1,2,3", "-1,2", "1,99999999999999999"] {
            assert!(asked(&geometry, wrong, None).is_err(), "{wrong}");
        }
        assert!(asked(&geometry, "1,6", Some(2)).unwrap_err().to_string().contains("--member"));
    }

    #[test]
    fn striping_and_mirroring_as_courses_count_them() {
        let striped = arrows("-l0 -n4");
        assert_eq!((&striped[16][..], &striped[8][..]), ("16->(0,4)", "8->(0,2)"));
        assert_eq!(arrows("-l10 -n4")[10], "10->(0,5),(1,5)");
    }
}
