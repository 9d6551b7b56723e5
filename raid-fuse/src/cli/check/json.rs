//! What `check` found, for programs: keys that stay.

use super::Outcome;
use crate::cli::offline::Offline;
use crate::cli::values::hex;
use raid_core::layout::Role;
use raid_core::meta::{examine, uuid};
use raid_core::scrub::{Finding, Part, Verdict};
use serde_json::{Value, json};

/// Bytes of a content that are listed, from the first that differs.
const LISTED: usize = 64;

/// Everything.
pub fn document(outcome: &Outcome) -> Value {
    let Outcome { offline, sample, summary, findings } = outcome;
    let array = &offline.assembly.array;
    let members: Vec<Value> = offline
        .target
        .members
        .iter()
        .zip(&summary.liars)
        .enumerate()
        .map(|(slot, (member, wrong))| {
            let path = member.as_ref().map(|member| &member.name);
            json!({ "slot": slot, "path": path, "wrong": wrong })
        })
        .collect();
    json!({
        "uuid": uuid::to_text(&array.uuid),
        "name": examine::printable(&array.name),
        "level": offline.level(),
        "consistent": summary.is_clean(),
        "mismatch_cnt": summary.mismatch_cnt,
        "dirty": offline.assembly.dirty,
        "rows": offline.target.layout.shape().stripes,
        "rows_read": summary.stripes,
        "sample_seed": sample.map(|(_, seed)| seed),
        "page_bytes": 4096,
        "pages_compared": summary.pages,
        "pages_differing": summary.differing,
        "pages_unsynced": summary.unsynced,
        "pages_missing": summary.missing,
        "pages_unreadable": summary.unreadable,
        "stopped_by_limit": summary.cut,
        "members": members,
        "findings_total": summary.findings,
        "findings": findings.iter().map(|found| finding(found, offline)).collect::<Vec<Value>>(),
        "warnings": offline.assembly.warnings,
    })
}

fn finding(finding: &Finding, offline: &Offline) -> Value {
    let verdict = match finding.verdict {
        Verdict::Liars(_) => "located",
        Verdict::CannotTell => "cannot_tell",
        Verdict::Several => "several",
    };
    let parts = &finding.parts;
    let wrong: Vec<u16> = (0..parts.len())
        .filter(|index| finding.is_liar(*index))
        .map(|index| parts[index].unit.slot.0)
        .collect();
    let units: Vec<Value> = parts.iter().map(|part| unit(finding, part, offline)).collect();
    json!({
        "row": finding.stripe.0,
        "in_chunk_sector": finding.low.0,
        "sectors": finding.len.0,
        "verdict": verdict,
        "wrong_slots": wrong,
        "units": units,
    })
}

fn unit(finding: &Finding, part: &Part, offline: &Offline) -> Value {
    let chunk = offline.target.layout.shape().chunk;
    let role = match part.unit.role {
        Role::Data(_) => "data",
        Role::Copy(_) => "copy",
        Role::P => "p",
        Role::Q => "q",
    };
    let range = part.difference();
    let from = range.as_ref().map(|range| range.start);
    let bytes = |content: &Option<Vec<u8>>| {
        let (content, from) = (content.as_ref()?, from?);
        Some(hex(&content[from..content.len().min(from + LISTED)]))
    };
    json!({
        "role": role,
        "slot": part.unit.slot.0,
        "path": offline.name(part),
        "chunk": part.array_at.filter(|_| !chunk.is_empty()).map(|at| at.div_floor(chunk)),
        "array_sector": part.array_at.map(|at| at.0),
        "member_sector": finding.member_at(part).0,
        "device_sector": offline.target.device_at(finding, part).map(|at| at.0),
        "readable": part.content.is_some(),
        "first_difference_byte": from,
        "last_difference_byte": range.map(|range| range.end - 1),
        "found": bytes(&part.content),
        "implied": bytes(&part.implied),
    })
}
