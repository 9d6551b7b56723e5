//! The system calls of a transfer: vectored, at an offset, until every byte has moved.

use crate::device::bounds;
use smallvec::SmallVec;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;

/// Most buffers one preadv or pwritev takes (Linux `UIO_MAXIOV`).
pub(crate) const IOV_MAX: usize = libc::UIO_MAXIOV as usize;

/// `BLKDISCARD` of linux/fs.h.
const BLKDISCARD: libc::Ioctl = libc::_IO(0x12, 119);

/// Fills `bufs` from byte `at` on; the end of the file is an error.
pub(crate) fn read(file: &File, mut at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
    let mut left = bufs;
    IoSliceMut::advance_slices(&mut left, 0);
    while !left.is_empty() {
        let count = left.len().min(IOV_MAX) as libc::c_int;
        let iov = left.as_mut_ptr().cast::<libc::iovec>();
        // SAFETY: IoSliceMut has the layout of iovec; the first `count` of them are valid, and
        // their memory is borrowed mutably for the whole call.
        let moved = unsafe { libc::preadv64(file.as_raw_fd(), iov, count, offset(at)?) };
        match moved {
            0 => return Err(short()),
            n if n > 0 => {
                at += n as u64;
                IoSliceMut::advance_slices(&mut left, n as usize);
            }
            _ => again_if_interrupted()?,
        }
    }
    Ok(())
}

/// Writes `bufs` from byte `at` on.
pub(crate) fn write(file: &File, mut at: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
    let mut moved = write_once(file, at, bufs)?;
    if moved == bounds::total(bufs) as usize {
        return Ok(());
    }
    let mut copy: SmallVec<[IoSlice<'_>; 16]> = bufs.iter().copied().collect();
    let mut left = &mut copy[..];
    loop {
        at += moved as u64;
        IoSlice::advance_slices(&mut left, moved);
        if left.is_empty() {
            return Ok(());
        }
        moved = write_once(file, at, left)?;
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
}

/// One pwritev of as many of `bufs` as it takes; says how many bytes moved.
fn write_once(file: &File, at: u64, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let count = bufs.len().min(IOV_MAX) as libc::c_int;
    let iov = bufs.as_ptr().cast::<libc::iovec>();
    loop {
        // SAFETY: IoSlice has the layout of iovec; the first `count` of them are valid, and their
        // memory is borrowed for the whole call.
        let moved = unsafe { libc::pwritev64(file.as_raw_fd(), iov, count, offset(at)?) };
        if moved >= 0 {
            return Ok(moved as usize);
        }
        again_if_interrupted()?;
    }
}

/// Gives the space of a range back to the file system, or to the disk.
pub(super) fn punch(file: &File, at: u64, len: u64, block_device: bool) -> io::Result<()> {
    let done = if block_device {
        let range = [at, len];
        // SAFETY: BLKDISCARD reads two 64-bit numbers from the pointer.
        unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) }
    } else {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: no memory is passed.
        unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset(at)?, offset(len)?) }
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// True for the errors that say "this file or disk has no such operation", or not at this
/// alignment, rather than "it failed".
pub(super) fn cannot(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::ENOTTY | libc::EINVAL | libc::ENOSYS | libc::EPERM)
    )
}

fn offset(at: u64) -> io::Result<libc::off64_t> {
    libc::off64_t::try_from(at).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

fn again_if_interrupted() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the file ends before the data does")
}

/// Fills a list of buffers piece by piece.
pub(in crate::device) struct Scatter<'a, 'b> {
    bufs: &'a mut [IoSliceMut<'b>],
    index: usize,
    at: usize,
}

impl<'a, 'b> Scatter<'a, 'b> {
    pub(in crate::device) fn new(bufs: &'a mut [IoSliceMut<'b>]) -> Scatter<'a, 'b> {
        Scatter { bufs, index: 0, at: 0 }
    }

    /// The next `piece.len()` bytes; there must be room.
    pub(in crate::device) fn put(&mut self, mut piece: &[u8]) {
        while !piece.is_empty() {
            let target = &mut self.bufs[self.index][self.at..];
            let now = target.len().min(piece.len());
            target[..now].copy_from_slice(&piece[..now]);
            piece = &piece[now..];
            self.at += now;
            if now == target.len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
    }
}

/// Reads a list of buffers piece by piece.
pub(super) struct Gather<'a, 'b> {
    bufs: &'a [IoSlice<'b>],
    index: usize,
    at: usize,
}

impl<'a, 'b> Gather<'a, 'b> {
    pub(super) fn new(bufs: &'a [IoSlice<'b>]) -> Gather<'a, 'b> {
        Gather { bufs, index: 0, at: 0 }
    }

    /// The next `piece.len()` bytes; there must be as many.
    pub(super) fn take(&mut self, mut piece: &mut [u8]) {
        while !piece.is_empty() {
            let source = &self.bufs[self.index][self.at..];
            let now = source.len().min(piece.len());
            piece[..now].copy_from_slice(&source[..now]);
            piece = &mut piece[now..];
            self.at += now;
            if now == source.len() {
                (self.index, self.at) = (self.index + 1, 0);
            }
        }
    }
}
