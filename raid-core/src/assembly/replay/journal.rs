//! The write journal replayed: what was acknowledged and is only there goes to the members.
//!
//! In order, each step durable before the next: rows with their parity are written as they are;
//! rows without (write-back mode left them) are merged with what the members hold and get new
//! parity. All that can be done again from the same journal with the same result, as long as what
//! it needs of the members is not what it changes. Where it is (a unit of the row is lost and must
//! be solved from old parity), the merged row goes to the journal first, with its parity. At the
//! end an empty block far ahead in number begins a new log, and the superblock points to it.

use super::Replayed;
use super::members::Members;
use super::row::Row;
use super::rows::{Pages, Rows};
use crate::device::{Shared, read_at, write_at};
use crate::engine::{Emit, JournalState};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Role;
use crate::meta::assemble::Journal;
use crate::meta::md_journal::{self, BLOCK, BLOCK_BYTES, Meta, Payload, Ring, SEQ_GAP, Scan, Seed};
use crate::meta::record::{ArrayRecord, MemberRecord};
use crate::units::Sectors;

/// The journal while it is replayed.
pub struct Desk<'a> {
    device: Shared,
    member: MemberRecord,
    array: &'a ArrayRecord,
    emit: Emit,
    seed: Seed,
    ring: Ring,
    read_only: bool,
}

impl<'a> Desk<'a> {
    /// The journal `found` on `device`.
    ///
    /// # Errors
    /// It has no room for a block, or lies beyond the device's end.
    pub fn new(
        found: &Journal,
        device: Shared,
        array: &'a ArrayRecord,
        emit: Emit,
        read_only: bool,
    ) -> Result<Desk<'a>> {
        let member = found.member.clone();
        let end = member.data_at.0.checked_add(member.data_len.0);
        let fits = end.is_some_and(|end| end <= device.facts().sectors.0);
        let ring = Ring::on(member.data_len).filter(|_| fits).ok_or_else(|| {
            let text = format!("{} is too short for the journal it should hold", found.name);
            Error::new(ErrorKind::Metadata, text)
        })?;
        let seed = Seed::of(&array.uuid);
        Ok(Desk { device, member, array, emit, seed, ring, read_only })
    }

    fn scan(&self) -> Result<Option<Scan>> {
        let mut read =
            |at: Sectors, buf: &mut [u8]| read_at(&*self.device, self.member.data_at + at, buf);
        let tail = self.member.journal_tail.unwrap_or_default();
        md_journal::scan(self.ring, tail, self.seed, &mut read)
            .map_err(|e| Error::io("reading its log", e))
    }

    fn page(&self, at: Sectors) -> Result<Vec<u8>> {
        let mut page = vec![0; BLOCK_BYTES];
        read_at(&*self.device, self.member.data_at + at, &mut page)
            .map_err(|e| Error::io(format!("reading its block at {at}"), e))?;
        Ok(page)
    }

    fn put(&self, at: Sectors, block: &[u8]) -> Result<()> {
        write_at(&*self.device, self.member.data_at + at, block)
            .map_err(|e| Error::io(format!("writing its block at {at}"), e))
    }

    fn flush(&self) -> Result<()> {
        self.device.flush().map_err(|e| Error::io("flushing it", e))
    }

    /// Lets the superblock say that the log begins at `tail`.
    fn commit_tail(&mut self, tail: Sectors) -> Result<()> {
        self.member.journal_tail = Some(tail);
        let (at, bytes) = (self.emit)(self.array, &self.member)?;
        write_at(&*self.device, at, &bytes).map_err(|e| Error::io("writing its superblock", e))?;
        self.flush()
    }
}

/// Replays the journal on `members`; the log is then empty unless the desk is read-only.
pub fn replay(members: &Members<'_>, mut desk: Desk<'_>, done: &mut Replayed) -> Result<()> {
    let Some(scan) = desk.scan()? else {
        if !desk.read_only {
            let seq = md_journal::fresh_seq(&desk.member.device_uuid, desk.array.utime);
            done.journal = Some(begin(&mut desk, Sectors::ZERO, seq)?);
        }
        return Ok(());
    };
    let rows = Rows::of(&scan, desk.ring, members.layout)?;
    for (&at, list) in &rows.complete {
        for pages in list {
            load(members, &desk, at, pages)?.write(members)?;
            done.rows += 1;
        }
    }
    members.flush()?;
    let mut fragile = Vec::new();
    for (at, pages) in &rows.data_only {
        let mut row = load(members, &desk, *at, pages)?;
        let lacks = row.lacks_data(members);
        row.complete(members)?;
        done.merged += 1;
        match lacks && !desk.read_only {
            true => fragile.push((row, pages)),
            false => row.write(members)?,
        }
    }
    members.flush()?;
    if desk.read_only {
        return Ok(());
    }
    let (mut end, mut seq) = (scan.end, scan.seq.wrapping_add(SEQ_GAP));
    if !fragile.is_empty() {
        (end, seq) = log_first(&mut desk, &scan, &fragile, seq)?;
        fragile.iter().try_for_each(|(row, _)| row.write(members))?;
        members.flush()?;
    }
    done.journal = Some(begin(&mut desk, end, seq)?);
    Ok(())
}

/// Begins a new log at `at`.
fn begin(desk: &mut Desk<'_>, at: Sectors, seq: u64) -> Result<JournalState> {
    desk.put(at, &md_journal::emit(&Meta::empty(seq, at), desk.seed))?;
    desk.flush()?;
    desk.commit_tail(at)?;
    let head = desk.ring.add(at, BLOCK);
    Ok(JournalState { ring: desk.ring, tail: at, head, seq: seq.wrapping_add(1) })
}

/// The row at `at` with what the journal has of it.
fn load(members: &Members<'_>, desk: &Desk<'_>, at: Sectors, pages: &Pages) -> Result<Row> {
    let mut row = Row::new(members, at);
    for (&unit, &place) in &pages.data {
        row.put(Role::Data(unit), desk.page(place)?);
    }
    if let Some(place) = pages.parity {
        row.put(Role::P, desk.page(place)?);
        if row.stripe.units.iter().any(|unit| unit.role == Role::Q) {
            row.put(Role::Q, desk.page(desk.ring.add(place, BLOCK))?);
        }
    }
    Ok(row)
}

/// Writes merged rows with their parity to the journal behind what `scan` found, and lets the
/// log begin there. Where it ends, and the next number.
fn log_first(
    desk: &mut Desk<'_>,
    scan: &Scan,
    rows: &[(Row, &Pages)],
    seq: u64,
) -> Result<(Sectors, u64)> {
    let payloads: Vec<Vec<(Payload, Vec<u8>)>> =
        rows.iter().map(|(row, pages)| payloads(row, pages, desk.seed)).collect();
    let blocks: usize =
        payloads.iter().flatten().map(|(_, pages)| 1 + pages.len() / BLOCK_BYTES).sum();
    let first = scan.metas.first().map_or(scan.end, |meta| meta.position);
    let used = match desk.ring.distance(first, scan.end) {
        Sectors::ZERO => desk.ring.len,
        used => used,
    };
    if used + BLOCK.times(blocks as u64 + 1) > desk.ring.len {
        let text = "it is too full to merge its rows without a member: give the missing member";
        return Err(Error::new(ErrorKind::Refused, text));
    }
    let (mut at, mut seq) = (scan.end, seq);
    for row in payloads {
        let (list, pages): (Vec<Payload>, Vec<Vec<u8>>) = row.into_iter().unzip();
        if list.iter().map(Payload::bytes).sum::<usize>() > md_journal::PAYLOAD_BYTES {
            let text = "a row of this many members does not fit into a block of the journal";
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let meta = Meta { seq, position: at, payloads: list };
        let mut place = at;
        let block = md_journal::emit(&meta, desk.seed);
        for block in
            block.chunks(BLOCK_BYTES).chain(pages.iter().flat_map(|p| p.chunks(BLOCK_BYTES)))
        {
            desk.put(place, block)?;
            place = desk.ring.add(place, BLOCK);
        }
        (at, seq) = (place, seq.wrapping_add(1));
    }
    desk.flush()?;
    desk.commit_tail(scan.end)?;
    Ok((at, seq))
}

/// What the journal must hold of a merged row, with the pages: the data it had, and the parity.
fn payloads(row: &Row, pages: &Pages, seed: Seed) -> Vec<(Payload, Vec<u8>)> {
    let unit = |role| row.unit(role).map(<[u8]>::to_vec);
    let within = row.at.rem(row.stripe.len);
    let mut list: Vec<(Payload, Vec<u8>)> = Vec::new();
    for &number in pages.data.keys() {
        let Some(page) = unit(Role::Data(number)) else { continue };
        let at = row.stripe.start + row.stripe.len.times(number.into()) + within;
        list.push((Payload::Data { at, checksum: seed.checksum(&page) }, page));
    }
    let parity: Vec<Vec<u8>> = [Role::P, Role::Q].into_iter().filter_map(unit).collect();
    let checksums = parity.iter().map(|page| seed.checksum(page)).collect();
    list.push((Payload::Parity { row: row.at, checksums }, parity.concat()));
    list
}
