//! Ids as mdadm writes them: four groups of eight hexadecimal digits with colons.

use crate::error::{Error, Result};

/// The id as text, bytes in disk order: `8a0e18a3:60ce8f4a:169c4bee:917744a6`.
pub fn to_text(uuid: &[u8; 16]) -> String {
    let group = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    uuid.chunks_exact(4).map(group).collect::<Vec<String>>().join(":")
}

/// Reads an id: 32 hexadecimal digits, with colons, dashes, dots or spaces anywhere between.
pub fn from_text(text: &str) -> Result<[u8; 16]> {
    let digits = text.chars().filter(|c| !":-. ".contains(*c)).map(|c| c.to_digit(16));
    let digits: Option<Vec<u32>> = digits.collect();
    match digits {
        Some(digits) if digits.len() == 32 => {
            let mut uuid = [0; 16];
            for (byte, pair) in uuid.iter_mut().zip(digits.chunks_exact(2)) {
                *byte = (pair[0] << 4 | pair[1]) as u8;
            }
            Ok(uuid)
        }
        _ => Err(Error::invalid(format!(
            "{text:?} is not a UUID; give 32 hexadecimal digits, as in \
             8a0e18a3:60ce8f4a:169c4bee:917744a6"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_are_the_same_id() {
        let text = "8a0e18a3:60ce8f4a:169c4bee:917744a6";
        let uuid = from_text(text).unwrap();
        assert_eq!(uuid[..4], [0x8a, 0x0e, 0x18, 0xa3]);
        assert_eq!(to_text(&uuid), text);
        assert_eq!(from_text("8A0E18A3-60ce-8f4a-169c-4bee917744a6").unwrap(), uuid);
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "8a0e18a3", "8a0e18a3:60ce8f4a:169c4bee:917744ag", "é"] {
            assert!(from_text(text).is_err(), "{text}");
        }
    }
}
