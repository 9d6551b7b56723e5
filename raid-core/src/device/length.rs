//! A file that must not become shorter while it is a member.
//!
//! A write past the end of a file makes it longer again, with a hole that reads as zeros where
//! data were: the array would go on as if nothing had happened. So every write first looks whether
//! the file is as long as it was when it was opened, also where the write itself ends before the
//! cut. A cut in the very moment of a write is then seen by the next one, of which there is always
//! one: what is written ends with a superblock that says so.

use std::io;
use std::os::fd::RawFd;

/// How long the file of a descriptor has to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Length {
    fd: RawFd,
    bytes: u64,
}

impl Length {
    /// At least `bytes` of the file open as `fd`, which must stay open as long as this is asked.
    pub(super) fn at_least(bytes: u64, fd: RawFd) -> Length {
        Length { fd, bytes }
    }

    /// One system call, which asks no server: 0.5 us, where a write of 4 KiB to the page cache
    /// takes 1.2 us and one to a disk 50.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file has become shorter; what the system call says.
    pub fn check(&self) -> io::Result<()> {
        let told = stat(self.fd, libc::STATX_SIZE)?;
        if told.stx_size >= self.bytes {
            return Ok(());
        }
        let text = format!("the file was cut short: {} of {} bytes", told.stx_size, self.bytes);
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, text))
    }
}

/// True if the file of `fd` has no name any more.
pub(super) fn is_deleted(fd: RawFd) -> bool {
    stat(fd, libc::STATX_NLINK).is_ok_and(|told| told.stx_nlink == 0)
}

/// What the kernel knows of the file, without asking a server for it.
fn stat(fd: RawFd, what: libc::c_uint) -> io::Result<libc::statx> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: statx is plain numbers, for which zero is a value.
    let mut told: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty C string, `told` is a statx to be filled.
    match unsafe { libc::statx(fd, c"".as_ptr(), flags, what, &mut told) } {
        0 => Ok(told),
        _ => Err(io::Error::last_os_error()),
    }
}
