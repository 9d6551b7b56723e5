//! An array for people, in the words and the order of `mdadm --detail`.

use super::{Member, Report};
use crate::cli::amount;
use raid_core::meta::time;
use raid_core::units::Sectors;
use std::fmt::Write;

/// The text; `what` is the mount point or the members that were looked at.
pub fn text(report: &Report, what: &str) -> String {
    let mut text = format!("{what}:\n");
    let mut line = |label: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = match label.is_empty() {
            true => writeln!(text),
            false => writeln!(text, "{label:>18} : {value}"),
        };
    };
    geometry(report, &mut line);
    line("", "");
    state(report, &mut line);
    line("", "");
    identity(report, &mut line);
    text.push_str("\n    Number   RaidDevice State\n");
    report.members.iter().for_each(|member| text.push_str(&row(member)));
    if !report.warnings.is_empty() {
        text.push('\n');
    }
    report.warnings.iter().for_each(|warning| text.push_str(&format!("  note: {warning}\n")));
    text
}

fn geometry(report: &Report, line: &mut dyn FnMut(&str, &str)) {
    line("Version", &report.metadata);
    line("Creation Time", &time::to_text(report.created_seconds));
    line("Raid Level", &report.level);
    match report.size_bytes {
        Some(bytes) => line("Array Size", &kib(bytes)),
        None => line("Array Size", "unknown: it depends on members that are missing"),
    }
    if let Some(bytes) = report.component_bytes {
        line("Used Dev Size", &kib(bytes));
    }
    line("Raid Devices", &report.slots.to_string());
    let there = report.members.iter().filter(|member| member.path.is_some()).count();
    line("Total Devices", &there.to_string());
}

fn state(report: &Report, line: &mut dyn FnMut(&str, &str)) {
    line("Update Time", &time::to_text(report.updated_seconds));
    line("State", &report.state);
    line("Active Devices", &report.active.to_string());
    line("Working Devices", &report.working.to_string());
    line("Failed Devices", &report.failed.to_string());
    let waits = |member: &&Member| member.slot.is_none() && member.state == "spare";
    let spares = report.members.iter().filter(waits).count();
    line("Spare Devices", &spares.to_string());
    if let Some(job) = &report.resync {
        let label = match job.action.as_str() {
            "recovery" => "Rebuild Status",
            "check" => "Check Status",
            "repair" => "Repair Status",
            _ => "Resync Status",
        };
        let pending = if job.running { "" } else { ", waiting to go on" };
        line(label, &format!("{}% complete{pending}", job.percent()));
    }
    if matches!(report.last_sync_action.as_str(), "check" | "repair") {
        line("Mismatches", &format!("{} sectors", report.mismatch_cnt));
    }
}

fn identity(report: &Report, line: &mut dyn FnMut(&str, &str)) {
    if let Some(layout) = &report.layout {
        line("Layout", layout);
    }
    let label = if report.level_number == -1 { "Rounding" } else { "Chunk Size" };
    if report.chunk_bytes > 0 {
        line(label, &amount::exact(Sectors::floor_bytes(report.chunk_bytes)));
    }
    if (1..=10).contains(&report.level_number) {
        line("Consistency Policy", &report.consistency_policy);
    }
    if !report.name.is_empty() {
        line("Name", &report.name);
    }
    line("UUID", &report.uuid);
    let (high, low) = (report.events >> 32, report.events as u32);
    match report.metadata.as_str() {
        // mdadm shows the two words of the oldest version.
        "0.90" => line("Events", &format!("{high}.{low}")),
        _ => line("Events", &report.events.to_string()),
    }
}

fn row(member: &Member) -> String {
    let number = member.number.map_or("-".into(), |number| number.to_string());
    let slot = member.slot.map_or("-".into(), |slot| slot.to_string());
    let extra = if member.write_mostly { " writemostly" } else { "" };
    let errors = match member.errors {
        0 => String::new(),
        n => format!("   ({n} errors)"),
    };
    let path = member.path.as_deref().unwrap_or_default();
    let text = format!("{number:>8} {slot:>9}      {}{extra}   {path}{errors}", member.state);
    format!("{}\n", text.trim_end())
}

/// `14336 (14.0 MiB (14.7 MB))`, in KiB first, as mdadm.
fn kib(bytes: u64) -> String {
    format!("{} ({})", bytes >> 10, amount::human(bytes).replace(" (", " ").replace(')', ""))
}
