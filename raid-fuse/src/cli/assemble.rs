//! `assemble --explain`: which members would serve, and why, without starting anything.

use super::out;
use super::start::{Choices, lens};
use raid_core::assembly::layout_of;
use raid_core::error::{Error, Result};
use raid_core::layout::Level;
use raid_core::meta::assemble::Assembly;
use std::process::ExitCode;

/// Arguments of `assemble`.
#[derive(clap::Args)]
#[command(after_long_help = "\
The decision is the one that `mount` would make with the same members and options, and so is the
exit code. Nothing is started and nothing is written; the members may be in use.

Examples:
  raid-fuse assemble --explain d0.img d1.img d2.img d3.img
  raid-fuse assemble --explain --degraded d0.img d2.img d3.img")]
pub struct Args {
    /// Files or block devices, in any order
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Show the decision for each member
    #[arg(long)]
    explain: bool,
    /// As if mounted with --read-only
    #[arg(long, short = 'r', short_alias = 'o', alias = "readonly")]
    read_only: bool,
    #[command(flatten)]
    choices: Choices,
}

/// Explains; to start an array is what `mount` is for.
pub fn run(args: &Args) -> Result<ExitCode> {
    if !args.explain {
        return Err(Error::invalid(
            "an array runs only while it is mounted: use `raid-fuse mount MEMBER... MOUNTPOINT`, \
             or say --explain to see which members would serve",
        ));
    }
    let assembly = args.choices.rehearse(&args.members, args.read_only)?;
    out::print(&text(&assembly, args.choices.raid0_layout)?)?;
    Ok(ExitCode::SUCCESS)
}

fn text(assembly: &Assembly, raid0_layout: Option<u32>) -> Result<String> {
    let mut array = assembly.array.clone();
    if let (0, Some(word)) = (array.level, raid0_layout) {
        array.layout = word;
    }
    let layout = layout_of(&array, &lens(assembly))?;
    let mut text: String = assembly.verdicts.iter().map(|verdict| format!("{verdict}\n")).collect();
    for warning in &assembly.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    let level: &Level = raid_core::layout::level_by_number(array.level)?;
    let seated = assembly.seats.iter().flatten().count();
    let read_only = if assembly.read_only { ", read-only" } else { "" };
    text.push_str(&format!(
        "would start: {}, {seated} of {} members, {}{read_only}\n",
        level.name,
        array.slots,
        super::size::human(layout.shape().size.bytes())
    ));
    Ok(text)
}
