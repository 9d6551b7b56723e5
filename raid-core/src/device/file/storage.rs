//! Which bytes of which file or disk a name stands for.
//!
//! A loop device is a range of the file behind it, a partition a range of its disk, and both can
//! lie over each other. Followed to the bottom, two names mean the same bytes exactly if their
//! ranges of one file or disk overlap. What cannot be seen (no `/sys`, no right to look) ends the
//! way down: the name then stands for itself.
//!
//! ```text
//!     /dev/loop7p1   bytes 1 MiB .. 9 MiB of /dev/loop7       (a partition)
//!     /dev/loop7     bytes 4 KiB .. end   of /srv/disk.img    (losetup --offset 4096)
//!     /srv/disk.img  the bottom: (device, inode), 4 KiB + 1 MiB .. 4 KiB + 9 MiB
//! ```

use crate::units::{SECTOR, Sectors};
use std::fs::{self, File, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// How many devices may lie over each other: more than anybody stacks, and an end where what
/// `/sys` says changes meanwhile.
const LAYERS_MAX: usize = 16;

/// A range of bytes of a file or disk that is nothing but itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Storage {
    /// Number of the file's file system, or of the disk.
    device: u64,
    /// The file's inode; zero for a disk.
    inode: u64,
    /// The first byte.
    start: u64,
    /// The byte behind the last; `u64::MAX` to the end, wherever that is.
    end: u64,
}

impl Storage {
    /// All of the file or block device, not looked into.
    pub(super) fn plain(meta: &Metadata) -> Storage {
        match meta.file_type().is_block_device() {
            true => Storage::of(meta.rdev(), 0),
            false => Storage::of(meta.dev(), meta.ino()),
        }
    }

    fn of(device: u64, inode: u64) -> Storage {
        Storage { device, inode, start: 0, end: u64::MAX }
    }

    /// True if what is written to one is written to the other.
    pub fn overlaps(&self, other: &Storage) -> bool {
        let same = (self.device, self.inode) == (other.device, other.inode);
        same && self.start < other.end && other.start < self.end
    }

    /// `len` sectors from `start` of it.
    pub fn part(&self, start: Sectors, len: Sectors) -> Storage {
        let start = start.bytes();
        self.window(start, start.saturating_add(len.bytes()))
    }

    fn window(&self, start: u64, end: u64) -> Storage {
        let to = |at: u64| self.start.saturating_add(at).min(self.end);
        Storage { start: to(start), end: to(end), ..*self }
    }

    /// True if it is all of its file or disk.
    pub(super) fn is_whole(&self) -> bool {
        (self.start, self.end) == (0, u64::MAX)
    }

    /// The first byte, and the byte behind the last.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.start, self.end)
    }

    /// Number of the file's file system and inode; of a disk its number and zero.
    pub(super) fn place(&self) -> (u64, u64) {
        (self.device, self.inode)
    }
}

/// What is at the end of the way down.
pub(super) struct Bottom {
    /// Which bytes.
    pub(super) storage: Storage,
    /// How the file or disk with them is called, if there was a loop device on the way: exclusive
    /// use of a partition the kernel sees itself, what is behind a loop device it does not.
    pub(super) behind_loop: Option<PathBuf>,
}

/// Follows a file or block device to the bottom.
pub(super) fn follow(meta: &Metadata) -> Bottom {
    let mut storage = Storage::plain(meta);
    let mut path = PathBuf::new();
    let mut has_loop = false;
    let mut layers = 0;
    while storage.inode == 0 && meta.file_type().is_block_device() && layers < LAYERS_MAX {
        let Some(below) = below(storage.device) else { break };
        storage = below.storage.window(storage.start, storage.end);
        (path, has_loop) = (below.path, has_loop || below.is_loop);
        layers += 1;
    }
    Bottom { storage, behind_loop: has_loop.then_some(path) }
}

/// What lies directly below a block device.
struct Below {
    storage: Storage,
    path: PathBuf,
    is_loop: bool,
}

fn below(device: u64) -> Option<Below> {
    let folder = sysfs(device);
    if folder.join("partition").exists() {
        return disk_of(&folder);
    }
    folder.join("loop").exists().then(|| behind(&folder, device)).flatten()
}

fn sysfs(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device)).into()
}

/// The disk of a partition; the kernel counts both numbers in 512 bytes, whatever the blocks.
fn disk_of(folder: &Path) -> Option<Below> {
    let start = number(&folder.join("start"))?.checked_mul(SECTOR)?;
    let len = number(&folder.join("size"))?.checked_mul(SECTOR)?;
    let disk = fs::canonicalize(folder).ok()?.parent()?.to_path_buf();
    let told = text(&disk.join("dev"))?;
    let (major, minor) = told.split_once(':')?;
    let device = libc::makedev(major.parse().ok()?, minor.parse().ok()?);
    let storage = Storage::of(device, 0).window(start, start.saturating_add(len));
    Some(Below { storage, path: node(&disk)?, is_loop: false })
}

/// What a loop device is made of.
fn behind(folder: &Path, device: u64) -> Option<Below> {
    let start = number(&folder.join("loop/offset"))?;
    let len = number(&folder.join("loop/sizelimit"))?;
    let end = if len == 0 { u64::MAX } else { start.saturating_add(len) };
    let bytes = fs::read(folder.join("loop/backing_file")).ok()?;
    let name = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let path = PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
    let asked = fs::canonicalize(folder).ok().and_then(|disk| ask(&node(&disk)?, device));
    // Who may not ask the device goes by the name, which is not certain: the file may have been
    // deleted and another one made.
    let whole = match asked {
        Some(storage) => storage,
        None => Storage::plain(&fs::metadata(&path).ok()?),
    };
    Some(Below { storage: whole.window(start, end), path, is_loop: true })
}

/// The node of a disk in `/dev`; its name in `/sys` has `!` for `/`.
fn node(disk: &Path) -> Option<PathBuf> {
    let name = disk.file_name()?.to_str()?.replace('!', "/");
    Some(Path::new("/dev").join(name))
}

fn number(path: &Path) -> Option<u64> {
    text(path)?.parse().ok()
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// `LOOP_GET_STATUS64` of linux/loop.h.
const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;

/// `struct loop_info64` of linux/loop.h: what identifies the file, then what is not used here.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    rest: [u64; 26],
}

/// What the loop device itself says of the file behind it.
fn ask(node: &Path, device: u64) -> Option<Storage> {
    let file = File::open(node).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.file_type().is_block_device() || meta.rdev() != device {
        return None;
    }
    let mut info = LoopInfo { device: 0, inode: 0, rdevice: 0, rest: [0; 26] };
    // SAFETY: the ioctl writes one loop_info64, which `info` has the size of.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, &mut info) };
    if done != 0 {
        return None;
    }
    // Of a regular file, `rdevice` is zero or (Linux before 5.19) the file system's number.
    match info.rdevice {
        0 => Some(Storage::of(info.device, info.inode)),
        rdevice if rdevice == info.device => Some(Storage::of(info.device, info.inode)),
        rdevice => Some(Storage::of(rdevice, 0)),
    }
}

/// The loop devices other than `device` that are over any byte of `storage`.
pub(super) fn loops_over(storage: &Storage, device: u64) -> Vec<PathBuf> {
    let Ok(disks) = fs::read_dir("/sys/block") else { return Vec::new() };
    let over = |entry: std::io::Result<fs::DirEntry>| {
        let folder = entry.ok()?.path();
        if !folder.join("loop").exists() {
            return None;
        }
        let node = node(&folder)?;
        let meta = fs::metadata(&node).ok()?;
        let other = meta.file_type().is_block_device() && meta.rdev() != device;
        (other && follow(&meta).storage.overlaps(storage)).then_some(node)
    };
    disks.filter_map(over).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_info_is_as_large_as_the_kernels() {
        assert_eq!(size_of::<LoopInfo>(), 232);
    }

    #[test]
    fn ranges_of_one_file_overlap_or_not() {
        let whole = Storage::of(1, 2);
        let part = |start, len| whole.part(Sectors(start), Sectors(len));
        let cases = [
            (whole, whole, true),
            (whole, Storage::of(1, 3), false),
            (whole, Storage::of(2, 2), false),
            (whole, part(8, 1), true),
            (part(0, 8), part(8, 8), false),
            (part(0, 9), part(8, 8), true),
            (part(8, 8).part(Sectors(2), Sectors(2)), part(10, 1), true),
            (part(8, 8).part(Sectors(2), Sectors(2)), part(12, 1), false),
            // A part ends with what it is a part of.
            (part(8, 8).part(Sectors(2), Sectors(100)), part(16, 1), false),
        ];
        for (one, other, overlap) in cases {
            assert_eq!(one.overlaps(&other), overlap, "{one:?} {other:?}");
            assert_eq!(other.overlaps(&one), overlap, "{other:?} {one:?}");
        }
        assert!(whole.is_whole());
        assert!(!part(0, 8).is_whole());
    }
}
