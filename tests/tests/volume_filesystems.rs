//! File systems in the volume of a mounted array, as people use them: through a loop device or
//! with a FUSE server, on a whole array and again without members.

use raid_tests::guards::{Loop, Mount, Process};
use raid_tests::images::MIB;
use raid_tests::mount::fine;
use raid_tests::pattern::Pattern;
use raid_tests::requires::{self, Need};
use raid_tests::served::{ImageArray, Served};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Size of a member: mkfs.xfs refuses less than 300 MiB, and RAID 1 has the size of one.
const MEMBER: u64 = 320 * MIB;

/// Files of a tree.
const FILES: u64 = 200;

/// One array, and the members it is used without.
struct Case {
    create: &'static str,
    members: usize,
    /// Each set is tried on an overlay; the last also for good.
    missing: &'static [&'static [usize]],
    /// Through the page cache of the loop device instead of around it.
    buffered: bool,
}

const CASES: &[Case] = &[
    Case { create: "-l 0 -c 64", members: 3, missing: &[], buffered: false },
    Case { create: "-l 1", members: 2, missing: &[&[0]], buffered: true },
    Case { create: "-l 5 -c 64", members: 4, missing: &[&[0], &[1], &[2], &[3]], buffered: false },
    Case { create: "-l 6 -c 64", members: 6, missing: &[&[1, 4]], buffered: false },
    Case { create: "-l 10 -p f2 -c 64", members: 4, missing: &[&[2]], buffered: false },
    Case { create: "-l 10 -p n2 -c 64", members: 4, missing: &[&[0, 3]], buffered: true },
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Ext4,
    Xfs,
    /// ext4, served by fuse2fs from the volume file itself.
    Fuse2fs,
}

impl Kind {
    fn make(self, served: &Served) {
        let volume = served.volume().display().to_string();
        match self {
            Kind::Ext4 | Kind::Fuse2fs => fine(&format!("mkfs.ext4 -q -F {volume}")),
            Kind::Xfs => {
                let device = Loop::attach(&served.volume());
                fine(&format!("mkfs.xfs -q {}", device.device().display()))
            }
        };
    }

    fn check(self, served: &Served) {
        let volume = served.volume().display().to_string();
        match self {
            Kind::Ext4 | Kind::Fuse2fs => fine(&format!("e2fsck -f -n {volume}")),
            Kind::Xfs => {
                let device = Loop::with_options(&served.volume(), &["--direct-io=on"]);
                fine(&format!("xfs_repair -n {}", device.device().display()))
            }
        };
    }
}

/// A mounted file system; what is above goes before what is below.
struct FileSystem {
    mount: Mount,
    server: Option<Process>,
    device: Option<Loop>,
}

impl FileSystem {
    fn mount(kind: Kind, served: &Served, at: &Path, buffered: bool) -> FileSystem {
        if kind == Kind::Fuse2fs {
            let mut command = Command::new("fuse2fs");
            let server = command.args(["-f", "-o", "fakeroot"]).arg(served.volume()).arg(at);
            let server = Some(Process::start(server));
            return FileSystem { mount: Mount::fuse(at), server, device: None };
        }
        let direct = if buffered { "--direct-io=off" } else { "--direct-io=on" };
        let device = Loop::with_options(&served.volume(), &[direct]);
        let mount = Mount::new(device.device(), at, &[]);
        FileSystem { mount, server: None, device: Some(device) }
    }

    fn path(&self) -> &Path {
        self.mount.at()
    }

    fn sync(&self) {
        fine(&format!("sync -f {}", self.path().display()));
    }

    fn unmount(self) {
        self.mount.unmount();
        if let Some(server) = self.server {
            let (status, output) = server.wait();
            assert_eq!(status, 0, "fuse2fs: {output}");
        }
        drop(self.device);
    }
}

/// Path and content of file `number` of the tree of `seed`: mostly small, one in 40 large.
fn file_of(seed: u64, number: u64) -> (PathBuf, Vec<u8>) {
    let mixed = (seed << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
    let size = match number % 40 {
        39 => MIB + mixed % MIB,
        _ => mixed % (48 << 10),
    };
    let path = format!("tree-{seed}/d{}/e{}/file-{number}", number % 7, number % 3);
    (PathBuf::from(path), Pattern::Seeded(seed << 32 | number).bytes(size as usize))
}

fn write_tree(root: &Path, seed: u64, fsync: bool) {
    for number in 0..FILES {
        let (path, content) = file_of(seed, number);
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        if fsync && number % 50 == 0 {
            File::open(&path).unwrap().sync_all().unwrap();
        }
    }
}

fn check_tree(root: &Path, seed: u64) {
    for number in 0..FILES {
        let (path, content) = file_of(seed, number);
        let path = root.join(path);
        let found = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert!(found == content, "{} has its content", path.display());
    }
}

/// Mounts what is there, checks the `old` trees, writes a new one and checks the file system.
fn use_it(kind: Kind, case: &Case, served: &Served, at: &Path, old: &[u64], new: Option<u64>) {
    let files = FileSystem::mount(kind, served, at, case.buffered);
    old.iter().for_each(|seed| check_tree(files.path(), *seed));
    if let Some(seed) = new {
        write_tree(files.path(), seed, true);
        files.sync();
        check_tree(files.path(), seed);
    }
    files.unmount();
    kind.check(served);
}

fn run(kind: Kind, case: &Case) {
    eprintln!("{kind:?} on raid-fuse create {}, {} members", case.create, case.members);
    let array = ImageArray::create(case.create, case.members, MEMBER);
    let at = array.images().subdir("files");
    let served = array.mount();
    kind.make(&served);
    use_it(kind, case, &served, &at, &[], Some(1));
    served.unmount();
    for (i, missing) in case.missing.iter().enumerate() {
        eprintln!("  without {missing:?}");
        let overlay = array.images().subdir(&format!("overlay-{i}"));
        let served = array.mount_without(missing, &format!("--overlay {}", overlay.display()));
        use_it(kind, case, &served, &at, &[1], Some(2));
        served.unmount();
    }
    let Some(missing) = case.missing.last() else {
        let served = array.mount();
        use_it(kind, case, &served, &at, &[1], None);
        return served.unmount();
    };
    let served = array.mount_without(missing, "");
    use_it(kind, case, &served, &at, &[1], Some(3));
    served.unmount();
    let served = array.mount_without(missing, "");
    use_it(kind, case, &served, &at, &[1, 3], None);
    served.unmount();
}

#[test]
fn ext4_through_a_loop_device() {
    if !requires::met(&[Need::Fuse, Need::Loop, Need::Ext4]) {
        return;
    }
    CASES.iter().for_each(|case| run(Kind::Ext4, case));
}

#[test]
fn xfs_through_a_loop_device() {
    if !requires::met(&[Need::Fuse, Need::Loop, Need::Xfs]) {
        return;
    }
    CASES.iter().for_each(|case| run(Kind::Xfs, case));
}

#[test]
fn fuse2fs_on_the_volume_file() {
    if !requires::met(&[Need::Fuse, Need::Fuse2fs, Need::Ext4]) {
        return;
    }
    CASES.iter().for_each(|case| run(Kind::Fuse2fs, case));
}
