//! Device specs: `scheme:args+inner`, read from the outside in.

use super::file::{self, OpenOptions};
use super::{DEVICES, DeviceKind, Opened};
use crate::error::{Error, Result};
use crate::units::{SECTOR, Sectors};
use std::path::Path;

/// Filters around filters; more is a mistake.
const DEPTH_MAX: usize = 16;

/// Opens what `spec` names: the file or block device of that name if there is one, else
/// `scheme:args` for a source and `scheme:args+inner` for a filter around another spec (the rows
/// of [`DEVICES`] are the schemes), else a file that is missing.
///
/// `mem:64M`, `slice:start=2048,len=4096+file:x`, `fault:seed=7,read=1e-4+file:a.img`,
/// `trace:out=t.txt+cow:dir=D+a.img`. A path with a `+` in it is fine as the last part.
///
/// # Errors
/// Those of the kinds; `Invalid` for arguments that are not understood.
pub fn open(spec: &str, options: &OpenOptions) -> Opened {
    open_at(spec, options, 0)
}

fn open_at(spec: &str, options: &OpenOptions, depth: usize) -> Opened {
    if depth == DEPTH_MAX {
        return Err(Error::invalid(format!("more than {DEPTH_MAX} filters around one device")));
    }
    match split_scheme(spec) {
        Some((kind, rest)) if !Path::new(spec).exists() => open_kind(kind, rest, options, depth),
        _ => file::open(Path::new(spec), options),
    }
}

fn open_kind(kind: &DeviceKind, rest: &str, options: &OpenOptions, depth: usize) -> Opened {
    let told = |e: Error| e.context(format_args!("{}:", kind.scheme));
    if !kind.filter {
        return (kind.open)(rest, None, options).map_err(told);
    }
    let Some((args, inner)) = split_inner(rest) else {
        return Err(Error::invalid(format!(
            "{}:{rest}: is a filter and needs a device behind a `+`: {}",
            kind.scheme, kind.usage
        )));
    };
    let read_only = options.read_only || kind.inner_read_only;
    let inner = open_at(inner, &OpenOptions { read_only, ..*options }, depth + 1)?;
    (kind.open)(args, Some(inner), options).map_err(told)
}

fn split_scheme(spec: &str) -> Option<(&'static DeviceKind, &str)> {
    let (scheme, rest) = spec.split_once(':')?;
    DEVICES.iter().find(|kind| kind.scheme == scheme).map(|kind| (*kind, rest))
}

/// Arguments and inner spec: parted at the first `+` behind which there is a known scheme or an
/// existing path, else at the first `+`.
fn split_inner(rest: &str) -> Option<(&str, &str)> {
    let known = |inner: &str| split_scheme(inner).is_some() || Path::new(inner).exists();
    let parts = rest.match_indices('+').map(|(at, _)| (&rest[..at], &rest[at + 1..]));
    parts.clone().find(|(_, inner)| known(inner)).or_else(|| parts.clone().next())
}

/// The arguments of a spec, `key=value` parted by commas, taken out one by one.
pub(super) struct Args<'a> {
    left: Vec<(&'a str, &'a str)>,
}

impl<'a> Args<'a> {
    pub(super) fn parse(args: &'a str) -> Result<Args<'a>> {
        let parts = args.split(',').filter(|part| !part.is_empty());
        let pair = |part: &'a str| {
            let wrong = || Error::invalid(format!("found `{part}`, expected key=value"));
            part.split_once('=').ok_or_else(wrong)
        };
        Ok(Args { left: parts.map(pair).collect::<Result<_>>()? })
    }

    pub(super) fn take(&mut self, key: &str) -> Option<&'a str> {
        let index = self.left.iter().position(|(k, _)| *k == key)?;
        Some(self.left.remove(index).1)
    }

    /// A place or length: a number of sectors, or of bytes with a unit (`1M`).
    pub(super) fn sectors(&mut self, key: &str) -> Result<Option<Sectors>> {
        let Some(text) = self.take(key) else { return Ok(None) };
        let plain = text.parse().ok().map(Sectors);
        let sectors = plain.or_else(|| {
            let bytes = parse_bytes(text)?;
            bytes.is_multiple_of(SECTOR).then(|| Sectors::floor_bytes(bytes))
        });
        let wrong = || {
            let expected = "a number of sectors, or whole sectors as 4K, 1M, 2G";
            Error::invalid(format!("{key}: found `{text}`, expected {expected}"))
        };
        sectors.map(Some).ok_or_else(wrong)
    }

    /// Refuses what nobody took.
    pub(super) fn finish(self, usage: &str) -> Result<()> {
        match self.left.first() {
            None => Ok(()),
            Some((key, _)) => {
                Err(Error::invalid(format!("`{key}` is not known here; the form is {usage}")))
            }
        }
    }
}

/// A number of bytes with an optional unit: K, M, G or T, in powers of 1024.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::conformance::{scratch, sparse};
    use crate::device::{read_at, write_at};
    use crate::error::ErrorKind;

    fn opened(spec: &str) -> crate::device::Shared {
        open(spec, &OpenOptions::default()).unwrap_or_else(|e| panic!("{spec}: {e}"))
    }

    fn refusal(spec: &str) -> (ErrorKind, String) {
        let error = open(spec, &OpenOptions::default()).err().expect(spec);
        (error.kind, error.to_string())
    }

    #[test]
    fn specs_nest() {
        let dir = scratch();
        let place = sparse(dir.path(), "a.img", Sectors(1 << 14));
        let place = place.display();
        let cases = [
            (format!("{place}"), 1 << 14),
            (format!("file:{place}"), 1 << 14),
            ("mem:64M".to_string(), 64 << 11),
            (format!("slice:start=2048,len=4096+file:{place}"), 4096),
            (format!("slice:start=1M+{place}"), (1 << 14) - 2048),
            (format!("fault:seed=7,read=1e-4+file:{place}"), 1 << 14),
            (format!("fault:eio read 4096..8192 on 3; vanish after 100+file:{place}"), 1 << 14),
            (format!("trace:+slice:len=8+fault:+{place}"), 8),
            (format!("cow:dir={}+{place}", dir.path().display()), 1 << 14),
        ];
        for (spec, sectors) in cases {
            assert_eq!(opened(&spec).facts().sectors, Sectors(sectors), "{spec}");
        }
    }

    #[test]
    fn a_path_that_exists_wins() {
        let dir = scratch();
        for name in ["mem:64M", "a+b.img", "fault:x+mem:1M", "a:b,c=d"] {
            sparse(dir.path(), name, Sectors(100));
            let path = dir.path().join(name).display().to_string();
            assert_eq!(opened(&path).facts().sectors, Sectors(100), "{name}");
            let inside = format!("slice:start=1+{path}");
            assert_eq!(opened(&inside).facts().sectors, Sectors(99), "{name}");
        }
    }

    #[test]
    fn filters_do_what_their_arguments_say() {
        let dir = scratch();
        let (plan, out) = (dir.path().join("plan"), dir.path().join("out.txt"));
        std::fs::write(&plan, "eio read 0..512\n# and no more\n").unwrap();
        let spec =
            format!("trace:out={},log=1+fault:plan={}+mem:1M", out.display(), plan.display());
        let device = opened(&spec);
        assert!(read_at(&*device, Sectors(0), &mut [0; 512]).is_err());
        write_at(&*device, Sectors(9), &[0; 512]).unwrap();
        drop(device);
        let told = std::fs::read_to_string(out).unwrap();
        assert!(told.ends_with("(1 older operations not kept)\nwrite 9+1\n"), "{told}");
    }

    #[test]
    fn what_is_not_understood_is_named() {
        let cases = [
            ("mem:", "a size"),
            ("mem:64Q", "64Q"),
            ("mem:99999999T", "99999999T"),
            ("slice:start=1", "needs a device"),
            ("slice:begin=1+mem:1M", "`begin`"),
            ("slice:start=x+mem:1M", "start"),
            ("slice:start=100b+mem:1M", "start"),
            ("slice:start=1000000+mem:1M", "not inside"),
            ("slice:1+mem:1M", "key=value"),
            ("fault:explode+mem:1M", "explode"),
            ("fault:rate=1+mem:1M", "`rate`"),
            ("fault:plan=/no/such/plan+mem:1M", "/no/such/plan"),
            ("trace:log=x+mem:1M", "log"),
            ("cow:+mem:1M", "dir="),
            ("nothing:x", "nothing:x"),
            ("no-such-file", "check the name"),
            ("", "cannot open"),
        ];
        for (spec, word) in cases {
            let (kind, text) = refusal(spec);
            assert!(text.contains(word), "{spec}: {text}");
            assert_eq!(kind, ErrorKind::Invalid, "{spec}: {text}");
        }
        let deep = "trace:+".repeat(100) + "mem:1M";
        assert!(refusal(&deep).1.contains("more than 16"));
    }

    #[test]
    fn every_row_has_its_words() {
        for kind in DEVICES {
            assert!(kind.usage.starts_with(&format!("{}:", kind.scheme)));
            assert_eq!(kind.filter, kind.usage.contains("+DEVICE"), "{}", kind.scheme);
            assert!(!kind.summary.is_empty());
        }
    }
}
