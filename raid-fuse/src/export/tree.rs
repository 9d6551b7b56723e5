//! The directory that is mounted: its files, their numbers and attributes. Memory only.
//!
//! Nothing here asks the volume, so `ls`, `stat` and `df` answer at once whatever the members do.
//! Names of text files are taken once, when the mount starts.

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use parking_lot::Mutex;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Name of the one big file.
pub const VOLUME_NAME: &str = "volume";

/// The directory.
pub const ROOT: INodeNo = INodeNo(1);
/// The one big file.
pub const VOLUME: INodeNo = INodeNo(2);
/// The first text file; the others follow.
const FIRST_TEXT: u64 = 3;

/// What `st_blksize` tells programs to use: the largest request the kernel sends.
const VOLUME_BLOCK: u32 = 1 << 20;
const TEXT_BLOCK: u32 = 4096;

/// Attributes that users may set on the volume; kept until the mount ends.
struct Owner {
    mode: u16,
    uid: u32,
    gid: u32,
    atime: SystemTime,
    mtime: SystemTime,
    ctime: SystemTime,
}

struct Text {
    name: &'static str,
    /// Length of the text when it was last made.
    len: AtomicU64,
}

/// A change of attributes: what is present is set.
#[derive(Default)]
pub struct Change {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Time of last access.
    pub atime: Option<TimeOrNow>,
    /// Time of last modification.
    pub mtime: Option<TimeOrNow>,
}

/// The directory and its files.
pub struct Tree {
    size: u64,
    read_only: bool,
    /// Who mounted it, and when; owns everything the user cannot change.
    uid: u32,
    gid: u32,
    born: SystemTime,
    texts: Vec<Text>,
    owner: Mutex<Owner>,
}

impl Tree {
    /// A directory with a volume of `size` bytes and the named texts, owned by this process.
    pub fn new(size: u64, read_only: bool, texts: &[(&'static str, String)]) -> Tree {
        // SAFETY: these calls take nothing, cannot fail and touch no memory.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let born = SystemTime::now();
        let mode = if read_only { 0o444 } else { 0o644 };
        let texts =
            texts.iter().map(|(name, text)| Text { name, len: AtomicU64::new(text.len() as u64) });
        let owner = Owner { mode, uid, gid, atime: born, mtime: born, ctime: born };
        Tree { size, read_only, uid, gid, born, texts: texts.collect(), owner: Mutex::new(owner) }
    }

    /// The file called `name`.
    pub fn lookup(&self, name: &OsStr) -> Option<INodeNo> {
        if name == VOLUME_NAME {
            return Some(VOLUME);
        }
        let index = self.texts.iter().position(|text| name == text.name)?;
        Some(INodeNo(FIRST_TEXT + index as u64))
    }

    /// The name of a text file.
    pub fn text_name(&self, ino: INodeNo) -> Option<&'static str> {
        Some(self.text(ino)?.name)
    }

    /// Remembers how long the text just made is.
    pub fn set_text_len(&self, ino: INodeNo, len: u64) {
        if let Some(text) = self.text(ino) {
            text.len.store(len, Ordering::Relaxed);
        }
    }

    /// Everything in the directory, itself and its parent included.
    pub fn entries(&self) -> impl Iterator<Item = (INodeNo, FileType, &str)> {
        let fixed = [
            (ROOT, FileType::Directory, "."),
            (ROOT, FileType::Directory, ".."),
            (VOLUME, FileType::RegularFile, VOLUME_NAME),
        ];
        let texts = self.texts.iter().enumerate().map(|(index, text)| {
            (INodeNo(FIRST_TEXT + index as u64), FileType::RegularFile, text.name)
        });
        fixed.into_iter().chain(texts)
    }

    /// Attributes of a file or the directory.
    pub fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        if ino == VOLUME {
            let owner = self.owner.lock();
            return Some(FileAttr {
                perm: owner.mode,
                uid: owner.uid,
                gid: owner.gid,
                atime: owner.atime,
                mtime: owner.mtime,
                ctime: owner.ctime,
                ..self.plain(ino, self.size, VOLUME_BLOCK)
            });
        }
        if ino == ROOT {
            let plain = self.plain(ino, 0, TEXT_BLOCK);
            return Some(FileAttr { kind: FileType::Directory, perm: 0o555, nlink: 2, ..plain });
        }
        let text = self.text(ino)?;
        let now = SystemTime::now();
        let plain = self.plain(ino, text.len.load(Ordering::Relaxed), TEXT_BLOCK);
        Some(FileAttr { atime: now, mtime: now, ctime: now, ..plain })
    }

    /// Sets attributes of the volume.
    pub fn change(&self, change: &Change) {
        let now = SystemTime::now();
        let time = |time: &TimeOrNow| match time {
            TimeOrNow::SpecificTime(time) => *time,
            TimeOrNow::Now => now,
        };
        let mut owner = self.owner.lock();
        if let Some(mode) = change.mode {
            let allowed = if self.read_only { 0o555 } else { 0o777 };
            owner.mode = (mode & allowed) as u16;
        }
        owner.uid = change.uid.unwrap_or(owner.uid);
        owner.gid = change.gid.unwrap_or(owner.gid);
        owner.atime = change.atime.as_ref().map_or(owner.atime, time);
        owner.mtime = change.mtime.as_ref().map_or(owner.mtime, time);
        owner.ctime = now;
    }

    /// Notes that the volume was written.
    pub fn touch(&self) {
        let now = SystemTime::now();
        let mut owner = self.owner.lock();
        owner.mtime = now;
        owner.ctime = now;
    }

    fn text(&self, ino: INodeNo) -> Option<&Text> {
        self.texts.get(usize::try_from(ino.0.checked_sub(FIRST_TEXT)?).ok()?)
    }

    fn plain(&self, ino: INodeNo, size: u64, block: u32) -> FileAttr {
        FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: self.born,
            mtime: self.born,
            ctime: self.born,
            crtime: self.born,
            kind: FileType::RegularFile,
            perm: 0o444,
            nlink: 1,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: block,
            flags: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found_by_its_name_and_has_attributes() {
        let texts = [("mdstat", "abc".to_string()), ("map", String::new())];
        let tree = Tree::new(1000, false, &texts);
        let names: Vec<_> = tree.entries().map(|entry| entry.2).collect();
        assert_eq!(names, [".", "..", "volume", "mdstat", "map"]);
        for (ino, kind, name) in tree.entries().skip(2) {
            assert_eq!(tree.lookup(OsStr::new(name)), Some(ino));
            let attributes = tree.attributes(ino).unwrap();
            assert_eq!((attributes.ino, attributes.kind), (ino, kind));
        }
        assert_eq!(tree.lookup(OsStr::new("other")), None);
        for ino in [0, 5, u64::MAX] {
            assert!(tree.attributes(INodeNo(ino)).is_none());
        }
    }

    #[test]
    fn a_read_only_volume_gets_no_write_permission() {
        let tree = Tree::new(1000, true, &[]);
        assert_eq!(tree.attributes(VOLUME).unwrap().perm, 0o444);
        tree.change(&Change { mode: Some(0o100666), uid: Some(5), ..Change::default() });
        let attributes = tree.attributes(VOLUME).unwrap();
        assert_eq!((attributes.perm, attributes.uid, attributes.size), (0o444, 5, 1000));
    }
}
