//! A daemon for the tests: mounts a plain image file as the volume.
//!
//! `mount-image MOUNTPOINT IMAGE [WORD...]` mounts; words: `foreground`, `log=FILE`, `grace=MS`,
//! `stop=MS` (the stop hook takes that long), `dead` (opening fails), `noflush` (flushes fail).
//! The image is locked while it is open. `IMAGE.dirty` exists from opening until the stop hook has
//! run.
//! `mount-image umount MOUNTPOINT [lazy]` unmounts and waits.

use raid_core::error::{Error, ErrorKind, Result};
use raid_fuse::daemon::{Options, Outcome, Service, serve};
use raid_fuse::export::{Text, Volume};
use raid_fuse::unmount::{How, unmount};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

struct Image {
    file: File,
    size: u64,
    flushes: bool,
}

impl Volume for Image {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        false
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(buf, at).map_err(|error| Error::io("image", error))
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        if data.starts_with(b"PANIC") {
            panic!("told to panic");
        }
        self.file.write_all_at(data, at).map_err(|error| Error::io("image", error))
    }

    fn flush(&self) -> Result<()> {
        if !self.flushes {
            return Err(Error::new(ErrorKind::Io, "this image cannot be flushed"));
        }
        self.file.sync_all().map_err(|error| Error::io("image", error))
    }

    fn texts(&self) -> Vec<Text> {
        vec![Text::fixed("pid", format!("{}\n", std::process::id()))]
    }
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let answer = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["umount", point] => unmount_it(point, false),
        ["umount", point, "lazy"] => unmount_it(point, true),
        [point, image, ref words @ ..] => mount_it(point, image, words),
        _ => Err(Error::invalid("see the head of this file")),
    };
    match answer {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{:?}: {error}", error.kind);
            ExitCode::FAILURE
        }
    }
}

fn unmount_it(point: &str, lazy: bool) -> Result<()> {
    let how = How { lazy, patience: None };
    unmount(Path::new(point), how, &mut |line| eprintln!("{line}"))
}

fn mount_it(point: &str, image: &str, words: &[&str]) -> Result<()> {
    let value = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let millis = |name| Duration::from_millis(value(name).map_or(0, |ms| ms.parse().unwrap()));
    let options = Options {
        foreground: words.contains(&"foreground"),
        log: value("log=").map(PathBuf::from),
        grace: millis("grace="),
        ..Options::default()
    };
    let open = || open(Path::new(image), words, millis("stop="));
    match serve(Path::new(point), &options, open)? {
        Outcome::Running { pid } => println!("{pid}"),
        Outcome::Stopped => println!("stopped"),
    }
    Ok(())
}

fn open(image: &Path, words: &[&str], stop: Duration) -> Result<Service> {
    if words.contains(&"dead") {
        return Err(Error::new(ErrorKind::Dead, "2 of 4 members are missing"));
    }
    let fail = |error| Error::io("image", error);
    let file = File::options().read(true).write(true).open(image).map_err(fail)?;
    // As members are: held until the last descriptor is closed.
    // SAFETY: a plain call on an open descriptor.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        return Err(Error::new(ErrorKind::Busy, "the image is held by another daemon"));
    }
    let size = file.metadata().map_err(fail)?.len();
    let dirty = image.with_extension("dirty");
    fs::write(&dirty, b"").map_err(fail)?;
    let on_stop = move || {
        std::thread::sleep(stop);
        fs::remove_file(dirty).map_err(fail)
    };
    Ok(Service {
        name: "image".into(),
        volume: Arc::new(Image { file, size, flushes: !words.contains(&"noflush") }),
        members: vec![image.to_path_buf()],
        control: None,
        on_stop: Box::new(on_stop),
    })
}
