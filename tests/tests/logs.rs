//! The partial parity log and the write journal, both ways: what one side was killed over, the
//! other puts right, with all members and without any one of them.

use raid_core::assembly::{self, StartOptions};
use raid_core::device::Shared;
use raid_core::meta;
use raid_core::meta::assemble::Options;
use raid_core::meta::create::{NewLog, NewMember, Request, create};
use raid_core::units::Sectors;
use raid_tests::guest::{self, Script};
use raid_tests::images::{self, Images, MIB};
use raid_tests::md::{self, Job};
use raid_tests::ours::{self, Expected, Random};
use raid_tests::pattern::Pattern;
use raid_tests::power;
use raid_tests::requires::{self, Need};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a sector.
const SECTOR: usize = 512;

/// What the arrays hold before the guest's last writes, and what these write.
const OLD: Pattern = Pattern::Seeded(11);
const NEW: Pattern = Pattern::Seeded(12);

/// Bytes the guest writes at once.
const BLOCK: usize = 12 << 10;

fn sparse(dir: &Path, count: usize, size: u64) -> Vec<PathBuf> {
    (0..count).map(|n| images::sparse(&dir.join(format!("m{n}.img")), size)).collect()
}

/// An array we are killed over.
struct Ours {
    level: i32,
    slots: usize,
    format: &'static str,
    chunk_kib: u64,
    journal: bool,
}

const OURS: &[Ours] = &[
    Ours { level: 5, slots: 3, format: "1.2", chunk_kib: 64, journal: false },
    Ours { level: 5, slots: 4, format: "1.1", chunk_kib: 8, journal: false },
    Ours { level: 5, slots: 3, format: "1.0", chunk_kib: 512, journal: false },
    Ours { level: 5, slots: 5, format: "1.2", chunk_kib: 16, journal: false },
    Ours { level: 5, slots: 3, format: "1.2", chunk_kib: 64, journal: true },
    Ours { level: 6, slots: 4, format: "1.1", chunk_kib: 16, journal: true },
    Ours { level: 4, slots: 4, format: "1.0", chunk_kib: 4, journal: true },
];

/// An array with a log over members of zeros; a journal is the last of `members`.
fn make(ours: &Ours, id: u8, members: &[PathBuf]) {
    let devices = ours::open(members);
    let new = |(n, device): (usize, &Shared)| {
        let (sectors, device_uuid) = (device.facts().sectors, [n as u8 + 1; 16]);
        NewMember { sectors, device_uuid, write_mostly: false, failfast: false }
    };
    let mut new: Vec<NewMember> = devices.iter().enumerate().map(new).collect();
    let log = match ours.journal {
        true => new.pop().map(NewLog::Journal),
        false => Some(NewLog::Ppl),
    };
    let planned = create(&Request {
        format: meta::format(ours.format).unwrap(),
        level: ours.level,
        layout: None,
        chunk: Some(Sectors::kib(ours.chunk_kib)),
        members: new.into_iter().map(Some).collect(),
        name: b"logs".to_vec(),
        homehost: None,
        uuid: [id; 16],
        ctime: 1_700_000_000,
        size: Some(Sectors::kib(2048)),
        data_at: None,
        assume_clean: false,
        zeroed: true,
        bitmap: None,
        log,
        force: false,
    });
    assembly::make(&planned.unwrap(), &devices).unwrap();
}

fn copies(members: &[PathBuf], dir: &Path) -> Vec<PathBuf> {
    let copy = |path: &PathBuf| {
        let to = dir.join(path.file_name().unwrap());
        fs::copy(path, &to).unwrap();
        to
    };
    members.iter().map(copy).collect()
}

/// All slots, then all but each one.
fn losses(slots: usize) -> impl Iterator<Item = Vec<usize>> {
    std::iter::once(vec![]).chain((0..slots).map(|slot| vec![slot]))
}

#[test]
fn the_kernel_replays_what_we_were_killed_over() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let (mut jobs, mut cases) = (Vec::new(), Vec::new());
    for (i, ours) in OURS.iter().enumerate() {
        let dir = images.subdir(&format!("array{i}"));
        let members = sparse(&dir, ours.slots + usize::from(ours.journal), 8 * MIB);
        make(ours, i as u8 + 1, &members);
        let expected = Expected::zeroes(&ours::start(&ours::open(&members)));
        let (expected, open) = power::cut(&members, expected, &mut Random(i as u64 + 70));
        for lost in losses(ours.slots) {
            let name = format!("array {i}, without {lost:?}");
            let members = copies(&members, &images.subdir(&format!("copy{i}-{lost:?}")));
            let found = dir.join(format!("found{lost:?}"));
            let job = Job::degraded(&name, &ours::slots_without(&members, &lost))
                .assemble()
                .read_write()
                .settle()
                .check()
                .read_to(&found)
                .stop();
            jobs.push(job);
            let is_torn = lost.is_empty() || ours.journal;
            cases.push((name, found, lost, is_torn, expected.clone(), open.clone(), members));
        }
    }
    let reports = md::run(&jobs);
    for (report, case) in reports.iter().zip(cases) {
        let (name, found, lost, is_torn, expected, open, members) = case;
        report.expect_success();
        assert_eq!(report.number("mismatch"), 0, "{name}");
        let found = fs::read(found).unwrap();
        match is_torn {
            // With a journal, or with all members, what was being written is old or new.
            true => expected.check_torn(&name, &found, &open),
            false => check_settled(&name, &found, &expected, &open),
        }
        // What the kernel stopped we serve.
        let left: Vec<PathBuf> =
            ours::slots_without(&members, &lost).into_iter().flatten().collect();
        let array = ours::start(&ours::open(&left));
        let mut again = vec![0; array.size() as usize];
        array.read(0, &mut again).unwrap();
        assert!(again == found, "{name}: we read what the kernel read");
    }
}

/// Asserts that all sectors are right that no open request touches.
fn check_settled(name: &str, found: &[u8], expected: &Expected, open: &[power::Request]) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let old = fs::read(expected.save(file.path())).unwrap();
    for (i, (found, old)) in found.chunks(SECTOR).zip(old.chunks(SECTOR)).enumerate() {
        let (from, to) = (i * SECTOR, (i + 1) * SECTOR);
        let is_open = open.iter().any(|(r, _)| r.start < to as u64 && (from as u64) < r.end);
        assert!(is_open || found == old, "{name}: sector {i} was not being written, and is wrong");
    }
}

/// An array the guest is killed over.
struct Busy {
    name: &'static str,
    level: i32,
    slots: usize,
    /// What `mdadm --create` is told; `$J` is the device behind the members.
    options: &'static str,
    /// Run once the array is there.
    after: &'static str,
}

const BUSY: &[Busy] = &[
    Busy { name: "ppl", level: 5, slots: 3, options: "--consistency-policy=ppl", after: ":" },
    Busy { name: "ppl4", level: 5, slots: 4, options: "--consistency-policy=ppl", after: ":" },
    Busy { name: "journal", level: 5, slots: 3, options: "--write-journal $J", after: ":" },
    Busy { name: "journal6", level: 6, slots: 4, options: "--write-journal $J", after: ":" },
    Busy {
        name: "write-back",
        level: 5,
        slots: 3,
        options: "--write-journal $J",
        after: "echo write-back > /sys/block/$M/md/journal_mode",
    },
];

impl Busy {
    fn has_journal(&self) -> bool {
        self.options.contains("$J")
    }

    fn devices(&self) -> usize {
        self.slots + usize::from(self.has_journal())
    }

    /// Where in units of [`BLOCK`] the `n`-th write goes, in an array of so many.
    fn place(n: usize, blocks: usize) -> usize {
        n * 37 % blocks
    }

    /// Makes the array, fills it, then writes block after block and tells each that is durable.
    fn script(&self, index: usize, first: usize, old: &str, new: &str) -> String {
        let device = |n: usize| format!("\"$D{}\"", first + n);
        let words: Vec<String> = (0..self.slots).map(device).collect();
        let (level, slots, words) = (self.level, self.slots, words.join(" "));
        let options = self.options.replace("$J", &device(self.slots));
        let after = self.after.replace("$M", &format!("md{index}"));
        format!(
            "mdadm --create /dev/md{index} --run --assume-clean --level={level} --chunk=64 \
             --raid-devices={slots} {options} {words}\n{after}\n\
             S=$(blockdev --getsize64 /dev/md{index})\n\
             dd if={old} of=/dev/md{index} bs=1M iflag=fullblock,count_bytes count=$S conv=fsync\n\
             ( n=$((S / {BLOCK})); k=0; while [ $k -lt $n ]; do b=$((k * 37 % n))\n\
             dd if={new} of=/dev/md{index} bs={BLOCK} skip=$b seek=$b count=1 \
             conv=notrunc,fsync 2> /dev/null\n\
             echo done {index} $k; k=$((k + 1)); done ) &\n"
        )
    }
}

#[test]
fn we_replay_what_the_kernel_was_killed_over() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let [old, new] = [("old", OLD), ("new", NEW)].map(|(name, pattern)| {
        let path = images.path(name);
        pattern.write_file(&path, 48 * MIB).unwrap();
        guest::quote(&guest::path(&path))
    });
    let (mut script, mut arrays, mut first) = (String::new(), Vec::new(), 0);
    for (index, busy) in BUSY.iter().enumerate() {
        arrays.push(sparse(&images.subdir(busy.name), busy.devices(), 16 * MIB));
        script.push_str(&busy.script(index, first, &old, &new));
        first += busy.devices();
    }
    writeln!(script, "wait").unwrap();
    let mut guest = Script::new(script).images(arrays.iter().flatten()).start();
    for index in 0..BUSY.len() {
        guest.wait_for(&format!("done {index} 12\n"));
    }
    let output = guest.cut().output;
    for (index, (busy, members)) in BUSY.iter().zip(&arrays).enumerate() {
        let word = format!("done {index} ");
        let acked = output.lines().filter(|line| line.starts_with(&word)).count();
        for lost in losses(busy.slots) {
            let name = format!("{}, without {lost:?}", busy.name);
            let left: Vec<PathBuf> = (members.iter().enumerate())
                .filter(|(n, _)| !lost.contains(n))
                .map(|(_, path)| path.clone())
                .collect();
            check_replayed(&name, busy, &read_only(&left), acked, !lost.is_empty());
        }
    }
    take_over(&images, &arrays);
}

/// What the array reads as when it is started for reading only.
fn read_only(members: &[PathBuf]) -> Vec<u8> {
    let before: Vec<Vec<u8>> = members.iter().map(|path| fs::read(path).unwrap()).collect();
    let devices = ours::open(members);
    let candidates: Vec<_> =
        devices.iter().map(|device| assembly::examine(&**device).unwrap()).collect();
    let options = Options { degraded: true, read_only: true, ..Options::default() };
    let decided = assembly::decide(&candidates, &options).unwrap_or_else(|e| panic!("{e}"));
    let options = StartOptions { read_only: true, ..StartOptions::default() };
    let array = assembly::start(&decided, &devices, &options).unwrap();
    let mut found = vec![0; array.size() as usize];
    array.read(0, &mut found).unwrap();
    drop(array);
    let after = members.iter().map(|path| fs::read(path).unwrap());
    assert!(after.eq(before), "reading changes no member");
    found
}

/// Every block that was durable is new, every other one old, but for the one under way.
fn check_replayed(name: &str, busy: &Busy, found: &[u8], acked: usize, lost: bool) {
    let blocks = found.len() / BLOCK;
    let under_way = Busy::place(acked, blocks);
    let done: Vec<usize> = (0..acked).map(|n| Busy::place(n, blocks)).collect();
    let [old, new] = [OLD, NEW].map(|pattern| pattern.bytes(found.len()));
    for at in (0..found.len()).step_by(SECTOR) {
        let sector = |bytes: &'_ [u8]| bytes[at..at + SECTOR].to_vec();
        let found = sector(found);
        let block = at / BLOCK;
        let is_right = match done.contains(&block) {
            true => found == sector(&new),
            false if block == under_way => {
                // Only a journal keeps what was being written on a member that is gone.
                (lost && !busy.has_journal()) || found == sector(&old) || found == sector(&new)
            }
            false => found == sector(&old),
        };
        assert!(is_right, "{name}: sector {} is wrong after {acked} writes", at / SECTOR);
    }
}

/// We start what the kernel left, write to it and stop it; the kernel finds it consistent.
fn take_over(images: &Images, arrays: &[Vec<PathBuf>]) {
    let (mut jobs, mut counts) = (Vec::new(), Vec::new());
    for (busy, members) in BUSY.iter().zip(arrays) {
        let array = ours::start(&ours::open(members));
        let mut expected = Expected::zeroes(&array);
        let mut found = vec![0; array.size() as usize];
        array.read(0, &mut found).unwrap();
        expected.put(0..found.len() as u64, &found);
        expected.write(&array, 20, &mut Random(5));
        ours::settle(&array);
        array.stop().unwrap();
        let content = expected.save(&images.path(&format!("{}.content", busy.name)));
        let slots = ours::slots_without(members, &[]);
        jobs.push(Job::judge(busy.name, &slots, &content));
        counts.push(members.len());
    }
    for (report, count) in md::run(&jobs).iter().zip(counts) {
        report.expect_good(count);
    }
}
