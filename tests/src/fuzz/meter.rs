//! How much memory a thread takes: an allocator that counts.
//!
//! A test that wants it says `#[global_allocator] static METER: Meter = Meter;`. Without it every
//! answer is zero.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// One allocation of more is absurd wherever it is asked for: it is refused, which ends the test.
const ONE_MAX: usize = 1 << 30;

/// The system's allocator, counting.
#[derive(Debug)]
pub struct Meter;

thread_local! {
    /// Bytes this thread took and did not give back; memory that moved makes it negative.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Begins to look for a peak; to be handed to [`peak`].
pub fn begin() -> i64 {
    LIVE.with(|live| PEAK.with(|peak| peak.set(live.get())));
    LIVE.with(Cell::get)
}

/// The most bytes taken at once by this thread since [`begin`] returned `before`.
pub fn peak(before: i64) -> u64 {
    PEAK.with(|peak| u64::try_from(peak.get() - before).unwrap_or(0))
}

fn count(bytes: i64) {
    // A thread that ends has no counters any more, and nobody asks for them.
    let live = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        live.get()
    });
    if let Ok(live) = live {
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live)));
    }
}

// SAFETY: every call goes to the system's allocator as it came, or is refused with a null pointer,
// which is an answer an allocator may give; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Meter {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ONE_MAX {
            return std::ptr::null_mut();
        }
        count(layout.size() as i64);
        // SAFETY: the caller keeps what `alloc` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.size() > ONE_MAX {
            return std::ptr::null_mut();
        }
        count(layout.size() as i64);
        // SAFETY: the caller keeps what `alloc_zeroed` asks for.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller keeps what `dealloc` asks for.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > ONE_MAX {
            return std::ptr::null_mut();
        }
        count(size as i64 - layout.size() as i64);
        // SAFETY: the caller keeps what `realloc` asks for.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
