//! The write journal of a running array: everything goes there first, page by page.
//!
//! The lane of [`super::log`] decides when; here is what is written where. All writes are told,
//! also those that change no parity: what is older in the journal would else be replayed over
//! them. A write becomes rows of 4 KiB, each with its data and then its parity, in blocks that
//! hold whole rows (see [`crate::meta::md_journal`]).
//!
//! Everything before the newest log is durable on the members by the time the next one is written.
//! So where the ring is full, the superblock's tail moves to the newest log, and the rest is free.

use super::flight::Flight;
use crate::layout::{Code, Role};
use crate::meta::md_journal::{BLOCK, BLOCK_BYTES, Meta, PAYLOAD_BYTES, Payload, Ring, Seed, emit};
use crate::units::Sectors;
use smallvec::SmallVec;

/// Where a replayed journal goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalState {
    /// Its ring of blocks.
    pub ring: Ring,
    /// The first block that matters: what the superblock says.
    pub tail: Sectors,
    /// Where the next block goes.
    pub head: Sectors,
    /// The number of the next block.
    pub seq: u64,
}

/// The journal's ring as it is written.
#[derive(Debug)]
pub(super) struct Tape {
    state: JournalState,
    /// First sector of the ring on the device.
    base: Sectors,
    seed: Seed,
    /// Sectors from the tail to the head.
    used: Sectors,
    /// Where the newest log begins.
    newest: Sectors,
}

/// A row to log: its payloads and their pages.
type Row = Vec<(Payload, Vec<u8>)>;

impl Tape {
    pub fn new(state: JournalState, base: Sectors, uuid: &[u8; 16]) -> Tape {
        let used = state.ring.distance(state.tail, state.head);
        Tape { state, base, seed: Seed::of(uuid), used, newest: state.tail }
    }

    /// Most rows of a write to `units` units so that four of the longest logs fit into the ring.
    pub fn rows_max(ring: Ring, units: u64) -> Sectors {
        // Each page may need a block of its own in the worst case.
        let rows = ring.len.0 / 4 / (BLOCK.0 * 2 * (units + 1));
        BLOCK.times(rows.max(1))
    }

    /// Most sectors of a log, but for one write that is longer.
    pub fn log_max(&self) -> Sectors {
        Sectors(self.state.ring.len.0 / 4)
    }

    /// True if a log of `len` sectors and the beginning of the next one fit.
    pub fn fits(&self, len: Sectors) -> bool {
        self.used + len + BLOCK <= self.state.ring.len
    }

    /// All before the newest log is free; the tail to write down.
    pub fn free(&mut self) -> Sectors {
        self.state.tail = self.newest;
        self.used = self.state.ring.distance(self.newest, self.state.head);
        self.newest
    }

    /// The rows a write asks for.
    pub fn rows(&self, flight: &Flight, code: Code) -> Vec<Row> {
        let rows = flight.band.height().div_floor(BLOCK);
        (0..rows).map(|row| self.row(flight, BLOCK.times(row), code)).collect()
    }

    fn row(&self, flight: &Flight, row: Sectors, code: Code) -> Row {
        let page = |unit: u16| {
            let bytes = flight.new_content(unit)?;
            Some(bytes[row.len()..row.len() + BLOCK_BYTES].to_vec())
        };
        let (band, seed) = (&flight.band, self.seed);
        let mut list: Row = Vec::new();
        for unit in band.first..=band.last {
            let page = page(unit).expect("the new content of what is written is known");
            let at = band.array_at(unit) + row;
            list.push((Payload::Data { at, checksum: seed.checksum(&page) }, page));
        }
        let parity = |role| {
            let unit = band.stripe.units.iter().position(|u| u.role == role)?;
            page(unit as u16)
        };
        let (p, q) = (parity(Role::P), parity(Role::Q));
        let pages: SmallVec<[Vec<u8>; 2]> = match (code, p, q) {
            (_, None, None) => return list,
            (Code::PQ, p, q) => {
                let known = [p, q].into_iter().map(|page| page.expect("all parity is known"));
                known.collect()
            }
            (_, p, _) => p.into_iter().collect(),
        };
        let checksums = pages.iter().map(|page| seed.checksum(page)).collect();
        let place = band.stripe.units[0].at + band.low + row;
        list.push((Payload::Parity { row: place, checksums }, pages.concat()));
        list
    }

    /// Sectors that rows take with their blocks.
    pub fn len(rows: &[Row]) -> Sectors {
        let mut blocks = 0;
        let mut left = 0;
        for row in rows {
            let bytes: usize = row.iter().map(|(payload, _)| payload.bytes()).sum();
            if bytes > left {
                (blocks, left) = (blocks + 1, PAYLOAD_BYTES);
            }
            left -= bytes.min(left);
            blocks += row.iter().map(|(payload, _)| payload.pages()).sum::<u64>();
        }
        BLOCK.times(blocks)
    }

    /// Takes the next place for rows: what to write at which sectors of the device.
    pub fn write(&mut self, rows: Vec<Row>) -> SmallVec<[(Sectors, Vec<u8>); 2]> {
        let len = Tape::len(&rows);
        self.newest = self.state.head;
        let mut bytes: Vec<u8> = Vec::with_capacity(len.len());
        let (mut payloads, mut pages, mut room) = (Vec::new(), Vec::new(), PAYLOAD_BYTES);
        for row in rows {
            let size: usize = row.iter().map(|(payload, _)| payload.bytes()).sum();
            if size > room {
                self.close(std::mem::take(&mut payloads), &mut pages, &mut bytes);
                room = PAYLOAD_BYTES;
            }
            room -= size.min(room);
            for (payload, page) in row {
                payloads.push(payload);
                pages.extend_from_slice(&page);
            }
        }
        self.close(payloads, &mut pages, &mut bytes);
        assert_eq!(bytes.len(), len.len(), "a log is as long as it was said to be");
        self.used += len;
        let start = self.newest;
        let first = (self.state.ring.len - start).len().min(bytes.len());
        let rest = bytes.split_off(first);
        let mut writes = SmallVec::new();
        writes.push((self.base + start, bytes));
        if !rest.is_empty() {
            writes.push((self.base, rest));
        }
        writes
    }

    /// Ends a block and appends it with its pages.
    fn close(&mut self, payloads: Vec<Payload>, pages: &mut Vec<u8>, bytes: &mut Vec<u8>) {
        let JournalState { ring, head, seq, .. } = self.state;
        let meta = Meta { seq, position: head, payloads };
        bytes.extend(emit(&meta, self.seed));
        bytes.append(pages);
        self.state.head = ring.add(head, meta.len());
        self.state.seq = seq.wrapping_add(1);
    }
}
