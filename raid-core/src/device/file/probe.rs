//! What a path is, whether it can be a member, and what its descriptor demands.

use super::lock::{self, Hold};
use super::storage::{self, Storage};
use super::{Alignment, Direct, OpenOptions};
use crate::buf::{ALIGN, Pool};
use crate::error::{Error, ErrorKind, Result};
use crate::units::{SECTOR, Sectors};
use std::fs::{File, Metadata};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// What was found at a path.
pub(super) struct Found {
    pub(super) sectors: Sectors,
    pub(super) identity: Storage,
    pub(super) block_device: bool,
    /// The file or block device itself, not looked into.
    plain: Storage,
}

/// What is at `path` (see [`super::Facts::identity`]), without opening it: to find a member that
/// was given twice before its lock is in the way.
pub fn identity_of(path: &Path) -> Result<Storage> {
    let meta = std::fs::metadata(path).map_err(|e| cannot_open(path, e, true))?;
    Ok(storage::follow(&meta).storage)
}

/// Opens `path` through the page cache, locked as `options` say.
pub(super) fn open_locked(path: &Path, options: &OpenOptions) -> Result<(File, Hold, Found)> {
    let before = std::fs::metadata(path).map_err(|e| cannot_open(path, e, options.read_only))?;
    check_type(path, &before)?;
    let exclusive = before.file_type().is_block_device() && !options.read_only && options.lock;
    let flags = if exclusive { libc::O_EXCL } else { 0 };
    let mut file = open_file(path, options, flags)?;
    let meta = file.metadata().map_err(|e| Error::io(path.display(), e))?;
    check_type(path, &meta)?;
    let bottom = storage::follow(&meta);
    let hold = match options.lock {
        true => lock::hold(path, &file, &meta, &bottom, options.read_only)?,
        false => Hold::default(),
    };
    let bytes = file.seek(SeekFrom::End(0)).map_err(|_| no_length(path))?;
    let sectors = Sectors::floor_bytes(bytes);
    if sectors.is_empty() {
        return Err(Error::invalid(format!(
            "{}: holds {bytes} bytes, a member needs at least one sector of {SECTOR}",
            path.display()
        )));
    }
    let (identity, plain) = (bottom.storage, Storage::plain(&meta));
    let block_device = meta.file_type().is_block_device();
    Ok((file, hold, Found { sectors, identity, block_device, plain }))
}

/// Some files of /proc and /sys look like regular ones.
fn no_length(path: &Path) -> Error {
    let name = path.display();
    Error::invalid(format!("{name}: has no length; a member is a file of bytes or a block device"))
}

/// Opens the same file again, through the page cache and without a lock of its own.
pub(super) fn open_again(path: &Path, found: &Found, options: &OpenOptions) -> Result<File> {
    let file = open_file(path, options, 0)?;
    let meta = file.metadata().map_err(|e| Error::io(path.display(), e))?;
    if Storage::plain(&meta) != found.plain {
        let text = format!("{}: was replaced while it was being opened; try again", path.display());
        return Err(Error::new(ErrorKind::Busy, text));
    }
    Ok(file)
}

/// A reader leaves not even its access time behind, where the file is ours to keep it from.
fn open_file(path: &Path, options: &OpenOptions, flags: i32) -> Result<File> {
    let open = |flags| {
        std::fs::OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .custom_flags(flags)
            .open(path)
    };
    let opened = match options.read_only {
        true => open(flags | libc::O_NOATIME).or_else(|error| match error.raw_os_error() {
            Some(libc::EPERM) => open(flags),
            _ => Err(error),
        }),
        false => open(flags),
    };
    opened.map_err(|e| cannot_open(path, e, options.read_only))
}

fn check_type(path: &Path, meta: &Metadata) -> Result<()> {
    let kind = meta.file_type();
    let found = match () {
        () if kind.is_file() || kind.is_block_device() => return Ok(()),
        () if kind.is_dir() => "a directory",
        () if kind.is_char_device() => "a character device",
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "something else",
    };
    let text = format!("{}: is {found}; a member is a file or a block device", path.display());
    Err(Error::invalid(text))
}

pub(super) fn cannot_open(path: &Path, error: io::Error, read_only: bool) -> Error {
    let name = path.display();
    let for_what = if read_only { "read" } else { "write" };
    let (kind, advice) = match error.raw_os_error() {
        Some(libc::ENOENT) => (ErrorKind::Invalid, "check the name".into()),
        Some(libc::EACCES | libc::EPERM) => {
            (ErrorKind::Refused, format!("ask its owner for the right to {for_what} it"))
        }
        Some(libc::EROFS) => (ErrorKind::ReadOnly, "open it read-only".to_string()),
        Some(libc::EBUSY | libc::ETXTBSY) => (
            ErrorKind::Busy,
            format!("it is mounted or part of something that runs (see lsblk {name}); stop that"),
        ),
        Some(libc::ENXIO | libc::ENOMEDIUM) => (ErrorKind::Io, "no disk is there".to_string()),
        _ => (ErrorKind::Io, "see the kernel's log (dmesg)".to_string()),
    };
    let mut told = Error::io(format!("{name}: cannot open to {for_what}; {advice}"), error);
    told.kind = kind;
    told
}

/// Makes `file` direct if that is wanted and possible; says what it then demands.
pub(super) fn make_direct(
    file: &File,
    found: &Found,
    wanted: Direct,
) -> io::Result<Option<Alignment>> {
    if wanted == Direct::Off || (wanted == Direct::Auto && is_memory(file, found)) {
        return Ok(None);
    }
    let told = if found.block_device { None } else { told_alignment(file) };
    if told == Some(None) && wanted == Direct::Auto {
        return Ok(None);
    }
    if set_direct(file, true).is_err() {
        return Ok(None);
    }
    let alignment = match (told.flatten(), block_size(file, found)) {
        (Some(told), _) => Some(told),
        (None, Some(block)) => Some(Alignment { memory: block, offset: block }),
        (None, None) => tried_alignment(file),
    };
    let usable = alignment.filter(|a| a.offset <= ALIGN && a.memory <= ALIGN && works(file, *a));
    if usable.is_none() {
        set_direct(file, false)?;
    }
    Ok(usable)
}

fn set_direct(file: &File, on: bool) -> io::Result<()> {
    // SAFETY: no memory is passed.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    let flags = if on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: no memory is passed.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// True for a file on tmpfs: there O_DIRECT is accepted since Linux 6.6 but only pretended. A
/// block device is not meant, though its node lies on devtmpfs, which says it is tmpfs.
fn is_memory(file: &File, found: &Found) -> bool {
    if found.block_device {
        return false;
    }
    // SAFETY: statfs is plain numbers, for which zero is a value.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `told` is a statfs to be filled.
    let done = unsafe { libc::fstatfs(file.as_raw_fd(), &mut told) };
    done == 0 && told.f_type as u64 == libc::TMPFS_MAGIC as u64
}

/// What statx says (Linux 6.1 and later): nothing, or that there is no O_DIRECT, or alignments.
fn told_alignment(file: &File) -> Option<Option<Alignment>> {
    // SAFETY: statx is plain numbers, for which zero is a value.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    let (flags, mask) = (libc::AT_EMPTY_PATH, libc::STATX_DIOALIGN);
    // SAFETY: the path is an empty C string, `told` is a statx to be filled.
    let done = unsafe { libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, mask, &mut told) };
    if done != 0 || told.stx_mask & libc::STATX_DIOALIGN == 0 {
        return None;
    }
    let (memory, offset) = (told.stx_dio_mem_align as usize, told.stx_dio_offset_align as usize);
    let sane = memory.is_power_of_two() && offset.is_power_of_two();
    Some(sane.then_some(Alignment { memory, offset }))
}

/// The logical block size of a block device.
fn block_size(file: &File, found: &Found) -> Option<usize> {
    if !found.block_device {
        return None;
    }
    let mut size: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes an int to the pointer.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &mut size) };
    let size = usize::try_from(size).ok()?;
    (done == 0 && size.is_power_of_two()).then_some(size)
}

/// The smallest alignment with which a read succeeds.
fn tried_alignment(file: &File) -> Option<Alignment> {
    let sector = SECTOR as usize;
    [(sector, sector), (ALIGN, sector), (ALIGN, ALIGN)]
        .map(|(memory, offset)| Alignment { memory, offset })
        .into_iter()
        .find(|a| works(file, *a))
}

/// Whether a read at the second block, with memory aligned as `alignment` says and no better,
/// succeeds. The end of the file counts as success.
fn works(file: &File, alignment: Alignment) -> bool {
    let Alignment { memory, offset } = alignment;
    let mut buf = Pool::new(0).take(2 * ALIGN);
    let piece = &mut buf[memory % ALIGN..][..offset];
    // SAFETY: `piece` is valid for writes of its length.
    let moved = unsafe {
        let start = piece.as_mut_ptr().cast();
        libc::pread64(file.as_raw_fd(), start, piece.len(), offset as libc::off64_t)
    };
    moved >= 0
}

/// Whether transfers on a direct descriptor complete without blocking: the kernel says so by
/// knowing RWF_NOWAIT, which a ring needs to avoid its helper threads.
pub(super) fn completes_alone(file: &File, found: &Found) -> bool {
    if is_memory(file, found) {
        return false;
    }
    let len = ALIGN.min(found.sectors.len() / ALIGN * ALIGN);
    let mut buf = Pool::new(0).take(ALIGN);
    let iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: len };
    // SAFETY: `iov` names `len` bytes of `buf`, which outlives the call.
    let moved = unsafe { libc::preadv2(file.as_raw_fd(), &iov, 1, 0, libc::RWF_NOWAIT) };
    let error = io::Error::last_os_error().raw_os_error();
    moved >= 0 || error == Some(libc::EAGAIN)
}
