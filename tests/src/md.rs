//! Arrays of the kernel's md, many in one guest.
//!
//! A [`Job`] is the life of one array: slots and a list of steps. [`run`] puts any number of jobs
//! into one guest, one after the other, and gives a [`Report`] for each. A step that fails ends
//! its job, never the next one's; arrays and loop devices are taken down between jobs.
//!
//! ```no_run
//! use raid_tests::{images::{Images, MIB}, md, pattern::Pattern};
//! let images = Images::new();
//! let members = images.members(3, 8 * MIB);
//! let content = images.path("content");
//! Pattern::Seeded(1).write_file(&content, 32 * MIB).unwrap();
//! let geometry = md::Geometry { level: "5", chunk_kib: Some(64), ..md::MIRROR };
//! let job = md::Job::new("raid5", &members).create(&geometry).write(&content).check().stop();
//! assert_eq!(md::run(&[job])[0].number("mismatch"), 0);
//! ```

use crate::guest::{self, End, Script};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `mdadm --create` is told about a geometry, in its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// `--level`: `linear`, `0`, `1`, `4`, `5`, `6`, `10`.
    pub level: &'static str,
    /// `--layout`; mdadm's default if absent.
    pub layout: Option<&'static str>,
    /// `--chunk`; mdadm's default if absent.
    pub chunk_kib: Option<u64>,
    /// `--metadata`: `1.0`, `1.1`, `1.2`.
    pub metadata: &'static str,
}

/// The plainest array, to start a [`Geometry`] from.
pub const MIRROR: Geometry =
    Geometry { level: "1", layout: None, chunk_kib: None, metadata: "1.2" };

impl Geometry {
    fn options(&self) -> String {
        let mut text = format!("--level={} --metadata={}", self.level, self.metadata);
        if let Some(layout) = self.layout {
            text += &format!(" --layout={layout}");
        }
        if let Some(kib) = self.chunk_kib {
            text += &format!(" --chunk={kib}");
        }
        text
    }
}

/// The life of one array. The array is `$MD` in its steps; the loop device of slot i is `$L<i>`,
/// empty for a slot that is missing.
#[derive(Clone, Debug)]
pub struct Job {
    name: String,
    slots: Vec<Option<PathBuf>>,
    steps: String,
}

impl Job {
    /// An array whose slots are all there.
    pub fn new(name: impl Into<String>, members: &[PathBuf]) -> Job {
        Job::degraded(name, &members.iter().cloned().map(Some).collect::<Vec<_>>())
    }

    /// An array of which some slots are missing.
    pub fn degraded(name: impl Into<String>, slots: &[Option<PathBuf>]) -> Job {
        Job { name: name.into(), slots: slots.to_vec(), steps: String::new() }
    }

    /// Lets md and mdadm judge members that somebody else made or wrote: superblocks, content to
    /// the last byte, redundancy. `content` may be longer than the array. The verdict is
    /// [`Report::expect_good`].
    pub fn judge(name: impl Into<String>, slots: &[Option<PathBuf>], content: &Path) -> Job {
        // Examined first: starting an array may change its superblocks.
        Job::degraded(name, slots).examine().assemble().expect(content).check().stop()
    }

    /// Makes the array and lets md make it consistent. Reports `size`, in bytes.
    pub fn create(self, geometry: &Geometry) -> Job {
        self.create_with(geometry, "").settle()
    }

    /// Makes the array over members of zeroes, which are consistent without a resync.
    /// Reports `size`, in bytes.
    pub fn create_zeroed(self, geometry: &Geometry) -> Job {
        self.create_with(geometry, "--assume-clean")
    }

    /// Makes the array with further options of mdadm. Reports `size`, in bytes.
    pub fn create_with(self, geometry: &Geometry, more: &str) -> Job {
        let word = |i: usize| match self.slots[i] {
            Some(_) => format!("\"$L{i}\""),
            None => "missing".into(),
        };
        let words: Vec<String> = (0..self.slots.len()).map(word).collect();
        let (options, count, words) = (geometry.options(), words.len(), words.join(" "));
        self.step(&format!(
            "mdadm --create $MD --run --homehost=guest --name=test {options} {more} \
             --raid-devices={count} {words} 2>&1\nsize"
        ))
    }

    /// Starts the array from the members that are there, also if some are missing or were there
    /// the last time. Reports `size`, in bytes.
    pub fn assemble(self) -> Job {
        self.assemble_with("--run")
    }

    /// Starts the array with options of mdadm. Reports `size`, in bytes.
    pub fn assemble_with(self, options: &str) -> Job {
        self.step(&format!("mdadm --assemble $MD {options} $LOOPS 2>&1\nsize"))
    }

    /// Fills the whole array from the beginning of a file that is at least as long.
    pub fn write(self, content: &Path) -> Job {
        let content = guest::quote(&guest::path(content));
        self.step(&format!(
            "dd if={content} of=$MD bs=1M iflag=fullblock,count_bytes count=$(bytes) \
             conv=fsync,notrunc 2>&1"
        ))
    }

    /// Writes the whole file to byte `at` of the array; both are whole KiB.
    pub fn write_at(self, content: &Path, at: u64) -> Job {
        assert_eq!(at % 1024, 0, "a place in whole KiB");
        let content = guest::quote(&guest::path(content));
        self.step(&format!(
            "dd if={content} of=$MD bs=64K oflag=seek_bytes seek={at} conv=fsync,notrunc 2>&1"
        ))
    }

    /// Copies the array into a file of this machine, to be looked at here.
    pub fn read_to(self, file: &Path) -> Job {
        let file = guest::quote(&parent_path(file));
        self.step(&format!("dd if=$MD of={file} bs=1M 2>&1"))
    }

    /// Fails unless the array equals the beginning of the file, to the array's last byte.
    /// What md gave instead goes into the file `<file>.found` for the test to name the byte.
    pub fn expect(self, content: &Path) -> Job {
        let content = guest::path(content);
        let found = guest::quote(&format!("{content}.found"));
        self.step(&format!("expect {} {found}", guest::quote(&content)))
    }

    /// Lets md begin what it puts off until the first write to an array it has assembled.
    pub fn read_write(self) -> Job {
        self.step(
            "read -r state < $SYS/array_state\n\
             [ $state != read-auto ] || mdadm --readwrite $MD 2>&1",
        )
    }

    /// Waits until md has nothing left to make consistent. An array that was just assembled puts
    /// that off: see [`Job::read_write`].
    pub fn settle(self) -> Job {
        self.step("settle")
    }

    /// Lets md compare all redundancy. Reports `mismatch`: md's count, in sectors; zero where there
    /// is no redundancy.
    pub fn check(self) -> Job {
        self.step("check")
    }

    /// Marks a slot faulty and takes it out of the array.
    pub fn fail(self, slot: usize) -> Job {
        self.step(&format!(
            "mdadm $MD --fail \"$L{slot}\" 2>&1\nsettle\nmdadm $MD --remove \"$L{slot}\" 2>&1"
        ))
    }

    /// Adds an image as a spare and waits for its recovery.
    pub fn recover_onto(self, image: &Path) -> Job {
        let image = guest::quote(&guest::path(image));
        self.step(&format!("attach {image}\nmdadm $MD --add \"$loop\" 2>&1\nsettle"))
    }

    /// Lets mdadm print every member's superblock: see [`Report::examined`].
    pub fn examine(self) -> Job {
        self.step("for loop in $LOOPS; do mdadm --examine \"$loop\" 2>&1; done")
    }

    /// Stops the array when it is clean.
    pub fn stop(self) -> Job {
        self.step("mdadm --wait-clean $MD\nmdadm --stop $MD 2>&1")
    }

    /// A step in shell. A line `@key value` that it prints becomes a value of the report.
    pub fn step(mut self, shell: &str) -> Job {
        self.steps.push_str(shell);
        self.steps.push('\n');
        self
    }

    fn script(&self) -> String {
        let mut text = String::from("set -eu; LOOPS=; trap take_down EXIT\n");
        for (i, slot) in self.slots.iter().enumerate() {
            let line = match slot {
                Some(image) => {
                    format!("attach {}; L{i}=$loop", guest::quote(&guest::path(image)))
                }
                None => format!("L{i}="),
            };
            writeln!(text, "{line}").expect("writing to a string");
        }
        text + &self.steps
    }
}

/// The path, as the guest sees it, of a file that may not exist yet.
fn parent_path(file: &Path) -> String {
    let dir = file.parent().expect("a file has a directory");
    let name = file.file_name().and_then(|name| name.to_str()).expect("paths of tests are UTF-8");
    format!("{}/{name}", guest::path(dir))
}

/// What every job may call. Reading sysfs with `read` starts no process: those are slow here.
const FUNCTIONS: &str = r#"
MD=/dev/md0 SYS=/sys/block/md0/md
attach() { loop=$(losetup --find --show "$1"); LOOPS="$LOOPS $loop"; }
bytes() { read -r sectors < /sys/block/md0/size; echo $((sectors * 512)); }
size() { echo "@size $(bytes)"; }
quiet() {
    [ -e $SYS/sync_action ] || return 0
    read -r action < $SYS/sync_action
    read -r resync < $SYS/resync_start
    [ "$action $resync" = "idle none" ] || return 1
    for state in $SYS/dev-*/state; do
        read -r state < $state
        [ "$state" != spare ] || return 1
    done
}
settle() {
    tries=600
    until quiet; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "md never settled"; cat /proc/mdstat; return 1; }
        sleep 0.05
    done
}
check() {
    [ -e $SYS/sync_action ] || { echo "@mismatch 0"; return 0; }
    settle
    echo check > $SYS/sync_action
    settle
    read -r count < $SYS/mismatch_cnt
    echo "@mismatch $count"
}
sum() { sha256sum | cut -d' ' -f1; }
expect() {
    found=$(sum < $MD)
    expected=$(head -c "$(bytes)" "$1" | sum)
    [ "$found" != "$expected" ] || return 0
    dd if=$MD of="$2" bs=1M 2>&1
    echo "the array differs from $1"
    return 1
}
take_down() {
    [ ! -e $SYS ] || mdadm --stop $MD > /dev/null 2>&1 || echo "cannot stop $MD"
    [ -z "$LOOPS" ] || losetup -d $LOOPS
}
"#;

/// What came of a job.
#[derive(Clone, Debug)]
pub struct Report {
    /// The job's name.
    pub name: String,
    /// 0 if all steps went well.
    pub status: i32,
    /// Everything its steps printed.
    pub text: String,
}

impl Report {
    /// The last value a step reported under this key. Panics, with the text, if there is none.
    pub fn value(&self, key: &str) -> &str {
        let prefix = format!("@{key} ");
        let line = self.text.lines().rev().find_map(|line| line.strip_prefix(&prefix));
        line.unwrap_or_else(|| panic!("{}: no value {key} in\n{}", self.name, self.text))
    }

    /// The same as a number.
    pub fn number(&self, key: &str) -> u64 {
        let value = self.value(key);
        value.parse().unwrap_or_else(|_| panic!("{}: {key} is {value}", self.name))
    }

    /// The report itself if all steps went well. Panics with everything it says otherwise.
    pub fn expect_success(&self) -> &Report {
        assert_eq!(self.status, 0, "{} failed:\n{}", self.name, self.text);
        self
    }

    /// Asserts what [`Job::judge`] asks: all steps went well, md found no mismatch, and mdadm
    /// finds every superblock of the `members` that are there correct, clean and of one age.
    /// Panics with everything the report says otherwise.
    pub fn expect_good(&self, members: usize) -> &Report {
        self.expect_success();
        let examined = self.examined();
        assert_eq!(examined.len(), members, "{}: superblocks in\n{}", self.name, self.text);
        for member in &examined {
            let same_age = member.field("Events") == examined[0].field("Events");
            let clean = member.field("State") == "clean";
            let good = member.checksum_is_correct() && clean && same_age;
            assert!(good, "{}: a superblock in\n{}", self.name, self.text);
        }
        assert_eq!(self.number("mismatch"), 0, "{}: mismatches in\n{}", self.name, self.text);
        self
    }

    /// What `mdadm --examine` said of each member, in the order of the slots that are there.
    pub fn examined(&self) -> Vec<Examined> {
        let starts = self.text.match_indices("/dev/loop").filter(|(at, _)| {
            let line = self.text[*at..].lines().next().unwrap_or_default();
            line.ends_with(':') && (*at == 0 || self.text[..*at].ends_with('\n'))
        });
        let starts: Vec<usize> = starts.map(|(at, _)| at).collect();
        let ends = starts.iter().skip(1).copied().chain([self.text.len()]);
        let blocks = starts.iter().zip(ends).map(|(start, end)| &self.text[*start..end]);
        blocks.map(|text| Examined { text: text.to_string() }).collect()
    }
}

/// `mdadm --examine` of one member.
#[derive(Clone, Debug)]
pub struct Examined {
    /// The whole text.
    pub text: String,
}

impl Examined {
    /// What stands after `key : `, as in `Events : 17`. Panics, with the text, if nothing does.
    pub fn field(&self, key: &str) -> &str {
        let lines = self.text.lines().filter_map(|line| line.split_once(" : "));
        let mut found = lines.filter(|(name, _)| name.trim() == key);
        let value = found.next().map(|(_, value)| value.trim());
        value.unwrap_or_else(|| panic!("no field {key} in\n{}", self.text))
    }

    /// True if mdadm agrees with the superblock's checksum.
    pub fn checksum_is_correct(&self) -> bool {
        self.field("Checksum").ends_with("- correct")
    }
}

/// Runs the jobs in one guest, one after the other; a report for each, in the same order.
/// Panics if the guest ends before all jobs did.
pub fn run(jobs: &[Job]) -> Vec<Report> {
    // Measured: under two seconds a job on a free machine; thirty leave room for a very busy one.
    run_within(jobs, Duration::from_secs(60 + 30 * jobs.len() as u64))
}

/// The same with a limit of time.
pub fn run_within(jobs: &[Job], limit: Duration) -> Vec<Report> {
    let mut text = format!("{FUNCTIONS}\nset +e\n");
    for job in jobs {
        let script = job.script();
        write!(text, "echo '@begin'\n(\n{script}) < /dev/null\necho \"\n@end $?\"\n")
            .expect("writing to a string");
    }
    let outcome = Script::new(text).limit(limit).run();
    let parts: Vec<&str> = outcome.output.split("@begin\n").skip(1).collect();
    let reports = jobs.iter().zip(&parts).filter_map(|(job, part)| report(job, part));
    let reports: Vec<Report> = reports.collect();
    if outcome.end != End::Exited(0) || reports.len() != jobs.len() {
        let job = jobs.get(reports.len()).map_or("after the last job", |job| &job.name);
        let last = parts.last().copied().unwrap_or(&outcome.output);
        panic!("guest: {:?} in {job}\n{}\n{last}", outcome.end, outcome.console);
    }
    reports
}

fn report(job: &Job, part: &str) -> Option<Report> {
    let (text, status) = part.rsplit_once("\n@end ")?;
    let status = status.trim().parse().ok()?;
    Some(Report { name: job.name.clone(), status, text: text.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_gives_the_last_value_and_the_fields_of_each_member() {
        let text = "@size 1\n@size 4096\n/dev/loop0:\n   Magic : a92b4efc\n\
                    \x20  Checksum : 1 - correct\n\
                    /dev/loop3:\n   Checksum : 2 - expected 3\n   Array State : AA ('A' == active)";
        let report = Report { name: "job".into(), status: 0, text: text.into() };
        assert_eq!(report.number("size"), 4096);
        let members = report.examined();
        let correct: Vec<bool> = members.iter().map(Examined::checksum_is_correct).collect();
        assert_eq!(correct, [true, false]);
        assert_eq!(members[1].field("Array State"), "AA ('A' == active)");
    }

    #[test]
    fn a_geometry_is_told_to_mdadm_in_its_own_words() {
        let geometry = Geometry { level: "6", layout: Some("rs"), chunk_kib: Some(16), ..MIRROR };
        assert_eq!(geometry.options(), "--level=6 --metadata=1.2 --layout=rs --chunk=16");
        assert_eq!(MIRROR.options(), "--level=1 --metadata=1.2");
    }
}
