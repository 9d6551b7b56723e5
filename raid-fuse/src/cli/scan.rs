//! `scan`: which arrays are in these files and folders, and what the rest is.

use super::{examine, members, out, start};
use raid_core::assembly::{self, Content, survives};
use raid_core::error::ErrorKind;
use raid_core::error::Result;
use raid_core::meta::assemble::{Candidate, Fate, Options, Refusal, Verdict, assemble};
use raid_core::meta::foreign::{Foreign, Kind};
use raid_core::meta::partitions::Partition;
use raid_core::meta::{Identity, Sighting, examine as words, uuid};
use raid_core::units::{SECTOR, Sectors};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

/// Files looked at in one folder; more is a mistake, and each takes milliseconds.
const FILES_MAX: usize = 10_000;

/// Arguments of `scan`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Folders are not entered deeper than one level. Members are grouped by the id of their array.
Members of other RAIDs and what was named by itself are told; of files in folders that carry no md
the number is told, with --verbose each. Members in partitions of a disk image are named as they
can be typed: slice:start=SECTOR,len=SECTORS+IMAGE. Exit code 1 if there is no array.

Examples:
  raid-fuse scan                      (this folder)
  raid-fuse scan -v images/
  raid-fuse scan --json /dev/sd?")]
pub struct Args {
    /// Files, block devices or folders of such
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<String>,
    /// Name every file that carries no md, and what it carries
    #[arg(long, short)]
    verbose: bool,
    /// For programs: stable keys, sizes in bytes, nothing else on standard output
    #[arg(long)]
    json: bool,
}

/// Prints arrays first, then everything else.
pub fn run(args: &Args) -> Result<ExitCode> {
    let scan = Scan::of(&args.paths);
    let arrays = scan.arrays();
    match args.json {
        true => out::json(&scan.document(&arrays))?,
        false => out::print(&scan.text(&arrays, args.verbose))?,
    }
    Ok(if arrays.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What was looked at.
#[derive(Default)]
struct Scan {
    candidates: Vec<Candidate>,
    /// Neither members nor unreadable.
    others: Vec<Other>,
    unreadable: Vec<(String, String)>,
}

/// Something without an md superblock.
struct Other {
    path: String,
    foreign: Vec<Foreign>,
    /// It was asked for itself, not found in a folder.
    named: bool,
}

impl Other {
    /// True if its line is worth reading among many.
    fn stands_out(&self) -> bool {
        self.named || self.foreign.iter().any(|foreign| foreign.kind == Kind::Raid)
    }
}

/// An array that was found.
struct Array {
    identity: Identity,
    members: Vec<Verdict>,
    slots: Option<u16>,
    /// Why it cannot be started as it is.
    refusal: Option<(ErrorKind, String)>,
    /// It was not stopped cleanly, and has redundancy to be made right.
    dirty: bool,
}

impl Scan {
    fn of(paths: &[String]) -> Scan {
        let mut scan = Scan::default();
        for path in paths {
            match Path::new(path).is_dir() {
                true => scan.folder(path),
                false => scan.file(path, true),
            }
        }
        scan
    }

    fn folder(&mut self, path: &str) {
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.unreadable.push((path.into(), error.to_string())),
        };
        let mut names = Vec::new();
        for entry in entries {
            match entry {
                Ok(entry) => names.push(entry.path()),
                Err(error) => self.unreadable.push((path.into(), error.to_string())),
            }
        }
        names.sort();
        if names.len() > FILES_MAX {
            let text = format!("has {} entries; only {FILES_MAX} are looked at", names.len());
            self.unreadable.push((path.into(), text));
            names.truncate(FILES_MAX);
        }
        for name in names {
            let Some(text) = name.to_str() else {
                let why = "its name is not UTF-8; rename it".to_string();
                self.unreadable.push((name.to_string_lossy().into_owned(), why));
                continue;
            };
            let meta = std::fs::metadata(&name);
            if meta.as_ref().is_ok_and(|meta| meta.is_file() && (1..SECTOR).contains(&meta.len())) {
                // Too short for anything; a text beside the images.
                let (path, foreign) = (text.to_string(), Vec::new());
                self.others.push(Other { path, foreign, named: false });
                continue;
            }
            match meta.map(|meta| meta.file_type()) {
                Ok(kind) if kind.is_file() || kind.is_block_device() => self.file(text, false),
                Ok(_) => {}
                Err(error) => self.unreadable.push((text.into(), error.to_string())),
            }
        }
    }

    /// A file, and the partitions inside an image unless the whole is a member: partitions of an
    /// array that lies on whole disks are no members of their own. Those of a block device have
    /// devices of their own.
    fn file(&mut self, path: &str, named: bool) {
        let looked = look(path);
        let partitions = match &looked {
            Ok((_, content))
                if Path::new(path).is_file() && content.md.iter().all(|s| s.record.is_err()) =>
            {
                content.partitions.clone()
            }
            _ => Vec::new(),
        };
        self.take(path, looked, named);
        for Partition { area, .. } in partitions {
            let spec = format!("slice:start={},len={}+{path}", area.at, area.len);
            match look(&spec) {
                Ok((_, content)) if content.md.is_empty() => {}
                looked => self.take(&spec, looked, named),
            }
        }
    }

    fn take(&mut self, path: &str, looked: Result<(Sectors, Content)>, named: bool) {
        match looked {
            Err(error) => self.unreadable.push((path.into(), error.to_string())),
            Ok((_, content)) if content.md.is_empty() => {
                self.others.push(Other { path: path.into(), foreign: content.foreign, named });
            }
            Ok((sectors, content)) => {
                let (name, sightings) = (path.to_string(), content.md);
                self.candidates.push(Candidate { name, sectors, sightings });
            }
        }
    }

    /// Arrays by id; superblocks whose checksum is wrong belong to none.
    fn arrays(&self) -> Vec<Array> {
        let mut groups: BTreeMap<[u8; 16], Vec<&Sighting>> = BTreeMap::new();
        for sighting in self.candidates.iter().flat_map(|candidate| &candidate.sightings) {
            let identity = sighting.identity();
            if identity.is_sound {
                groups.entry(identity.uuid).or_default().push(sighting);
            }
        }
        groups.into_iter().map(|(uuid, sightings)| self.array(uuid, &sightings)).collect()
    }

    fn array(&self, uuid: [u8; 16], sightings: &[&Sighting]) -> Array {
        let newest = sightings.iter().max_by_key(|sighting| sighting.identity().events);
        let newest = newest.expect("a group has at least one superblock");
        let slots = newest.record.as_ref().ok().map(|found| found.array.slots);
        let options = Options { uuid: Some(uuid), ..Options::default() };
        let decided = assemble(&self.candidates, &options, &survives);
        let (verdicts, refusal, dirty) = match decided {
            Ok(assembly) => {
                let dirty = start::needs_resync(&assembly);
                (assembly.verdicts, None, dirty)
            }
            Err(Refusal { kind, reason, verdicts }) => {
                let (refusal, dirty) = self.without_missing(uuid, (kind, reason));
                (verdicts, Some(refusal), dirty)
            }
        };
        let belongs = |candidate: &Candidate| {
            candidate.sightings.iter().any(|sighting| sighting.identity().uuid == uuid)
        };
        let pairs = verdicts.into_iter().zip(&self.candidates);
        let members = pairs.filter(|(_, candidate)| belongs(candidate)).map(|pair| pair.0);
        let (identity, members) = (newest.identity(), members.collect());
        Array { identity, members, slots, refusal, dirty }
    }

    /// What becomes of an array that lacks members, once the user says --degraded: that alone
    /// may not do. And whether it is dirty.
    fn without_missing(
        &self,
        uuid: [u8; 16],
        refusal: (ErrorKind, String),
    ) -> ((ErrorKind, String), bool) {
        if refusal.0 != ErrorKind::Degraded {
            return (refusal, false);
        }
        let options = Options { uuid: Some(uuid), degraded: true, ..Options::default() };
        match assemble(&self.candidates, &options, &survives) {
            Ok(assembly) => (refusal, start::needs_resync(&assembly)),
            Err(Refusal { kind, reason, .. }) => {
                let looking = Options { read_only: true, ..options };
                let decided = assemble(&self.candidates, &looking, &survives);
                ((kind, reason), decided.is_ok_and(|assembly| start::needs_resync(&assembly)))
            }
        }
    }

    /// Candidates none of whose superblocks can be believed.
    fn damaged(&self) -> impl Iterator<Item = &Candidate> {
        let sound = |candidate: &&Candidate| {
            candidate.sightings.iter().any(|sighting| sighting.identity().is_sound)
        };
        self.candidates.iter().filter(move |candidate| !sound(candidate))
    }

    fn text(&self, arrays: &[Array], verbose: bool) -> String {
        let mut text: String = arrays.iter().map(Array::text).collect();
        for candidate in self.damaged() {
            text.push_str(&format!("{}: {}\n", candidate.name, damage(candidate)));
        }
        let (told, counted): (Vec<&Other>, Vec<&Other>) =
            self.others.iter().partition(|other| verbose || other.stands_out());
        for Other { path, foreign, .. } in told {
            text.push_str(&format!("{path}: {}\n", other(foreign)));
        }
        text.push_str(&summary(&counted));
        for (path, error) in &self.unreadable {
            text.push_str(&format!("{}\n", unreadable(path, error)));
        }
        text
    }

    fn document(&self, arrays: &[Array]) -> Json {
        let other = |Other { path, foreign, .. }: &Other| {
            let things: Vec<Json> = foreign.iter().map(examine::foreign).collect();
            json!({ "path": path, "what": other(foreign), "foreign": things })
        };
        let damaged = |candidate: &Candidate| {
            let things: [Json; 0] = [];
            json!({ "path": candidate.name, "what": damage(candidate), "foreign": things })
        };
        let others = self.damaged().map(damaged).chain(self.others.iter().map(other));
        let warnings = self.unreadable.iter().map(|(path, error)| unreadable(path, error));
        json!({
            "arrays": arrays.iter().map(Array::document).collect::<Vec<Json>>(),
            "others": others.collect::<Vec<Json>>(),
            "unreadable": self.unreadable.iter().map(|(path, _)| path).collect::<Vec<_>>(),
            "warnings": warnings.collect::<Vec<String>>(),
        })
    }
}

impl Array {
    fn found(&self) -> usize {
        let serves = |verdict: &&Verdict| matches!(verdict.fate, Fate::In(_) | Fate::Recovering(_));
        match self.refusal.as_ref().map(|(kind, _)| kind) {
            // Those who would serve are known only if the array can be read at all.
            None | Some(ErrorKind::Degraded | ErrorKind::Dead) => {
                self.members.iter().filter(serves).count()
            }
            Some(_) => {
                let waits = |v: &&Verdict| {
                    matches!(v.fate, Fate::Journal | Fate::Spare | Fate::Replacement(_))
                };
                self.members.len() - self.members.iter().filter(waits).count()
            }
        }
    }

    fn level(&self) -> String {
        words::level_name(self.identity.level)
    }

    fn name(&self) -> String {
        words::printable(&self.identity.name)
    }

    /// `startable`, or how, or why not.
    fn verdict(&self) -> String {
        let dirty = if self.dirty { "; dirty: a resync runs once it is mounted" } else { "" };
        match &self.refusal {
            None => format!("startable{dirty}"),
            Some((ErrorKind::Degraded, _)) => format!("startable with --degraded{dirty}"),
            Some((_, reason)) => format!("not startable: {reason}"),
        }
    }

    fn text(&self) -> String {
        let slots = self.slots.map_or("?".into(), |slots| slots.to_string());
        let name = self.name();
        let name = if name.is_empty() { String::new() } else { format!(" {name:?}") };
        let mut text = format!(
            "{} {}{name}: {} of {slots} members, {}\n",
            self.level(),
            uuid::to_text(&self.identity.uuid),
            self.found(),
            self.verdict()
        );
        for member in &self.members {
            text.push_str(&format!("  {member}\n"));
        }
        text
    }

    fn document(&self) -> Json {
        let member = |verdict: &Verdict| {
            let (slot, fate) = match verdict.fate {
                Fate::In(slot) => (Some(slot.0), "in"),
                Fate::Recovering(slot) => (Some(slot.0), "rebuilding"),
                Fate::Replacement(slot) => (Some(slot.0), "replacement"),
                Fate::Spare => (None, "spare"),
                Fate::Journal => (None, "journal"),
                Fate::Out => (None, "out"),
            };
            json!({ "path": verdict.name, "fate": fate, "slot": slot, "why": verdict.why })
        };
        let degraded = matches!(self.refusal, Some((ErrorKind::Degraded, _)));
        json!({
            "uuid": uuid::to_text(&self.identity.uuid),
            "name": self.name(),
            "level": self.level(),
            "slots": self.slots,
            "found": self.found(),
            "events": self.identity.events,
            "startable": self.refusal.is_none() || degraded,
            "degraded": degraded,
            "dirty": self.dirty,
            "reason": self.refusal.as_ref().map(|(_, reason)| reason),
            "members": self.members.iter().map(member).collect::<Vec<Json>>(),
        })
    }
}

/// `5 other files carry no md: 2 ext4, 3 of no known kind (-v names them)`.
fn summary(others: &[&Other]) -> String {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for other in others {
        // Sorts last.
        let kind = other.foreign.first().map_or("~", |foreign| foreign.name);
        *kinds.entry(kind).or_default() += 1;
    }
    let word = |(kind, count): (&&str, &usize)| match *kind {
        "~" => format!("{count} of no known kind"),
        kind => format!("{count} {kind}"),
    };
    let words: Vec<String> = kinds.iter().map(word).collect();
    match others.len() {
        0 => String::new(),
        1 => format!("1 other file carries no md: {} (-v names it)\n", words.join(", ")),
        n => format!("{n} other files carry no md: {} (-v names them)\n", words.join(", ")),
    }
}

fn other(foreign: &[Foreign]) -> String {
    match foreign.is_empty() {
        true => "not md, and nothing else that is known".into(),
        false => foreign.iter().map(examine::not_md).collect::<Vec<String>>().join(", "),
    }
}

fn damage(candidate: &Candidate) -> String {
    let why = |sighting: &Sighting| match &sighting.record {
        Ok(_) => format!("an md {} superblock", sighting.format),
        Err(error) => format!("a damaged md {} superblock: {error}", sighting.format),
    };
    candidate.sightings.iter().map(why).collect::<Vec<String>>().join("; ")
}

/// The length of a device and what it carries.
fn look(spec: &str) -> Result<(Sectors, Content)> {
    let device = members::look(spec)?;
    let content = assembly::content(&*device)?;
    Ok((device.facts().sectors, content))
}

/// The path is named once.
fn unreadable(path: &str, error: &str) -> String {
    match error.contains(path) {
        true => format!("cannot be read: {error}"),
        false => format!("cannot be read: {path}: {error}"),
    }
}
