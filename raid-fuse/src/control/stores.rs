//! Writing the kernel's files of a running array: what `echo word > md/FILE` does.
//!
//! Words and refusals are the kernel's: what it does not know is EINVAL, what cannot be now is
//! EBUSY. One write is one word, with or without a newline behind.

use super::array::Control;
use super::files::{FOLDER, names};
use super::members::{Known, known};
use raid_core::engine::{Limits, Manage};
use raid_core::error::{Error, Result};

/// Longest word, in bytes: what the kernel gives a file in sysfs.
const WORD_MAX: usize = 4096;

impl Control {
    /// Does what writing `bytes` to the file at `path` means.
    ///
    /// # Errors
    /// `Invalid` for words and files that are not known, `Busy` for what cannot be done now.
    pub fn store(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let word = word(bytes)?;
        let name = path.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/'));
        match name.unwrap_or(path).split_once('/') {
            None => self.store_array(name.unwrap_or(path), word),
            Some((folder, "state")) => {
                let array = self.array();
                let all = known(array, &array.status());
                let names = names(&all);
                let member = all.iter().zip(&names).find(|(_, name)| *name == folder);
                let gone = || Error::invalid(format!("{folder} is no member any more"));
                self.store_state(member.ok_or_else(gone)?.0, word)
            }
            Some(_) => Err(Error::invalid(format!("{path} cannot be written"))),
        }
    }

    fn store_array(&self, name: &str, word: &str) -> Result<()> {
        let system = Limits::default();
        let limit = |system: u32| match word {
            "system" => Ok(Some(system)),
            _ => match word.parse() {
                Ok(limit) if limit > 0 => Ok(Some(limit)),
                _ => Err(Error::invalid(format!("found `{word}`, expected KiB a second"))),
            },
        };
        match name {
            "sync_action" => self.sync_action(word).map(drop),
            "sync_speed_min" => self.limits(limit(system.min)?, None).map(drop),
            "sync_speed_max" => self.limits(None, limit(system.max)?).map(drop),
            _ => Err(Error::invalid(format!("{name} cannot be written"))),
        }
    }

    fn store_state(&self, known: &Known, word: &str) -> Result<()> {
        match word {
            "faulty" => self.fail(known),
            "remove" => self.remove(known),
            "want_replacement" => self.array().manage(Manage::Replace(known.device, None)),
            "writemostly" => self.array().manage(Manage::WriteMostly(known.device, true)),
            "-writemostly" => self.array().manage(Manage::WriteMostly(known.device, false)),
            _ => {
                let expected = "faulty, remove, want_replacement, writemostly or -writemostly";
                Err(Error::invalid(format!("found `{word}`, expected {expected}")))
            }
        }
    }
}

/// One word, without the newline that echo sends.
fn word(bytes: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= WORD_MAX);
    let text = text.ok_or_else(|| Error::invalid("one short word is expected"))?;
    Ok(text.strip_suffix('\n').unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::word;

    #[test]
    fn one_newline_is_taken_off_and_no_more() {
        let cases = [("idle", "idle"), ("idle\n", "idle"), ("idle\n\n", "idle\n"), ("", "")];
        for (text, expected) in cases {
            assert_eq!(word(text.as_bytes()).unwrap(), expected);
        }
        assert!(word(&[0xff]).is_err());
        assert!(word(&[b'x'; 4097]).is_err());
    }
}
