//! `status`: how an array does, from its mount or from its superblocks.

use super::choice::Choice;
use super::{members, mount, out};
use crate::mountpoint::{self, table};
use crate::report::{Health, Report, detail, make};
use crate::rundir;
use raid_core::device::OpenOptions;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::{Options, assemble};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::exit::{DEAD, DEGRADED, UNKNOWN};

/// Arguments of `status`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Exit codes: 0 all members there, 1 degraded, 2 too few members to serve the data,
4 (or another) it could not be found out.

Without arguments it tells of every array this user has mounted, a line each; the exit code is
then that of the worst, 4 where the daemon of a mount died.

Examples:
  raid-fuse status
  raid-fuse status /mnt/a
  raid-fuse status --json /mnt/a
  raid-fuse status d0.img d1.img d2.img d3.img    (not mounted: from the superblocks)")]
pub struct Args {
    /// A mount point, or all members of an array [default: all mounts of this user]
    #[arg(value_name = "MOUNTPOINT|MEMBER")]
    paths: Vec<String>,
    /// For programs: stable keys, sizes in bytes, nothing else on standard output
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    array: Choice,
}

/// Prints the report; the exit code says how the array does.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.paths.is_empty() {
        return all(args.json);
    }
    let report = match report(args) {
        Ok(report) => report,
        Err(error) => return Ok(unknown(&error)),
    };
    match args.json {
        true => out::print(&report.json())?,
        false => out::print(&detail::text(&report, &args.paths.join(" ")))?,
    }
    Ok(ExitCode::from(code(report.health)))
}

fn code(health: Health) -> u8 {
    match health {
        Health::Ok => 0,
        Health::Degraded => DEGRADED,
        Health::Dead => DEAD,
    }
}

/// Every mount of this user, the worst of them in the exit code.
fn all(json: bool) -> Result<ExitCode> {
    let (mut lines, mut reports) = (String::new(), Vec::new());
    let dead = dead()?;
    let mut worst = if dead.is_empty() { 0 } else { UNKNOWN };
    for record in rundir::list() {
        let shown = record.mountpoint.display();
        match mount::read(&record.mountpoint) {
            Ok(report) => {
                worst = worst.max(code(report.health));
                lines.push_str(&format!("{shown}: {}{}\n", report.headline(), resync(&report)));
                reports.push(json!({ "mountpoint": record.mountpoint, "report": report }));
            }
            Err(error) => {
                worst = worst.max(UNKNOWN);
                match mountpoint::is_mounted_for(record.pid, &record.mountpoint) {
                    true => out::note(&format!(
                        "{shown} cannot be looked at from here: {error} (its daemon, pid {}, may \
                         be in another mount namespace)",
                        record.pid
                    )),
                    false => out::note(&error.to_string()),
                }
            }
        }
    }
    for path in dead {
        let why = mount::died(&path).to_string();
        lines.push_str(&format!("{}: dead: {why}\n", path.display()));
        reports.push(json!({ "mountpoint": path, "report": null, "error": why }));
    }
    if reports.is_empty() && worst == 0 {
        lines = "no array is mounted by this user; for one that is not mounted give its members\n"
            .into();
    }
    match json {
        true => out::json(&json!({ "mounts": reports }))?,
        false => out::print(&lines)?,
    }
    Ok(ExitCode::from(worst))
}

/// Mount points of this user whose daemon died: no record lives, and nobody answers.
fn dead() -> Result<Vec<PathBuf>> {
    let user = rundir::own_user();
    let is_own = |entry: &table::Entry| entry.is_ours() && entry.user.unwrap_or(0) == user;
    let mut paths: Vec<PathBuf> =
        table::read()?.into_iter().filter(is_own).map(|entry| entry.mountpoint).collect();
    paths.sort();
    paths.dedup();
    paths.retain(|path| rundir::find(path, user).is_none() && !mountpoint::has_daemon(path));
    Ok(paths)
}

/// `, resync 12%`.
fn resync(report: &Report) -> String {
    let job = report.resync.as_ref();
    job.map_or(String::new(), |job| format!(", {} {}%", job.action, job.percent()))
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
    let uuid = args.array.of(&candidates)?;
    let options = Options { uuid, degraded: true, read_only: true, ..Options::default() };
    let assembly = assemble(&candidates, &options, &|_, _| true)?;
    Ok(make::offline(&assembly, &devices))
}
