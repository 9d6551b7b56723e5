//! Members that md left behind in every state: we take each array up, bring it to its end, and md
//! judges it, and reads the same bytes from members we have not touched.

use raid_core::assembly::{self, JoinOptions};
use raid_core::device;
use raid_core::meta::assemble::{Assembly, Options};
use raid_tests::images::{self, Images};
use raid_tests::life;
use raid_tests::md::{self, Job};
use raid_tests::ours::{self, Expected};
use raid_tests::redundancy;
use raid_tests::requires::{self, Need};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is to be found in a fixture.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    /// All members agree.
    Whole,
    /// Writes were under way: a resync is due.
    Dirty,
    /// The member in this slot missed something, and comes back by the bitmap.
    Missed(usize),
    /// The member in this slot missed something; it has to be filled anew.
    Stale(usize),
    /// Only the first member was kept.
    Alone,
    /// Some places of the first member cannot be read.
    BadBlocks,
}

/// Fixture, its slots, and what is to be found.
const FIXTURES: [(&str, usize, Found); 17] = [
    ("D-r5_clean", 3, Found::Whole),
    ("D-r5_dirty", 3, Found::Dirty),
    ("D-r5_stale", 3, Found::Stale(1)),
    ("D-r5_stopped_midrecovery", 3, Found::Whole),
    ("D-r5_syncing", 3, Found::Whole),
    ("D-repl", 3, Found::Stale(0)),
    ("D-wm", 2, Found::Whole),
    ("D-bb", 2, Found::BadBlocks),
    ("D-r1_bm_0.90", 2, Found::Alone),
    ("D-r1_bm_1.0", 2, Found::Alone),
    ("D-r1_bm_1.1", 2, Found::Alone),
    ("D-r1_bm_clean", 2, Found::Whole),
    ("D-r1_bm_degraded", 2, Found::Missed(1)),
    ("D-r1_bm_dirty", 2, Found::Dirty),
    ("G-r10sync_n2", 4, Found::Whole),
    ("G-r10sync_f2", 4, Found::Whole),
    ("G-r10sync_o2", 4, Found::Whole),
];

/// One member of a RAID 10 of four, with a bitmap: nobody can start that.
const HOPELESS: &str = "D-r10_bm";

/// Unpacks a fixture into a new directory; its members in order.
fn unpacked(images: &Images, fixture: &str, name: &str) -> Vec<PathBuf> {
    let dir = images.subdir(name);
    let file = requires::shared().join(format!("md-oracle/fixtures/{fixture}.tar.xz"));
    let done = Command::new("tar").arg("-xJf").arg(&file).arg("-C").arg(&dir).status().unwrap();
    assert!(done.success(), "unpacking {}", file.display());
    let (_, inside) = fixture.split_once('-').expect("a letter, a dash and a name");
    let entries = fs::read_dir(dir.join(inside)).unwrap();
    let mut members: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    members.sort();
    members
}

/// Where each slot's member is; a slot without one gets a fresh image.
fn seats(decided: &Assembly, members: &[PathBuf], found: Found) -> Vec<PathBuf> {
    let seat = |(slot, seat): (usize, &Option<raid_core::meta::assemble::Seat>)| match (seat, found)
    {
        (Some(seat), _) => members[seat.candidate].clone(),
        (None, Found::Stale(_) | Found::Missed(_)) => members[slot].clone(),
        (None, _) => {
            let size = fs::metadata(&members[0]).unwrap().len();
            images::sparse(&members[0].with_file_name(format!("new{slot}")), size)
        }
    };
    decided.seats.iter().enumerate().map(seat).collect()
}

/// Brings the array to its end; its members by slot, and what is in it.
fn ended(name: &str, slots: usize, found: Found, members: &[PathBuf]) -> (Vec<PathBuf>, Expected) {
    let devices = ours::open(members);
    let decided = ours::decide(&devices);
    assert_eq!(decided.seats.len(), slots, "{name}");
    assert_eq!(decided.dirty, found == Found::Dirty || matches!(found, Found::Missed(_)), "{name}");
    let lacks = match found {
        Found::Missed(slot) | Found::Stale(slot) => vec![slot],
        Found::Alone => vec![1],
        Found::Whole | Found::Dirty | Found::BadBlocks => Vec::new(),
    };
    assert_eq!(ours::missing(&decided), lacks, "{name}");
    let seats = seats(&decided, members, found);
    let used = |seat: &Option<raid_core::meta::assemble::Seat>| {
        seat.as_ref().map(|seat| devices[seat.candidate].clone())
    };
    let used: Vec<device::Shared> = decided.seats.iter().filter_map(used).collect();
    drop(devices);
    let array = ours::start(&used);
    ours::settle(&array);
    let mut bytes = vec![0; array.size() as usize];
    array.read(0, &mut bytes).unwrap();
    let mut expected = Expected::zeroes(&array);
    expected.put(0..array.size(), &bytes);
    for slot in lacks {
        let options = JoinOptions { force: true, device_uuid: [7; 16], ..Default::default() };
        let joined = life::enter(&array, decided.format, life::open(&seats[slot]), &options);
        assert_eq!(joined.back, matches!(found, Found::Missed(_)), "{name}");
    }
    life::until_whole(&array);
    expected.check(&array);
    if found != Found::BadBlocks {
        assert_eq!(life::compare(&array, false), 0, "{name}");
    }
    array.stop().unwrap();
    drop((array, used));
    if found != Found::BadBlocks {
        redundancy::assert_consistent(&seats);
    }
    (seats, expected)
}

/// md reads what it left behind, from members we have not touched.
fn read_by_md(name: &str, members: &[PathBuf], to: &Path) -> Job {
    Job::new(format!("{name}, untouched"), members).assemble().read_to(to).stop()
}

#[test]
fn every_state_that_md_left_behind_we_bring_to_its_end() {
    if !requires::met(&[Need::Guest, Need::Shared, Need::Unpackers]) {
        return;
    }
    let images = Images::new();
    let (mut jobs, mut ends) = (Vec::new(), Vec::new());
    for (name, slots, found) in FIXTURES {
        let untouched = unpacked(&images, name, &format!("{name}.untouched"));
        let theirs = images.path(&format!("{name}.theirs"));
        jobs.push(read_by_md(name, &untouched, &theirs));
        let members = unpacked(&images, name, name);
        let (seats, expected) = ended(name, slots, found, &members);
        let content = expected.save(&images.path(&format!("{name}.ours")));
        let whole = "read -r count < $SYS/degraded; [ \"$count\" = 0 ]";
        let job = Job::new(name, &seats).examine().assemble().step(whole).expect(&content);
        jobs.push(job.check().stop());
        ends.push((seats.len(), content, theirs));
    }
    for (reports, (members, ours, theirs)) in md::run(&jobs).chunks(2).zip(ends) {
        reports[0].expect_success();
        images::assert_same(&ours, &theirs);
        reports[1].expect_good(members);
    }
}

#[test]
fn what_md_cannot_start_we_do_not_start_either() {
    if !requires::met(&[Need::Guest, Need::Shared, Need::Unpackers]) {
        return;
    }
    let images = Images::new();
    let members = unpacked(&images, HOPELESS, "hopeless");
    let devices = ours::open(&members);
    let candidate = assembly::examine(&*devices[0]).unwrap();
    let options = Options { degraded: true, ..Options::default() };
    let refusal = assembly::decide(&[candidate], &options).unwrap_err().to_string();
    assert!(refusal.contains("complete members for 1 of 4 slots"), "{refusal}");
    drop(devices);
    let report = md::run(&[Job::new(HOPELESS, &members).assemble()]).remove(0);
    assert_ne!(report.status, 0, "{}", report.text);
}
