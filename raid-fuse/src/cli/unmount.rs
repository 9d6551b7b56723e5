//! `unmount`: takes a mount down and returns when everything is on the members.

use super::out;
use crate::unmount::{How, unmount};
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `unmount`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Returns when all data are on the members, the superblocks say clean and the daemon is gone.

Examples:
  raid-fuse unmount /mnt/a
  raid-fuse unmount --lazy /mnt/a    (also if programs still have files open)")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Also if somebody uses it: open files get errors
    #[arg(long, short)]
    lazy: bool,
}

/// Unmounts and waits.
pub fn run(args: &Args) -> Result<ExitCode> {
    let how = How { lazy: args.lazy, patience: None };
    unmount(&args.mountpoint, how, &mut |line| out::note(line))?;
    Ok(ExitCode::SUCCESS)
}
