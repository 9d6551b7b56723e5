//! `assemble --explain`: which members would serve, and why, without starting anything.
//! `assemble --what-if` is [`what_if`]; `--update` rewrites what another machine needs.

use super::start::{Choices, dirt, lens};
use super::{choice, diff, exit, members, out, what_if};
use raid_core::assembly::{byte_order, layout_of};
use raid_core::device::{OpenOptions, Shared};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::Level;
use raid_core::meta::assemble::{Assembly, Candidate, Group, groups};
use std::process::ExitCode;

/// Arguments of `assemble`.
#[derive(clap::Args)]
#[command(after_long_help = "\
The decision is the one that `mount` would make with the same members and options, and so is the
exit code. Members of several arrays are explained array by array; the exit code is then that of
the first one that would not start. Nothing is started and nothing is written; the members may be
in use.

--update=byteorder rewrites the superblocks of an array of metadata 0.90 for machines of the other
byte order: to this machine's, or, if all have that already, to the other one. An array can be
mounted in either; only a kernel needs its own. With --explain it only says what it would do.

Examples:
  raid-fuse assemble --explain d0.img d1.img d2.img d3.img
  raid-fuse assemble --explain --degraded d0.img d2.img d3.img
  raid-fuse assemble --explain *.img                (every array that is among them)
  raid-fuse assemble --explain --diff d0.img d1.img (two halves of a split mirror)
  raid-fuse assemble --update=byteorder nas0.img nas1.img

--what-if is for an array that does not start, or that nobody dares to force: every plausible way to
start the members is tried for reading only (all of them, each doubtful one left out, each side of
a split), with who serves and why, how many of N random rows agree, and the file system that is
seen. The best way comes last, as the command to type. Exit code 2 if no way starts.

  raid-fuse assemble --what-if d0.img d1.img d2.img d3.img d4.img")]
pub struct Args {
    /// Files or block devices, in any order
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Show the decision for each member
    #[arg(long)]
    explain: bool,
    /// Two halves that were used one without the other: show where their data differ
    #[arg(long, requires = "explain")]
    diff: bool,
    /// Try every plausible way to start them, without writing, and say which is best
    #[arg(long, conflicts_with = "explain")]
    what_if: bool,
    /// With --what-if: how many random rows to compare
    #[arg(long, value_name = "N", default_value_t = 64, requires = "what_if",
        value_parser = clap::value_parser!(u64).range(1..))]
    sample: u64,
    /// With --what-if: draws other rows
    #[arg(long, value_name = "S", default_value_t = 1, requires = "what_if")]
    seed: u64,
    /// As if mounted with --read-only
    #[arg(long, short = 'r', short_alias = 'o', alias = "readonly")]
    read_only: bool,
    /// Rewrite what another machine needs: byteorder (metadata 0.90)
    #[arg(long, value_name = "WHAT", value_parser = ["byteorder"], conflicts_with = "read_only")]
    update: Option<String>,
    #[command(flatten)]
    choices: Choices,
}

/// Explains; to start an array is what `mount` is for.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.what_if {
        let Choices { degraded, force, overlay, .. } = &args.choices;
        if *degraded || *force || args.read_only || overlay.is_some() {
            return Ok(exit::misuse(&Error::invalid(
                "--what-if tries --degraded, --read-only and --force itself; leave them out",
            )));
        }
        return what_if::run(&what_if::Question {
            specs: &args.members,
            uuid: args.choices.array.uuid,
            sample: (args.sample, args.seed),
        });
    }
    if args.update.is_some() {
        return update(args);
    }
    if !args.explain {
        return Ok(exit::misuse(&Error::invalid(
            "an array runs only while it is mounted: use `raid-fuse mount MEMBER... MOUNTPOINT`, \
             or say --explain to see which members would serve, or --what-if to try every way",
        )));
    }
    let devices = members::open(&args.members, &OpenOptions::looking(), None)?;
    let candidates = members::examine(&devices);
    let all = groups(&candidates);
    let chosen = args.choices.array.uuid.is_some() || args.choices.array.name.is_some();
    if all.len() > 1 && !chosen {
        return each(args, &all, &candidates, &devices);
    }
    let decided = args.choices.rehearse(&candidates, &devices, args.read_only);
    let decided = decided.map_err(|error| match args.read_only {
        true => error,
        false => beyond_degraded(&args.choices, error, &candidates, &devices),
    });
    let text = match &decided {
        Ok(assembly) => text(assembly, args)?,
        Err(_) => String::new(),
    };
    out::print(&text)?;
    if args.diff {
        let uuid = args.choices.array.of(&candidates)?;
        let group = all.iter().find(|group| Some(group.uuid) == uuid);
        group.map_or(Ok(()), |group| out::print(&diff::text(group, &candidates, &devices)?))?;
    }
    decided.map(|_| ExitCode::SUCCESS)
}

/// Every array by itself, then the devices that belong to none.
fn each(
    args: &Args,
    all: &[Group],
    candidates: &[Candidate],
    devices: &[Shared],
) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let mut failed = false;
    for group in all {
        let mut text = format!("{}:\n", choice::line(group, candidates));
        let mut choices = args.choices.clone();
        choices.array.uuid = Some(group.uuid);
        let own: Vec<Shared> = group.members.iter().map(|&i| devices[i].clone()).collect();
        match choices.rehearse(&members::examine(&own), &own, args.read_only) {
            Ok(assembly) => text.push_str(&indent(&self::text(&assembly, args)?)),
            Err(error) => {
                let error = beyond_degraded(&choices, error, &members::examine(&own), &own);
                let kept = if failed { code } else { exit::code(&error) };
                (code, failed) = (kept, true);
                text.push_str(&indent(&refused(&error)));
            }
        }
        if args.diff {
            text.push_str(&indent(&diff::text(group, candidates, devices)?));
        }
        out::print(&format!("{text}\n"))?;
    }
    let none = (0..candidates.len())
        .filter(|index| !all.iter().any(|group| group.members.contains(index)))
        .map(|index| format!("{}: of no array that can be told\n", candidates[index].name));
    out::print(&none.collect::<String>())?;
    Ok(code)
}

/// The members first, then why they do not do: as where they do.
fn refused(error: &Error) -> String {
    let text = error.to_string();
    let (reason, members) = text.split_once('\n').unwrap_or((&text, ""));
    let members: String =
        members.lines().map(|line| format!("{}\n", line.trim_start_matches("  "))).collect();
    format!("{members}would not start: {reason}\n")
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Rewrites the superblocks of all members in the other byte order.
fn update(args: &Args) -> Result<ExitCode> {
    let open = match args.explain {
        true => OpenOptions::looking(),
        false => members::options(false, args.choices.direct),
    };
    let overlay = args.choices.overlay.as_deref().filter(|_| !args.explain);
    let devices = members::open(&args.members, &open, overlay)?;
    let candidates = members::examine(&devices);
    // Nothing but superblocks is written, so that also a dirty array without all members will do.
    let assembly = args.choices.decide(&candidates, true)?;
    let turns = byte_order::turns(&candidates, &assembly.array.uuid)?;
    if !args.explain {
        byte_order::turn_all(&turns, &devices)?;
    }
    let done = if args.explain { "would be rewritten" } else { "rewritten" };
    let line = |turn: &byte_order::Turn<'_>| {
        let (from, to) = (turn.from.name(), turn.from.other().name());
        format!("{}: superblock {done}, {from} to {to}\n", turn.name)
    };
    out::print(&turns.iter().map(line).collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// An array that lacks members may be refused with --degraded, too: that is said at once.
fn beyond_degraded(
    choices: &Choices,
    error: Error,
    candidates: &[Candidate],
    devices: &[Shared],
) -> Error {
    let mut choices = choices.clone();
    if error.kind != ErrorKind::Degraded || choices.degraded {
        return error;
    }
    choices.degraded = true;
    match choices.rehearse(candidates, devices, false) {
        Err(refused) if refused.kind == ErrorKind::Refused => refused,
        _ => error,
    }
}

fn text(assembly: &Assembly, args: &Args) -> Result<String> {
    let mut array = assembly.array.clone();
    if let (0, Some(word)) = (array.level, args.choices.raid0_layout) {
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
        super::amount::human(layout.shape().size.bytes())
    ));
    if let Some(dirt) = dirt(assembly, args.read_only) {
        text.push_str(&format!("note: {dirt}\n"));
    }
    Ok(text)
}
