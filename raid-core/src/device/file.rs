//! Regular files and block devices: one opener, five verbs, as few copies as the kernel allows.
//!
//! Where the member allows O_DIRECT the descriptor is direct: no second cache, and a write error
//! is reported on the write. Every request is taken, whatever its alignment:
//!
//! | offset and length | memory | goes |
//! |---|---|---|
//! | fit | fits | straight to the descriptor, one preadv or pwritev |
//! | fit | does not | through an aligned piece of memory, still direct |
//! | do not fit (512 bytes in 4096-byte blocks) | any | through a second, buffered descriptor |
//!
//! The kernel keeps the page cache and direct transfers of one inode coherent, except for one
//! race: a buffered write reads a whole page, and a direct write to another sector of that page
//! completes before the page goes back. Buffered writes therefore exclude the direct ones here. A
//! ring bypasses that lock, which is safe because it only sends whole blocks: it could lose only
//! where two requests in flight write the same sectors, and then either outcome is right.
//!
//! A writer holds an exclusive lock (flock, on block devices also O_EXCL) for as long as the
//! device lives, so that no second process writes the same member, under whatever name: a loop
//! device and the file behind it are one. Refused with words: directories, pipes, empty files,
//! missing files, files without permission, members in use. A file that becomes shorter fails
//! writes from then on (see [`Length`]).

mod cached;
mod lock;
mod probe;
mod storage;
#[cfg(test)]
mod tests;
pub(crate) mod transfer;

use super::bounds;
use super::length::{self, Length};
use super::{Device, DeviceKind, Facts, Lent, Opened};
use crate::buf::Pool;
use crate::error::{Error, ErrorKind, Result};
use crate::units::{SECTOR, Sectors};
use parking_lot::RwLock;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

pub use probe::identity_of;
pub use storage::Storage;

/// `file:PATH`.
pub const KIND: DeviceKind = DeviceKind {
    scheme: "file",
    summary: "a file or block device; a plain path is the same",
    usage: "file:PATH",
    filter: false,
    inner_read_only: false,
    open: |args, _, options| open(Path::new(args), options),
};

/// Whether to go around the page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direct {
    /// O_DIRECT where the member allows it and gains by it (not on tmpfs).
    #[default]
    Auto,
    /// O_DIRECT, or refuse to open.
    On,
    /// The page cache.
    Off,
}

impl FromStr for Direct {
    type Err = Error;
    fn from_str(text: &str) -> Result<Direct> {
        match text {
            "auto" => Ok(Direct::Auto),
            "on" => Ok(Direct::On),
            "off" => Ok(Direct::Off),
            _ => Err(Error::invalid(format!("direct: found `{text}`, expected auto, on or off"))),
        }
    }
}

/// How to open a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    /// Never write, and do not need the permission to.
    pub read_only: bool,
    /// Around the page cache or through it.
    pub direct: Direct,
    /// Keep other processes from writing (or, for a writer, from opening) the member meanwhile.
    /// Only a look at a member that may be in use goes without.
    pub lock: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions { read_only: false, direct: Direct::Auto, lock: true }
    }
}

impl OpenOptions {
    /// For reading, locked against writers.
    pub fn reading() -> OpenOptions {
        OpenOptions { read_only: true, ..OpenOptions::default() }
    }

    /// For a look at a member that somebody else may be using.
    pub fn looking() -> OpenOptions {
        OpenOptions { lock: false, ..OpenOptions::reading() }
    }
}

/// A regular file or block device as a member.
pub struct FileDevice {
    facts: Facts,
    file: File,
    alignment: Alignment,
    /// For requests whose offset or length does not fit `alignment`; absent where all fit.
    buffered: Option<File>,
    /// Held shared by direct writes and alone by buffered ones, where there are both.
    pages: RwLock<()>,
    bounce: Pool,
    block_device: bool,
    hold: lock::Hold,
    /// Made when first asked for; `None` inside where it cannot be.
    cached: OnceLock<Option<cached::Cached>>,
}

/// What a descriptor demands, in bytes; powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Alignment {
    memory: usize,
    offset: usize,
}

impl Alignment {
    /// Of the page cache: none.
    const NONE: Alignment = Alignment { memory: 1, offset: 1 };
}

/// How a request can go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Route {
    Straight,
    Bounced,
    Buffered,
}

/// Largest piece of memory a misaligned request is copied through; larger ones go in turns.
const BOUNCE: usize = 1 << 20;

/// Opens `path` as a member.
///
/// # Errors
/// `Invalid` for what cannot be a member, `Refused` without permission, `ReadOnly` for a writer
/// on a read-only file system, `Busy` for a member somebody holds, `Unsupported` where
/// [`Direct::On`] is not possible.
pub fn open(path: &Path, options: &OpenOptions) -> Opened {
    Ok(Arc::new(FileDevice::open(path, options)?))
}

impl FileDevice {
    /// As [`open`], with the type kept.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<FileDevice> {
        let name = path.display().to_string();
        let (file, hold, found) = probe::open_locked(path, options)?;
        let direct = probe::make_direct(&file, &found, options.direct)
            .map_err(|e| Error::io(format!("{name}: cannot set O_DIRECT"), e))?;
        if options.direct == Direct::On && direct.is_none() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!("{name}: O_DIRECT is not possible here; use --direct=auto or --direct=off"),
            ));
        }
        let alignment = direct.unwrap_or(Alignment::NONE);
        let needs_pages = alignment.offset > SECTOR as usize;
        let buffered = needs_pages.then(|| probe::open_again(path, &found, options)).transpose()?;
        let facts = Facts {
            fd: Some(file.as_raw_fd()),
            fd_align: alignment.memory.max(alignment.offset),
            fd_async: direct.is_some() && probe::completes_alone(&file, &found),
            length: length_of(&file, &hold, &found),
            identity: Some(found.identity),
            read_only: options.read_only,
            ..Facts::plain(name, found.sectors)
        };
        Ok(FileDevice {
            facts,
            file,
            alignment,
            buffered,
            pages: RwLock::new(()),
            bounce: Pool::new(0),
            block_device: found.block_device,
            hold,
            cached: OnceLock::new(),
        })
    }

    /// True if transfers go around the page cache.
    pub fn is_direct(&self) -> bool {
        self.alignment != Alignment::NONE
    }

    fn route<B: std::ops::Deref<Target = [u8]>>(&self, at: Sectors, bufs: &[B]) -> Route {
        let Alignment { memory, offset } = self.alignment;
        let total = bounds::total(bufs);
        if (at.bytes() | total) & (offset as u64 - 1) != 0 {
            return Route::Buffered;
        }
        let fits = bufs
            .iter()
            .filter(|b| !b.is_empty())
            .all(|b| b.as_ptr() as usize & (memory - 1) == 0 && b.len() & (offset - 1) == 0);
        if fits { Route::Straight } else { Route::Bounced }
    }

    fn read_bounced(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let total = bounds::total(bufs) as usize;
        let mut bounce = self.bounce.take(total.min(BOUNCE));
        let mut done = 0;
        let mut target = transfer::Scatter::new(bufs);
        while done < total {
            let now = (total - done).min(BOUNCE);
            let piece = &mut bounce[..now];
            transfer::read(&self.file, at + done as u64, &mut [IoSliceMut::new(piece)])?;
            target.put(piece);
            done += now;
        }
        Ok(())
    }

    fn write_bounced(&self, at: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let total = bounds::total(bufs) as usize;
        let mut bounce = self.bounce.take(total.min(BOUNCE));
        let mut done = 0;
        let mut source = transfer::Gather::new(bufs);
        while done < total {
            let now = (total - done).min(BOUNCE);
            let piece = &mut bounce[..now];
            source.take(piece);
            transfer::write(&self.file, at + done as u64, &[IoSlice::new(piece)])?;
            done += now;
        }
        Ok(())
    }

    /// The file behind a loop device, also if it was gone before the device was opened.
    fn is_deleted_behind(&self) -> bool {
        self.hold.is_nameless || {
            let behind = self.hold.behind.as_ref();
            behind.is_some_and(|file| length::is_deleted(file.as_raw_fd()))
        }
    }

    fn buffered(&self) -> &File {
        self.buffered.as_ref().expect("blocks larger than a sector have a buffered descriptor")
    }
}

impl Device for FileDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        bounds::check_read(&self.facts, at, bounds::total(bufs))?;
        match self.route(at, bufs) {
            Route::Straight => transfer::read(&self.file, at.bytes(), bufs),
            Route::Bounced => self.read_bounced(at.bytes(), bufs),
            Route::Buffered => transfer::read(self.buffered(), at.bytes(), bufs),
        }
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        bounds::check_write(&self.facts, at, bounds::total(bufs))?;
        if let Some(length) = &self.facts.length {
            length.check()?;
        }
        let route = self.route(at, bufs);
        if route == Route::Buffered {
            let _alone = self.pages.write();
            return transfer::write(self.buffered(), at.bytes(), bufs);
        }
        let _together = self.buffered.as_ref().map(|_| self.pages.read());
        match route {
            Route::Straight => transfer::write(&self.file, at.bytes(), bufs),
            _ => self.write_bounced(at.bytes(), bufs),
        }
    }

    /// One fdatasync: both descriptors are of one inode, whose dirty pages and disk cache it
    /// covers.
    fn flush(&self) -> io::Result<()> {
        if self.facts.read_only {
            return Ok(());
        }
        self.file.sync_data()
    }

    /// Frees the space where the file system or the disk can; elsewhere nothing happens, which
    /// the contract allows.
    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        bounds::check_discard(&self.facts, at, len)?;
        if len.is_empty() {
            return Ok(());
        }
        match transfer::punch(&self.file, at.bytes(), len.bytes(), self.block_device) {
            Err(e) if transfer::cannot(&e) => Ok(()),
            other => other,
        }
    }

    /// Of members in the page cache only. Of a file this process may not write, the kernel does
    /// not tell what is in memory.
    fn lend(&self, at: Sectors, len: usize) -> Option<Lent> {
        if self.is_direct() || self.facts.read_only {
            return None;
        }
        bounds::check_read(&self.facts, at, len as u64).ok()?;
        let map = || cached::Cached::new(&self.file, self.facts.sectors.bytes()).ok();
        let cached = self.cached.get_or_init(map).as_ref()?;
        // A large page of the cache outlives the part of the file it was for.
        let is_whole = self.facts.length.is_none_or(|length| length.check().is_ok());
        if is_whole { cached.find(at.bytes(), len) } else { None }
    }

    fn warning(&self) -> Option<String> {
        let deleted = match self.block_device {
            false => length::is_deleted(self.file.as_raw_fd()).then_some("the unmount"),
            true => self.is_deleted_behind().then_some("the loop device is detached"),
        };
        if let Some(until) = deleted {
            return Some(format!(
                "its file was deleted; what is written goes there until {until} and is lost then"
            ));
        }
        let error = self.facts.length?.check().err()?;
        Some(format!("{error}; what was behind that is lost"))
    }
}

/// A block device stays as long as it is, the file behind a loop device need not.
fn length_of(file: &File, hold: &lock::Hold, found: &probe::Found) -> Option<Length> {
    let bytes = found.sectors.bytes();
    if !found.block_device {
        return Some(Length::at_least(bytes, file.as_raw_fd()));
    }
    let behind = hold.behind.as_ref()?;
    let is_file = behind.metadata().is_ok_and(|meta| meta.is_file());
    let start = found.identity.range().0;
    is_file.then(|| Length::at_least(start.saturating_add(bytes), behind.as_raw_fd()))
}
