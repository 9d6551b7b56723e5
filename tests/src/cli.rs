//! The command line under test: run in a folder of its own, with what it left checked.

use crate::guards::is_mounted;
use crate::images::Images;
use crate::mount::run_command;
use crate::requires::is_root;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// `nobody` of every distribution.
const NOBODY: &str = "65534";

/// A folder with members, in which commands run.
pub struct Desk {
    images: Images,
    user: bool,
}

/// How a command ended and what it said.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; -1 if a signal ended it.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Desk {
    /// An empty folder.
    #[expect(clippy::new_without_default, reason = "it makes a directory: nothing is default")]
    pub fn new() -> Desk {
        Desk { images: Images::new(), user: false }
    }

    /// An empty folder of an ordinary user, who then runs the commands. Needs root or is the
    /// user already.
    pub fn of_user() -> Desk {
        let desk = Desk { images: Images::new(), user: is_root() };
        if desk.user {
            let all = |mode| fs::Permissions::from_mode(mode);
            fs::set_permissions(desk.dir(), all(0o777)).unwrap();
            fs::copy(program(), desk.path("raid-fuse")).unwrap();
            fs::set_permissions(desk.path("raid-fuse"), all(0o755)).unwrap();
        }
        desk
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.images.dir()
    }

    /// A file of the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.images.path(name)
    }

    /// New zeroed members, named by words parted by spaces.
    pub fn members(&self, names: &str, bytes: u64) {
        for name in names.split_whitespace() {
            let path = self.images.member(name, bytes);
            fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
        }
    }

    /// An empty folder inside, for everybody.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.images.subdir(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    /// Runs `raid-fuse` with words parted by spaces.
    pub fn run(&self, words: &str) -> Ran {
        self.run_words(&words.split_whitespace().collect::<Vec<&str>>())
    }

    /// Runs `raid-fuse` with these words.
    pub fn run_words(&self, words: &[&str]) -> Ran {
        let mut command = match self.user {
            true => {
                let mut command = Command::new("setpriv");
                command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
                command.arg(self.path("raid-fuse"));
                command
            }
            false => Command::new(program()),
        };
        command.args(words).current_dir(self.dir()).env("TMPDIR", self.dir());
        Ran::new(run_command(&mut command))
    }

    /// Runs a shell line in the folder; the word `raid-fuse` stands for the program.
    pub fn shell(&self, line: &str) -> Ran {
        let line = line.replace("raid-fuse ", &format!("'{}' ", program().display()));
        Ran::new(run_command(Command::new("sh").args(["-c", &line]).current_dir(self.dir())))
    }

    /// Runs and expects success; answers standard output.
    pub fn fine(&self, words: &str) -> String {
        let ran = self.run(words);
        assert_eq!(ran.code, 0, "{words}: {ran:?}");
        ran.out
    }

    /// Runs and expects JSON with any exit code, and nothing else on standard output.
    pub fn json(&self, words: &str) -> Value {
        let ran = self.run(words);
        serde_json::from_str(&ran.out).unwrap_or_else(|error| panic!("{words}: {error}: {ran:?}"))
    }

    /// Runs and expects this exit code and a word on standard error, and that no file of the
    /// folder changed.
    pub fn refused(&self, words: &str, code: i32, word: &str) {
        let before = self.prints();
        let ran = self.run(words);
        assert_eq!(ran.code, code, "{words}: {ran:?}");
        assert!(ran.err.contains(word), "{words}: {word:?} is not in {}", ran.err);
        let said = ran.err.starts_with("raid-fuse: ") || ran.err.starts_with("error: ");
        assert!(said, "{words}: {}", ran.err);
        assert_eq!(self.prints(), before, "{words} changed something");
    }

    /// A checksum and the length of each file of the folder.
    pub fn prints(&self) -> Vec<(PathBuf, u64, u32)> {
        let files = fs::read_dir(self.dir()).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.is_file());
        let print = |path: PathBuf| {
            let bytes = fs::read(&path).unwrap();
            (path, bytes.len() as u64, crc32fast::hash(&bytes))
        };
        let mut prints: Vec<_> = files.map(print).collect();
        prints.sort();
        prints
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let folders = fs::read_dir(self.dir()).into_iter().flatten().flatten();
        for path in folders.map(|entry| entry.path()) {
            if is_mounted(&path) {
                let text = path.to_string_lossy().into_owned();
                let ran = self.run_words(&["unmount", "--lazy", &text]);
                if ran.code != 0 {
                    eprintln!("unmount {text}: {ran:?}");
                }
            }
        }
    }
}

impl Ran {
    fn new(output: Output) -> Ran {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        Ran { code, out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// The program, beside the tests that cargo built.
pub fn program() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a file");
    let deps = own.parent().expect("a file is in a folder");
    let target = deps.parent().expect("tests are two folders below target");
    target.join("raid-fuse-under-test")
}
