//! The client side: bursts of one workload on one file, at a real depth.

use io_uring::{IoUring, opcode, types};
use raid_core::buf::{Buf, Pool};
use raid_core::error::{Error, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A workload.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    /// How to call it in the table.
    pub name: &'static str,
    /// Writes instead of reads.
    pub write: bool,
    /// Bytes a request.
    pub len: usize,
    /// Requests in flight.
    pub depth: usize,
    /// Random places instead of one after the other.
    pub random: bool,
}

/// One file under test, opened with O_DIRECT, with its ring and buffers.
pub struct Client {
    file: File,
    ring: IoUring,
    bufs: Vec<Buf>,
    size: u64,
    next: u64,
    seed: u64,
}

/// Largest request of any workload.
const LEN_MAX: usize = 1 << 20;
/// Largest depth of any workload.
const DEPTH_MAX: usize = 32;

impl Client {
    /// Opens `path`, whose first `size` bytes may be read and written.
    pub fn open(path: &Path, size: u64) -> Result<Client> {
        let file = File::options()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(path)
            .map_err(|error| Error::io(path.display(), error))?;
        let ring = IoUring::new(64).map_err(|error| Error::io("io_uring", error))?;
        let pool = Pool::new(0);
        let mut bufs: Vec<Buf> = (0..DEPTH_MAX).map(|_| pool.take(LEN_MAX)).collect();
        for (i, buf) in bufs.iter_mut().enumerate() {
            buf.iter_mut().enumerate().for_each(|(k, b)| *b = (k * 7 + i * 13 + 1) as u8);
        }
        Ok(Client { file, ring, bufs, size, next: 0, seed: 1 })
    }

    /// Runs `workload` for `time`; bytes a second.
    pub fn burst(&mut self, workload: &Workload, time: Duration) -> Result<f64> {
        let start = Instant::now();
        let mut done = 0u64;
        let mut open = 0;
        let mut free: Vec<usize> = (0..workload.depth).collect();
        loop {
            let over = start.elapsed() >= time;
            if over && open == 0 {
                break;
            }
            while let Some(index) = free.pop_if(|_| !over) {
                self.submit(workload, index)?;
                open += 1;
            }
            self.ring.submit_and_wait(1).map_err(|error| Error::io("io_uring", error))?;
            let completions: Vec<_> = self.ring.completion().collect();
            for completion in completions {
                if completion.result() != workload.len as i32 {
                    let code = completion.result();
                    return Err(Error::invalid(format!("a request came back with {code}")));
                }
                done += workload.len as u64;
                open -= 1;
                free.push(completion.user_data() as usize);
            }
        }
        Ok(done as f64 / start.elapsed().as_secs_f64())
    }

    fn submit(&mut self, workload: &Workload, index: usize) -> Result<()> {
        let places = self.size / workload.len as u64;
        let place = match workload.random {
            true => {
                self.seed = self.seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                (self.seed >> 20) % places
            }
            false => self.next % places,
        };
        self.next += 1;
        let at = place * workload.len as u64;
        let fd = types::Fd(self.file.as_raw_fd());
        let (memory, len) = (self.bufs[index].as_mut_ptr(), workload.len as u32);
        let entry = match workload.write {
            true => opcode::Write::new(fd, memory, len).offset(at).build(),
            false => opcode::Read::new(fd, memory, len).offset(at).build(),
        };
        // SAFETY: the buffer lives as long as the client, which waits for every request.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(index as u64)) };
        pushed.map_err(|_| Error::invalid("the ring is full"))
    }
}
