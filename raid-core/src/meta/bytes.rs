//! Little-endian fields in byte blocks, read without panics: what is not there reads as zero.

use super::record::Area;
use crate::units::Sectors;

/// `N` bytes of `bytes` at `at`, filled up with zeros where `bytes` is shorter.
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    let tail = bytes.get(at..).unwrap_or_default();
    let len = tail.len().min(N);
    out[..len].copy_from_slice(&tail[..len]);
    out
}

/// Little-endian u16 at byte `at`.
pub fn le16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(array(bytes, at))
}

/// Little-endian u32 at byte `at`.
pub fn le32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(array(bytes, at))
}

/// Little-endian u64 at byte `at`.
pub fn le64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(array(bytes, at))
}

/// Writes `value` at byte `at`; the caller made `bytes` long enough.
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The bytes up to the padding zeros at the end.
pub fn without_padding(bytes: &[u8]) -> &[u8] {
    let len = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
    &bytes[..len]
}

/// The sector `offset` away from `base`, if that is a sector at all.
pub fn relative(base: Sectors, offset: i32) -> Option<Sectors> {
    base.0.checked_add_signed(i64::from(offset)).map(Sectors)
}

/// True if the two areas share a sector; areas whose end overflows share everything.
pub fn overlap(a: Area, b: Area) -> bool {
    let end = |x: Area| x.at.0.saturating_add(x.len.0);
    a.at.0 < end(b) && b.at.0 < end(a)
}
