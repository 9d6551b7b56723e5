//! Sizes and places as people type and read them: `64K`, `1M`, `2G`, `3s`. What is printed can be
//! typed.

use raid_core::units::{SECTOR, Sectors};

/// Units in powers of 1024, the largest first.
const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// A number of bytes: with a unit (`K`, `M`, `G`, `T`, or `s` for sectors), or bare and then in
/// units of `bare` bytes.
pub fn parse(text: &str, bare: u64) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => Some(bare),
        "b" => Some(1),
        "s" => Some(SECTOR),
        word => UNITS.iter().find_map(|(letter, shift)| {
            let letter = letter.to_ascii_lowercase();
            let known = word == letter.to_string() || word == format!("{letter}ib");
            known.then_some(1u64 << shift)
        }),
    };
    let number = digits.parse::<u64>().ok();
    number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit)).ok_or_else(|| {
        format!("found `{text}`, expected a number with K, M, G or T (powers of 1024), as in 64K")
    })
}

/// Bytes, bare.
pub fn bytes(text: &str) -> Result<u64, String> {
    parse(text, 1)
}

/// Whole sectors, from KiB if bare: the way of mdadm's `--chunk` and `--size`.
pub fn kib(text: &str) -> Result<Sectors, String> {
    let bytes = parse(text, 1024)?;
    match bytes.is_multiple_of(SECTOR) {
        true => Ok(Sectors::floor_bytes(bytes)),
        false => Err(format!("found `{text}`, expected a multiple of {SECTOR} bytes")),
    }
}

/// The shortest exact form that [`parse`] reads.
pub fn exact(sectors: Sectors) -> String {
    // As u128, since sizes in damaged superblocks need not fit.
    let bytes = u128::from(sectors.0) * u128::from(SECTOR);
    let unit = UNITS.iter().find(|(_, shift)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((letter, shift)) => format!("{}{letter}", bytes >> shift),
        None => format!("{sectors}s"),
    }
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

    #[test]
    fn what_is_printed_can_be_typed() {
        for sectors in [0, 1, 3, 8, 128, 1024, 2048, 3 << 11, 5 << 21, 7 << 31, 1 << 41] {
            let text = exact(Sectors(sectors));
            assert_eq!(kib(&text), Ok(Sectors(sectors)), "{text}");
        }
        assert_eq!(exact(Sectors(128)), "64K");
    }

    #[test]
    fn units_are_those_of_mdadm() {
        let cases = [("64", 64 << 10), ("64K", 64 << 10), ("64KiB", 64 << 10), ("1m", 1 << 20)];
        let more = [("2G", 2 << 30), ("1T", 1 << 40), ("3s", 1536), (" 4k ", 4096)];
        for (text, bytes) in cases.into_iter().chain(more) {
            assert_eq!(parse(text, 1024), Ok(bytes), "{text}");
        }
        for text in ["", "K", "-1", "1.5M", "64Q", "99999999T", "0x10", "é"] {
            assert!(parse(text, 1024).is_err(), "{text}");
        }
        assert!(kib("100b").is_err(), "not whole sectors");
    }

    #[test]
    fn people_see_both_kinds_of_units() {
        assert_eq!(human(192 << 20), "192.0 MiB (201.3 MB)");
        assert_eq!(human(512), "512 bytes");
        assert_eq!(human(u64::MAX), "16384.0 PiB (18446.7 PB)");
    }
}
