//! Failed requests on standard error: told, but not in a flood.

use raid_core::error::{Error, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Failed requests that are all told; after these only every power of two is.
const ALL: u64 = 16;

/// Counts failed requests.
#[derive(Default)]
pub struct Complaints {
    count: AtomicU64,
}

impl Complaints {
    /// One line for a failed request, or none.
    pub fn hear(&self, what: impl FnOnce() -> String, error: &Error) {
        if matches!(error.kind, ErrorKind::Invalid | ErrorKind::ReadOnly | ErrorKind::Busy) {
            return; // The caller's mistake; it has the errno.
        }
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count <= ALL || count.is_power_of_two() {
            eprintln!("raid-fuse: {} failed ({count} so far): {error}", what());
        }
    }
}
