//! Overlays in a directory: found, made, listed, committed, removed.

use super::header::{Header, name_of};
use super::map::MapFile;
use crate::buf::Pool;
use crate::device::file::{FileDevice, OpenOptions};
use crate::device::{Device, read_at, write_at};
use crate::error::{Error, ErrorKind, Result};
use crate::units::Sectors;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bases of one file name in one directory; the second is `NAME-2`.
const SAME_NAME_MAX: usize = 1000;

/// Sectors copied at a time.
const PIECE: Sectors = Sectors::kib(1024);

/// The two files of an overlay, without their endings.
pub(super) struct Files {
    dir: PathBuf,
    stem: String,
}

impl Files {
    pub(super) fn delta(&self) -> PathBuf {
        self.dir.join(format!("{}.delta", self.stem))
    }

    pub(super) fn map(&self) -> PathBuf {
        self.dir.join(format!("{}.map", self.stem))
    }
}

/// The files of the overlay of `base`, made if there are none. An overlay is found by the path of
/// its base; one whose base is gone, by the content of `base`, so that images may be moved.
pub(super) fn find_or_make(base: &dyn Device, dir: &Path) -> Result<Files> {
    std::fs::create_dir_all(dir).map_err(|e| Error::io(dir.display(), e))?;
    let name = name_of(base);
    let stem = name.rsplit('/').next().filter(|s| !s.is_empty()).unwrap_or("member");
    for number in 1..=SAME_NAME_MAX {
        let stem = if number == 1 { stem.to_string() } else { format!("{stem}-{number}") };
        let files = Files { dir: dir.into(), stem };
        if !files.map().exists() {
            make(&files, base)?;
            return Ok(files);
        }
        let (header, file, _) = MapFile::load(&files.map())?;
        if header.base == name {
            return Ok(files);
        }
        if !Path::new(&header.base).exists() && header.matches(base) {
            file.write_header(&Header { base: name, ..header })?;
            return Ok(files);
        }
    }
    let text = format!("{}: has {SAME_NAME_MAX} overlays of files named {stem}", dir.display());
    Err(Error::invalid(text))
}

/// The map appears last and whole: without it a delta means nothing.
fn make(files: &Files, base: &dyn Device) -> Result<()> {
    let header = Header::of(base);
    let (delta, map) = (files.delta(), files.map());
    let made = File::create(&delta).and_then(|file| {
        file.set_len(header.sectors.bytes())?;
        file.sync_all()
    });
    made.map_err(|e| Error::io(delta.display(), e))?;
    let new = map.with_extension("map.new");
    MapFile::create(&new, &header)?;
    std::fs::rename(&new, &map).map_err(|e| Error::io(map.display(), e))?;
    sync_dir(&files.dir)
}

fn sync_dir(dir: &Path) -> Result<()> {
    let synced = File::open(dir).and_then(|dir| dir.sync_all());
    synced.map_err(|e| Error::io(dir.display(), e))
}

/// An overlay that nobody uses at the moment.
pub struct Overlay {
    /// The base: its absolute path, or its name if it has none.
    pub base: String,
    /// Size of the base.
    pub sectors: Sectors,
    /// How much is changed, in whole blocks of 4 KiB.
    pub changed: Sectors,
    /// A commit was begun and did not finish.
    pub committing: bool,
    files: Files,
}

/// The overlays in `dir`, by the name of their base.
///
/// # Errors
/// `Metadata` for a damaged map, `Io` and its like for the directory.
pub fn list(dir: &Path) -> Result<Vec<Overlay>> {
    let told = |e| Error::io(dir.display(), e);
    let mut overlays = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(told)? {
        let name = entry.map_err(told)?.file_name();
        let Some(stem) = name.to_str().and_then(|name| name.strip_suffix(".map")) else { continue };
        let files = Files { dir: dir.into(), stem: stem.into() };
        let (header, _, map) = MapFile::load(&files.map())?;
        let Header { base, sectors, committing, .. } = header;
        overlays.push(Overlay { base, sectors, changed: map.changed(), committing, files });
    }
    overlays.sort_by(|a, b| a.base.cmp(&b.base));
    Ok(overlays)
}

impl Overlay {
    /// Writes the changes to `base` and removes the overlay; says how much was written. After an
    /// interruption, call it again: nothing is lost in between.
    ///
    /// # Errors
    /// `Refused` if `base` is not what the overlay was made over, `ReadOnly` if it cannot be
    /// written, `Busy` if the overlay is in use, `Io`.
    pub fn commit(&self, base: &dyn Device) -> Result<Sectors> {
        let facts = base.facts();
        if facts.read_only {
            let text = format!("{}: is read-only; open it for writing to commit", facts.name);
            return Err(Error::new(ErrorKind::ReadOnly, text));
        }
        let delta = FileDevice::open(&self.files.delta(), &OpenOptions::default())?;
        let (header, file, map) = MapFile::load(&self.files.map())?;
        if facts.sectors != header.sectors || !header.committing {
            header.check_base(base, &self.files.map())?;
        }
        file.write_header(&Header { committing: true, ..header })?;
        for (at, len) in map.runs(facts.sectors) {
            copy(&delta, base, at, len).map_err(|e| Error::io(&facts.name, e))?;
        }
        base.flush().map_err(|e| Error::io(&facts.name, e))?;
        self.unlink()?;
        Ok(map.changed().min(facts.sectors))
    }

    /// Removes the overlay with its changes; the base stays as it is.
    ///
    /// # Errors
    /// `Busy` if the overlay is in use; `Refused` if a commit was begun, because the base then
    /// needs the rest of it.
    pub fn remove(&self) -> Result<()> {
        if self.committing {
            let text = format!(
                "{}: a commit was interrupted and has changed part of it; commit again to finish",
                self.base
            );
            return Err(Error::new(ErrorKind::Refused, text));
        }
        let _lock = FileDevice::open(&self.files.delta(), &OpenOptions::default())?;
        self.unlink()
    }

    fn unlink(&self) -> Result<()> {
        for path in [self.files.map(), self.files.delta()] {
            std::fs::remove_file(&path).map_err(|e| Error::io(path.display(), e))?;
        }
        sync_dir(&self.files.dir)
    }
}

fn copy(from: &dyn Device, to: &dyn Device, at: Sectors, len: Sectors) -> std::io::Result<()> {
    let mut buf = Pool::new(0).take(PIECE.min(len).len());
    let mut done = Sectors::ZERO;
    while done < len {
        let now = PIECE.min(len - done);
        let piece = &mut buf[..now.len()];
        read_at(from, at + done, piece)?;
        write_at(to, at + done, piece)?;
        done += now;
    }
    Ok(())
}
