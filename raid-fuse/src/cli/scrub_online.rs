//! `check` and `repair` of a mounted array: started here, done by its daemon.

use super::{out, wait};
use crate::cli::members::quoted;
use crate::control::Request;
use crate::control::client::ask;
use raid_core::error::{Error, Result};
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

/// Starts it on the array mounted on `mountpoint`; with `wait` tells what it found.
pub fn start(mountpoint: &Path, what: Scrub, wait: bool) -> Result<ExitCode> {
    let action = match what {
        Scrub::Check => "check",
        Scrub::Repair => "repair",
    };
    ask(mountpoint, &Request::SyncAction { action: action.into() })?;
    let shown = mountpoint.to_string_lossy();
    if !wait {
        let follow = quoted(["raid-fuse", "wait", &shown]);
        out::print(&format!("the {action} has begun; to follow it: {follow}\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = wait::until_idle(mountpoint)?;
    out::print(&found(what, report.mismatch_cnt))?;
    Ok(match report.mismatch_cnt {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(1),
    })
}

/// Options that need members to themselves, given for a mount.
pub fn refuse_options(given: &[(bool, &str)]) -> Result<()> {
    match given.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) => Err(Error::invalid(format!(
            "{option} is for members that are not in use; unmount the array and give them"
        ))),
    }
}

fn found(what: Scrub, sectors: u64) -> String {
    match (sectors, what) {
        (0, _) => "no differences\n".into(),
        (n, Scrub::Check) => format!("{n} sectors do not agree; `repair` makes them agree\n"),
        (n, Scrub::Repair) => format!("{n} sectors did not agree and were made to\n"),
    }
}
