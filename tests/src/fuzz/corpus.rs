//! Valid things to spoil: arrays of every level, format and log, made by our own code.

use super::disk::SparseDisk;
use super::mutate;
use raid_core::layout::LEVELS;
use raid_core::meta::create::{Creation, NewBitmap, NewLog, NewMember, Request, create};
use raid_core::meta::md_journal::{self, Meta, Payload, Ring, Seed};
use raid_core::meta::md_ppl::{self, Entry, Header};
use raid_core::meta::{FORMATS, md_bitmap, md0, md1};
use raid_core::sim::Rng;
use raid_core::units::{Sectors, Slot};
use std::sync::Arc;

/// The id of every array here.
pub const UUID: [u8; 16] = *b"fuzzed by itself";

/// Sizes of members, in sectors: tiny to the largest.
const SIZES: &[u64] = &[1024, 5000, 40_000, 40_000, 300_000, 1 << 24, 1 << 33, 1 << 42, 1 << 53];

/// The members of an array.
#[derive(Debug)]
pub struct Members {
    /// The disks, a journal last.
    pub disks: Vec<Arc<SparseDisk>>,
    /// What was planned.
    pub creation: Creation,
}

/// The plan of some array; none where the draw does not go together.
pub fn request(rng: &mut Rng) -> Request {
    let level = *rng.pick(LEVELS);
    let slots = match rng.once_in(100) {
        true => rng.below(1921),
        false => u64::from(level.slots_min.max(1)) + rng.below(5),
    };
    let sectors = *rng.pick(SIZES);
    let new = |rng: &mut Rng| NewMember {
        sectors: Sectors(sectors + rng.below(3) * 8),
        device_uuid: std::array::from_fn(|_| rng.number() as u8),
        write_mostly: rng.once_in(9),
        failfast: rng.once_in(9),
    };
    let log = match rng.below(4) {
        0 if level.number == 5 => Some(NewLog::Ppl),
        1 if (4..=6).contains(&level.number) => Some(NewLog::Journal(new(rng))),
        _ => None,
    };
    let layouts = [0x102, 0x103, 0x201, 0x202, 0x301, 0x10201, 0x10301, 0x20201];
    Request {
        format: *rng.pick(FORMATS),
        level: level.number,
        layout: match level.number {
            10 => Some(*rng.pick(&layouts)),
            _ if level.layouts.is_empty() || rng.once_in(3) => None,
            _ => Some(rng.pick(level.layouts).1),
        },
        chunk: (level.number != 1).then(|| Sectors(8 << rng.below(8))),
        members: (0..slots).map(|_| Some(new(rng))).collect(),
        name: b"fuzz".to_vec(),
        homehost: rng.once_in(2).then(|| b"host".to_vec()),
        uuid: UUID,
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: rng.once_in(2),
        zeroed: false,
        bitmap: (log.is_none() && rng.once_in(3)).then_some(NewBitmap { chunk_bytes: None }),
        log,
        force: true,
    }
}

/// An array with all it can have on its members.
pub fn array(rng: &mut Rng) -> Members {
    let made = |_| {
        let request = request(rng);
        create(&request).ok().map(|creation| (request, creation))
    };
    let (request, creation) = (0..).find_map(made).expect("some can be made");
    let turn = creation.format.name == md0::V0_90.name && rng.once_in(2);
    let planned = creation.members.iter().chain(&creation.journal);
    let mut disks = Vec::new();
    for planned in planned {
        let mut member = planned.member.clone();
        let sectors = size_of(&request, planned.slot);
        let disk = SparseDisk::new(format!("disk{}", disks.len()), sectors);
        let areas = [&planned.bad_log, &planned.bitmap, &planned.log];
        areas.into_iter().flatten().for_each(|(at, bytes)| disk.put(*at, bytes));
        if member.bad_log.is_some() && rng.once_in(6) {
            member.bad_blocks = bad_runs(rng, member.data_at, member.data_len);
            if let Ok(Some((at, bytes))) = md1::emit::emit_bad_blocks(&member) {
                disk.put(at, &bytes);
            }
        }
        let superblock = (creation.format.emit)(&creation.array, &member);
        let (at, mut block) = superblock.unwrap_or_else(|_| planned.superblock.clone());
        if turn && let Some(turned) = md0::other_byte_order(&block) {
            block = turned;
            turn_bitmap(&disk, member.bitmap_at);
        }
        disk.put(at, &block);
        disks.push(Arc::new(disk));
    }
    let members = Members { disks, creation };
    fill_logs(rng, &members);
    members
}

/// The size of the member of `slot`; the journal is behind the last.
fn size_of(request: &Request, slot: Slot) -> Sectors {
    let member = request.members.get(slot.index()).and_then(Option::as_ref);
    match (member, &request.log) {
        (Some(member), _) | (None, Some(NewLog::Journal(member))) => member.sectors,
        _ => unreachable!("only members and a journal are planned"),
    }
}

fn turn_bitmap(disk: &SparseDisk, at: Option<Sectors>) {
    let Some(at) = at else { return };
    let mut head = disk.bytes(at, 512);
    let id = md0::bitmap_id(&UUID, md0::packet::ByteOrder::OWN.other());
    md_bitmap::patch_uuid(&mut head, &id);
    disk.put(at, &head);
}

/// Some runs of bad blocks.
pub fn bad_runs(rng: &mut Rng, at: Sectors, len: Sectors) -> Vec<(Sectors, Sectors)> {
    let mut run = |_| (at + Sectors(rng.below(len.0.max(1))), Sectors(1 + rng.below(20)));
    (0..3).map(&mut run).collect()
}

/// Something was being written when the power went.
fn fill_logs(rng: &mut Rng, members: &Members) {
    let creation = &members.creation;
    for (planned, disk) in creation.members.iter().zip(&members.disks) {
        if let Some(area) = planned.member.ppl {
            let (header, parity) = ppl(rng, creation.size, creation.array.chunk, planned.slot);
            disk.put(area.at, &header);
            disk.put(area.at + md_ppl::HEADER_LEN, &parity);
        }
    }
    let journal = creation.journal.as_ref().zip(members.disks.last());
    if let Some((planned, disk)) = journal
        && let Some(ring) = Ring::on(planned.member.data_len)
    {
        let levels_q = u64::from(creation.array.level == 6);
        for (at, bytes) in journal_blocks(rng, ring, creation.size, 1 + levels_q) {
            disk.put(planned.member.data_at + at, &bytes);
        }
    }
}

/// A header of a partial parity log with its partial parity.
pub fn ppl(rng: &mut Rng, size: Sectors, chunk: Sectors, slot: Slot) -> (Vec<u8>, Vec<u8>) {
    let mut parity = Vec::new();
    let mut entry = |rng: &mut Rng| {
        let rows = Sectors(rng.below(chunk.0.min(128) + 1));
        let rows = if rng.once_in(4) { chunk.min(Sectors(64)) } else { rows };
        let own: Vec<u8> = (0..rows.len()).map(|n| n as u8).collect();
        parity.extend_from_slice(&own);
        Entry {
            at: near(rng, size, 8),
            parity: rows,
            data: match rng.once_in(3) {
                true => Sectors(rng.below(chunk.0 + 1)),
                false => Sectors(rows.0 * (1 + rng.below(3)) + rng.below(3) * 8),
            },
            slot,
            checksum: md_ppl::checksum(&own),
        }
    };
    let entries = (0..rng.below(4)).map(|_| entry(rng)).collect();
    let header = Header { generation: rng.below(9), entries };
    (md_ppl::emit(&header, &UUID).expect("few small entries fit"), parity)
}

/// A place in an array of `size`, often near its end, often a multiple of `unit`.
pub fn near(rng: &mut Rng, size: Sectors, unit: u64) -> Sectors {
    let at = match rng.below(4) {
        0 => rng.below(size.0.max(1)),
        1 => size.0.saturating_sub(rng.below(64)),
        2 => rng.below(512),
        _ => mutate::number(rng) >> rng.below(60),
    };
    Sectors(if rng.once_in(3) { at } else { at / unit * unit })
}

/// A few blocks of a journal with their pages: places in the ring, and bytes.
pub fn journal_blocks(
    rng: &mut Rng,
    ring: Ring,
    size: Sectors,
    checksums: u64,
) -> Vec<(Sectors, Vec<u8>)> {
    let seed = Seed::of(&UUID);
    let mut out = Vec::new();
    let (mut at, mut seq) = (Sectors::ZERO, rng.below(1 << 20));
    for _ in 0..rng.below(6) {
        let page = vec![rng.number() as u8; md_journal::BLOCK_BYTES];
        let sum = seed.checksum(&page);
        let payload = |rng: &mut Rng| {
            let sector = near(rng, size, 8).round_down(md_journal::BLOCK);
            match rng.below(5) {
                0 => Payload::Flush { rows: vec![sector; rng.below(4) as usize] },
                1 | 2 => Payload::Parity {
                    row: sector,
                    checksums: (0..checksums).map(|_| sum).collect(),
                },
                _ => Payload::Data { at: sector, checksum: sum },
            }
        };
        let payloads = (0..rng.below(8)).map(|_| payload(rng)).collect();
        let meta = Meta { seq, position: at, payloads };
        let end = at + meta.len();
        if end >= ring.len {
            break;
        }
        let pages = (at.0 + 8..end.0).step_by(8);
        out.extend(pages.map(|at| (Sectors(at), page.clone())));
        out.push((at, md_journal::emit(&meta, seed)));
        (at, seq) = (end, seq + 1);
    }
    out
}
