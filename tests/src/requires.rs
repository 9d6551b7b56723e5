//! What a test needs from the machine it runs on.
//!
//! A test that cannot run says so in one line, with the command that helps, even while the test
//! harness hides the output of passing tests. The line also goes to the file named by
//! `RAID_SKIPS`, where the test command counts it. With `CI=true` a need that is not met is a
//! failure: a continuous build that tests nothing must not be green. The one exception is
//! [`Need::Shared`], material beside the repository that the project does not depend on.

use crate::guest;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Something a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Running as root.
    Root,
    /// /dev/fuse and fusermount3.
    Fuse,
    /// Loop devices of this machine, attached by root.
    Loop,
    /// The kernel guest and the tools used inside it.
    Guest,
    /// mdadm on this machine.
    Mdadm,
    /// The workload generator.
    Fio,
    /// mkfs.xfs and xfs_repair.
    Xfs,
    /// mkfs.ext4 and e2fsck.
    Ext4,
    /// The FUSE server of ext4.
    Fuse2fs,
    /// zstd and xz, to unpack fixtures.
    Unpackers,
    /// The directory `shared` beside the repository.
    Shared,
}

impl Need {
    /// Every need, for the test that looks at the whole table.
    pub const ALL: &[Need] = &[
        Need::Root,
        Need::Fuse,
        Need::Loop,
        Need::Guest,
        Need::Mdadm,
        Need::Fio,
        Need::Xfs,
        Need::Ext4,
        Need::Fuse2fs,
        Need::Unpackers,
        Need::Shared,
    ];

    /// What is missing and what to do about it; `None` if the need is met.
    pub fn missing(self) -> Option<String> {
        match self {
            Need::Root => (!is_root()).then(|| "needs root: run the tests as root".into()),
            Need::Fuse => {
                device("/dev/fuse", "modprobe fuse").or_else(|| programs(&["fusermount3"], "fuse3"))
            }
            Need::Loop => Need::Root
                .missing()
                .or_else(|| device("/dev/loop-control", "modprobe loop"))
                .or_else(|| programs(&["losetup"], "util-linux mount")),
            Need::Guest => programs(&[guest::PROGRAM], "user-mode-linux")
                .or_else(|| Need::Mdadm.missing())
                .or_else(|| programs(&["modprobe", "losetup"], "kmod util-linux mount")),
            Need::Mdadm => programs(&["mdadm"], "mdadm"),
            Need::Fio => programs(&["fio"], "fio"),
            Need::Xfs => programs(&["mkfs.xfs", "xfs_repair"], "xfsprogs"),
            Need::Ext4 => programs(&["mkfs.ext4", "e2fsck"], "e2fsprogs"),
            Need::Fuse2fs => programs(&["fuse2fs"], "fuse2fs"),
            Need::Unpackers => programs(&["zstd", "xz", "tar"], "zstd xz-utils tar"),
            Need::Shared => (!shared().is_dir()).then(|| "needs ../shared, which is absent".into()),
        }
    }

    fn may_be_absent_in_ci(self) -> bool {
        self == Need::Shared
    }
}

/// True if every need is met. Otherwise says so, counts the skip, and the test should return.
/// Panics instead with `CI=true`.
#[must_use = "a test whose needs are not met must return"]
pub fn met(needs: &[Need]) -> bool {
    let lacking = needs.iter().find_map(|need| Some((*need, need.missing()?)));
    let Some((need, why)) = lacking else { return true };
    let ci = env::var("CI").is_ok_and(|value| value == "true");
    assert!(!ci || need.may_be_absent_in_ci(), "in CI nothing may be missing: {why}");
    skip(&why);
    false
}

/// Reports one skipped test.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("SKIPPED {}: {why}\n", thread.name().unwrap_or("a test"));
    // Straight to the stream: the macros' output is hidden for tests that pass.
    // A line that cannot be printed must not fail the test.
    let _ = io::stderr().write_all(line.as_bytes());
    if let Some(file) = env::var_os("RAID_SKIPS") {
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(file)
            .expect("the file named by RAID_SKIPS can be written");
        file.write_all(line.as_bytes()).expect("the file named by RAID_SKIPS can be written");
    }
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests crate is inside the repository").to_path_buf()
}

/// The directory of material beside the repository; may be absent.
pub fn shared() -> PathBuf {
    repository().join("../shared")
}

/// True for the super user.
pub fn is_root() -> bool {
    // SAFETY: geteuid(2) has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn device(node: &str, help: &str) -> Option<String> {
    (!Path::new(node).exists()).then(|| format!("needs {node}: {help}"))
}

fn programs(names: &[&str], packages: &str) -> Option<String> {
    let absent = names.iter().find(|name| !in_path(name))?;
    Some(format!("needs {absent}: apt-get install {packages}"))
}

/// True if the program is in `PATH` or where Debian keeps the administrator's programs.
fn in_path(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    env::split_paths(&path).chain(system).any(|dir| fs::metadata(dir.join(name)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let why = programs(&["sh", "no-such-program"], "some-package").unwrap();
        assert_eq!(why, "needs no-such-program: apt-get install some-package");
        assert_eq!(programs(&["sh"], "dash"), None);
    }

    #[test]
    fn every_need_that_is_not_met_says_what_it_needs() {
        for why in Need::ALL.iter().filter_map(|need| need.missing()) {
            assert!(why.starts_with("needs ") && !why.contains('\n'), "{why}");
        }
    }
}
