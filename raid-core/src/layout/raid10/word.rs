//! The layout word of RAID 10: taken apart, put together, parsed, printed, checked.

use super::super::{Params, names};
use crate::error::{Error, Result};

/// The layout word of `near=2`, mdadm's default.
pub const DEFAULT: u32 = 0x102;

/// A layout word taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    pub near: u16,
    pub far: u16,
    pub offset: bool,
    /// Far-set mode: 0 none, 1 the first attempt (sets of slots / far), 2 (sets of near x far).
    pub sets: u32,
}

impl Word {
    pub fn split(word: u32) -> Word {
        let (near, far) = (word & 0xff, word >> 8 & 0xff);
        let offset = word >> 16 & 1 == 1;
        Word { near: near as u16, far: far as u16, offset, sets: word >> 17 }
    }

    pub fn join(self) -> u32 {
        self.near as u32 | (self.far as u32) << 8 | u32::from(self.offset) << 16 | self.sets << 17
    }

    pub fn copies(self) -> u16 {
        self.near * self.far
    }
}

/// `n2`, `near=2`, `f2`, `o2`, products as `near=2, far=2`, far sets as `far-sets=1`, or a number.
pub fn parse_layout(text: &str) -> Result<u32> {
    let folded = text.trim().to_ascii_lowercase();
    if folded == "default" {
        return Ok(DEFAULT);
    }
    if let Some(number) = names::number(&folded) {
        return Ok(number);
    }
    let unknown = || {
        Error::invalid(format!(
            "raid10 has no layout '{}'; it has n2 (near=2), f2 (far=2), o2 (offset=2) with any \
             number of copies, 'near=2, far=2', or the number of the layout word",
            text.trim()
        ))
    };
    let mut word = Word { near: 1, far: 1, offset: false, sets: 0 };
    let (mut near_seen, mut far_seen, mut sets_seen) = (false, false, false);
    for part in folded.split([',', ' ']).filter(|part| !part.is_empty()) {
        let digits = part.find(|c: char| c.is_ascii_digit()).ok_or_else(unknown)?;
        let (name, count) = part.split_at(digits);
        let count: u16 = count.parse().ok().filter(|n| (1..256).contains(n)).ok_or_else(unknown)?;
        let seen = match name.trim_end_matches('=') {
            "n" | "near" => {
                word.near = count;
                &mut near_seen
            }
            kind @ ("f" | "far" | "o" | "offset") => {
                (word.far, word.offset) = (count, kind.starts_with('o'));
                &mut far_seen
            }
            "far-sets" if count <= 2 => {
                word.sets = count as u32;
                &mut sets_seen
            }
            _ => return Err(unknown()),
        };
        if std::mem::replace(seen, true) {
            return Err(unknown());
        }
    }
    if near_seen || far_seen { Ok(word.join()) } else { Err(unknown()) }
}

/// As mdadm prints it; the number where that would lose something.
pub fn layout_name(number: u32) -> String {
    let word = Word::split(number);
    let mut parts = Vec::new();
    if word.near != 1 {
        parts.push(format!("near={}", word.near));
    }
    if word.far != 1 {
        parts.push(format!("{}={}", if word.offset { "offset" } else { "far" }, word.far));
    }
    if word.sets != 0 {
        parts.push(format!("far-sets={}", word.sets));
    }
    let name = parts.join(", ");
    let faithful = parse_layout(&name).is_ok_and(|parsed| parsed == number);
    if faithful { name } else { format!("{number:#x}") }
}

/// The layout word of `params`, if it is one at all and fits the number of slots.
pub fn checked(params: &Params) -> Result<Word> {
    let (number, word) = (params.layout, Word::split(params.layout));
    let reason = if number >> 19 != 0 {
        "bits 19 and above must be zero"
    } else if word.sets == 3 {
        "bits 17 and 18 must not both be set"
    } else if word.near == 0 || word.far == 0 {
        "the near and far copies must be at least 1 each"
    } else if word.copies() < 2 {
        "it keeps only one copy: at least 2 are needed"
    } else if word.copies() > params.slots {
        return Err(Error::invalid(format!(
            "raid10 layout {} keeps {} copies: that needs at least {1} members, not {}",
            layout_name(number),
            word.copies(),
            params.slots
        )));
    } else {
        return Ok(word);
    };
    Err(Error::invalid(format!("raid10 layout word {number:#x} is not valid: {reason}")))
}
