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

mod read;

use super::complaints::Complaints;
use super::connection::Connection;
use super::gate::Gate;
use super::options::{Cache, Options};
use super::texts::OpenTexts;
use super::tree::{Change, ROOT, Tree, VOLUME};
use super::truncation::{Truncations, Truncator};
use super::{Volume, panic_text};
use crate::errno;
use fuser::*;
use raid_core::error::{Error, ErrorKind, Result};
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
    texts: OpenTexts,
    truncations: Truncations,
    /// True if something was written that no flush has covered yet.
    written: AtomicBool,
    complaints: Complaints,
    /// For replies the library cannot send.
    connection: Option<Connection>,
}

impl Front {
    /// The file system for `volume`, whose requests pass `gate`.
    pub fn new(
        volume: Arc<dyn Volume>,
        gate: Arc<Gate>,
        options: &Options,
        on_failure: Box<dyn Fn() + Send + Sync>,
        connection: Option<Connection>,
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
            texts: OpenTexts::default(),
            truncations: Truncations::new(options.cache != Cache::None),
            written: AtomicBool::new(false),
            complaints: Complaints::default(),
            connection,
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
                self.complaints.hear(what, &error);
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
        if flags.acc_mode() != OpenAccMode::O_RDONLY && !self.tree.is_writable(ino) {
            return reply.error(Errno::EACCES);
        }
        match self.text(ino) {
            Ok(text) => {
                let handle = self.handle();
                self.texts.open(handle, text);
                let opened = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_NOFLUSH;
                reply.opened(FileHandle(handle), opened);
            }
            Err(errno) => reply.error(errno),
        }
    }

    /// What a text file says now.
    fn text(&self, ino: INodeNo) -> std::result::Result<String, Errno> {
        let path = self.tree.text_path(ino).ok_or(Errno::ENOENT)?;
        let texts = self.ask(|| format!("making {path}"), || Ok(self.volume.texts()))?;
        self.tree.refresh(&texts);
        let text = texts.into_iter().find(|text| text.path == path);
        text.map(|text| text.body).ok_or(Errno::ENOENT)
    }

    /// What is in a folder other than the mount point itself may have changed.
    fn look_into(&self, folder: INodeNo) -> std::result::Result<(), Errno> {
        if folder != ROOT {
            let texts = self.ask(|| "listing a folder".into(), || Ok(self.volume.texts()))?;
            self.tree.refresh(&texts);
        }
        Ok(())
    }

    /// A text is written all at once, from its beginning.
    fn write_text(&self, ino: INodeNo, at: u64, data: &[u8], reply: ReplyWrite) {
        let path = self.tree.text_path(ino).filter(|_| self.tree.is_writable(ino));
        let Some(path) = path else { return reply.error(Errno::EBADF) };
        if at != 0 {
            return reply.error(Errno::EINVAL);
        }
        match self.ask(|| format!("writing {path}"), || self.volume.write_text(&path, data)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(errno) => reply.error(errno),
        }
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
        if let Err(errno) = self.look_into(parent) {
            return reply.error(errno);
        }
        match self.tree.lookup(parent, name).and_then(|ino| self.tree.attributes(ino)) {
            Some(attributes) => {
                let ttl = Front::attr_ttl(attributes.ino);
                reply.entry(&ttl, &attributes, Generation(0));
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.text(ino) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(errno) => reply.error(errno),
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
        // `>` truncates before it writes: there is nothing to do for a text.
        if size.is_some() && self.tree.is_writable(ino) {
            return self.getattr(request, ino, None, reply);
        }
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
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        at: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match ino {
            VOLUME => self.read_volume(request.unique(), at, size, reply),
            _ => self.texts.read(handle.0, at, size, reply),
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
            return self.write_text(ino, at, data, reply);
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
            self.texts.close(handle.0);
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
        if let (0, Err(errno)) = (offset, self.look_into(ino)) {
            return reply.error(errno);
        }
        let Some(entries) = self.tree.entries(ino) else { return reply.error(Errno::ENOTDIR) };
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (ino, kind, name)) in entries.into_iter().enumerate().skip(skip) {
            if reply.add(ino, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let files = self.tree.entries(ROOT).map_or(0, |entries| entries.len() as u64 - 1);
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
