//! Contents of units as people write them: `D0=AB9C`, plain hexadecimal, or decimal bytes.

use raid_core::error::{Error, Result};
use raid_core::layout::Role;

/// Longest value, in bytes.
const LEN_MAX: usize = 4096;

/// The unit and its content in `text`, as `D0=AB9C`, `P=2FFF` or `Q=00`.
pub fn assignment(text: &str) -> Result<(Role, Vec<u8>)> {
    let wrong =
        || Error::invalid(format!("found '{text}'; give units as D0=AB9C, P=2FFF or Q=0011"));
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let name = name.trim().to_ascii_uppercase();
    let role = match name.as_str() {
        "P" => Role::P,
        "Q" => Role::Q,
        _ => {
            let digits =
                name.strip_prefix('D').filter(|d| !d.starts_with('+')).ok_or_else(wrong)?;
            Role::Data(digits.parse().map_err(|_| wrong())?)
        }
    };
    Ok((role, hexadecimal(value)?))
}

/// The bytes of hexadecimal `text`, with or without `0x`; a single digit is a byte.
pub fn hexadecimal(text: &str) -> Result<Vec<u8>> {
    let word = text.trim();
    let digits = word.strip_prefix("0x").or(word.strip_prefix("0X")).unwrap_or(word);
    let wrong = |why: &str| Error::invalid(format!("'{text}' is no value: {why}"));
    if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
        return Err(wrong("give hexadecimal digits, two for each byte, as in AB9C"));
    }
    if digits.len() == 1 {
        return hexadecimal(&format!("0{digits}"));
    }
    if !digits.len().is_multiple_of(2) || digits.len() > 2 * LEN_MAX {
        return Err(wrong("a byte has two hexadecimal digits"));
    }
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).expect("two hex digits");
    Ok((0..digits.len()).step_by(2).map(byte).collect())
}

/// The byte of decimal `text`.
pub fn decimal(text: &str) -> Result<Vec<u8>> {
    let word = text.trim();
    let byte = word.parse().ok().filter(|_| !word.starts_with('+')).map(|byte: u8| vec![byte]);
    byte.ok_or_else(|| Error::invalid(format!("'{text}' is no byte: give 0 to 255")))
}

/// `bytes` in hexadecimal, as values are printed: can be typed again.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_printed_alike() {
        assert_eq!(assignment("D0=AB9C").unwrap(), (Role::Data(0), vec![0xab, 0x9c]));
        assert_eq!(assignment(" p = 0x2fff ").unwrap(), (Role::P, vec![0x2f, 0xff]));
        assert_eq!(assignment("Q=7").unwrap(), (Role::Q, vec![7]));
        assert_eq!(hex(&hexadecimal("00ff1A").unwrap()), "00FF1A");
        assert_eq!(decimal("255").unwrap(), [255]);
        for text in ["D0", "X=1", "D=1", "D+1=1", "D0=", "D0=xyz", "D0=ABC", "D0=éé"] {
            assert!(assignment(text).is_err(), "{text}");
        }
        assert!(decimal("256").is_err() && decimal("-1").is_err() && decimal("+1").is_err());
    }
}
