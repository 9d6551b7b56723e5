//! The kernel's files of a running array, as in `/sys/block/mdX/md`, to the byte.
//!
//! Names and values are those of Linux 6.1's `drivers/md/md.c` and `md-bitmap.c`; what is not
//! offered here (reshape, suspension, stripe cache) has no file. Members are `dev-NAME`, with the
//! member's file name where the kernel has the block device's. Writing is in `stores.rs`.

use super::members::{Known, known};
use crate::export::Text;
use crate::report::Report;
use raid_core::driver::Array;
use raid_core::engine::{Limits, Member, SAFE_MODE_DELAY, State, Status};
use raid_core::layout::Code;
use raid_core::meta::record::MemberRecord;
use raid_core::units::{SECTOR, Sectors};

/// The folder in the mount.
pub const FOLDER: &str = "md";

/// Bytes of a member's name that are used: a file name has at most 255.
const NAME_MAX: usize = 200;

/// All files of `array` at this moment.
pub fn all(array: &Array, report: &Report) -> Vec<Text> {
    let status = array.status();
    let mut files = array_files(&status, report);
    if status.shape.code != Code::None {
        files.extend(job_files(&status, report));
    }
    files.extend(bitmap_files(&status));
    let known = known(array, &status);
    let names = names(&known);
    let members = status.members.iter().chain(&status.replacements).flatten();
    for member in members.chain(&status.others) {
        let own = known.iter().zip(&names).find(|(known, _)| known.device == member.device);
        let Some((known, name)) = own else { continue };
        files.extend(member_files(member, known, name));
        let seated = known.slot.filter(|_| member.is_live() && !known.replacement);
        files.extend(seated.map(|slot| Text::link(path(&format!("rd{slot}")), name.clone())));
    }
    files
}

/// The folder names of all members, in order: `dev-a.img`; where two have the same file name, the
/// later one gets its device's number behind.
pub fn names(all: &[Known]) -> Vec<String> {
    let base = |known: &Known| {
        let last = known.name.rsplit('/').next().unwrap_or(&known.name);
        let safe = last.chars().map(|c| if c.is_control() { '_' } else { c });
        let mut len = 0;
        let short = safe.take_while(|c| {
            len += c.len_utf8();
            len <= NAME_MAX
        });
        format!("dev-{}", short.collect::<String>())
    };
    let bases: Vec<String> = all.iter().map(base).collect();
    let named = all.iter().zip(&bases).map(|(known, base)| {
        let twin = |(other, name): (&Known, &String)| name == base && other.device < known.device;
        match all.iter().zip(&bases).any(twin) {
            true => format!("{base}:{}", known.device.0),
            false => base.clone(),
        }
    });
    named.collect()
}

fn path(name: &str) -> String {
    format!("{FOLDER}/{name}")
}

fn line(name: &str, value: impl std::fmt::Display) -> Text {
    Text::fixed(path(name), format!("{value}\n"))
}

/// What every array has.
fn array_files(status: &Status, report: &Report) -> Vec<Text> {
    let array = &status.array;
    let id = report.uuid.replace(':', "");
    let dashed = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| id.get(part).unwrap_or(""));
    vec![
        line("array_size", "default"),
        line("array_state", array_state(status)),
        line("chunk_size", array.chunk.bytes()),
        line("component_size", kib(array.component)),
        line("consistency_policy", &report.consistency_policy),
        // The kernel keeps it in an int.
        line("layout", array.layout as i32),
        line("level", &report.level),
        line("metadata_version", &report.metadata),
        line("raid_disks", array.slots),
        line("resync_start", or_none(array.resync)),
        line("safe_mode_delay", millis(SAFE_MODE_DELAY.0 / 1_000_000)),
        line("uuid", dashed.join("-")),
    ]
}

fn array_state(status: &Status) -> &'static str {
    match () {
        () if status.read_only => "readonly",
        () if status.broken => "broken",
        () if status.dirty => "active",
        () => "clean",
    }
}

/// What arrays with redundancy have.
fn job_files(status: &Status, report: &Report) -> Vec<Text> {
    let (completed, speed) = match &status.job {
        Some(job) => {
            let kib_a_second = job.speed / (1024 / SECTOR);
            (format!("{} / {}", job.done, job.total), kib_a_second.to_string())
        }
        None => ("none".into(), "none".into()),
    };
    let (now, system) = (status.limits, Limits::default());
    let limit = |now: u32, system: u32| {
        let whose = if now == system { "system" } else { "local" };
        format!("{now} ({whose})\n")
    };
    vec![
        line("degraded", status.degraded.len()),
        line("last_sync_action", &report.last_sync_action),
        line("mismatch_cnt", status.mismatches),
        Text::writable(path("sync_action"), format!("{}\n", report.sync_action())),
        line("sync_completed", completed),
        line("sync_speed", speed),
        Text::writable(path("sync_speed_min"), limit(now.min, system.min)),
        Text::writable(path("sync_speed_max"), limit(now.max, system.max)),
    ]
}

/// The kernel has these also without a bitmap.
fn bitmap_files(status: &Status) -> Vec<Text> {
    let Some(bitmap) = &status.bitmap else {
        return vec![
            line("bitmap/can_clear", ""),
            line("bitmap/chunksize", 0),
            line("bitmap/location", "none"),
            line("bitmap/metadata", "internal"),
        ];
    };
    let records = status.members.iter().flatten().map(|member| &member.record);
    let offset =
        |record: &MemberRecord| record.bitmap_at.map(|at| at.0 as i64 - record.super_at.0 as i64);
    let offset = records.filter_map(offset).next().unwrap_or_default();
    let can_clear = status.degraded.is_empty();
    vec![
        line("bitmap/can_clear", can_clear),
        line("bitmap/chunksize", bitmap.chunk_bytes),
        line("bitmap/location", format_args!("{offset:+}")),
        line("bitmap/metadata", "internal"),
    ]
}

fn member_files(member: &Member, known: &Known, folder: &str) -> Vec<Text> {
    let record = &member.record;
    let line = |name: &str, value: &dyn std::fmt::Display| line(&format!("{folder}/{name}"), value);
    let slot = match known.slot.filter(|_| member.is_live()) {
        Some(slot) => slot.to_string(),
        None if member.state == State::Journal => "journal".into(),
        None => "none".into(),
    };
    let recovery = match member.state {
        State::InSync => None,
        State::Recovering(at) => Some(at),
        State::Spare | State::Failed | State::Journal => Some(Sectors::ZERO),
    };
    // As the kernel: errors that were made good, not the one that failed the member.
    let corrected = if member.is_live() { member.errors } else { record.corrected_reads };
    let bad = record.bad_blocks.iter().map(|(at, len)| format!("{at} {len}\n"));
    vec![
        Text::writable(path(&format!("{folder}/state")), format!("{}\n", state(member))),
        Text::fixed(path(&format!("{folder}/bad_blocks")), bad.collect::<String>()),
        line("errors", &corrected),
        line("offset", &record.data_at),
        line("recovery_start", &or_none(recovery)),
        line("size", &kib(record.data_len)),
        line("slot", &slot),
    ]
}

/// The words of the kernel's `state_show`, in its order.
fn state(member: &Member) -> String {
    let record = &member.record;
    let words = [
        (member.state == State::Failed, "faulty"),
        (member.state == State::InSync, "in_sync"),
        (member.state == State::Journal, "journal"),
        (record.write_mostly, "write_mostly"),
        (matches!(member.state, State::Spare | State::Recovering(_)), "spare"),
        (member.replace && member.is_live(), "want_replacement"),
        (record.replacement, "replacement"),
        (record.failfast, "failfast"),
    ];
    let words: Vec<&str> = words.iter().filter(|(set, _)| *set).map(|(_, word)| *word).collect();
    words.join(",")
}

fn or_none(at: Option<Sectors>) -> String {
    at.map_or("none".into(), |at| at.to_string())
}

fn kib(sectors: Sectors) -> u64 {
    sectors.bytes() >> 10
}

/// Milliseconds as seconds with three places.
fn millis(millis: u64) -> String {
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use raid_core::engine::DeviceId;

    #[test]
    fn folders_are_named_after_files_each_once() {
        let one = |device, name: &str| Known {
            device: DeviceId(device),
            name: name.into(),
            identity: None,
            slot: None,
            replacement: false,
            number: 0,
            state: State::InSync,
        };
        let long = "x".repeat(400);
        let all =
            [one(0, "d/a.img"), one(3, "e/a.img"), one(2, "b c\n"), one(4, &long), one(5, "")];
        let folders = names(&all);
        assert_eq!(folders[..3], ["dev-a.img", "dev-a.img:3", "dev-b c_"]);
        assert_eq!((folders[3].len(), folders[4].as_str()), (204, "dev-"));
    }

    #[test]
    fn times_have_three_places() {
        assert_eq!([millis(200), millis(5), millis(12_034)], ["0.200", "0.005", "12.034"]);
    }
}
