//! The ring against the verbs: same bytes, same errors, nothing left behind.

use super::*;
use crate::buf::Buf;
use crate::device::conformance::{Rng, scratch, shm, sparse};
use crate::device::file::{Direct, FileDevice, OpenOptions};
use crate::device::mem::MemDevice;
use crate::device::slice::SliceDevice;
use crate::device::trace::TraceDevice;
use crate::device::{Facts, Shared, read_at, write_at};
use crate::units::Sectors;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::AsRawFd;
use std::path::Path;

const SIZE: Sectors = Sectors(4096);

/// Everything that can go through a ring does.
const ALWAYS: RingOptions = RingOptions { entries: 8, transfers_min: 1, everywhere: true };

fn file(dir: &Path, name: &str, direct: Direct) -> Shared {
    let path = sparse(dir, name, SIZE);
    let options = OpenOptions { direct, ..OpenOptions::default() };
    Arc::new(FileDevice::open(&path, &options).unwrap())
}

/// A ring, or nothing and a word where this machine has none.
fn ring(pool: Option<&Pool>) -> Option<Ring> {
    let ring = Ring::new(pool, ALWAYS);
    match ring.0.ring() {
        Some(_) => Some(ring),
        None => {
            eprintln!("SKIPPED: io_uring: {}", ring.stats());
            None
        }
    }
}

/// One device of each sort, behind one another.
fn devices(dir: &Path, memory: &Path) -> Vec<Option<Shared>> {
    let inner = file(dir, "d.img", Direct::Auto);
    let devices: Vec<Shared> = vec![
        file(dir, "a.img", Direct::Auto),
        file(dir, "b.img", Direct::Off),
        file(memory, "c.img", Direct::Auto),
        Arc::new(SliceDevice::new(inner, Sectors(1024), Some(Sectors(2048))).unwrap()),
        Arc::new(MemDevice::new("m", SIZE).unwrap()),
        Arc::new(TraceDevice::new(file(dir, "e.img", Direct::Auto))),
    ];
    devices.into_iter().map(Some).collect()
}

/// A batch of operations that do not overlap, drawn from `seed`; the memory too.
fn random_batch(seed: u64, pool: &Pool, devices: usize) -> Vec<MemberIo> {
    let mut rng = Rng(seed);
    let mut batch = Vec::new();
    for device in 0..devices {
        let mut at = rng.below(40);
        for _ in 0..rng.below(6) {
            let len = 1 + rng.below(24);
            let mut whole = pool.take(Sectors(len).len() + 512);
            if rng.below(4) == 0 {
                // Memory that O_DIRECT may not like.
                drop(whole.split_to(rng.below(2) as usize * 512));
            }
            let mut whole = whole.split_to(Sectors(len).len());
            rng.fill(&mut whole);
            let head = whole.split_to(Sectors(rng.below(len + 1)).len());
            let pieces = [head, whole];
            batch.push(match rng.below(3) {
                0 => MemberIo::read(device, Sectors(at), pieces),
                1 => MemberIo::write(device, Sectors(at), pieces.map(Buf::freeze)),
                _ => MemberIo::write(device, Sectors(at + len), pieces.map(Buf::freeze)),
            });
            at += len * 2 + rng.below(3) / 2 * rng.below(300);
        }
        if rng.below(5) == 0 {
            batch.push(MemberIo::flush(device));
        }
        if rng.below(20) == 0 {
            batch.push(MemberIo::read(device, SIZE - Sectors(1), [pool.zeroed(1024)]));
        }
    }
    let count = batch.len();
    for i in (1..count).rev() {
        batch.swap(i, rng.below(i as u64 + 1) as usize);
    }
    batch
}

fn bytes_of(batch: &[MemberIo]) -> Vec<u8> {
    let mut all = Vec::new();
    for op in batch {
        if let Verb::Read(bufs) = &op.verb {
            bufs.iter().for_each(|b| all.extend_from_slice(b));
        }
    }
    all
}

fn content(device: &dyn Device) -> Vec<u8> {
    let mut all = vec![0; device.facts().sectors.len()];
    read_at(device, Sectors::ZERO, &mut all).unwrap();
    all
}

#[test]
fn a_file_cut_short_is_not_made_longer_by_a_ring() {
    let pool = Pool::new(1 << 20);
    let Some(ring) = ring(Some(&pool)) else { return };
    let dir = scratch();
    let whole = file(dir.path(), "a.img", Direct::Auto);
    let inner = file(dir.path(), "b.img", Direct::Auto);
    let window = SliceDevice::new(inner.clone(), Sectors(1024), Some(Sectors(2048))).unwrap();
    let devices: Vec<Option<Shared>> = vec![Some(whole), Some(Arc::new(window)), Some(inner)];
    for name in ["a.img", "b.img"] {
        let file = std::fs::File::options().write(true).open(dir.path().join(name)).unwrap();
        file.set_len(1 << 20).unwrap();
    }
    // Before the cut, up to it, behind it; the window begins at sector 1024.
    let places = [[0, 2040, 3000], [0, 1016, 2040], [8, 2040, 4000]];
    let write = |device, at| MemberIo::write(device, Sectors(at), [pool.zeroed(4096).freeze()]);
    let writes = places.iter().enumerate();
    let writes = writes.flat_map(|(device, places)| places.map(|at| write(device, at)));
    let mut batch: Vec<MemberIo> = writes.collect();
    batch.push(MemberIo::read(0, Sectors(0), [pool.zeroed(4096)]));
    let results = ring.run(&devices, &mut batch);
    for (index, result) in results.iter().enumerate() {
        match result {
            Ok(()) => assert_eq!(index, 9, "a write is refused, what is there can be read"),
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}"),
        }
    }
    for name in ["a.img", "b.img"] {
        assert_eq!(std::fs::metadata(dir.path().join(name)).unwrap().len(), 1 << 20);
    }
}

#[test]
fn the_ring_does_what_the_verbs_do() {
    let pool = Pool::new(1 << 20);
    let Some(ring) = ring(Some(&pool)) else { return };
    let dirs = [(); 2].map(|()| (scratch(), shm().unwrap_or_else(|_| scratch())));
    let [left, right] = dirs.each_ref().map(|(dir, memory)| devices(dir.path(), memory.path()));
    for seed in 1..150 {
        let mut one = random_batch(seed, &pool, left.len());
        let mut two = random_batch(seed, &Pool::new(0), right.len());
        let from_ring = ring.run(&left, &mut one);
        let from_verbs = Inline.run(&right, &mut two);
        for (index, (a, b)) in from_ring.iter().zip(&from_verbs).enumerate() {
            assert_eq!(a.is_ok(), b.is_ok(), "seed {seed}: {:?}: {a:?} {b:?}", one[index]);
        }
        assert!(bytes_of(&one) == bytes_of(&two), "seed {seed}");
    }
    for (a, b) in left.iter().flatten().zip(right.iter().flatten()) {
        assert!(content(&**a) == content(&**b), "{}", a.facts().name);
    }
    let stats = ring.stats();
    assert!(stats.ring > 500, "{stats}");
    assert!(stats.inline > 100, "{stats}");
    assert!(stats.fixed > 100 || stats.without_arena > 0, "{stats}");
    assert_eq!(stats.again, 0, "{stats}");
}

#[test]
fn batches_larger_than_the_ring_go_in_turns() {
    let Some(ring) = ring(None) else { return };
    let dir = scratch();
    let devices = [Some(file(dir.path(), "a.img", Direct::Auto))];
    let place = |i: u64| Sectors(i * 16);
    let mut batch: Vec<MemberIo> = (0..100)
        .map(|i| MemberIo::write(0, place(i), [Buf::copy_of(&[i as u8 + 1; 4096]).freeze()]))
        .collect();
    assert!(ring.run(&devices, &mut batch).iter().all(Result::is_ok));
    assert_eq!(ring.stats().ring, 100);
    for i in 0..100 {
        let mut buf = [0; 4096];
        read_at(&**devices[0].as_ref().unwrap(), place(i), &mut buf).unwrap();
        assert_eq!(buf, [i as u8 + 1; 4096]);
    }
}

/// A device whose descriptor is not what its verbs are: another file, or one that fails.
struct Apart {
    facts: Facts,
    _file: std::fs::File,
    inner: MemDevice,
    refuse: Option<Sectors>,
}

impl Apart {
    fn shared(fd: std::fs::File, refuse: Option<Sectors>) -> Shared {
        let facts = Facts { fd: Some(fd.as_raw_fd()), ..Facts::plain("apart", SIZE) };
        let inner = MemDevice::new("m", SIZE).unwrap();
        write_at(&inner, Sectors(0), &vec![7; SIZE.len()]).unwrap();
        Arc::new(Apart { facts, _file: fd, inner, refuse })
    }

    fn check(&self, at: Sectors, len: usize) -> io::Result<()> {
        let end = at + Sectors::floor_bytes(len as u64);
        match self.refuse {
            Some(bad) if at <= bad && bad < end => Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => Ok(()),
        }
    }
}

impl Device for Apart {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.check(at, bufs.iter().map(|b| b.len()).sum())?;
        self.inner.read(at, bufs)
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.check(at, bufs.iter().map(|b| b.len()).sum())?;
        self.inner.write(at, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        self.inner.discard(at, len)
    }
}

fn reads(pool: &Pool, places: &[u64]) -> Vec<MemberIo> {
    places.iter().map(|&at| MemberIo::read(0, Sectors(at), [pool.zeroed(4096)])).collect()
}

#[test]
fn a_short_transfer_is_finished_by_the_verbs() {
    let Some(ring) = ring(None) else { return };
    let short = tempfile::tempfile().unwrap();
    short.set_len(10 * 512).unwrap();
    let device = Apart::shared(short, None);
    let mut batch = reads(&Pool::new(0), &[0, 8, 100]);
    assert!(ring.run(&[Some(device)], &mut batch).iter().all(Result::is_ok));
    assert_eq!(bytes_of(&batch), [7; 3 * 4096]);
    assert_eq!(ring.stats().again, 2);
}

#[test]
fn one_bad_sector_fails_one_operation() {
    let Some(ring) = ring(None) else { return };
    let short = tempfile::tempfile().unwrap();
    let device = Apart::shared(short, Some(Sectors(12)));
    let mut batch = reads(&Pool::new(0), &[0, 8, 16, 100]);
    let ok: Vec<bool> = ring.run(&[Some(device)], &mut batch).iter().map(Result::is_ok).collect();
    assert_eq!(ok, [true, false, true, true]);
}

#[test]
fn a_hard_error_of_the_ring_is_the_result() {
    let Some(ring) = ring(None) else { return };
    // Reading a directory's descriptor fails with EISDIR, which no other way would change.
    let device = Apart::shared(std::fs::File::open("/").unwrap(), None);
    let mut batch = reads(&Pool::new(0), &[0]);
    let results = ring.run(&[Some(device)], &mut batch);
    assert_eq!(results[0].as_ref().unwrap_err().raw_os_error(), Some(libc::EISDIR));
    assert_eq!(ring.stats().again, 0);
}

#[test]
fn an_error_of_the_way_leads_to_the_verbs() {
    let Some(ring) = ring(None) else { return };
    let read_only = std::fs::File::open("/proc/self/exe").unwrap();
    let devices = [Some(Apart::shared(read_only, None))];
    let mut batch = [MemberIo::write(0, Sectors(1), [Buf::copy_of(&[9; 512]).freeze()])];
    assert!(ring.run(&devices, &mut batch)[0].is_ok());
    assert_eq!(ring.stats().again, 1);
    let mut buf = [0; 512];
    read_at(&**devices[0].as_ref().unwrap(), Sectors(1), &mut buf).unwrap();
    assert_eq!(buf, [9; 512]);
}

#[test]
fn where_no_ring_can_be_had_the_verbs_do_it() {
    let ring = Ring::new(None, RingOptions { entries: 0, ..ALWAYS });
    let dir = scratch();
    let devices = [Some(file(dir.path(), "a.img", Direct::Auto))];
    for _ in 0..2 {
        let mut batch = reads(&Pool::new(0), &[0, 100]);
        assert!(ring.run(&devices, &mut batch).iter().all(Result::is_ok));
    }
    let stats = ring.stats();
    assert_eq!((stats.refused, stats.ring, stats.inline), (libc::EINVAL, 0, 4));
    assert!(stats.to_string().contains("refused: Invalid argument"), "{stats}");
}

#[test]
fn members_in_the_page_cache_and_single_transfers_go_inline() {
    let dir = scratch();
    let ring = Ring::new(None, RingOptions::default());
    let direct = file(dir.path(), "a.img", Direct::Auto);
    let cached = file(dir.path(), "b.img", Direct::Off);
    assert!(!prefers_ring(&*cached));
    assert!(!prefers_ring(&TraceDevice::new(direct.clone())));
    let pool = Pool::new(0);
    assert!(ring.run(&[Some(cached)], &mut reads(&pool, &[0, 100])).iter().all(Result::is_ok));
    assert_eq!(ring.stats().ring, 0);
    if !prefers_ring(&*direct) {
        return eprintln!("SKIPPED: the scratch directory has no O_DIRECT that does not block");
    }
    let devices = [Some(direct)];
    assert!(ring.run(&devices, &mut reads(&pool, &[0])).iter().all(Result::is_ok));
    assert_eq!(ring.stats().ring, 0);
    assert!(ring.run(&devices, &mut reads(&pool, &[0, 100])).iter().all(Result::is_ok));
    assert_eq!(ring.stats().ring + ring.stats().refused as u64, 2);
}

#[test]
fn a_ring_does_not_outlive_its_thread_and_lets_members_go() {
    let Some(ring) = ring(None) else { return };
    let dir = scratch();
    let path = sparse(dir.path(), "x.img", SIZE);
    let open = || FileDevice::open(&path, &OpenOptions::default());
    let device: Shared = Arc::new(open().unwrap());
    assert_eq!(ring.stats().threads, 1);
    std::thread::scope(|scope| {
        let (ring, device) = (&ring, &device);
        let thread = scope.spawn(move || {
            let devices = [Some(device.clone())];
            assert!(ring.run(&devices, &mut reads(&Pool::new(0), &[0]))[0].is_ok());
            assert_eq!(ring.stats().threads, 2);
        });
        thread.join().unwrap();
    });
    assert_eq!(ring.stats().threads, 1);
    let devices = [Some(device)];
    assert!(ring.run(&devices, &mut reads(&Pool::new(0), &[0]))[0].is_ok());
    drop(devices);
    ring.release();
    // The kernel closes a ring's files in the background.
    let free = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        open().is_ok()
    });
    assert!(free, "the lock went with the member");
}

#[test]
fn another_member_in_the_same_place_is_another_file() {
    let Some(ring) = ring(None) else { return };
    let dir = scratch();
    for name in ["a.img", "b.img", "c.img"] {
        let devices = [Some(file(dir.path(), name, Direct::Auto))];
        let byte = name.as_bytes()[0];
        let view = Buf::copy_of(&[byte; 4096]).freeze();
        assert!(ring.run(&devices, &mut [MemberIo::write(0, Sectors(8), [view])])[0].is_ok());
        let written = content(&**devices[0].as_ref().unwrap());
        assert!(written[4096..8192].iter().all(|&b| b == byte), "{name}");
    }
}

#[test]
fn threads_run_batches_at_once() {
    let pool = Pool::new(1 << 20);
    let Some(ring) = ring(Some(&pool)) else { return };
    let dir = scratch();
    let devices = ["a.img", "b.img"].map(|name| Some(file(dir.path(), name, Direct::Auto)));
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (ring, devices, pool) = (&ring, &devices, &pool);
            scope.spawn(move || {
                for round in 0..20u8 {
                    let at = Sectors(u64::from(thread) * 512);
                    let mut buf = pool.take(8192);
                    buf.fill(thread * 20 + round);
                    let view = buf.freeze();
                    let mut batch = [0, 1].map(|d| MemberIo::write(d, at, [view.clone()]));
                    assert!(ring.run(devices, &mut batch).iter().all(Result::is_ok));
                    let mut batch = [0, 1].map(|d| MemberIo::read(d, at, [pool.take(8192)]));
                    assert!(ring.run(devices, &mut batch).iter().all(Result::is_ok));
                    assert!(bytes_of(&batch).iter().all(|&b| b == thread * 20 + round));
                }
            });
        }
    });
    let stats = ring.stats();
    assert_eq!((stats.again, stats.inline), (0, 0), "{stats}");
}

#[test]
fn a_verb_that_panics_does_not_leave_the_kernel_with_our_memory() {
    struct Panics(Facts);
    impl Device for Panics {
        fn facts(&self) -> &Facts {
            &self.0
        }
        fn read(&self, _: Sectors, _: &mut [IoSliceMut<'_>]) -> io::Result<()> {
            panic!("as a test wants it")
        }
        fn write(&self, _: Sectors, _: &[IoSlice<'_>]) -> io::Result<()> {
            Ok(())
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
        fn discard(&self, _: Sectors, _: Sectors) -> io::Result<()> {
            Ok(())
        }
    }
    let Some(ring) = ring(None) else { return };
    let dir = scratch();
    let broken: Shared = Arc::new(Panics(Facts::plain("p", SIZE)));
    let devices = [Some(file(dir.path(), "a.img", Direct::Auto)), Some(broken)];
    let pool = Pool::new(0);
    let mut batch = reads(&pool, &[0]);
    batch.push(MemberIo::read(1, Sectors(0), [pool.take(512)]));
    let run = std::panic::AssertUnwindSafe(|| ring.run(&devices, &mut batch));
    assert!(std::panic::catch_unwind(run).is_err());
    assert!(ring.run(&devices, &mut reads(&pool, &[0, 100])).iter().all(Result::is_ok));
}
