//! What `check` found, for people.

use super::Outcome;
use crate::cli::amount;
use crate::cli::members::quoted;
use crate::cli::offline::{Offline, place, plural, role, short};
use raid_core::layout::Code;
use raid_core::scrub::{Finding, PAGE, Part, Summary, Verdict};
use raid_core::units::Sectors;

/// The whole report.
pub fn report(outcome: &Outcome) -> String {
    let Outcome { offline, summary, findings, .. } = outcome;
    if offline.target.layout.shape().code == Code::None {
        return format!("{} has no redundancy: there is nothing to compare\n", offline.level());
    }
    let mut text = String::new();
    for finding in findings {
        text.push_str(&describe(finding, offline));
    }
    let more = summary.findings - findings.len() as u64;
    if more > 0 {
        text.push_str(&format!("... and {more} more (--show {} lists all)\n", summary.findings));
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text.push_str(&total(outcome));
    text
}

/// One finding: where, who, and what each candidate holds and would hold.
fn describe(finding: &Finding, offline: &Offline) -> String {
    let layout = &*offline.target.layout;
    let mut text = format!("{}: {}\n", place(finding, layout), verdict(finding, offline));
    for (index, part) in finding.parts.iter().enumerate() {
        text.push_str(&format!(
            "  {}{}\n",
            whereabouts(finding, part, offline),
            mark(finding, index)
        ));
        text.push_str(&contents(finding, index));
    }
    text
}

fn verdict(finding: &Finding, offline: &Offline) -> String {
    let layout = &*offline.target.layout;
    let present = finding.parts.iter().filter(|part| part.content.is_some()).count();
    match &finding.verdict {
        Verdict::Liars(liars) => {
            let name = |at: &usize| {
                let part = &finding.parts[*at];
                format!(
                    "slot {} ({}) is wrong: its {}",
                    part.unit.slot,
                    offline.name(part),
                    role(part, layout)
                )
            };
            liars.iter().map(name).collect::<Vec<String>>().join("; ")
        }
        Verdict::Several => "two or more units are wrong: cannot tell which".into(),
        Verdict::CannotTell if layout.shape().code == Code::Copy => {
            format!("{present} copies differ: cannot tell which is wrong")
        }
        Verdict::CannotTell => format!("one of {present} units is wrong: cannot tell which"),
    }
}

/// `slot 1 (d1.img): data chunk 361, member sector 123456 (sector 127552 of the device), ...`
fn whereabouts(finding: &Finding, part: &Part, offline: &Offline) -> String {
    let mut text = format!(
        "slot {} ({}): {}",
        part.unit.slot,
        offline.name(part),
        role(part, &*offline.target.layout)
    );
    if let Some(at) = part.array_at {
        text.push_str(&format!(", array sector {at}"));
    }
    text.push_str(&format!(", member sector {}", finding.member_at(part)));
    if let Some(at) = offline.target.device_at(finding, part) {
        text.push_str(&format!(" (device sector {at})"));
    }
    text
}

fn mark(finding: &Finding, index: usize) -> &'static str {
    match (finding.is_liar(index), &finding.parts[index].content) {
        (true, _) => "  <- wrong",
        (false, None) => "  not there",
        (false, Some(_)) => "",
    }
}

fn contents(finding: &Finding, index: usize) -> String {
    let part = &finding.parts[index];
    let (Some(range), Some(found), Some(implied)) =
        (part.difference(), &part.content, &part.implied)
    else {
        return String::new();
    };
    let place = match range.len() {
        1 => format!("byte {} differs", range.start),
        _ => format!("bytes {} to {} differ", range.start, range.end - 1),
    };
    let (found, implied) = (short(found, range.start), short(implied, range.start));
    match finding.is_liar(index) {
        true => format!("    {place}: holds {found}, should hold {implied}\n"),
        false => {
            format!("    {place}: holds {found}; if it is the wrong one, {implied} is right\n")
        }
    }
}

fn total(outcome: &Outcome) -> String {
    let Outcome { offline, sample, summary, .. } = outcome;
    let slots = offline.target.members.len();
    let there = offline.target.members.iter().flatten().count();
    let mut text = format!(
        "{}, {there} of {slots} members: {} of 4 KiB compared ({} of each member)\n",
        offline.level(),
        plural(summary.pages, "page"),
        amount::human(PAGE.times(summary.pages).bytes())
    );
    if let Some((_, seed)) = sample {
        let stripes = offline.target.layout.shape().stripes;
        text.push_str(&format!(
            "a sample: {} of {stripes} rows, drawn by --seed {seed}\n",
            summary.stripes
        ));
    }
    if summary.cut {
        text.push_str("stopped by --limit: there may be more\n");
    }
    text.push_str(&not_compared(summary, offline));
    text.push_str(&format!(
        "{}; mismatch_cnt {} (sectors, counted as by md)\n",
        agreement(summary),
        summary.mismatch_cnt
    ));
    if summary.pages == 0 && summary.unsynced > 0 && there == slots {
        text.push_str(&resync_first(offline));
    }
    for (slot, count) in summary.liars.iter().enumerate().filter(|(_, count)| **count > 0) {
        let name = offline.target.members[slot].as_ref().map_or("missing", |member| &member.name);
        text.push_str(&format!("slot {slot} ({name}) is wrong in {}\n", plural(*count, "place")));
    }
    text
}

/// What to type before there is anything to compare.
fn resync_first(offline: &Offline) -> String {
    let journal = offline.assembly.journal.as_ref().map(|journal| journal.name.as_str());
    let seats = offline.assembly.seats.iter().flatten().map(|seat| seat.name.as_str());
    let members = quoted(seats.chain(journal));
    let mount = "raid-fuse mount";
    format!("let it resync first:\n  {mount} {members} MOUNTPOINT && raid-fuse wait MOUNTPOINT\n")
}

fn agreement(summary: &Summary) -> String {
    match (summary.pages, summary.differing) {
        (0, _) => "nothing could be compared".into(),
        (_, 0) => "all that was compared agrees".into(),
        (_, count) => format!(
            "{} of 4 KiB {} not agree",
            plural(count, "page"),
            match count {
                1 => "does",
                _ => "do",
            }
        ),
    }
}

/// What was left out, and why.
fn not_compared(summary: &Summary, offline: &Offline) -> String {
    let mut text = String::new();
    let mut line = |count: u64, why: &str| {
        if count > 0 {
            text.push_str(&format!("not compared: {}: {why}\n", plural(count, "page")));
        }
    };
    let from = offline.target.unsynced.from().unwrap_or(Sectors::ZERO);
    let initial = "the array was not stopped cleanly, or is not initialised; a resync is due";
    let todo = "which is done while it is mounted";
    line(summary.unsynced, &format!("{initial} from sector {from} on, {todo}"));
    line(summary.missing, "without the missing members there is nothing to compare with");
    line(summary.unreadable, "a sector does not read, or is in a bad-block log");
    text
}
