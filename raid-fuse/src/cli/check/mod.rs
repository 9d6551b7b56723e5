//! `check`: does the redundancy of an array agree with its data, and who is wrong where not?
//!
//! Offline: the members are read, never written, and locked against writers meanwhile.

mod json;
mod text;

use super::choice::Choice;
use super::offline::{Offline, Progress};
use super::scrub_online::{self, Scrub};
use super::start::tell;
use super::{exit, members, out};
use raid_core::device::OpenOptions;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::Options;
use raid_core::scrub::{self, Finding, Summary};
use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

/// Findings shown to people without `--show`.
const SHOWN: usize = 10;

/// Findings listed for programs without `--show`: enough for a report, bounded in memory.
const LISTED: usize = 1000;

/// Arguments of `check`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Reads all members of an array that is not mounted and compares redundancy with data in pages of
4 KiB, as md's check does; mismatch_cnt is counted as md counts it. Each finding names the row, the
units with their member and array sectors, and for each that may be wrong what it holds and what
it would hold, from the first byte that differs. RAID 6 and three copies tell who is wrong.
Nothing is written. What an interrupted resync has not reached is no mismatch.
With a mount point alone, the daemon of the mounted array compares meanwhile, as the kernel does
after `echo check > sync_action`; users go first. It counts, and names no places.

Examples:
  raid-fuse check /mnt/a --wait
  raid-fuse check d0.img d1.img d2.img d3.img
  raid-fuse check --json d?.img
  raid-fuse check --sample 1000 --seed 7 /dev/sd[b-e]     (1000 random rows)
  raid-fuse check --degraded d0.img d1.img d3.img         (what is left of a RAID 6)

Exit codes: 0 all that was compared agrees, 1 mismatches or unreadable sectors, 2 too few members,
3 members are missing and --degraded was not given, 4 refused, or nothing could be compared (no
array, no redundancy, a resync is due), 5 in use.")]
pub struct Args {
    /// Files or block devices, in any order
    #[arg(required = true, value_name = "MEMBER|MOUNTPOINT")]
    members: Vec<String>,
    /// For programs: stable keys, nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Compare only so many rows, drawn at random
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    sample: Option<u64>,
    /// Draw the same rows again [default: others each time]
    #[arg(long, value_name = "S", requires = "sample")]
    seed: Option<u64>,
    /// Findings to describe [default: 10, with --json 1000]
    #[arg(long, value_name = "K")]
    show: Option<usize>,
    /// Stop after so many findings
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    /// Compare what is there although members are missing
    #[arg(long, alias = "run")]
    degraded: bool,
    #[command(flatten)]
    array: Choice,
    /// A mounted array: wait for the end, and tell what was found
    #[arg(long, short)]
    wait: bool,
}

/// What was found, for the two ways to tell it.
struct Outcome {
    offline: Offline,
    sample: Option<(u64, u64)>,
    summary: Summary,
    findings: Vec<Finding>,
}

/// Compares, tells, and says by the exit code whether all is well.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let [only] = &args.members[..]
        && members::is_mountpoint_like(only)
    {
        return match args.refuse_offline() {
            Some(code) => Ok(code),
            None => scrub_online::start(Path::new(only), Scrub::Check, args.wait),
        };
    }
    if let Some(code) = scrub_online::refuse_wait(args.wait) {
        return Ok(code);
    }
    let options = Options { degraded: args.degraded, read_only: true, ..Options::default() };
    let how = OpenOptions::reading();
    let offline = match Offline::open(&args.members, &how, &args.array, &options) {
        Ok(offline) => offline,
        Err(error) => return Ok(nothing_compared(&error)),
    };
    if !args.json {
        tell(&offline.assembly, true);
    }
    let outcome = compare(args, offline);
    match args.json {
        true => out::json(&json::document(&outcome))?,
        false => out::print(&text::report(&outcome))?,
    }
    Ok(match (outcome.summary.is_clean(), outcome.summary.pages) {
        (false, _) => ExitCode::from(exit::MISMATCH),
        (true, 0) => ExitCode::from(exit::NOTHING_COMPARED),
        (true, _) => ExitCode::SUCCESS,
    })
}

/// A failure must not look like a mismatch.
fn nothing_compared(error: &Error) -> ExitCode {
    match error.kind {
        ErrorKind::Dead | ErrorKind::Degraded | ErrorKind::Refused | ErrorKind::Busy => {
            exit::failure(error)
        }
        _ => {
            out::note(&error.to_string());
            ExitCode::from(exit::NOTHING_COMPARED)
        }
    }
}

fn compare(args: &Args, offline: Offline) -> Outcome {
    let shown = args.show.unwrap_or(if args.json { LISTED } else { SHOWN });
    let sample = args.sample.map(|count| (count, args.seed.unwrap_or_else(random_seed)));
    let options = scrub::Options { sample, limit: args.limit, unsynced_too: false };
    let mut findings = Vec::new();
    let mut progress = Progress::new("checking");
    let summary = scrub::scan(
        &offline.target,
        &options,
        &mut |finding| {
            if findings.len() < shown {
                findings.push(finding);
            }
        },
        &mut |done, total| progress.tell(done, total),
    );
    drop(progress);
    Outcome { offline, sample, summary, findings }
}

impl Args {
    /// What only members have to themselves is refused for a mount.
    fn refuse_offline(&self) -> Option<ExitCode> {
        let given = [
            (self.json, "--json"),
            (self.sample.is_some(), "--sample"),
            (self.show.is_some(), "--show"),
            (self.limit.is_some(), "--limit"),
            (self.degraded, "--degraded"),
            (self.array.uuid.is_some(), "--uuid"),
            (self.array.name.is_some(), "--name"),
        ];
        scrub_online::refuse_options(&given)
    }
}

/// A number that differs from run to run.
fn random_seed() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::from(since.subsec_nanos()) ^ since.as_secs())
}
