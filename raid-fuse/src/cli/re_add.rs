//! `re-add`: a former member goes back to its slot, and only what it missed is copied.

use super::online;
use crate::control::Request;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `re-add`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Possible if the array has a write-intent bitmap that covers what the member missed, or if it missed
nothing. Else the refusal says why, and `add` fills it anew. A member that is still in the array as
failed is taken out and back in one step. `missing` means all that were removed since the mount.

Examples:
  raid-fuse re-add /mnt/a d2.img
  raid-fuse re-add /mnt/a missing

Exit codes: 0 done, 4 it cannot go back, 5 it is in use, 1 anything else.")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Former members
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// Read them only when no other member can be
    #[arg(long, short = 'W')]
    write_mostly: bool,
}

/// Takes them back, one after the other.
pub fn run(args: &Args) -> Result<ExitCode> {
    let write_mostly = args.write_mostly;
    let request = |member| Request::ReAdd { member, write_mostly };
    online::each(&args.mountpoint, &args.members, &request)
}
