//! `remove`: a failed member or a spare of a mounted array leaves it.

use super::fail::NAMES;
use super::online;
use crate::control::Request;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `remove`.
#[derive(clap::Args)]
#[command(after_long_help = format!("\
{NAMES} `failed` means all failed members, `detached` (or `missing`) all whose file or disk is gone.
The file is closed and unlocked: it can be copied, moved or given to another array.

Examples:
  raid-fuse remove /mnt/a d2.img
  raid-fuse remove /mnt/a failed

Exit codes: 0 done or nothing to do, 5 it is in use (say `fail` first), 1 anything else."))]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Members to remove
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
}

/// Removes them, one after the other.
pub fn run(args: &Args) -> Result<ExitCode> {
    let request = |member| Request::Remove { member };
    online::each(&args.mountpoint, &args.members, &request)
}
