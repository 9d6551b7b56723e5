//! What was tried, for people; and which way is best.

use super::Question;
use super::tries::{Check, Flags, Start, Try};
use super::witness::{Change, Witness, changed_since, events_max, is_stale};
use crate::cli::amount;
use crate::cli::members::quoted;
use crate::cli::offline::plural;
use raid_core::meta::time;
use raid_core::units::Slot;
use std::cmp::Reverse;
use std::ops::Range;

/// Runs of rows that are listed.
const RUNS_SHOWN: usize = 16;

/// The whole answer.
pub fn report(
    witnesses: &[Witness],
    tries: &[Try],
    together: Option<&Check>,
    question: &Question<'_>,
) -> String {
    let mut text = String::from("what the members say:\n");
    for witness in witnesses {
        text.push_str(&format!("  {}\n", testimony(witness, witnesses)));
    }
    text.push_str(&apart(witnesses));
    if let Some(check) = together.filter(|check| check.is_telling()) {
        text.push_str(&format!(
            "all of them side by side, each in the slot it claims: {}\n",
            agreement(check)
        ));
    }
    for (number, attempt) in tries.iter().enumerate() {
        text.push_str(&format!("\n{}. {}: {}", number + 1, attempt.label, outcome(attempt)));
    }
    let (count, seed) = question.sample;
    text.push_str(&format!(
        "\n(compared: {}, drawn by seed {seed})\n",
        plural(count, "random row")
    ));
    text.push_str(&verdict(tries, has_split(witnesses)));
    text
}

fn testimony(witness: &Witness, witnesses: &[Witness]) -> String {
    let mut text = match witness.slot {
        Some(slot) => format!("{}: slot {slot}", witness.name),
        None => format!("{}: no slot (a spare, a journal, or failed)", witness.name),
    };
    text.push_str(&format!(
        ", {} events, updated {}",
        witness.events(),
        time::to_text(witness.array.utime)
    ));
    if witness.array.resync.is_some() {
        text.push_str(", not stopped cleanly");
    }
    let accused: Vec<&str> =
        witness.accuses.iter().map(|at| witnesses[*at].name.as_str()).collect();
    if !accused.is_empty() {
        text.push_str(&format!("; says that {} failed or left", accused.join(", ")));
    }
    text
}

/// How far the members are from each other.
fn apart(witnesses: &[Witness]) -> String {
    let mut text = String::new();
    let max = events_max(witnesses);
    let latest = witnesses.iter().map(Witness::updated).max().unwrap_or(0);
    for witness in witnesses.iter().filter(|witness| is_stale(witness, witnesses)) {
        text.push_str(&format!(
            "{} is {} behind, last updated {} before the latest",
            witness.name,
            plural(max - witness.events(), "event"),
            span(latest.saturating_sub(witness.updated()))
        ));
        text.push_str(&match changed_since(witness, witnesses) {
            None => "; there is no bitmap that says how much changed since\n".to_string(),
            Some(Change::AtMost(bytes)) => format!(
                "; by the bitmap at most {} of each member changed since\n",
                amount::human(bytes)
            ),
            Some(Change::TooOld(events)) => {
                format!("; the bitmap only knows what changed after {events} events\n")
            }
            Some(Change::OutOfDate) => "; the bitmap is out of date and says nothing\n".into(),
        });
    }
    text
}

/// A time for people: the two largest units.
fn span(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => plural(seconds, "second"),
        (0, 0, _) => plural(minutes, "minute"),
        (0, _, _) => format!("{} {}", plural(hours, "hour"), plural(minutes, "minute")),
        _ => format!("{} {}", plural(days, "day"), plural(hours, "hour")),
    }
}

fn outcome(attempt: &Try) -> String {
    let start = match &attempt.result {
        Err(error) => return format!("does not start\n     {}\n", indented(&error.to_string())),
        Ok(start) => start,
    };
    let seats = &start.assembly.seats;
    let mut text =
        format!("starts, {} of {} members\n", seats.iter().flatten().count(), seats.len());
    for verdict in &start.assembly.verdicts {
        text.push_str(&format!("     {verdict}\n"));
    }
    text.push_str(&format!("     redundancy: {}\n", agreement(&start.check)));
    if let Some((rows, by_bitmap)) = &start.at_risk {
        text.push_str(&format!("     {}\n", at_risk(rows, *by_bitmap, start)));
    }
    text.push_str(&format!("     shows: {}\n", start.shows));
    text
}

fn indented(text: &str) -> String {
    text.replace('\n', "\n     ")
}

/// How many rows agree.
fn agreement(check: &Check) -> String {
    match (check.is_telling(), check.rows) {
        (false, _) => "nothing to compare, every member that serves is needed".into(),
        (true, 0) => format!("{} agree 100%", plural(check.summary.stripes, "random row")),
        (true, wrong) => {
            let all = check.summary.stripes;
            let share = 100.0 * (all - wrong) as f64 / all.max(1) as f64;
            format!("{wrong} of {} do not agree ({share:.0}% agree)", plural(all, "random row"))
        }
    }
}

/// Rows that an interrupted write and a missing member make doubtful.
fn at_risk(rows: &[Range<u64>], by_bitmap: bool, start: &Start) -> String {
    let missing: Vec<String> = start.assembly.missing.iter().map(|Slot(n)| n.to_string()).collect();
    let count: u64 = rows.iter().map(|run| run.end - run.start).sum();
    let run = |run: &Range<u64>| match run.end - run.start {
        1 => run.start.to_string(),
        _ => format!("{}-{}", run.start, run.end - 1),
    };
    let shown: Vec<String> = rows.iter().take(RUNS_SHOWN).map(run).collect();
    let more = if rows.len() > RUNS_SHOWN { ", and so on" } else { "" };
    let source = if by_bitmap { "by the bitmap" } else { "there is no bitmap to narrow it down" };
    format!(
        "at risk: {} ({source}): rows {}{more}; what slot {} held there may be wrong",
        plural(count, "row"),
        shown.join(", "),
        missing.join(", ")
    )
}

/// Two that call each other failed: both ran alone, and what one of them writes now makes it worse.
fn has_split(witnesses: &[Witness]) -> bool {
    witnesses.iter().enumerate().any(|(at, witness)| {
        witness.accuses.iter().any(|other| witnesses[*other].accuses.contains(&at))
    })
}

/// The best way that starts: redundancy agrees, the file system is whole, nobody was forced, most
/// members serve, the newest.
fn verdict(tries: &[Try], split: bool) -> String {
    let rank = |attempt: &&Try| {
        attempt.result.as_ref().ok().map(|start| {
            (
                start.check.rows == 0,
                !start.shows.contains("damaged") && !start.shows.starts_with("cannot"),
                !attempt.flags.force,
                start.check.is_telling(),
                start.assembly.in_sync().len(),
                !attempt.flags.read_only,
                start.assembly.array.events,
                time::seconds(start.assembly.array.utime),
            )
        })
    };
    let numbered = tries.iter().enumerate();
    let best = numbered
        .filter(|(_, attempt)| attempt.result.is_ok())
        .max_by_key(|(number, attempt)| (rank(attempt), Reverse(*number)));
    let Some((number, attempt)) = best else {
        return "none of these ways starts: members are missing\n".into();
    };
    let Ok(start) = &attempt.result else { return String::new() };
    let twin = tries.iter().enumerate().find(|(other, twin)| {
        let same = |a: &Start, b: &Start| a.assembly.in_sync().len() == b.assembly.in_sync().len();
        *other != number
            && twin.flags == attempt.flags
            && twin.result.as_ref().is_ok_and(|twin| same(twin, start))
            && !start.check.is_telling()
    });
    let doubt = match twin {
        Some((other, _)) => format!(
            " (updated last; nothing else tells it from {}: look at both before you write)",
            other + 1
        ),
        None => String::new(),
    };
    // Which half is right only a look at both can tell.
    let looking = Flags { read_only: split || attempt.flags.read_only, ..attempt.flags };
    let mut text = format!("best: {}{doubt}\n  {}\n", number + 1, command(looking, start));
    if split && !attempt.flags.force {
        let trying = Flags { force: false, ..attempt.flags };
        text.push_str(&format!(
            "the halves were used one without the other; to write to this one for a try, with the \
             members left as they are:\n  {}\n",
            command(trying, start).replacen("mount ", "mount --overlay CHANGES ", 1)
        ));
    }
    if start.at_risk.is_some() && attempt.flags.read_only {
        let flags = Flags { degraded: true, read_only: false, force: true };
        text.push_str(&format!(
            "to write to it, with the rows at risk as they are:\n  {}\n",
            command(flags, start)
        ));
    }
    text
}

/// What to type.
fn command(flags: Flags, start: &Start) -> String {
    let mut words = vec!["raid-fuse mount"];
    if flags.force {
        words.push("--force --overlay CHANGES");
    } else if flags.degraded {
        words.push("--degraded");
    }
    if flags.read_only {
        words.push("--read-only");
    }
    let members = quoted(start.names.iter().map(String::as_str));
    words.push(&members);
    words.push("MOUNTPOINT");
    words.join(" ")
}
