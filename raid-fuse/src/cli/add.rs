//! `add`: a device joins a mounted array.

use super::online;
use crate::control::Request;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `add`.
#[derive(clap::Args)]
#[command(after_long_help = "\
A degraded array begins to fill the device at once; else it is a spare that takes over by itself
when a member fails. A former member that missed only what the bitmap knows goes back to its slot.
The device must hold the used size of the members, and must carry nothing (or say --force).
Progress: raid-fuse wait MOUNT, or mdstat in the mount.

Examples:
  raid-fuse add /mnt/a new.img
  raid-fuse add /mnt/a /dev/sdf --write-mostly

Exit codes: 0 done, 4 it carries something, 5 it is in use, 1 anything else.")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Files or block devices to take in
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Whatever they carry
    #[arg(long)]
    force: bool,
    /// Read them only when no other member can be
    #[arg(long, short = 'W')]
    write_mostly: bool,
}

/// Adds them, one after the other.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (force, write_mostly) = (args.force, args.write_mostly);
    let request = |member| Request::Add { member, force, write_mostly };
    online::each(&args.mountpoint, &args.members, &request)
}
