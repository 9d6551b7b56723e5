//! `sync-action` and `stop-job`: what a mounted array does by itself.

use super::{online, out};
use crate::control::Request;
use crate::control::client::ask;
use raid_core::error::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `sync-action`.
#[derive(clap::Args)]
#[command(after_long_help = "\
The words are those of the kernel's sync_action: `idle` ends a check or repair (what is due begins
again), `frozen` ends any job and keeps others from beginning, `recover` or `resync` goes on with
what is due, `check` and `repair` compare everything. Without a word, the present one is printed.

Examples:
  raid-fuse sync-action /mnt/a
  raid-fuse sync-action /mnt/a frozen")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// idle, frozen, resync, recover, check or repair
    #[arg(value_name = "ACTION", value_parser = parse)]
    action: Option<String>,
}

/// Arguments of `stop-job`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Ends a check or repair. A recovery or resync that is due goes on; to hold that, too:
raid-fuse sync-action MOUNT frozen.")]
pub struct StopArgs {
    /// Where the array is mounted
    mountpoint: PathBuf,
}

fn parse(word: &str) -> std::result::Result<String, String> {
    let known = crate::control::request::sync_action(word);
    known.map(|_| word.to_string()).map_err(|error| error.to_string())
}

/// Sets it, or prints it.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.action {
        Some(action) => set(&args.mountpoint, action),
        None => {
            let report = online::report(&args.mountpoint)?;
            out::print(&format!("{}\n", report.sync_action()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Ends what somebody asked for.
pub fn stop(args: &StopArgs) -> Result<ExitCode> {
    set(&args.mountpoint, "idle")
}

fn set(mountpoint: &Path, action: &str) -> Result<ExitCode> {
    let done = ask(mountpoint, &Request::SyncAction { action: action.into() })?;
    out::print(&format!("{}\n", done.text))?;
    Ok(ExitCode::SUCCESS)
}
