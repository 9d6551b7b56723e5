//! One suite for every kind of device: the same operations on the device and on a byte array.
//!
//! A new kind is one line in [`kinds`]. Kinds that this machine cannot make (a loop device without
//! root) are skipped with the reason.

use super::cow::{CowDevice, MemoryOverlay};
use super::fault::FaultDevice;
use super::file::{self, Direct, FileDevice, OpenOptions};
use super::mem::MemDevice;
use super::slice::SliceDevice;
use super::trace::TraceDevice;
use super::{Device, Shared, read_at, write_at};
use crate::buf::Pool;
use crate::units::Sectors;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Size of every device of the suite: more than the largest request, not a multiple of a MiB.
const SIZE: Sectors = Sectors(8192 + 8);

/// A device and what must stay alive beside it.
pub(crate) struct Made {
    pub(crate) device: Shared,
    _dir: Option<TempDir>,
    _loop: Option<LoopDevice>,
}

type Kind = (&'static str, fn() -> Result<Made, String>);

/// Every kind of device there is.
fn kinds() -> Vec<Kind> {
    vec![
        ("memory", || Ok(alone(memory(SIZE)))),
        ("window of memory", || Ok(alone(window(memory(SIZE + Sectors(99)))))),
        ("window of a file", || {
            let dir = scratch();
            let path = sparse(dir.path(), "a.img", SIZE + Sectors(99));
            Ok(in_dir(window(file::open(&path, &OpenOptions::default()).unwrap()), dir))
        }),
        ("faults that never come", || {
            let plan = "eio read on 1000000; delay 1us from 1000000".parse().unwrap();
            Ok(alone(Arc::new(FaultDevice::new(memory(SIZE), plan))))
        }),
        ("overlay", || {
            let dir = scratch();
            let path = sparse(dir.path(), "a.img", SIZE);
            let base = file::open(&path, &OpenOptions::reading()).unwrap();
            let device = CowDevice::open(base, &dir.path().join("overlay"), false).unwrap();
            Ok(in_dir(Arc::new(device), dir))
        }),
        ("overlay in memory", || Ok(alone(Arc::new(MemoryOverlay::new(memory(SIZE)))))),
        ("trace", || Ok(alone(Arc::new(TraceDevice::new(memory(SIZE)))))),
        ("file, automatic", || Ok(file_in(scratch(), Direct::Auto))),
        ("file, page cache", || Ok(file_in(scratch(), Direct::Off))),
        ("file in memory", || shm().map(|dir| file_in(dir, Direct::Auto))),
        ("file in memory, direct", || shm().map(|dir| file_in(dir, Direct::On))),
        ("block device, 512", || block_device(512)),
        ("block device, 4096", || block_device(4096)),
    ]
}

fn memory(size: Sectors) -> Shared {
    Arc::new(MemDevice::new("m", size).unwrap())
}

fn window(inner: Shared) -> Shared {
    Arc::new(SliceDevice::new(inner, Sectors(33), Some(SIZE)).unwrap())
}

pub(crate) fn alone(device: Shared) -> Made {
    Made { device, _dir: None, _loop: None }
}

pub(crate) fn in_dir(device: Shared, dir: TempDir) -> Made {
    Made { device, _dir: Some(dir), _loop: None }
}

/// A scratch directory on whatever disk the machine's temporary files are.
pub(crate) fn scratch() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A scratch directory in memory.
pub(crate) fn shm() -> Result<TempDir, String> {
    tempfile::tempdir_in("/dev/shm").map_err(|e| format!("/dev/shm: {e}"))
}

/// A sparse file of `sectors` in `dir`.
pub(crate) fn sparse(dir: &Path, name: &str, sectors: Sectors) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(sectors.bytes()).unwrap();
    path
}

fn file_in(dir: TempDir, direct: Direct) -> Made {
    let path = sparse(dir.path(), "a.img", SIZE);
    let options = OpenOptions { direct, ..OpenOptions::default() };
    in_dir(Arc::new(FileDevice::open(&path, &options).unwrap()), dir)
}

fn block_device(block: u32) -> Result<Made, String> {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let attached = LoopDevice::attach(&path, block)?;
    let device = FileDevice::open(&attached.path, &OpenOptions::default()).unwrap();
    assert_eq!(device.facts().fd_align, block as usize);
    Ok(Made { device: Arc::new(device), _dir: Some(dir), _loop: Some(attached) })
}

/// A loop device, taken down on drop.
pub(crate) struct LoopDevice {
    pub(crate) path: PathBuf,
}

impl LoopDevice {
    /// Attaches `file`, with logical blocks of `block` bytes.
    pub(crate) fn attach(file: &Path, block: u32) -> Result<LoopDevice, String> {
        LoopDevice::with_options(file, &["--sector-size", &block.to_string()])
    }

    /// The same, `options` as typed after losetup.
    pub(crate) fn with_options(file: &Path, options: &[&str]) -> Result<LoopDevice, String> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(file)
            .output()
            .map_err(|e| format!("losetup: {e}"))?;
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).trim().to_string());
        }
        Ok(LoopDevice { path: String::from_utf8(made.stdout).unwrap().trim().into() })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.path).status();
    }
}

/// A small generator of numbers that look random (xorshift64*), from a seed.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn fill(&mut self, buf: &mut [u8]) {
        for byte in buf {
            *byte = self.next() as u8;
        }
    }
}

fn for_every_kind(test: fn(&str, &dyn Device)) {
    for (name, make) in kinds() {
        match make() {
            Ok(made) => test(name, &*made.device),
            Err(why) => eprintln!("SKIPPED: {name}: {why}"),
        }
    }
}

#[test]
fn reads_what_was_written_whatever_the_shape() {
    for_every_kind(|name, device| {
        eprintln!("{name}");
        follow_the_model(device, 0x5eed, 300);
    });
}

/// Random requests of many shapes against a byte array.
pub(crate) fn follow_the_model(device: &dyn Device, seed: u64, count: usize) {
    let size = device.facts().sectors;
    let mut model = vec![0u8; size.len()];
    read_at(device, Sectors::ZERO, &mut model).unwrap();
    let mut rng = Rng(seed);
    let pool = Pool::new(0);
    for step in 0..count {
        let len = 1 + rng.below([8, 64, 512, 4096][step % 4]);
        let len = len.min(size.0);
        let at = rng.below(size.0 - len + 1);
        let (at, len) = if step % 3 == 0 { (at / 8 * 8, len) } else { (at, len) };
        let bytes = Sectors(len).len();
        let range = Sectors(at).len()..Sectors(at).len() + bytes;
        let skew = [0, 1, 512, 2048, 17][rng.below(5) as usize];
        let mut memory = pool.take(bytes + skew);
        let memory = &mut memory[skew..];
        if rng.below(2) == 0 {
            rng.fill(memory);
            model[range].copy_from_slice(memory);
            device.write(Sectors(at), &cut(memory, &mut rng)).unwrap();
        } else {
            memory.fill(0xa5);
            let mut pieces = cut_mut(memory, &mut rng);
            device.read(Sectors(at), &mut pieces).unwrap();
            assert!(memory == &model[range], "step {step}, seed {seed}: {len} sectors at {at}");
        }
        if step % 50 == 49 {
            device.flush().unwrap();
        }
    }
    let mut whole = vec![0; size.len()];
    read_at(device, Sectors::ZERO, &mut whole).unwrap();
    assert!(whole == model, "seed {seed}: the whole device");
}

/// `memory` in pieces of odd sizes, some of them empty.
fn cut<'a>(mut memory: &'a [u8], rng: &mut Rng) -> Vec<IoSlice<'a>> {
    let mut pieces = vec![IoSlice::new(&[])];
    while !memory.is_empty() {
        let now = piece_len(memory.len(), rng);
        let (head, rest) = memory.split_at(now);
        pieces.push(IoSlice::new(head));
        memory = rest;
    }
    pieces
}

fn cut_mut<'a>(mut memory: &'a mut [u8], rng: &mut Rng) -> Vec<IoSliceMut<'a>> {
    let mut pieces = vec![IoSliceMut::new(&mut [])];
    while !memory.is_empty() {
        let now = piece_len(memory.len(), rng);
        let (head, rest) = memory.split_at_mut(now);
        pieces.push(IoSliceMut::new(head));
        memory = rest;
    }
    pieces
}

fn piece_len(left: usize, rng: &mut Rng) -> usize {
    let wanted = match rng.below(4) {
        0 => left,
        1 => 4096,
        2 => 512 * (1 + rng.below(16) as usize),
        _ => 1 + rng.below(3000) as usize,
    };
    wanted.min(left)
}

#[test]
fn more_buffers_than_one_system_call_takes() {
    for_every_kind(|name, device| {
        let mut out = vec![0u8; 2500 * 512];
        Rng(9).fill(&mut out);
        let pieces: Vec<IoSlice> = out.chunks(512).map(IoSlice::new).collect();
        device.write(Sectors(3), &pieces).unwrap();
        let mut back = Pool::new(0).take(out.len());
        let mut pieces: Vec<IoSliceMut> = back.chunks_mut(512).map(IoSliceMut::new).collect();
        device.read(Sectors(3), &mut pieces).unwrap();
        assert!(*back == out, "{name}");
    });
}

#[test]
fn nothing_moves_past_the_end() {
    for_every_kind(|name, device| {
        let end = device.facts().sectors;
        let mut buf = [3u8; 1024];
        for at in [end, end - Sectors(1), Sectors(u64::MAX), Sectors(u64::MAX / 512)] {
            let read = read_at(device, at, &mut buf).unwrap_err();
            let write = write_at(device, at, &buf).unwrap_err();
            let discard = device.discard(at, Sectors(2)).unwrap_err();
            for error in [read, write, discard] {
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name} {at}: {error}");
            }
        }
        assert!(device.discard(Sectors(1), Sectors(u64::MAX)).is_err());
        assert!(read_at(device, Sectors(0), &mut buf[..100]).is_err(), "{name}: part of a sector");
        assert!(write_at(device, Sectors(0), &buf[..513]).is_err(), "{name}: part of a sector");
        read_at(device, end, &mut []).unwrap();
        write_at(device, end, &[]).unwrap();
        read_at(device, end - Sectors(2), &mut buf).unwrap();
        assert_eq!(buf, [0; 1024], "{name}");
    });
}

#[test]
fn threads_do_not_disturb_each_other() {
    for_every_kind(|name, device| {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || alternate_sectors(name, device, thread));
            }
        });
        let mut buf = [0; 512];
        for sector in 0..256 {
            read_at(device, Sectors(sector), &mut buf).unwrap();
            assert_eq!(buf, [(sector % 4 + 1) as u8; 512], "{name}: sector {sector}");
        }
    });
}

/// Writes every fourth sector and reads it back, so that threads share every block and page.
fn alternate_sectors(name: &str, device: &dyn Device, thread: u64) {
    let mine = [thread as u8 + 1; 512];
    for round in 0..4 {
        for sector in (thread..256).step_by(4) {
            let mut buf = Pool::new(0).take(4096 + 512);
            let buf = &mut buf[if round % 2 == 0 { 0 } else { 9 }..][..512];
            buf.copy_from_slice(&mine);
            write_at(device, Sectors(sector), buf).unwrap();
            buf.fill(0);
            read_at(device, Sectors(sector), buf).unwrap();
            assert_eq!(buf, &mine, "{name}: sector {sector}");
        }
    }
}

#[test]
fn discarded_ranges_can_be_used_again() {
    for_every_kind(|name, device| {
        write_at(device, Sectors(0), &[1; 64 << 10]).unwrap();
        device.discard(Sectors(3), Sectors(100)).unwrap();
        device.discard(Sectors(7), Sectors(0)).unwrap();
        let mut buf = vec![0; 64 << 10];
        read_at(device, Sectors(0), &mut buf).unwrap();
        assert!(buf[..3 * 512].iter().all(|&b| b == 1), "{name}: before");
        assert!(buf[103 * 512..].iter().all(|&b| b == 1), "{name}: behind");
        write_at(device, Sectors(3), &[2; 512]).unwrap();
        read_at(device, Sectors(3), &mut buf[..512]).unwrap();
        assert_eq!(buf[..512], [2; 512], "{name}");
    });
}
