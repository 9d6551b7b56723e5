//! `grow`: changes that an array takes while it is mounted; today its write-intent bitmap.

use super::{amount, out};
use crate::control::Request;
use crate::control::client::ask;
use raid_core::error::{Error, Result};
use raid_core::units::Sectors;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `grow`.
#[derive(clap::Args)]
#[command(after_long_help = "\
With a write-intent bitmap a crash, or a member that was away, costs a resync of the marked regions
only. Geometry, size and level do not change here.

Examples:
  raid-fuse grow /mnt/a --bitmap=internal
  raid-fuse grow /mnt/a --bitmap=internal --bitmap-chunk 1M
  raid-fuse grow /mnt/a --bitmap=none")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// internal or none
    #[arg(long, short, value_name = "WHERE", value_parser = ["internal", "none"])]
    bitmap: String,
    /// Bytes of a member for each bit, a power of two [default: 64M, more on large members]
    #[arg(long, value_name = "SIZE", value_parser = amount::kib)]
    bitmap_chunk: Option<Sectors>,
}

/// Adds or removes it.
pub fn run(args: &Args) -> Result<ExitCode> {
    let wrong = || Error::invalid("--bitmap-chunk must be a power of two below 4G, as in 64M");
    let bytes = |chunk: Sectors| u32::try_from(chunk.bytes()).map_err(|_| wrong());
    let chunk = args.bitmap_chunk.map(bytes).transpose()?;
    let request = Request::Bitmap { place: args.bitmap.clone(), chunk };
    let done = ask(&args.mountpoint, &request)?;
    out::print(&format!("{}\n", done.text))?;
    Ok(ExitCode::SUCCESS)
}
