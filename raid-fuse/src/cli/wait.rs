//! `wait`: until no job of a mounted array runs.

use super::amount::human;
use super::members::quoted;
use super::online::report;
use super::out;
use crate::report::{Health, Member, Report, Resync};
use raid_core::error::{Error, ErrorKind, Result};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often the array is looked at: short at first, because many jobs are.
const POLL_MIN: Duration = Duration::from_millis(20);
const POLL_MAX: Duration = Duration::from_millis(500);

/// How often somebody who does not look at a terminal hears of it.
const NEWS: Duration = Duration::from_secs(30);

/// Cells of the bar.
const BAR: usize = 20;

/// Arguments of `wait`.
#[derive(clap::Args)]
#[command(after_long_help = "\
On a terminal, a bar with the rate and the time left; elsewhere a line now and then on standard
error.

Examples:
  raid-fuse add /mnt/a new.img && raid-fuse wait /mnt/a

Exit codes: 0 no job runs (any more) and none is needed; 1 a job is needed but cannot run: the
message says why; 2 too few members are left; 4 nothing is mounted there. A degraded array without a
spare has nothing to wait for: 0. (mdadm --wait says 1 also if there was nothing to wait for.)")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
}

/// Waits; the exit code says whether all is well.
pub fn run(args: &Args) -> Result<ExitCode> {
    let report = until_idle(&args.mountpoint)?;
    if report.health == Health::Dead {
        return Err(Error::new(ErrorKind::Dead, "too few members are left"));
    }
    if let Some(job) = due(&report) {
        let point = args.mountpoint.to_string_lossy();
        let text = format!("a {job} is needed: {}", why_not(&report, &point));
        return Err(Error::new(ErrorKind::Io, text));
    }
    if let Some(trouble) = report.trouble {
        return Err(Error::new(ErrorKind::Io, trouble));
    }
    if report.health == Health::Degraded {
        out::print("degraded, no spare\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The job that should run and does not.
fn due(report: &Report) -> Option<&str> {
    let is_filled = |member: &Member| member.state == "spare rebuilding";
    let could_fill = |member: &Member| member.state == "spare";
    let members = &report.members;
    match &report.resync {
        Some(waiting) => Some(&waiting.action),
        None if members.iter().any(is_filled) => Some("recovery"),
        None if report.health == Health::Degraded && members.iter().any(could_fill) => {
            Some("recovery")
        }
        None => None,
    }
}

/// Why it does not run, and what to type.
fn why_not(report: &Report, mountpoint: &str) -> String {
    match (&report.trouble, report.read_only, report.frozen) {
        (Some(trouble), ..) => trouble.clone(),
        (None, true, _) => "the array is read-only".into(),
        (None, false, true) => {
            let command = quoted(["raid-fuse", "sync-action", mountpoint, "idle"]);
            format!("sync_action is frozen; to let it go on: {command}")
        }
        (None, false, false) => "it cannot run now; see `status`".into(),
    }
}

/// The report of the array when no job runs any more.
pub fn until_idle(mountpoint: &Path) -> Result<Report> {
    let bar = std::io::stderr().is_terminal();
    let (mut told, mut pause) = (None, POLL_MIN);
    loop {
        let report = report(mountpoint)?;
        let running = report.resync.as_ref().filter(|job| job.running);
        let Some(job) = running else {
            if bar && told.is_some() {
                erase();
            }
            return Ok(report);
        };
        if bar {
            draw(job);
            told = Some(Instant::now());
        } else if told.is_none_or(|at| at.elapsed() >= NEWS) {
            out::note(&line(job));
            told = Some(Instant::now());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(POLL_MAX);
    }
}

fn draw(job: &Resync) {
    let filled =
        (job.done_bytes.min(job.total_bytes) * BAR as u64 / job.total_bytes.max(1)) as usize;
    let cells = format!("{}{}", "=".repeat(filled), ".".repeat(BAR - filled));
    // Who closed standard error does not want to see it.
    let _closed = write!(std::io::stderr(), "\r[{cells}] {}\x1b[K", line(job));
}

fn erase() {
    // As above.
    let _closed = write!(std::io::stderr(), "\r\x1b[K");
}

/// `recovery 30.7 %, 12.0 MiB (12.6 MB) a second, 2 min left`
fn line(job: &Resync) -> String {
    let (done, total) = (job.done_bytes.min(job.total_bytes), job.total_bytes.max(1));
    let promille = u128::from(done) * 1000 / u128::from(total);
    let mut text = format!("{} {}.{} %", job.action, promille / 10, promille % 10);
    if let Some(left) = (total - done).checked_div(job.speed_bytes) {
        text.push_str(&format!(", {} a second, {} left", human(job.speed_bytes), span(left)));
    }
    text
}

/// Seconds as people say them.
fn span(seconds: u64) -> String {
    match seconds {
        0..=99 => format!("{seconds} s"),
        100..=5999 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_told_in_words() {
        let job = |done_bytes, total_bytes, speed_bytes| Resync {
            running: true,
            action: "recovery".into(),
            done_bytes,
            total_bytes,
            speed_bytes,
        };
        let mib = 1 << 20;
        let cases = [
            (job(0, 0, 0), "recovery 0.0 %"),
            (job(307, 1000, 0), "recovery 30.7 %"),
            (job(0, 50 * mib, mib), "recovery 0.0 %, 1.0 MiB (1.0 MB) a second, 50 s left"),
            (job(0, 500 * mib, mib), "recovery 0.0 %, 1.0 MiB (1.0 MB) a second, 8 min left"),
            (job(9, 8, 1), "recovery 100.0 %, 1 bytes a second, 0 s left"),
        ];
        for (job, text) in cases {
            assert_eq!(line(&job), text);
        }
        assert_eq!(span(7260), "2 h 1 min");
    }
}
