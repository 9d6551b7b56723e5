//! Sentences that several decisions share.

use super::gather::Entry;
use crate::meta::record::ArrayRecord;
use crate::meta::time;
use crate::units::SlotSet;

/// When the array was last updated.
pub fn time(array: &ArrayRecord) -> String {
    time::to_text(array.utime)
}

/// How far a member is behind.
pub fn behind(entry: &Entry<'_>, freshest: &Entry<'_>) -> String {
    format!(
        "stale: it has {} events, {} has {}; it was last updated {}",
        entry.events(),
        freshest.name,
        freshest.events(),
        time(&entry.found.array)
    )
}

/// Words for a shell line: those that need quotes get them.
pub fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./:,+@=%".contains(c);
    let quote = |word: &str| match !word.is_empty() && word.chars().all(safe) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    };
    words.into_iter().map(quote).collect::<Vec<String>>().join(" ")
}

/// What reads an array that only force starts: commands, whichever one is refused.
pub const READ_BY_FORCE: &str = "`raid-fuse mount --force --read-only MEMBER... MOUNTPOINT`, or \
                                 `raid-fuse cat --force MEMBER...`";

/// `slot 2` or `slots 1, 3`.
pub fn slots(slots: &SlotSet) -> String {
    format!("slot{} {slots}", if slots.len() == 1 { "" } else { "s" })
}
