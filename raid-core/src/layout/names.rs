//! Layout names: from a word of the user to md's layout word and back.
//!
//! Names are compared without regard to case, and `_` or a space is as good as `-`.
//! Every level also takes the bare number, decimal or with `0x`. What is printed can be typed.

use crate::error::{Error, Result};

/// A name and the word it stands for.
pub type Name = (&'static str, u32);

/// Names and words of a level, the default first; the first name of a word is the one printed.
pub type Names = &'static [Name];

/// The rotations that RAID 5 and 6 have in common, as mdadm calls them.
const ROTATIONS: [Name; 6] = [
    ("left-symmetric", 2),
    ("left-asymmetric", 0),
    ("right-symmetric", 3),
    ("right-asymmetric", 1),
    ("parity-first", 4),
    ("parity-last", 5),
];

/// mdadm's short names, and words other tools and books use for the same.
const ROTATIONS_ELSEWHERE: [Name; 24] = [
    ("ls", 2),
    ("la", 0),
    ("rs", 3),
    ("ra", 1),
    ("left-synchronous", 2),
    ("left-asynchronous", 0),
    ("right-synchronous", 3),
    ("right-asynchronous", 1),
    ("left-sync", 2),
    ("left-async", 0),
    ("right-sync", 3),
    ("right-async", 1),
    ("left-continuation", 2),
    ("left-restart", 0),
    ("right-continuation", 3),
    ("right-restart", 1),
    ("left-data-continuation", 2),
    ("left-data-restart", 0),
    ("right-data-continuation", 3),
    ("right-data-restart", 1),
    ("backward-dynamic", 2),
    ("backward", 0),
    ("forward-dynamic", 3),
    ("forward", 1),
];

/// The names of a level that rotates parity: the common ones, then the level's `own`. `ALL` is
/// their number.
pub const fn rotations<const OWN: usize, const ALL: usize>(own: [Name; OWN]) -> [Name; ALL] {
    let (common, elsewhere) = (ROTATIONS.len(), ROTATIONS_ELSEWHERE.len());
    assert!(ALL == common + OWN + elsewhere);
    let mut all = [("", 0); ALL];
    let mut i = 0;
    while i < ALL {
        all[i] = if i < common {
            ROTATIONS[i]
        } else if i < common + elsewhere {
            ROTATIONS_ELSEWHERE[i - common]
        } else {
            own[i - common - elsewhere]
        };
        i += 1;
    }
    all
}

/// Printed where a level has no layout.
pub const NONE: &str = "-";

/// The layout word that `text` stands for in `names`.
pub fn parse(level: &str, names: Names, text: &str) -> Result<u32> {
    let wanted = fold(text);
    if wanted == "default" {
        return Ok(names.first().map_or(0, |&(_, word)| word));
    }
    let named = names.iter().find(|(name, _)| fold(name) == wanted).map(|&(_, word)| word);
    named.or_else(|| number(&wanted)).ok_or_else(|| unknown(level, names, text))
}

/// The layout word of a level that has none: nothing to choose.
pub fn parse_none(level: &str, text: &str) -> Result<u32> {
    match fold(text).as_str() {
        NONE | "none" | "default" => Ok(0),
        folded => number(folded).ok_or_else(|| {
            Error::invalid(format!("{level} has no layouts to choose from: leave out '{text}'"))
        }),
    }
}

/// The name to print for `word`; a number if it has none.
pub fn name(names: Names, word: u32) -> String {
    match names.iter().find(|&&(_, w)| w == word) {
        Some((name, _)) => name.to_string(),
        None => format!("{word:#x}"),
    }
}

/// The name to print for `word` where a level has no layouts.
pub fn name_none(word: u32) -> String {
    if word == 0 { NONE.to_string() } else { format!("{word:#x}") }
}

/// A decimal number, or a hexadecimal one after `0x`.
pub fn number(text: &str) -> Option<u32> {
    let digits = text.trim();
    match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok(),
        None if !digits.starts_with('+') => digits.parse().ok(),
        _ => None,
    }
}

/// `text` as names are compared: trimmed, small letters, words joined with `-`.
pub fn fold(text: &str) -> String {
    text.trim().to_ascii_lowercase().replace(['_', ' '], "-")
}

fn unknown(level: &str, names: Names, text: &str) -> Error {
    let mut known: Vec<&str> = Vec::new();
    for (i, &(name, word)) in names.iter().enumerate() {
        if !names[..i].iter().any(|&(_, earlier)| earlier == word) {
            known.push(name);
        }
    }
    Error::invalid(format!("{level} has no layout '{text}'; it has {}", known.join(", ")))
}
