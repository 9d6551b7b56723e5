//! A volume as files: the thin skin between the kernel's FUSE requests and [`Volume`].
//!
//! Each session thread takes a request, calls the volume, replies; nothing is handed to other
//! threads and nothing is cached here. Promises:
//!
//! - A read answers every byte asked for that lies inside the volume, or fails. Past the end it
//!   answers zero bytes. It is never short for another reason, because the kernel would pad it.
//! - Like a block device, the volume never grows or shrinks: a write across the end is cut there,
//!   one behind it is ENOSPC. Truncation is in [`super::truncation`].
//! - fsync, a write through O_SYNC or O_DSYNC, and the close after writing return when the data is
//!   durable, or with the error.
//! - A request that panics answers EIO, closes the gate and ends the mount.

use super::Volume;
use super::gate::Gate;
use super::options::{Cache, Options};
use super::tree::{Change, ROOT, Tree, VOLUME};
use super::truncation::{Truncations, Truncator};
use crate::errno;
use fuser::*;
use parking_lot::Mutex;
use raid_core::buf::Buf;
use raid_core::error::{Error, ErrorKind, Result};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// Largest read or write the kernel is asked to send, in bytes: its own limit without tuning
/// (`fs.fuse.max_pages_limit` = 256 pages). With 128 KiB, throughput is 0.65 to 0.8 of this.
pub const REQUEST_MAX: u32 = 1 << 20;

/// How long the kernel may keep what does not change. The kernel forgets the volume's times by
/// itself when it writes.
const FOREVER: Duration = Duration::from_secs(3600);

/// Set in handles that were opened for writing; the rest of a handle is a running number.
const WRITABLE: u64 = 1;

/// Failed requests that are all logged; after these only every power of two is.
const COMPLAINTS: u64 = 16;

thread_local! {
    /// What this session thread reads into: faulted in once, replied from directly.
    static BUFFER: RefCell<Option<Buf>> = const { RefCell::new(None) };
}

/// The file system of one mount.
pub struct Front {
    volume: Arc<dyn Volume>,
    size: u64,
    read_only: bool,
    cache: Cache,
    max_background: u16,
    tree: Tree,
    gate: Arc<Gate>,
    /// Called once when a request panics.
    on_failure: Box<dyn Fn() + Send + Sync>,
    next_handle: AtomicU64,
    /// The text each open handle shows, made when it was opened.
    texts: Mutex<HashMap<u64, Arc<String>>>,
    truncations: Truncations,
    /// True if something was written that no flush has covered yet.
    written: AtomicBool,
    complaints: AtomicU64,
}

impl Front {
    /// The file system for `volume`, whose requests pass `gate`.
    pub fn new(
        volume: Arc<dyn Volume>,
        gate: Arc<Gate>,
        options: &Options,
        on_failure: Box<dyn Fn() + Send + Sync>,
    ) -> Front {
        let (size, read_only) = (volume.size(), volume.read_only());
        Front {
            tree: Tree::new(size, read_only, &volume.texts()),
            volume,
            size,
            read_only,
            cache: options.cache,
            max_background: options.max_background,
            gate,
            on_failure,
            next_handle: AtomicU64::new(1),
            texts: Mutex::default(),
            truncations: Truncations::new(options.cache != Cache::None),
            written: AtomicBool::new(false),
            complaints: AtomicU64::new(0),
        }
    }

    /// Runs `work` on the volume behind the gate and turns what goes wrong into an errno.
    fn ask<T>(
        &self,
        what: impl FnOnce() -> String,
        work: impl FnOnce() -> Result<T>,
    ) -> std::result::Result<T, Errno> {
        let Some(inside) = self.gate.enter() else { return Err(Errno::ENOTCONN) };
        let answer = catch_unwind(AssertUnwindSafe(work));
        drop(inside);
        match answer {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                self.complain(what, &error);
                Err(Errno::from_i32(errno::of(&error)))
            }
            Err(panic) => {
                let message = format!("{}: {}", what(), panic_text(&*panic));
                eprintln!("raid-fuse: bug, the mount stops: {message}");
                self.gate.fail(message);
                (self.on_failure)();
                Err(Errno::EIO)
            }
        }
    }

    /// One line on stderr for a failed request, but not a flood of them.
    fn complain(&self, what: impl FnOnce() -> String, error: &Error) {
        if matches!(error.kind, ErrorKind::Invalid | ErrorKind::ReadOnly) {
            return; // The caller's mistake; it has the errno.
        }
        let count = self.complaints.fetch_add(1, Ordering::Relaxed) + 1;
        if count <= COMPLAINTS || count.is_power_of_two() {
            eprintln!("raid-fuse: {} failed ({count} so far): {error}", what());
        }
    }

    fn read_volume(&self, at: u64, size: u32, reply: ReplyData) {
        let end = at.saturating_add(u64::from(size)).min(self.size);
        if at >= end {
            return reply.data(&[]);
        }
        let len = (end - at) as usize;
        BUFFER.with_borrow_mut(|slot| {
            let buf = match slot {
                Some(buf) if buf.len() >= len => buf,
                _ => slot.insert(self.zeroed(len.max(REQUEST_MAX as usize))),
            };
            let what = || format!("read of {len} bytes at {at}");
            match self.ask(what, || self.volume.read(at, &mut buf[..len])) {
                Ok(()) => reply.data(&buf[..len]),
                Err(errno) => reply.error(errno),
            }
        });
    }

    /// A buffer with its pages faulted in, so that no request pays for that.
    fn zeroed(&self, len: usize) -> Buf {
        let mut buf = self.volume.buffer(len);
        buf.fill(0);
        buf
    }

    /// Writes what lies inside the volume; answers how many bytes that was.
    fn write_volume(&self, handle: u64, at: u64, data: &[u8], durable: bool) -> Result<u32> {
        if self.read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "the volume is read-only"));
        }
        let len = (self.size - at).min(data.len() as u64);
        self.truncations.before_write(&*self.volume, handle, at, len)?;
        let written = self.volume.write(at, &data[..len as usize]);
        // Also after a failure: part of it may have reached the members.
        if !self.written.swap(true, Ordering::AcqRel) {
            self.tree.touch();
        }
        written?;
        if durable {
            self.flush_volume()?;
        }
        Ok(len as u32)
    }

    fn flush_volume(&self) -> Result<()> {
        // Cleared before: what is written during the flush needs the next one.
        self.written.store(false, Ordering::Release);
        self.volume.flush().inspect_err(|_| self.written.store(true, Ordering::Release))
    }

    fn fsync_reply(&self, reply: ReplyEmpty) {
        match self.ask(|| "flush".into(), || self.flush_volume()) {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn open_volume(&self, thread: u32, flags: OpenFlags, reply: ReplyOpen) {
        let writable = flags.acc_mode() != OpenAccMode::O_RDONLY;
        if writable && self.read_only {
            return reply.error(Errno::EROFS);
        }
        let opened = match self.cache {
            Cache::None => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            Cache::Read | Cache::Writeback => FopenFlags::FOPEN_KEEP_CACHE,
        };
        if writable {
            let handle = self.handle() | WRITABLE;
            self.truncations.opened(thread, handle);
            reply.opened(FileHandle(handle), opened);
        } else {
            reply.opened(FileHandle(self.handle()), opened | FopenFlags::FOPEN_NOFLUSH);
        }
    }

    fn open_text(&self, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let Some(name) = self.tree.text_name(ino) else { return reply.error(Errno::ENOENT) };
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EACCES);
        }
        let texts = self.ask(|| format!("making {name}"), || Ok(self.volume.texts()));
        let text = match texts {
            Ok(texts) => texts.into_iter().find(|text| text.0 == name).unwrap_or_default().1,
            Err(errno) => return reply.error(errno),
        };
        self.tree.set_text_len(ino, text.len() as u64);
        let handle = self.handle();
        self.texts.lock().insert(handle, Arc::new(text));
        let opened = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
        reply.opened(FileHandle(handle), opened);
    }

    fn read_text(&self, handle: u64, at: u64, size: u32, reply: ReplyData) {
        let text = self.texts.lock().get(&handle).cloned();
        let Some(text) = text else { return reply.error(Errno::EBADF) };
        let start = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
        let end = start.saturating_add(size as usize).min(text.len());
        reply.data(&text.as_bytes()[start..end]);
    }

    fn handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed) << 1
    }

    fn attr_ttl(ino: INodeNo) -> Duration {
        if ino == VOLUME || ino == ROOT { FOREVER } else { Duration::ZERO }
    }
}

impl Filesystem for Front {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        let mut wanted = vec![
            // Without it, requests of one file at depth 32 run at half the speed.
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // Shared mmap of a direct file; older kernels answer ENODEV to that mmap instead.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        if self.cache == Cache::Writeback {
            wanted.push(InitFlags::FUSE_WRITEBACK_CACHE);
        }
        for capability in wanted {
            // Each only makes things faster or wider; a kernel without it serves as well.
            let _not_offered = config.add_capabilities(capability);
        }
        let in_range = "the constants are inside what fuser takes";
        config.set_max_write(REQUEST_MAX).expect(in_range);
        config.set_max_background(self.max_background.max(1)).expect(in_range);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree.lookup(name).filter(|_| parent == ROOT);
        match found.and_then(|ino| self.tree.attributes(ino)) {
            Some(attributes) => {
                let ttl = Front::attr_ttl(attributes.ino);
                reply.entry(&ttl, &attributes, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.tree.attributes(ino) {
            Some(attributes) => reply.attr(&Front::attr_ttl(ino), &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if ino != VOLUME {
            return reply.error(Errno::EPERM);
        }
        if self.read_only {
            return reply.error(Errno::EROFS);
        }
        if let Some(size) = size {
            let who = Truncator { handle: handle.map(|handle| handle.0), thread: request.pid() };
            let what = || format!("truncation to {size}");
            let work = || self.truncations.truncate(&*self.volume, who, size);
            if let Err(errno) = self.ask(what, work) {
                return reply.error(errno);
            }
        }
        self.tree.change(&Change { mode, uid, gid, atime, mtime });
        self.getattr(request, ino, None, reply);
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match ino {
            VOLUME => self.open_volume(request.pid(), flags, reply),
            _ => self.open_text(ino, flags, reply),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        at: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match ino {
            VOLUME => self.read_volume(at, size, reply),
            _ => self.read_text(handle.0, at, size, reply),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        at: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino != VOLUME {
            return reply.error(Errno::EBADF);
        }
        if at >= self.size && !data.is_empty() {
            return reply.error(Errno::ENOSPC);
        }
        // O_SYNC contains O_DSYNC; the kernel passes RWF_DSYNC of one write the same way.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let what = || format!("write of {} bytes at {at}", data.len());
        match self.ask(what, || self.write_volume(handle.0, at, data, durable)) {
            // The page cache cannot be told of a short write: fail, so that fsync reports it.
            Ok(len)
                if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE)
                    && (len as usize) < data.len() =>
            {
                reply.error(Errno::ENOSPC)
            }
            Ok(len) => reply.written(len),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let dirty = handle.0 & WRITABLE != 0 && self.written.load(Ordering::Acquire);
        if dirty { self.fsync_reply(reply) } else { reply.ok() }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        if handle.0 & WRITABLE != 0 {
            self.truncations.forget(handle.0);
        } else {
            self.texts.lock().remove(&handle.0);
        }
        reply.ok();
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        if ino == VOLUME { self.fsync_reply(reply) } else { reply.ok() }
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.fsync_reply(reply);
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if ino != ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (ino, kind, name)) in self.tree.entries().enumerate().skip(skip) {
            if reply.add(ino, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = self.tree.entries().count() as u64 - 1;
        reply.statfs(self.size.div_ceil(4096), 0, 0, files, 0, 4096, 255, 4096);
    }

    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        at: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.size);
        match mode & !libc::FALLOC_FL_KEEP_SIZE {
            // Every byte of the volume has its place already.
            0 if ino == VOLUME && inside => reply.ok(),
            0 if ino == VOLUME => reply.error(Errno::ENOSPC),
            // Holes, zero ranges: callers fall back to writing zeros, and discards are skipped.
            _ => reply.error(Errno::EOPNOTSUPP),
        }
    }

    // The directory has a fixed content: making, removing and renaming is refused, not unknown.

    fn mknod(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn symlink(&self, _: &Request, _: INodeNo, _: &OsStr, _: &Path, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::EPERM);
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("panic")
}
