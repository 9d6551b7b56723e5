//! `repair`: makes redundancy agree again, on members that are not in use.
//!
//! Everything that is to be written is known before it is written, and told. Without a word about
//! whom to believe it is md's `repair`: data over parity, the first copy over the others.

use super::choice::Choice;
use super::offline::{Offline, Progress, place, plural, role, short, want_all};
use super::scrub_online::{self, Scrub};
use super::start::tell;
use super::{exit, members, out};
use raid_core::device::{OpenOptions, write_at};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::Code;
use raid_core::meta::assemble::{Options, SeatState};
use raid_core::scrub::{self, Finding, Fix, Part, Policy, Verdict, fixes};
use std::path::Path;
use std::process::ExitCode;

/// Findings told without `--show`.
const SHOWN: u64 = 1000;

/// Arguments of `repair`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Compares as `check` does and writes what makes redundancy agree. Without --locate or --majority it
does what md's repair does: parity is made from data, copies from the first one. That makes a wrong
content final if the data was wrong, which is warned of where it is known; look with --dry-run
first. The members are locked meanwhile.
With a mount point alone, the daemon of the mounted array does it while users go on.

Examples:
  raid-fuse repair /mnt/a --wait
  raid-fuse repair --dry-run d?.img             (says what would be written)
  raid-fuse repair --locate d?.img              (RAID 6: corrects the unit that lies)
  raid-fuse repair --majority a.img b.img c.img (RAID 1, 10: most copies are right)

Exit codes: 0 everything agrees now, 1 something was left alone, 3 members are missing, 4 refused
(a resync is due, or there is no redundancy), 5 in use.")]
pub struct Args {
    /// Files or block devices, all of the array, in any order
    #[arg(required = true, value_name = "MEMBER|MOUNTPOINT")]
    members: Vec<String>,
    /// Say what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// RAID 6: correct the unit that P and Q name, leave alone what they cannot
    #[arg(long, conflicts_with = "majority")]
    locate: bool,
    /// RAID 1 and 10 of three and more copies: correct what differs from most
    #[arg(long)]
    majority: bool,
    /// Places to tell of
    #[arg(long, value_name = "K", default_value_t = SHOWN)]
    show: u64,
    #[command(flatten)]
    array: Choice,
    /// A mounted array: wait for the end, and tell what was found
    #[arg(long, short)]
    wait: bool,
}

/// Compares and writes; told as it goes.
pub fn run(args: &Args) -> Result<ExitCode> {
    if let [only] = &args.members[..]
        && members::is_mountpoint_like(only)
    {
        let given = [
            (args.dry_run, "--dry-run"),
            (args.locate, "--locate"),
            (args.majority, "--majority"),
            (args.array.uuid.is_some(), "--uuid"),
            (args.array.name.is_some(), "--name"),
        ];
        return match scrub_online::refuse_options(&given) {
            Some(code) => Ok(code),
            None => scrub_online::start(Path::new(only), Scrub::Repair, args.wait),
        };
    }
    if let Some(code) = scrub_online::refuse_wait(args.wait) {
        return Ok(code);
    }
    let how = match args.dry_run {
        true => OpenOptions::reading(),
        false => OpenOptions::default(),
    };
    let options = Options { read_only: args.dry_run, ..Options::default() };
    let offline = Offline::open(&args.members, &how, &args.array, &options).map_err(want_all)?;
    check_state(&offline)?;
    tell(&offline.assembly, true);
    let policy = policy(args, &offline)?;
    let mut work = Work {
        args,
        offline: &offline,
        policy,
        done: Done::default(),
        warned: false,
        failed: None,
    };
    let mut progress = Progress::new("repairing");
    let summary = scrub::scan(
        &offline.target,
        &scrub::Options::default(),
        &mut |finding| work.finding(&finding),
        &mut |done, total| progress.tell(done, total),
    );
    drop(progress);
    let Work { done, failed, .. } = work;
    let flushed = flush(args, &offline);
    failed.map_or(Ok(()), Err)?;
    flushed?;
    let left = done.left + summary.unreadable;
    out::print(&total(args, &done, summary.mismatch_cnt, summary.unreadable))?;
    Ok(match left {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(exit::MISMATCH),
    })
}

fn refused(text: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, text)
}

/// Only an array that is whole, clean and written by us is written.
fn check_state(offline: &Offline) -> Result<()> {
    let assembly = &offline.assembly;
    if let Some(hazard) = offline.target.layout.hazard().filter(|hazard| hazard.read_only()) {
        return Err(refused(format!("the array may not be written: {hazard}")));
    }
    if offline.target.layout.shape().code == Code::None {
        return Err(refused(format!("{} has no redundancy to repair", offline.level())));
    }
    if !offline.target.unsynced.is_empty() {
        return Err(refused(
            "the array was not stopped cleanly: a resync comes first, which makes all redundancy \
             from the data; mount the array and wait until `raid-fuse status` says clean",
        ));
    }
    if let Some((slot, seat)) = assembly.replacements.first() {
        return Err(refused(format!(
            "{} is being filled to replace the member of slot {slot}: finish that first",
            seat.name
        )));
    }
    let seats = assembly.seats.iter().flatten();
    if let Some(seat) = seats.clone().find(|seat| seat.state != SeatState::InSync) {
        return Err(refused(format!("{} is being rebuilt: finish that first", seat.name)));
    }
    if let Some(seat) = seats.clone().find(|seat| seat.events != assembly.array.events) {
        return Err(refused(format!(
            "{} is behind the others: mount and unmount the array first, which makes them even",
            seat.name
        )));
    }
    let bars = assembly.warnings.iter().find(|warning| warning.starts_with("read-only"));
    match bars {
        Some(why) => Err(refused(format!("the array may not be written: {why}"))),
        None => Ok(()),
    }
}

/// Whom to believe, where the level can know it.
fn policy(args: &Args, offline: &Offline) -> Result<Policy> {
    let shape = offline.target.layout.shape();
    if args.locate && shape.code != Code::PQ {
        return Err(refused(format!(
            "--locate needs P and Q of RAID 6; {} cannot tell who is wrong",
            offline.level()
        )));
    }
    if args.majority {
        let first = raid_core::units::StripeNo(0);
        let copies = offline.target.layout.stripe(first).units.len();
        if shape.code != Code::Copy || copies < 3 {
            return Err(refused(
                "--majority needs three or more copies (RAID 1 or 10): two cannot outvote each \
                 other",
            ));
        }
    }
    Ok(if args.locate || args.majority { Policy::Liars } else { Policy::Md })
}

/// What was done so far.
#[derive(Default)]
struct Done {
    places: u64,
    bytes: u64,
    left: u64,
}

struct Work<'a> {
    args: &'a Args,
    offline: &'a Offline,
    policy: Policy,
    done: Done,
    /// It was told that the one who is wrong is believed.
    warned: bool,
    failed: Option<Error>,
}

impl Work<'_> {
    /// Tells of one finding and makes it right. After a failure nothing more is written.
    fn finding(&mut self, finding: &Finding) {
        if self.failed.is_some() {
            return;
        }
        let layout = &*self.offline.target.layout;
        let told = self.done.places + self.done.left < self.args.show;
        let place = place(finding, layout);
        let Some(fixes) = fixes(layout.shape().code, finding, self.policy) else {
            self.done.left += 1;
            let text = format!("{place}: left alone: cannot tell who is wrong\n");
            self.failed = told.then(|| out::print(&text).err()).flatten();
            return;
        };
        self.done.places += 1;
        self.warn(finding, &fixes);
        for fix in fixes {
            let text = format!("{place}: {}\n", self.describe(finding, &fix));
            let written = match told {
                true => out::print(&text),
                false => Ok(()),
            };
            self.done.bytes += fix.new.len() as u64;
            if let Err(error) = written.and_then(|()| self.write(&fix)) {
                self.failed = Some(error);
                return;
            }
        }
    }

    /// Once, before the first such write: somebody is known to be wrong, and not corrected.
    fn warn(&mut self, finding: &Finding, fixes: &[Fix]) {
        let Verdict::Liars(liars) = &finding.verdict else { return };
        let kept = |part: &&Part| fixes.iter().all(|fix| fix.role != part.unit.role);
        let wrong = liars.iter().map(|at| &finding.parts[*at]).find(kept);
        let (Some(part), false) = (wrong, self.warned) else { return };
        self.warned = true;
        let (option, witness) = match self.offline.target.layout.shape().code {
            Code::PQ => ("--locate", "P and Q say"),
            _ => ("--majority", "most copies say"),
        };
        out::note(&format!(
            "warning: {witness} that slot {} ({}) is wrong, and a repair without {option} makes \
             the others fit it; to correct it: the same command with {option}",
            part.unit.slot,
            self.offline.name(part)
        ));
    }

    fn describe(&self, finding: &Finding, fix: &Fix) -> String {
        let part = finding.parts.iter().find(|part| part.unit.role == fix.role);
        let part = part.expect("a fix is of a unit of its finding");
        let differs = fix.old.iter().zip(&fix.new).position(|(a, b)| a != b).unwrap_or(0);
        let at = self.offline.target.device_at(finding, part).unwrap_or_default();
        format!(
            "{} on slot {} ({}), device sectors {at} to {}: from byte {differs} {} becomes {}",
            role(part, &*self.offline.target.layout),
            fix.slot,
            self.offline.name(part),
            at + finding.len - raid_core::units::Sectors(1),
            short(&fix.old, differs),
            short(&fix.new, differs)
        )
    }

    fn write(&self, fix: &Fix) -> Result<()> {
        if self.args.dry_run {
            return Ok(());
        }
        let member = self.offline.target.members[fix.slot.index()].as_ref();
        let member = member.expect("a fix is of a member that was read");
        write_at(&*member.device, member.data_at + fix.at, &fix.new)
            .map_err(|error| Error::io(format!("writing {}", member.name), error))
    }
}

/// What was written is made durable also if more could not be.
fn flush(args: &Args, offline: &Offline) -> Result<()> {
    if args.dry_run {
        return Ok(());
    }
    for member in offline.target.members.iter().flatten() {
        let io = |error| Error::io(format!("flushing {}", member.name), error);
        member.device.flush().map_err(io)?;
    }
    Ok(())
}

fn total(args: &Args, done: &Done, count: u64, unreadable: u64) -> String {
    let told = done.places + done.left;
    let mut text = match told.saturating_sub(args.show) {
        0 => String::new(),
        more => format!("... and {more} more\n"),
    };
    let verb = if args.dry_run { "would be made right" } else { "made right" };
    text.push_str(&format!(
        "{} {verb}, {} bytes written{}; mismatch_cnt was {count}\n",
        plural(done.places, "place"),
        done.bytes,
        if args.dry_run { " (by --dry-run: none)" } else { "" },
    ));
    if done.left > 0 {
        text.push_str(&format!("{} left alone\n", plural(done.left, "place")));
    }
    if unreadable > 0 {
        text.push_str(&format!("{} could not be read\n", plural(unreadable, "page")));
    }
    text
}
