//! `raid-fuse explain-read`: what has to be read for some bytes, also when members are missing,
//! and which of several requests can run at the same time.

use super::geometry::{self, Geometry, slot_numbers};
use super::map::{hinted, places_json};
use super::out;
use super::survives::braces;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::explain::{self, Place, ReadExplanation, role_name};
use raid_core::units::{Sectors, Slot, SlotSet};
use serde_json::{Value, json};
use std::fmt::Write;
use std::ops::Range;
use std::process::ExitCode;

/// Most pieces of all requests together: this is for eyes.
const PIECES_MAX: usize = 1024;

/// Most requests whose pairs are told one by one.
const PAIRS_OF_MAX: usize = 8;

/// Say what has to be read for some bytes, also when members are missing
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Exit status: 0, or 2 if something cannot be read without the failed members.

Examples:
  raid-fuse explain-read -l5 -n5 --failed 0 --block 0
  raid-fuse explain-read -l5 -n5 --failed 0 --block 0,1,6   which can run in parallel
  raid-fuse explain-read -l6 -n6 -c64 --failed 0,2 100K 64K")]
pub struct Args {
    /// First byte to read, in the array
    #[arg(value_name = "OFFSET", conflicts_with = "block", required_unless_present = "block")]
    offset: Option<String>,

    /// How much to read [default: to the end of the chunk]
    #[arg(value_name = "LENGTH")]
    length: Option<String>,

    /// Read these chunks, each as a request of its own
    #[arg(long, value_name = "CHUNKS", value_delimiter = ',')]
    block: Vec<u64>,

    /// These slots are missing
    #[arg(long, visible_aliases = ["missing", "lost"], value_name = "SLOTS", value_delimiter = ',')]
    failed: Vec<u16>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    geometry: geometry::Args,
}

/// Explains.
pub fn run(args: &Args) -> Result<ExitCode> {
    let geometry = args.geometry.build()?;
    let missing = geometry.slots("--failed", &args.failed)?;
    let requests = requests(args, &geometry, &missing)?;
    let rounds = rounds(&requests);
    if args.json {
        let requests_json: Vec<Value> = requests.iter().map(|r| r.json(&geometry)).collect();
        out::json(&json!({
            "geometry": geometry.json(),
            "failed": slot_numbers(&missing),
            "requests": requests_json,
            "rounds": rounds,
        }))?;
    } else {
        let mut out = format!("{}\n{}", geometry.title(), geometry.note());
        if !missing.is_empty() {
            let _ = writeln!(out, "without {}", braces(&missing));
        }
        requests.iter().for_each(|request| request.write_text(&geometry, &mut out));
        write_rounds(&requests, &rounds, &mut out);
        out::print(&out)?;
    }
    let dead = requests.iter().flat_map(|r| &r.pieces).any(|piece| piece.read.is_err());
    Ok(if dead { ExitCode::from(super::exit::DEAD) } else { ExitCode::SUCCESS })
}

/// One thing to read.
struct Request {
    name: String,
    start: u64,
    len: u64,
    pieces: Vec<Piece>,
}

/// The part of a request in one unit.
struct Piece {
    start: u64,
    len: u64,
    /// How it is read, or why it cannot be.
    read: std::result::Result<ReadExplanation, String>,
}

fn requests(args: &Args, geometry: &Geometry, missing: &SlotSet) -> Result<Vec<Request>> {
    let size = geometry.layout.shape().size.bytes();
    let mut ranges = Vec::new();
    for &block in &args.block {
        let chunk = geometry.chunk().bytes();
        let start = block.checked_mul(chunk).filter(|&start| start < size).ok_or_else(|| {
            let last = (size - 1) / chunk;
            let message = format!("--block: there is no chunk {block}: the last one is {last}");
            hinted(geometry, Error::invalid(message))
        })?;
        ranges.push((format!("chunk {block}"), start, chunk.min(size - start)));
    }
    if let Some(text) = &args.offset {
        let start = geometry.offset("OFFSET", text)?;
        let rest = geometry.chunk().bytes() - start % geometry.chunk().bytes();
        let len = match &args.length {
            Some(text) => geometry.offset("LENGTH", text)?,
            None => rest.min(size.saturating_sub(start)),
        };
        check_range(geometry, start, len)?;
        ranges.push((format!("{len} bytes at byte {start}"), start, len));
    }
    let mut left = PIECES_MAX;
    let mut requests = Vec::new();
    for (name, start, len) in ranges {
        let pieces = pieces(geometry, start, len, missing, &mut left)?;
        requests.push(Request { name, start, len, pieces });
    }
    Ok(requests)
}

/// The range is inside the array and not empty.
pub fn check_range(geometry: &Geometry, start: u64, len: u64) -> Result<()> {
    let size = geometry.layout.shape().size.bytes();
    if len == 0 {
        return Err(Error::invalid("LENGTH: nothing is asked for; give at least one byte"));
    }
    match start.checked_add(len).is_some_and(|end| end <= size) {
        true => Ok(()),
        false => Err(hinted(
            geometry,
            Error::invalid(format!(
                "{len} bytes at byte {start} reach beyond the end of the array, which has {size} \
                 bytes"
            )),
        )),
    }
}

/// The range, cut where units end.
fn pieces(
    geometry: &Geometry,
    start: u64,
    len: u64,
    missing: &SlotSet,
    left: &mut usize,
) -> Result<Vec<Piece>> {
    let layout = &*geometry.layout;
    let (mut at, end) = (start, start + len);
    let mut pieces = Vec::new();
    while at < end {
        *left = left.checked_sub(1).ok_or_else(|| {
            Error::invalid(format!("that is more than {PIECES_MAX} chunks; ask for less"))
        })?;
        let sector = Sectors::floor_bytes(at);
        let stripe = layout.stripe(layout.locate(sector));
        let unit = (sector - stripe.start).div_floor(stripe.len);
        let unit_end = (stripe.start + stripe.len.times(unit + 1)).bytes();
        let stop = end.min(unit_end);
        let read = match explain::read(layout, at, missing) {
            Ok(read) => Ok(read),
            Err(error) if error.kind == ErrorKind::Dead => {
                Err(format!("lost, cannot be read without slots {}", braces(missing)))
            }
            Err(error) => return Err(error),
        };
        pieces.push(Piece { start: at, len: stop - at, read });
        at = stop;
    }
    Ok(pieces)
}

/// Requests by number in rounds: those of a round share no member, so that they run in parallel.
/// Each goes into the first round where its members are free.
fn rounds(requests: &[Request]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<(SlotSet, Vec<usize>)> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let touched = request.touched();
        let free = rounds.iter_mut().find(|(busy, _)| !touched.iter().any(|s| busy.contains(s)));
        match free {
            Some((busy, members)) => {
                *busy = busy.iter().chain(touched.iter()).collect();
                members.push(index);
            }
            None => rounds.push((touched, vec![index])),
        }
    }
    rounds.into_iter().map(|(_, members)| members).collect()
}

fn write_rounds(requests: &[Request], rounds: &[Vec<usize>], out: &mut String) {
    if requests.len() < 2 {
        return;
    }
    out.push('\n');
    let few = if requests.len() <= PAIRS_OF_MAX { requests } else { &[] };
    for (i, one) in few.iter().enumerate() {
        for other in &few[i + 1..] {
            let shared: SlotSet =
                one.touched().iter().filter(|&slot| other.touched().contains(slot)).collect();
            let _ = match shared.is_empty() {
                true => writeln!(out, "{} and {}: in parallel", one.name, other.name),
                false => writeln!(
                    out,
                    "{} and {}: one after the other on {}",
                    one.name,
                    other.name,
                    braces(&shared)
                ),
            };
        }
    }
    for (number, round) in rounds.iter().enumerate() {
        let names: Vec<&str> = round.iter().map(|&index| requests[index].name.as_str()).collect();
        let _ = writeln!(out, "round {}: {}", number + 1, names.join(", "));
    }
}

impl Request {
    /// The members it needs.
    fn touched(&self) -> SlotSet {
        let reads = self.pieces.iter().filter_map(|piece| piece.read.as_ref().ok());
        reads.flat_map(|read| &read.reads).map(|place| place.slot).collect()
    }

    fn write_text(&self, geometry: &Geometry, out: &mut String) {
        let _ = writeln!(out, "\n{}", self.name);
        for piece in &self.pieces {
            let Piece { start, len, read } = piece;
            let (chunk, last) = (start / geometry.chunk().bytes(), start + len - 1);
            match read {
                Err(why) => {
                    let _ = writeln!(out, "  bytes {start} to {last}: {why}");
                }
                Ok(read) => {
                    let slot = read.wanted.slot;
                    let _ = writeln!(
                        out,
                        "  bytes {start} to {last} (chunk {chunk}, on slot {slot}): {}",
                        read.formula
                    );
                    for place in &read.reads {
                        let again = self.reads_before(piece, place);
                        write_read(place, *len, again, out);
                    }
                }
            }
        }
        self.write_account(out);
    }

    /// True if a piece before `piece` reads all of the same bytes.
    fn reads_before(&self, piece: &Piece, place: &Place) -> bool {
        let before = self.pieces.iter().take_while(|other| other.start < piece.start);
        let ranges = before.flat_map(Piece::ranges).filter(|(slot, _)| *slot == place.slot);
        let (start, end) = (place.offset, place.offset + piece.len);
        ranges.into_iter().any(|(_, range)| range.start <= start && end <= range.end)
    }

    /// How much is read in all: what several pieces need is read once.
    fn write_account(&self, out: &mut String) {
        let lost: u64 = self.pieces.iter().filter(|p| p.read.is_err()).map(|p| p.len).sum();
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (reads, touched) = (self.reads(), self.touched());
        let (count, members) = (reads.len(), touched.len());
        let bytes: u64 = reads.iter().map(|(_, range)| range.end - range.start).sum();
        if count > 0 {
            let _ = writeln!(
                out,
                "  {count} read{} on {members} member{}: {}, {bytes} bytes",
                plural(count),
                plural(members),
                braces(&touched)
            );
        }
        if lost > 0 {
            let _ = writeln!(out, "  {lost} of {} bytes cannot be read", self.len);
        }
    }

    /// What is read of the members: no byte twice, and neighbouring bytes in one read.
    fn reads(&self) -> Vec<(Slot, Range<u64>)> {
        let mut ranges: Vec<(Slot, Range<u64>)> =
            self.pieces.iter().flat_map(Piece::ranges).collect();
        ranges.sort_by_key(|(slot, range)| (*slot, range.start, range.end));
        let mut reads: Vec<(Slot, Range<u64>)> = Vec::new();
        for (slot, range) in ranges {
            match reads.last_mut() {
                Some((last, read)) if *last == slot && range.start <= read.end => {
                    read.end = read.end.max(range.end);
                }
                _ => reads.push((slot, range)),
            }
        }
        reads
    }

    fn json(&self, geometry: &Geometry) -> Value {
        let piece = |piece: &Piece| {
            let (formula, wanted, reads) = match &piece.read {
                Ok(read) => (
                    Some(read.formula.clone()),
                    places_json(geometry, &[read.wanted]).pop(),
                    places_json(geometry, &read.reads),
                ),
                Err(_) => (None, None, Vec::new()),
            };
            json!({
                "array_offset": piece.start,
                "bytes": piece.len,
                "lost": piece.read.is_err(),
                "formula": formula,
                "wanted": wanted,
                "reads": reads,
            })
        };
        json!({
            "array_offset": self.start,
            "bytes": self.len,
            "members": slot_numbers(&self.touched()),
            "member_reads": reads_json(&self.reads()),
            "pieces": self.pieces.iter().map(piece).collect::<Vec<_>>(),
        })
    }
}

impl Piece {
    /// The bytes of members that it needs.
    fn ranges(&self) -> Vec<(Slot, Range<u64>)> {
        let reads = self.read.iter().flat_map(|read| &read.reads);
        reads.map(|place| (place.slot, place.offset..place.offset + self.len)).collect()
    }
}

/// Reads for programs.
fn reads_json(reads: &[(Slot, Range<u64>)]) -> Vec<Value> {
    let read = |(slot, range): &(Slot, Range<u64>)| {
        let (start, bytes) = (range.start, range.end - range.start);
        json!({ "slot": slot.0, "member_offset": start, "bytes": bytes })
    };
    reads.iter().map(read).collect()
}

fn write_read(place: &Place, len: u64, again: bool, out: &mut String) {
    let (role, slot, offset) = (role_name(place.role), place.slot, place.offset);
    let again = if again { ", read above" } else { "" };
    let _ = writeln!(out, "    read {role:<7} slot {slot}, {len} bytes at byte {offset}{again}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(words: &str, block: &[u64], failed: &[u16]) -> Vec<Request> {
        let geometry = Geometry::of(words).unwrap();
        let missing = geometry.slots("--failed", failed).unwrap();
        let args = Args {
            offset: None,
            length: None,
            block: block.to_vec(),
            failed: failed.to_vec(),
            json: false,
            geometry: geometry::Args::default(),
        };
        requests(&args, &geometry, &missing).unwrap()
    }

    #[test]
    fn a_lost_block_is_read_from_all_others() {
        let requests = asked("-l5 -n5", &[0], &[0]);
        let read = requests[0].pieces[0].read.as_ref().unwrap();
        assert_eq!(read.formula, "D0 = D1 ^ D2 ^ D3 ^ P");
        assert_eq!(braces(&requests[0].touched()), "{1,2,3,4}");
    }

    #[test]
    fn what_several_pieces_need_is_read_once() {
        let geometry = Geometry::of("-l5 -n4 -c64").unwrap();
        let missing = geometry.slots("--failed", &[1]).unwrap();
        let pieces = pieces(&geometry, 0, 192 << 10, &missing, &mut 100).unwrap();
        let request = Request { name: String::new(), start: 0, len: 192 << 10, pieces };
        let chunk = 65_536;
        // D0 and D2 are wanted themselves, and for D1.
        let expected: Vec<_> = [0, 2, 3].map(|slot| (Slot(slot), 0..chunk)).into();
        assert_eq!(request.reads(), expected);
        let mut text = String::new();
        request.write_text(&geometry, &mut text);
        assert!(text.contains("3 reads on 3 members: {0,2,3}, 196608 bytes"), "{text}");
        assert_eq!(text.matches("read above").count(), 2, "{text}");
    }

    #[test]
    fn requests_that_share_no_member_run_in_parallel() {
        assert_eq!(rounds(&asked("-l5 -n5", &[0, 1, 2, 3], &[])), [vec![0, 1, 2, 3]]);
        // Chunk 0 needs every member that is left; 4 is on slot 4 and 5 would be on the lost one.
        assert_eq!(rounds(&asked("-l5 -n5", &[0, 1, 4], &[0])), [vec![0], vec![1, 2]]);
        assert_eq!(rounds(&asked("-l0 -n2", &[0, 2, 1], &[])), [vec![0, 2], vec![1]]);
    }

    #[test]
    fn what_cannot_be_read_is_told_beside_what_can() {
        let requests = asked("-l0 -n2", &[0, 1], &[0]);
        assert!(requests[0].pieces[0].read.is_err());
        assert!(requests[1].pieces[0].read.is_ok());
    }
}
