//! What a superblock says, shown as it is: also when it is damaged or makes no sense.
//!
//! One list of fields serves both readers: people get lines in the words and the order of
//! `mdadm --examine`, programs get keys that stay, with sizes in bytes. Times are UTC. Where
//! mdadm's text is approximate (the size of a RAID 10 that does not divide evenly), ours is true.

mod md0;
mod md1;
mod names;
#[cfg(test)]
mod tests;

pub use names::{layout as layout_name, level as level_name};

use super::{Format, Sighting};
use crate::units::{SECTOR, Sectors};
use std::fmt;

pub(super) use md0::examine as examine_md0;
pub(super) use md1::examine as examine_md1;

/// A value for programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Words, ids, names.
    Text(String),
    /// A number without a unit, or a size in bytes where the key ends in `_bytes`.
    Number(u64),
    /// A number that can be negative.
    Signed(i64),
    /// Yes or no.
    Flag(bool),
    /// Several words.
    List(Vec<String>),
    /// It does not apply or is not known.
    Null,
}

/// One thing a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Key for programs: stable, never shown to people. Empty: for people only.
    pub key: &'static str,
    /// Value for programs.
    pub value: Value,
    /// Label for people, mdadm's word. Empty: a blank line, or for programs only; a colon: the
    /// text is a row of a table and stands alone.
    pub label: &'static str,
    /// The value for people; `None`: for programs only.
    pub text: Option<String>,
}

/// All that a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examination {
    /// The format's name.
    pub metadata: &'static str,
    /// The byte where it lies.
    pub at_bytes: u64,
    /// What it says, in mdadm's order.
    pub fields: Vec<Field>,
    /// Why it cannot be used, or only for reading.
    pub problems: Vec<String>,
}

impl Examination {
    /// The value of `key`, if there is one.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values().find(|(k, _)| *k == key).map(|(_, value)| value)
    }

    /// Keys and values for programs.
    pub fn values(&self) -> impl Iterator<Item = (&'static str, &Value)> {
        let keyed = self.fields.iter().filter(|field| !field.key.is_empty());
        keyed.map(|field| (field.key, &field.value))
    }
}

impl fmt::Display for Examination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for field in &self.fields {
            match &field.text {
                Some(text) if field.label == ROW => writeln!(f, "{text}")?,
                Some(_) if field.label.is_empty() => writeln!(f)?,
                Some(text) => writeln!(f, "{:>15} : {text}", field.label)?,
                None => {}
            }
        }
        self.problems.iter().try_for_each(|why| writeln!(f, "{:>15} : {why}", "Problem"))
    }
}

/// Shows the superblock of `sighting`, found on a device of `device` sectors.
pub fn examine(sighting: &Sighting, device: Sectors) -> Examination {
    let mut shown = (sighting.format.examine)(&sighting.bytes, sighting.at, device);
    match &sighting.record {
        Err(error) => shown.problems.push(error.to_string()),
        Ok(found) => shown.problems.extend(found.writable().err()),
    }
    shown
}

/// Where a format's superblock would lie on a device of `device` sectors: `--where`.
pub fn places(device: Sectors, formats: &[&'static Format]) -> Vec<(&'static str, Option<u64>)> {
    let byte = |format: &Format| (format.super_at)(device).map(Sectors::bytes);
    formats.iter().map(|format| (format.name, byte(format))).collect()
}

/// The label of a row of a table.
const ROW: &str = ":";

/// Collects fields in order.
#[derive(Default)]
struct Sheet(Vec<Field>);

impl Sheet {
    fn line(&mut self, key: &'static str, value: Value, label: &'static str, text: String) {
        self.0.push(Field { key, value, label, text: Some(text) });
    }

    /// For programs only.
    fn quiet(&mut self, key: &'static str, value: Value) {
        self.0.push(Field { key, value, label: "", text: None });
    }

    /// For people only.
    fn remark(&mut self, label: &'static str, text: String) {
        self.line("", Value::Null, label, text);
    }

    fn blank(&mut self) {
        self.remark("", String::new());
    }

    fn words(&mut self, key: &'static str, label: &'static str, text: String) {
        self.line(key, Value::Text(text.clone()), label, text);
    }

    fn number(&mut self, key: &'static str, label: &'static str, value: u64) {
        self.line(key, Value::Number(value), label, value.to_string());
    }

    /// A length or place in sectors: bytes for programs.
    fn sectors(&mut self, key: &'static str, label: &'static str, sectors: u64) {
        self.line(key, byte_value(sectors), label, format!("{sectors} sectors"));
    }

    /// A size in sectors, with its round size for people.
    fn size(&mut self, key: &'static str, label: &'static str, sectors: u64) {
        let text = format!("{sectors} sectors{}", human(u128::from(sectors) * 512));
        self.line(key, byte_value(sectors), label, text);
    }
}

/// Sectors as bytes; what overflows is not a size.
fn byte_value(sectors: u64) -> Value {
    sectors.checked_mul(SECTOR).map_or(Value::Null, Value::Number)
}

/// A size as mdadm adds it: ` (7.00 MiB 7.34 MB)`; nothing below 5000 KiB.
fn human(bytes: u128) -> String {
    const UNITS: [(u128, u128, &str); 3] = [
        (1 << 20, 1_000_000, "M"),
        (1 << 30, 1_000_000_000, "G"),
        (1 << 40, 1_000_000_000_000, "T"),
    ];
    let unit = match bytes {
        0..5_120_000 => return String::new(),
        b if b < 2 << 30 => UNITS[0],
        b if b < 2 << 40 => UNITS[1],
        _ => UNITS[2],
    };
    let (binary, decimal, letter) = unit;
    let hundredths = |unit: u128| (bytes * 200 / unit).div_ceil(2);
    let (b, d) = (hundredths(binary), hundredths(decimal));
    format!(" ({}.{:02} {letter}iB {}.{:02} {letter}B)", b / 100, b % 100, d / 100, d % 100)
}

/// A name that may hold anything, as it is shown to people everywhere: up to the first zero byte,
/// with a mark for each control character, so that none can forge a line.
pub fn printable(name: &[u8]) -> String {
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    let text = String::from_utf8_lossy(&name[..end]);
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Where the superblock lies, in sectors and bytes.
fn where_it_lies(sheet: &mut Sheet, at: Sectors, device: Sectors) {
    let text = format!("sector {at} (byte {}) of {device}", at.bytes());
    sheet.line("found_at_bytes", Value::Number(at.bytes()), "Found At", text);
    sheet.quiet("device_size_bytes", byte_value(device.0));
}

/// Names of the set bits of a member's flags.
fn device_flags(flags: u8) -> Vec<String> {
    let known = [(1, "write-mostly"), (2, "failfast")];
    let set = known.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, name)| name.to_string()).collect()
}
