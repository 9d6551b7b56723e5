//! Which member somebody means.

use raid_core::device::Storage;
use raid_core::device::file::identity_of;
use raid_core::driver::Array;
use raid_core::engine::{DeviceId, Member, State, Status};
use raid_core::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A device of a running array and the names it goes by.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its id.
    pub device: DeviceId,
    /// As it was given.
    pub name: String,
    /// Its storage, where that can be told.
    pub identity: Option<Storage>,
    /// The slot it is in, or is filled to take over.
    pub slot: Option<u16>,
    /// It is filled beside the member of its slot.
    pub replacement: bool,
    /// Its number in the role map.
    pub number: u32,
    /// Whether it can be trusted.
    pub state: State,
}

/// All devices of an array, members first.
pub fn known(array: &Array, status: &Status) -> Vec<Known> {
    let one = |member: &Member, slot: Option<usize>| Known {
        device: member.device,
        name: member.name.clone(),
        identity: array.device(member.device).and_then(|device| device.facts().identity),
        slot: slot.map(|slot| slot as u16),
        replacement: member.record.replacement,
        number: member.record.number,
        state: member.state,
    };
    let seated = |list: &[Option<Member>]| {
        let seats = list.iter().enumerate();
        seats.filter_map(|(i, m)| Some(one(m.as_ref()?, Some(i)))).collect::<Vec<Known>>()
    };
    let mut all = seated(&status.members);
    all.extend(seated(&status.replacements));
    all.extend(status.others.iter().map(|member| one(member, None)));
    all
}

/// The device that `word` means: its path under any name, its name as given or without its
/// folder, `slot:N` (the member, not what is filled beside it), or `number:N`.
///
/// # Errors
/// None or several are meant; the error lists what there is.
pub fn find<'a>(all: &'a [Known], word: &str) -> Result<&'a Known> {
    if let Some(known) = all.iter().find(|known| known.name == word) {
        return Ok(known);
    }
    if let Some(known) = by_storage(all, word) {
        return Ok(known);
    }
    if let Some(slot) = word.strip_prefix("slot:") {
        let slot: Option<u16> = slot.parse().ok();
        let seated = all.iter().filter(|known| known.slot.is_some() && known.slot == slot);
        return seated.min_by_key(|known| known.replacement).ok_or_else(|| unknown(all, word));
    }
    if let Some(number) = word.strip_prefix("number:") {
        let number: Option<u32> = number.parse().ok();
        let found = all.iter().find(|known| Some(known.number) == number);
        return found.ok_or_else(|| unknown(all, word));
    }
    let last = |name: &str| name.rsplit('/').next().unwrap_or(name).to_string();
    let named: Vec<&Known> = all.iter().filter(|known| last(&known.name) == word).collect();
    match named[..] {
        [known] => Ok(known),
        [] => Err(unknown(all, word)),
        _ => {
            let names: Vec<&str> = named.iter().map(|known| known.name.as_str()).collect();
            let text = format!("{word} can be any of {}; give its path", names.join(", "));
            Err(Error::invalid(text))
        }
    }
}

/// The device whose storage is at the path `word`, whatever it is called.
pub fn by_storage<'a>(all: &'a [Known], word: &str) -> Option<&'a Known> {
    let identity = identity_of(&file_of(word)).ok()?;
    all.iter().find(|known| known.identity == Some(identity))
}

/// The device that shares bytes with the file or disk at the path `word`.
pub fn overlapping<'a>(all: &'a [Known], word: &str) -> Option<&'a Known> {
    let identity = identity_of(&file_of(word)).ok()?;
    all.iter().find(|known| known.identity.is_some_and(|own| own.overlaps(&identity)))
}

fn unknown(all: &[Known], word: &str) -> Error {
    let name = |known: &Known| match known.slot {
        Some(slot) => format!("{} (slot {slot})", known.name),
        None => known.name.clone(),
    };
    let names: Vec<String> = all.iter().map(name).collect();
    Error::invalid(format!("{word} is not in this array; it has {}", names.join(", ")))
}

/// The file behind a spec: its last part, without a scheme.
pub fn file_of(spec: &str) -> PathBuf {
    let path = Path::new(spec);
    if path.exists() {
        return path.to_path_buf();
    }
    let mut inner = spec.match_indices('+').map(|(at, _)| &spec[at + 1..]);
    let last = inner.find(|rest| Path::new(rest).exists());
    let last = last.unwrap_or_else(|| spec.rsplit('+').next().unwrap_or(spec));
    PathBuf::from(last.strip_prefix("file:").unwrap_or(last))
}

/// `spec` with its file as an absolute path: what a daemon without a folder can open.
pub fn absolute(spec: &str) -> String {
    let file = file_of(spec);
    let shown = file.to_string_lossy();
    match (std::path::absolute(&file), spec.strip_suffix(&*shown)) {
        (Ok(path), Some(before)) if file.exists() => format!("{before}{}", path.display()),
        _ => spec.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members() -> Vec<Known> {
        let one = |device, name: &str, slot, replacement, number| Known {
            device: DeviceId(device),
            name: name.into(),
            identity: None,
            slot,
            replacement,
            number,
            state: State::InSync,
        };
        vec![
            one(0, "x/a.img", Some(0), false, 0),
            one(1, "y/a.img", Some(1), false, 1),
            one(2, "c.img", Some(1), true, 4),
            one(3, "file:/d/e.img", None, false, 3),
        ]
    }

    #[test]
    fn a_member_is_found_by_each_of_its_names() {
        let all = members();
        let cases = [
            ("x/a.img", 0),
            ("y/a.img", 1),
            ("c.img", 2),
            ("e.img", 3),
            ("slot:1", 1),
            ("number:4", 2),
            ("number:3", 3),
        ];
        for (word, device) in cases {
            assert_eq!(find(&all, word).unwrap().device, DeviceId(device), "{word}");
        }
    }

    #[test]
    fn who_is_not_meant_clearly_is_refused_with_what_there_is() {
        let all = members();
        let refusal = |word| find(&all, word).unwrap_err().to_string();
        assert_eq!(refusal("a.img"), "a.img can be any of x/a.img, y/a.img; give its path");
        let words = ["z", "", "slot:2", "slot:x", "slot:", "number:9", "number:-1", "/"];
        for word in words {
            let text = refusal(word);
            assert!(text.contains("is not in this array; it has x/a.img (slot 0), "), "{text}");
        }
    }

    #[test]
    fn storage_has_any_number_of_names() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("a+b.img"), dir.path().join("link"));
        std::fs::write(&file, "x").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mut all = members();
        all[2].identity = Some(identity_of(&file).unwrap());
        let spec = format!("trace:out=t+{}", file.display());
        for word in [file.to_str().unwrap(), link.to_str().unwrap(), &spec] {
            assert_eq!(find(&all, word).unwrap().device, DeviceId(2), "{word}");
        }
        assert_eq!(absolute(&spec), spec);
        assert_eq!(absolute("no such file"), "no such file");
    }
}
