//! Files and block devices of this machine, aligned and not, held and busy.

use super::*;
use crate::device::conformance::{LoopDevice, scratch, shm, sparse};
use crate::device::slice::SliceDevice;
use crate::device::{read_at, write_at};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

const SIZE: Sectors = Sectors(4096);

fn refusal(path: &Path, options: &OpenOptions) -> (ErrorKind, String) {
    let error = FileDevice::open(path, options).err().expect("refused");
    (error.kind, error.to_string())
}

#[test]
fn what_cannot_be_a_member_is_told_so() {
    let dir = scratch();
    let place = |name: &str| dir.path().join(name);
    std::fs::write(place("empty"), b"").unwrap();
    std::fs::write(place("short"), [0; 511]).unwrap();
    std::os::unix::net::UnixListener::bind(place("socket")).unwrap();
    let made = std::process::Command::new("mkfifo").arg(place("pipe")).status();
    assert!(made.unwrap().success());
    let cases: [(PathBuf, &str); 7] = [
        (place("missing"), "check the name"),
        (dir.path().into(), "a directory"),
        (place("empty"), "0 bytes"),
        (place("short"), "511 bytes"),
        (place("socket"), "a socket"),
        (place("pipe"), "a pipe"),
        ("/dev/null".into(), "a character device"),
    ];
    for (path, word) in cases {
        for options in [OpenOptions::default(), OpenOptions::reading()] {
            let (kind, text) = refusal(&path, &options);
            assert_eq!(kind, ErrorKind::Invalid, "{text}");
            assert!(text.contains(word), "{text}");
            assert!(text.contains(path.to_str().unwrap()), "{text}");
        }
    }
}

#[test]
fn a_file_that_may_not_be_written_can_be_read() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    let before = std::fs::metadata(&path).unwrap().modified().unwrap();
    let device = FileDevice::open(&path, &OpenOptions::reading()).unwrap();
    assert!(device.facts().read_only);
    let error = write_at(&device, Sectors(0), &[1; 512]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    let error = device.discard(Sectors(0), Sectors(8)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
    device.flush().unwrap();
    read_at(&device, Sectors(8), &mut [1; 512]).unwrap();
    drop(device);
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), before);
    // SAFETY: no memory is passed.
    if unsafe { libc::geteuid() } == 0 {
        return eprintln!("SKIPPED: root may write everything");
    }
    let (kind, text) = refusal(&path, &OpenOptions::default());
    assert_eq!(kind, ErrorKind::Refused, "{text}");
}

#[test]
fn one_writer_or_many_readers() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let writer = FileDevice::open(&path, &OpenOptions::default()).unwrap();
    for options in [OpenOptions::default(), OpenOptions::reading()] {
        let (kind, text) = refusal(&path, &options);
        assert_eq!(kind, ErrorKind::Busy, "{text}");
        assert!(text.contains("given twice"), "{text}");
    }
    FileDevice::open(&path, &OpenOptions::looking()).unwrap();
    drop(writer);
    let readers = [(); 2].map(|()| FileDevice::open(&path, &OpenOptions::reading()).unwrap());
    assert_eq!(refusal(&path, &OpenOptions::default()).0, ErrorKind::Busy);
    drop(readers);
    FileDevice::open(&path, &OpenOptions::default()).unwrap();
}

#[test]
fn another_process_that_holds_the_lock_is_named() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let mut child = std::process::Command::new("flock")
        .args([path.to_str().unwrap(), "--command", "echo; exec sleep 60"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut out = io::BufReader::new(child.stdout.take().unwrap());
    io::BufRead::read_line(&mut out, &mut line).unwrap();
    let (kind, text) = refusal(&path, &OpenOptions::default());
    // The shell that flock started keeps the descriptor; end it with its parent.
    let pid = child.id();
    let _ = std::process::Command::new("kill").arg(children_of(pid)).status();
    child.wait().unwrap();
    assert_eq!(kind, ErrorKind::Busy);
    assert!(text.contains(&format!("process {pid}")), "{text}");
}

fn children_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().trim().to_string()
}

#[test]
fn two_names_of_one_file_have_one_identity() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let (link, copy) = (dir.path().join("link"), dir.path().join("hard"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    std::fs::hard_link(&path, &copy).unwrap();
    let other = sparse(dir.path(), "b.img", SIZE);
    let identity = identity_of(&path).unwrap();
    assert_eq!(identity_of(&link).unwrap(), identity);
    assert_eq!(identity_of(&copy).unwrap(), identity);
    assert_ne!(identity_of(&other).unwrap(), identity);
    let device = FileDevice::open(&link, &OpenOptions::default()).unwrap();
    assert_eq!(device.facts().identity, Some(identity));
    assert_eq!(identity_of(&dir.path().join("no")).unwrap_err().kind, ErrorKind::Invalid);
}

#[test]
fn memory_files_are_buffered_unless_asked() {
    let dir = match shm() {
        Ok(dir) => dir,
        Err(why) => return eprintln!("SKIPPED: {why}"),
    };
    let path = sparse(dir.path(), "a.img", SIZE);
    let auto = FileDevice::open(&path, &OpenOptions::default()).unwrap();
    assert!(!auto.is_direct());
    assert!(!auto.facts().fd_async);
    assert_eq!(auto.facts().fd_align, 1);
}

#[test]
fn direct_on_is_kept_or_refused() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let on = OpenOptions { direct: Direct::On, ..OpenOptions::default() };
    match FileDevice::open(&path, &on) {
        Ok(device) => {
            assert!(device.is_direct());
            let flags = std::fs::read_to_string(format!(
                "/proc/self/fdinfo/{}",
                device.facts().fd.unwrap()
            ));
            let flags = flags.unwrap();
            let flags = flags.lines().find_map(|l| l.strip_prefix("flags:")).unwrap();
            let flags = i32::from_str_radix(flags.trim(), 8).unwrap();
            assert_eq!(flags & libc::O_DIRECT, libc::O_DIRECT);
        }
        Err(error) => assert_eq!(error.kind, ErrorKind::Unsupported),
    }
    let off = OpenOptions { direct: Direct::Off, ..OpenOptions::default() };
    assert!(!FileDevice::open(&path, &off).unwrap().is_direct());
}

#[test]
fn the_rest_of_a_sector_does_not_count() {
    let dir = scratch();
    let path = dir.path().join("odd.img");
    std::fs::write(&path, vec![7; 2 * 1024 * 1024 + 777]).unwrap();
    let device = FileDevice::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(device.facts().sectors, Sectors(4097));
    let mut buf = [0; 512];
    read_at(&device, Sectors(4096), &mut buf).unwrap();
    assert_eq!(buf, [7; 512]);
    write_at(&device, Sectors(4096), &[8; 512]).unwrap();
    drop(device);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * 1024 * 1024 + 777);
}

#[test]
fn what_is_in_the_page_cache_is_lent() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m");
    let bytes: Vec<u8> = (0..1 << 20).map(|i| (i / 7 * 3) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let options = OpenOptions { direct: Direct::Off, ..OpenOptions::default() };
    let device = FileDevice::open(&path, &options).unwrap();
    for (at, len) in [(0, 1 << 20), (1, 512), (7, 300 * 512), (2047, 512)] {
        let lent = device.lend(Sectors(at), len).expect("it was just written");
        let out = File::create(dir.path().join("copy")).unwrap();
        // SAFETY: what is lent may be handed to a system call while the device lives.
        let written = unsafe { libc::write(out.as_raw_fd(), lent.base, lent.len) };
        assert_eq!(written as usize, len);
        let from = at as usize * 512;
        assert!(std::fs::read(dir.path().join("copy")).unwrap() == bytes[from..from + len]);
    }
    assert!(device.lend(Sectors(2047), 1024).is_none(), "past the end");
    // Cut short, the bytes are not there; the process lives on.
    File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
    assert!(device.lend(Sectors(8), 4096).is_none());
    drop(device);
    let reader = FileDevice::open(&path, &OpenOptions::reading()).unwrap();
    assert!(reader.lend(Sectors(0), 4096).is_none(), "only to those who may write it");
}

#[test]
fn a_file_cut_short_meanwhile_is_an_error() {
    let dir = scratch();
    let cut = Sectors(2048);
    for direct in [Direct::Auto, Direct::Off] {
        let path = sparse(dir.path(), "a.img", SIZE);
        let options = OpenOptions { direct, ..OpenOptions::default() };
        let device = std::sync::Arc::new(FileDevice::open(&path, &options).unwrap());
        assert_eq!(device.warning(), None);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(cut.bytes()).unwrap();
        let mut buf = Pool::new(0).zeroed(8192);
        let error = read_at(&*device, cut - Sectors(8), &mut buf).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        // No write makes it longer again, by whatever way, and none before the cut is taken.
        let window = SliceDevice::new(device.clone(), Sectors(8), None).unwrap();
        for at in [Sectors(0), cut - Sectors(8), cut + Sectors(1), SIZE - Sectors(24)] {
            for len in [512, 4096, 8192] {
                for device in [&*device as &dyn Device, &window] {
                    let error = write_at(device, at, &buf[..len]).unwrap_err();
                    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
                    assert!(error.to_string().contains("1048576 of 2097152 bytes"), "{error}");
                }
            }
        }
        device.discard(cut, Sectors(64)).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), cut.bytes());
        let warning = window.warning().unwrap();
        assert!(warning.contains("cut short: 1048576 of 2097152 bytes; what"), "{warning}");
        file.set_len(SIZE.bytes()).unwrap();
        write_at(&*device, cut, &buf).unwrap();
    }
}

#[test]
fn a_file_cut_short_behind_a_loop_device_is_an_error() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let part = LoopDevice::with_options(&path, &["--offset", "1048576"]);
    let attached = match part {
        Ok(attached) => attached,
        Err(why) => return eprintln!("SKIPPED: block device: {why}"),
    };
    let device = FileDevice::open(&attached.path, &OpenOptions::default()).unwrap();
    assert_eq!(device.facts().sectors, Sectors(2048));
    write_at(&device, Sectors(0), &[7; 4096]).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len((3 << 19) + 512).unwrap();
    let error = write_at(&device, Sectors(0), &[7; 4096]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    assert!(device.warning().unwrap().contains("cut short"));
}

#[test]
fn a_deleted_file_is_told_of() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let device = FileDevice::open(&path, &OpenOptions::default()).unwrap();
    let second = dir.path().join("second");
    std::fs::hard_link(&path, &second).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(device.warning(), None, "it has another name");
    std::fs::remove_file(&second).unwrap();
    let traced = crate::device::trace::TraceDevice::new(std::sync::Arc::new(device));
    let warning = traced.warning().unwrap();
    let wanted = "its file was deleted; what is written goes there until the unmount";
    assert!(warning.starts_with(wanted), "{warning}");
    write_at(&traced, Sectors(0), &[1; 512]).unwrap();
}

#[test]
fn direct_and_buffered_views_agree() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let attached = match LoopDevice::attach(&path, 4096) {
        Ok(attached) => attached,
        Err(why) => return eprintln!("SKIPPED: block device of 4096-byte blocks: {why}"),
    };
    let device = FileDevice::open(&attached.path, &OpenOptions::default()).unwrap();
    assert!(device.is_direct());
    let mut block = Pool::new(0).zeroed(4096);
    for round in 1..50u8 {
        block.fill(round);
        write_at(&device, Sectors(8), &block).unwrap();
        write_at(&device, Sectors(9), &[round ^ 0xff; 512]).unwrap();
        read_at(&device, Sectors(8), &mut block).unwrap();
        assert_eq!(block[..512], [round; 512]);
        assert_eq!(block[512..1024], [round ^ 0xff; 512]);
        assert_eq!(block[1024..], [round; 3072]);
    }
}

#[test]
fn a_block_device_has_one_writer() {
    let dir = scratch();
    let path = sparse(dir.path(), "a.img", SIZE);
    let attached = match LoopDevice::attach(&path, 512) {
        Ok(attached) => attached,
        Err(why) => return eprintln!("SKIPPED: block device: {why}"),
    };
    let device = FileDevice::open(&attached.path, &OpenOptions::default()).unwrap();
    assert_eq!(device.facts().sectors, SIZE);
    assert_eq!(identity_of(&attached.path).unwrap(), device.facts().identity.unwrap());
    let (kind, text) = refusal(&attached.path, &OpenOptions::default());
    assert_eq!(kind, ErrorKind::Busy, "{text}");
    assert!(text.contains("lsblk"), "{text}");
    FileDevice::open(&attached.path, &OpenOptions::looking()).unwrap();
}

#[test]
fn the_option_has_three_words() {
    assert_eq!("auto".parse::<Direct>().unwrap(), Direct::Auto);
    assert_eq!("on".parse::<Direct>().unwrap(), Direct::On);
    assert_eq!("off".parse::<Direct>().unwrap(), Direct::Off);
    assert!("maybe".parse::<Direct>().unwrap_err().to_string().contains("maybe"));
}
