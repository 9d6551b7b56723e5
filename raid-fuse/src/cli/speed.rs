//! `speed`: how fast the jobs of a mounted array may go.

use super::out;
use crate::control::Request;
use crate::control::client::ask;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `speed`.
#[derive(clap::Args)]
#[command(after_long_help = "\
KiB of each member a second, as the kernel's sync_speed_min and sync_speed_max; until the mount
ends. Without options, prints them.

Examples:
  raid-fuse speed /mnt/a --max 20000
  raid-fuse speed /mnt/a --min 100000     (hurry, although users are active)")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// What a job takes even while users are active
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..))]
    min: Option<u32>,
    /// What it takes at most
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..))]
    max: Option<u32>,
}

/// Sets and prints them.
pub fn run(args: &Args) -> Result<ExitCode> {
    let done = ask(&args.mountpoint, &Request::Limits { min: args.min, max: args.max })?;
    out::print(&format!("{}\n", done.text))?;
    Ok(ExitCode::SUCCESS)
}
