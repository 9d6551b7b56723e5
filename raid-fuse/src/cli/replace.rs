//! `replace`: another device takes over from a member while that still serves.

use super::fail::NAMES;
use super::{exit, online};
use crate::control::Request;
use raid_core::error::{Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `replace`.
#[derive(clap::Args)]
#[command(after_long_help = format!("\
{NAMES}
The array keeps its redundancy all the time. When the new device is complete, the old one is marked
failed and can be removed. Without --with any spare is taken, now or when one is added.

Examples:
  raid-fuse replace /mnt/a d2.img --with new.img && raid-fuse wait /mnt/a
  raid-fuse replace /mnt/a slot:2                 (a spare takes over)

Exit codes: 0 begun or noted, 4 the new device carries something, 5 not possible now,
1 anything else."))]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// Members that are to go
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// The spare or the new device that is to come; once for each member
    #[arg(long, value_name = "NEW", num_args = 1..)]
    with: Vec<String>,
    /// Take a new device whatever it carries
    #[arg(long)]
    force: bool,
}

/// Replaces them, one after the other.
pub fn run(args: &Args) -> Result<ExitCode> {
    if args.with.len() > args.members.len() {
        let (new, old) = (args.with.len(), args.members.len());
        let text = format!("{new} devices with --with for {old} members: give one for each");
        return Ok(exit::misuse(&Error::invalid(text)));
    }
    for (index, member) in args.members.iter().enumerate() {
        let with = args.with.get(index).map(|with| online::named(with));
        let force = args.force;
        let request = |member| Request::Replace { member, with: with.clone(), force };
        online::each(&args.mountpoint, std::slice::from_ref(member), &request)?;
    }
    Ok(ExitCode::SUCCESS)
}
