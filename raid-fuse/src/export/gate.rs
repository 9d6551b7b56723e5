//! The gate every request passes: open while serving, closed for good when the mount stops.
//!
//! Promises: once [`Gate::close`] has answered true, no request is inside the volume and none will
//! enter again. A request that panics closes the gate too, so that a bug ends the mount instead of
//! answering later requests from a state nobody understands.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Counts requests in flight and turns new ones away once closed.
pub struct Gate {
    /// Held for reading by each request inside the volume.
    inside: RwLock<()>,
    closed: AtomicBool,
    /// What the first panic said, if one closed the gate.
    failure: Mutex<Option<String>>,
}

impl Default for Gate {
    fn default() -> Gate {
        Gate { inside: RwLock::new(()), closed: AtomicBool::new(false), failure: Mutex::new(None) }
    }
}

impl Gate {
    /// Lets a request in, until the guard is dropped; nothing if the gate is closed.
    pub fn enter(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.closed.load(Ordering::SeqCst) {
            return None;
        }
        let guard = self.inside.read();
        // Looked at again under the lock: `close` sets the flag first and then waits for the lock.
        (!self.closed.load(Ordering::SeqCst)).then_some(guard)
    }

    /// Turns new requests away and waits for those inside; false if some are still inside after
    /// `patience`.
    pub fn close(&self, patience: Duration) -> bool {
        self.closed.store(true, Ordering::SeqCst);
        self.inside.try_write_for(patience).is_some()
    }

    /// Closes the gate because a request panicked with `message`; does not wait.
    pub fn fail(&self, message: String) {
        self.failure.lock().get_or_insert(message);
        self.closed.store(true, Ordering::SeqCst);
    }

    /// What the first panic said, if there was one.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_waits_for_those_inside() {
        let gate = Gate::default();
        let inside = gate.enter().unwrap();
        std::thread::scope(|scope| {
            assert!(!scope.spawn(|| gate.close(Duration::from_millis(20))).join().unwrap());
            assert!(gate.enter().is_none());
            let closing = scope.spawn(|| gate.close(Duration::from_secs(60)));
            drop(inside);
            assert!(closing.join().unwrap());
        });
        assert!(gate.enter().is_none());
        assert_eq!(gate.failure(), None);
    }

    #[test]
    fn the_first_failure_is_kept() {
        let gate = Gate::default();
        gate.fail("first".into());
        gate.fail("second".into());
        assert!(gate.enter().is_none());
        assert_eq!(gate.failure().as_deref(), Some("first"));
    }
}
