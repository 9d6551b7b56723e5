//! Member images: sparse files in a directory that vanishes with its owner.

use crate::pattern::first_difference;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Bytes in a MiB, for sizes of images.
pub const MIB: u64 = 1 << 20;

/// A directory of images; it is removed when the value is dropped.
#[derive(Debug)]
pub struct Images {
    dir: TempDir,
}

impl Images {
    /// An empty directory below the system's directory for temporary files.
    #[expect(clippy::new_without_default, reason = "it makes a directory: nothing is default")]
    pub fn new() -> Images {
        Images { dir: TempDir::with_prefix("images-").expect("a directory for images") }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The path of a file of the directory, made or not.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// An empty directory inside: a mount point, or the members of one array of many.
    pub fn subdir(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }

    /// A new image of `size` bytes that reads as zeroes and takes no space yet.
    pub fn member(&self, name: &str, size: u64) -> PathBuf {
        sparse(&self.path(name), size)
    }

    /// New images `m0.img`, `m1.img`, ... of `size` bytes each, in slot order.
    pub fn members(&self, count: usize, size: u64) -> Vec<PathBuf> {
        (0..count).map(|slot| self.member(&format!("m{slot}.img"), size)).collect()
    }
}

/// A new sparse file of `size` bytes.
pub fn sparse(path: &Path, size: u64) -> PathBuf {
    let made = File::create_new(path).and_then(|file| file.set_len(size));
    made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path.to_path_buf()
}

/// Bytes `at..at + len` of a file.
pub fn read(path: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let done = File::open(path).and_then(|file| file.read_exact_at(&mut bytes, at));
    done.unwrap_or_else(|error| panic!("{} at byte {at}: {error}", path.display()));
    bytes
}

/// Overwrites bytes of a file from `at`.
pub fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path);
    let done = file.and_then(|file| file.write_all_at(bytes, at));
    done.unwrap_or_else(|error| panic!("{} at byte {at}: {error}", path.display()));
}

/// Damages a file: inverts every bit of bytes `at..at + len`.
pub fn flip(path: &Path, at: u64, len: usize) {
    let inverted: Vec<u8> = read(path, at, len).iter().map(|byte| !byte).collect();
    write(path, at, &inverted);
}

/// Asserts that two files hold the same bytes; names the first that differs.
pub fn assert_same(found: &Path, expected: &Path) {
    let load =
        |path: &Path| fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (a, b) = (load(found), load(expected));
    if let Some(at) = first_difference(&a, &b) {
        let (found, expected) = (found.display(), expected.display());
        let byte = |bytes: &[u8]| match bytes.get(at) {
            Some(byte) => format!("{byte:#04x}"),
            None => "at its end".into(),
        };
        panic!("byte {at}: {found} is {}, {expected} is {}", byte(&a), byte(&b));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_sparse_and_vanish_with_their_owner() {
        use std::os::unix::fs::MetadataExt;
        let images = Images::new();
        let members = images.members(3, 8 * MIB);
        for member in &members {
            let facts = fs::metadata(member).unwrap();
            assert_eq!((facts.len(), facts.blocks()), (8 * MIB, 0));
        }
        let dir = images.dir().to_path_buf();
        drop(images);
        assert!(!dir.exists());
    }

    #[test]
    fn flipping_twice_restores_and_a_difference_is_named() {
        let images = Images::new();
        let (a, b) = (images.member("a", 8192), images.member("b", 8192));
        flip(&a, 4100, 3);
        assert_eq!(read(&a, 4099, 5), [0, 255, 255, 255, 0]);
        let panic = std::panic::catch_unwind(|| assert_same(&a, &b)).unwrap_err();
        let message = panic.downcast_ref::<String>().unwrap();
        assert!(message.starts_with("byte 4100: ") && message.contains("0xff"), "{message}");
        flip(&a, 4100, 3);
        assert_same(&a, &b);
    }
}
