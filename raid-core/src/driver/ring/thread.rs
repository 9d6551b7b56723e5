//! The io_uring of one thread: files, arena, one submission, one wait.

use crate::device;
use crate::driver::merge::Kind;
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use smallvec::SmallVec;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

/// Members with a fixed file; the others go by descriptor.
const FILES: u32 = 64;

/// Largest buffer the kernel registers in one piece (`io_validate_user_buf_range`); of a larger
/// arena only the beginning is fixed.
const ARENA_MAX: usize = 1 << 30;

/// Errors of a submission in a row, without one completion, after which it is given up.
const ERRORS_MAX: u32 = 100;

/// One transfer: a member, a place in bytes on its descriptor, and memory.
pub(super) struct Job<'a> {
    pub(super) index: usize,
    pub(super) device: &'a device::Shared,
    pub(super) kind: Kind,
    pub(super) at: u64,
    pub(super) memory: SmallVec<[libc::iovec; 4]>,
}

/// A ring and what is registered with it.
pub(super) struct ThreadRing {
    /// Nothing once it was closed or failed.
    ring: Option<IoUring>,
    /// Which device each fixed file is of: weak, because a ring must not keep a device alive, and
    /// a weak pointer still keeps its address from being used again.
    files: Option<Vec<Option<Weak<dyn device::Device>>>>,
    arena: Option<(usize, usize)>,
}

impl ThreadRing {
    /// A ring of `entries`; it registers what it can.
    pub(super) fn new(entries: u32, arena: Option<(*mut u8, usize)>) -> io::Result<ThreadRing> {
        let ring = build(entries)?;
        let files = ring.submitter().register_files_sparse(FILES).is_ok();
        let arena = arena.map(|(start, len)| (start, len.min(ARENA_MAX)));
        let arena = arena.filter(|&(start, len)| {
            let iov = libc::iovec { iov_base: start.cast(), iov_len: len };
            // SAFETY: the arena outlives the ring: both belong to the executor, which holds the
            // pool, and registered pages stay pinned until the ring is closed.
            unsafe { ring.submitter().register_buffers(&[iov]) }.is_ok()
        });
        Ok(ThreadRing {
            ring: Some(ring),
            files: files.then(|| (0..FILES).map(|_| None).collect()),
            arena: arena.map(|(start, len)| (start as usize, len)),
        })
    }

    /// True if the arena is a fixed buffer.
    pub(super) fn has_arena(&self) -> bool {
        self.arena.is_some()
    }

    /// False once it was closed.
    pub(super) fn is_usable(&self) -> bool {
        self.ring.is_some()
    }

    /// Closes the ring and with it every fixed file.
    pub(super) fn close(&mut self) {
        if let Some(ring) = &self.ring {
            // Without this the kernel lets go of the files, and of their locks, some time later;
            // it fails only where no files were registered.
            let _none_registered = ring.submitter().unregister_files();
        }
        self.ring = None;
    }

    /// Does all `jobs`, and `meanwhile` while the first of them are in flight. `outcomes` become
    /// bytes moved or negative errno. Returns how many used the fixed buffer.
    ///
    /// # Safety
    /// The memory of the jobs is valid, for a read exclusively, until this returns or unwinds.
    pub(super) unsafe fn execute(
        &mut self,
        jobs: &[Job<'_>],
        outcomes: &mut [i32],
        meanwhile: impl FnOnce(),
    ) -> u64 {
        let mut fixed = 0;
        let mut entries: SmallVec<[squeue::Entry; 8]> = SmallVec::new();
        for job in jobs {
            let (entry, in_arena) = self.entry(job);
            entries.push(entry);
            fixed += in_arena as u64;
        }
        let mut meanwhile = Some(meanwhile);
        outcomes.fill(-libc::EAGAIN);
        let mut done = 0;
        while let Some(ring) = &mut self.ring
            && done < jobs.len()
        {
            let now = (jobs.len() - done).min(ring.params().sq_entries() as usize);
            let part = done..done + now;
            let mut flight = Flight::push(ring, &entries[part.clone()], &mut outcomes[part]);
            if let Some(meanwhile) = meanwhile.take() {
                flight.submit();
                meanwhile();
            }
            flight.wait();
            done += now;
            if flight.failed {
                drop(flight);
                self.close();
            }
        }
        if let Some(meanwhile) = meanwhile {
            meanwhile();
        }
        fixed
    }

    fn entry(&mut self, job: &Job<'_>) -> (squeue::Entry, bool) {
        let fd = job.device.facts().fd.expect("a ring gets members with a descriptor");
        let slot = self.fixed_file(job.index, job.device, fd);
        let file = types::Fd(slot.map_or(fd, |slot| slot as RawFd));
        let flags = match slot {
            Some(_) => squeue::Flags::FIXED_FILE,
            None => squeue::Flags::empty(),
        };
        let (at, iov, count) = (job.at, job.memory.as_ptr(), job.memory.len() as u32);
        let fixed = self.fixed_buffer(job);
        let entry = match (job.kind, fixed) {
            (Kind::Read, Some((start, len))) => {
                opcode::ReadFixed::new(file, start, len, 0).offset(at).build()
            }
            (Kind::Write, Some((start, len))) => {
                opcode::WriteFixed::new(file, start, len, 0).offset(at).build()
            }
            (Kind::Read, None) => opcode::Readv::new(file, iov, count).offset(at).build(),
            (Kind::Write, None) => opcode::Writev::new(file, iov, count).offset(at).build(),
            (Kind::Flush, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        };
        (entry.flags(flags), fixed.is_some())
    }

    /// The fixed file of the device with this index, registered now if it was another's.
    fn fixed_file(&mut self, index: usize, device: &device::Shared, fd: RawFd) -> Option<u32> {
        let slot = self.files.as_mut()?.get_mut(index)?;
        let known = slot.as_ref().is_some_and(|w| std::ptr::addr_eq(w.as_ptr(), &**device));
        if !known {
            *slot = None;
            let ring = self.ring.as_ref()?;
            ring.submitter().register_files_update(index as u32, &[fd]).ok()?;
            *slot = Some(Arc::downgrade(device));
        }
        Some(index as u32)
    }

    /// Start and length of the job's memory if it is one piece inside the arena.
    fn fixed_buffer(&self, job: &Job<'_>) -> Option<(*mut u8, u32)> {
        let (start, len) = self.arena?;
        let [only] = job.memory[..] else { return None };
        let offset = (only.iov_base as usize).checked_sub(start)?;
        let inside = offset.checked_add(only.iov_len)? <= len;
        inside.then_some((only.iov_base.cast(), u32::try_from(only.iov_len).ok()?))
    }
}

/// The most the kernel offers: completions run in this thread and nowhere else (Linux 6.1); then
/// what every kernel with rings has.
fn build(entries: u32) -> io::Result<IoUring> {
    let newest = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(entries);
    match newest {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(entries),
        other => other,
    }
}

/// Operations the kernel has. Their memory must stay until it gives them back, so nothing leaves
/// here before that, not even a panic.
struct Flight<'a> {
    ring: &'a mut IoUring,
    outcomes: &'a mut [i32],
    pending: usize,
    failed: bool,
}

impl<'a> Flight<'a> {
    /// Queues `entries`, for as many `outcomes`.
    fn push(
        ring: &'a mut IoUring,
        entries: &[squeue::Entry],
        outcomes: &'a mut [i32],
    ) -> Flight<'a> {
        let mut queue = ring.submission();
        let mut pending = 0;
        for entry in entries {
            let entry = entry.clone().user_data(pending as u64);
            // SAFETY: the caller of `execute` vouches for the memory until the flight is over.
            if unsafe { queue.push(&entry) }.is_err() {
                break;
            }
            pending += 1;
        }
        drop(queue);
        Flight { ring, outcomes, pending, failed: false }
    }

    /// Hands over what is queued, without waiting. What is not taken now `wait` hands over.
    fn submit(&mut self) {
        let _ = self.ring.submit();
    }

    /// Returns when the kernel has given everything back.
    fn wait(&mut self) {
        let mut errors = 0;
        while self.pending > 0 {
            let entered = match self.failed {
                false => self.ring.submit_and_wait(self.pending),
                true => self.wait_only(),
            };
            let some = self.reap() > 0;
            match entered {
                Err(error) if !some => {
                    errors += 1;
                    self.after_error(&error, errors);
                }
                _ => errors = 0,
            }
        }
    }

    fn wait_only(&mut self) -> io::Result<usize> {
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: nothing is submitted and no argument is passed.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(0, 1, flags, None) }
    }

    /// Takes the finished operations; says how many.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        for done in self.ring.completion() {
            if let Some(outcome) = self.outcomes.get_mut(done.user_data() as usize) {
                *outcome = done.result();
                count += 1;
            }
        }
        self.pending = self.pending.saturating_sub(count);
        count
    }

    /// Nothing moved and the call failed: try again while there is hope, then take back what the
    /// kernel has not taken yet and wait for the rest only.
    fn after_error(&mut self, error: &io::Error, errors: u32) {
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EBUSY) if errors < ERRORS_MAX => std::thread::yield_now(),
            _ if self.failed => std::thread::sleep(std::time::Duration::from_millis(1)),
            _ => {
                self.failed = true;
                self.pending -= self.ring.submission().len();
            }
        }
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.wait();
    }
}
