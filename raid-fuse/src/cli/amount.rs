//! Amounts people type: bytes, sectors, chunks and the usual powers of 1024.

use raid_core::error::{Error, Result};
use raid_core::units::{SECTOR, Sectors};

/// The forms of an amount, for help and messages.
pub const FORMS: &str = "4096, 0x1000, 100s (sectors), 12c (chunks), 64K, 8M, 2G";

/// Letters for powers of 1024, in order.
const POWERS: &str = "kmgtp";

/// How a number without a unit and chunks are counted.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Bytes of a number without a unit.
    pub bare: u64,
    /// What `c` counts.
    pub chunk: Sectors,
}

/// The bytes that `text` stands for; `what` names the option in messages.
pub fn bytes(what: &str, text: &str, scale: Scale) -> Result<u64> {
    let word = text.trim();
    let wrong = || Error::invalid(format!("{what}: found '{text}'; give it as {FORMS}"));
    let hex = word.strip_prefix("0x").or(word.strip_prefix("0X"));
    let (number, unit) = match hex {
        Some(hex) if hex.starts_with('+') => return Err(wrong()),
        Some(hex) => (u64::from_str_radix(hex, 16), ""),
        None => {
            let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
            (word[..end].parse(), word[end..].trim())
        }
    };
    let number = number.map_err(|_| wrong())?;
    let unit = unit_bytes(unit, scale).ok_or_else(wrong)?;
    let total = number.checked_mul(unit).filter(|&total| total <= i64::MAX as u64);
    total.ok_or_else(|| Error::invalid(format!("{what}: {text} is larger than any device")))
}

fn unit_bytes(unit: &str, scale: Scale) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    match unit.as_str() {
        "" => Some(scale.bare),
        "b" => Some(1),
        "s" => Some(SECTOR),
        "c" => Some(scale.chunk.bytes()),
        _ => {
            let letter = unit.chars().next().filter(|_| unit.is_ascii())?;
            let rest = &unit[1..];
            let power = POWERS.find(letter).filter(|_| matches!(rest, "" | "b" | "ib"))?;
            Some(1024u64.pow(power as u32 + 1))
        }
    }
}

/// Bytes as people read them: `192 KiB`, or bytes where that is not whole.
pub fn size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.iter().find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    match whole {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { bare: 1, chunk: Sectors::kib(64) };

    #[test]
    fn units_are_powers_of_1024_sectors_and_chunks() {
        #[rustfmt::skip]
        let cases = [
            ("0", 0), ("4096", 4096), ("0x1000", 4096), ("100s", 51_200), ("12c", 786_432),
            ("64K", 65_536), ("64 KiB", 65_536), ("64kb", 65_536), ("8M", 8 << 20),
            ("2g", 2 << 30), ("1T", 1 << 40), ("7b", 7),
        ];
        for (text, expected) in cases {
            assert_eq!(bytes("x", text, SCALE).unwrap(), expected, "{text}");
        }
        for text in ["64", "0x40"] {
            assert_eq!(bytes("x", text, Scale { bare: 1024, ..SCALE }).unwrap(), 65_536);
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_forms() {
        for text in ["", "c", "-1", "+1", "1.5K", "12x", "0x", "0x+1", "1é", "999999999T", "1kk"] {
            assert!(bytes("x", text, SCALE).is_err(), "{text}");
        }
        let said = bytes("OFFSET", "12x", SCALE).unwrap_err().to_string();
        assert!(said.starts_with("OFFSET: found '12x'; give it as 4096"), "{said}");
    }

    #[test]
    fn what_is_printed_can_be_typed() {
        for number in [1, 511, 512, 65_536, 196_608, 3 << 20, 5 << 30, 1 << 42] {
            let text = size(number);
            let typed = text.strip_suffix(" bytes").unwrap_or(&text);
            assert_eq!(bytes("x", typed, SCALE).unwrap(), number, "{text}");
        }
    }
}
