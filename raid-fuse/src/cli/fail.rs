//! `fail`: a member of a mounted array is used no more.

use super::online;
use crate::control::Request;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// How members are named, for `--help` of all commands that name them.
pub const NAMES: &str = "\
A MEMBER is a path, a file name alone if only one member has it, slot:N, or number:N (the device
number in mdstat's brackets).";

/// Arguments of `fail`.
#[derive(clap::Args)]
#[command(after_long_help = format!("\
{NAMES} `detached` means all whose file or disk is gone.
The others' superblocks say so before this returns. The last copy of anything cannot be failed:
use `replace`.

Examples:
  raid-fuse fail /mnt/a d2.img
  raid-fuse fail /mnt/a slot:2 && raid-fuse remove /mnt/a failed

Exit codes: 0 done, 5 the array cannot do without it, 1 anything else."))]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Members to fail
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
}

/// Fails them, one after the other.
pub fn run(args: &Args) -> Result<ExitCode> {
    let request = |member| Request::Fail { member };
    online::each(&args.mountpoint, &args.members, &request)
}
