//! A Linux guest with the kernel's own md driver: the authority the tests ask.
//!
//! The guest is Debian's user-mode-linux: an ordinary process, no root and no virtualisation
//! needed, up in two seconds. Its root file system is this machine's, read-only; every path of
//! this machine is writable below [`HOST`]. A script runs as root inside and its output and exit
//! status come back. Any number of guests run at once.
//!
//! A guest never outlives its [`Guest`]: it is killed when the time is over and when the value is
//! dropped. Should the test process itself be killed, the guest powers itself off a little later.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where this machine's `/` is mounted inside the guest, writable.
pub const HOST: &str = "/run/host";

/// The program: the kernel of Debian's package user-mode-linux.
pub const PROGRAM: &str = "linux.uml";

/// How long a guest may run unless [`Script::limit`] says otherwise.
const LIMIT: Duration = Duration::from_secs(300);

/// The memory of a guest unless [`Script::memory_mib`] says otherwise.
const MEMORY_MIB: u64 = 384;

/// Added to the limit before the guest, left alone, powers itself off.
const ORPHAN_GRACE: Duration = Duration::from_secs(30);

/// How often a waiting test looks at the guest.
const POLL: Duration = Duration::from_millis(20);

/// The path of a file of this machine as the guest sees it. The file must exist.
pub fn path(host: &Path) -> String {
    let full = fs::canonicalize(host)
        .unwrap_or_else(|error| panic!("{} for the guest: {error}", host.display()));
    format!("{HOST}{}", full.to_str().expect("paths of tests are UTF-8"))
}

/// `text` as one word of a shell command.
pub fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A shell script and what it needs.
///
/// It runs under `sh -eu`; the images are loop devices named in `$D0`, `$D1`, ... in order.
/// The working directory is private to the run, and `/run` is scratch space.
#[derive(Clone, Debug)]
pub struct Script {
    text: String,
    images: Vec<PathBuf>,
    memory_mib: u64,
    limit: Duration,
}

impl Script {
    /// A script without images.
    pub fn new(text: impl Into<String>) -> Script {
        Script { text: text.into(), images: Vec::new(), memory_mib: MEMORY_MIB, limit: LIMIT }
    }

    /// Adds images as further loop devices.
    pub fn images(mut self, images: impl IntoIterator<Item = impl Into<PathBuf>>) -> Script {
        self.images.extend(images.into_iter().map(Into::into));
        self
    }

    /// Sets the guest's memory.
    pub fn memory_mib(mut self, mib: u64) -> Script {
        self.memory_mib = mib;
        self
    }

    /// Sets how long the guest may run, boot included.
    pub fn limit(mut self, limit: Duration) -> Script {
        self.limit = limit;
        self
    }

    /// Boots a guest and runs the script to its end.
    pub fn run(&self) -> Outcome {
        self.start().wait()
    }

    /// Boots a guest that runs the script while the test does something else.
    pub fn start(&self) -> Guest {
        let work = TempDir::with_prefix("guest-").expect("a directory for the guest");
        let write = |name: &str, text: &str| {
            fs::write(work.path().join(name), text)
                .unwrap_or_else(|error| panic!("the guest's file {name}: {error}"));
        };
        write("script", &self.text);
        write("init", &padded(&self.init(work.path())));
        write("output", "");
        let console = fs::File::create(work.path().join("console")).expect("a console file");
        let child = Command::new(PROGRAM)
            .arg(format!("mem={}M", self.memory_mib))
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args(["con=null", "con0=null", "con1=null", "ssl=null"])
            // Relative, so that no length or spelling of the directory's path can hurt.
            .args(["uml_dir=.", "umid=guest", "ubd0=init", "init=/bin/sh", "--", "/dev/ubda"])
            .current_dir(work.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TMPDIR", memory_dir(work.path(), self.memory_mib << 20))
            .stdin(Stdio::null())
            .stdout(console.try_clone().expect("a second handle on the console file"))
            .stderr(console)
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {PROGRAM}: {error}"));
        Guest { child, work, deadline: Instant::now() + self.limit, reaped: false }
    }

    /// What the guest's first process does around the script.
    fn init(&self, work: &Path) -> String {
        let mut attach = String::new();
        for (i, image) in self.images.iter().enumerate() {
            let image = quote(&path(image));
            writeln!(attach, "D{i}=$(losetup --find --show {image}); export D{i}")
                .expect("writing to a string");
        }
        let work = quote(&path(work));
        let orphan = (self.limit + ORPHAN_GRACE).as_secs();
        format!(
            "export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
             export HOME=/ LC_ALL=C TMPDIR=/run\n\
             mount -t proc proc /proc\n\
             mount -t sysfs sys /sys\n\
             mount -t tmpfs run /run\n\
             mkdir -p {HOST} /run/mdadm /run/lock /run/kmod/lib\n\
             mount -t hostfs host {HOST} -o /\n\
             ln -s /usr/lib/uml/modules /run/kmod/lib/modules\n\
             modprobe -d /run/kmod -a {MODULES}\n\
             echo 500000 > /proc/sys/dev/raid/speed_limit_min\n\
             echo 5000000 > /proc/sys/dev/raid/speed_limit_max\n\
             ( sleep {orphan}; poweroff -f ) &\n\
             cd {work}\n\
             {attach}\
             sh -eu ./script > ./output 2>&1 < /dev/null\n\
             echo $? > ./status.part\n\
             for md in /dev/md[0-9]*; do\n\
             [ -b \"$md\" ] && mdadm --stop \"$md\" > /dev/null 2>&1\n\
             done\n\
             sync\n\
             mv ./status.part ./status\n\
             poweroff -f\n"
        )
    }
}

/// The drivers a guest has from the start.
const MODULES: &str = "raid0 raid1 raid10 raid456 linear faulty loop fuse";

/// `text` filled with empty lines to whole sectors: the guest reads it from a block device, which
/// works wherever the directory is, also on a file system the guest has mounted over.
fn padded(text: &str) -> String {
    format!("{text}{}", "\n".repeat(text.len().next_multiple_of(512) - text.len()))
}

/// Where the guest keeps its memory: a file it maps executable, fastest on a tmpfs.
fn memory_dir(work: &Path, bytes: u64) -> PathBuf {
    let fits = |dir: &&Path| room_for_code(dir).is_some_and(|room| room >= bytes);
    let places = [Path::new("/dev/shm"), work, Path::new("/var/tmp")];
    places.iter().copied().find(|dir| fits(dir)).unwrap_or(work).to_path_buf()
}

/// Free bytes of the file system of `dir`, if programs may be run from it.
fn room_for_code(dir: &Path) -> Option<u64> {
    let name = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: all zeroes is a valid value of this plain C struct of integers.
    let mut facts: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `name` is a NUL-terminated string and `facts` a struct that both outlive the call.
    let answer = unsafe { libc::statvfs(name.as_ptr(), &mut facts) };
    (answer == 0 && facts.f_flag & libc::ST_NOEXEC == 0).then(|| facts.f_bavail * facts.f_frsize)
}

/// A running guest.
#[derive(Debug)]
pub struct Guest {
    child: Child,
    work: TempDir,
    deadline: Instant,
    reaped: bool,
}

impl Guest {
    /// The process id of the guest's kernel, also its process group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the script has printed so far.
    pub fn output(&self) -> String {
        self.file("output")
    }

    /// Waits until the script has printed `text`. Panics if it never will.
    pub fn wait_for(&mut self, text: &str) {
        while !self.output().contains(text) {
            let over = self.has_ended() || Instant::now() > self.deadline;
            if over && !self.output().contains(text) {
                panic!("the guest never printed {text:?}; it printed:\n{}", self.output());
            }
            std::thread::sleep(POLL);
        }
    }

    /// Lets the time be over now.
    pub fn limit_now(mut self) -> Guest {
        self.deadline = Instant::now();
        self
    }

    /// Waits for the end of the script, or of the time.
    pub fn wait(mut self) -> Outcome {
        while !self.has_ended() {
            if Instant::now() > self.deadline {
                self.end();
                return self.outcome(End::TimedOut);
            }
            std::thread::sleep(POLL);
        }
        self.end();
        let end = match self.file("status").trim().parse() {
            Ok(status) => End::Exited(status),
            Err(_) => End::Died,
        };
        self.outcome(end)
    }

    /// Kills the guest at once, as if its power were cut.
    pub fn cut(mut self) -> Outcome {
        self.end();
        self.outcome(End::Cut)
    }

    fn file(&self, name: &str) -> String {
        let bytes = fs::read(self.work.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn outcome(&self, end: End) -> Outcome {
        Outcome { end, output: self.file("output"), console: self.file("console") }
    }

    /// True if the guest's kernel has ended. It is not reaped here, so that its number stays ours
    /// until its whole group is killed.
    fn has_ended(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        // "pid (name) state ...": the state of what has ended and is not reaped is Z.
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
    }

    /// Kills whatever is left of the process group and reaps its leader.
    fn end(&mut self) {
        if !std::mem::replace(&mut self.reaped, true) {
            let group = -(self.child.id() as libc::pid_t);
            // SAFETY: kill(2) takes two integers. The group is the one this guest was started in;
            // its leader is not reaped yet, so the number cannot belong to anybody else.
            unsafe { libc::kill(group, libc::SIGKILL) };
            // The guest is killed either way; there is nobody to tell from a destructor.
            let _ = self.child.wait();
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

/// How a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The script ended with this status.
    Exited(i32),
    /// The guest ended before the script did.
    Died,
    /// The time was over.
    TimedOut,
    /// The test cut its power.
    Cut,
}

/// What is left of a guest.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// What the script printed, both streams.
    pub output: String,
    /// What the guest's kernel printed while starting.
    pub console: String,
}

impl Outcome {
    /// The output of a script that ended with status 0. Panics with all there is to know otherwise.
    pub fn expect_success(self) -> String {
        if self.end != End::Exited(0) {
            panic!("guest: {:?}\nconsole:\n{}\noutput:\n{}", self.end, self.console, self.output);
        }
        self.output
    }
}
