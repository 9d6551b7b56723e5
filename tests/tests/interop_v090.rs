//! Metadata 0.90 and the kernel's md, both ways, in either byte order.
//!
//! Few arrays, one guest a test: where units lie is the business of `interop_md` and
//! `interop_ours`; here the superblocks, what follows them, and what is continued are judged.

use raid_core::assembly::{self, JoinOptions, StartOptions, byte_order};
use raid_core::device::OpenOptions;
use raid_core::device::file;
use raid_core::driver::Array;
use raid_core::meta::assemble::{Candidate, Options};
use raid_core::meta::md0::packet::Packet;
use raid_core::meta::md0::{ByteOrder, V0_90};
use raid_core::meta::{Found, md_bitmap};
use raid_core::units::{Sectors, Slot, SlotSet};
use raid_tests::images::{self, Images, MIB};
use raid_tests::matrix::{self, CONTENT, KernelArray, Row};
use raid_tests::md::{self, Geometry, Job};
use raid_tests::ours::{self, Random};
use raid_tests::requires::{self, Need};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A row: level as mdadm has it, its number, layout, members, KiB of a chunk.
fn row(
    level: &'static str,
    number: i32,
    layout: Option<(&'static str, u32)>,
    members: usize,
) -> Row {
    let chunk_kib = (number != 1).then_some(64);
    let geometry = Geometry { level, layout: layout.map(|l| l.0), chunk_kib, metadata: "0.90" };
    let word = layout.map_or(0, |layout| layout.1);
    Row { geometry, number, word, sizes: vec![4 * MIB + 4096; members] }
}

/// Every level mdadm 4.2 makes with 0.90: not RAID 0, whose order it could not record.
fn rows() -> Vec<Row> {
    vec![
        row("linear", -1, None, 3),
        row("1", 1, None, 2),
        row("4", 4, None, 3),
        row("5", 5, Some(("left-symmetric", 2)), 4),
        row("6", 6, Some(("left-symmetric", 2)), 5),
        row("10", 10, Some(("n2", 0x102)), 3),
        row("10", 10, Some(("f2", 0x201)), 4),
        row("10", 10, Some(("o2", 0x1_0201)), 3),
    ]
}

fn candidates(devices: &[raid_core::device::Shared]) -> Vec<Candidate> {
    devices.iter().map(|device| assembly::examine(&**device).unwrap()).collect()
}

fn found(path: &Path) -> Found {
    let device = file::open(path, &OpenOptions::looking()).unwrap();
    let mut candidate = assembly::examine(&*device).unwrap();
    assert_eq!(candidate.sightings.len(), 1, "{}", path.display());
    candidate.sightings.remove(0).record.unwrap()
}

/// The array of these members without the `missing` ones, to be read.
fn read_only(array: &KernelArray, missing: &SlotSet) -> Array {
    let there = |(slot, _): &(usize, _)| !missing.contains(Slot(*slot as u16));
    let paths = array.members.iter().enumerate().filter(there).map(|(_, path)| path);
    let devices: Vec<_> =
        paths.map(|path| file::open(path, &OpenOptions::reading()).unwrap()).collect();
    let options = Options { degraded: true, read_only: true, ..Options::default() };
    let decided = assembly::decide(&candidates(&devices), &options)
        .unwrap_or_else(|error| panic!("{}: {error}", array.row.name()));
    assert_eq!(&decided.missing, missing, "{}", array.row.name());
    let options = StartOptions { read_only: true, ..StartOptions::default() };
    assembly::start(&decided, &devices, &options).unwrap()
}

fn read_all(array: &KernelArray, missing: &SlotSet) {
    let running = read_only(array, missing);
    assert_eq!(running.size(), array.size, "{}", array.row.name());
    let mut bytes = vec![0; array.size as usize];
    running.read(0, &mut bytes).unwrap();
    if let Err(wrong) = CONTENT.check(0, &bytes) {
        panic!("{} without {missing}: {wrong}", array.row.name());
    }
    running.stop().unwrap();
}

#[test]
fn arrays_of_the_kernel_are_read_whole_and_without_members() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    for array in matrix::kernel_made(&images, &rows()) {
        let found = found(&array.members[1]);
        assert_eq!(found.format.name, "0.90");
        assert_eq!((found.array.level, found.array.layout), (array.row.number, array.row.word));
        assert_eq!((found.array.resync, found.member.number), (None, 1));
        let slots = array.members.len() as u16;
        let all = read_only(&array, &SlotSet::new());
        let mut sets: Vec<SlotSet> = (0..slots).map(|a| [Slot(a)].into_iter().collect()).collect();
        sets.push([Slot(0), Slot(slots - 1)].into_iter().collect());
        sets.retain(|set| all.layout().survives(set));
        all.stop().unwrap();
        read_all(&array, &SlotSet::new());
        sets.iter().for_each(|set| read_all(&array, set));
    }
}

/// Empty members for a row.
fn members(images: &Images, name: &str, row: &Row) -> Vec<PathBuf> {
    let dir = images.subdir(name);
    let member = |(slot, &size)| images::sparse(&dir.join(format!("m{slot}.img")), size);
    row.sizes.iter().enumerate().map(member).collect()
}

/// The order of every member's superblock.
fn orders(members: &[PathBuf]) -> Vec<ByteOrder> {
    let order = |path: &PathBuf| Packet::new(&found(path).member.raw).unwrap().byte_order();
    members.iter().map(order).collect()
}

/// Rewrites all superblocks in the other byte order, as `assemble --update=byteorder` does.
fn turn(members: &[PathBuf]) {
    let devices = ours::open(members);
    let candidates = candidates(&devices);
    let uuid = candidates[0].sightings[0].identity().uuid;
    let turns = byte_order::turns(&candidates, &uuid).unwrap();
    assert_eq!(turns.len(), members.len());
    byte_order::turn_all(&turns, &devices).unwrap();
}

#[test]
fn arrays_of_ours_are_good_to_the_kernel() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    CONTENT.write_file(&content, 24 * MIB).unwrap();
    let mut rows = rows();
    rows.push(row("0", 0, None, 3));
    let (mut jobs, mut expected) = (Vec::new(), Vec::new());
    for (i, row) in rows.iter().enumerate() {
        let members = members(&images, &format!("array{i}"), row);
        ours::make(row, &members, None, i % 2 == 0);
        let is_big = row.number == 5 || row.number == 10;
        if is_big {
            turn(&members);
        }
        let array = ours::start(&ours::open(&members));
        ours::fill(&array, &mut Random(i as u64));
        ours::settle(&array);
        expected.push((members.len(), array.size()));
        array.stop().unwrap();
        let order = if is_big { ByteOrder::OWN.other() } else { ByteOrder::OWN };
        assert!(orders(&members).iter().all(|&o| o == order), "{}: its own order", row.name());
        let all = ours::slots_without(&members, &[]);
        // mdadm turns the superblocks itself; examined before, it would not know them.
        jobs.push(match is_big {
            false => Job::judge(row.name(), &all, &content),
            true => Job::degraded(row.name(), &all)
                .assemble_with("--run --update=byteorder")
                .examine()
                .expect(&content)
                .check()
                .stop(),
        });
    }
    for (report, (members, size)) in md::run(&jobs).iter().zip(expected) {
        report.expect_good(members);
        assert_eq!(report.number("size"), size, "{}", report.name);
    }
}

/// A mirror with a bitmap and a RAID 5 of the kernel, dirty and degraded by us in between.
#[test]
fn what_one_side_left_the_other_continues() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let (one, two) = (images.path("one"), images.path("two"));
    CONTENT.write_file(&one, 16 * MIB).unwrap();
    let mirror = row("1", 1, None, 2);
    let raid5 = row("5", 5, Some(("left-symmetric", 2)), 3);
    let (m, r) = (members(&images, "m", &mirror), members(&images, "r", &raid5));
    let made = [
        Job::new("mirror", &m)
            .create_with(&mirror.geometry, "--assume-clean --bitmap=internal")
            .write(&one)
            .stop(),
        Job::new("raid5", &r).create_zeroed(&raid5.geometry).write(&one).stop(),
    ];
    md::run(&made).iter().for_each(|report| {
        report.expect_success();
    });
    let expected = continue_by_us(&m, &[]);
    expected.save(&images.path("mirror"));
    let bitmap_at = found(&m[0]).member.bitmap_at.expect("it has a bitmap");
    let head = images::read(&m[0], bitmap_at.bytes(), 512);
    let bitmap = md_bitmap::parse(&head, &found(&m[0]).array.uuid).unwrap();
    assert_eq!(bitmap.events, found(&m[0]).array.events, "the bitmap is up to date");
    let expected = continue_by_us(&r, &[1]);
    expected.save(&two);
    let all = |members: &[PathBuf]| ours::slots_without(members, &[]);
    let stale = |job: Job| job.step("mdadm $MD --add \"$L1\" 2>&1").settle().check().stop();
    let jobs = [
        Job::judge("mirror", &all(&m), &images.path("mirror")),
        stale(Job::degraded("raid5", &all(&r)).examine().assemble().expect(&two)),
        Job::judge("raid5 again", &all(&r), &two),
    ];
    let reports = md::run(&jobs);
    reports[0].expect_good(2);
    reports[1].expect_success();
    let examined = reports[1].examined();
    assert_ne!(examined[1].field("Events"), examined[0].field("Events"), "the second is stale");
    assert_eq!(examined[0].field("Failed Devices"), "1");
    reports[2].expect_good(3);
}

/// Writes to the array without some members and stops it.
fn continue_by_us(members: &[PathBuf], without: &[usize]) -> ours::Expected {
    let there = ours::slots_without(members, without).into_iter().flatten();
    let array = ours::start(&ours::open(&there.collect::<Vec<PathBuf>>()));
    let mut expected = ours::Expected::of(CONTENT, &array);
    expected.check(&array);
    expected.write(&array, 40, &mut Random(5));
    expected.check(&array);
    ours::settle(&array);
    array.stop().unwrap();
    expected
}

/// The number of a device that was filled becomes that of its slot, on every member.
#[test]
fn a_spare_that_we_filled_is_a_member_to_the_kernel() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let raid5 = row("5", 5, Some(("left-symmetric", 2)), 3);
    let mut members = members(&images, "r", &raid5);
    ours::make(&raid5, &members, None, true);
    members[1] = images.member("new", raid5.sizes[1]);
    let array = ours::start(&ours::open(&[members[0].clone(), members[2].clone()]));
    ours::fill(&array, &mut Random(3));
    let new = ours::open(&members[1..2]).remove(0);
    let joined = assembly::join(&array, &V0_90, new, &JoinOptions::default()).unwrap();
    assert!(!joined.back);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !array.status().degraded.is_empty() {
        assert!(Instant::now() < deadline, "it is never filled: {:?}", array.status());
        std::thread::sleep(Duration::from_millis(5));
    }
    let content = images.path("content");
    CONTENT.write_file(&content, array.size()).unwrap();
    array.stop().unwrap();
    let numbers = members.iter().map(|path| found(path).member.number);
    assert_eq!(numbers.collect::<Vec<u32>>(), [0, 1, 2]);
    let all = ours::slots_without(&members, &[]);
    let reports = md::run(&[Job::judge("filled", &all, &content)]);
    reports[0].expect_good(3);
    assert_eq!(reports[0].examined()[0].field("Active Devices"), "3");
}

/// Unpacks a fixture and lists its members in order.
fn fixture(images: &Images, archive: &str, folder: &str) -> Vec<PathBuf> {
    let archive = requires::shared().join("md-oracle/fixtures").join(archive);
    let dir = images.dir();
    let status = Command::new("tar").arg("xJf").arg(&archive).arg("-C").arg(dir).status().unwrap();
    assert!(status.success(), "{}", archive.display());
    let mut paths: Vec<PathBuf> =
        dir.join(folder).read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn fixtures_of_the_kernel_are_continued() {
    if !requires::met(&[Need::Guest, Need::Shared, Need::Unpackers]) {
        return;
    }
    let images = Images::new();
    let stopped = fixture(&images, "E-v90stop.tar.xz", "v90stop");
    let dirty = fixture(&images, "G-v90dirty.tar.xz", "v90dirty");
    let failed = fixture(&images, "G-v90fail.tar.xz", "v90fail");
    let mirror = fixture(&images, "D-r1_bm_0.90.tar.xz", "r1_bm_0.90");
    let decided = ours::decide(&ours::open(&stopped));
    assert_eq!((decided.spares.len(), decided.dirty), (1, false));
    assert!(ours::decide(&ours::open(&dirty)).dirty, "it must be resynced");
    let options = Options { degraded: true, ..Options::default() };
    let devices = ours::open(&failed);
    let error = assembly::decide(&candidates(&devices), &options).unwrap_err().to_string();
    assert!(error.contains("dirty and degraded"), "{error}");
    let decided = assembly::decide(&candidates(&devices), &Options { force: true, ..options });
    assert_eq!(ours::missing(&decided.unwrap()), [1], "the failed one stays out");
    drop(devices);

    let mut jobs = Vec::new();
    for (name, members) in [("stopped", &stopped), ("dirty", &dirty), ("mirror", &mirror)] {
        let array = ours::start(&ours::open(members));
        ours::settle(&array);
        let mut expected = read_as_copy(&array);
        expected.write(&array, 20, &mut Random(9));
        ours::settle(&array);
        array.stop().unwrap();
        let content = expected.save(&images.path(name));
        let all = ours::slots_without(members, &[]);
        jobs.push(match name {
            // With a spare md is never "settled": see `Job::settle`.
            "stopped" => Job::degraded(name, &all)
                .examine()
                .assemble()
                .expect(&content)
                .step("mdadm --readwrite $MD; echo check > $SYS/sync_action")
                .step("mdadm --wait $MD || true; echo \"@mismatch $(cat $SYS/mismatch_cnt)\"")
                .stop(),
            _ => Job::judge(name, &all, &content),
        });
    }
    let reports = md::run(&jobs);
    reports[0].expect_success();
    assert_eq!(reports[0].number("mismatch"), 0);
    let spare = &reports[0].examined()[0];
    assert_eq!((spare.field("Spare Devices"), spare.field("Total Devices")), ("1", "4"));
    reports[1].expect_good(3);
    reports[2].expect_good(1);
}

/// A copy of whatever the array holds.
fn read_as_copy(array: &Array) -> ours::Expected {
    let mut bytes = vec![0; array.size() as usize];
    array.read(0, &mut bytes).unwrap();
    let mut expected = ours::Expected::zeroes(array);
    expected.put(0..array.size(), &bytes);
    expected
}

#[test]
fn what_the_kernel_would_write_next_is_what_we_write() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let raid5 = row("5", 5, Some(("left-symmetric", 2)), 3);
    let members = members(&images, "r", &raid5);
    let job = Job::new("raid5", &members).create_zeroed(&raid5.geometry);
    // Each stage as the kernel leaves it: dirty, clean, and after a failure and its removal.
    let copy = |name: &str| {
        let dir = format!("{}/{}", raid_tests::guest::path(images.dir()), name);
        format!("sync; mkdir {dir}; for l in $LOOPS; do cp $(losetup -nO BACK-FILE $l) {dir}; done")
    };
    let write = "dd if=/dev/zero of=$MD bs=64K count=1 oflag=direct 2>&1";
    let report = &md::run(&[job
        .step("echo 0 > $SYS/safe_mode_delay")
        .step(write)
        .step(&copy("dirty"))
        .fail(1)
        .step(write)
        .step(&copy("failed"))
        .step("echo 0.1 > $SYS/safe_mode_delay; mdadm --wait-clean $MD")
        .stop()
        .step(&copy("stopped"))])[0];
    report.expect_success();
    for stage in ["dirty", "failed", "stopped"] {
        for slot in [0, 2] {
            let path = images.path(stage).join(format!("m{slot}.img"));
            let found = found(&path);
            let (at, bytes) = (found.format.emit)(&found.array, &found.member).unwrap();
            let theirs = images::read(&path, at.bytes(), bytes.len());
            assert!(bytes == theirs, "{stage}, slot {slot}: other bytes than the kernel's");
        }
        let array = found(&images.path(stage).join("m0.img")).array;
        assert_eq!(array.resync, (stage != "stopped").then_some(Sectors::ZERO), "{stage}");
    }
}
