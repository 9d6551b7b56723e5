//! Members as they are typed: opened, each once, and looked at.

use super::out;
use crate::mountpoint;
use crate::rundir;
use raid_core::assembly;
use raid_core::device::file::{Direct, identity_of};
use raid_core::device::{self, OpenOptions, Shared, Storage, cow::CowDevice};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::Candidate;
pub use raid_core::meta::assemble::quoted;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens all of `specs`; nothing stays open if one cannot be.
pub fn open(
    specs: &[String],
    options: &OpenOptions,
    overlay: Option<&Path>,
) -> Result<Vec<Shared>> {
    refuse_twice(specs, options)?;
    let open = |spec: &String| {
        let opened = device::open(spec, options).and_then(|base| over(base, overlay));
        opened.map_err(|error| name_holder(spec, error))
    };
    specs.iter().map(open).collect()
}

/// Opens one for a look, also if it is in use.
pub fn look(spec: &str) -> Result<Shared> {
    device::open(spec, &OpenOptions::looking())
}

/// How members are opened to be served from.
pub fn options(read_only: bool, direct: Direct) -> OpenOptions {
    OpenOptions { read_only, direct, lock: true }
}

fn over(base: Shared, overlay: Option<&Path>) -> Result<Shared> {
    match overlay {
        None => Ok(base),
        Some(dir) => Ok(Arc::new(CowDevice::open(base, dir, false)?)),
    }
}

/// Looks at every device. One whose superblocks cannot be read is no member, and is told of.
pub fn examine(devices: &[Shared]) -> Vec<Candidate> {
    let look = |device: &Shared| match assembly::examine(&**device) {
        Ok(candidate) => candidate,
        Err(error) => {
            out::note(&format!("{error}; it is left out"));
            let facts = device.facts();
            let (name, sectors) = (facts.name.clone(), facts.sectors);
            Candidate { name, sectors, sightings: Vec::new() }
        }
    };
    devices.iter().map(look).collect()
}

/// The same storage under two names would be two members of one array. Who only reads may be given
/// a disk and its partitions, which are told apart by their superblocks.
fn refuse_twice(specs: &[String], options: &OpenOptions) -> Result<()> {
    let identities: Vec<_> = specs.iter().map(|spec| identity_of(Path::new(spec)).ok()).collect();
    for (index, identity) in identities.iter().enumerate() {
        let Some(identity) = identity else { continue };
        let clash = |other: &Storage| match options.read_only {
            true => other == identity,
            false => other.overlaps(identity),
        };
        let before = identities[..index].iter();
        let found = before.enumerate().find_map(|(i, other)| Some((i, other.filter(clash)?)));
        let Some((twin, other)) = found else { continue };
        let (first, second) = (&specs[twin], &specs[index]);
        let text = match (first == second, other == *identity) {
            (true, _) => format!("{first} is given twice; give each member once"),
            (_, true) => format!("{first} and {second} are the same; give each member once"),
            (_, false) => format!(
                "{first} and {second} are parts of the same file or disk, and overlap; give only \
                 one of them"
            ),
        };
        return Err(Error::invalid(text));
    }
    Ok(())
}

/// A member in use: by which mount, if it is one of ours, and under which name there.
fn name_holder(spec: &str, error: Error) -> Error {
    let identity = match identity_of(Path::new(spec)) {
        Ok(identity) if error.kind == ErrorKind::Busy => identity,
        _ => return error,
    };
    let holds = |path: &&PathBuf| identity_of(path).is_ok_and(|other| other.overlaps(&identity));
    let found = rundir::list().into_iter().find_map(|record| {
        let member = record.members.iter().find(holds)?.clone();
        Some((record.mountpoint, member))
    });
    let Some((mountpoint, member)) = found else { return error };
    let (shown, is_its_name) = (mountpoint.display(), is_name_of(spec, &member));
    let what = match is_its_name {
        true => format!("{spec} is a member"),
        false => format!("{spec} is the same storage as {}, a member", member.display()),
    };
    let text = format!(
        "{what} of the array that is mounted on {shown}; take it down first: \
         raid-fuse unmount {shown}"
    );
    Error::new(ErrorKind::Busy, text)
}

/// True if both lead to one file or device, by whatever links.
fn is_name_of(spec: &str, path: &Path) -> bool {
    let [one, other] = [Path::new(spec), path].map(|path| std::fs::metadata(path).ok());
    let place = |meta: std::fs::Metadata| (meta.dev(), meta.ino());
    one.is_some() && one.map(place) == other.map(place)
}

/// A member that may not be written: what can be done with it all the same.
pub fn hint_read_only(error: Error) -> Error {
    let denied = error.kind == ErrorKind::ReadOnly
        || error.kind == ErrorKind::Refused && error.to_string().contains("cannot open to write");
    match denied {
        false => error,
        true => Error::new(
            error.kind,
            format!(
                "{error}\n  to read it as it is: mount --read-only, or cat; to keep changes \
                 elsewhere: --overlay DIR"
            ),
        ),
    }
}

/// Absolute paths of members, for those who look for the mount later.
pub fn paths(specs: &[String]) -> Vec<PathBuf> {
    let path = |spec: &String| {
        let path = Path::new(spec.strip_prefix("file:").unwrap_or(spec));
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf())
    };
    specs.iter().map(path).collect()
}

/// A random id, of the kernel's generator.
pub fn random_id() -> Result<[u8; 16]> {
    let mut id = [0; 16];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut id));
    read.map_err(|error| Error::io("/dev/urandom, for a new id", error))?;
    Ok(id)
}

/// True if `path` is a directory, or a mount whose daemon died.
pub fn is_mountpoint_like(path: &str) -> bool {
    match std::fs::metadata(path) {
        Ok(meta) => meta.is_dir(),
        Err(error) => mountpoint::is_dead(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_words_back() {
        let words = ["a.img", "my disk", "it's", "", "cow:dir=x+y"];
        assert_eq!(quoted(words), r"a.img 'my disk' 'it'\''s' '' cow:dir=x+y");
    }
}
