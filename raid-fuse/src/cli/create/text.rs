//! What `create` tells: what was made, or what is in the way.

use super::{Args, Bitmap, Found, MISSING, Policy, id_text};
use crate::cli::{amount, members};
use raid_core::assembly;
use raid_core::error::ErrorKind;
use raid_core::meta::assemble::{Candidate, Group, Options, groups};
use raid_core::meta::create::Creation;
use raid_core::meta::foreign::Foreign;
use raid_core::meta::{Sighting, examine, time};
use raid_core::units::Sectors;
use std::fmt::Write;

/// What was made, or would be.
pub fn made(args: &Args, creation: &Creation, zeroed: bool) -> String {
    let array = &creation.array;
    let mut text = match args.dry_run {
        true => "would create:\n".to_string(),
        false => "created:\n".to_string(),
    };
    let mut line = |label: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{label:>18} : {value}");
    };
    line("Raid Level", args.level.name.into());
    let word = (args.level.layout_name)(array.layout);
    if word != "-" {
        line("Layout", default(word, args.layout.is_none()));
    }
    if !array.chunk.is_empty() {
        line("Chunk Size", default(amount::exact(array.chunk), args.chunk.is_none()));
    }
    line("Raid Devices", members_line(args));
    line("Metadata", creation.format.name.into());
    if let Some(first) = creation.members.first() {
        line(
            "Data Offset",
            default(amount::exact(first.member.data_at), args.data_offset.is_none()),
        );
    }
    line(
        "Array Size",
        format!("{} {}", amount::exact(creation.size), amount::human(creation.size.bytes())),
    );
    if !array.component.is_empty() {
        line("Used Dev Size", amount::exact(array.component));
    }
    if !array.name.is_empty() {
        line("Name", examine::printable(&array.name));
    }
    line("UUID", id_text(&array.uuid));
    line("Creation Time", format!("{} ({})", time::to_text(array.ctime), array.ctime));
    line("Bitmap", bitmap(args, creation));
    if creation.array.has_redundancy() && creation.array.level >= 4 {
        line("Consistency Policy", policy(args).into());
    }
    line("State", state(args, creation, zeroed));
    text.push_str(&account(args, creation));
    for warning in &creation.warnings {
        text.push_str(&format!("note: {warning}\n"));
    }
    text.push_str(&next(args));
    text
}

fn default(value: String, is_default: bool) -> String {
    if is_default { format!("{value} (default)") } else { value }
}

fn members_line(args: &Args) -> String {
    let missing = args.members.iter().filter(|member| *member == MISSING).count();
    match missing {
        0 => args.raid_devices.to_string(),
        n => format!("{}, {n} missing", args.raid_devices),
    }
}

fn bitmap(args: &Args, creation: &Creation) -> String {
    if args.bitmap == Bitmap::Internal {
        return "internal".into();
    }
    match creation.array.has_redundancy() {
        true if args.write_journal.is_none() && args.consistency_policy != Some(Policy::Ppl) => {
            "none (for one: --bitmap=internal)".into()
        }
        true => "none".into(),
        false => "none".into(),
    }
}

/// mdadm's word for what keeps redundancy right.
fn policy(args: &Args) -> &'static str {
    match args.consistency_policy {
        Some(Policy::Ppl) => "ppl",
        _ if args.write_journal.is_some() => "journal",
        _ if args.bitmap == Bitmap::Internal => "bitmap",
        _ => "resync",
    }
}

fn state(args: &Args, creation: &Creation, zeroed: bool) -> String {
    let degraded = if args.members.iter().any(|m| m == MISSING) { ", degraded" } else { "" };
    let redundant = creation.array.has_redundancy();
    if creation.members.iter().any(|planned| planned.member.recovery.is_some()) {
        return "the last member is rebuilt when it is first mounted".into();
    }
    let clean = match (creation.array.resync, redundant) {
        (Some(_), _) => "to be resynced when it is first mounted".to_string(),
        (None, false) => return "clean: nothing to keep in sync".into(),
        (None, true) if args.assume_clean => "clean, as --assume-clean says".into(),
        (None, true) if zeroed => "clean: the members hold only zeros".into(),
        (None, true) => "clean".into(),
    };
    match clean.strip_prefix("clean") {
        Some(rest) => format!("clean{degraded}{rest}"),
        None => format!("{clean}{degraded}"),
    }
}

/// Where the given bytes go, in lines that add up.
fn account(args: &Args, creation: &Creation) -> String {
    let account = &creation.breakdown;
    let redundancy = if matches!(args.level.number, 1 | 10) { "copies" } else { "parity" };
    let total = account.given + account.missing;
    let mut text = format!("Of {} bytes in the members:\n", account.given.bytes());
    let rows = [
        ("usable", account.usable),
        (redundancy, account.redundancy),
        ("metadata", account.metadata),
        ("rounding", account.rounding),
    ];
    let mut row = |label: &str, sign: &str, sectors: Sectors, why: &str| {
        let bytes = sectors.bytes();
        let human = amount::human(bytes);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sign}{label:>17} : {bytes:>16} bytes  {human}{why}");
    };
    rows.iter().for_each(|(label, sectors)| row(label, " ", *sectors, ""));
    let why = match (account.unused.is_empty(), args.size) {
        (true, _) => "",
        (false, Some(super::Size::Exactly(_))) => ": beyond --size",
        (false, _) => ": the smallest member decides how much of each is used",
    };
    row("unused", " ", account.unused, why);
    if !account.missing.is_empty() {
        row("on missing", "-", account.missing, "");
    }
    row("sum", "=", total - account.missing, "");
    text
}

/// The command to go on with.
fn next(args: &Args) -> String {
    let words =
        members::quoted(super::present(args).chain(&args.write_journal).map(String::as_str));
    let degraded = if args.members.iter().any(|m| m == MISSING) { " --degraded" } else { "" };
    match args.dry_run {
        true => "nothing was written\n".into(),
        false => format!("to use it:\n  mkdir -p mnt && raid-fuse mount {words} mnt{degraded}\n"),
    }
}

/// Why `create` refuses.
pub fn in_the_way(found: &[Found]) -> String {
    let mut text = String::from("members hold something already; nothing was written:");
    list(found, &mut text);
    let candidates: Vec<Candidate> = found.iter().map(Found::candidate).collect();
    for group in groups(&candidates) {
        text.push_str(&format!("\n  {}", instead(&group, &candidates)));
    }
    text.push_str("\n  to overwrite it all: the same command with --force");
    text
}

/// How to use an array that is there: a command that works, or what is missing for one.
fn instead(group: &Group, candidates: &[Candidate]) -> String {
    let names: Vec<&str> = group.members.iter().map(|&i| candidates[i].name.as_str()).collect();
    let words = members::quoted(names);
    let options = Options { uuid: Some(group.uuid), ..Options::default() };
    let (found, decided) = (group.members.len(), assembly::decide(candidates, &options));
    let what = format!("to use the {} array that is there", group.label());
    match decided.map_err(|error| error.kind) {
        Ok(_) => format!("{what}: raid-fuse mount {words} MOUNTPOINT"),
        Err(ErrorKind::Degraded) => format!(
            "{what}: give its other members as well, or without them: \
             raid-fuse mount --degraded {words} MOUNTPOINT"
        ),
        Err(ErrorKind::Dead) => format!(
            "{what}: more of its members are needed than the {found} given here ({words}); \
             to find them: raid-fuse scan FOLDER"
        ),
        Err(_) => format!("{what}: see raid-fuse assemble --explain {words}"),
    }
}

/// What `--force` overwrites.
pub fn overwritten(found: &[Found]) -> String {
    let mut text = String::from("overwriting what was there:");
    list(found, &mut text);
    text
}

fn list(found: &[Found], text: &mut String) {
    for Found { name, content, .. } in found {
        for sighting in &content.md {
            text.push_str(&format!("\n  {name}: {}", md(sighting)));
        }
        for foreign in &content.foreign {
            let Foreign { summary, at, .. } = foreign;
            text.push_str(&format!("\n  {name}: holds {} (at byte {at})", one(summary)));
        }
    }
}

/// `an ext4 file system`, as it is said.
fn one(what: &str) -> String {
    let spelled = ["MBR", "NTFS", "XFS", "F2FS", "LVM2"].iter().any(|word| what.starts_with(word));
    let vowel = what.starts_with(|c: char| "aeioAEIO".contains(c));
    match (what.ends_with("space"), spelled || vowel) {
        (true, _) => what.to_string(),
        (false, true) => format!("an {what}"),
        (false, false) => format!("a {what}"),
    }
}

/// An md superblock in a line.
pub fn md(sighting: &Sighting) -> String {
    let identity = sighting.identity();
    let name = match identity.name.is_empty() {
        true => String::new(),
        false => format!(" {:?}", examine::printable(&identity.name)),
    };
    let role = match &sighting.record {
        Ok(found) => format!(", device {} of {}", found.member.number, found.array.slots),
        Err(_) => String::new(),
    };
    let damaged = if identity.is_sound { "" } else { ", damaged" };
    format!(
        "md {} member of {} array{name} {}{role}, last used {}, {} events{damaged}",
        sighting.format,
        examine::level_name(identity.level),
        id_text(&identity.uuid),
        time::to_text(identity.utime),
        identity.events
    )
}
