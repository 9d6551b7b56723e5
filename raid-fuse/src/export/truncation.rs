//! What a writer that truncated the volume is owed.
//!
//! The volume never changes its size, yet `cp disk.img volume` and `dd of=volume` open it with
//! O_TRUNC, and like on a block device that must work. The writer then believes the file is empty:
//! `cp` skips holes of a sparse image, counting on zeros there. Answering "yes" and keeping old
//! bytes in those holes would be silent corruption.
//!
//! So each handle that truncated has a *mark*: everything below it has been written or zeroed
//! since. A write that starts beyond the mark first zeroes the gap, and a truncation to a larger
//! size zeroes up to that size. A sequential writer never pays anything. What lies behind the last
//! byte such a writer touches keeps its old content, as on a block device.
//!
//! The kernel sends O_TRUNC as an open followed by a truncation without a handle, both from one
//! thread. So the handle meant is the last one this thread opened for writing; a thread that
//! opened none truncates by path, which is refused.

use super::Volume;
use parking_lot::Mutex;
use raid_core::error::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes zeroed with one write.
const ZERO_STEP: usize = 1 << 20;

/// The marks of all open handles that truncated the volume.
#[derive(Default)]
pub struct Truncations {
    /// Number of marks, so that the usual write takes no lock.
    count: AtomicUsize,
    marks: Mutex<HashMap<u64, Arc<Mutex<u64>>>>,
    /// The last handle each thread opened for writing; only handles that are open.
    opened: Mutex<HashMap<u32, u64>>,
    /// The kernel caches the volume: zeros written behind its back would not be seen, and dirty
    /// pages come by any handle, so that nobody can tell who skipped what. Truncation is refused.
    cached: bool,
}

/// Who truncates.
#[derive(Clone, Copy, Debug)]
pub struct Truncator {
    /// The handle, if the kernel names one (`ftruncate`).
    pub handle: Option<u64>,
    /// The thread; 0 for one in a process namespace that the daemon does not see.
    pub thread: u32,
}

impl Truncations {
    /// Marks for a volume that the kernel caches or not.
    pub fn new(cached: bool) -> Truncations {
        Truncations { cached, ..Truncations::default() }
    }

    /// Notes that `thread` opened the volume for writing.
    pub fn opened(&self, thread: u32, handle: u64) {
        if thread != 0 {
            self.opened.lock().insert(thread, handle);
        }
    }

    /// A truncation to `size` bytes.
    ///
    /// Allowed: the size the volume has; zero through a handle; growing again through a handle
    /// that truncated before. Everything else is refused, because the size cannot change.
    pub fn truncate(&self, volume: &dyn Volume, who: Truncator, size: u64) -> Result<()> {
        if self.cached && size != volume.size() {
            return Err(Error::invalid(
                "the volume keeps its size, and with a cache in the kernel (--cache) a truncating \
                 open cannot be honoured either; write without truncating (dd conv=notrunc)",
            ));
        }
        let handle = who.handle.or_else(|| self.opened.lock().get(&who.thread).copied());
        match handle {
            Some(handle) if size == 0 => {
                self.start(handle);
                return Ok(());
            }
            // An open by somebody who cannot be told apart from others: never zero on a guess.
            None if size == 0 && who.thread == 0 => return Ok(()),
            _ => {}
        }
        let mark = handle.and_then(|handle| self.mark(handle));
        match mark {
            Some(mark) if size <= volume.size() => {
                let mut mark = mark.lock();
                if size < *mark {
                    return Err(refused(volume.size(), size));
                }
                zero(volume, *mark, size)?;
                *mark = size;
                Ok(())
            }
            None if size == volume.size() => Ok(()),
            _ => Err(refused(volume.size(), size)),
        }
    }

    /// To be called before a write of `len` bytes at `at`: zeroes what the writer skipped.
    pub fn before_write(&self, volume: &dyn Volume, handle: u64, at: u64, len: u64) -> Result<()> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        let Some(mark) = self.mark(handle) else { return Ok(()) };
        // Held while zeroing: a slower write into the gap must come after the zeros.
        let mut mark = mark.lock();
        if at > *mark {
            zero(volume, *mark, at)?;
        }
        *mark = (*mark).max(at + len);
        Ok(())
    }

    /// Forgets a handle that was closed.
    pub fn forget(&self, handle: u64) {
        self.opened.lock().retain(|_, opened| *opened != handle);
        if self.count.load(Ordering::Acquire) > 0 && self.marks.lock().remove(&handle).is_some() {
            self.count.fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn start(&self, handle: u64) {
        if self.marks.lock().insert(handle, Arc::default()).is_none() {
            self.count.fetch_add(1, Ordering::AcqRel);
        }
    }

    fn mark(&self, handle: u64) -> Option<Arc<Mutex<u64>>> {
        self.marks.lock().get(&handle).cloned()
    }
}

fn refused(have: u64, want: u64) -> Error {
    Error::invalid(format!("the volume has {have} bytes and cannot be resized to {want}"))
}

fn zero(volume: &dyn Volume, from: u64, to: u64) -> Result<()> {
    let mut zeros = volume.buffer(ZERO_STEP.min(usize::try_from(to - from).unwrap_or(ZERO_STEP)));
    zeros.fill(0);
    let mut at = from;
    while at < to {
        // Steps end on multiples of their size, so that only the first can be odd.
        let step_end = (at / ZERO_STEP as u64 + 1) * ZERO_STEP as u64;
        let len = (step_end.min(to) - at).min(zeros.len() as u64);
        volume.write(at, &zeros[..len as usize])?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = (3 << 20) + 512;

    struct Memory(Mutex<Vec<u8>>);

    impl Volume for Memory {
        fn size(&self) -> u64 {
            SIZE
        }
        fn read_only(&self) -> bool {
            false
        }
        fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
            buf.copy_from_slice(&self.0.lock()[at as usize..][..buf.len()]);
            Ok(())
        }
        fn write(&self, at: u64, data: &[u8]) -> Result<()> {
            self.0.lock()[at as usize..][..data.len()].copy_from_slice(data);
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Ok(())
        }
        fn texts(&self) -> Vec<crate::export::Text> {
            Vec::new()
        }
    }

    fn by(handle: Option<u64>) -> Truncator {
        Truncator { handle, thread: 77 }
    }

    fn old() -> Memory {
        Memory(Mutex::new(vec![7; SIZE as usize]))
    }

    #[test]
    fn holes_of_a_truncating_writer_become_zeros() {
        let (volume, truncations) = (old(), Truncations::default());
        truncations.truncate(&volume, by(Some(1)), 0).unwrap();
        for (at, len) in [(0, 100u64), (100, 4096), (5000, 10), ((2 << 20) + 3, 9), (50, 4)] {
            truncations.before_write(&volume, 1, at, len).unwrap();
            volume.write(at, &vec![1; len as usize]).unwrap();
        }
        truncations.truncate(&volume, by(Some(1)), SIZE - 100).unwrap();
        let bytes = volume.0.lock().clone();
        let written = [0..4196, 5000..5010, (2 << 20) + 3..(2 << 20) + 12];
        let written = |at| written.iter().any(|range| range.contains(&at));
        for (at, &byte) in bytes.iter().enumerate() {
            let want = match at {
                _ if written(at) => 1,
                _ if at as u64 >= SIZE - 100 => 7,
                _ => 0,
            };
            assert_eq!(byte, want, "byte {at}");
        }
    }

    #[test]
    fn other_writers_find_everything_as_it_was() {
        let (volume, truncations) = (old(), Truncations::default());
        truncations.truncate(&volume, by(Some(1)), 0).unwrap();
        truncations.before_write(&volume, 2, 4096, 10).unwrap();
        truncations.forget(1);
        truncations.before_write(&volume, 1, 8192, 10).unwrap();
        assert!(volume.0.lock().iter().all(|&byte| byte == 7));
    }

    #[test]
    fn an_open_with_o_trunc_is_known_by_its_thread() {
        let (volume, truncations) = (old(), Truncations::default());
        let thread = |thread| Truncator { handle: None, thread };
        truncations.opened(50, 1);
        truncations.opened(51, 2);
        truncations.opened(0, 3);
        assert!(truncations.truncate(&volume, thread(52), 0).is_err(), "by path");
        assert!(truncations.truncate(&volume, thread(0), 0).is_ok());
        for handle in [1, 2, 3] {
            truncations.before_write(&volume, handle, 100, 10).unwrap();
        }
        assert!(volume.0.lock().iter().all(|&byte| byte == 7), "nobody truncated yet");
        truncations.truncate(&volume, thread(51), 0).unwrap();
        truncations.before_write(&volume, 1, 100, 10).unwrap();
        assert!(volume.0.lock().iter().all(|&byte| byte == 7), "the other one did");
        truncations.before_write(&volume, 2, 100, 10).unwrap();
        assert_eq!(volume.0.lock()[..101], [[0; 100].as_slice(), &[7]].concat());
        truncations.forget(2);
        assert!(truncations.truncate(&volume, thread(51), 0).is_err(), "closed");
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        let (volume, truncations) = (old(), Truncations::default());
        for (handle, size, fine) in [
            (None, SIZE, true),
            (None, 0, false),
            (None, SIZE + 1, false),
            (Some(1), SIZE - 1, false),
            (Some(1), u64::MAX, false),
            (Some(1), SIZE, true),
        ] {
            let answer = truncations.truncate(&volume, by(handle), size);
            assert_eq!(answer.is_ok(), fine, "{handle:?} {size}");
        }
        truncations.truncate(&volume, by(Some(1)), 0).unwrap();
        truncations.before_write(&volume, 1, 0, 5000).unwrap();
        assert!(
            truncations.truncate(&volume, by(Some(1)), 4000).is_err(),
            "below what was written"
        );
        assert!(truncations.truncate(&volume, by(Some(1)), SIZE + 1).is_err());
        assert!(truncations.truncate(&volume, by(Some(1)), 5000).is_ok());
    }
}
