//! `speed`: how fast the jobs of a mounted array may go.

use super::{amount, out};
use crate::control::Request;
use crate::control::client::ask;
use raid_core::engine::Limits;
use raid_core::error::Result;
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `speed`.
#[derive(clap::Args)]
#[command(after_long_help = "\
KiB of each member a second, as the kernel's sync_speed_min and sync_speed_max, or with K, M or G;
`system` is what a mount begins with. Until the mount ends. Without options, prints them.

Examples:
  raid-fuse speed /mnt/a --max 20000
  raid-fuse speed /mnt/a --max 20M
  raid-fuse speed /mnt/a --max system
  raid-fuse speed /mnt/a --min 100000     (hurry, although users are active)")]
pub struct Args {
    /// Where the array is mounted
    mountpoint: PathBuf,
    /// What a job takes even while users are active
    #[arg(long, value_name = "KIB", value_parser = parse)]
    min: Option<Speed>,
    /// What it takes at most
    #[arg(long, value_name = "KIB", value_parser = parse)]
    max: Option<Speed>,
}

/// A limit as typed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Speed {
    /// What a mount begins with.
    System,
    /// KiB of each member a second.
    Kib(u32),
}

impl Speed {
    fn or(self, system: u32) -> u32 {
        match self {
            Speed::System => system,
            Speed::Kib(kib) => kib,
        }
    }
}

fn parse(text: &str) -> std::result::Result<Speed, String> {
    if text == "system" {
        return Ok(Speed::System);
    }
    let wrong = || format!("found '{text}', expected KiB a second, as in 20000 or 20M, or system");
    let bytes = amount::kib(text).map_err(|_| wrong())?.bytes();
    let kib = u32::try_from(bytes >> 10).ok().filter(|kib| *kib > 0 && bytes % 1024 == 0);
    kib.map(Speed::Kib).ok_or_else(wrong)
}

/// Sets and prints them.
pub fn run(args: &Args) -> Result<ExitCode> {
    let system = Limits::default();
    let min = args.min.map(|speed| speed.or(system.min));
    let max = args.max.map(|speed| speed.or(system.max));
    let done = ask(&args.mountpoint, &Request::Limits { min, max })?;
    out::print(&format!("{}\n", done.text))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speeds_are_kib_or_have_a_unit() {
        let cases = [
            ("20000", Some(Speed::Kib(20_000))),
            ("10M", Some(Speed::Kib(10 << 10))),
            ("512K", Some(Speed::Kib(512))),
            ("1G", Some(Speed::Kib(1 << 20))),
            ("system", Some(Speed::System)),
            ("0", None),
            ("100b", None),
            ("8T", None),
            ("fast", None),
            ("-1", None),
        ];
        for (text, speed) in cases {
            assert_eq!(parse(text).ok(), speed, "{text}");
        }
    }
}
