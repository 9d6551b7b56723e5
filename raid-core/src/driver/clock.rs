//! The time of a running array.

use crate::time::Instant;
use std::time::{SystemTime, UNIX_EPOCH};

/// Wall time at the start, monotonic from then on.
pub(super) struct Clock {
    base: u64,
    start: std::time::Instant,
}

impl Clock {
    /// Starts now.
    pub fn new() -> Clock {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Clock { base: wall.as_nanos() as u64, start: std::time::Instant::now() }
    }

    /// The time at this moment.
    pub fn now(&self) -> Instant {
        Instant(self.base + self.start.elapsed().as_nanos() as u64)
    }
}
