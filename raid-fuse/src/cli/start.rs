//! From typed members to a running array, the same way for every command that needs one.

use super::choice::Choice;
use super::{members, out};
use crate::report::{Bitmap, evidence, make};
use clap::Args;
use raid_core::assembly::{self, StartOptions, layout_of};
use raid_core::device::Shared;
use raid_core::device::file::Direct;
use raid_core::driver::Array;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::{self, raid0};
use raid_core::meta::assemble::{Assembly, Candidate, Fate, Options};
use raid_core::meta::record::ArrayRecord;
use raid_core::meta::uuid;
use raid_core::units::{Sectors, Slot, SlotSet};
use std::path::PathBuf;

/// Ranges of lost data that are named in a message.
const RANGES_MAX: usize = 6;

/// What the user allows and wants when an array is started.
#[derive(Args, Clone, Debug, Default)]
pub struct Choices {
    /// Start although members are missing (mdadm's --run)
    #[arg(long, alias = "run", short_alias = 'R')]
    pub degraded: bool,
    /// Use stale members if nothing else serves; start dirty arrays without all members
    #[arg(long)]
    pub force: bool,
    /// Which array, where members of several are given.
    #[command(flatten)]
    pub array: Choice,
    /// Write changes to files in DIR; the members themselves are only read
    #[arg(long, value_name = "DIR")]
    pub overlay: Option<PathBuf>,
    /// The order of a RAID 0 of unequal members whose superblock does not say it
    #[arg(long, value_name = "ORDER", value_parser = parse_order)]
    pub raid0_layout: Option<u32>,
    /// Go around the page cache of the members: auto, on or off
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = parse_direct)]
    pub direct: Direct,
}

/// An array id as typed.
pub fn parse_uuid(text: &str) -> std::result::Result<[u8; 16], String> {
    uuid::from_text(text).map_err(|error| error.to_string())
}

fn parse_order(text: &str) -> std::result::Result<u32, String> {
    match (raid0::LEVEL.parse_layout)(text) {
        Ok(word @ (raid0::ORIGINAL | raid0::ALTERNATE)) => Ok(word),
        _ => Err(format!("found `{text}`, expected original or alternate")),
    }
}

fn parse_direct(text: &str) -> std::result::Result<Direct, String> {
    text.parse().map_err(|error: Error| error.to_string())
}

/// A running array and how it came to be.
pub struct Started {
    /// The array.
    pub array: Array,
    /// The decision.
    pub assembly: Assembly,
    /// Its write-intent bitmap.
    pub bitmap: Option<Bitmap>,
}

impl Choices {
    fn options(&self, uuid: Option<[u8; 16]>, read_only: bool) -> Options {
        Options {
            uuid,
            degraded: self.degraded,
            read_only,
            overlay: self.overlay.is_some(),
            force: self.force,
        }
    }

    /// Opens the members, decides, tells what the user should know, and starts the array.
    pub fn start(&self, specs: &[String], read_only: bool) -> Result<Started> {
        let base_read_only = read_only || self.overlay.is_some();
        let open = members::options(base_read_only, self.direct);
        // Reading needs no overlay, and none is made for it.
        let overlay = self.overlay.as_deref().filter(|_| !read_only);
        let devices = members::open(specs, &open, overlay).map_err(members::hint_read_only)?;
        let assembly = self.decide(&members::examine(&devices), read_only)?;
        self.check_raid0(&assembly, &devices)?;
        tell(&assembly, read_only);
        let options =
            StartOptions { read_only, raid0_layout: self.raid0_layout, ..StartOptions::default() };
        let bitmap = make::bitmap(&assembly, &devices);
        let array = assembly::start(&assembly, &devices, &options)?;
        if let Some(hazard) = array.layout().hazard() {
            let what = if hazard.read_only() { "read-only: " } else { "" };
            out::note(&format!("{what}{hazard}"));
        }
        Ok(Started { array, assembly, bitmap })
    }

    /// The same decision without starting anything.
    pub fn rehearse(
        &self,
        candidates: &[Candidate],
        devices: &[Shared],
        read_only: bool,
    ) -> Result<Assembly> {
        let assembly = self.decide(candidates, read_only)?;
        self.check_raid0(&assembly, devices)?;
        Ok(assembly)
    }

    /// The decision over members that were looked at; what may not be forced is refused.
    pub fn decide(&self, candidates: &[Candidate], read_only: bool) -> Result<Assembly> {
        let options = self.options(self.array.of(candidates)?, read_only);
        let assembly = assembly::decide(candidates, &options)
            .map_err(|error| self.with_stale(candidates, &options, error))?;
        if assembly.forced.is_empty() || read_only || self.overlay.is_some() {
            return Ok(assembly);
        }
        let names: Vec<&str> =
            assembly.forced.iter().map(|&index| candidates[index].name.as_str()).collect();
        Err(Error::new(
            ErrorKind::Refused,
            format!(
                "{} would be forced in although stale, and the first write could not be undone; \
                 say --read-only to look, or --overlay DIR to try it without touching the \
                 members{}",
                names.join(", "),
                from_stale(&assembly)
            ),
        ))
    }

    /// A dead array that stale members would bring back: says which data would be theirs.
    fn with_stale(&self, candidates: &[Candidate], options: &Options, error: Error) -> Error {
        if error.kind != ErrorKind::Dead || self.force {
            return error;
        }
        let forced = Options { force: true, read_only: true, degraded: true, ..options.clone() };
        match assembly::decide(candidates, &forced) {
            Ok(assembly) if !assembly.forced.is_empty() => {
                let text = format!("{error}{}", from_stale(&assembly));
                Error::new(ErrorKind::Dead, text)
            }
            _ => error,
        }
    }

    /// RAID 0 whose order nobody knows: refused, with what each order would show.
    fn check_raid0(&self, assembly: &Assembly, devices: &[Shared]) -> Result<()> {
        if assembly.array.level != 0 || self.raid0_layout.is_some() {
            return Ok(());
        }
        let Err(error) = layout_of(&assembly.array, &lens(assembly)) else { return Ok(()) };
        if error.kind != ErrorKind::Refused {
            return Err(error);
        }
        let mut text = error.to_string();
        for (name, word) in [("original", raid0::ORIGINAL), ("alternate", raid0::ALTERNATE)] {
            let options = StartOptions {
                read_only: true,
                raid0_layout: Some(word),
                ..StartOptions::default()
            };
            let found = match assembly::start(assembly, devices, &options) {
                Ok(array) => evidence::of(&array),
                Err(error) => format!("cannot be read: {error}"),
            };
            text.push_str(&format!("\n  {name:9} shows: {found}"));
        }
        Err(Error::new(ErrorKind::Refused, text))
    }
}

/// Data lengths of the members by slot.
pub fn lens(assembly: &Assembly) -> Vec<Sectors> {
    let seats = assembly.seats.iter();
    seats.map(|seat| seat.as_ref().map_or(Sectors::ZERO, |seat| seat.member.data_len)).collect()
}

/// Warnings, who was left out, and what has to be done.
pub fn tell(assembly: &Assembly, read_only: bool) {
    let left = assembly.verdicts.iter().filter(|v| !matches!(v.fate, Fate::In(_)));
    left.for_each(|verdict| out::note(&verdict.to_string()));
    assembly.warnings.iter().for_each(|warning| out::note(warning));
    if let Some(text) = dirt(assembly, read_only) {
        out::note(&text);
    }
}

/// Whether a resync is due.
pub fn needs_resync(assembly: &Assembly) -> bool {
    assembly.array.resync.is_some() && assembly.array.has_redundancy()
}

/// What an array that was not stopped cleanly needs; nothing for one that was.
pub fn dirt(assembly: &Assembly, read_only: bool) -> Option<String> {
    let from = assembly.array.resync.filter(|_| needs_resync(assembly))?;
    Some(resync(&assembly.array, from, read_only || assembly.read_only))
}

/// What an array that is dirty needs.
fn resync(array: &ArrayRecord, from: Sectors, read_only: bool) -> String {
    let done = from.min(array.component);
    let of = match done.is_empty() {
        true => String::new(),
        false => format!(" from byte {} of each on", done.bytes()),
    };
    let how = match read_only {
        true => "which is not done while it is read-only",
        false => "which is done while it is in use; `status` shows how far it is",
    };
    format!("the array is dirty: its members need a resync{of}, {how}")
}

/// Which array data only stale members have.
fn from_stale(assembly: &Assembly) -> String {
    let slots = assembly.seats.iter().enumerate().filter(|(_, seat)| {
        seat.as_ref().is_none_or(|seat| assembly.forced.contains(&seat.candidate))
    });
    let stale: SlotSet = slots.map(|(slot, _)| Slot(slot as u16)).collect();
    let Ok(layout) = layout_of(&assembly.array, &lens(assembly)) else { return String::new() };
    let lost = layout::lost(&*layout, &stale, RANGES_MAX);
    let chunk = layout.shape().chunk;
    let range = |range: &std::ops::Range<Sectors>| {
        let (first, last) = (range.start, range.end - Sectors(1));
        match chunk.is_empty() {
            true => format!("sectors {first} to {last}"),
            false if first.div_floor(chunk) == last.div_floor(chunk) => {
                format!("chunk {}", first.div_floor(chunk))
            }
            false => format!("chunks {} to {}", first.div_floor(chunk), last.div_floor(chunk)),
        }
    };
    let ranges: Vec<String> = lost.ranges.iter().map(range).collect();
    let more = if lost.more { ", and so on" } else { "" };
    format!("\n  from stale members alone would come: {}{more}", ranges.join(", "))
}
