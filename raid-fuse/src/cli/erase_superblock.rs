//! `erase-superblock`: what makes a device a member is taken away, and nothing else.
//!
//! Zeroes the blocks of the md superblocks found, as `mdadm --zero-superblock` does, and what md
//! wrote beside them: bitmap, bad-block log and an empty PPL header, each only where it holds just
//! that, so that the device counts as empty again. Data stay as they are and are named. All
//! devices are checked before the first byte.

use super::{members, out};
use crate::rundir;
use raid_core::assembly;
use raid_core::device::{OpenOptions, Shared, read_at, write_at};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::md1::emit::emit_bad_blocks;
use raid_core::meta::md1::features::{MULTIPLE_PPLS, PPL};
use raid_core::meta::md1::packet::Packet;
use raid_core::meta::record::Area;
use raid_core::meta::{Found, PROBED, Sighting, md_bitmap, md_ppl, uuid};
use raid_core::units::{SECTOR, Sectors};
use std::process::ExitCode;

/// Most that is zeroed at once.
const PIECE: Sectors = Sectors::kib(1024);

/// Arguments of `erase-superblock`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Prints the exact ranges. Data are not touched, so an array created again with the same geometry
would find them. Bitmap, bad-block log and an empty PPL go with their superblock where they hold
what md writes there; what stays is named.

Examples:
  raid-fuse erase-superblock --dry-run d0.img
  raid-fuse erase-superblock d0.img d1.img
  raid-fuse erase-superblock -e 0.90 d0.img     (only an old one beside a new one)

Exit codes: 0 erased, 4 refused (needs --force), 5 in use, 1 anything else.")]
pub struct Args {
    /// Files or block devices
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Print the ranges, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Also superblocks that are damaged, and of arrays that are mounted without this member
    #[arg(long, short)]
    force: bool,
    /// Only superblocks of this version: 1.2, 1.1, 1.0 or 0.90 [default: every one]
    #[arg(long, short = 'e', value_name = "VERSION", value_parser = parse_version)]
    metadata: Option<&'static str>,
}

fn parse_version(text: &str) -> std::result::Result<&'static str, String> {
    let names: Vec<&str> = PROBED.iter().map(|format| format.name).collect();
    PROBED
        .iter()
        .map(|format| format.name)
        .find(|name| *name == text)
        .ok_or_else(|| format!("found `{text}`, expected one of {}", names.join(", ")))
}

/// A device and the superblocks to erase.
struct Plan {
    device: Shared,
    sightings: Vec<Sighting>,
    /// Those that are not asked for stay.
    others: Vec<Sighting>,
}

/// Checks all, then erases all.
pub fn run(args: &Args) -> Result<ExitCode> {
    let how = match args.dry_run {
        true => OpenOptions::reading(),
        false => OpenOptions::default(),
    };
    let devices = members::open(&args.members, &how, None)?;
    let plans: Vec<Plan> =
        devices.into_iter().map(|device| plan(args, device)).collect::<Result<_>>()?;
    if !args.force {
        plans.iter().try_for_each(check)?;
    }
    for plan in &plans {
        let (mut text, name) = (String::new(), &plan.device.facts().name);
        for sighting in &plan.sightings {
            let areas = areas(plan, sighting);
            if !args.dry_run {
                erase(&plan.device, sighting)?;
                areas.iter().filter(|area| area.goes).try_for_each(|a| zero(&plan.device, a))?;
            }
            text.push_str(&format!("{name}: {}\n", erased(args, sighting)));
            for Beside { what, area, .. } in areas.iter().filter(|area| area.goes) {
                text.push_str(&format!("  {what} {} {}\n", zeroed(args), range(*area)));
            }
            if let Ok(found) = &sighting.record {
                let left = left(&areas, found);
                text.push_str(&format!("  stays as it is: {}\n", left.join(", ")));
            }
        }
        out::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args, device: Shared) -> Result<Plan> {
    let sightings = assembly::content(&*device)?.md;
    let all: Vec<&str> = sightings.iter().map(|sighting| sighting.format.name).collect();
    let there = if all.is_empty() { "none is there".into() } else { all.join(", ") + " is there" };
    let is_meant =
        |sighting: &Sighting| args.metadata.is_none_or(|name| name == sighting.format.name);
    let (sightings, others): (Vec<Sighting>, Vec<Sighting>) =
        sightings.into_iter().partition(is_meant);
    if sightings.is_empty() {
        let which = args.metadata.map_or(String::new(), |name| format!(" {name}"));
        let name = &device.facts().name;
        return Err(Error::invalid(format!(
            "{name} carries no md{which} superblock ({there}); nothing was erased"
        )));
    }
    Ok(Plan { device, sightings, others })
}

/// What a second look is needed for.
fn check(plan: &Plan) -> Result<()> {
    let name = &plan.device.facts().name;
    for sighting in &plan.sightings {
        let (format, at) = (sighting.format, sighting.at);
        // 0.90 is recognised whole, but makes no record.
        if !sighting.identity().is_sound || (sighting.record.is_err() && format.name != "0.90") {
            let why = match &sighting.record {
                Err(error) => error.to_string(),
                Ok(_) => "its checksum is wrong".into(),
            };
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{name}: the md {format} superblock at sector {at} is damaged: {why}; it may \
                     be all that tells what was here. To erase it: the same command with --force"
                ),
            ));
        }
        if let Some(mountpoint) = mounted_where(&sighting.identity().uuid) {
            return Err(Error::new(
                ErrorKind::Refused,
                format!(
                    "{name} belongs to the array that is mounted on {mountpoint} without it; it \
                     could be added again. To erase it all the same: --force"
                ),
            ));
        }
    }
    Ok(())
}

/// The mount of ours that serves the array of this id.
fn mounted_where(uuid: &[u8; 16]) -> Option<String> {
    let serves = |path: &std::path::PathBuf| {
        let device = members::look(&path.to_string_lossy()).ok()?;
        let sightings = assembly::content(&*device).ok()?.md;
        sightings.iter().any(|sighting| sighting.identity().uuid == *uuid).then_some(())
    };
    let records = rundir::list().into_iter().filter(rundir::is_alive);
    let record = records.into_iter().find(|r| r.members.iter().any(|path| serves(path).is_some()));
    record.map(|record| record.mountpoint.display().to_string())
}

fn erase(device: &Shared, sighting: &Sighting) -> Result<()> {
    let io = |error| Error::io(format!("erasing a superblock of {}", device.facts().name), error);
    write_at(&**device, sighting.at, &vec![0; sighting.bytes.len()]).map_err(io)?;
    device.flush().map_err(io)
}

fn erased(args: &Args, sighting: &Sighting) -> String {
    let len = Sectors::floor_bytes(sighting.bytes.len() as u64);
    format!(
        "md {} superblock of array {} {} {}",
        sighting.format,
        uuid::to_text(&sighting.identity().uuid),
        zeroed(args),
        range(Area { at: sighting.at, len })
    )
}

fn zeroed(args: &Args) -> &'static str {
    if args.dry_run { "would be zeroed:" } else { "zeroed:" }
}

/// `bytes 4096 to 8191 (sectors 8 to 15)`.
fn range(area: Area) -> String {
    // As u128, since areas in damaged superblocks need not fit.
    let byte = |sector: u64| u128::from(sector) * u128::from(SECTOR);
    let end = area.at.0.saturating_add(area.len.0);
    format!(
        "bytes {} to {} (sectors {} to {})",
        byte(area.at.0),
        byte(end).saturating_sub(1),
        area.at,
        end.saturating_sub(1)
    )
}

/// Something of md beside a superblock.
struct Beside {
    what: &'static str,
    area: Area,
    /// It holds what md writes there and nothing else, so it goes with the superblock.
    goes: bool,
}

/// What else of md is on the device, as the superblock says.
fn areas(plan: &Plan, sighting: &Sighting) -> Vec<Beside> {
    let Ok(found) = &sighting.record else { return Vec::new() };
    let (member, device) = (&found.member, &plan.device);
    let mut areas = Vec::new();
    if let Some(at) = member.bitmap_at {
        let bitmap = bitmap_area(device, &found.array.uuid, at);
        let area = bitmap.unwrap_or(Area { at, len: Sectors(8) });
        areas.push(Beside { what: "bitmap", area, goes: bitmap.is_some() });
    }
    let packet = Packet::new(&member.raw);
    if packet.features() & (PPL | MULTIPLE_PPLS) != 0 {
        let at = member.super_at.0.checked_add_signed(packet.ppl_offset().into());
        if let Some(at) = at.map(Sectors) {
            let header = Area { at, len: md_ppl::HEADER_LEN };
            let header = holds(device, header, |bytes| {
                let header = md_ppl::parse(bytes, &found.array.uuid);
                header.is_some_and(|header| header.entries.is_empty())
            });
            let (len, what) = match header {
                true => (md_ppl::HEADER_LEN, "empty PPL header"),
                false => (Sectors(packet.ppl_size().into()), "PPL"),
            };
            areas.push(Beside { what, area: Area { at, len }, goes: header });
        }
    }
    if let (Some(area), Ok(log)) = (member.bad_log, emit_bad_blocks(member)) {
        let goes = log.is_some_and(|(_, log)| holds(device, area, |bytes| bytes == log));
        areas.push(Beside { what: "bad-block log", area, goes });
    }
    for beside in &mut areas {
        beside.goes &= is_apart(plan, sighting, beside.area);
    }
    areas
}

/// True if `area` can be read and is as `test` wants it.
fn holds(device: &Shared, area: Area, test: impl Fn(&[u8]) -> bool) -> bool {
    let mut bytes = vec![0; area.len.len()];
    read_at(&**device, area.at, &mut bytes).is_ok() && test(&bytes)
}

/// True if `area` is on the device and touches neither the data nor any other superblock.
fn is_apart(plan: &Plan, sighting: &Sighting, area: Area) -> bool {
    let Ok(found) = &sighting.record else { return false };
    let data = Area { at: found.member.data_at, len: found.member.data_len };
    let apart = |other: Area| {
        let (end, its_end) =
            (area.at.0.checked_add(area.len.0), other.at.0.checked_add(other.len.0));
        end.is_some_and(|end| end <= other.at.0) || its_end.is_some_and(|end| end <= area.at.0)
    };
    let superblock = |sighting: &Sighting| {
        let len = Sectors::floor_bytes(sighting.bytes.len() as u64);
        Area { at: sighting.at, len }
    };
    let end = area.at.0.checked_add(area.len.0);
    end.is_some_and(|end| end <= plan.device.facts().sectors.0)
        && apart(data)
        && plan.sightings.iter().chain(&plan.others).all(|sighting| apart(superblock(sighting)))
}

/// Zeroes in pieces, since a bitmap has the length it claims.
fn zero(device: &Shared, beside: &Beside) -> Result<()> {
    let name = &device.facts().name;
    let io = |error| Error::io(format!("erasing the {} of {name}", beside.what), error);
    let (mut at, mut left) = (beside.area.at, beside.area.len);
    while !left.is_empty() {
        let piece = left.min(PIECE);
        write_at(&**device, at, &vec![0; piece.len()]).map_err(io)?;
        (at, left) = (at + piece, left - piece);
    }
    device.flush().map_err(io)
}

/// What stays.
fn left(areas: &[Beside], found: &Found) -> Vec<String> {
    let line = |beside: &Beside| format!("{}, {}", beside.what, range(beside.area));
    let mut parts: Vec<String> = areas.iter().filter(|area| !area.goes).map(line).collect();
    let (at, len) = (found.member.data_at, found.member.data_len);
    parts.push(format!("data, {}", range(Area { at, len })));
    parts
}

fn bitmap_area(device: &Shared, uuid: &[u8; 16], at: Sectors) -> Option<Area> {
    let mut head = vec![0; SECTOR as usize];
    read_at(&**device, at, &mut head).ok()?;
    Some(md_bitmap::parse(&head, uuid).ok()?.area(at))
}
