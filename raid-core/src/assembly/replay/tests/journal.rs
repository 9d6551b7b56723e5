//! The write journal replayed.

use super::*;
use crate::meta::md_journal::{self, BLOCK_BYTES, Meta, Payload, Ring, Seed};

/// A journal with rows in every state, on members that got part of them.
fn tear_journal(bench: &mut Bench) {
    let shape = bench.layout.shape().clone();
    let ring = Ring::on(bench.creation.journal.as_ref().unwrap().member.data_len).unwrap();
    let seed = Seed::of(&UUID);
    let mut at = Sectors(8 * bench.rng.below(ring.len.0 / 8));
    let mut seq = bench.rng.number();
    let (tail, mut written) = (at, BTreeSet::new());
    emit(bench, ring, &mut at, &mut seq, vec![]);
    for _ in 0..bench.rng.below(12) {
        let no = bench.rng.below(shape.stripes);
        let low = Sectors(8 * bench.rng.below(CHUNK.0 / 8));
        let start = CHUNK.times(no * u64::from(shape.data_units));
        let row = CHUNK.times(no) + low;
        // A row that only the journal has stays so, or is completed by its parity.
        let mut payloads = Vec::new();
        for n in 0..shape.data_units {
            if bench.rng.once_in(2) {
                continue;
            }
            let at = start + CHUNK.times(n.into()) + low;
            let fresh = bytes(&mut bench.rng, BLOCK_BYTES);
            bench.truth[at.len()..][..BLOCK_BYTES].copy_from_slice(&fresh);
            payloads.push((Payload::Data { at, checksum: seed.checksum(&fresh) }, fresh));
            written.insert((no, low, n));
        }
        let is_complete = bench.rng.once_in(2);
        let units = bench.units(start, low, md_journal::BLOCK);
        if is_complete {
            let parity: Vec<&Vec<u8>> = (units.iter())
                .filter(|(role, ..)| role.is_parity())
                .map(|(.., bytes)| bytes)
                .collect();
            let checksums = parity.iter().map(|page| seed.checksum(page)).collect();
            let pages = parity.into_iter().flatten().copied().collect();
            payloads.push((Payload::Parity { row, checksums }, pages));
        }
        emit(bench, ring, &mut at, &mut seq, payloads);
        if !is_complete {
            continue;
        }
        let is_flushed = bench.rng.once_in(3);
        for (role, slot, place, fresh) in units {
            let logged = match role {
                Role::Data(n) => written.contains(&(no, low, n)),
                _ => true,
            };
            for (k, fresh) in fresh.chunks(512).enumerate().filter(|_| logged) {
                if is_flushed || bench.rng.once_in(2) {
                    bench.put(slot, place + Sectors(k as u64), fresh);
                }
            }
        }
        written.retain(|&(a, b, _)| (a, b) != (no, low));
        if is_flushed {
            let pages = vec![(Payload::Flush { rows: vec![row] }, vec![])];
            emit(bench, ring, &mut at, &mut seq, pages);
        }
    }
    let planned = bench.creation.journal.as_mut().unwrap();
    planned.member.journal_tail = Some(tail);
    let (at, bytes) = (bench.creation.format.emit)(&bench.creation.array, &planned.member).unwrap();
    write_at(&**bench.devices.last().unwrap(), at, &bytes).unwrap();
}

/// Writes one block with its pages to the journal.
fn emit(bench: &Bench, ring: Ring, at: &mut Sectors, seq: &mut u64, list: Vec<(Payload, Vec<u8>)>) {
    let (payloads, pages): (Vec<Payload>, Vec<Vec<u8>>) = list.into_iter().unzip();
    let meta = Meta { seq: *seq, position: *at, payloads };
    let block = md_journal::emit(&meta, Seed::of(&UUID));
    for block in block.chunks(BLOCK_BYTES).chain(pages.iter().flat_map(|p| p.chunks(BLOCK_BYTES))) {
        write_at(&**bench.devices.last().unwrap(), bench.data_at() + *at, block).unwrap();
        *at = ring.add(*at, md_journal::BLOCK);
    }
    *seq = seq.wrapping_add(1);
}

#[test]
fn a_journal_loses_nothing_it_acknowledged() {
    for seed in 0..10 {
        let (level, slots) = [(5, 3), (5, 4), (4, 4), (6, 4), (6, 5)][seed as usize % 5];
        let mut bench = Bench::new(level, slots, true, seed);
        tear_journal(&mut bench);
        bench.check_all(&format!("level {level}, seed {seed}"));
    }
}

#[test]
fn a_replayed_journal_is_empty_and_far_ahead() {
    let mut bench = Bench::new(5, 3, true, 3);
    tear_journal(&mut bench);
    let devices = bench.copies();
    replayed(&devices, i64::MAX).unwrap();
    let assembly = decided(&devices, false);
    let member = assembly.journal.unwrap().member;
    let ring = Ring::on(member.data_len).unwrap();
    let mut read =
        |at: Sectors, buf: &mut [u8]| read_at(&**devices.last().unwrap(), member.data_at + at, buf);
    let scan = md_journal::scan(ring, member.journal_tail.unwrap(), Seed::of(&UUID), &mut read);
    let scan = scan.unwrap().unwrap();
    assert_eq!(scan.metas.len(), 1);
    assert!(scan.metas[0].is_empty());
}

#[test]
fn a_journal_that_speaks_of_other_arrays_is_refused() {
    let mut bench = Bench::new(5, 3, true, 3);
    let ring = Ring::on(bench.creation.journal.as_ref().unwrap().member.data_len).unwrap();
    let (mut at, mut seq) = (Sectors::ZERO, 1);
    let page = bytes(&mut bench.rng, BLOCK_BYTES);
    let checksum = Seed::of(&UUID).checksum(&page);
    let beyond = Payload::Data { at: bench.layout.shape().size, checksum };
    emit(&bench, ring, &mut at, &mut seq, vec![(beyond, page)]);
    let error = replayed(&bench.devices, i64::MAX).unwrap_err().to_string();
    assert!(error.contains("which this array does not have"), "{error}");
}
