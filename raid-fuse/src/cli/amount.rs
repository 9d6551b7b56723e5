//! Amounts as people type and read them: bytes, sectors, chunks and the usual powers of 1024.
//!
//! Every command parses them here. What is printed can be typed.

use raid_core::error::{Error, Result};
use raid_core::units::{SECTOR, Sectors};

/// Powers of 1024, the largest first.
const UNITS: [(char, u32); 5] = [('P', 50), ('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// How a number without a unit and chunks are counted.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Bytes of a number without a unit.
    pub bare: u64,
    /// What `c` counts; nothing where no chunk is known.
    pub chunk: Option<Sectors>,
}

impl Scale {
    /// The forms of an amount, for messages.
    fn forms(self) -> &'static str {
        match self.chunk {
            Some(_) => "4096, 0x1000, 100s (sectors), 12c (chunks), 64K, 8M, 2G",
            None => "4096, 0x1000, 100s (sectors), 64K, 8M, 2G",
        }
    }
}

/// The bytes that `text` stands for; `what` names the option in messages.
pub fn of(what: &str, text: &str, scale: Scale) -> Result<u64> {
    parse(text, scale).map_err(|why| Error::invalid(format!("{what}: {why}")))
}

/// Bytes, bare: for the parser of the command line, which names the option itself.
pub fn bytes(text: &str) -> std::result::Result<u64, String> {
    parse(text, Scale { bare: 1, chunk: None })
}

/// Whole sectors, from KiB if bare: the way of mdadm's `--chunk` and `--size`.
pub fn kib(text: &str) -> std::result::Result<Sectors, String> {
    let bytes = parse(text, Scale { bare: 1024, chunk: None })?;
    match bytes.is_multiple_of(SECTOR) {
        true => Ok(Sectors::floor_bytes(bytes)),
        false => Err(format!("found '{text}', expected a multiple of {SECTOR} bytes")),
    }
}

fn parse(text: &str, scale: Scale) -> std::result::Result<u64, String> {
    let word = text.trim();
    let wrong = || format!("found '{text}'; give it as {}", scale.forms());
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
    total.ok_or_else(|| format!("{text} is larger than any device"))
}

fn unit_bytes(unit: &str, scale: Scale) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    match unit.as_str() {
        "" => Some(scale.bare),
        "b" => Some(1),
        "s" => Some(SECTOR),
        "c" => scale.chunk.map(Sectors::bytes),
        word => UNITS.iter().find_map(|(letter, shift)| {
            let rest = word.strip_prefix(letter.to_ascii_lowercase())?;
            matches!(rest, "" | "b" | "ib").then_some(1u64 << shift)
        }),
    }
}

/// Bytes as people read them: `192 KiB`, or bytes where that is not whole.
pub fn size(bytes: u64) -> String {
    match whole_unit(bytes.into()) {
        Some((letter, shift)) => format!("{} {letter}iB", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// The shortest exact form of a number of sectors: `192K`, `3s`.
pub fn exact(sectors: Sectors) -> String {
    // As u128, since sizes in damaged superblocks need not fit.
    let bytes = u128::from(sectors.0) * u128::from(SECTOR);
    match whole_unit(bytes) {
        Some((letter, shift)) => format!("{}{letter}", bytes >> shift),
        None => format!("{sectors}s"),
    }
}

/// The largest unit of which `bytes` is a whole number.
fn whole_unit(bytes: u128) -> Option<(char, u32)> {
    UNITS.into_iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift)
}

/// A size for the eye, in both kinds of units: `192.0 MiB (201.3 MB)`.
pub fn human(bytes: u64) -> String {
    let form = |base: u64, names: [&str; 6]| {
        let mut value = bytes as f64;
        let mut rank = 0;
        while value >= base as f64 && rank + 1 < names.len() {
            value /= base as f64;
            rank += 1;
        }
        match rank {
            0 => format!("{bytes} {}", names[0]),
            _ => format!("{value:.1} {}", names[rank]),
        }
    };
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let binary = form(1024, ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]);
    let decimal = form(1000, ["bytes", "kB", "MB", "GB", "TB", "PB"]);
    format!("{binary} ({decimal})")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { bare: 1, chunk: Some(Sectors::kib(64)) };

    #[test]
    fn units_are_powers_of_1024_sectors_and_chunks() {
        #[rustfmt::skip]
        let cases = [
            ("0", 0), ("4096", 4096), ("0x1000", 4096), ("100s", 51_200), ("12c", 786_432),
            ("64K", 65_536), ("64 KiB", 65_536), ("64kb", 65_536), ("8M", 8 << 20), (" 4k ", 4096),
            ("2g", 2 << 30), ("1T", 1 << 40), ("7b", 7), ("1P", 1 << 50),
        ];
        for (text, expected) in cases {
            assert_eq!(of("x", text, SCALE).unwrap(), expected, "{text}");
        }
        for text in ["64", "0x40", "64K", "65536b"] {
            assert_eq!(kib(text), Ok(Sectors::kib(64)), "{text}");
        }
        assert_eq!(bytes("64"), Ok(64));
    }

    #[test]
    fn nonsense_is_refused_with_the_forms() {
        for text in
            ["", "K", "c", "-1", "+1", "1.5K", "12x", "0x", "0x+1", "1é", "é", "999999999T", "1kk"]
        {
            assert!(of("x", text, SCALE).is_err(), "{text}");
        }
        let said = of("OFFSET", "12x", SCALE).unwrap_err().to_string();
        assert!(said.starts_with("OFFSET: found '12x'; give it as 4096"), "{said}");
        assert!(kib("100b").is_err(), "not whole sectors");
        assert!(bytes("1c").unwrap_err().contains("give it as 4096"), "no chunk to count in");
    }

    #[test]
    fn what_is_printed_can_be_typed() {
        for number in [1, 511, 512, 65_536, 196_608, 3 << 20, 5 << 30, 1 << 42, 7 << 50] {
            let text = size(number);
            let typed = text.strip_suffix(" bytes").unwrap_or(&text);
            assert_eq!(of("x", typed, SCALE).unwrap(), number, "{text}");
        }
        for sectors in [0, 1, 3, 8, 128, 1024, 2048, 3 << 11, 5 << 21, 7 << 31, 1 << 41] {
            let text = exact(Sectors(sectors));
            assert_eq!(kib(&text), Ok(Sectors(sectors)), "{text}");
        }
        assert_eq!(exact(Sectors(128)), "64K");
    }

    #[test]
    fn people_see_both_kinds_of_units() {
        assert_eq!(human(192 << 20), "192.0 MiB (201.3 MB)");
        assert_eq!(human(512), "512 bytes");
        assert_eq!(human(u64::MAX), "16384.0 PiB (18446.7 PB)");
    }
}
