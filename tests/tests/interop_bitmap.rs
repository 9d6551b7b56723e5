//! Write-intent bitmaps between md and us: after a crash only marked regions are resynced, and a
//! member that comes back is given only what it missed, whoever comes next.

use raid_core::device::Shared;
use raid_core::device::trace::{TraceDevice, Verb};
use raid_core::driver::Array;
use raid_core::meta::create::NewBitmap;
use raid_core::units::Sectors;
use raid_tests::guest::{self, Script};
use raid_tests::images::{self, Images, MIB};
use raid_tests::life;
use raid_tests::matrix::{CONTENT, Row};
use raid_tests::md::{self, Job};
use raid_tests::ours::{self, Expected, Random};
use raid_tests::pattern::Pattern;
use raid_tests::redundancy;
use raid_tests::requires::{self, Need};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a member, and what is used of each that we make.
const SIZE: u64 = 6 * MIB;
const USED: Option<Sectors> = Some(Sectors::kib(4096));

/// A region of the bitmap: mdadm's smallest with so small members, and one chunk of data.
const REGION: u32 = 64 << 10;

/// Bytes that are written at the beginning of an array.
const WRITTEN: u64 = 40_000;

/// Where redundancy is made wrong while its region is not marked: far behind what is written.
fn unmarked(members: &[PathBuf]) -> u64 {
    redundancy::count(members) * 3 / 4
}

/// Empty members for every row.
fn arrays(images: &Images, name: &str) -> Vec<(Row, Vec<PathBuf>)> {
    let members = |(i, row): (usize, Row)| {
        let dir = images.subdir(&format!("{name}{i}"));
        let image = |slot| images::sparse(&dir.join(format!("m{slot}.img")), SIZE);
        let members = (0..row.sizes.len()).map(image).collect();
        (row, members)
    };
    life::rows(SIZE).into_iter().enumerate().map(members).collect()
}

/// We make an array with a bitmap and fill it; nothing is marked once it is stopped.
fn made(row: &Row, members: &[PathBuf]) -> Expected {
    ours::make_with(row, members, USED, true, Some(NewBitmap { chunk_bytes: Some(REGION) }));
    let array = ours::start(&ours::open(members));
    ours::fill(&array, &mut Random(3));
    let expected = Expected::of(CONTENT, &array);
    array.stop().unwrap();
    assert_eq!(array.status().bitmap_bits.map(|bits| bits.0), Some(0), "{}", row.name());
    expected
}

/// Writes to the beginning of the array.
fn write_some(array: &Array, expected: &mut Expected) {
    let data = Pattern::Seeded(99).bytes(WRITTEN as usize);
    array.write(5000, &data).unwrap();
    expected.put(5000..5000 + WRITTEN, &data);
}

#[test]
fn after_our_crash_md_resyncs_marked_regions_only() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let (mut jobs, mut spoilt) = (Vec::new(), Vec::new());
    for (row, members) in arrays(&images, "ours") {
        let mut expected = made(&row, &members);
        let array = ours::start(&ours::open(&members));
        write_some(&array, &mut expected);
        drop(array);
        // Marked and unmarked: md sees to the first and leaves the second.
        redundancy::spoil(&members, [0, unmarked(&members)]);
        let content = expected.save(&members[0].with_file_name("content"));
        let job = Job::new(row.name(), &members).assemble().read_write().settle();
        jobs.push(job.expect(&content).stop());
        spoilt.push(members);
    }
    for (report, members) in md::run(&jobs).iter().zip(spoilt) {
        report.expect_success();
        assert_eq!(redundancy::wrong_stripes(&members), [unmarked(&members)], "{}", report.name);
    }
}

/// md makes and fills the arrays, waits until nothing is marked, writes to their beginnings and
/// loses power.
fn cut_md(arrays: &[(Row, Vec<PathBuf>)], content: &Path) {
    let content = guest::quote(&guest::path(content));
    let (mut text, mut first) = (String::new(), 0);
    for (i, (row, members)) in arrays.iter().enumerate() {
        let loops: Vec<String> = (first..first + members.len()).map(|d| format!("$D{d}")).collect();
        first += members.len();
        let geometry = row.geometry;
        let layout = geometry.layout.map(|l| format!("--layout={l}")).unwrap_or_default();
        let chunk = geometry.chunk_kib.map(|kib| format!("--chunk={kib}")).unwrap_or_default();
        text += &format!(
            "mdadm --create /dev/md{i} --run --assume-clean --level={} {layout} {chunk} \
             --metadata={} --bitmap=internal --bitmap-chunk=64K --delay=1 --homehost=guest \
             --name=test --raid-devices={} {}\n\
             dd if={content} of=/dev/md{i} bs=1M iflag=fullblock,count_bytes oflag=direct \
             count=$(($(cat /sys/block/md{i}/size) * 512))\n",
            geometry.level,
            geometry.metadata,
            members.len(),
            loops.join(" ")
        );
    }
    let count = arrays.len();
    text += &format!(
        "until ! for d in $D0 {}; do mdadm --examine-bitmap $d; done | grep 'Bitmap :' | \
         grep -v ' 0 dirty'; do sleep 0.3; done\n\
         for i in $(seq 0 {}); do echo 0 > /sys/block/md$i/md/safe_mode_delay\n\
         dd if=/dev/zero of=/dev/md$i bs=4K count=4 oflag=direct conv=notrunc; done\n\
         sync; echo written; sleep 1000\n",
        firsts(arrays).join(" "),
        count - 1
    );
    let members = arrays.iter().flat_map(|(_, members)| members);
    let mut guest = Script::new(text).images(members).start();
    guest.wait_for("written");
    guest.cut();
}

/// The first member of every array but the first one, as the guest's script names it.
fn firsts(arrays: &[(Row, Vec<PathBuf>)]) -> Vec<String> {
    let ends = arrays.iter().scan(0, |at, (_, members)| {
        *at += members.len();
        Some(*at)
    });
    let ends: Vec<usize> = ends.collect();
    ends[..ends.len() - 1].iter().map(|at| format!("$D{at}")).collect()
}

#[test]
fn after_mds_crash_we_resync_marked_regions_only() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    CONTENT.write_file(&content, 20 * MIB).unwrap();
    let arrays = arrays(&images, "theirs");
    cut_md(&arrays, &content);
    let mut jobs = Vec::new();
    for (row, members) in &arrays {
        let spoilt = unmarked(members);
        redundancy::spoil(members, [0, spoilt]);
        let devices = ours::open(members);
        assert!(ours::decide(&devices).dirty, "{}", row.name());
        let array = ours::start(&devices);
        ours::settle(&array);
        let mut expected = Expected::of(CONTENT, &array);
        expected.put(0..16384, &[0; 16384]);
        expected.check(&array);
        array.stop().unwrap();
        drop(array);
        assert_eq!(redundancy::wrong_stripes(members), [spoilt], "{}", row.name());
        redundancy::spoil(members, [spoilt]);
        let content = expected.save(&members[0].with_file_name("content"));
        jobs.push(Job::judge(row.name(), &ours::slots_without(members, &[]), &content));
    }
    for (report, (_, members)) in md::run(&jobs).iter().zip(&arrays) {
        report.expect_good(members.len());
    }
}

/// Sectors of data written to a device whose data begin at `data`.
fn data_written(device: &TraceDevice, data: Sectors) -> u64 {
    let inside = |at: Sectors| at >= data && at < data + Sectors::kib(4096);
    let writes = device.operations().into_iter();
    writes.filter(|op| op.verb == Verb::Write && inside(op.at)).map(|op| op.len.0).sum()
}

#[test]
fn a_member_that_we_take_back_is_given_only_what_it_missed() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let mut jobs = Vec::new();
    for (i, (row, members)) in arrays(&images, "back").into_iter().enumerate() {
        let slot = i % members.len();
        let mut expected = made(&row, &members);
        let array = ours::start(&ours::open(&members));
        life::lose(&array, slot);
        write_some(&array, &mut expected);
        let trace = Arc::new(TraceDevice::new(life::open(&members[slot])));
        assert!(life::readd(&array, &row, trace.clone() as Shared).back, "{}", row.name());
        life::until_whole(&array);
        let written = data_written(&trace, redundancy::data_at(&members[slot]));
        // What was written lies in two regions of an array, so in as many of a member.
        let most = 2 * u64::from(REGION) / 512 + 256;
        assert!(written <= most, "{}: {written} sectors were copied", row.name());
        expected.check(&array);
        assert_eq!(life::compare(&array, false), 0, "{}", row.name());
        array.stop().unwrap();
        drop(array);
        redundancy::assert_consistent(&members);
        let content = expected.save(&members[0].with_file_name("content"));
        jobs.push((Job::judge(row.name(), &ours::slots_without(&members, &[]), &content), members));
    }
    let (jobs, members): (Vec<Job>, Vec<_>) = jobs.into_iter().unzip();
    for (report, members) in md::run(&jobs).iter().zip(members) {
        report.expect_good(members.len());
    }
}

#[test]
fn a_member_that_we_lost_md_takes_back_by_the_bitmap() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let (mut jobs, mut spoilt) = (Vec::new(), Vec::new());
    for (i, (row, members)) in arrays(&images, "lost").into_iter().enumerate() {
        let slot = i % members.len();
        let mut expected = made(&row, &members);
        let array = ours::start(&ours::open(&members));
        life::lose(&array, slot);
        write_some(&array, &mut expected);
        array.stop().unwrap();
        drop(array);
        // A region that is not marked: what is wrong there stays wrong, for nobody looks.
        let at = redundancy::data_at(&members[slot]).bytes() + 3 * MIB;
        images::flip(&members[slot], at, 512);
        let content = expected.save(&members[0].with_file_name("content"));
        let back = guest::quote(&guest::path(&members[slot]));
        let job = Job::degraded(row.name(), &ours::slots_without(&members, &[slot]))
            .assemble()
            .expect(&content)
            .step(&format!("attach {back}\nmdadm $MD --re-add \"$loop\" 2>&1"))
            .settle()
            .step("read -r count < $SYS/degraded; [ \"$count\" = 0 ]");
        jobs.push(job.stop());
        spoilt.push((members, slot, at));
    }
    for (report, (members, slot, at)) in md::run(&jobs).iter().zip(spoilt) {
        report.expect_success();
        let wrong = redundancy::wrong_stripes(&members).len();
        assert_eq!(wrong, 1, "{}: only what nobody looked at is wrong", report.name);
        images::flip(&members[slot], at, 512);
        redundancy::assert_consistent(&members);
    }
}

#[test]
fn what_md_lost_and_took_back_by_the_bitmap_we_go_on_with() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    CONTENT.write_file(&content, 20 * MIB).unwrap();
    let patch = images.path("patch");
    Pattern::Seeded(99).write_file(&patch, 16384).unwrap();
    let arrays = arrays(&images, "went");
    let job = |(i, (row, members)): (usize, &(Row, Vec<PathBuf>))| {
        let more = "--assume-clean --bitmap=internal --bitmap-chunk=64K --delay=1";
        let job = Job::new(row.name(), members).create_with(&row.geometry, more).write(&content);
        // Until nothing is marked: else the bitmap would say that all was missed.
        let job =
            job.step("until mdadm --examine-bitmap $L0 | grep -q ' 0 dirty'; do sleep 0.3; done");
        job.fail(i % members.len()).write_at(&patch, 0).stop()
    };
    let jobs: Vec<Job> = arrays.iter().enumerate().map(job).collect();
    for report in md::run(&jobs) {
        report.expect_success();
    }
    let mut jobs = Vec::new();
    for (i, (row, members)) in arrays.iter().enumerate() {
        let slot = i % members.len();
        let here: Vec<PathBuf> =
            ours::slots_without(members, &[slot]).into_iter().flatten().collect();
        let array = ours::start(&ours::open(&here));
        let mut expected = Expected::of(CONTENT, &array);
        expected.put(0..16384, &fs::read(&patch).unwrap());
        let trace = Arc::new(TraceDevice::new(life::open(&members[slot])));
        life::readd(&array, row, trace.clone() as Shared);
        life::until_whole(&array);
        let written = data_written(&trace, redundancy::data_at(&members[slot]));
        assert!(written <= u64::from(REGION) / 512 + 256, "{}: {written}", row.name());
        expected.check(&array);
        assert_eq!(life::compare(&array, false), 0, "{}", row.name());
        array.stop().unwrap();
        drop(array);
        let content = expected.save(&members[0].with_file_name("content"));
        jobs.push(Job::judge(row.name(), &ours::slots_without(members, &[]), &content));
    }
    for (report, (_, members)) in md::run(&jobs).iter().zip(&arrays) {
        report.expect_good(members.len());
    }
}
