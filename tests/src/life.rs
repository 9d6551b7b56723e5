//! What happens to arrays while they run: members fail, come, go, are replaced and filled.

use crate::matrix::Row;
use crate::md::Geometry;
use raid_core::assembly::{Back, JoinOptions, Joined, join};
use raid_core::device::{self, OpenOptions, file};
use raid_core::driver::Array;
use raid_core::engine::{DeviceId, JobKind, Limits, Manage, Status, SyncAction};
use raid_core::meta::{self, Format};
use raid_core::units::Slot;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long anything may take on a very busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// A row: level, its number, layout and its word, members, metadata version.
type Line = (&'static str, i32, Option<&'static str>, u32, usize, &'static str);

const ROWS: [Line; 7] = [
    ("1", 1, None, 0, 3, "1.0"),
    ("4", 4, None, 0, 3, "1.1"),
    ("5", 5, Some("left-symmetric"), 2, 4, "1.2"),
    ("6", 6, Some("left-symmetric"), 2, 5, "1.0"),
    ("10", 10, Some("n2"), 0x102, 4, "1.1"),
    ("10", 10, Some("f2"), 0x201, 3, "1.2"),
    ("10", 10, Some("o2"), 0x1_0201, 4, "1.0"),
];

/// One array of every level with redundancy, in chunks of 64 KiB, of members of `size` bytes.
pub fn rows(size: u64) -> Vec<Row> {
    let row = |(level, number, layout, word, members, metadata): Line| {
        let chunk_kib = (number != 1).then_some(64);
        let geometry = Geometry { level, layout, chunk_kib, metadata };
        Row { geometry, number, word, sizes: vec![size; members] }
    };
    ROWS.map(row).to_vec()
}

/// The device that serves `slot`.
pub fn device_in(array: &Array, slot: usize) -> DeviceId {
    let status = array.status();
    status.members[slot].as_ref().expect("the slot has a member").device
}

/// Lets a member fail and takes it out.
pub fn lose(array: &Array, slot: usize) {
    let device = device_in(array, slot);
    array.fail(Slot(slot as u16)).unwrap();
    array.manage(Manage::Remove(device)).unwrap();
}

/// Lets a new device join; its id is made of `id`.
pub fn add(array: &Array, row: &Row, device: device::Shared, id: u8) -> Joined {
    let options = JoinOptions { device_uuid: [id; 16], back: Back::Never, ..Default::default() };
    enter(array, meta::format(row.geometry.metadata).unwrap(), device, &options)
}

/// Lets a member that left come back to its place.
pub fn readd(array: &Array, row: &Row, device: device::Shared) -> Joined {
    let options = JoinOptions { back: Back::Only, ..Default::default() };
    enter(array, meta::format(row.geometry.metadata).unwrap(), device, &options)
}

/// Lets a device join.
pub fn enter(
    array: &Array,
    format: &'static Format,
    device: device::Shared,
    options: &JoinOptions,
) -> Joined {
    join(array, format, device, options).unwrap_or_else(|error| panic!("{error}"))
}

/// A device to join.
pub fn open(path: &Path) -> device::Shared {
    file::open(path, &OpenOptions::default()).unwrap()
}

/// Lets jobs go at most so many KiB of each member a second.
pub fn limit(array: &Array, kib: u32) {
    array.manage(Manage::Limits(Limits { min: kib, max: kib })).unwrap();
}

/// Waits until the status is as wanted.
pub fn until(array: &Array, what: &str, wanted: impl Fn(&Status) -> bool) -> Status {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = array.status();
        if wanted(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "never {what}: {status:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a job of this kind is past one in `parts` of its way, and not yet over.
pub fn until_begun(array: &Array, kind: JobKind, parts: u64) {
    until(array, "in the middle", |status| {
        let job = status.job.filter(|job| job.kind == kind);
        job.is_some_and(|job| job.done.0 * parts >= job.total.0)
    });
    let job = array.status().job.expect("the job still runs");
    assert!(job.done < job.total, "{job:?}");
}

/// Waits until all members are complete and agree, and nothing is left to do.
pub fn until_whole(array: &Array) {
    until(array, "whole", |status| {
        let replaced = status.replacements.iter().all(Option::is_none);
        status.job.is_none() && !status.unsynced && status.degraded.is_empty() && replaced
    });
}

/// Lets the array compare everything, and `repair` it; the sectors that did not agree.
pub fn compare(array: &Array, repair: bool) -> u64 {
    let action = if repair { SyncAction::Repair } else { SyncAction::Check };
    array.manage(Manage::Sync(action)).unwrap();
    let kind = if repair { JobKind::Repair } else { JobKind::Check };
    let over = |status: &Status| {
        status.job.is_none() && status.requested.is_none() && status.last_job == Some(kind)
    };
    let status = until(array, "compared", over);
    assert_eq!(status.stats.scrub_skipped, 0, "{status:?}");
    status.mismatches
}
