//! The page cache of a file as memory, to be handed to a system call without a copy.
//!
//! The file is mapped once, as a whole and for reading. Nobody in this process looks at the
//! mapping: a file that is cut short would kill the process with SIGBUS, while a system call only
//! fails. So addresses go out, never slices.

use crate::device::Lent;
use smallvec::{SmallVec, smallvec};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Pages looked up in one call without a heap allocation: 1 MiB.
const PAGES: usize = 256;

/// A mapping of the first bytes of a file.
pub(super) struct Cached {
    base: *mut libc::c_void,
    len: usize,
    page: usize,
}

// SAFETY: the mapping is never read or written here, only its address is told; the kernel takes
// care of those who use it at once.
unsafe impl Send for Cached {}
// SAFETY: as above.
unsafe impl Sync for Cached {}

impl Cached {
    /// Maps the first `len` bytes of `file`.
    pub fn new(file: &File, len: u64) -> io::Result<Cached> {
        let len = usize::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
        let (prot, flags) = (libc::PROT_READ, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that is there.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a plain question.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        Ok(Cached { base, len, page: usize::try_from(page).unwrap_or(4096) })
    }

    /// Where `len` bytes from `at` lie, if all of them are in memory at this moment.
    pub fn find(&self, at: u64, len: usize) -> Option<Lent> {
        let at = usize::try_from(at).ok()?;
        let end = at.checked_add(len).filter(|&end| end <= self.len)?;
        let from = at / self.page * self.page;
        let mut pages: SmallVec<[u8; PAGES]> = smallvec![0; (end - from).div_ceil(self.page)];
        // SAFETY: the pages are inside the mapping and `pages` has a byte for each.
        let told =
            unsafe { libc::mincore(self.base.byte_add(from), end - from, pages.as_mut_ptr()) };
        let all = told == 0 && pages.iter().all(|page| page & 1 == 1);
        // SAFETY: `at` is inside the mapping.
        all.then(|| Lent { base: unsafe { self.base.byte_add(at) }, len })
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody has an address in it beyond a borrow of `self`.
        // That it cannot fail for a mapping that exists is mmap's contract.
        unsafe { libc::munmap(self.base, self.len) };
    }
}
