//! Bytes that say where they belong: content for arrays, and what is wrong when it comes back.
//!
//! A pattern is a function of the block number, so it has no size: the content of a small array
//! is the beginning of the content of a big one, and any piece can be made or checked alone.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

/// Bytes in a block of a pattern: no chunk, stripe or bitmap unit of md is smaller.
pub const BLOCK: usize = 4096;

/// How much is made or read at a time.
const PIECE: usize = 1 << 20;

/// What an array is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Every block holds its own number, over and over, as little-endian u64: easy to see in a
    /// hex dump. Block 0 is all zeroes.
    Numbered,
    /// Every block is random by the seed and its number; different seeds differ everywhere.
    Seeded(u64),
}

impl Pattern {
    /// The bytes from `at` on, as many as `bytes` holds.
    pub fn fill(self, at: u64, bytes: &mut [u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let place = at + done as u64;
            let block = self.block(place / BLOCK as u64);
            let skip = (place % BLOCK as u64) as usize;
            let len = (BLOCK - skip).min(bytes.len() - done);
            bytes[done..done + len].copy_from_slice(&block[skip..skip + len]);
            done += len;
        }
    }

    /// The first `size` bytes.
    pub fn bytes(self, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        self.fill(0, &mut bytes);
        bytes
    }

    /// Makes a file of the first `size` bytes.
    pub fn write_file(self, path: &Path, size: u64) -> io::Result<()> {
        let mut file = File::create(path)?;
        let mut piece = vec![0; PIECE];
        let mut at = 0;
        while at < size {
            let len = (size - at).min(PIECE as u64) as usize;
            self.fill(at, &mut piece[..len]);
            file.write_all(&piece[..len])?;
            at += len as u64;
        }
        Ok(())
    }

    /// Compares `bytes`, read from byte `at` of an array, with what should be there.
    pub fn check(self, at: u64, bytes: &[u8]) -> Result<(), Mismatch> {
        let mut expected = vec![0; bytes.len()];
        self.fill(at, &mut expected);
        let Some(wrong) = first_difference(bytes, &expected) else { return Ok(()) };
        let offset = at + wrong as u64;
        Err(Mismatch {
            offset,
            expected: expected[wrong],
            found: bytes[wrong],
            wrong: (bytes.iter().zip(&expected)).filter(|(a, b)| a != b).count(),
            found_block: self.owner(whole_block(at, bytes, offset)),
        })
    }

    /// Compares what `source` gives, from byte `at` of an array to its end, with the pattern.
    /// Returns how many bytes there were.
    pub fn check_reader(self, at: u64, source: &mut dyn Read) -> io::Result<u64> {
        let mut piece = vec![0; PIECE];
        let mut done = 0;
        loop {
            let mut len = 0;
            while len < PIECE {
                match source.read(&mut piece[len..])? {
                    0 => break,
                    n => len += n,
                }
            }
            if len == 0 {
                return Ok(done);
            }
            self.check(at + done, &piece[..len]).map_err(io::Error::other)?;
            done += len as u64;
        }
    }

    fn block(self, number: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let (key, mut state) = match self {
            Pattern::Numbered => (0, 0),
            Pattern::Seeded(seed) => (mix(seed), mix(mix(seed) ^ number)),
        };
        for (i, word) in block.chunks_exact_mut(8).enumerate() {
            // The first word of a seeded block names it, so that a stray block can be recognised.
            let value = if i == 0 || self == Pattern::Numbered { key ^ number } else { state };
            word.copy_from_slice(&value.to_le_bytes());
            state = mix(state);
        }
        block
    }

    /// The number of the block of this pattern that `found` is, if it is one.
    fn owner(self, found: Option<&[u8]>) -> Option<u64> {
        let found = found?;
        let word = u64::from_le_bytes(found[..8].try_into().expect("eight bytes"));
        let number = match self {
            Pattern::Numbered => word,
            Pattern::Seeded(seed) => word ^ mix(seed),
        };
        (self.block(number) == found).then_some(number)
    }
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes every bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The whole block around byte `offset` of the array, if `bytes` (from byte `at`) has all of it.
fn whole_block(at: u64, bytes: &[u8], offset: u64) -> Option<&[u8]> {
    let start = (offset - offset % BLOCK as u64).checked_sub(at)? as usize;
    bytes.get(start..start + BLOCK)
}

/// The first place where `a` and `b` differ, or where the shorter ends.
pub fn first_difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    common.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

/// The first wrong byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its place in the array, in bytes.
    pub offset: u64,
    /// What it should be.
    pub expected: u8,
    /// What it is.
    pub found: u8,
    /// How many bytes of the piece that was checked are wrong.
    pub wrong: usize,
    /// The block that should be somewhere else, if a whole one was found.
    pub found_block: Option<u64>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mismatch { offset, expected, found, wrong, found_block } = self;
        let block = offset / BLOCK as u64;
        write!(f, "byte {offset} (block {block}) is {found:#04x} instead of {expected:#04x}, ")?;
        match found_block {
            Some(number) => write!(f, "block {number} is there instead, ")?,
            None => write!(f, "no block of this pattern is there, ")?,
        }
        write!(f, "{wrong} bytes wrong in this piece")
    }
}

impl std::error::Error for Mismatch {}

#[cfg(test)]
mod tests {
    use super::*;

    const PATTERNS: [Pattern; 3] = [Pattern::Numbered, Pattern::Seeded(1), Pattern::Seeded(2)];

    #[test]
    fn any_piece_of_a_pattern_is_that_piece_of_the_whole() {
        for pattern in PATTERNS {
            let whole = pattern.bytes(5 * BLOCK);
            for (at, len) in [(0, 5 * BLOCK), (1, 10), (4090, 12), (4096, 4096), (8000, 9000)] {
                let mut piece = vec![0; len];
                pattern.fill(at as u64, &mut piece);
                assert_eq!(piece, whole[at..at + len], "{pattern:?} {at} {len}");
                assert_eq!(pattern.check(at as u64, &piece), Ok(()));
            }
        }
    }

    #[test]
    fn a_numbered_block_is_its_number() {
        let bytes = Pattern::Numbered.bytes(3 * BLOCK);
        assert!(bytes[2 * BLOCK..].chunks(8).all(|word| word == 2u64.to_le_bytes()));
    }

    #[test]
    fn a_wrong_byte_is_named_and_so_is_a_block_in_the_wrong_place() {
        for pattern in PATTERNS {
            let mut bytes = pattern.bytes(8 * BLOCK);
            bytes[5 * BLOCK + 9] ^= 0x40;
            let mismatch = pattern.check(0, &bytes).unwrap_err();
            assert_eq!((mismatch.offset, mismatch.wrong), (5 * BLOCK as u64 + 9, 1));
            assert_eq!((mismatch.expected ^ mismatch.found, mismatch.found_block), (0x40, None));

            let mut bytes = pattern.bytes(8 * BLOCK);
            bytes.copy_within(6 * BLOCK..7 * BLOCK, 2 * BLOCK);
            let mismatch = pattern.check(0, &bytes).unwrap_err();
            assert_eq!(mismatch.offset / BLOCK as u64, 2);
            assert_eq!(mismatch.found_block, Some(6), "{mismatch}");
        }
    }

    #[test]
    fn a_file_of_a_pattern_reads_back_as_the_pattern_and_as_no_other() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let size = (3 * PIECE + 5 * BLOCK + 512) as u64;
        Pattern::Seeded(7).write_file(file.path(), size).unwrap();
        let open = || File::open(file.path()).unwrap();
        assert_eq!(Pattern::Seeded(7).check_reader(0, &mut open()).unwrap(), size);
        assert!(Pattern::Seeded(8).check_reader(0, &mut open()).is_err());
        assert!(Pattern::Seeded(7).check_reader(BLOCK as u64, &mut open()).is_err());
    }
}
