//! The first page of a map file: what the overlay is of. Text, so that it can be read with `head`.

use crate::buf::{ALIGN, Pool};
use crate::device::{Device, read_at};
use crate::error::{Error, ErrorKind, Result};
use crate::units::Sectors;
use std::path::Path;

/// Bytes of the header, before the map proper.
pub(super) const HEADER: usize = ALIGN;

/// First line: the kind of file and the version of its form.
const MAGIC: &str = "raid overlay 1";

/// How much of the beginning and of the end of the base its fingerprint covers: every md
/// superblock lies in the first 8 KiB or the last 128 KiB.
const FINGERPRINT: Sectors = Sectors::kib(128);

/// What an overlay is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The base's absolute path, or its name if it has none.
    pub(super) base: String,
    pub(super) sectors: Sectors,
    pub(super) fingerprint: u64,
    /// A commit was begun: the base holds some of the changes already.
    pub(super) committing: bool,
}

impl Header {
    /// Of a new overlay over `base`.
    pub(super) fn of(base: &dyn Device) -> Header {
        Header {
            base: name_of(base),
            sectors: base.facts().sectors,
            fingerprint: fingerprint(base),
            committing: false,
        }
    }

    /// The page; an error if the name does not fit.
    pub(super) fn emit(&self) -> Result<[u8; HEADER]> {
        let Header { base, sectors, fingerprint, committing } = self;
        let state = if *committing { "committing" } else { "open" };
        let text = format!(
            "{MAGIC}\nstate {state}\nsectors {sectors}\nfingerprint {fingerprint:016x}\nbase {base}"
        );
        let mut page = [0; HEADER];
        match page.get_mut(..text.len()) {
            Some(start) if !base.contains('\0') => start.copy_from_slice(text.as_bytes()),
            _ => return Err(Error::invalid(format!("{base}: the name is too long"))),
        }
        Ok(page)
    }

    /// The header in a page; nothing if it is damaged or something else.
    pub(super) fn parse(page: &[u8]) -> Option<Header> {
        let text = page.split(|b| *b == 0).next()?;
        let mut lines = std::str::from_utf8(text).ok()?.splitn(5, '\n');
        if lines.next()? != MAGIC {
            return None;
        }
        let committing = match lines.next()?.strip_prefix("state ")? {
            "open" => false,
            "committing" => true,
            _ => return None,
        };
        let sectors = lines.next()?.strip_prefix("sectors ")?.parse().ok()?;
        let digits = lines.next()?.strip_prefix("fingerprint ")?;
        let fingerprint = u64::from_str_radix(digits, 16).ok()?;
        let base = lines.next()?.strip_prefix("base ")?.to_string();
        let sectors = Sectors(sectors);
        let sane = !sectors.is_empty() && sectors.0 <= u64::MAX / 1024;
        sane.then_some(Header { base, sectors, fingerprint, committing })
    }

    /// Whether the overlay can be used over `base`.
    pub(super) fn check_open(&self, base: &dyn Device, map: &Path) -> Result<()> {
        if self.committing {
            return Err(refused(format!(
                "{}: a commit to {} was interrupted; commit again to finish it",
                map.display(),
                self.base
            )));
        }
        self.check_base(base, map)
    }

    /// Whether `base` is what the overlay was made over, as it was then.
    pub(super) fn check_base(&self, base: &dyn Device, map: &Path) -> Result<()> {
        if self.matches(base) {
            return Ok(());
        }
        Err(refused(format!(
            "{}: is an overlay of {} as it was, and that has changed since; \
             restore it, or drop the overlay and its changes",
            map.display(),
            self.base
        )))
    }

    /// Whether `base` has the size and the superblocks of the overlay's base.
    pub(super) fn matches(&self, base: &dyn Device) -> bool {
        base.facts().sectors == self.sectors && fingerprint(base) == self.fingerprint
    }
}

/// The name a base is known by: its absolute path if it is a path.
pub(super) fn name_of(base: &dyn Device) -> String {
    let name = &base.facts().name;
    std::fs::canonicalize(name).map_or_else(|_| name.clone(), |path| path.display().to_string())
}

/// A number over the beginning and the end of the base (FNV-1a). What cannot be read counts as a
/// fixed byte: an overlay over a failing disk must be possible.
fn fingerprint(base: &dyn Device) -> u64 {
    let size = base.facts().sectors;
    let len = FINGERPRINT.min(size);
    let mut buf = Pool::new(0).take(len.len());
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    for at in [Sectors::ZERO, size - len] {
        let bytes: &[u8] = match read_at(base, at, &mut buf) {
            Ok(()) => &buf,
            Err(_) => &[0xff],
        };
        for byte in bytes {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    sum
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::Refused, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_comes_back() {
        for committing in [false, true] {
            let base = "/with space/and\nline".to_string();
            let header = Header { base, sectors: Sectors(77), fingerprint: 1 << 63, committing };
            assert_eq!(Header::parse(&header.emit().unwrap()), Some(header));
        }
    }

    #[test]
    fn damage_is_seen_or_harmless() {
        let header =
            Header { base: "/a".into(), sectors: Sectors(77), fingerprint: 5, committing: false };
        let page = header.emit().unwrap();
        for at in 0..100 {
            for byte in [0, b'\n', b' ', b'9', 0xff] {
                let mut page = page;
                page[at] = byte;
                if let Some(read) = Header::parse(&page) {
                    assert!(!read.sectors.is_empty());
                }
            }
        }
        assert_eq!(Header::parse(b""), None);
        let text =
            "raid overlay 1\nstate open\nsectors 18446744073709551615\nfingerprint 0\nbase x";
        assert_eq!(Header::parse(text.as_bytes()), None);
        let long = Header { base: "x".repeat(HEADER), ..header };
        assert!(long.emit().is_err());
    }
}
