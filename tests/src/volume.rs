//! A volume in memory that counts what it is asked and can be told to fail.

use raid_core::device::Lent;
use raid_core::error::{Error, ErrorKind, Result};
use raid_fuse::export::{Text, Volume};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};

/// Bytes in memory behind the front-end contract.
pub struct Memory {
    size: u64,
    read_only: bool,
    bytes: RwLock<Vec<u8>>,
    /// Sizes of all reads, in the order they came.
    pub reads: Mutex<Vec<usize>>,
    /// Sizes of all writes, in the order they came.
    pub writes: Mutex<Vec<usize>>,
    /// Number of flushes.
    pub flushes: AtomicU64,
    /// Requests that touch this range fail.
    pub bad: Mutex<Range<u64>>,
    /// Reads and writes panic, as if there were a bug.
    pub buggy: AtomicBool,
    /// Large reads are lent in pieces of this many bytes, if any.
    pub lends: AtomicUsize,
    /// What is lent is not there when the kernel comes.
    pub vanishes: AtomicBool,
    /// How often the text files were made.
    pub texts_made: AtomicU64,
    /// What the writable texts `md/dev-NAME/state` say; `remove` takes one away.
    pub words: Mutex<BTreeMap<String, String>>,
}

impl Memory {
    /// A volume whose byte at `at` is [`pattern`]`(at)`.
    pub fn new(size: u64) -> Memory {
        let bytes = (0..size).map(pattern).collect();
        Memory {
            size,
            read_only: false,
            bytes: RwLock::new(bytes),
            reads: Mutex::default(),
            writes: Mutex::default(),
            flushes: AtomicU64::new(0),
            bad: Mutex::new(0..0),
            buggy: AtomicBool::new(false),
            lends: AtomicUsize::new(0),
            vanishes: AtomicBool::new(false),
            texts_made: AtomicU64::new(0),
            words: Mutex::new([("a".into(), "one".into()), ("b".into(), "two".into())].into()),
        }
    }

    /// The same, but answering EROFS to writes.
    pub fn read_only(size: u64) -> Memory {
        Memory { read_only: true, ..Memory::new(size) }
    }

    /// A copy of the content.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.read().unwrap().clone()
    }

    fn check(&self, at: u64, len: usize) -> Result<()> {
        let end = at + len as u64;
        assert!(end <= self.size, "{at}+{len} is inside the volume of {}", self.size);
        assert!(!self.buggy.load(Ordering::SeqCst), "this volume was told to have a bug");
        let bad = self.bad.lock().unwrap().clone();
        if at < bad.end && bad.start < end {
            return Err(Error::new(ErrorKind::Io, "told to fail"));
        }
        Ok(())
    }
}

impl Volume for Memory {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.lock().unwrap().push(buf.len());
        // Half of a failed read is there already, as on a degraded array.
        let half = buf.len() / 2;
        let bytes = self.bytes.read().unwrap();
        buf[..half].copy_from_slice(&bytes[at as usize..][..half]);
        self.check(at, buf.len())?;
        buf.copy_from_slice(&bytes[at as usize..][..buf.len()]);
        Ok(())
    }

    fn lend(&self, at: u64, len: usize, give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        let piece = self.lends.load(Ordering::SeqCst);
        if piece == 0 || self.check(at, len).is_err() {
            return false;
        }
        let bytes = self.bytes.read().unwrap();
        let vanishes = self.vanishes.load(Ordering::SeqCst);
        let place = |piece: &[u8]| {
            let base = if vanishes { 16 as *const u8 } else { piece.as_ptr() };
            Lent { base: base.cast_mut().cast(), len: piece.len() }
        };
        let places: Vec<Lent> = bytes[at as usize..][..len].chunks(piece).map(place).collect();
        give(&places)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        assert!(!self.read_only, "no write reaches a read-only volume");
        self.writes.lock().unwrap().push(data.len());
        self.check(at, data.len())?;
        self.bytes.write().unwrap()[at as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, Ordering::SeqCst);
        if self.bad.lock().unwrap().is_empty() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Io, "told to fail"))
    }

    fn texts(&self) -> Vec<Text> {
        let made = self.texts_made.fetch_add(1, Ordering::SeqCst) + 1;
        let words = self.words.lock().unwrap().clone();
        let mut texts = vec![
            Text::fixed("mdstat", format!("memory, made {made} times\n")),
            Text::fixed("map", "map\n".repeat(5000)),
            Text::fixed("md/level", "memory\n"),
            Text::link("md/first", "dev-a"),
        ];
        let names = words.iter().map(|(name, word)| (format!("md/dev-{name}/state"), word));
        texts.extend(names.map(|(path, word)| Text::writable(path, format!("{word}\n"))));
        texts
    }

    fn write_text(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let name = path.split('/').nth(1).and_then(|name| name.strip_prefix("dev-"));
        let name = name.expect("only states are writable").to_string();
        let mut words = self.words.lock().unwrap();
        match bytes {
            b"remove\n" => drop(words.remove(&name)),
            b"busy\n" => return Err(Error::new(ErrorKind::Busy, "told to be busy")),
            b"bogus\n" => return Err(Error::invalid("bogus")),
            _ => {
                let word = String::from_utf8_lossy(bytes);
                words.insert(name, word.trim_end_matches('\n').to_string());
            }
        }
        Ok(())
    }
}

/// The byte a fresh volume has at `at`: never zero, and different at every power of two distance.
pub fn pattern(at: u64) -> u8 {
    let mixed = (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
    mixed as u8 | 1
}
