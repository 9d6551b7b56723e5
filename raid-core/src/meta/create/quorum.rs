//! Whether the members given can hold an array, and who else must be there where they cannot.

use crate::error::{Error, ErrorKind, Result};
use crate::meta::{Copies, enough, lost_copies};
use crate::units::{Slot, SlotSet};

/// Checks that the members `present` serve all data of an array of `slots`.
///
/// # Errors
/// [`ErrorKind::Dead`], with what is needed.
pub fn check(level: i32, layout: u32, slots: u16, present: &SlotSet) -> Result<()> {
    match enough(level, layout, slots, present) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Dead,
            format!(
                "with {} of {slots} members there is no array; {}",
                present.len(),
                needed(level, layout, slots, present)
            ),
        )),
    }
}

/// Who else must be there.
fn needed(level: i32, layout: u32, slots: u16, present: &SlotSet) -> String {
    let lost = match level {
        10 => lost_copies(Copies::of(layout), slots, present),
        _ => None,
    };
    let spare = match level {
        4 | 5 => 1,
        6 => 2,
        _ => 0,
    };
    match lost.as_deref() {
        Some([first @ .., last]) => {
            let first: Vec<String> = first.iter().map(Slot::to_string).collect();
            let first = first.join(", ");
            format!("slots {first} and {last} hold the same data; one of them must be there")
        }
        _ if spare > 0 => format!("give at least {}", slots.saturating_sub(spare)),
        _ => "give more".into(),
    }
}
