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

/// `slot 2` or `slots 1, 3`.
pub fn slots(slots: &SlotSet) -> String {
    format!("slot{} {slots}", if slots.len() == 1 { "" } else { "s" })
}
