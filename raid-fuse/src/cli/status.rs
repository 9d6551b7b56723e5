//! `status`: how an array does, from its mount or from its superblocks.

use super::start::parse_uuid;
use super::{members, mount, out};
use crate::report::{Health, Report, detail, make};
use raid_core::device::OpenOptions;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::{Options, assemble};
use std::path::Path;
use std::process::ExitCode;

use super::exit::{DEAD, DEGRADED, UNKNOWN};

/// Arguments of `status`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes: 0 all members there, 1 degraded, 2 too few members to serve the data,
4 (or another) it could not be found out.

Examples:
  raid-fuse status /mnt/a
  raid-fuse status --json /mnt/a
  raid-fuse status d0.img d1.img d2.img d3.img    (not mounted: from the superblocks)")]
pub struct Args {
    /// A mount point, or all members of an array
    #[arg(required = true, value_name = "MOUNTPOINT|MEMBER")]
    paths: Vec<String>,
    /// For programs: stable keys, sizes in bytes, nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Only members of this array
    #[arg(long, short = 'u', value_name = "UUID", value_parser = parse_uuid)]
    uuid: Option<[u8; 16]>,
}

/// Prints the report; the exit code says how the array does.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = match report(args) {
        Ok(report) => report,
        Err(error) => return Ok(unknown(&error)),
    };
    match args.json {
        true => out::print(&report.json())?,
        false => out::print(&detail::text(&report, &args.paths.join(" ")))?,
    }
    Ok(match report.health {
        Health::Ok => ExitCode::SUCCESS,
        Health::Degraded => ExitCode::from(DEGRADED),
        Health::Dead => ExitCode::from(DEAD),
    })
}

/// A failure must not look like a degraded array.
fn unknown(error: &Error) -> ExitCode {
    match error.kind {
        ErrorKind::Dead | ErrorKind::Refused | ErrorKind::Busy => super::exit::failure(error),
        _ => {
            out::note(&error.to_string());
            ExitCode::from(UNKNOWN)
        }
    }
}

fn report(args: &Args) -> Result<Report> {
    match &args.paths[..] {
        [path] if members::is_mountpoint_like(path) => mount::read(Path::new(path)),
        _ => offline(args),
    }
}

/// Also of an array that could not be started: what is there is told in any case.
fn offline(args: &Args) -> Result<Report> {
    let devices = members::open(&args.paths, &OpenOptions::looking(), None)?;
    let candidates = members::examine(&devices);
    let options =
        Options { uuid: args.uuid, degraded: true, read_only: true, ..Options::default() };
    let assembly = assemble(&candidates, &options, &|_, _| true)?;
    Ok(make::offline(&assembly, &devices))
}
