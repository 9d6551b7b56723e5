//! The one place where an error becomes an errno.
//!
//! What a reader of the volume can act on keeps its own number; everything that means "the array
//! could not do it" is EIO, which is what every file system and loop device above expects.

use raid_core::error::{Error, ErrorKind};

/// The errno a system call on the volume answers for `error`.
pub fn of(error: &Error) -> i32 {
    of_kind(error.kind)
}

/// The errno for each kind of error.
pub fn of_kind(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Invalid => libc::EINVAL,
        ErrorKind::ReadOnly => libc::EROFS,
        ErrorKind::Busy => libc::EBUSY,
        ErrorKind::Refused => libc::EPERM,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::Io | ErrorKind::Dead | ErrorKind::Degraded | ErrorKind::Metadata => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_array_cannot_do_is_eio() {
        for kind in [ErrorKind::Io, ErrorKind::Dead, ErrorKind::Degraded, ErrorKind::Metadata] {
            assert_eq!(of(&Error::new(kind, "x")), libc::EIO, "{kind:?}");
        }
        assert_eq!(of(&Error::new(ErrorKind::ReadOnly, "x")), libc::EROFS);
        assert_eq!(of(&Error::invalid("x")), libc::EINVAL);
    }
}
