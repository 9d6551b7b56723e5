//! The kernel's mount table as this process sees it: `/proc/self/mountinfo`, see proc(5).

use super::FSTYPE;
use raid_core::error::{Error, Result};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// More mounts over one another than anybody makes on purpose.
pub const LAYERS_MAX: usize = 32;

/// One mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Number of the mount, unique while it exists.
    pub id: u64,
    /// `major:minor` of the file system; for FUSE the minor also names its connection.
    pub device: (u32, u32),
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    /// File system type, such as `ext4` or `fuse.raid-fuse`.
    pub fstype: String,
    /// What it was mounted from.
    pub source: String,
    /// The user who mounted it, where the file system says so.
    pub user: Option<u32>,
}

impl Entry {
    /// True for mounts made by this program.
    pub fn is_ours(&self) -> bool {
        self.fstype == FSTYPE
    }
}

/// All mounts, oldest first.
pub fn read() -> Result<Vec<Entry>> {
    let path = "/proc/self/mountinfo";
    let text = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    Ok(parse(&text))
}

/// The mount that is seen at exactly this path, if it is a mount point.
pub fn top_at(path: &Path) -> Result<Option<Entry>> {
    Ok(read()?.into_iter().rfind(|entry| entry.mountpoint == path))
}

/// Parses the whole table; lines that make no sense are left out.
pub fn parse(text: &[u8]) -> Vec<Entry> {
    text.split(|&byte| byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Entry> {
    let mut words = line.split(|&byte| byte == b' ');
    let id = number(words.next()?)?;
    let _parent = words.next()?;
    let device = std::str::from_utf8(words.next()?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let _root = words.next()?;
    let mountpoint = PathBuf::from(OsString::from_vec(unescape(words.next()?)));
    // Mount options and any number of tags end at a lone dash.
    words.find(|word| word == b"-")?;
    let fstype = String::from_utf8_lossy(&unescape(words.next()?)).into_owned();
    let source = String::from_utf8_lossy(&unescape(words.next()?)).into_owned();
    let options = String::from_utf8_lossy(words.next().unwrap_or_default()).into_owned();
    let user = options.split(',').find_map(|option| option.strip_prefix("user_id=")?.parse().ok());
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Entry { id, device, mountpoint, fstype, source, user })
}

fn number(word: &[u8]) -> Option<u64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Undoes the kernel's octal escapes of space, tab, newline, backslash and `#`.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// True if `path` is `mountpoint` or inside it, by name alone.
pub fn is_inside(path: &Path, mountpoint: &Path) -> bool {
    let (path, mountpoint) = (path.as_os_str().as_bytes(), mountpoint.as_os_str().as_bytes());
    match path.strip_prefix(mountpoint) {
        Some([]) | Some([b'/', ..]) => true,
        Some([b' ', b'(', ..]) => true, // The kernel's "/mnt/a (deleted)".
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_shapes() {
        let text = b"22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n\
            90 22 0:53 / /mnt/a\\040b rw - fuse.raid-fuse md\\040x rw,user_id=1000,group_id=5\n\
            broken line\n\
            91 22 0:54 / /mnt/\\377 ro shared:1 master:2 - tmpfs none ro\n";
        let table = parse(text);
        assert_eq!(table.len(), 3);
        assert_eq!((table[0].id, table[0].device), (22, (254, 0)));
        assert!(!table[0].is_ours());
        assert_eq!(table[1].mountpoint, Path::new("/mnt/a b"));
        assert_eq!((table[1].source.as_str(), table[1].user), ("md x", Some(1000)));
        assert!(table[1].is_ours());
        assert_eq!(table[2].mountpoint.as_os_str().as_bytes(), b"/mnt/\xff");
    }

    #[test]
    fn this_process_sees_its_root() {
        assert!(top_at(Path::new("/")).unwrap().is_some());
    }

    #[test]
    fn inside_is_by_whole_names() {
        let inside = |path| is_inside(Path::new(path), Path::new("/mnt/a"));
        assert!(inside("/mnt/a") && inside("/mnt/a/volume") && inside("/mnt/a (deleted)"));
        assert!(!inside("/mnt/ab") && !inside("/mnt") && !inside("/"));
    }
}
