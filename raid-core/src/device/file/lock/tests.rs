//! One storage under several names: whoever comes second is refused, in every order.

use super::*;
use crate::device::Device;
use crate::device::conformance::{LoopDevice, scratch, sparse};
use crate::device::file::{FileDevice, OpenOptions, identity_of};
use crate::units::Sectors;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const SIZE: Sectors = Sectors(32768);

/// A loop device, or a word why there is none.
fn attach(file: &Path, options: &[&str]) -> Option<LoopDevice> {
    match LoopDevice::with_options(file, options) {
        Ok(attached) => Some(attached),
        Err(why) => {
            eprintln!("SKIPPED: loop device: {why}");
            None
        }
    }
}

fn writer(path: &Path) -> Result<FileDevice> {
    FileDevice::open(path, &OpenOptions::default())
}

fn reader(path: &Path) -> Result<FileDevice> {
    FileDevice::open(path, &OpenOptions::reading())
}

fn refused(opened: Result<FileDevice>) -> String {
    let error = opened.err().expect("refused");
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
    error.to_string()
}

/// While `first` is open for writing, `second` cannot be opened, and the other way round; readers
/// of both get along, and keep writers out.
fn exclude_each_other(first: &Path, second: &Path) {
    let what = format!("{} and {}", first.display(), second.display());
    let overlap = identity_of(first).unwrap().overlaps(&identity_of(second).unwrap());
    assert!(overlap, "{what}");
    for (one, other) in [(first, second), (second, first)] {
        let held = writer(one).unwrap();
        refused(writer(other));
        FileDevice::open(other, &OpenOptions::looking()).unwrap();
        drop(held);
    }
    let held = writer(first).unwrap();
    refused(reader(second));
    drop(held);
    let readers = (reader(first).unwrap(), reader(second).unwrap());
    drop(readers.0);
    refused(writer(first));
    drop(readers.1);
    writer(first).unwrap();
}

#[test]
fn a_loop_device_and_its_file_are_one() {
    let dir = scratch();
    let file = sparse(dir.path(), "a.img", SIZE);
    let Some(one) = attach(&file, &[]) else { return };
    let Some(two) = attach(&file, &["--sector-size", "4096"]) else { return };
    let Some(upper) = attach(&one.path, &[]) else { return };
    let whole = identity_of(&file).unwrap();
    for device in [&one, &two, &upper] {
        assert_eq!(identity_of(&device.path).unwrap(), whole);
        assert_eq!(writer(&device.path).unwrap().facts().identity, Some(whole));
    }
    exclude_each_other(&file, &one.path);
    exclude_each_other(&upper.path, &file);
    exclude_each_other(&two.path, &upper.path);
}

#[test]
fn parts_of_a_file_exclude_the_whole_but_not_each_other() {
    let dir = scratch();
    let file = sparse(dir.path(), "disk.img", SIZE);
    let part = |offset, len| attach(&file, &["--offset", offset, "--sizelimit", len]);
    let Some(head) = part("0", "4194304") else { return };
    let Some(tail) = part("4194304", "8388608") else { return };
    let Some(across) = part("4190208", "8192") else { return };
    exclude_each_other(&file, &head.path);
    exclude_each_other(&across.path, &tail.path);
    let both = (writer(&head.path).unwrap(), writer(&tail.path).unwrap());
    assert_eq!(both.1.facts().sectors, Sectors(16384));
    refused(writer(&file));
    refused(writer(&across.path));
    drop(both);
    writer(&across.path).unwrap();
}

/// A device and its partitions 1 and 2, sectors 2048..10240 and 16384..24576.
fn partitioned(file: &Path) -> Option<(LoopDevice, [PathBuf; 2])> {
    let disk = attach(file, &[])?;
    let name = disk.path.to_str().unwrap();
    for (number, start) in [("1", "2048"), ("2", "16384")] {
        let made = Command::new("addpart").args([name, number, start, "8192"]).output();
        match made {
            Ok(made) if made.status.success() => {}
            other => {
                eprintln!("SKIPPED: partitions: addpart: {other:?}");
                return None;
            }
        }
    }
    let nodes = ["p1", "p2"].map(|part| PathBuf::from(format!("{name}{part}")));
    if !nodes.iter().all(|node| node.exists()) {
        eprintln!("SKIPPED: partitions: no {}", nodes[0].display());
        return None;
    }
    Some((disk, nodes))
}

#[test]
fn partitions_are_parts_of_the_file_behind_their_disk() {
    let dir = scratch();
    let file = sparse(dir.path(), "disk.img", SIZE);
    let Some((disk, [one, two])) = partitioned(&file) else { return };
    let Some(window) = attach(&file, &["--offset", "1048576", "--sizelimit", "4194304"]) else {
        return;
    };
    let identity = identity_of(&window.path).unwrap();
    assert_eq!(identity_of(&one).unwrap(), identity, "sector 2048 is byte 1048576");
    exclude_each_other(&file, &one);
    exclude_each_other(&window.path, &one);
    let both = (writer(&one).unwrap(), writer(&two).unwrap());
    let text = refused(writer(&disk.path));
    assert!(text.contains("lsblk"), "{text}");
    refused(writer(&window.path));
    drop(both);
    let held = writer(&two).unwrap();
    drop(writer(&window.path).unwrap());
    drop(held);
    writer(&disk.path).unwrap();
}

#[test]
fn the_other_name_and_its_holder_are_told() {
    let dir = scratch();
    let file = sparse(dir.path(), "a.img", SIZE);
    let Some(device) = attach(&file, &[]) else { return };
    let (name, node) = (file.display().to_string(), device.path.display().to_string());
    let held = writer(&file).unwrap();
    let text = refused(writer(&device.path));
    let wanted = format!("{node}: is the same storage as {name}, which is open in this process");
    assert!(text.contains(&wanted), "{text}");
    drop(held);
    let mut other = Command::new("flock")
        .args([&name, "--command", "echo; exec sleep 60"])
        .stdout(std::process::Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let mut out = io::BufReader::new(other.stdout.take().unwrap());
    io::BufRead::read_line(&mut out, &mut String::new()).unwrap();
    let text = refused(writer(&device.path));
    let group = -(other.id() as i32);
    // SAFETY: no memory is passed; the group is that of our child, which is not reaped yet.
    assert_eq!(unsafe { libc::kill(group, libc::SIGKILL) }, 0);
    other.wait().unwrap();
    let wanted = format!("{node}: is the same storage as {name}, which is in use by process ");
    assert!(text.contains(&wanted) && text.contains(&other.id().to_string()), "{text}");
}

#[test]
fn a_file_whose_loop_device_the_kernel_uses_is_not_written() {
    let dir = scratch();
    let file = sparse(dir.path(), "a.img", SIZE);
    let Some(device) = attach(&file, &[]) else { return };
    let Some(twin) = attach(&file, &[]) else { return };
    // As a mount or the kernel's md have it: alone, and without a lock of the file.
    let mounted =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(&device.path).unwrap();
    for path in [&file, &twin.path] {
        let text = refused(writer(path));
        let (path, node) = (path.display(), device.path.display());
        assert!(text.contains(&format!("{path}: is the same storage as {node}")), "{text}");
        assert!(text.contains(&format!("lsblk {node}")), "{text}");
    }
    reader(&file).unwrap();
    drop(mounted);
    writer(&file).unwrap();
}

#[test]
fn a_deleted_file_behind_a_loop_device_is_locked_all_the_same() {
    let dir = scratch();
    let file = sparse(dir.path(), "a.img", SIZE);
    let Some(device) = attach(&file, &[]) else { return };
    let Some(twin) = attach(&file, &[]) else { return };
    let held = writer(&file).unwrap();
    fs::remove_file(&file).unwrap();
    // Another file of that name is another file.
    sparse(dir.path(), "a.img", SIZE);
    let text = refused(writer(&device.path));
    assert!(text.contains("(deleted), which is open in this process"), "{text}");
    writer(&file).unwrap();
    drop(held);
    let held = writer(&device.path).unwrap();
    let warning = held.warning().unwrap();
    assert!(warning.contains("its file was deleted"), "{warning}");
    assert!(warning.contains("until the loop device is detached"), "{warning}");
    refused(writer(&twin.path));
}
