//! Moving an array of metadata 0.90 to machines of the other byte order, only when asked to.
//!
//! Such an array is served in the byte order it has; only a kernel needs its own. Data do not
//! depend on it. The superblock of every member that was given is rewritten, and the array's id
//! in its bitmap, which repeats the superblock's bytes.

use crate::device::{self, Device, read_at, write_at};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::assemble::Candidate;
use crate::meta::md0::{self, ByteOrder, packet::Packet};
use crate::meta::{Found, md_bitmap};
use crate::units::Sectors;

/// A member whose superblock is to be rewritten.
#[derive(Debug)]
pub struct Turn<'a> {
    /// The member's name.
    pub name: &'a str,
    /// The order it has.
    pub from: ByteOrder,
    index: usize,
    found: &'a Found,
}

/// What is to be rewritten of array `uuid`: to this machine's byte order if any member has the
/// other, else to the other one. So an update that was interrupted can be repeated.
///
/// # Errors
/// `Invalid` if the array's metadata is not 0.90.
pub fn turns<'a>(candidates: &'a [Candidate], uuid: &[u8; 16]) -> Result<Vec<Turn<'a>>> {
    let mut turns = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let records = candidate.sightings.iter().filter_map(|s| s.record.as_ref().ok());
        for found in records.filter(|found| found.array.uuid == *uuid) {
            let packet = (found.format.name == md0::V0_90.name)
                .then(|| Packet::new(&found.member.raw))
                .flatten();
            let Some(packet) = packet else {
                return Err(Error::invalid(format!(
                    "{} has metadata {}, which has the same byte order everywhere; there is \
                     nothing to update",
                    candidate.name, found.format
                )));
            };
            turns.push(Turn { name: &candidate.name, from: packet.byte_order(), index, found });
        }
    }
    let foreign = ByteOrder::OWN.other();
    if turns.iter().any(|turn| turn.from == foreign) {
        turns.retain(|turn| turn.from == foreign);
    }
    Ok(turns)
}

/// Rewrites them; `devices` in the order of the candidates.
///
/// # Errors
/// A member cannot be written; those before it are rewritten.
pub fn turn_all(turns: &[Turn<'_>], devices: &[device::Shared]) -> Result<()> {
    for turn in turns {
        let device = devices.get(turn.index).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("no device for {}", turn.name))
        })?;
        rewrite(turn, &**device).map_err(|error| error.context(turn.name))?;
    }
    Ok(())
}

/// The bitmap first: with the old superblock it is still known for this array's.
fn rewrite(turn: &Turn<'_>, device: &dyn Device) -> Result<()> {
    let io = |e| Error::io("rewriting its superblock", e);
    let member = &turn.found.member;
    if let Some(at) = member.bitmap_at {
        let mut head = vec![0; Sectors(1).len()];
        read_at(device, at, &mut head).map_err(io)?;
        if md_bitmap::parse(&head, &turn.found.array.uuid).is_ok() {
            let id = md0::bitmap_id(&turn.found.array.uuid, turn.from.other());
            md_bitmap::patch_uuid(&mut head, &id);
            write_at(device, at, &head).map_err(io)?;
            device.flush().map_err(io)?;
        }
    }
    let bytes = md0::other_byte_order(&member.raw)
        .ok_or_else(|| Error::new(ErrorKind::Metadata, "its superblock is not sound"))?;
    write_at(device, member.super_at, &bytes).map_err(io)?;
    device.flush().map_err(io)
}
