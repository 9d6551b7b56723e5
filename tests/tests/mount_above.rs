//! What people put on the volume file: loop devices, file systems, FUSE servers. None may hang.

use raid_fuse::export::options::{Cache, Options};
use raid_tests::mount::*;
use raid_tests::requires::{Need, met};
use raid_tests::volume::Memory;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SIZE: u64 = (48 << 20) + 512 * 3;

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.flatten().take(len).collect()
}

/// Makes a file system on `device`, fills it through the kernel, and checks it.
fn use_ext4(device: &str, dir: &Path) {
    let point = dir.join("fs");
    fs::create_dir(&point).unwrap();
    fine(&format!("mkfs.ext4 -q -F {device}"));
    fine(&format!("mount {device} {}", point.display()));
    let unmount = Cleanup(format!("umount {}", point.display()));
    let data = noise(9 << 20);
    for name in ["a", "b", "c"] {
        fs::write(point.join(name), &data).unwrap();
    }
    fine(&format!("sync -f {}", point.display()));
    drop(unmount);
    fine(&format!("e2fsck -f -n {device}"));
    fine(&format!("mount {device} {}", point.display()));
    let unmount = Cleanup(format!("umount {}", point.display()));
    for name in ["a", "b", "c"] {
        assert!(fs::read(point.join(name)).unwrap() == data);
    }
    drop(unmount);
}

#[test]
fn loop_devices_with_a_file_system() {
    if !met(&[Need::Fuse, Need::Loop, Need::Ext4]) {
        return;
    }
    for (direct, cache) in
        [("on", Cache::None), ("off", Cache::None), ("on", Cache::Read), ("off", Cache::Writeback)]
    {
        eprintln!("loop direct-io={direct}, cache {cache:?}");
        let volume = Arc::new(Memory::new(SIZE));
        let options = Options { cache, ..Options::default() };
        let mut mount = TestMount::with(volume.clone(), &options);
        let dir = tempfile::tempdir().unwrap();
        let file = mount.file().display().to_string();
        let device = fine(&format!("losetup --find --show --direct-io={direct} {file}"));
        let device = device.trim();
        let detach = Cleanup(format!("losetup -d {device}"));
        let size = fine(&format!("blockdev --getsize64 {device}"));
        assert_eq!(size.trim().parse::<u64>().unwrap(), SIZE);
        use_ext4(device, dir.path());
        assert!(volume.flushes.load(Ordering::SeqCst) > 0, "flushes of the file system arrive");
        let busy = mount.mounted.unmount().unwrap_err().to_string();
        assert!(busy.contains(&format!("losetup -d {device}")), "{busy}");
        drop(detach);
        wait_until_free(&mut mount);
        let image = dir.path().join("image");
        fs::write(&image, volume.bytes()).unwrap();
        fine(&format!("e2fsck -f -n {}", image.display()));
    }
}

/// The kernel lets go of a loop device's file a moment after `losetup -d`.
fn wait_until_free(mount: &mut TestMount) {
    for _ in 0..200 {
        match mount.mounted.unmount() {
            Ok(()) => return,
            Err(error) if error.kind == raid_core::error::ErrorKind::Busy => {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the mount stays busy");
}

#[test]
fn a_loop_device_survives_the_end_of_its_volume() {
    if !met(&[Need::Fuse, Need::Loop]) {
        return;
    }
    let (_, mut mount) = memory(1 << 20);
    let device = fine(&format!("losetup --find --show {}", mount.file().display()));
    let device = device.trim();
    let detach = Cleanup(format!("losetup -d {device}"));
    fine(&format!("dd if={device} of=/dev/null bs=64k status=none"));
    mount.mounted.stop(std::time::Duration::from_millis(100)).unwrap();
    let read = run(&format!("dd if={device} of=/dev/null bs=64k iflag=direct status=none"));
    assert!(!read.status.success(), "an error, not a hang");
    drop(detach);
}

#[test]
fn a_file_system_in_userspace_on_the_volume() {
    if !met(&[Need::Fuse, Need::Fuse2fs, Need::Ext4]) {
        return;
    }
    let (volume, mut mount) = memory(SIZE);
    let file = mount.file().display().to_string();
    fine(&format!("mkfs.ext4 -q -F {file}"));
    let dir = tempfile::tempdir().unwrap();
    let point = dir.path().display().to_string();
    fine(&format!("fuse2fs -o fakeroot {file} {point}"));
    let unmount = Cleanup(format!("fusermount3 -u {point}"));
    let data = noise(5 << 20);
    fs::write(dir.path().join("data"), &data).unwrap();
    assert!(fs::read(dir.path().join("data")).unwrap() == data);
    drop(unmount);
    wait_until_free(&mut mount);
    let image = dir.path().join("image");
    fs::write(&image, volume.bytes()).unwrap();
    fine(&format!("e2fsck -f -p {}", image.display()));
    let listed = fine(&format!("debugfs -R ls {}", image.display()));
    assert!(listed.contains("data"), "{listed}");
}

#[test]
fn file_system_programs_work_on_the_file_itself() {
    if !met(&[Need::Fuse, Need::Ext4]) {
        return;
    }
    for cache in [Cache::None, Cache::Read, Cache::Writeback] {
        let volume = Arc::new(Memory::new(SIZE));
        let mount = TestMount::with(volume, &Options { cache, ..Options::default() });
        let file = mount.file().display().to_string();
        fine(&format!("mkfs.ext4 -q -F {file}"));
        fine(&format!("e2fsck -f -n {file}"));
        let blkid = fine(&format!("blkid -p {file}"));
        assert!(blkid.contains("TYPE=\"ext4\""), "{cache:?}: {blkid}");
    }
}
