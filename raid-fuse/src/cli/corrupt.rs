//! `corrupt`: silent corruption on purpose, to see what notices it.
//!
//! Changes single bytes of one member where the array keeps data or parity, and nowhere else:
//! superblock, bitmap and bad-block log stay whole, so that what is tested is the data. The seed
//! makes it repeatable.

use super::choice::Choice;
use super::offline::{Offline, plural};
use super::start::tell;
use super::{out, values};
use raid_core::device::{OpenOptions, read_at, write_at};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::{Layout, Role};
use raid_core::meta::assemble::Options;
use raid_core::scrub::Member;
use raid_core::sim::Rng;
use raid_core::units::{SECTOR, Sectors, Slot};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Draws for each place before it is given up: members are almost all data.
const DRAWS_MAX: u64 = 1000;

/// Arguments of `corrupt`.
#[derive(clap::Args)]
#[command(after_long_help = "\
This destroys data. It is for experiments with what notices wrong bytes: RAID 1 and 5 see that
something is wrong but not who, RAID 6 and three copies name the member; RAID 0 sees nothing.

Examples:
  raid-fuse corrupt --slot 1 --data-only --count 5 --seed 7 --force d?.img
  raid-fuse check d?.img
  raid-fuse repair --locate d?.img")]
pub struct Args {
    /// Files or block devices of the array, in any order
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// The slot whose member is changed
    #[arg(long, value_name = "N")]
    slot: u16,
    /// Never a superblock, bitmap or bad-block log (always so; said for the reader)
    #[arg(long)]
    data_only: bool,
    /// How many bytes to change
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = parse_count)]
    count: u64,
    /// The same places and values for the same seed
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Really destroy data
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    array: Choice,
}

/// More is not silent corruption any more.
const COUNT_MAX: u64 = 1_000_000;

fn parse_count(text: &str) -> std::result::Result<u64, String> {
    let count = text.parse().ok().filter(|count| (1..=COUNT_MAX).contains(count));
    count.ok_or_else(|| format!("found `{text}`, expected a number from 1 to {COUNT_MAX}"))
}

/// A byte to change: sector after the data offset, byte in it, what to XOR.
type Hit = (Sectors, usize, u8);

/// Changes the bytes and tells each.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !args.force {
        return Err(Error::new(
            ErrorKind::Refused,
            "this destroys data on purpose; nothing was changed. To do it: add --force",
        ));
    }
    let options = Options { degraded: true, ..Options::default() };
    let offline = Offline::open(&args.members, &OpenOptions::default(), &args.array, &options)?;
    tell(&offline.assembly, true);
    let member = offline.target.members.get(usize::from(args.slot)).and_then(Option::as_ref);
    let member = member.ok_or_else(|| {
        Error::invalid(format!(
            "slot {} has no member here; the array has slots 0 to {}",
            args.slot,
            offline.target.members.len().saturating_sub(1)
        ))
    })?;
    let layout = &*offline.target.layout;
    for (at, byte, mask) in hits(args, layout, member)? {
        let (old, new) = change(member, at, byte, mask)?;
        out::print(&format!(
            "slot {} ({}): member sector {at} (device sector {}), byte {byte}: {} becomes {}: {}\n",
            args.slot,
            member.name,
            member.data_at + at,
            values::hex(&[old]),
            values::hex(&[new]),
            what(layout, Slot(args.slot), at)
        ))?;
    }
    let flushed = member.device.flush();
    flushed.map_err(|error| Error::io(format!("flushing {}", member.name), error))?;
    out::print(&format!("{} changed; seed {}\n", plural(args.count, "byte"), args.seed))?;
    Ok(ExitCode::SUCCESS)
}

/// Different bytes in sectors the array uses.
fn hits(args: &Args, layout: &dyn Layout, member: &Member) -> Result<Vec<Hit>> {
    let mut random = Rng::new(args.seed);
    let room = member.device.facts().sectors - member.data_at;
    let mut seen = BTreeSet::new();
    let mut hits = Vec::new();
    for _ in 0..args.count.saturating_mul(DRAWS_MAX) {
        let (at, byte) = (Sectors(random.below(room.0)), random.below(SECTOR) as usize);
        let mask = 1 + random.below(255) as u8;
        if layout.find(Slot(args.slot), at).is_some() && seen.insert((at, byte)) {
            hits.push((at, byte, mask));
        }
        if hits.len() as u64 == args.count {
            return Ok(hits);
        }
    }
    Err(Error::invalid(format!(
        "slot {} has not {} different bytes of data; give a smaller --count",
        args.slot, args.count
    )))
}

fn change(member: &Member, at: Sectors, byte: usize, mask: u8) -> Result<(u8, u8)> {
    let io = |error| Error::io(&member.name, error);
    let at = member.data_at + at;
    let mut sector = [0; SECTOR as usize];
    read_at(&*member.device, at, &mut sector).map_err(io)?;
    let old = sector[byte];
    sector[byte] ^= mask;
    write_at(&*member.device, at, &sector).map_err(io)?;
    Ok((old, sector[byte]))
}

/// What the array keeps in that sector of that member.
fn what(layout: &dyn Layout, slot: Slot, at: Sectors) -> String {
    let Some(no) = layout.find(slot, at) else { return "not used".into() };
    let stripe = layout.stripe(no);
    let is_it = |unit: &&raid_core::layout::Unit| {
        unit.slot == slot && unit.at <= at && at < unit.at + stripe.len
    };
    let Some(unit) = stripe.units.iter().find(is_it) else { return "not used".into() };
    let inside = at - unit.at;
    match unit.role {
        Role::Data(index) => {
            let array_at = stripe.start + stripe.len.times(index.into()) + inside;
            format!("array sector {array_at}")
        }
        Role::Copy(number) => {
            format!("copy {number} of array sector {}", stripe.start + inside)
        }
        Role::P => format!("P of row {}", no.0),
        Role::Q => format!("Q of row {}", no.0),
    }
}
