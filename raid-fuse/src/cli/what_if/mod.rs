//! `assemble --what-if`: every plausible way to start these members, tried without writing.
//!
//! For arrays that will not start, or should not: members that fell behind, halves that ran on
//! alone, members that accuse each other. Each way is started for reading only, so that nothing
//! reaches the members; the redundancy of random rows and the file system that is seen tell which
//! way is right. What is printed last is the command that starts it.

mod text;
mod tries;
mod witness;

use super::{exit, members, out};
use raid_core::assembly;
use raid_core::device::{OpenOptions, Shared};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::meta::assemble::Candidate;
use raid_core::meta::uuid;
use std::collections::BTreeSet;
use std::process::ExitCode;

/// What is asked.
pub struct Question<'a> {
    /// The members as typed.
    pub specs: &'a [String],
    /// The array that is meant.
    pub uuid: Option<[u8; 16]>,
    /// How many random rows are compared, and the seed that draws them.
    pub sample: (u64, u64),
}

/// Tries and tells; exit code 2 if nothing starts.
pub fn run(question: &Question<'_>) -> Result<ExitCode> {
    let devices = members::open(question.specs, &OpenOptions::looking(), None)?;
    let candidates = members::examine(&devices);
    let uuid = one_array(&candidates, question.uuid)?;
    let witnesses = witness::all(&candidates, &devices, &uuid);
    let tries = tries::all(&devices, &witnesses, &uuid, question.sample);
    let together = tries::together(&witnesses, &devices, question.sample);
    out::print(&text::report(&witnesses, &tries, together.as_ref(), question))?;
    let starts = tries.iter().any(|attempt| attempt.result.is_ok());
    Ok(if starts { ExitCode::SUCCESS } else { ExitCode::from(exit::DEAD) })
}

/// The id of the one array these belong to.
fn one_array(candidates: &[Candidate], wanted: Option<[u8; 16]>) -> Result<[u8; 16]> {
    let records =
        candidates.iter().flat_map(|c| &c.sightings).filter_map(|s| s.record.as_ref().ok());
    let found: BTreeSet<[u8; 16]> = records.map(|found| found.array.uuid).collect();
    let list: Vec<String> = found.iter().map(uuid::to_text).collect();
    match (wanted, found.first()) {
        (Some(uuid), _) if found.contains(&uuid) => Ok(uuid),
        (None, Some(uuid)) if found.len() == 1 => Ok(*uuid),
        (_, None) => Err(Error::new(
            ErrorKind::Metadata,
            "none of the devices carries an md superblock that can be used",
        )),
        _ => Err(Error::new(
            ErrorKind::Refused,
            format!("choose an array with --uuid; there are {}", list.join(", ")),
        )),
    }
}

/// Looks at devices again: a decision takes its candidates as a whole.
fn examine(devices: &[Shared]) -> Vec<Candidate> {
    let look = |device: &Shared| {
        assembly::examine(&**device).unwrap_or_else(|_| {
            // Told of when it was looked at first.
            let facts = device.facts();
            Candidate { name: facts.name.clone(), sectors: facts.sectors, sightings: Vec::new() }
        })
    };
    devices.iter().map(look).collect()
}
