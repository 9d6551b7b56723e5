//! Arrays in the middle of a recovery, a resync or a replacement: md begins and we end it, we
//! begin and md ends it, after a stop and after a crash.

use raid_core::device::Shared;
use raid_core::device::fault::FaultDevice;
use raid_core::device::trace::{TraceDevice, Verb};
use raid_core::driver::Array;
use raid_core::engine::{JobKind, Manage};
use raid_core::meta::assemble::{Assembly, SeatState};
use raid_core::meta::create::NewBitmap;
use raid_core::units::Sectors;
use raid_tests::guest;
use raid_tests::images::{self, Images, MIB};
use raid_tests::life;
use raid_tests::matrix::{CONTENT, Row};
use raid_tests::md::{self, Job, Report};
use raid_tests::ours::{self, Expected, Random};
use raid_tests::pattern::Pattern;
use raid_tests::power::{self, Request, Supply};
use raid_tests::redundancy;
use raid_tests::requires::{self, Need};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a member.
const SIZE: u64 = 6 * MIB;

/// What is used of each member we make.
const USED: Option<Sectors> = Some(Sectors::kib(4096));

/// What is stopped in the middle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Begun {
    /// A spare is filled in place of a member that failed.
    Recovery,
    /// Redundancy is made right.
    Resync,
    /// A member that still serves is replaced.
    Replacement,
}

impl Begun {
    fn kind(self) -> JobKind {
        match self {
            Begun::Resync => JobKind::Resync,
            Begun::Recovery | Begun::Replacement => JobKind::Recovery,
        }
    }
}

/// An array, and the images of its life.
struct Life {
    name: String,
    row: Row,
    begun: Begun,
    bitmap: bool,
    /// The slot that fails or is replaced.
    slot: usize,
    /// The members by slot, before anything happened.
    members: Vec<PathBuf>,
    spare: PathBuf,
    content: PathBuf,
}

impl Life {
    fn new(images: &Images, i: usize, row: &Row, begun: Begun) -> Life {
        let dir = images.subdir(&format!("{begun:?}{i}"));
        let image = |name: &str| images::sparse(&dir.join(name), SIZE);
        let count = row.sizes.len();
        // With a bitmap a resync would have nothing to do: nothing is marked.
        let bitmap = begun != Begun::Resync && i.is_multiple_of(2);
        let with = if bitmap { ", bitmap" } else { "" };
        Life {
            name: format!("{} {begun:?}{with}", row.name()),
            row: row.clone(),
            begun,
            bitmap,
            slot: i % count,
            members: (0..count).map(|slot| image(&format!("m{slot}.img"))).collect(),
            spare: image("spare.img"),
            content: dir.join("content"),
        }
    }

    fn all(images: &Images, begun: Begun) -> Vec<Life> {
        let rows = life::rows(SIZE);
        rows.iter().enumerate().map(|(i, row)| Life::new(images, i, row, begun)).collect()
    }

    /// The members by slot once it is over.
    fn after(&self) -> Vec<PathBuf> {
        let mut members = self.members.clone();
        if self.begun != Begun::Resync {
            members[self.slot] = self.spare.clone();
        }
        members
    }

    /// True for a parity array that lacks a member: md starts it only if it is clean.
    fn is_lame(&self) -> bool {
        self.begun == Begun::Recovery && (4..=6).contains(&self.row.number)
    }

    /// What is there to assemble in the middle.
    fn present(&self) -> Vec<PathBuf> {
        let mut present = self.after();
        if self.begun == Begun::Replacement {
            present.push(self.members[self.slot].clone());
        }
        present
    }

    /// md makes the array, fills it, and is stopped in the middle.
    fn begun_by_md(&self, content: &Path) -> Job {
        let bitmap = if self.bitmap { "--bitmap=internal" } else { "--bitmap=none" };
        let more = format!("--assume-clean {bitmap}");
        let spare = guest::quote(&guest::path(&self.spare));
        let job = Job::new(&self.name, &self.members).step(PAUSE);
        let job = job.create_with(&self.row.geometry, &more).write(content);
        let job = match self.begun {
            Begun::Recovery => job
                .fail(self.slot)
                .step(&format!("pause {HALF}\nattach {spare}\nmdadm $MD --add \"$loop\" 2>&1")),
            Begun::Replacement => job.step(&format!(
                "pause {HALF}\nattach {spare}\nmdadm $MD --add \"$loop\" 2>&1\n\
                 mdadm $MD --replace \"$L{}\" 2>&1",
                self.slot
            )),
            Begun::Resync => {
                let half = if self.row.number == 10 { HALF_ARRAY } else { HALF };
                let assemble = job.stop().assemble_with("--update=resync");
                assemble.step(&format!("pause {half}")).read_write()
            }
        };
        job.step("reached\nmdadm --stop $MD 2>&1")
    }

    /// Asserts that it was stopped in the middle; how far it had come.
    fn position(&self, decided: &Assembly) -> Sectors {
        let recovering = |state| match state {
            SeatState::Recovering(at) => Some(at),
            SeatState::InSync => None,
        };
        let at = match self.begun {
            Begun::Resync => decided.array.resync,
            Begun::Recovery => {
                decided.seats[self.slot].as_ref().and_then(|seat| recovering(seat.state))
            }
            Begun::Replacement => {
                let first = decided.replacements.first().expect("a replacement");
                assert_eq!(first.0.index(), self.slot, "{}", self.name);
                recovering(first.1.state)
            }
        };
        at.unwrap_or_else(|| panic!("{} is not in the middle: {decided:?}", self.name))
    }

    /// Lets md judge the end.
    fn judge(&self) -> Job {
        let slots = ours::slots_without(&self.after(), &[]);
        let good = |job: Job| job.step(WHOLE);
        good(Job::degraded(&self.name, &slots).examine().assemble())
            .expect(&self.content)
            .check()
            .stop()
    }
}

/// Half of a member, and half of the array, in sectors and whole chunks.
const HALF: &str = "$(($(cat $SYS/component_size) / 128 * 128))";
const HALF_ARRAY: &str = "$(($(cat /sys/block/md0/size) / 256 * 128))";

/// `pause SECTOR`: the next job waits there. `reached`: waits until it is about there.
const PAUSE: &str = r#"
pause() { wanted=$(($1 / 8 * 7)); echo $1 > $SYS/sync_max; }
reached() {
    tries=600
    while :; do
        read -r at rest < $SYS/sync_completed
        case $at in [0-9]*) [ $at -lt $wanted ] || return 0 ;; esac
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "md is not in the middle"; cat /proc/mdstat; return 1; }
        sleep 0.02
    done
}"#;

/// Fails unless all members serve.
const WHOLE: &str = "read -r count < $SYS/degraded; [ \"$count\" = 0 ]";

fn judge(lives: &[Life]) {
    let jobs: Vec<Job> = lives.iter().map(Life::judge).collect();
    for (report, life) in md::run(&jobs).iter().zip(lives) {
        report.expect_good(life.members.len());
    }
}

fn traced(paths: &[PathBuf]) -> (Vec<Arc<TraceDevice>>, Vec<Shared>) {
    let traces: Vec<Arc<TraceDevice>> =
        ours::open(paths).into_iter().map(|device| Arc::new(TraceDevice::new(device))).collect();
    let devices = traces.iter().map(|trace| trace.clone() as Shared).collect();
    (traces, devices)
}

/// We end what md began.
fn end(life: &Life) {
    let paths = life.present();
    let (traces, devices) = traced(&paths);
    let decided = ours::decide(&devices);
    let from = life.position(&decided);
    assert!(
        from > Sectors::ZERO && from < decided.array.component.times(4),
        "{}: {from}",
        life.name
    );
    let stripes = redundancy::count(&life.members);
    if life.begun == Begun::Resync {
        // Wrong below the checkpoint, which stays, and above it, which is made right.
        redundancy::spoil(&paths, [0].into_iter().chain(stripes * 5 / 8..stripes));
    }
    let array = ours::start(&devices);
    life::until_whole(&array);
    let expected = Expected::of(CONTENT, &array);
    expected.check(&array);
    expected.save(&life.content);
    let mismatches = life::compare(&array, false);
    match life.begun {
        Begun::Resync => {
            assert!((1..=128).contains(&mismatches), "{}: {mismatches} mismatches", life.name);
            assert_eq!(life::compare(&array, true), mismatches, "{}", life.name);
            assert_eq!(life::compare(&array, false), 0, "{}", life.name);
        }
        Begun::Recovery | Begun::Replacement => {
            assert_eq!(mismatches, 0, "{}", life.name);
            assert_filled_from(life, &traces[life.slot], from);
        }
    }
    array.stop().unwrap();
    redundancy::assert_consistent(&life.after());
}

/// Asserts that no data were written to the device before the checkpoint.
fn assert_filled_from(life: &Life, spare: &TraceDevice, from: Sectors) {
    let data = redundancy::data_at(&life.spare);
    let operations = spare.operations();
    let behind = |op: &Sectors| *op >= data && *op < data + Sectors::kib(4096);
    let writes = operations.iter().filter(|op| op.verb == Verb::Write).map(|op| op.at);
    let first = writes.filter(behind).min().expect("it was filled");
    assert_eq!(first, data + from, "{}", life.name);
}

fn md_begins_and_we_end(begun: Begun) {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    CONTENT.write_file(&content, 20 * MIB).unwrap();
    let lives = Life::all(&images, begun);
    let jobs: Vec<Job> = lives.iter().map(|life| life.begun_by_md(&content)).collect();
    for report in md::run(&jobs) {
        report.expect_success();
    }
    lives.iter().for_each(end);
    judge(&lives);
}

#[test]
fn a_recovery_that_md_began_we_end() {
    md_begins_and_we_end(Begun::Recovery);
}

#[test]
fn a_resync_that_md_began_we_end() {
    md_begins_and_we_end(Begun::Resync);
}

#[test]
fn a_replacement_that_md_began_we_end() {
    md_begins_and_we_end(Begun::Replacement);
}

/// KiB a second that our jobs may go, to be left in the middle.
const SPEED: u32 = 1500;

/// How we leave an array in the middle.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Left {
    Stopped,
    /// Its power is cut under writes; a parity array that lacks a member is idle then, as md would
    /// not start it otherwise. Without a bitmap: Linux 6.1 fills what is not marked neither before
    /// nor after the resync, and leaves mismatches also in an array that only it has written to.
    Cut,
}

/// What must be found afterwards.
struct Middle {
    expected: Expected,
    open: Vec<Request>,
    /// How far it had come, where that is certain.
    at: Option<Sectors>,
}

/// Every write takes a while.
fn slow(device: Shared) -> Shared {
    Arc::new(FaultDevice::new(device, "delay 3ms write".parse().unwrap()))
}

/// We make the array, fill it, and leave it in the middle.
fn begun_by_us(life: &Life, left: Left, random: &mut Random) -> Middle {
    let resync = life.begun == Begun::Resync;
    if resync {
        for (slot, path) in life.members.iter().enumerate() {
            Pattern::Seeded(slot as u64).write_file(path, SIZE).unwrap();
        }
    }
    let bitmap = life.bitmap && (left == Left::Stopped || life.is_lame());
    let bitmap = bitmap.then_some(NewBitmap { chunk_bytes: Some(64 << 10) });
    ours::make_with(&life.row, &life.members, USED, !resync, bitmap);
    let supply = Supply::new();
    let mut devices: Vec<Shared> = ours::open(&life.members);
    if resync {
        devices = devices.into_iter().map(slow).collect();
    }
    let array = ours::start(&supply.feed(&devices));
    drop(devices);
    life::limit(&array, SPEED);
    let mut expected = Expected::zeroes(&array);
    if resync {
        let mut before = vec![0; array.size() as usize];
        array.read(0, &mut before).unwrap();
        expected.put(0..array.size(), &before);
    }
    expected.write(&array, 6, random);
    if life.begun == Begun::Recovery {
        life::lose(&array, life.slot);
        expected.write(&array, 20, random);
    }
    if !resync {
        let spare = supply.feed(&[life::open(&life.spare)]).remove(0);
        life::add(&array, &life.row, spare, 0x5a);
    }
    if life.begun == Begun::Replacement {
        array.manage(Manage::Replace(life::device_in(&array, life.slot), None)).unwrap();
    }
    life::until_begun(&array, life.begun.kind(), 8);
    expected.write(&array, 2, random);
    leave(life, left, array, &supply, expected, random)
}

fn leave(
    life: &Life,
    left: Left,
    array: Array,
    supply: &Supply,
    expected: Expected,
    random: &mut Random,
) -> Middle {
    if left == Left::Stopped {
        array.stop().unwrap();
    } else if life.is_lame() {
        life::until(&array, "clean", |status| !status.dirty);
        // Answered when all that was decided before is on the members.
        life::limit(&array, SPEED);
    } else {
        let (expected, open) = power::cut_running(array, supply, 30, expected, random);
        return Middle { expected, open, at: None };
    }
    drop(array);
    let at = life.position(&ours::decide(&ours::open(&life.present())));
    Middle { expected, open: Vec::new(), at: Some(at) }
}

/// Where md goes on, before it does; waiting until a replacement is over.
const START: &str = r#"
for at in $SYS/dev-*/recovery_start $SYS/resync_start; do
    read -r at < $at
    [ "$at" = none ] || echo "@start $at"
done"#;
const REPLACED: &str = r#"
tries=600
while cat $SYS/dev-*/state | grep -q replacement; do
    tries=$((tries - 1))
    [ $tries -gt 0 ] || { echo "md never replaced"; cat /proc/mdstat; exit 1; }
    sleep 0.05
done
settle"#;

/// md ends what we began.
fn ended_by_md(life: &Life, middle: &Middle) -> Job {
    let job = Job::new(&life.name, &life.present()).examine().assemble().step(START);
    let job = job.read_write().step(REPLACED).settle().step(WHOLE).check();
    match middle.open.is_empty() {
        true => job.expect(&middle.expected.save(&life.content)).stop(),
        false => job.read_to(&life.content).stop(),
    }
}

fn check_ended(life: &Life, middle: &Middle, report: &Report) {
    report.expect_success();
    assert_eq!(report.number("mismatch"), 0, "{}:\n{}", life.name, report.text);
    for member in report.examined() {
        assert!(member.checksum_is_correct(), "{}: {}", life.name, member.text);
    }
    if let Some(at) = middle.at {
        assert!(at > Sectors::ZERO, "{} had begun", life.name);
        assert_eq!(report.number("start"), at.0, "{}:\n{}", life.name, report.text);
    }
    if !middle.open.is_empty() {
        middle.expected.check_torn(&life.name, &fs::read(&life.content).unwrap(), &middle.open);
    }
    redundancy::assert_consistent(&life.after());
}

fn we_begin_and_md_ends(left: Left) {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    // What the one test stops, the other one cuts.
    let odd = usize::from(left == Left::Cut);
    let kinds = [Begun::Recovery, Begun::Resync, Begun::Replacement];
    let lives = kinds.into_iter().flat_map(|begun| Life::all(&images, begun));
    let lives: Vec<Life> = lives.skip(odd).step_by(2).collect();
    let begin = |(i, life): (usize, &Life)| begun_by_us(life, left, &mut Random(i as u64));
    let middles: Vec<Middle> = lives.iter().enumerate().map(begin).collect();
    let jobs: Vec<Job> =
        lives.iter().zip(&middles).map(|(life, middle)| ended_by_md(life, middle)).collect();
    for (report, (life, middle)) in md::run(&jobs).iter().zip(lives.iter().zip(&middles)) {
        check_ended(life, middle, report);
    }
}

#[test]
fn what_we_began_and_stopped_md_ends() {
    we_begin_and_md_ends(Left::Stopped);
}

#[test]
fn what_we_began_when_the_power_was_cut_md_ends() {
    we_begin_and_md_ends(Left::Cut);
}
