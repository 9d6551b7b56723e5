//! `demo`: an array made, used, broken and read back, with the commands a user would type.
//!
//! Works for any user. Files get into the array by `mkfs.ext4 -d` and out by `debugfs`, which
//! need no root; without these two programs the bytes alone are compared. Without FUSE the same
//! is done through `write` and `cat`. Everything happens in a folder of its own.

use super::members;
use super::out;
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::picture::{self, Mark, picture};
use raid_core::layout::{Params, raid5};
use raid_core::units::{Sectors, Slot};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};

/// Size of a member: enough for a file system, quick to read.
const MEMBER_BYTES: u64 = 32 << 20;
/// Number of members.
const MEMBERS: u16 = 4;
/// Slot of the member that is lost.
const LOST: u16 = 2;
/// Size of the file of made-up bytes.
const NOISE_BYTES: usize = 8 << 20;

/// Files of this machine that are copied in, where they are there.
const SAMPLES: &[&str] = &["/bin/ls", "/bin/sh", "/etc/services", "/etc/os-release", "/etc/passwd"];

/// Arguments of `demo`.
#[derive(clap::Args)]
#[command(after_long_help = "\
Makes a RAID 5 of four files in a new folder, fills it with real files, takes a member away, and
reads everything back byte for byte. Needs no root; uses a few MiB for a few seconds.

Examples:
  raid-fuse demo
  raid-fuse demo --keep    (leaves the folder, to play with the members)")]
pub struct Args {
    /// Leave the folder and its files
    #[arg(long)]
    keep: bool,
}

/// Plays the whole story.
pub fn run(args: &Args) -> Result<ExitCode> {
    let dir = tempfile::Builder::new().prefix("raid-fuse-demo-").tempdir();
    let dir = dir.map_err(|error| Error::io("a folder for the demo", error))?;
    let stage = Stage::new(dir.path())?;
    let played = stage.play();
    stage.take_down();
    let kept = args.keep.then(|| dir.keep());
    played?;
    out::print(&next(kept.as_deref()))?;
    Ok(ExitCode::SUCCESS)
}

/// What to try now.
fn next(kept: Option<&Path>) -> String {
    let members = match kept {
        Some(dir) => format!(
            "\n# The members are in {0}, one of them called dead. Go on with them:\n\
             $ cd {0}\n\
             $ raid-fuse scan\n\
             $ raid-fuse examine d0.img\n\
             $ raid-fuse assemble --explain --degraded d0.img d1.img d3.img\n",
            members::quoted([dir.to_string_lossy().as_ref()])
        ),
        None => "\n# Now with files of your own:\n\
                 $ truncate -s 64M d0.img d1.img d2.img\n\
                 $ raid-fuse create -l 5 -n 3 d0.img d1.img d2.img\n\
                 $ mkdir mnt && raid-fuse mount d0.img d1.img d2.img mnt\n\
                 $ raid-fuse status mnt\n\
                 $ raid-fuse unmount mnt\n"
            .into(),
    };
    let lessons = "# Or see how it works:\n\
                   $ raid-fuse layout -l 6 -n 6 --missing 1,3\n\
                   $ raid-fuse survives -l 10 -n 4\n\
                   $ raid-fuse --help\n";
    format!("{members}{lessons}")
}

/// Where the demo is played.
struct Stage {
    dir: PathBuf,
    program: PathBuf,
    /// Mounts work here.
    fuse: bool,
    /// mkfs.ext4 and debugfs, if both are there.
    ext4: Option<(PathBuf, PathBuf)>,
}

impl Stage {
    fn new(dir: &Path) -> Result<Stage> {
        let program =
            std::env::current_exe().map_err(|error| Error::io("finding this program", error))?;
        let device = File::options().read(true).write(true).open("/dev/fuse");
        // SAFETY: takes nothing, cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let fuse = device.is_ok() && (root || find("fusermount3").is_some());
        let ext4 = find("mkfs.ext4").zip(find("debugfs"));
        Ok(Stage { dir: dir.to_path_buf(), program, fuse, ext4 })
    }

    fn play(&self) -> Result<()> {
        self.make_members()?;
        self.draw(None)?;
        let before = self.fill()?;
        self.lose()?;
        self.draw(Some(Slot(LOST)))?;
        self.read_back(&before)
    }

    fn make_members(&self) -> Result<()> {
        self.say("Four members: sparse files, as good as disks.")?;
        let names: Vec<String> = (0..MEMBERS).map(name).collect();
        self.show(&format!("truncate -s {}M {}", MEMBER_BYTES >> 20, names.join(" ")))?;
        for name in &names {
            let made = File::create_new(self.dir.join(name)).and_then(|f| f.set_len(MEMBER_BYTES));
            made.map_err(|error| Error::io(name, error))?;
        }
        fs::create_dir(self.dir.join("mnt")).map_err(|error| Error::io("mnt", error))?;
        self.say("A RAID 5 of them: three hold data, one parity, in turns.")?;
        let words = ["create", "-l", "5", "-n", "4", "-c", "64K"];
        self.raid_fuse(&[&words, &texts(&names)[..]].concat(), 0).map(drop)
    }

    /// The layout as a picture.
    fn draw(&self, lost: Option<Slot>) -> Result<()> {
        self.say(match lost {
            None => "Where the chunks are (D data, P parity, each 64K):",
            Some(_) => "What is lost is worked out from the rest of its row:",
        })?;
        let params = Params {
            layout: 2,
            chunk: Sectors::kib(64),
            slots: MEMBERS,
            component: Sectors::kib(64 * 100),
            members: Vec::new(),
        };
        let layout = (raid5::LEVEL.make)(&params)?;
        let marks = lost.map(|slot| (slot, Mark::Lost)).into_iter().collect();
        let drawn = picture(&*layout, &picture::Options { rows: 4, marks }).text();
        out::print(&indent(&drawn))
    }

    /// Puts files in; answers all bytes of the volume.
    fn fill(&self) -> Result<Vec<u8>> {
        self.collect()?;
        let members: Vec<String> = (0..MEMBERS).map(name).collect();
        if self.fuse {
            self.say("The array as a file, mnt/volume:")?;
            self.raid_fuse(&[&["mount"], &texts(&members)[..], &["mnt"]].concat(), 0)?;
            self.make_files("mnt/volume")?;
            let before = self.read("mnt/volume")?;
            self.say("Everything back to the members:")?;
            self.raid_fuse(&["unmount", "mnt"], 0)?;
            return Ok(before);
        }
        self.say("FUSE cannot be used here, so the bytes go in and out by `write` and `cat`.")?;
        let size = self.raid_fuse_quiet(&[&["cat"], &texts(&members)[..]].concat())?.len() as u64;
        let image = File::create(self.dir.join("volume.img")).and_then(|f| f.set_len(size));
        image.map_err(|error| Error::io("volume.img", error))?;
        self.make_files("volume.img")?;
        self.show(&format!("raid-fuse write {} < volume.img", members.join(" ")))?;
        let image = File::open(self.dir.join("volume.img"));
        let image = image.map_err(|error| Error::io("volume.img", error))?;
        let mut command = self.command(&[&["write"], &texts(&members)[..]].concat());
        let output = finish(command.stdin(image))?;
        self.expect(&output, 0)?;
        self.read("volume.img")
    }

    /// The files that go in: real ones, and bytes that compress badly.
    fn collect(&self) -> Result<()> {
        let files = self.dir.join("files");
        let fail = |error| Error::io("files", error);
        fs::create_dir(&files).map_err(fail)?;
        for sample in SAMPLES {
            let path = Path::new(sample);
            let last = path.file_name().expect("the samples are files");
            if path.is_file() {
                // What this user may not read is left out.
                let _unreadable = fs::copy(path, files.join(last));
            }
        }
        // A linear congruential generator (Knuth, MMIX): the bytes need only differ.
        let mut state = 1u64;
        let noise: Vec<u8> = (0..NOISE_BYTES)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            })
            .collect();
        fs::write(files.join("noise"), noise).map_err(fail)
    }

    /// A file system with the files on `volume`, or without mkfs.ext4 their bytes alone.
    fn make_files(&self, volume: &str) -> Result<()> {
        if let Some((mkfs, _)) = &self.ext4 {
            self.say("A file system on it, with real files from this machine:")?;
            let words = ["-q", "-F", "-d", "files", volume];
            self.show(&format!("mkfs.ext4 {}", words.join(" ")))?;
            let output = finish(Command::new(mkfs).args(words).current_dir(&self.dir))?;
            return self.expect(&output, 0);
        }
        self.say("No mkfs.ext4 here, so the bytes of a file go in as they are:")?;
        self.show(&format!("dd if=files/noise of={volume} conv=notrunc,fsync"))?;
        let noise = self.read("files/noise")?;
        let file = File::options().write(true).open(self.dir.join(volume));
        let done = file.and_then(|file| {
            std::os::unix::fs::FileExt::write_all_at(&file, &noise, 0)?;
            file.sync_all()
        });
        done.map_err(|error| Error::io(volume, error))
    }

    fn lose(&self) -> Result<()> {
        self.say("Now a disk dies.")?;
        let lost = name(LOST);
        self.show(&format!("mv {lost} {lost}.dead"))?;
        let moved = fs::rename(self.dir.join(&lost), self.dir.join(format!("{lost}.dead")));
        moved.map_err(|error| Error::io(lost, error))?;
        self.say("An array that is not whole does not start by itself (exit code 3):")?;
        let left = left();
        let words = match self.fuse {
            true => [&["mount"], &texts(&left)[..], &["mnt"]].concat(),
            false => [&["cat", "--length", "4K"], &texts(&left)[..]].concat(),
        };
        self.raid_fuse(&words, 3).map(drop)
    }

    /// All bytes are still there, and so are the files.
    fn read_back(&self, before: &[u8]) -> Result<()> {
        self.say("It does when told to:")?;
        let left = left();
        let volume = match self.fuse {
            true => {
                let words = [&["mount", "--degraded"], &texts(&left)[..], &["mnt"]].concat();
                self.raid_fuse(&words, 0)?;
                "mnt/volume"
            }
            false => {
                self.show(&format!("raid-fuse cat --degraded {} > back.img", left.join(" ")))?;
                let words = [&["cat", "--degraded"], &texts(&left)[..]].concat();
                let bytes = self.raid_fuse_quiet(&words)?;
                let written = fs::write(self.dir.join("back.img"), bytes);
                written.map_err(|error| Error::io("back.img", error))?;
                "back.img"
            }
        };
        let after = self.read(volume)?;
        if let Some(at) = (0..before.len())
            .find(|&at| before[at] != after.get(at).copied().unwrap_or(!before[at]))
        {
            return Err(wrong(format!("byte {at} of the volume came back wrong")));
        }
        let text = format!("All {} bytes of the volume are as they were.", after.len());
        self.say(&text)?;
        self.compare_files(volume)?;
        match self.fuse {
            true => {
                self.say("How it does (exit code 1: degraded):")?;
                self.raid_fuse(&["status", "mnt"], 1)?;
                self.raid_fuse(&["unmount", "mnt"], 0).map(drop)
            }
            false => {
                self.say("How it does (exit code 1: degraded):")?;
                self.raid_fuse(&[&["status"], &texts(&left)[..]].concat(), 1).map(drop)
            }
        }
    }

    fn compare_files(&self, volume: &str) -> Result<()> {
        let Some((_, debugfs)) = &self.ext4 else { return Ok(()) };
        let back = self.dir.join("back");
        fs::create_dir(&back).map_err(|error| Error::io("back", error))?;
        let words = ["-R", "rdump / back", volume];
        self.show(&format!("debugfs -R 'rdump / back' {volume}"))?;
        // Its complaints about owners it may not set are of no interest: bytes are compared.
        finish(Command::new(debugfs).args(words).current_dir(&self.dir))?;
        let mut count = 0;
        let entries = fs::read_dir(self.dir.join("files"));
        for entry in entries.map_err(|error| Error::io("files", error))? {
            let name = entry.map_err(|error| Error::io("files", error))?.file_name();
            let name = Path::new(&name).display().to_string();
            if self.read(&format!("files/{name}"))? != self.read(&format!("back/{name}"))? {
                return Err(wrong(format!("{name} came back different")));
            }
            count += 1;
        }
        self.say(&format!("All {count} files came back byte for byte."))
    }

    /// Whatever went wrong, nothing stays mounted.
    fn take_down(&self) {
        if self.fuse {
            // Usually it is down already, and then this complains.
            let _down = finish(&mut self.command(&["unmount", "--lazy", "mnt"]));
        }
    }

    fn say(&self, text: &str) -> Result<()> {
        out::print(&format!("\n# {text}\n"))
    }

    fn show(&self, command: &str) -> Result<()> {
        out::print(&format!("$ {command}\n"))
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(&self.dir).stdin(Stdio::null());
        command
    }

    /// Runs this program as a user would, shows what it says, and checks how it ends.
    fn raid_fuse(&self, words: &[&str], code: i32) -> Result<Vec<u8>> {
        self.show(&format!("raid-fuse {}", members::quoted(words.iter().copied())))?;
        let output = finish(&mut self.command(words))?;
        self.expect(&output, code)?;
        Ok(output.stdout)
    }

    fn raid_fuse_quiet(&self, words: &[&str]) -> Result<Vec<u8>> {
        let output = finish(&mut self.command(words))?;
        if !output.status.success() {
            return Err(wrong(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        Ok(output.stdout)
    }

    fn expect(&self, output: &Output, code: i32) -> Result<()> {
        for stream in [&output.stdout, &output.stderr] {
            out::print(&indent(&String::from_utf8_lossy(stream)))?;
        }
        match output.status.code() == Some(code) {
            true => Ok(()),
            false => Err(wrong(format!("that ended with {}, not with code {code}", output.status))),
        }
    }

    fn read(&self, name: &str) -> Result<Vec<u8>> {
        fs::read(self.dir.join(name)).map_err(|error| Error::io(name, error))
    }
}

fn name(slot: u16) -> String {
    format!("d{slot}.img")
}

fn left() -> Vec<String> {
    (0..MEMBERS).filter(|slot| *slot != LOST).map(name).collect()
}

fn texts(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

fn wrong(text: String) -> Error {
    Error::new(ErrorKind::Io, format!("the demo failed: {text}"))
}

fn finish(command: &mut Command) -> Result<Output> {
    command.output().map_err(|error| Error::io(format!("{:?}", command.get_program()), error))
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {line}").trim_end().to_string() + "\n").collect()
}

/// A program in `PATH`, or where distributions keep the administrator's.
fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(system);
    dirs.find_map(|dir| Some(dir.join(name)).filter(|path| path.is_file()))
}
