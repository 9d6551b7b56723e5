//! What each session thread reads into: one buffer a thread, kept.

use super::Volume;
use super::fuse::REQUEST_MAX;
use raid_core::buf::Buf;
use std::cell::RefCell;

thread_local! {
    static BUFFER: RefCell<Option<Buf>> = const { RefCell::new(None) };
}

/// Calls `work` with `len` bytes, faulted in already, so that no request pays for that.
pub fn with(volume: &dyn Volume, len: usize, work: impl FnOnce(&mut [u8])) {
    BUFFER.with_borrow_mut(|slot| {
        let buf = match slot {
            Some(buf) if buf.len() >= len => buf,
            _ => {
                let mut buf = volume.buffer(len.max(REQUEST_MAX as usize));
                buf.fill(0);
                slot.insert(buf)
            }
        };
        work(&mut buf[..len]);
    });
}
