//! md metadata: superblocks as bytes and as records, and the decision which members to trust.
//!
//! Pure code: byte windows in, records and bytes out; no files, no devices, no clock.
//! Promises: no bytes make it panic; a record that was parsed makes sense (bounds, checksum,
//! everything the kernel checks and more); bytes we do not know survive a rewrite.
//! Refuses: metadata whose data it could not map (a reshape, unknown feature bits).
//!
//! - [`record`] is what the rest of the crate sees; [`Format`] translates, [`FORMATS`] lists.
//! - [`md1`] is md 1.0, 1.1 and 1.2; [`md0`] is md 0.90 in either byte order;
//!   [`foreign`] names everything else, [`partitions`] reads partition tables.
//! - [`md_bitmap`], [`bad_blocks`] and [`md_ppl`] are the areas beside a superblock;
//!   [`md_journal`] is the log on a device of its own.
//! - [`examine`] shows what is there, right or wrong; [`create`] plans a new array;
//!   [`assemble`] decides which members may serve.
//!
//! To add a format: write `meta/x.rs` with a `FORMAT`, add `mod x;` and a line in [`FORMATS`].

pub mod assemble;
pub mod bad_blocks;
mod bytes;
pub mod create;
pub mod examine;
pub mod foreign;
pub mod join;
pub mod md0;
pub mod md1;
pub mod md_bitmap;
pub mod md_journal;
pub mod md_ppl;
pub mod partitions;
pub mod record;
pub mod sizes;
pub mod time;
pub mod uuid;

use crate::error::{Error, ErrorKind, Result};
use crate::units::{Sectors, Slot, SlotSet};
use record::{Area, ArrayRecord, MemberRecord};
use sizes::Copies;
use std::fmt;
use std::io;

/// Bytes to write, and the sector where they go; whole sectors.
pub type Placed = (Sectors, Vec<u8>);

/// A kind of metadata: where it lies and how to translate it.
pub struct Format {
    /// The name mdadm gives it: `1.2`.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Sector of the superblock on a device of so many sectors; `None`: the device is too small.
    pub super_at: fn(Sectors) -> Option<Sectors>,
    /// True if the bytes found there are this format's, right or wrong.
    pub recognise: fn(&[u8]) -> bool,
    /// Who the bytes say they are, right or wrong.
    pub identity: fn(&[u8]) -> Identity,
    /// Bytes, the sector they were found at, the sectors of the device: all fields, right or
    /// wrong.
    pub examine: fn(&[u8], Sectors, Sectors) -> examine::Examination,
    /// Bytes, the sector they were found at, the sectors of the device: a record that makes sense.
    /// The bad-block log is another area: [`probe`] reads it and fills
    /// [`MemberRecord::bad_blocks`].
    pub parse: fn(&[u8], Sectors, Sectors) -> Result<Found>,
    /// The superblock to write and its sector; whole sectors.
    pub emit: fn(&ArrayRecord, &MemberRecord) -> Result<Placed>,
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Format({})", self.name)
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// Every format that can be read and written, the default for new arrays first.
pub const FORMATS: &[&Format] = &[&md1::V1_2, &md1::V1_1, &md1::V1_0, &md0::V0_90];

/// Every format that is looked for on a device.
pub const PROBED: &[&Format] = FORMATS;

/// What a superblock says of its array, before it is known to make sense.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Array id, in the order mdadm prints it.
    pub uuid: [u8; 16],
    /// Array name, opaque.
    pub name: Vec<u8>,
    /// md's level number.
    pub level: i32,
    /// Update counter.
    pub events: u64,
    /// Time of the last update, seconds since 1970 in the low 40 bits.
    pub utime: u64,
    /// The checksum is right, so that this can be believed.
    pub is_sound: bool,
}

/// The format called `name`.
pub fn format(name: &str) -> Result<&'static Format> {
    FORMATS.iter().copied().find(|format| format.name == name).ok_or_else(|| {
        let known: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        Error::invalid(format!(
            "metadata {name:?} is not one of {}; give one of these with --metadata",
            known.join(", ")
        ))
    })
}

/// A superblock whose record makes sense.
#[derive(Clone, Debug)]
pub struct Found {
    /// The format it is in.
    pub format: &'static Format,
    /// What it says of the array.
    pub array: ArrayRecord,
    /// What it says of this member.
    pub member: MemberRecord,
    /// The bad-block log holds entries; [`probe`] has read them.
    pub has_bad_blocks: bool,
    bars_starting: Option<String>,
    bars_writing: Option<String>,
}

impl Found {
    /// `Err` with a sentence if this metadata may be read but not written by us.
    pub fn writable(&self) -> std::result::Result<(), String> {
        self.startable()?;
        self.bars_writing.clone().map_or(Ok(()), Err)
    }

    /// `Err` with a sentence if the data cannot be mapped, so that even reading is wrong.
    pub fn startable(&self) -> std::result::Result<(), String> {
        self.bars_starting.clone().map_or(Ok(()), Err)
    }
}

/// A superblock that is there, right or wrong.
#[derive(Debug)]
pub struct Sighting {
    /// The format it is in.
    pub format: &'static Format,
    /// The sector where it lies.
    pub at: Sectors,
    /// Its bytes as read.
    pub bytes: Vec<u8>,
    /// The record, or why there is none.
    pub record: Result<Found>,
}

impl Sighting {
    /// Who the superblock says it is.
    pub fn identity(&self) -> Identity {
        (self.format.identity)(&self.bytes)
    }
}

/// Reads the sectors from `at` on into the buffer, whose length is a multiple of 512.
pub type Window<'a> = &'a mut dyn FnMut(Sectors, &mut [u8]) -> io::Result<()>;

/// Bytes looked at in each place where a superblock can lie.
const WINDOW: u64 = 4096;

/// All superblocks of a device of `device` sectors, in every place of every format.
/// Fails only where the device cannot be read.
pub fn probe(device: Sectors, read: Window<'_>) -> Result<Vec<Sighting>> {
    let mut sightings = Vec::new();
    for &format in PROBED {
        let Some(at) = (format.super_at)(device) else { continue };
        let len = device.checked_sub(at).unwrap_or_default().min(Sectors::floor_bytes(WINDOW));
        let bytes = read_area(Area { at, len }, read)?;
        if (format.recognise)(&bytes) {
            let record = (format.parse)(&bytes, at, device)
                .and_then(|found| with_log(found, read))
                .and_then(|found| md0::owner::check(found, device, read));
            sightings.push(Sighting { format, at, bytes, record });
        }
    }
    Ok(sightings)
}

/// `found` with the entries of its bad-block log.
fn with_log(mut found: Found, read: Window<'_>) -> Result<Found> {
    let area = found.member.bad_log.filter(|_| found.has_bad_blocks);
    if let Some(area) = area {
        let log = read_area(area, read)?;
        found.member.bad_blocks = bad_blocks::parse(&log, bad_blocks::shift(&found.member))?;
    }
    Ok(found)
}

/// md's rule for "enough members to run" (`enough` of mdadm, `_enough` of the kernel), from
/// metadata alone: true if `present` slots can serve all data.
pub fn enough(level: i32, layout: u32, slots: u16, present: &SlotSet) -> bool {
    let missing = (slots as usize).saturating_sub(present.len());
    match level {
        1 => !present.is_empty(),
        4 | 5 => missing <= 1,
        6 => missing <= 2,
        10 => enough_copies(Copies::of(layout), slots, present),
        _ => missing == 0,
    }
}

/// Of every run of neighbouring slots that hold the copies of a chunk one must be there.
fn enough_copies(copies: Copies, slots: u16, present: &SlotSet) -> bool {
    slots != 0 && copies.count() != 0 && lost_copies(copies, slots, present).is_none()
}

/// The first run of slots that hold the copies of a chunk none of which is there.
pub(crate) fn lost_copies(copies: Copies, slots: u16, present: &SlotSet) -> Option<Vec<Slot>> {
    let slots = u64::from(slots);
    let run = |first: u64| {
        (first..first + copies.count()).map(|n| Slot((n % slots) as u16)).collect::<Vec<Slot>>()
    };
    let mut runs = (0..slots).map(|k| run(k * copies.near % slots));
    runs.find(|run| !run.iter().any(|slot| present.contains(*slot)))
}

fn read_area(area: Area, read: Window<'_>) -> Result<Vec<u8>> {
    let mut bytes = vec![0; area.len.len()];
    if !bytes.is_empty() {
        read(area.at, &mut bytes)
            .map_err(|e| Error::io(format!("cannot read sector {} for metadata", area.at), e))?;
    }
    Ok(bytes)
}

/// An error about metadata.
fn damaged(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Metadata, message)
}
