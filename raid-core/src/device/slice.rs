//! A window of another device: a partition, or the data area of a member.
//!
//! Sector 0 of the window is sector `start` of the inner device. A ring may still go around the
//! verbs: the window passes the inner descriptor on with the place where it begins.

use super::spec::Args;
use super::{Device, DeviceKind, Facts, Lent, Shared, Storage, bounds};
use crate::error::{Error, Result};
use crate::units::Sectors;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// `slice:start=2048,len=4096+file:x`.
pub const KIND: DeviceKind = DeviceKind {
    scheme: "slice",
    summary: "a window of another device",
    usage: "slice:start=SECTORS,len=SECTORS+DEVICE (without len: to the end)",
    filter: true,
    inner_read_only: false,
    open: |args, inner, _| {
        let mut args = Args::parse(args)?;
        let start = args.sectors("start")?.unwrap_or_default();
        let len = args.sectors("len")?;
        args.finish(KIND.usage)?;
        let inner = inner.expect("a filter is opened with its inner device");
        Ok(Arc::new(SliceDevice::new(inner, start, len)?) as Shared)
    },
};

/// `len` sectors of `inner` from `start`.
pub struct SliceDevice {
    facts: Facts,
    start: Sectors,
    inner: Shared,
}

impl SliceDevice {
    /// The window of `len` sectors at `start`; without `len`, to the end.
    ///
    /// # Errors
    /// `Invalid` if the window is empty or reaches past the end of `inner`.
    pub fn new(inner: Shared, start: Sectors, len: Option<Sectors>) -> Result<SliceDevice> {
        let facts = inner.facts();
        let left = facts.sectors.checked_sub(start).unwrap_or_default();
        let sectors = len.unwrap_or(left);
        if sectors.is_empty() || sectors > left {
            return Err(Error::invalid(format!(
                "{}: {sectors} sectors at {start} are not inside the device, which has {}",
                facts.name, facts.sectors
            )));
        }
        let whole = sectors == facts.sectors;
        let part = |all: Storage| if whole { all } else { all.part(start, sectors) };
        let identity = facts.identity.map(part);
        let facts = Facts {
            name: format!("{}[{start}+{sectors}]", facts.name),
            sectors,
            fd_start: facts.fd_start + start,
            identity,
            ..facts.clone()
        };
        Ok(SliceDevice { facts, start, inner })
    }
}

impl Device for SliceDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        bounds::check_read(&self.facts, at, bounds::total(bufs))?;
        self.inner.read(self.start + at, bufs)
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        bounds::check_write(&self.facts, at, bounds::total(bufs))?;
        self.inner.write(self.start + at, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        bounds::check_discard(&self.facts, at, len)?;
        self.inner.discard(self.start + at, len)
    }

    fn lend(&self, at: Sectors, len: usize) -> Option<Lent> {
        bounds::check_read(&self.facts, at, len as u64).ok()?;
        self.inner.lend(self.start + at, len)
    }

    fn warning(&self) -> Option<String> {
        self.inner.warning()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::mem::MemDevice;
    use crate::device::{read_at, write_at};
    use std::sync::Arc;

    #[test]
    fn a_window_shows_its_part_only() {
        let whole: Shared = Arc::new(MemDevice::new("m", Sectors(100)).unwrap());
        let window = SliceDevice::new(whole.clone(), Sectors(40), Some(Sectors(10))).unwrap();
        let inner = SliceDevice::new(Arc::new(window), Sectors(8), None).unwrap();
        assert_eq!(inner.facts().sectors, Sectors(2));
        write_at(&inner, Sectors(1), &[7; 512]).unwrap();
        let mut buf = [0; 1536];
        read_at(&*whole, Sectors(48), &mut buf).unwrap();
        assert_eq!(buf[512..1024], [7; 512]);
        assert_eq!(buf[..512], [0; 512]);
        assert!(write_at(&inner, Sectors(2), &[7; 512]).is_err());
    }

    #[test]
    fn a_window_outside_is_refused() {
        let whole: Shared = Arc::new(MemDevice::new("m", Sectors(100)).unwrap());
        for (start, len) in [(100, None), (0, Some(0)), (99, Some(2)), (u64::MAX, Some(1))] {
            let made = SliceDevice::new(whole.clone(), Sectors(start), len.map(Sectors));
            assert_eq!(made.err().unwrap().kind, crate::error::ErrorKind::Invalid);
        }
    }
}
