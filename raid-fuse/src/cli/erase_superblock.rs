//! `erase-superblock`: what makes a device a member is taken away, and nothing else.
//!
//! Zeroes the blocks of the md superblocks found, as `mdadm --zero-superblock` does. Data, bitmap
//! and logs stay as they are and are named. All devices are checked before the first byte.

use super::{members, out};
use crate::rundir;
use raid_core::assembly;
use raid_core::device::{OpenOptions, Shared, read_at, write_at};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::md1::features::{MULTIPLE_PPLS, PPL};
use raid_core::meta::md1::packet::Packet;
use raid_core::meta::record::Area;
use raid_core::meta::{Found, PROBED, Sighting, md_bitmap, uuid};
use raid_core::units::{SECTOR, Sectors};
use std::process::ExitCode;

/// Arguments of `erase-superblock`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Prints the exact ranges. Data are not touched, so an array created again with the same geometry
would find them; what stays of the metadata (bitmap, bad-block log, PPL) is named.

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
            if !args.dry_run {
                erase(&plan.device, sighting)?;
            }
            text.push_str(&format!("{name}: {}\n", erased(args, sighting)));
            if let Ok(found) = &sighting.record {
                let left = left(&plan.device, found);
                text.push_str(&format!("  stays as it is: {}\n", left.join(", ")));
            }
        }
        out::print(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args, device: Shared) -> Result<Plan> {
    let mut sightings = assembly::content(&*device)?.md;
    let all: Vec<&str> = sightings.iter().map(|sighting| sighting.format.name).collect();
    let there = if all.is_empty() { "none is there".into() } else { all.join(", ") + " is there" };
    sightings.retain(|sighting| args.metadata.is_none_or(|name| name == sighting.format.name));
    if sightings.is_empty() {
        let which = args.metadata.map_or(String::new(), |name| format!(" {name}"));
        let name = &device.facts().name;
        return Err(Error::invalid(format!(
            "{name} carries no md{which} superblock ({there}); nothing was erased"
        )));
    }
    Ok(Plan { device, sightings })
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
        if args.dry_run { "would be zeroed:" } else { "zeroed:" },
        range(Area { at: sighting.at, len })
    )
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

/// What else of md is on the device.
fn left(device: &Shared, found: &Found) -> Vec<String> {
    let member = &found.member;
    let mut parts = Vec::new();
    if let Some(at) = member.bitmap_at {
        let area =
            bitmap_area(device, &found.array.uuid, at).unwrap_or(Area { at, len: Sectors(8) });
        parts.push(format!("bitmap, {}", range(area)));
    }
    let packet = Packet::new(&member.raw);
    if packet.features() & (PPL | MULTIPLE_PPLS) != 0 {
        let at = member.super_at.0.checked_add_signed(packet.ppl_offset().into());
        if let Some(at) = at {
            let area = Area { at: Sectors(at), len: Sectors(packet.ppl_size().into()) };
            parts.push(format!("PPL, {}", range(area)));
        }
    }
    if let Some(area) = member.bad_log {
        parts.push(format!("bad-block log, {}", range(area)));
    }
    parts.push(format!("data, {}", range(Area { at: member.data_at, len: member.data_len })));
    parts
}

fn bitmap_area(device: &Shared, uuid: &[u8; 16], at: Sectors) -> Option<Area> {
    let mut head = vec![0; SECTOR as usize];
    read_at(&**device, at, &mut head).ok()?;
    Some(md_bitmap::parse(&head, uuid).ok()?.area(at))
}
