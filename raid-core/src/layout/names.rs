//! Layout names: from a word of the user to md's layout word and back.
//!
//! Names are compared without regard to case, and `_` or a space is as good as `-`.
//! Every level also takes the bare number, decimal or with `0x`. What is printed can be typed.

use crate::error::{Error, Result};

/// Names and words of a level, the default first; the first name of a word is the one printed.
pub type Names = &'static [(&'static str, u32)];

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
