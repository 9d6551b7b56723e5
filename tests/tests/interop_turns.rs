//! md and we take turns on the same members, and either leaves the other a mess.
//!
//! Degraded arrays, members that fail, crashes and power cuts, resyncs that the other one ends,
//! write-intent bitmaps: whoever comes next must know which members to trust, must make redundancy
//! right again, and must find every byte that was answered for.

use raid_core::device::fault::FaultDevice;
use raid_core::units::{Sectors, Slot};
use raid_tests::guest::Script;
use raid_tests::images::{self, Images, MIB};
use raid_tests::matrix::{self, CONTENT, KernelArray, Row};
use raid_tests::md::{self, Job, Report};
use raid_tests::ours::{self, Expected, Random};
use raid_tests::pattern::Pattern;
use raid_tests::power;
use raid_tests::requires::{self, Need};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What is used of each member we make.
const USED: Option<Sectors> = Some(Sectors::kib(4096));

/// Every `step`-th row with redundancy.
fn sample(step: usize) -> Vec<Row> {
    let families =
        [matrix::plain(), matrix::single_parity(), matrix::double_parity(), matrix::copies()];
    let redundant = families.into_iter().flatten().filter(|row| row.number > 0);
    // RAID 4 and 5 of two members are mirrors to md's and to our code alike.
    redundant.step_by(step).collect()
}

/// Members of one size for a row, empty, in a directory of their own.
fn members(images: &Images, name: &str, row: &Row) -> Vec<PathBuf> {
    let dir = images.subdir(name);
    let count = row.sizes.len();
    (0..count).map(|slot| images::sparse(&dir.join(format!("m{slot}.img")), 8 * MIB)).collect()
}

/// A slot to leave out, and a second one where two may be missing.
fn without(i: usize, row: &Row) -> Vec<usize> {
    let slots = row.sizes.len();
    match row.number == 6 && i.is_multiple_of(2) {
        true => vec![i % slots, (i + 1 + i / 2 % (slots - 1)) % slots],
        false => vec![i % slots],
    }
}

/// What is to be judged of an array that lost members.
struct Lost {
    name: String,
    members: Vec<PathBuf>,
    without: Vec<usize>,
    content: PathBuf,
}

impl Lost {
    /// Lets md judge the good members, and choose the good ones when it is given all.
    fn jobs(&self) -> [Job; 2] {
        let good = ours::slots_without(&self.members, &self.without);
        let judged = Job::judge(format!("{}, good members", self.name), &good, &self.content);
        let chosen = Job::new(format!("{}, all members", self.name), &self.members)
            .assemble()
            .step("read -r count < $SYS/degraded; echo \"@degraded $count\"")
            .expect(&self.content)
            .stop();
        [judged, chosen]
    }

    fn check(&self, reports: &[Report]) {
        reports[0].expect_good(self.members.len() - self.without.len());
        let degraded = reports[1].expect_success().number("degraded");
        assert_eq!(degraded, self.without.len() as u64, "{}\n{}", self.name, reports[1].text);
        // And we choose the same.
        let decided = ours::decide(&ours::open(&self.members));
        assert_eq!(ours::missing(&decided), sorted(&self.without), "{}", self.name);
    }
}

fn sorted(slots: &[usize]) -> Vec<usize> {
    let mut slots = slots.to_vec();
    slots.sort_unstable();
    slots
}

fn judge_lost(arrays: &[Lost]) {
    for lost in arrays {
        let decided = ours::decide(&ours::open(&lost.members));
        assert_eq!(ours::missing(&decided), sorted(&lost.without), "{}", lost.name);
    }
    let jobs: Vec<Job> = arrays.iter().flat_map(Lost::jobs).collect();
    for (lost, reports) in arrays.iter().zip(md::run(&jobs).chunks(2)) {
        lost.check(reports);
    }
}

/// We write to an array of the kernel without some of its members.
fn written_degraded(i: usize, array: &KernelArray) -> Lost {
    let without = without(i, &array.row);
    let here: Vec<PathBuf> =
        ours::slots_without(&array.members, &without).into_iter().flatten().collect();
    let mut random = Random(i as u64);
    let running = ours::start(&ours::open(&here));
    let mut expected = Expected::of(CONTENT, &running);
    expected.write(&running, 60, &mut random);
    expected.check(&running);
    running.stop().unwrap();
    let content = expected.save(&array.dir.join("content"));
    let name = format!("{} without {without:?}", array.row.name());
    Lost { name, members: array.members.clone(), without, content }
}

#[test]
fn what_we_write_to_a_degraded_array_is_read_by_md_which_leaves_the_stale_member_out() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let arrays = matrix::kernel_made(&images, &sample(6));
    let lost = arrays.iter().enumerate().map(|(i, array)| written_degraded(i, array));
    judge_lost(&lost.collect::<Vec<_>>());
}

/// How a member is lost while we write.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// It vanishes in the middle of something.
    Vanishes,
    /// A user says so.
    Failed,
    /// A user says so, and then we crash before anything else is written to a superblock.
    FailedThenCrash,
    /// The array is started without it, and crashes after its first write.
    AbsentThenCrash,
}

fn lost_while_writing(images: &Images, i: usize, row: &Row, loss: Loss) -> Lost {
    let name = format!("{} {loss:?}", row.name());
    let members = members(images, &format!("{loss:?}{i}"), row);
    ours::make(row, &members, USED, true);
    let slot = i % members.len();
    let mut random = Random(i as u64);
    let devices = ours::open(&members);
    let mut fed = devices.clone();
    match loss {
        Loss::Vanishes => {
            let plan = format!("vanish after {}", 10 + random.below(30)).parse().unwrap();
            fed[slot] = Arc::new(FaultDevice::new(devices[slot].clone(), plan));
        }
        Loss::AbsentThenCrash => drop(fed.remove(slot)),
        Loss::Failed | Loss::FailedThenCrash => (),
    }
    let array = ours::start(&fed);
    let mut expected = Expected::zeroes(&array);
    let count = if loss == Loss::AbsentThenCrash { 1 } else { 40 };
    expected.write(&array, count, &mut random);
    if matches!(loss, Loss::Failed | Loss::FailedThenCrash) {
        array.fail(Slot(slot as u16)).unwrap();
    }
    if loss != Loss::AbsentThenCrash {
        expected.write(&array, 40, &mut random);
    }
    array.flush().unwrap();
    assert!(array.status().degraded.contains(Slot(slot as u16)), "{name}");
    expected.check(&array);
    match loss {
        Loss::Vanishes | Loss::Failed => array.stop().unwrap(),
        Loss::FailedThenCrash | Loss::AbsentThenCrash => drop(array),
    }
    let content = expected.save(&members[0].with_file_name("content"));
    Lost { name, members, without: vec![slot], content }
}

#[test]
fn a_member_that_fails_while_we_write_is_left_out_by_md() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let losses = [Loss::Vanishes, Loss::Failed];
    let rows = sample(7).into_iter().enumerate();
    let lost = rows.map(|(i, row)| lost_while_writing(&images, i, &row, losses[i % 2]));
    judge_lost(&lost.collect::<Vec<_>>());
}

/// Mirrors only: md starts no dirty parity array without all members.
#[test]
fn a_member_that_missed_a_single_write_before_a_crash_is_left_out_by_md() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let mirrors: Vec<Row> =
        sample(1).into_iter().filter(|row| matches!(row.number, 1 | 10)).step_by(5).collect();
    let mut lost = Vec::new();
    for loss in [Loss::FailedThenCrash, Loss::AbsentThenCrash] {
        for (i, row) in mirrors.iter().enumerate() {
            lost.push(lost_while_writing(&images, i, row, loss));
        }
    }
    let jobs: Vec<Job> = lost.iter().map(|lost| lost.jobs()[1].clone()).collect();
    let mut wrong = String::new();
    for (report, lost) in md::run(&jobs).iter().zip(&lost) {
        if report.status != 0 || report.number("degraded") != 1 {
            wrong += &format!("{}:\n{}\n", lost.name, report.text);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Assembles what is not clean, lets md make it consistent, and reads it all.
fn recovered_by_md(name: String, members: &[PathBuf], found: &Path) -> Job {
    Job::new(name, members)
        .examine()
        .assemble()
        .step("read -r count < $SYS/degraded; echo \"@degraded $count\"")
        .read_write()
        .settle()
        .check()
        .read_to(found)
        .stop()
}

fn check_recovered(report: &Report) {
    report.expect_success();
    let (name, text) = (&report.name, &report.text);
    let dirty = report.examined().iter().any(|member| member.field("State") != "clean");
    assert!(dirty, "{name}: a superblock says that it is not clean:\n{text}");
    for member in report.examined() {
        assert!(member.checksum_is_correct(), "{name}: {}", member.text);
    }
    assert_eq!((report.number("degraded"), report.number("mismatch")), (0, 0), "{name}:\n{text}");
}

#[test]
fn after_a_power_cut_md_finds_what_was_answered_and_resyncs() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let (mut jobs, mut left) = (Vec::new(), Vec::new());
    for (i, row) in sample(6).iter().enumerate() {
        let members = members(&images, &format!("cut{i}"), row);
        ours::make(row, &members, USED, true);
        let expected = Expected::zeroes(&ours::start(&ours::open(&members)));
        let found = members[0].with_file_name("found");
        left.push((power::cut(&members, expected, &mut Random(i as u64)), found.clone()));
        jobs.push(recovered_by_md(row.name(), &members, &found));
    }
    for (report, ((expected, open), found)) in md::run(&jobs).iter().zip(left) {
        check_recovered(report);
        expected.check_torn(&report.name, &fs::read(found).unwrap(), &open);
    }
}

/// We begin to make the redundancy of an array and stop in the middle, writing meanwhile.
fn resync_begun(members: &[PathBuf]) -> Expected {
    let slow = |device| -> raid_core::device::Shared {
        Arc::new(FaultDevice::new(device, "delay 3ms write".parse().unwrap()))
    };
    let devices: Vec<_> = ours::open(members).into_iter().map(slow).collect();
    let array = ours::start(&devices);
    let mut before = vec![0; array.size() as usize];
    array.read(0, &mut before).unwrap();
    let mut expected = Expected::zeroes(&array);
    expected.put(0..array.size(), &before);
    expected.write(&array, 6, &mut Random(members.len() as u64));
    while array.status().job.is_some_and(|job| job.done.0 < job.total.0 / 3) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    array.stop().unwrap();
    expected
}

#[test]
fn a_resync_that_we_began_is_ended_by_md() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let (mut jobs, mut positions) = (Vec::new(), Vec::new());
    for (i, row) in sample(7).iter().enumerate() {
        let members = members(&images, &format!("begun{i}"), row);
        for (slot, path) in members.iter().enumerate() {
            Pattern::Seeded(slot as u64).write_file(path, 8 * MIB).unwrap();
        }
        ours::make(row, &members, USED, false);
        let expected = resync_begun(&members);
        let content = expected.save(&members[0].with_file_name("content"));
        positions.push(ours::decide(&ours::open(&members)).array.resync);
        let job = Job::new(row.name(), &members).examine().assemble().read_write().settle();
        jobs.push(job.check().expect(&content).stop());
    }
    let begun = positions.iter().flatten().filter(|at| !at.is_empty()).count();
    assert!(begun * 2 > positions.len(), "most are stopped in the middle: {positions:?}");
    for report in md::run(&jobs) {
        assert_eq!(report.expect_success().number("mismatch"), 0, "{}", report.text);
    }
}

/// Arrays the kernel is writing to when its power is cut: level, layout, members.
const CUT_BY_KERNEL: [(&str, &str, usize); 6] = [
    ("1", "", 2),
    ("5", "ls", 4),
    ("5", "ra", 3),
    ("6", "ls", 5),
    ("10", "n2", 3),
    ("10", "f2", 4),
];

/// Makes those arrays and writes over them, over and over.
fn busy_guest(content: &Path) -> String {
    let mut text = String::new();
    let mut first = 0;
    for (i, (level, layout, count)) in CUT_BY_KERNEL.iter().enumerate() {
        let loops: Vec<String> = (first..first + count).map(|d| format!("$D{d}")).collect();
        first += count;
        let layout = if layout.is_empty() { String::new() } else { format!("--layout={layout}") };
        let chunk = if *level == "1" { "" } else { "--chunk=64" };
        text += &format!(
            "mdadm --create /dev/md{i} --run --assume-clean --level={level} {layout} {chunk} \
             --homehost=guest --name=test --raid-devices={count} {}\n",
            loops.join(" ")
        );
    }
    let content = raid_tests::guest::quote(&raid_tests::guest::path(content));
    for i in 0..CUT_BY_KERNEL.len() {
        text += &format!(
            "( while :; do\n\
             dd if={content} of=/dev/md{i} bs=20K oflag=direct conv=notrunc\n\
             done ) &\n"
        );
    }
    text + "sleep 1\necho writing\nwait\n"
}

#[test]
fn after_the_kernels_power_cut_we_resync_and_leave_it_clean() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    CONTENT.write_file(&content, 32 * MIB).unwrap();
    let mut arrays: Vec<Vec<PathBuf>> = Vec::new();
    for (i, (_, _, count)) in CUT_BY_KERNEL.iter().enumerate() {
        let dir = images.subdir(&format!("busy{i}"));
        arrays.push(
            (0..*count).map(|m| images::sparse(&dir.join(format!("m{m}")), 8 * MIB)).collect(),
        );
    }
    let mut guest = Script::new(busy_guest(&content)).images(arrays.iter().flatten()).start();
    guest.wait_for("writing");
    guest.cut();
    let mut jobs = Vec::new();
    for (i, members) in arrays.iter().enumerate() {
        let devices = ours::open(members);
        assert!(ours::decide(&devices).dirty, "{:?}", CUT_BY_KERNEL[i]);
        let array = ours::start(&devices);
        assert!(array.status().unsynced, "{:?}", CUT_BY_KERNEL[i]);
        ours::settle(&array);
        let mut found = vec![0; array.size() as usize];
        array.read(0, &mut found).unwrap();
        array.stop().unwrap();
        for (sector, bytes) in found.chunks(512).enumerate() {
            let good =
                bytes.iter().all(|&b| b == 0) || CONTENT.check(sector as u64 * 512, bytes).is_ok();
            assert!(good, "{:?}: sector {sector} was never written so", CUT_BY_KERNEL[i]);
        }
        let file = members[0].with_file_name("found");
        fs::write(&file, found).unwrap();
        let name = format!("{:?}", CUT_BY_KERNEL[i]);
        jobs.push(Job::judge(name, &ours::slots_without(members, &[]), &file));
    }
    for (report, members) in md::run(&jobs).iter().zip(&arrays) {
        report.expect_good(members.len());
    }
}

/// Fails if the kernel ever found a bitmap behind its superblock; reports the bitmap's events.
const BITMAPS: &str = r#"
for loop in $LOOPS; do mdadm --examine-bitmap "$loop" | sed -n 's/^ *Events : /@bitmap /p'; done
"#;
const NOT_STALE: &str =
    "if dmesg | grep 'bitmap file.*out of date\\|bitmap.*stale'; then exit 1; fi";

/// Rows with an internal bitmap.
fn bitmapped() -> Vec<Row> {
    sample(9).into_iter().take(8).collect()
}

/// md makes and fills arrays with internal bitmaps, `kind` times each.
fn bitmap_arrays(images: &Images, rows: &[Row], kind: &str) -> Vec<Vec<PathBuf>> {
    let content = images.path("content");
    CONTENT.write_file(&content, 80 * MIB).unwrap();
    let arrays: Vec<Vec<PathBuf>> =
        (0..rows.len()).map(|i| members(images, &format!("{kind}{i}"), &rows[i])).collect();
    let job = |(row, members): (&Row, &Vec<PathBuf>)| {
        let more = "--assume-clean --bitmap=internal";
        Job::new(row.name(), members).create_with(&row.geometry, more).write(&content).stop()
    };
    let jobs: Vec<Job> = rows.iter().zip(&arrays).map(job).collect();
    for report in md::run(&jobs) {
        report.expect_success();
    }
    arrays
}

#[test]
fn bitmaps_of_md_stay_truthful_when_we_write() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let rows = bitmapped();
    let rows: Vec<Row> =
        rows.iter().flat_map(|row| [row.clone(), row.clone(), row.clone()]).collect();
    let arrays = bitmap_arrays(&images, &rows, "bitmap");
    let (mut jobs, mut cuts) = (Vec::new(), Vec::new());
    for (i, (row, members)) in rows.iter().zip(&arrays).enumerate() {
        let file = members[0].with_file_name("content");
        let mut random = Random(i as u64);
        let slot = i % members.len();
        match i % 3 {
            0 => {
                written(members, &mut random).save(&file);
                let all = ours::slots_without(members, &[]);
                let job = Job::degraded(format!("{}, stopped", row.name()), &all).step(BITMAPS);
                jobs.push(job.examine().assemble().expect(&file).check().stop().step(NOT_STALE));
            }
            1 => {
                let mut here = members.clone();
                here.remove(slot);
                written(&here, &mut random).save(&file);
                jobs.push(readded(row, members, slot, &file));
            }
            _ => {
                let expected = Expected::of(CONTENT, &ours::start(&ours::open(members)));
                cuts.push((i, power::cut(members, expected, &mut random), file.clone()));
                jobs.push(
                    recovered_by_md(format!("{}, cut", row.name()), members, &file).step(NOT_STALE),
                );
            }
        }
    }
    let reports = md::run(&jobs);
    for (i, report) in reports.iter().enumerate().filter(|(i, _)| i % 3 != 2) {
        assert_eq!(report.expect_success().number("mismatch"), 0, "{}", report.text);
        if i % 3 == 0 {
            report.expect_good(arrays[i].len());
            let events = report.examined()[0].field("Events").to_string();
            assert_eq!(report.value("bitmap"), events, "{}", report.name);
        }
    }
    for (i, (expected, open), file) in cuts {
        check_recovered(&reports[i]);
        expected.check_torn(&reports[i].name, &fs::read(file).unwrap(), &open);
    }
}

/// Writes to an array full of [`CONTENT`] and stops it.
fn written(members: &[PathBuf], random: &mut Random) -> Expected {
    let array = ours::start(&ours::open(members));
    let mut expected = Expected::of(CONTENT, &array);
    expected.write(&array, 40, random);
    array.stop().unwrap();
    expected
}

/// md takes back a member that we ran without; the bitmap says what it missed.
fn readded(row: &Row, members: &[PathBuf], slot: usize, content: &Path) -> Job {
    let good = ours::slots_without(members, &[slot]);
    let back = raid_tests::guest::quote(&raid_tests::guest::path(&members[slot]));
    Job::degraded(format!("{}, {slot} re-added", row.name()), &good)
        .assemble()
        .expect(content)
        .step(&format!("attach {back}\nmdadm $MD --re-add \"$loop\" 2>&1"))
        .settle()
        .step("read -r count < $SYS/degraded; [ $count = 0 ]")
        .check()
        .expect(content)
        .stop()
        .step(NOT_STALE)
}
