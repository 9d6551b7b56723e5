//! The files of a mount, seen through the kernel: every edge of reading, writing and the end.

use raid_fuse::export::options::{Cache, Options};
use raid_tests::mount::*;
use raid_tests::requires::{Need, is_root, met};
use raid_tests::volume::{Memory, pattern};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const MODES: [Cache; 3] = [Cache::None, Cache::Read, Cache::Writeback];

fn mount(size: u64, cache: Cache) -> (Arc<Memory>, TestMount) {
    let volume = Arc::new(Memory::new(size));
    let mount = TestMount::with(volume.clone(), &Options { cache, ..Options::default() });
    (volume, mount)
}

fn errno<T: std::fmt::Debug>(answer: io::Result<T>) -> i32 {
    answer.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn reads_around_the_end() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for size in [512, 4096, 5000, (1 << 20) + 512, 3 * 512 * 1001] {
        for cache in MODES {
            let (volume, mount) = mount(size, cache);
            let file = File::open(mount.file()).unwrap();
            let bytes = volume.bytes();
            let mut buf = vec![0; (3 << 20) + 17];
            for at in [0, 1, size / 2, size - 1, size, size + 1, size + 4096, 1 << 62] {
                for len in [0, 1, 511, 4096, buf.len() - 1] {
                    let got = file.read_at(&mut buf[..len], at).unwrap();
                    let want = &bytes[at.min(size) as usize..];
                    let want = &want[..want.len().min(len)];
                    assert_eq!(got, want.len(), "size {size} {cache:?} at {at} len {len}");
                    assert!(buf[..got] == *want, "size {size} {cache:?} at {at} len {len}");
                }
            }
            assert_eq!(fs::read(mount.file()).unwrap(), bytes);
        }
    }
}

#[test]
fn direct_reads_past_the_end_answer_zero_bytes() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (_, mount) = memory(4096 * 3 + 512);
    let file = File::options().read(true).custom_flags(libc::O_DIRECT).open(mount.file()).unwrap();
    let mut buf = vec![0u8; 1 << 20];
    for (at, want) in [(0, 12800), (12288, 512), (12800, 0), (16384, 0)] {
        assert_eq!(file.read_at(&mut buf, at).unwrap(), want, "at {at}");
    }
}

#[test]
fn writes_around_the_end_never_extend() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let size = 3 * 4096 + 512;
    for cache in [Cache::None, Cache::Read] {
        let (volume, mount) = mount(size, cache);
        let file = File::options().read(true).write(true).open(mount.file()).unwrap();
        let mut want = volume.bytes();
        for (at, len, fits) in [(0, 1, 1), (511, 2, 2), (4000, 5000, 5000), (size - 1, 1, 1)] {
            want[at as usize..][..fits].fill(0xEE);
            assert_eq!(file.write_at(&vec![0xEE; len], at).unwrap(), fits);
        }
        want[size as usize - 100..].fill(0xDD);
        assert_eq!(file.write_at(&[0xDD; 300], size - 100).unwrap(), 100, "cut at the end");
        for at in [size, size + 1, size + (1 << 30)] {
            assert_eq!(errno(file.write_at(b"x", at)), libc::ENOSPC, "at {at} {cache:?}");
        }
        let mut append = File::options().append(true).open(mount.file()).unwrap();
        assert_eq!(errno(append.write(b"x")), libc::ENOSPC);
        assert_eq!(fs::metadata(mount.file()).unwrap().len(), size);
        assert!(volume.bytes() == want);
        assert!(fs::read(mount.file()).unwrap() == want);
    }
}

#[test]
fn the_page_cache_reports_a_write_across_the_end_at_fsync() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mount) = mount(8192 + 512, Cache::Writeback);
    let file = File::options().write(true).open(mount.file()).unwrap();
    file.write_at(&[1; 2048], 8192).unwrap();
    assert!(file.sync_all().is_err());
    assert!(volume.bytes()[8192..] == [1; 512]);
    file.write_at(&[2; 4096], 4096).unwrap();
    file.sync_all().unwrap();
    assert!(volume.bytes()[4096..8192] == [2; 4096]);
}

#[test]
fn fsync_reaches_flush_exactly() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for cache in MODES {
        let (volume, mount) = mount(1 << 20, cache);
        let flushes = || volume.flushes.swap(0, Ordering::SeqCst);
        let file = File::options().read(true).write(true).open(mount.file()).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        assert_eq!(flushes(), 0, "{cache:?}: a write alone");
        file.sync_all().unwrap();
        assert_eq!(flushes(), 1, "{cache:?}: fsync");
        file.sync_data().unwrap();
        assert_eq!(flushes(), 1, "{cache:?}: fdatasync");
        drop(file);
        assert_eq!(flushes(), 0, "{cache:?}: close with nothing new");
        let file = File::options().write(true).open(mount.file()).unwrap();
        file.write_at(&[1; 4096], 0).unwrap();
        drop(file);
        assert_eq!(flushes(), 1, "{cache:?}: close after writing");
        let file = File::open(mount.file()).unwrap();
        drop(file);
        assert_eq!(flushes(), 0, "{cache:?}: close after reading");
        File::open(mount.dir()).unwrap().sync_all().unwrap();
        assert_eq!(flushes(), 1, "{cache:?}: fsync of the directory");
    }
}

#[test]
fn synchronous_writes_flush_before_they_return() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mount) = memory(1 << 20);
    for flags in [libc::O_SYNC, libc::O_DSYNC] {
        let file = File::options().write(true).custom_flags(flags).open(mount.file()).unwrap();
        for count in 1..=3 {
            file.write_at(&[1; 512], 512).unwrap();
            assert_eq!(volume.flushes.load(Ordering::SeqCst), count);
        }
        volume.flushes.store(0, Ordering::SeqCst);
    }
    let file = File::options().write(true).open(mount.file()).unwrap();
    let data = [7u8; 512];
    let piece = libc::iovec { iov_base: data.as_ptr() as *mut _, iov_len: data.len() };
    // SAFETY: one valid piece of memory that outlives the call.
    let wrote = unsafe { libc::pwritev2(file.as_raw_fd(), &piece, 1, 0, libc::RWF_DSYNC) };
    assert_eq!(wrote, 512, "{}", io::Error::last_os_error());
    assert_eq!(volume.flushes.load(Ordering::SeqCst), 1, "RWF_DSYNC of one write");
}

#[test]
fn a_failed_request_is_eio_and_never_short() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for cache in [Cache::None, Cache::Read] {
        let (volume, mount) = mount(1 << 20, cache);
        *volume.bad.lock().unwrap() = 300_000..300_001;
        let file = File::options().read(true).write(true).open(mount.file()).unwrap();
        let mut buf = vec![0; 200_000];
        assert_eq!(errno(file.read_at(&mut buf[..4096], 299_008)), libc::EIO, "{cache:?}");
        file.read_exact_at(&mut buf[..4096], 0).unwrap();
        assert_eq!(errno(file.write_at(&buf[..4096], 299_008)), libc::EIO, "{cache:?}");
        if cache == Cache::None {
            assert_eq!(errno(file.read_at(&mut buf, 200_000)), libc::EIO);
        }
        *volume.bad.lock().unwrap() = 0..0;
        file.read_exact_at(&mut buf, 200_000).unwrap();
        assert!(buf.iter().zip(200_000..).all(|(&byte, at)| byte == pattern(at)), "{cache:?}");
        *volume.bad.lock().unwrap() = 0..1 << 20;
        assert_eq!(errno(file.sync_all()), libc::EIO, "{cache:?}");
        *volume.bad.lock().unwrap() = 0..0;
    }
}

#[test]
fn read_only_means_read_only() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let volume = Arc::new(Memory::read_only(1 << 20));
    let mount = TestMount::new(volume.clone());
    assert_eq!(fs::metadata(mount.file()).unwrap().mode() & 0o7777, 0o444);
    for options in [File::options().write(true), File::options().read(true).write(true)] {
        assert_eq!(errno(options.open(mount.file())), libc::EROFS);
        assert_eq!(errno(options.clone().truncate(true).open(mount.file())), libc::EROFS);
    }
    let mode = fs::Permissions::from_mode(0o666);
    assert_eq!(errno(fs::set_permissions(mount.file(), mode)), libc::EROFS);
    assert_eq!(errno(File::create(mount.dir().join("new"))), libc::EROFS);
    assert_eq!(errno(fs::remove_file(mount.file())), libc::EROFS);
    assert!(fs::read(mount.file()).unwrap() == volume.bytes());
    let info = fs::read_to_string("/proc/self/mounts").unwrap();
    let line = info.lines().find(|line| line.contains(mount.dir().to_str().unwrap())).unwrap();
    assert!(line.contains(" fuse.raid-fuse ro,"), "{line}");
    if is_root() {
        fine(&format!("mount -i -o remount,rw {}", mount.dir().display()));
        assert_eq!(errno(File::options().write(true).open(mount.file())), libc::EROFS);
    }
}

#[test]
fn truncation_keeps_the_size_and_gives_writers_what_they_count_on() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let size = (2 << 20) + 512;
    let (volume, mount) = memory(size);
    let file = File::options().write(true).open(mount.file()).unwrap();
    file.set_len(size).unwrap();
    for len in [1, size - 1, size + 1] {
        assert_eq!(errno(file.set_len(len)), libc::EINVAL, "{len}");
    }
    drop(file);
    let by_path = fine_shell(&format!("truncate -c -s 0 {} && echo done", mount.file().display()));
    assert_eq!(by_path, "done\n", "truncate(1) opens the file, like dd");
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    let path = mount.file().display().to_string();
    fs::write(&image, vec![0xAB; 100_000]).unwrap();
    fine(&format!("dd if={} of={path} bs=4096 status=none", image.display()));
    let bytes = volume.bytes();
    assert!(bytes[..100_000].iter().all(|&byte| byte == 0xAB));
    assert!(bytes[100_000..].iter().zip(100_000..).all(|(&byte, at)| byte == pattern(at)));
    assert_eq!(fs::metadata(mount.file()).unwrap().len(), size);

    let sparse = File::create(&image).unwrap();
    sparse.write_at(&[0xCD; 4096], 1 << 20).unwrap();
    sparse.set_len((2 << 20) - 4096).unwrap();
    let holes = fs::read(&image).unwrap();
    for how in ["auto", "always", "never"] {
        let all = File::options().write(true).open(mount.file()).unwrap();
        all.write_all_at(&vec![0x77; size as usize], 0).unwrap();
        fine(&format!("cp --sparse={how} {} {path}", image.display()));
        let bytes = volume.bytes();
        assert!(bytes[..holes.len()] == holes, "cp --sparse={how}");
        assert!(bytes[holes.len()..].iter().all(|&byte| byte == 0x77), "cp --sparse={how}");
    }
    assert_eq!(errno(fs::write(mount.dir().join("new"), b"x")), libc::EPERM);
}

#[test]
fn attributes_can_be_kept_by_copy_programs() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (_, mount) = memory(1 << 20);
    let meta = fs::metadata(mount.file()).unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.len(), meta.blocks()), (0o644, 1 << 20, 2048));
    assert_eq!(meta.blksize(), 1 << 20, "programs are told to use large blocks");
    let scratch = tempfile::tempdir().unwrap();
    let source = scratch.path().join("volume");
    fs::write(&source, b"data").unwrap();
    fs::set_permissions(&source, fs::Permissions::from_mode(0o600)).unwrap();
    fine(&format!("touch -d 2001-02-03T04:05:06 {}", source.display()));
    fine(&format!("cp -a {} {}/", source.display(), mount.dir().display()));
    let meta = fs::metadata(mount.file()).unwrap();
    assert_eq!(meta.mode() & 0o7777, 0o600);
    assert_eq!(meta.mtime(), fs::metadata(&source).unwrap().mtime());
    if is_root() {
        chown(mount.file(), Some(12), Some(34)).unwrap();
        let meta = fs::metadata(mount.file()).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (12, 34));
    }
    for answer in [
        fs::remove_file(mount.file()),
        fs::rename(mount.file(), mount.dir().join("other")),
        fs::create_dir(mount.dir().join("dir")),
        fs::hard_link(mount.file(), mount.dir().join("link")),
    ] {
        let errno = errno(answer);
        assert!(errno == libc::EPERM || errno == libc::EACCES, "{errno}");
    }
}

#[test]
fn preallocation_and_holes_answer_as_promised() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mount) = memory(1 << 20);
    let before = volume.bytes();
    let file = File::options().read(true).write(true).open(mount.file()).unwrap();
    let ask = |mode, at, len| {
        // SAFETY: plain numbers.
        match unsafe { libc::fallocate(file.as_raw_fd(), mode, at, len) } {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap(),
        }
    };
    let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    assert_eq!(ask(hole, 0, 4096), libc::EOPNOTSUPP);
    assert_eq!(ask(libc::FALLOC_FL_ZERO_RANGE, 0, 4096), libc::EOPNOTSUPP);
    assert_eq!(ask(0, 0, 1 << 20), 0);
    assert_eq!(ask(0, 0, (1 << 20) + 1), libc::ENOSPC);
    assert_eq!(ask(libc::FALLOC_FL_KEEP_SIZE, 1 << 20, 1), libc::ENOSPC);
    assert!(volume.bytes() == before);
    // SAFETY: plain numbers.
    let seek = |at, whence| unsafe { libc::lseek(file.as_raw_fd(), at, whence) };
    assert_eq!(seek(100, libc::SEEK_DATA), 100, "all of it is data");
    assert_eq!(seek(100, libc::SEEK_HOLE), 1 << 20);
}

#[test]
fn memory_maps_work() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for (cache, sharing) in [
        (Cache::None, libc::MAP_PRIVATE),
        (Cache::None, libc::MAP_SHARED),
        (Cache::Read, libc::MAP_SHARED),
    ] {
        let size = 5 * 4096 + 512;
        let (volume, mount) = mount(size, cache);
        let file = File::options().read(true).write(true).open(mount.file()).unwrap();
        let (fd, len) = (file.as_raw_fd(), size as usize);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new map; checked below.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, sharing, fd, 0) };
        if map == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "the only documented refusal");
            assert_eq!((cache, sharing), (Cache::None, libc::MAP_SHARED));
            eprintln!("SKIPPED: shared maps: this kernel does not offer them on direct files");
            continue;
        }
        // SAFETY: the map is `len` bytes and lives until munmap below.
        let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), len) };
        assert!(bytes == volume.bytes(), "{cache:?} {sharing}");
        if sharing == libc::MAP_SHARED {
            bytes[5000] = 0x99;
            // SAFETY: as above.
            assert_eq!(unsafe { libc::msync(map, len, libc::MS_SYNC) }, 0);
            assert_eq!(volume.bytes()[5000], 0x99);
        }
        // SAFETY: mapped above, not used after.
        unsafe { libc::munmap(map, len) };
    }
}

#[test]
fn large_requests_arrive_large() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mount) = memory(16 << 20);
    let path = mount.file().display().to_string();
    fine(&format!("dd if={path} of=/dev/null bs=1M status=none"));
    fine(&format!("dd if=/dev/zero of={path} bs=1M count=16 conv=notrunc status=none"));
    for sizes in [&volume.reads, &volume.writes] {
        let sizes = sizes.lock().unwrap();
        assert_eq!(sizes.iter().sum::<usize>(), 16 << 20);
        assert!(sizes.iter().all(|&size| size >= 128 << 10), "{sizes:?}");
        let mean = (16 << 20) / sizes.len();
        assert!(mean > 512 << 10, "1 MiB where the pages align: {sizes:?}");
    }
    let (reads, writes) = (&volume.reads, &volume.writes);
    reads.lock().unwrap().clear();
    writes.lock().unwrap().clear();
    fine(&format!("dd if={path} of={path} bs=4k count=8 conv=notrunc status=none"));
    assert_eq!(*reads.lock().unwrap(), [4096; 8], "small ones are not made larger either");
    assert_eq!(*writes.lock().unwrap(), [4096; 8]);
}

#[test]
fn texts_in_folders_come_and_go_and_take_words() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mount) = memory(1 << 20);
    let md = mount.dir().join("md");
    let list = || {
        let mut names: Vec<_> =
            fs::read_dir(&md).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(), ["dev-a", "dev-b", "first", "level"]);
    assert_eq!(fs::read_link(md.join("first")).unwrap().to_str(), Some("dev-a"));
    let state = md.join("first/state");
    assert_eq!(fs::read_to_string(&state).unwrap(), "one\n");
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o644);
    fine_shell(&format!("echo two > {0}; printf three > {0}; cat {0}", state.display()));
    assert_eq!(fs::read_to_string(&state).unwrap(), "three\n");
    let write = |path: &std::path::Path, text: &str| fs::write(path, text);
    assert_eq!(errno(write(&state, "bogus\n")), libc::EINVAL);
    assert_eq!(errno(write(&state, "busy\n")), libc::EBUSY);
    let file = File::options().write(true).open(&state).unwrap();
    assert_eq!(errno(file.write_at(b"x", 1)), libc::EINVAL, "not in the middle");
    assert!(File::options().write(true).open(md.join("level")).is_err());
    assert_eq!(errno(File::create(md.join("new"))), libc::EPERM);
    assert_eq!(errno(fs::remove_file(md.join("level"))), libc::EPERM);
    let open = File::open(md.join("dev-b/state")).unwrap();
    fs::write(md.join("dev-b/state"), "remove\n").unwrap();
    assert_eq!(list(), ["dev-a", "first", "level"]);
    assert_eq!(errno(fs::metadata(md.join("dev-b"))), libc::ENOENT);
    assert_eq!(errno(file_of(&md.join("dev-b/state"))), libc::ENOENT);
    let mut old = [0; 4];
    open.read_exact_at(&mut old, 0).unwrap();
    assert_eq!(&old, b"two\n", "what is open shows what it was");
    volume.words.lock().unwrap().insert("c".into(), "new".into());
    assert_eq!(fs::read_to_string(md.join("dev-c/state")).unwrap(), "new\n");
}

fn file_of(path: &std::path::Path) -> io::Result<File> {
    File::open(path)
}

#[test]
fn texts_are_made_when_opened() {
    if !met(&[Need::Fuse]) {
        return;
    }
    let (volume, mount) = memory(1 << 20);
    let path = mount.dir().join("mdstat");
    let mut names: Vec<_> =
        fs::read_dir(mount.dir()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["map", "md", "mdstat", "volume"]);
    let made = volume.texts_made.load(Ordering::SeqCst);
    assert!(fs::metadata(&path).unwrap().len() > 0);
    assert_eq!(volume.texts_made.load(Ordering::SeqCst), made, "stat makes nothing");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text, format!("memory, made {} times\n", made + 1));
    assert_ne!(fs::read_to_string(&path).unwrap(), text, "a new one each time");
    assert_eq!(fs::read_to_string(mount.dir().join("map")).unwrap(), "map\n".repeat(5000));
    let counted = fine_shell(&format!("wc -c < {}; cat {0} | wc -c", path.display()));
    let counts: Vec<&str> = counted.split_whitespace().collect();
    assert_eq!(counts[0], counts[1]);
    let mut file = File::open(&path).unwrap();
    let (mut first, mut rest) = ([0; 6], String::new());
    file.read_exact(&mut first).unwrap();
    file.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with(" times\n") && &first == b"memory", "one text per handle");
    assert!(File::options().write(true).open(&path).is_err());
}

#[test]
fn many_threads_see_one_volume() {
    if !met(&[Need::Fuse]) {
        return;
    }
    for threads in [1, 2, 8] {
        let volume = Arc::new(Memory::new(4 << 20));
        let options = Options { threads: Some(threads), ..Options::default() };
        let mount = TestMount::with(volume.clone(), &options);
        std::thread::scope(|scope| {
            for part in 0..8u64 {
                let file = File::options().read(true).write(true).open(mount.file()).unwrap();
                scope.spawn(move || {
                    let mut buf = vec![0; 65536];
                    for at in (part * 65536..4 << 20).step_by(8 * 65536) {
                        file.write_all_at(&vec![part as u8; 65536], at).unwrap();
                        file.read_exact_at(&mut buf, at).unwrap();
                        assert!(buf.iter().all(|&byte| byte == part as u8));
                    }
                });
            }
        });
        let bytes = volume.bytes();
        assert!(bytes.chunks(65536).zip(0..).all(|(piece, at)| piece == [at as u8 % 8; 65536]));
    }
}

#[test]
fn others_are_let_in_only_on_demand_and_by_permissions() {
    if !met(&[Need::Fuse, Need::Root]) {
        return;
    }
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let size = 1 << 20;
    for allow_other in [false, true] {
        let volume = Arc::new(Memory::new(size));
        let options = Options { allow_other, ..Options::default() };
        let mount = TestMount::with(volume.clone(), &options);
        let file = mount.file().display().to_string();
        let read = || shell(&format!("{nobody} dd if={file} of=/dev/null status=none"));
        assert_eq!(read().status.success(), allow_other);
        let write = shell(&format!("echo x | {nobody} dd of={file} conv=notrunc status=none"));
        assert!(!write.status.success(), "0644 is for root to write");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(!read().status.success());
        assert!(volume.writes.lock().unwrap().is_empty());
    }
}
