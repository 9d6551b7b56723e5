//! A mount from its beginning to its end: refused, busy, unmounted by others, broken.

use raid_core::error::ErrorKind;
use raid_fuse::export::null::Null;
use raid_fuse::export::options::Options;
use raid_fuse::mounted::{Event, mount_volume};
use raid_tests::mount::*;
use raid_tests::requires::{Need, met};
use raid_tests::volume::Memory;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn refused(path: &std::path::Path) -> (ErrorKind, String) {
    let volume = Arc::new(Memory::new(4096));
    match mount_volume(volume, path, &Options::default()) {
        Ok(_) => panic!("{} was mounted on", path.display()),
        Err(error) => (error.kind, error.to_string()),
    }
}

#[test]
fn places_that_cannot_be_mounted_on_are_named() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"x").unwrap();
    let (kind, text) = refused(dir.path());
    assert_eq!(kind, ErrorKind::Refused);
    assert!(text.contains("not empty") && text.contains("file"), "{text}");
    let (kind, text) = refused(&file);
    assert!(kind == ErrorKind::Invalid && text.contains("not a directory"), "{text}");
    let (kind, text) = refused(&dir.path().join("none"));
    assert!(kind == ErrorKind::Invalid && text.contains("mkdir"), "{text}");
    let (_, mount) = memory(4096);
    let (kind, text) = refused(mount.dir());
    assert!(kind == ErrorKind::Busy && text.contains("raid-fuse unmount"), "{text}");
}

#[test]
fn a_busy_mount_stays_and_says_who_holds_it() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mut mount) = memory(1 << 20);
    let file = File::options().write(true).open(mount.file()).unwrap();
    let error = mount.mounted.unmount().unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind, ErrorKind::Busy);
    assert!(text.contains(&format!("pid {}", std::process::id())), "{text}");
    assert!(text.contains("volume"), "{text}");
    file.write_at(b"still here", 0).unwrap();
    drop(file);
    mount.mounted.unmount().unwrap();
    assert!(volume.flushes.load(Ordering::SeqCst) >= 1);
    assert_eq!(fs::read_dir(mount.dir()).unwrap().count(), 0);
}

#[test]
fn stopping_ends_a_busy_mount_after_its_grace() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mut mount) = memory(1 << 20);
    let file = File::options().read(true).write(true).open(mount.file()).unwrap();
    file.write_at(b"last words", 0).unwrap();
    let start = Instant::now();
    mount.mounted.stop(Duration::from_millis(300)).unwrap();
    assert!(start.elapsed() >= Duration::from_millis(300));
    assert!(volume.flushes.load(Ordering::SeqCst) >= 1);
    assert!(volume.bytes().starts_with(b"last words"));
    assert!(file.write_at(b"too late", 0).is_err());
    assert!(volume.bytes().starts_with(b"last words"));
}

#[test]
fn users_who_close_within_the_grace_lose_nothing() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mut mount) = memory(1 << 20);
    let file = File::options().write(true).open(mount.file()).unwrap();
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        file.write_all_at(b"in time", 0).unwrap();
    });
    let start = Instant::now();
    mount.mounted.stop(Duration::from_secs(30)).unwrap();
    assert!(start.elapsed() < Duration::from_secs(20));
    user.join().unwrap();
    assert!(volume.bytes().starts_with(b"in time"));
}

#[test]
fn unmounting_from_outside_is_noticed() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mut mount) = memory(1 << 20);
    fs::write(mount.file(), b"data").unwrap();
    fine(&format!("fusermount3 -u {}", mount.dir().display()));
    assert!(volume.bytes().starts_with(b"data"));
    assert_eq!(mount.mounted.wait(), Event::Ended);
    let before = volume.flushes.load(Ordering::SeqCst);
    mount.mounted.unmount().unwrap();
    assert_eq!(volume.flushes.load(Ordering::SeqCst), before + 1);
}

#[test]
fn a_mount_over_ours_is_never_taken_down() {
    if !met(&[Need::Fuse, Need::Root]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let shown = dir.path().display().to_string();
    let volume = Arc::new(Memory::new(4096));
    let mounted = mount_volume(volume, dir.path(), &Options::default()).unwrap();
    let cleanup = Cleanup(format!("umount {shown}; umount -l {shown} 2>/dev/null; true"));
    fine(&format!("mount -t tmpfs none {shown}"));
    fs::write(dir.path().join("theirs"), b"x").unwrap();
    drop(mounted);
    assert!(dir.path().join("theirs").exists());
    drop(cleanup);
}

#[test]
fn a_bug_in_a_request_ends_the_mount_instead_of_hanging_it() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mut mount) = memory(1 << 20);
    let file = File::open(mount.file()).unwrap();
    volume.buggy.store(true, Ordering::SeqCst);
    let mut buf = [0; 512];
    let errno = file.read_at(&mut buf, 0).unwrap_err().raw_os_error();
    assert_eq!(errno, Some(libc::EIO));
    assert_eq!(mount.mounted.wait(), Event::Failed);
    volume.buggy.store(false, Ordering::SeqCst);
    assert!(file.read_at(&mut buf, 0).is_err(), "nothing is answered after a bug");
    let error = mount.mounted.stop(Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("told to have a bug"), "{error}");
    assert_eq!(volume.flushes.load(Ordering::SeqCst), 0, "nothing is marked clean");
}

#[test]
fn the_null_volume_mounts() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let mut mount = TestMount::new(Arc::new(Null::new(1 << 30)));
    let file = File::options().read(true).write(true).open(mount.file()).unwrap();
    let mut buf = vec![1; 1 << 20];
    file.write_all_at(&buf, 5 << 20).unwrap();
    file.read_exact_at(&mut buf, 5 << 20).unwrap();
    assert!(buf.iter().all(|&byte| byte == 0));
    drop(file);
    mount.mounted.unmount().unwrap();
}
