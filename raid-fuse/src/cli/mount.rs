//! `mount`: an array as a file in a directory, served until it is unmounted.

use super::create::MISSING;
use super::start::{Choices, Started};
use super::{exit, members, out};
use crate::control::{Context, Control};
use crate::daemon::{self, Outcome, Service};
use crate::export::Volume;
use crate::export::options::{self, Cache};
use crate::mountpoint;
use crate::report::Report;
use crate::volume::{ArrayVolume, Facts, STATUS};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::Assembly;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

/// Examples for `--help`.
const EXAMPLES: &str = "\
The array is the file MOUNTPOINT/volume; beside it `mdstat`, `detail` and `status.json` tell how it
does, and md/ has the files of the kernel's /sys/block/mdX/md: `echo check > md/sync_action`.
Members can be given in any order, spares too: a degraded array begins to fill one at once.
`unmount` writes everything back and marks it clean.
What is given but is no member of the array is left out: it is told now, and in the status. Where
members of several arrays are given, --name or --uuid says which array is meant.
The word `missing` stands for nobody.

Examples:
  raid-fuse mount d0.img d1.img d2.img d3.img /mnt/a
  raid-fuse mount d0.img d1.img d3.img /mnt/a --degraded
  raid-fuse mount --read-only /dev/sd[b-e] /mnt/a
  raid-fuse mount *.img /mnt/a --name home    (only the members of that array; or --uuid)
  raid-fuse mount d*.img /mnt/a --overlay /tmp/changes    (the members are only read)
  mkfs.ext4 /mnt/a/volume && mount -o loop /mnt/a/volume /mnt/files

Exit codes: 0 mounted, 2 too few members, 3 members are missing and --degraded was not given,
4 refused, 5 in use, 64 the command line makes no sense, 1 anything else.";

/// Arguments of `mount`.
#[derive(clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// The members, then the directory to mount on
    #[arg(required = true, num_args = 1.., value_name = "MEMBER... MOUNTPOINT")]
    paths: Vec<String>,
    /// Write nothing, neither data nor superblocks
    #[arg(long, short = 'r', short_alias = 'o', alias = "readonly")]
    read_only: bool,
    #[command(flatten)]
    choices: Choices,
    /// Stay in the foreground until unmounted or interrupted
    #[arg(long, short)]
    foreground: bool,
    /// What the kernel caches of the volume: none, read or writeback
    #[arg(long, value_name = "WHAT", default_value = "none", value_parser = parse_cache)]
    cache: Cache,
    /// Threads that answer requests [default: one per core, 2 to 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Let other users look in
    #[arg(long)]
    allow_other: bool,
    /// Leave out the folder md/ with the kernel's files; commands work all the same
    #[arg(long)]
    no_control_files: bool,
    /// Where the daemon writes what it has to say
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

fn parse_cache(text: &str) -> std::result::Result<Cache, String> {
    match text {
        "none" => Ok(Cache::None),
        "read" => Ok(Cache::Read),
        "writeback" => Ok(Cache::Writeback),
        _ => Err(format!("found `{text}`, expected none, read or writeback")),
    }
}

/// Mounts; in the foreground, returns when the mount has ended.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (path, specs) = args.paths.split_last().expect("the parser wants an argument");
    // What is missing is just not given; a file may be called that.
    let is_given = |spec: &&String| *spec != MISSING || Path::new(MISSING).exists();
    let specs: Vec<String> = specs.iter().filter(is_given).cloned().collect();
    if specs.is_empty() {
        let text = format!("give every MEMBER, then the MOUNTPOINT; only {path} was given");
        return Ok(exit::misuse(&Error::invalid(text)));
    }
    let path = mountpoint::resolve(Path::new(path)).map_err(|error| not_a_place(path, error))?;
    let options = daemon::Options {
        foreground: args.foreground,
        log: args.log.clone(),
        mount: options::Options {
            cache: args.cache,
            threads: args.threads.map(usize::from),
            allow_other: args.allow_other,
            ..options::Options::default()
        },
        ..daemon::Options::default()
    };
    match daemon::serve(&path, &options, || open(args, &specs, &path))? {
        Outcome::Running { .. } => out::print(&headline(&path))?,
        Outcome::Stopped => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// A last argument that is a member was meant as one.
fn not_a_place(path: &str, error: Error) -> Error {
    match Path::new(path).is_file() {
        true => Error::invalid(format!("{path} is a file; the last argument is the mount point")),
        false => error,
    }
}

/// Runs in the process that serves.
fn open(args: &Args, specs: &[String], path: &Path) -> Result<Service> {
    let Started { array, assembly, bitmap } = args.choices.start(specs, args.read_only)?;
    let array = Arc::new(array);
    let facts = Arc::new(Facts::new(array.clone(), &assembly, bitmap, path));
    let report = facts.report();
    let control =
        Arc::new(Control::new(array.clone(), context(args, specs, path, &assembly, &facts)?));
    let volume = ArrayVolume::new(facts, (!args.no_control_files).then(|| control.clone()));
    if args.foreground {
        out::print(&line(path, &report))?;
    }
    let name = if report.name.is_empty() { report.uuid } else { report.name };
    Ok(Service {
        name,
        volume: Arc::new(volume) as Arc<dyn Volume>,
        members: members::paths(specs),
        control: Some(control),
        on_stop: Box::new(move || array.stop()),
    })
}

/// What the array does not know of itself, for those who manage it.
fn context(
    args: &Args,
    specs: &[String],
    path: &Path,
    assembly: &Assembly,
    facts: &Arc<Facts>,
) -> Result<Context> {
    let overlay = args.choices.overlay.as_deref().map(std::path::absolute).transpose();
    let facts = facts.clone();
    Ok(Context {
        format: assembly.format,
        open: members::options(args.choices.overlay.is_some(), args.choices.direct),
        overlay: overlay.map_err(|error| Error::io("the overlay", error))?,
        specs: specs.to_vec(),
        mountpoint: path.to_path_buf(),
        report: Box::new(move || facts.report()),
    })
}

/// What is mounted where, as the mount itself says.
fn headline(path: &Path) -> String {
    match read(path) {
        Ok(report) => line(path, &report),
        Err(_) => format!("mounted on {}\n", path.display()),
    }
}

fn line(path: &Path, report: &Report) -> String {
    format!("{}: {}\n", path.join("volume").display(), report.headline())
}

/// The report a live mount keeps.
pub fn read(path: &Path) -> Result<Report> {
    let file = path.join(STATUS);
    let text = std::fs::read(&file).map_err(|error| no_report(path, error))?;
    serde_json::from_slice(&text).map_err(|error| {
        let text = format!("{} does not describe an array: {error}", file.display());
        Error::new(ErrorKind::Metadata, text)
    })
}

/// A mount whose daemon is gone, and what to do.
pub fn died(path: &Path) -> Error {
    let shown = path.display();
    let text = format!(
        "the daemon of {shown} died; mount the array again with the same command, or take the \
         mount away: raid-fuse unmount {shown}"
    );
    Error::new(ErrorKind::Io, text)
}

fn no_report(path: &Path, error: std::io::Error) -> Error {
    let shown = path.display();
    if mountpoint::is_dead(&error) {
        return died(path);
    }
    match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Error::new(
            ErrorKind::Refused,
            format!("nothing of ours is mounted on {shown}; give the mount point or the members"),
        ),
        _ => Error::io(shown, error),
    }
}
