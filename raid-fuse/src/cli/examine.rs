//! `examine`: every superblock of a member, as it is, and what else is there.

use super::{exit, members, out};
use raid_core::assembly::{self, Content};
use raid_core::error::{Error, Result};
use raid_core::meta::examine::{self, Examination, Value};
use raid_core::meta::foreign::{Foreign, Kind};
use raid_core::meta::{PROBED, Sighting};
use raid_core::units::{SECTOR, Sectors};
use serde_json::{Map, Value as Json, json};
use std::process::ExitCode;

/// Arguments of `examine`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Prints what `mdadm --examine` prints, for every superblock found in any place, and names what else
the device carries. Nothing is written. Exit code 1 if a member carries no md superblock
or cannot be read; the others are shown all the same.

Examples:
  raid-fuse examine d0.img
  raid-fuse examine --json /dev/sd[b-e]
  raid-fuse examine --where d0.img    (where each metadata version would lie)")]
pub struct Args {
    /// Files or block devices
    #[arg(required = true, value_name = "MEMBER")]
    members: Vec<String>,
    /// For programs: stable keys, sizes in bytes, nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Where each metadata version lies on a device of this size
    #[arg(long = "where")]
    places: bool,
}

/// Shows all members; members without a superblock make it fail at the end.
pub fn run(args: &Args) -> Result<ExitCode> {
    let (looks, errors) = look_at(&args.members);
    match (args.json, args.places) {
        (true, _) => out::json(&document(&looks, &errors))?,
        (false, true) => looks.iter().try_for_each(|look| out::print(&place_table(look)))?,
        (false, false) => looks.iter().try_for_each(|look| out::print(&text(look)))?,
    }
    let bare = looks.iter().any(|look| look.content.md.is_empty());
    let failed = bare && !args.places;
    if failed && !args.json {
        let bare = looks.iter().filter(|look| look.content.md.is_empty());
        bare.for_each(|look| out::note(&no_superblock(look)));
    }
    if let Some((last, errors)) = errors.split_last() {
        errors.iter().for_each(|error| out::note(&error.to_string()));
        return Ok(exit::failure(last));
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// A device and what it carries.
struct Look {
    name: String,
    sectors: Sectors,
    content: Content,
}

/// What can be read, and why the rest cannot.
fn look_at(specs: &[String]) -> (Vec<Look>, Vec<Error>) {
    let look = |spec: &String| {
        let device = members::look(spec)?;
        let (facts, content) = (device.facts(), assembly::content(&*device)?);
        Ok(Look { name: facts.name.clone(), sectors: facts.sectors, content })
    };
    let (mut looks, mut errors) = (Vec::new(), Vec::new());
    for looked in specs.iter().map(look) {
        match looked {
            Ok(look) => looks.push(look),
            Err(error) => errors.push(error),
        }
    }
    (looks, errors)
}

fn no_superblock(look: &Look) -> String {
    let others: Vec<String> = look.content.foreign.iter().map(not_md).collect();
    match others.is_empty() {
        true => format!("{}: no md superblock, and nothing else that is known", look.name),
        false => format!("{}: {}", look.name, others.join(", ")),
    }
}

/// `not md (DDF: SNIA DDF RAID member)`.
pub fn not_md(foreign: &Foreign) -> String {
    let short = match (foreign.name, foreign.kind) {
        ("isw", _) => "IMSM".to_string(),
        ("zfs_member", _) => "ZFS".to_string(),
        (name, Kind::Raid | Kind::Volume | Kind::Encrypted) => name.to_uppercase(),
        (name, _) => name.to_string(),
    };
    format!("not md ({short}): {}", foreign.summary)
}

fn text(look: &Look) -> String {
    let mut text = format!("{}:\n", look.name);
    for sighting in &look.content.md {
        text.push_str(&examine::examine(sighting, look.sectors).to_string());
        text.push('\n');
    }
    if look.content.md.len() > 1 {
        text.push_str(&several(&look.content.md));
    }
    for foreign in &look.content.foreign {
        text.push_str(&format!("      Also There : {foreign}\n"));
    }
    text
}

/// Two superblocks on one member: which is which.
fn several(sightings: &[Sighting]) -> String {
    let mut text = format!("{} superblocks are here, the newest first:\n", sightings.len());
    let mut sorted: Vec<&Sighting> = sightings.iter().collect();
    sorted.sort_by_key(|sighting| std::cmp::Reverse(seconds(sighting)));
    for sighting in sorted {
        text.push_str(&format!("  {}\n", super::create::describe(sighting)));
    }
    text
}

fn seconds(sighting: &Sighting) -> u64 {
    raid_core::meta::time::seconds(sighting.identity().utime)
}

fn place_table(look: &Look) -> String {
    let mut text = format!(
        "{}: {} bytes, {} sectors\n",
        look.name,
        u128::from(look.sectors.0) * u128::from(SECTOR),
        look.sectors
    );
    for (name, at) in examine::places(look.sectors, PROBED) {
        let found = look.content.md.iter().any(|s| s.format.name == name);
        let mark = if found { "  <- found" } else { "" };
        text.push_str(&match at {
            Some(at) => format!("{name:>6} : byte {at} (sector {}){mark}\n", at / SECTOR),
            None => format!("{name:>6} : the device is too small\n"),
        });
    }
    text
}

fn document(looks: &[Look], errors: &[Error]) -> Json {
    let members: Vec<Json> = looks.iter().map(member).collect();
    let bare = looks.iter().filter(|look| look.content.md.is_empty());
    let errors = errors.iter().map(Error::to_string);
    let warnings: Vec<String> = bare.map(no_superblock).chain(errors).collect();
    json!({ "members": members, "warnings": warnings })
}

fn member(look: &Look) -> Json {
    let places: Map<String, Json> = examine::places(look.sectors, PROBED)
        .into_iter()
        .map(|(name, at)| (name.to_string(), json!(at)))
        .collect();
    let superblocks: Vec<Json> = look
        .content
        .md
        .iter()
        .map(|sighting| superblock(&examine::examine(sighting, look.sectors)))
        .collect();
    let warnings: Vec<String> = match look.content.md.len() {
        0 => vec!["no md superblock".into()],
        1 => Vec::new(),
        n => vec![format!("{n} superblocks are on this member")],
    };
    json!({
        "path": look.name,
        "size_bytes": look.sectors.0.checked_mul(SECTOR),
        "superblocks": superblocks,
        "foreign": look.content.foreign.iter().map(foreign).collect::<Vec<Json>>(),
        "places_bytes": places,
        "warnings": warnings,
    })
}

fn superblock(shown: &Examination) -> Json {
    let mut map = Map::new();
    map.insert("metadata".into(), json!(shown.metadata));
    for (key, value) in shown.values() {
        map.insert(key.into(), plain(value));
    }
    map.insert("warnings".into(), json!(shown.problems));
    Json::Object(map)
}

/// A value as JSON has it.
fn plain(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!(text),
        Value::Number(number) => json!(number),
        Value::Signed(number) => json!(number),
        Value::Flag(flag) => json!(flag),
        Value::List(words) => json!(words),
        Value::Null => Json::Null,
    }
}

/// Something foreign, for programs.
pub fn foreign(foreign: &Foreign) -> Json {
    let kind = match foreign.kind {
        Kind::FileSystem => "file_system",
        Kind::PartitionTable => "partition_table",
        Kind::Volume => "volume",
        Kind::Encrypted => "encrypted",
        Kind::Swap => "swap",
        Kind::Raid => "raid",
    };
    json!({
        "name": foreign.name,
        "kind": kind,
        "summary": foreign.summary,
        "at_bytes": foreign.at,
    })
}
