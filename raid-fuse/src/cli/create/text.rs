//! What `create` tells: what was made, or what is in the way.

use super::{Args, Bitmap, Found, MISSING, id_text};
use crate::cli::{members, size};
use raid_core::layout::Level;
use raid_core::meta::create::Creation;
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
        line("Chunk Size", default(size::exact(array.chunk), args.chunk.is_none()));
    }
    line("Raid Devices", members_line(args));
    line("Metadata", creation.format.name.into());
    if let Some(first) = creation.members.first() {
        line("Data Offset", default(size::exact(first.member.data_at), args.data_offset.is_none()));
    }
    line(
        "Array Size",
        format!("{} {}", size::exact(creation.size), size::human(creation.size.bytes())),
    );
    if !array.component.is_empty() {
        line("Used Dev Size", size::exact(array.component));
    }
    if !array.name.is_empty() {
        line("Name", String::from_utf8_lossy(&array.name).into_owned());
    }
    line("UUID", id_text(&array.uuid));
    line("Creation Time", format!("{} ({})", time::to_text(array.ctime), array.ctime));
    line("Bitmap", bitmap(args, creation));
    line("State", state(args, creation, zeroed));
    text.push_str(&account(args.level, creation));
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
        true => "none (for one: --bitmap=internal)".into(),
        false => "none".into(),
    }
}

fn state(args: &Args, creation: &Creation, zeroed: bool) -> String {
    let degraded = if args.members.iter().any(|m| m == MISSING) { ", degraded" } else { "" };
    let redundant = creation.array.has_redundancy();
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
fn account(level: &Level, creation: &Creation) -> String {
    let account = &creation.breakdown;
    let redundancy = if matches!(level.number, 1 | 10) { "copies" } else { "parity" };
    let total = account.given + account.missing;
    let mut text = format!("Of {} bytes in the members:\n", account.given.bytes());
    let rows = [
        ("usable", account.usable),
        (redundancy, account.redundancy),
        ("metadata", account.metadata),
        ("rounding", account.rounding),
    ];
    let mut row = |label: &str, sign: &str, sectors: Sectors| {
        let bytes = sectors.bytes();
        let human = size::human(bytes);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{sign}{label:>17} : {bytes:>16} bytes  {human}");
    };
    rows.iter().for_each(|(label, sectors)| row(label, " ", *sectors));
    if !account.missing.is_empty() {
        row("on missing", "-", account.missing);
    }
    row("sum", "=", total - account.missing);
    text
}

/// The command to go on with.
fn next(args: &Args) -> String {
    let present = args.members.iter().filter(|member| *member != MISSING).map(String::as_str);
    let words = members::quoted(present);
    let degraded = if args.members.iter().any(|m| m == MISSING) { " --degraded" } else { "" };
    match args.dry_run {
        true => "nothing was written\n".into(),
        false => format!("to use it:\n  mkdir -p mnt && raid-fuse mount {words} mnt{degraded}\n"),
    }
}

/// Why `create` refuses.
pub fn in_the_way(found: &Found) -> String {
    let mut text = String::from("these members are in use already; nothing was written:");
    list(found, &mut text);
    let md: Vec<&str> = found
        .iter()
        .filter(|(_, content)| !content.md.is_empty())
        .map(|(name, _)| name.as_str())
        .collect();
    if !md.is_empty() {
        let words = members::quoted(md);
        text.push_str(&format!(
            "\n  to use the array that is there: raid-fuse mount {words} MOUNTPOINT"
        ));
    }
    text.push_str("\n  to overwrite it all: the same command with --force");
    text
}

/// What `--force` overwrites.
pub fn overwritten(found: &Found) -> String {
    let mut text = String::from("overwriting what was there:");
    list(found, &mut text);
    text
}

fn list(found: &Found, text: &mut String) {
    for (name, content) in found {
        for sighting in &content.md {
            text.push_str(&format!("\n  {name}: {}", md(sighting)));
        }
        for foreign in &content.foreign {
            text.push_str(&format!("\n  {name}: {foreign}"));
        }
    }
}

/// An md superblock in a line.
pub fn md(sighting: &Sighting) -> String {
    let identity = sighting.identity();
    let name = match identity.name.is_empty() {
        true => String::new(),
        false => format!(" {:?}", String::from_utf8_lossy(&identity.name)),
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
