//! Parity made right again from the partial parity logs of the members.
//!
//! The rule is the kernel's (`ppl_recover_entry`): parity of a row = its partial parity XOR what
//! the units that were being written hold now, old or new. Where one of these units is on a
//! member that is gone, the row is left as it is: nothing but that unit is in doubt.

use super::Replayed;
use super::members::Members;
use crate::code;
use crate::device::{Shared, read_at, write_at};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Role;
use crate::meta::assemble::Seat;
use crate::meta::md_ppl::{self, Entry, Header, Strip};
use crate::meta::record::{Area, ArrayRecord};
use crate::units::{Sectors, Slot};

/// The newest log of a member.
struct Log<'a> {
    slot: Slot,
    seat: &'a Seat,
    device: &'a Shared,
    area: Area,
    newest: Option<(Sectors, Header)>,
}

/// Replays all logs if the array is dirty; then, unless `read_only`, makes them all empty.
pub fn replay(
    members: &Members<'_>,
    array: &ArrayRecord,
    read_only: bool,
    done: &mut Replayed,
) -> Result<()> {
    let mut logs = Vec::new();
    for (slot, seat, device) in members.present() {
        let Some(area) = seat.member.ppl else { continue };
        let mut read = |at: Sectors, buf: &mut [u8]| read_at(&**device, area.at + at, buf);
        let newest = md_ppl::newest(area.len, &array.uuid, &mut read)
            .map_err(|e| Error::io(format!("reading the log of {}", seat.name), e))?;
        logs.push(Log { slot, seat, device, area, newest });
    }
    if array.resync.is_some() {
        for log in &logs {
            log.replay(members, done)
                .map_err(|error| error.context(format!("the log of {}", log.seat.name)))?;
        }
        members.flush()?;
    }
    match read_only {
        true => Ok(()),
        // All of them are replayed and durable: none is needed any more.
        false => logs.iter().try_for_each(|log| log.clear(&array.uuid)),
    }
}

impl Log<'_> {
    fn replay(&self, members: &Members<'_>, done: &mut Replayed) -> Result<()> {
        let Some((at, header)) = &self.newest else {
            done.unreadable += 1;
            return Ok(());
        };
        for (place, entry) in header.places() {
            let mut parity = vec![0; entry.parity.len()];
            read_at(&**self.device, self.area.at + *at + place, &mut parity)
                .map_err(|e| Error::io("reading partial parity", e))?;
            if md_ppl::checksum(&parity) != entry.checksum {
                // The log itself was cut short, so what it speaks of had not begun.
                done.unreadable += 1;
                continue;
            }
            self.replay_entry(members, entry, &parity)?;
            done.entries += 1;
        }
        Ok(())
    }

    fn replay_entry(&self, members: &Members<'_>, entry: &Entry, parity: &[u8]) -> Result<()> {
        let shape = members.layout.shape();
        let strip = entry.strip(shape.chunk, shape.data_units.into());
        let inside = |strip: &Strip| strip.end <= shape.size && entry.slot == self.slot;
        let strip = strip.filter(inside).ok_or_else(|| nonsense(entry))?;
        let page = if is_paged(&strip) { Sectors(8) } else { Sectors(1) };
        let mut row = Sectors::ZERO;
        while row < strip.height {
            let len = page.min(strip.height - row);
            self.replay_row(members, entry, &strip, row, len, parity)?;
            row += len;
        }
        Ok(())
    }

    /// Makes the parity of `len` rows from `row` on.
    fn replay_row(
        &self,
        members: &Members<'_>,
        entry: &Entry,
        strip: &Strip,
        row: Sectors,
        len: Sectors,
        partial: &[u8],
    ) -> Result<()> {
        let layout = members.layout;
        let mut parity = vec![0; len.len()];
        if !entry.parity.is_empty() {
            parity.copy_from_slice(&partial[row.len()..(row + len).len()]);
        }
        let (mut unit, mut is_touched) = (vec![0; len.len()], false);
        for at in strip.row(row, layout.shape().chunk) {
            let (slot, place) = locate(members, at);
            if !members.can_read(slot, place) {
                return Ok(());
            }
            members.read(slot, place, &mut unit)?;
            let old = parity.clone();
            code::xor(&[&old, &unit], &mut parity);
            is_touched = true;
        }
        if !is_touched {
            // Nothing was written in this row, and it may lie beyond the array.
            return Ok(());
        }
        let stripe = layout.stripe(layout.locate(strip.at + row));
        let within = (strip.at + row - stripe.start).rem(stripe.len);
        let p = stripe.units.iter().find(|unit| unit.role == Role::P);
        match p.filter(|p| p.slot == self.slot) {
            Some(p) => members.write(p.slot, p.at + within, &parity),
            None => Err(nonsense(entry)),
        }
    }

    /// Zeros the area, so that no old log seems to follow the next, and writes an empty log.
    fn clear(&self, uuid: &[u8; 16]) -> Result<()> {
        let io = |e| Error::io(format!("clearing the log of {}", self.seat.name), e);
        write_at(&**self.device, self.area.at, &vec![0; self.area.len.len()]).map_err(io)?;
        self.device.flush().map_err(io)?;
        write_at(&**self.device, self.area.at, &md_ppl::empty(uuid, 0)).map_err(io)?;
        self.device.flush().map_err(io)
    }
}

/// True if whole blocks of 4 KiB were written, so that they can be taken at once.
fn is_paged(strip: &Strip) -> bool {
    strip.at.rem(Sectors(8)).is_empty() && strip.height.rem(Sectors(8)).is_empty()
}

/// Slot and place (from the start of data) of array sector `at`.
fn locate(members: &Members<'_>, at: Sectors) -> (Slot, Sectors) {
    let stripe = members.layout.stripe(members.layout.locate(at));
    let inside = at - stripe.start;
    let unit = stripe.units[inside.div_floor(stripe.len) as usize];
    (unit.slot, unit.at + inside.rem(stripe.len))
}

fn nonsense(entry: &Entry) -> Error {
    let text = format!(
        "it speaks of {} sectors at array sector {} with parity in slot {}, which is not how \
         this array lies",
        entry.data, entry.at, entry.slot
    );
    Error::new(ErrorKind::Metadata, text)
}
