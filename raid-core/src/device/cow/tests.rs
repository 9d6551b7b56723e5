//! Overlays against a byte-array model, and what must never reach the member below.

use super::*;
use crate::device::conformance::{Rng, follow_the_model, scratch, sparse};
use crate::device::fault::FaultDevice;
use crate::device::file;
use crate::device::trace::{TraceDevice, Verb};
use crate::error::ErrorKind;
use std::path::PathBuf;

const SIZE: Sectors = Sectors(4096 + 5);

/// A base file of random bytes, its content, and a place for overlays.
fn base(dir: &Path) -> (PathBuf, Vec<u8>, PathBuf) {
    let path = dir.join("base.img");
    let mut bytes = vec![0; SIZE.len()];
    Rng(3).fill(&mut bytes);
    std::fs::write(&path, &bytes).unwrap();
    (path, bytes, dir.join("overlays"))
}

fn overlay(path: &Path, dir: &Path) -> CowDevice {
    CowDevice::open(file::open(path, &OpenOptions::reading()).unwrap(), dir, false).unwrap()
}

fn content(device: &dyn Device) -> Vec<u8> {
    let mut all = vec![0; device.facts().sectors.len()];
    read_at(device, Sectors::ZERO, &mut all).unwrap();
    all
}

#[test]
fn the_base_stays_as_it_was_and_changes_survive() {
    let scratch = scratch();
    let (path, bytes, dir) = base(scratch.path());
    let written = {
        let device = overlay(&path, &dir);
        follow_the_model(&device, 21, 200);
        content(&device)
    };
    assert!(written != bytes);
    assert!(std::fs::read(&path).unwrap() == bytes);
    assert!(content(&overlay(&path, &dir)) == written);
}

#[test]
fn a_part_of_a_block_brings_the_rest_along() {
    let scratch = scratch();
    let (path, bytes, dir) = base(scratch.path());
    for at in [0, 3, 7, 8, SIZE.0 - 1] {
        let device = overlay(&path, &dir);
        write_at(&device, Sectors(at), &[9; 512]).unwrap();
        let mut expected = bytes.clone();
        expected[at as usize * 512..][..512].fill(9);
        assert!(content(&device) == expected, "{at}");
        drop(device);
        assert!(content(&overlay(&path, &dir)) == expected, "{at}");
        list(&dir).unwrap()[0].remove().unwrap();
    }
}

/// The state of an overlay's files at some moment: what a crash leaves.
fn snapshot(dir: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn a_crash_loses_only_what_was_not_flushed() {
    let scratch = scratch();
    let (path, bytes, dir) = base(scratch.path());
    let device = overlay(&path, &dir);
    write_at(&device, Sectors(100), &[1; 512]).unwrap();
    device.flush().unwrap();
    write_at(&device, Sectors(200), &[2; 512]).unwrap();
    write_at(&device, Sectors(101), &[3; 512]).unwrap();
    let crashed = scratch.path().join("crashed");
    snapshot(&dir, &crashed);
    let mut expected = bytes;
    expected[100 * 512..101 * 512].fill(1);
    let found = content(&overlay(&path, &crashed));
    assert!(found[..101 * 512] == expected[..101 * 512]);
    assert!(found[102 * 512..] == expected[102 * 512..], "the map is not ahead of the data");
}

#[test]
fn a_commit_writes_the_changes_and_no_more() {
    let scratch = scratch();
    let (path, _, dir) = base(scratch.path());
    let device = overlay(&path, &dir);
    follow_the_model(&device, 5, 40);
    write_at(&device, SIZE - Sectors(1), &[4; 512]).unwrap();
    let (expected, changed) = (content(&device), device.changed());
    let found = &list(&dir).unwrap()[0];
    assert_eq!(found.remove().unwrap_err().kind, ErrorKind::Busy);
    drop(device);
    let found = &list(&dir).unwrap()[0];
    assert_eq!(found.base, path.canonicalize().unwrap().display().to_string());
    assert_eq!((found.changed, found.sectors), (changed, SIZE));
    let reading = file::open(&path, &OpenOptions::reading()).unwrap();
    assert_eq!(found.commit(&*reading).unwrap_err().kind, ErrorKind::ReadOnly);
    drop(reading);
    let target = TraceDevice::new(file::open(&path, &OpenOptions::default()).unwrap());
    found.commit(&target).unwrap();
    assert!(target.count(Verb::Write).sectors <= changed);
    assert_eq!(target.count(Verb::Flush).operations, 1);
    drop(target);
    assert!(std::fs::read(&path).unwrap() == expected);
    assert!(list(&dir).unwrap().is_empty());
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

#[test]
fn an_interrupted_commit_is_finished_by_the_next() {
    let scratch = scratch();
    let (path, bytes, dir) = base(scratch.path());
    let device = overlay(&path, &dir);
    for at in [0, 40, 80, 4000] {
        write_at(&device, Sectors(at), &[6; 512]).unwrap();
    }
    let expected = content(&device);
    drop(device);
    let open = || file::open(&path, &OpenOptions::default()).unwrap();
    let failing = FaultDevice::new(open(), "eio write from 3".parse().unwrap());
    let error = list(&dir).unwrap()[0].commit(&failing).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Io);
    drop(failing);
    let half = std::fs::read(&path).unwrap();
    assert!(half != bytes && half != expected);
    let found = &list(&dir).unwrap()[0];
    assert!(found.committing);
    assert_eq!(found.remove().unwrap_err().kind, ErrorKind::Refused);
    let base = file::open(&path, &OpenOptions::reading()).unwrap();
    let error = CowDevice::open(base, &dir, false).err().unwrap();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.to_string().contains("commit again"), "{error}");
    found.commit(&*open()).unwrap();
    assert!(std::fs::read(&path).unwrap() == expected);
}

#[test]
fn a_base_that_changed_is_refused() {
    let scratch = scratch();
    let (path, mut bytes, dir) = base(scratch.path());
    write_at(&overlay(&path, &dir), Sectors(9), &[1; 512]).unwrap();
    bytes[SIZE.len() - 1] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let open = || CowDevice::open(file::open(&path, &OpenOptions::reading())?, &dir, false);
    let error = open().err().unwrap();
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(error.to_string().contains("has changed"), "{error}");
    let found = &list(&dir).unwrap()[0];
    let target = file::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(found.commit(&*target).unwrap_err().kind, ErrorKind::Refused);
    drop(target);
    assert!(std::fs::read(&path).unwrap() == bytes);
    found.remove().unwrap();
    open().unwrap();
}

#[test]
fn one_directory_holds_overlays_of_many_bases() {
    let scratch = scratch();
    let dir = scratch.path().join("overlays");
    let mut paths = Vec::new();
    for number in 0..3u8 {
        let place = scratch.path().join(number.to_string());
        std::fs::create_dir(&place).unwrap();
        let path = place.join("same.img");
        std::fs::write(&path, vec![number; SIZE.len()]).unwrap();
        write_at(&overlay(&path, &dir), Sectors(9), &[number ^ 0xff; 512]).unwrap();
        paths.push(path);
    }
    assert_eq!(list(&dir).unwrap().len(), 3);
    let moved = scratch.path().join("same.img");
    std::fs::rename(&paths[1], &moved).unwrap();
    paths[1] = moved;
    for (number, path) in paths.iter().enumerate() {
        let mut buf = [0; 512];
        read_at(&overlay(path, &dir), Sectors(9), &mut buf).unwrap();
        assert_eq!(buf, [number as u8 ^ 0xff; 512]);
    }
    assert_eq!(list(&dir).unwrap().len(), 3);
}

#[test]
fn one_overlay_has_one_user() {
    let scratch = scratch();
    let (path, _, dir) = base(scratch.path());
    let _device = overlay(&path, &dir);
    let again = CowDevice::open(file::open(&path, &OpenOptions::reading()).unwrap(), &dir, false);
    assert_eq!(again.err().unwrap().kind, ErrorKind::Busy);
}

#[test]
fn damaged_maps_are_refused() {
    let scratch = scratch();
    let (path, _, dir) = base(scratch.path());
    drop(overlay(&path, &dir));
    let map = dir.join("base.img.map");
    let good = std::fs::read(&map).unwrap();
    let mut behind = good.clone();
    behind[4096 + 2000] = 1;
    for bad in [&b""[..], &good[..4096], &[&good[..], &[0]].concat(), &behind, &[7; 8192]] {
        std::fs::write(&map, bad).unwrap();
        let base = file::open(&path, &OpenOptions::reading()).unwrap();
        let error = CowDevice::open(base, &dir, false).err().unwrap();
        assert_eq!(error.kind, ErrorKind::Metadata, "{error}");
        assert!(error.to_string().contains("base.img.map"), "{error}");
    }
}

#[test]
fn the_base_may_be_read_only_and_sparse() {
    let scratch = scratch();
    let size = Sectors::floor_bytes(1 << 42);
    let path = sparse(scratch.path(), "large.img", size);
    let mut mode = std::fs::metadata(&path).unwrap().permissions();
    mode.set_readonly(true);
    std::fs::set_permissions(&path, mode).unwrap();
    let dir = scratch.path().join("overlays");
    for round in 0..2 {
        let device = overlay(&path, &dir);
        let at = size - Sectors(20);
        let mut buf = [1; 512];
        read_at(&device, at, &mut buf).unwrap();
        assert_eq!(buf, [7 * round; 512]);
        write_at(&device, at, &[7; 512]).unwrap();
        assert_eq!(device.changed(), BLOCK);
    }
}
