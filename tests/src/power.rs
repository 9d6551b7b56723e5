//! A power cut: from one moment on nothing reaches any of the members that share a supply.

use raid_core::device::{Device, Facts, Shared};
use raid_core::units::Sectors;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What several members hang on: it lasts for some writes.
#[derive(Debug)]
pub struct Supply {
    writes_left: AtomicI64,
}

impl Supply {
    /// Power that never ends before [`Supply::last`] is called.
    pub fn new() -> Arc<Supply> {
        Arc::new(Supply { writes_left: AtomicI64::new(i64::MAX) })
    }

    /// Lets the power last for `writes` more writes to the members.
    pub fn last(&self, writes: u32) {
        self.writes_left.store(writes.into(), Ordering::SeqCst);
    }

    /// True once a write found no power.
    pub fn is_cut(&self) -> bool {
        self.writes_left.load(Ordering::SeqCst) < 0
    }

    /// The devices, on this supply.
    pub fn feed(self: &Arc<Supply>, devices: &[Shared]) -> Vec<Shared> {
        let feed = |inner: &Shared| {
            let (facts, supply) = (inner.facts().without_fd(), self.clone());
            Arc::new(Powered { facts, inner: inner.clone(), supply }) as Shared
        };
        devices.iter().map(feed).collect()
    }

    fn check(&self) -> io::Result<()> {
        if self.is_cut() { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
    }
}

/// A device that works while there is power.
struct Powered {
    facts: Facts,
    inner: Shared,
    supply: Arc<Supply>,
}

impl Device for Powered {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.supply.check()?;
        self.inner.read(at, bufs)
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.supply.check()?;
        self.supply.writes_left.fetch_sub(1, Ordering::SeqCst);
        self.supply.check()?;
        self.inner.write(at, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.supply.check()?;
        self.inner.flush()
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        self.supply.check()?;
        self.inner.discard(at, len)
    }
}
