//! The directory that is mounted: its files, their numbers and attributes. Memory only.
//!
//! Nothing here asks the volume, so `ls`, `stat` and `df` of the mount answer at once whatever the
//! members do. Names beside the volume are taken once, when the mount starts; what is in folders
//! is as of the last [`Tree::refresh`]. A path keeps its number as long as the mount lives.

use super::{Kind, Text};
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
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

/// What is at a path below the mount point.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Node {
    Folder,
    /// A text and its length when it was last made.
    Text(Kind, u64),
}

/// All texts and their folders.
#[derive(Default)]
struct Texts {
    /// Every path that ever was, by number from [`FIRST_TEXT`] on.
    paths: Vec<String>,
    numbers: HashMap<String, u64>,
    /// What is there now.
    present: BTreeMap<String, Node>,
}

impl Texts {
    fn refresh(&mut self, texts: &[Text]) {
        self.present.clear();
        for text in texts {
            for (at, _) in text.path.match_indices('/') {
                self.put(&text.path[..at], Node::Folder);
            }
            self.put(&text.path, Node::Text(text.kind, text.body.len() as u64));
        }
    }

    fn put(&mut self, path: &str, node: Node) {
        if self.present.insert(path.to_string(), node).is_none() {
            self.number(path);
        }
    }

    fn number(&mut self, path: &str) -> INodeNo {
        let next = FIRST_TEXT + self.paths.len() as u64;
        let number = *self.numbers.entry(path.to_string()).or_insert(next);
        if number == next {
            self.paths.push(path.to_string());
        }
        INodeNo(number)
    }

    fn path(&self, ino: INodeNo) -> Option<&str> {
        let index = usize::try_from(ino.0.checked_sub(FIRST_TEXT)?).ok()?;
        self.paths.get(index).map(String::as_str)
    }

    fn node(&self, ino: INodeNo) -> Option<(&str, Node)> {
        let path = self.path(ino)?;
        Some((path, *self.present.get(path)?))
    }

    /// What is directly in the folder at `path`.
    fn inside(&self, path: &str) -> Vec<(INodeNo, FileType, String)> {
        let before = if path.is_empty() { String::new() } else { format!("{path}/") };
        let below = self.present.range(before.clone()..);
        let below = below.take_while(|(path, _)| path.starts_with(&before));
        let found = below.filter_map(|(path, node)| {
            let name = &path[before.len()..];
            let direct = !name.is_empty() && !name.contains('/');
            direct.then(|| (INodeNo(self.numbers[path]), node.file_type(), name.to_string()))
        });
        found.collect()
    }
}

impl Node {
    fn file_type(self) -> FileType {
        match self {
            Node::Folder => FileType::Directory,
            Node::Text(Kind::Link, _) => FileType::Symlink,
            Node::Text(Kind::Fixed | Kind::Writable, _) => FileType::RegularFile,
        }
    }

    fn permissions(self) -> u16 {
        match self {
            Node::Folder => 0o555,
            Node::Text(Kind::Fixed, _) => 0o444,
            Node::Text(Kind::Writable, _) => 0o644,
            Node::Text(Kind::Link, _) => 0o777,
        }
    }
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
    texts: Mutex<Texts>,
    owner: Mutex<Owner>,
}

impl Tree {
    /// A directory with a volume of `size` bytes and these texts, owned by this process.
    pub fn new(size: u64, read_only: bool, texts: &[Text]) -> Tree {
        // SAFETY: these calls take nothing, cannot fail and touch no memory.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let born = SystemTime::now();
        let mode = if read_only { 0o444 } else { 0o644 };
        let owner = Owner { mode, uid, gid, atime: born, mtime: born, ctime: born };
        let (texts_now, owner) = (Mutex::default(), Mutex::new(owner));
        let tree = Tree { size, read_only, uid, gid, born, texts: texts_now, owner };
        tree.refresh(texts);
        tree
    }

    /// From now on, these texts are there.
    pub fn refresh(&self, texts: &[Text]) {
        self.texts.lock().refresh(texts);
    }

    /// The file called `name` in the folder `parent`.
    pub fn lookup(&self, parent: INodeNo, name: &OsStr) -> Option<INodeNo> {
        if parent == ROOT && name == VOLUME_NAME {
            return Some(VOLUME);
        }
        let (name, texts) = (name.to_str()?, self.texts.lock());
        let path = match parent {
            ROOT => name.to_string(),
            _ => format!("{}/{name}", texts.path(parent)?),
        };
        texts.present.get(&path)?;
        texts.numbers.get(&path).copied().map(INodeNo)
    }

    /// Where a text file is, if it is one and there.
    pub fn text_path(&self, ino: INodeNo) -> Option<String> {
        let texts = self.texts.lock();
        let (path, node) = texts.node(ino)?;
        (node != Node::Folder).then(|| path.to_string())
    }

    /// True if its owner may write to the text file.
    pub fn is_writable(&self, ino: INodeNo) -> bool {
        let node = self.texts.lock().node(ino).map(|(_, node)| node);
        matches!(node, Some(Node::Text(Kind::Writable, _)))
    }

    /// Everything in the folder `ino`, itself and its parent included; nothing if it is none.
    pub fn entries(&self, ino: INodeNo) -> Option<Vec<(INodeNo, FileType, String)>> {
        let texts = self.texts.lock();
        let path = match ino {
            ROOT => "",
            _ => texts.node(ino).filter(|(_, node)| *node == Node::Folder)?.0,
        };
        let parent = path.rsplit_once('/').and_then(|(parent, _)| texts.numbers.get(parent));
        let parent = parent.copied().map_or(ROOT, INodeNo);
        let folder = |ino, name: &str| (ino, FileType::Directory, name.to_string());
        let mut entries = vec![folder(ino, "."), folder(parent, "..")];
        if ino == ROOT {
            entries.push((VOLUME, FileType::RegularFile, VOLUME_NAME.to_string()));
        }
        entries.extend(texts.inside(path));
        Some(entries)
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
        let (_, node) = self.texts.lock().node(ino).map(|(path, node)| (path.len(), node))?;
        let now = SystemTime::now();
        let (len, links) = match node {
            Node::Folder => (0, 2),
            Node::Text(_, len) => (len, 1),
        };
        let times =
            FileAttr { atime: now, mtime: now, ctime: now, ..self.plain(ino, len, TEXT_BLOCK) };
        let (kind, perm) = (node.file_type(), node.permissions());
        Some(FileAttr { kind, perm, nlink: links, ..times })
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

    fn names(tree: &Tree, ino: INodeNo) -> Vec<String> {
        tree.entries(ino).unwrap().into_iter().map(|entry| entry.2).collect()
    }

    /// Looks at everything below `ino` by name and by number; answers how much there is.
    fn walk(tree: &Tree, ino: INodeNo) -> usize {
        let mut count = 0;
        for (inner, kind, name) in tree.entries(ino).unwrap().into_iter().skip(2) {
            assert_eq!(tree.lookup(ino, OsStr::new(&name)), Some(inner), "{name}");
            let attributes = tree.attributes(inner).unwrap();
            assert_eq!((attributes.ino, attributes.kind), (inner, kind), "{name}");
            count += 1;
            if kind == FileType::Directory {
                count += walk(tree, inner);
            }
        }
        count
    }

    #[test]
    fn every_entry_is_found_by_its_name_and_has_attributes() {
        let texts = [
            Text::fixed("mdstat", "abc"),
            Text::fixed("md/dev-a/slot", "0\n"),
            Text::writable("md/dev-a/state", "in_sync\n"),
            Text::link("md/rd0", "dev-a"),
            Text::fixed("md-not", ""),
        ];
        let tree = Tree::new(1000, false, &texts);
        assert_eq!(names(&tree, ROOT), [".", "..", "volume", "md", "md-not", "mdstat"]);
        assert_eq!(walk(&tree, ROOT), 8);
        let md = tree.lookup(ROOT, OsStr::new("md")).unwrap();
        let dev = tree.lookup(md, OsStr::new("dev-a")).unwrap();
        assert_eq!(tree.entries(dev).unwrap()[1].0, md);
        let state = tree.lookup(dev, OsStr::new("state")).unwrap();
        assert!(tree.is_writable(state) && !tree.is_writable(dev));
        assert_eq!(tree.attributes(state).unwrap().perm, 0o644);
        assert_eq!(tree.text_path(state).as_deref(), Some("md/dev-a/state"));
        for (parent, name) in [(ROOT, "other"), (md, "volume"), (dev, "rd0"), (ROOT, "md/rd0x")] {
            assert_eq!(tree.lookup(parent, OsStr::new(name)), None, "{name}");
        }
        for ino in [0, 500, u64::MAX] {
            assert!(
                tree.attributes(INodeNo(ino)).is_none() && tree.entries(INodeNo(ino)).is_none()
            );
        }
        assert!(tree.entries(state).is_none(), "a file is no folder");
    }

    #[test]
    fn what_goes_and_comes_again_keeps_its_number() {
        let before = [Text::fixed("md/dev-a/slot", "0\n"), Text::fixed("md/dev-b/slot", "1\n")];
        let tree = Tree::new(1000, false, &before);
        let md = tree.lookup(ROOT, OsStr::new("md")).unwrap();
        let a = tree.lookup(md, OsStr::new("dev-a")).unwrap();
        tree.refresh(&before[1..]);
        assert_eq!(tree.lookup(md, OsStr::new("dev-a")), None);
        assert!(tree.attributes(a).is_none());
        tree.refresh(&before);
        assert_eq!(tree.lookup(md, OsStr::new("dev-a")), Some(a));
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
