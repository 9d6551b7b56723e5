//! The kernel's end of a mount, for replies that the FUSE library cannot send: data from many
//! places in memory, without a copy of them.

use raid_core::device::Lent;
use smallvec::SmallVec;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Shortest read that is worth the detour, in bytes: below, looking up what is in memory costs
/// more than the copy it saves.
pub const LENT_MIN: usize = 128 << 10;

/// Most places in a reply: what one writev takes, less the header.
const PLACES_MAX: usize = libc::UIO_MAXIOV as usize - 1;

/// `struct fuse_out_header` of linux/fuse.h.
#[repr(C)]
struct OutHeader {
    len: u32,
    error: i32,
    unique: u64,
}

/// A descriptor of the connection.
#[derive(Debug)]
pub struct Connection(OwnedFd);

impl Connection {
    /// Another descriptor of the connection behind `descriptor`.
    pub fn of(descriptor: &OwnedFd) -> io::Result<Connection> {
        descriptor.as_fd().try_clone_to_owned().map(Connection)
    }

    /// Answers request `unique` with what lies in `places`. False: nothing was answered.
    pub fn reply(&self, unique: u64, places: &[Lent]) -> bool {
        let size = size_of::<OutHeader>();
        let total = size + places.iter().map(|place| place.len).sum::<usize>();
        let Ok(len) = u32::try_from(total) else { return false };
        if places.len() > PLACES_MAX {
            return false;
        }
        let mut header = OutHeader { len, error: 0, unique };
        let head = libc::iovec { iov_base: (&raw mut header).cast(), iov_len: size };
        let rest = places.iter().map(|p| libc::iovec { iov_base: p.base, iov_len: p.len });
        let parts: SmallVec<[libc::iovec; 64]> = std::iter::once(head).chain(rest).collect();
        let count = parts.len() as libc::c_int;
        // SAFETY: `parts` has `count` entries; the header outlives the call, and what is lent may
        // be handed to a system call.
        let sent = unsafe { libc::writev(self.0.as_raw_fd(), parts.as_ptr(), count) };
        // A page that went away meanwhile ends the request with EIO: it counts as answered.
        sent == total as isize || io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
    }
}
