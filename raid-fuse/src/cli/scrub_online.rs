//! `check` and `repair` of a mounted array: started here, done by its daemon.

use super::{exit, online, out, wait};
use crate::cli::members::quoted;
use crate::control::Request;
use crate::control::client::ask;
use crate::report::{Health, Report};
use raid_core::error::{Error, ErrorKind, Result};
use std::path::Path;
use std::process::ExitCode;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scrub {
    /// Compare only.
    Check,
    /// Compare, and make redundancy agree.
    Repair,
}

impl Scrub {
    fn word(self) -> &'static str {
        match self {
            Scrub::Check => "check",
            Scrub::Repair => "repair",
        }
    }
}

/// Starts it on the array mounted on `mountpoint`; with `wait` tells what it found.
pub fn start(mountpoint: &Path, what: Scrub, wait: bool) -> Result<ExitCode> {
    let (word, shown) = (what.word(), mountpoint.to_string_lossy());
    let follow = quoted(["raid-fuse", "wait", &shown]);
    let before = online::report(mountpoint)?;
    if before.level_number < 1 {
        let text = format!("nothing to {word}: {} has no redundancy", before.level);
        return Err(Error::new(ErrorKind::Refused, text));
    }
    let request = Request::SyncAction { action: word.into() };
    ask(mountpoint, &request).map_err(|error| match error.kind {
        ErrorKind::Busy => Error::new(ErrorKind::Busy, format!("{error}: {follow}")),
        _ => error,
    })?;
    if !wait {
        out::print(&format!("the {word} has begun; to follow it: {follow}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = wait::until_idle(mountpoint)?;
    out::print(&found(what, &report, &shown))?;
    verdict(what, &report)
}

/// Nothing is left to be done: 0. What the daemon says against it is told.
fn verdict(what: Scrub, report: &Report) -> Result<ExitCode> {
    if report.health == Health::Dead {
        return Err(Error::new(ErrorKind::Dead, "too few members are left"));
    }
    if let Some(trouble) = &report.trouble {
        return Err(Error::new(ErrorKind::Io, trouble.clone()));
    }
    Ok(match (what, report.mismatch_cnt) {
        (Scrub::Repair, _) | (Scrub::Check, 0) => ExitCode::SUCCESS,
        (Scrub::Check, _) => ExitCode::from(exit::MISMATCH),
    })
}

/// Options that need members to themselves, given for a mount; where one is, the exit code.
pub fn refuse_options(given: &[(bool, &str)]) -> Option<ExitCode> {
    let (_, option) = given.iter().find(|(given, _)| *given)?;
    Some(exit::misuse(&Error::invalid(format!(
        "{option} is for members that are not in use; unmount the array and give them"
    ))))
}

/// `--wait` given for members: where it is, the exit code.
pub fn refuse_wait(wait: bool) -> Option<ExitCode> {
    let text = "--wait is for a mounted array: give its mount point alone";
    wait.then(|| exit::misuse(&Error::invalid(text)))
}

fn found(what: Scrub, report: &Report, mountpoint: &str) -> String {
    let mut text = match (report.mismatch_cnt, what) {
        (0, _) => "no differences\n".into(),
        (n, Scrub::Check) => format!("{n} sectors do not agree\n{}", advice(report, mountpoint)),
        (n, Scrub::Repair) => format!("{n} sectors did not agree and were made to\n"),
    };
    if report.health == Health::Degraded {
        text.push_str("degraded: what needs the missing members was not compared\n");
    }
    text
}

/// How to find out who is wrong, before `repair` makes it final.
fn advice(report: &Report, mountpoint: &str) -> String {
    let seated = report.members.iter().filter(|m| m.slot.is_some() && !m.replacement);
    let journal = report.members.iter().filter(|m| m.state == "journal");
    let names: Vec<&str> = seated.chain(journal).filter_map(|m| m.path.as_deref()).collect();
    let members = quoted(names.iter().copied());
    let believed = match report.level_number {
        4..=6 => "makes parity from the data as they are",
        _ => "copies the first copy over the others",
    };
    let mut text = format!(
        "`repair` {believed}, right or wrong; to see first what each holds:\n  raid-fuse {} && \
         raid-fuse check {members}\n",
        quoted(["unmount", mountpoint])
    );
    let (tells, option) = match report.level_number {
        6 => ("it names the member that lies", "--locate"),
        _ if copies(report) > 2 => ("it names the copy that differs from most", "--majority"),
        _ => return text,
    };
    text.push_str(&format!("{tells}; to mend that one:\n  raid-fuse repair {option} {members}\n"));
    text
}

/// How many copies there are of everything.
fn copies(report: &Report) -> u32 {
    match report.level_number {
        1 => report.slots.into(),
        10 => (report.layout_number & 0xff) * (report.layout_number >> 8 & 0xff),
        _ => 1,
    }
}
