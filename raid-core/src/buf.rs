//! Memory that moves: page-aligned buffers from a pool, split and shared without copying.
//!
//! A [`Buf`] is the only view of its bytes and can be written; a [`Shared`] is one of many views
//! and can only be read. Splitting and freezing move ownership, so a request's memory can travel
//! with the actions that use it and come back, and no two of them can touch the same byte.
//!
//! A pool hands out blocks of a power of two from one arena, page by page faulted in once; past
//! the arena it falls back to the heap. Blocks return when their last view is dropped.

use parking_lot::Mutex;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every block: a page, which every O_DIRECT device takes.
pub const ALIGN: usize = 4096;

/// Classes 2^12 to 2^(12+CLASSES-1) bytes are pooled: 4 KiB to 16 MiB; larger ones are not kept.
const CLASSES: usize = 13;

/// Idle blocks a class keeps outside the arena, in bytes: enough for the requests in flight of a
/// mount (16 of 1 MiB), little enough to state as a bound.
const IDLE_BYTES_PER_CLASS: usize = 16 << 20;

/// One block of memory. `home` is where it goes when dropped.
struct Block {
    start: NonNull<u8>,
    len: usize,
    home: Option<Arc<Shelf>>,
    in_arena: bool,
}

// SAFETY: a block is plain memory; the views over it (`Buf`, `Shared`) keep writers exclusive.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn heap(len: usize, home: Option<Arc<Shelf>>) -> Block {
        let layout = Layout::from_size_align(len, ALIGN).expect("block size fits an address space");
        // SAFETY: `len` is not zero (callers round up to a page).
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Block { start, len, home, in_arena: false }
    }

    fn free_heap(start: NonNull<u8>, len: usize) {
        let layout = Layout::from_size_align(len, ALIGN).expect("block size fits an address space");
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.home.take() {
            Some(shelf) => shelf.put(self.start, self.len, self.in_arena),
            None => Block::free_heap(self.start, self.len),
        }
    }
}

/// Free blocks by class, and the arena they were cut from.
struct Shelf {
    arena: NonNull<u8>,
    arena_len: usize,
    state: Mutex<ShelfState>,
}

struct ShelfState {
    cut: usize,
    free: [Vec<FreeBlock>; CLASSES],
}

#[derive(Clone, Copy)]
struct FreeBlock {
    start: NonNull<u8>,
    in_arena: bool,
}

// SAFETY: the pointers are to memory the shelf owns; the mutex guards the lists.
unsafe impl Send for Shelf {}
// SAFETY: as above.
unsafe impl Sync for Shelf {}

impl Shelf {
    fn put(&self, start: NonNull<u8>, len: usize, in_arena: bool) {
        let class = class_of(len);
        let mut state = self.state.lock();
        let full = (state.free[class].len() + 1) * len > IDLE_BYTES_PER_CLASS;
        if in_arena || !full {
            state.free[class].push(FreeBlock { start, in_arena });
        } else {
            drop(state);
            Block::free_heap(start, len);
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        for (class, list) in state.free.iter().enumerate() {
            for block in list.iter().filter(|b| !b.in_arena) {
                Block::free_heap(block.start, ALIGN << class);
            }
        }
        if self.arena_len > 0 {
            Block::free_heap(self.arena, self.arena_len);
        }
    }
}

fn class_of(len: usize) -> usize {
    len.max(ALIGN).next_power_of_two().trailing_zeros() as usize - ALIGN.trailing_zeros() as usize
}

/// Hands out buffers; cheap to clone.
#[derive(Clone)]
pub struct Pool(Arc<Shelf>);

impl Pool {
    /// A pool with an arena of `arena` bytes (rounded up to a page; zero: heap only).
    pub fn new(arena: usize) -> Pool {
        let arena_len = arena.next_multiple_of(ALIGN);
        let arena = match arena_len {
            0 => NonNull::dangling(),
            len => {
                let block = Block::heap(len, None);
                let start = block.start;
                std::mem::forget(block);
                start
            }
        };
        let state = Mutex::new(ShelfState { cut: 0, free: Default::default() });
        Pool(Arc::new(Shelf { arena, arena_len, state }))
    }

    /// A buffer of `len` bytes. Its content is whatever was there: fill it before showing it.
    pub fn take(&self, len: usize) -> Buf {
        let class = class_of(len);
        if class >= CLASSES {
            let block = Block::heap(len.next_multiple_of(ALIGN), None);
            return Buf { block: Arc::new(block), at: 0, len };
        }
        let size = ALIGN << class;
        let mut state = self.0.state.lock();
        let found = state.free[class].pop().or_else(|| {
            let left = self.0.arena_len - state.cut;
            (left >= size).then(|| {
                // SAFETY: `cut + size` is inside the arena.
                let start = unsafe { self.0.arena.add(state.cut) };
                state.cut += size;
                FreeBlock { start, in_arena: true }
            })
        });
        drop(state);
        let block = match found {
            Some(FreeBlock { start, in_arena }) => {
                Block { start, len: size, home: Some(self.0.clone()), in_arena }
            }
            None => Block::heap(size, Some(self.0.clone())),
        };
        Buf { block: Arc::new(block), at: 0, len }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(&self, len: usize) -> Buf {
        let mut buf = self.take(len);
        buf.fill(0);
        buf
    }

    /// Address and length of the arena, to register with a ring; nothing if there is none.
    /// Both stay the same while the pool or a buffer of it lives.
    pub fn arena(&self) -> Option<(*mut u8, usize)> {
        (self.0.arena_len > 0).then_some((self.0.arena.as_ptr(), self.0.arena_len))
    }
}

/// The only view of some bytes.
pub struct Buf {
    block: Arc<Block>,
    at: usize,
    len: usize,
}

impl Buf {
    /// A copy of `bytes` outside any pool.
    pub fn copy_of(bytes: &[u8]) -> Buf {
        let size = bytes.len().max(1).next_multiple_of(ALIGN);
        let mut buf = Buf { block: Arc::new(Block::heap(size, None)), at: 0, len: bytes.len() };
        buf.copy_from_slice(bytes);
        buf
    }

    /// Cuts off and returns the first `len` bytes; `self` keeps the rest.
    pub fn split_to(&mut self, len: usize) -> Buf {
        assert!(len <= self.len, "split at {len} of a buffer of {}", self.len);
        let head = Buf { block: self.block.clone(), at: self.at, len };
        self.at += len;
        self.len -= len;
        head
    }

    /// Takes back `tail`, which was cut off right behind `self`.
    pub fn unsplit(&mut self, tail: Buf) {
        assert!(Arc::ptr_eq(&self.block, &tail.block), "pieces of one block");
        assert_eq!(self.at + self.len, tail.at, "pieces that touch");
        self.len += tail.len;
    }

    /// Gives up writing, so that the bytes can be seen from several places.
    pub fn freeze(self) -> Shared {
        Shared { block: self.block, at: self.at, len: self.len }
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the block, initialised, and no other view can write it.
        unsafe { std::slice::from_raw_parts(self.block.start.as_ptr().add(self.at), self.len) }
    }
}

impl std::ops::DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as `deref`; a `Buf` is the only view of its range.
        unsafe { std::slice::from_raw_parts_mut(self.block.start.as_ptr().add(self.at), self.len) }
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({})", self.len)
    }
}

/// A view of bytes that nobody can write any more; cheap to clone and cut.
#[derive(Clone)]
pub struct Shared {
    block: Arc<Block>,
    at: usize,
    len: usize,
}

impl Shared {
    /// The bytes `at..at + len` of this view.
    pub fn slice(&self, at: usize, len: usize) -> Shared {
        assert!(at + len <= self.len, "slice {at}+{len} of a buffer of {}", self.len);
        Shared { block: self.block.clone(), at: self.at + at, len }
    }
}

impl std::ops::Deref for Shared {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range is inside the block, initialised, and no view can write it.
        unsafe { std::slice::from_raw_parts(self.block.start.as_ptr().add(self.at), self.len) }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shared({})", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_share_a_block_and_give_it_back() {
        let pool = Pool::new(1 << 20);
        let mut whole = pool.zeroed(64 << 10);
        let first = whole.as_ptr();
        let mut head = whole.split_to(4096);
        head.fill(7);
        assert_eq!(head.as_ptr(), first);
        assert!(whole.iter().all(|&b| b == 0));
        let tail = whole.split_to(8192);
        head.unsplit(tail);
        assert_eq!(head.len(), 12288);
        head.fill(7);
        let shared = head.freeze();
        let again = shared.slice(100, 50);
        drop((shared, whole));
        assert!(again.iter().all(|&b| b == 7));
        drop(again);
        assert_eq!(pool.take(60 << 10).as_ptr(), first, "the block came back");
    }

    #[test]
    fn past_the_arena_there_is_the_heap() {
        let pool = Pool::new(8 << 10);
        let taken: Vec<Buf> = (0..4).map(|_| pool.take(4096)).collect();
        let (start, len) = pool.arena().unwrap();
        let arena = start as usize..start as usize + len;
        assert_eq!(taken.iter().filter(|b| arena.contains(&(b.as_ptr() as usize))).count(), 2);
        assert_eq!(pool.take(64 << 20).len(), 64 << 20);
    }

    #[test]
    fn every_block_is_page_aligned() {
        let pool = Pool::new(64 << 10);
        for len in [1, 511, 4096, 5000, 100_000] {
            assert_eq!(pool.take(len).as_ptr() as usize % ALIGN, 0);
        }
        assert_eq!(Buf::copy_of(b"abc").as_ptr() as usize % ALIGN, 0);
    }
}
