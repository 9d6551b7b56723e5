//! Arrays that were dirty and degraded, started by force.

use raid_tests::images::MIB;
use raid_tests::redundancy;
use raid_tests::requires::{self, Need};
use raid_tests::served::{ImageArray, Served, raid_fuse};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn said(words: &str, paths: &[&Path]) {
    let output = raid_fuse(words, paths);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {text}");
}

/// A write is under way when the daemon dies.
fn killed(array: &ImageArray) {
    let served = array.mount();
    served.wait_in_sync();
    let volume = File::options().write(true).open(served.volume()).unwrap();
    volume.write_all_at(&[7; 100_000], 5000).unwrap();
    volume.sync_data().unwrap();
    drop(volume);
    served.kill();
    assert!(redundancy::is_dirty(array.members()));
}

/// Gives the array another member in the place of the one in slot 1, and waits.
fn filled(array: &ImageArray, served: Served) -> Vec<PathBuf> {
    let new = array.images().member("new", 5 * MIB);
    let point = served.volume().parent().unwrap().to_path_buf();
    said("add", &[&point, &new]);
    said("wait", &[&point]);
    served.unmount();
    let mut members = array.members().to_vec();
    members[1] = new;
    members
}

#[test]
fn what_two_parities_left_wrong_is_right_after_the_rebuild() {
    if !requires::met(&[Need::Fuse]) {
        return;
    }
    for create in ["-l 6 -c 64", "-l 6 -c 64 -b internal --bitmap-chunk 64K"] {
        let array = ImageArray::create(create, 5, 5 * MIB);
        killed(&array);
        redundancy::spoil(array.members(), [0]);
        assert_eq!(redundancy::wrong_stripes(array.members()), [0], "{create}");
        let served = array.mount_without(&[1], "--force");
        redundancy::assert_consistent(&filled(&array, served));
    }
}
