//! `write-mostly`: whether a member is read only when no other can be.

use super::fail::NAMES;
use super::online;
use crate::control::Request;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `write-mostly`.
#[derive(clap::Args)]
#[command(after_long_help = format!("\
{NAMES}
For members that are slow or far away. The superblock keeps it.

Examples:
  raid-fuse write-mostly /mnt/a d1.img
  raid-fuse write-mostly /mnt/a d1.img --off"))]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Members
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Read them as the others again (mdadm's --readwrite)
    #[arg(long, alias = "readwrite")]
    off: bool,
}

/// Sets or takes away the flag.
pub fn run(args: &Args) -> Result<ExitCode> {
    let on = !args.off;
    online::each(&args.mountpoint, &args.members, &|member| Request::WriteMostly { member, on })
}
