//! Blocks that read back, damage that ends a log, rings that wrap.

use super::*;

const UUID: [u8; 16] = *b"0123456789abcdef";
const RING: Ring = Ring { len: Sectors(96) };

fn page(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_BYTES]
}

fn data(at: u64, byte: u8) -> Payload {
    Payload::Data { at: Sectors(at), checksum: Seed::of(&UUID).checksum(&page(byte)) }
}

fn parity(row: u64, bytes: &[u8]) -> Payload {
    let sum = |&byte: &u8| Seed::of(&UUID).checksum(&page(byte));
    Payload::Parity { row: Sectors(row), checksums: bytes.iter().map(sum).collect() }
}

fn flush(rows: &[u64]) -> Payload {
    Payload::Flush { rows: rows.iter().map(|&row| Sectors(row)).collect() }
}

/// A ring as bytes.
struct Image(Vec<u8>);

impl Image {
    fn new() -> Image {
        Image(vec![0; RING.len.len()])
    }

    /// Writes a block and its pages, and says where the next one goes.
    fn put(&mut self, seq: u64, at: u64, payloads: &[Payload], pages: &[u8]) -> u64 {
        let meta = Meta { seq, position: Sectors(at), payloads: payloads.to_vec() };
        let mut place = Sectors(at);
        let blocks =
            [emit(&meta, Seed::of(&UUID))].into_iter().chain(pages.iter().map(|&b| page(b)));
        for block in blocks {
            self.0[place.len()..place.len() + BLOCK_BYTES].copy_from_slice(&block);
            place = RING.add(place, BLOCK);
        }
        assert_eq!(place, RING.add(Sectors(at), meta.len()));
        place.0
    }

    fn scan(&self, tail: u64) -> Option<Scan> {
        let mut read = |at: Sectors, buf: &mut [u8]| {
            buf.copy_from_slice(&self.0[at.len()..at.len() + buf.len()]);
            Ok(())
        };
        scan(RING, Sectors(tail), Seed::of(&UUID), &mut read).unwrap()
    }

    /// Numbers of the blocks that count, where the log ends, the next number.
    fn outcome(&self, tail: u64) -> Option<(Vec<u64>, u64, u64)> {
        let scan = self.scan(tail)?;
        Some((scan.metas.iter().map(|meta| meta.seq).collect(), scan.end.0, scan.seq))
    }
}

#[test]
fn a_block_reads_back_and_any_wrong_bit_makes_it_none() {
    let payloads = vec![data(24, 1), parity(24, &[2, 3]), flush(&[8, 16]), flush(&[])];
    let meta = Meta { seq: 9, position: Sectors(40), payloads };
    let good = emit(&meta, Seed::of(&UUID));
    assert_eq!(parse(&good, Seed::of(&UUID)), Some(meta.clone()));
    assert_eq!(meta.len(), Sectors(32));
    assert_eq!(parse(&good, Seed::of(&[1; 16])), None);
    for bit in 0..BLOCK_BYTES * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(parse(&bad, Seed::of(&UUID)), None, "bit {bit}");
    }
}

#[test]
fn a_block_of_the_kernel_is_made_again_to_the_byte() {
    let seed = Seed::of(&0x1c10_dbc5_e4b0_bb5f_f1c7_00b7_b857_a085_u128.to_be_bytes());
    let sum = 0xa374_153e;
    let row = Sectors(24);
    let payloads = vec![
        Payload::Data { at: row, checksum: sum },
        Payload::Parity { row, checksums: smallvec![sum, sum] },
    ];
    let bytes = emit(&Meta { seq: 469_194_118, position: Sectors(16), payloads }, seed);
    let theirs = "09c53364ca7e0512010000004c0000008655f71b00000000\
                  1000000000000000000000000800000018000000000000003e1574a3\
                  010000001000000018000000000000003e1574a33e1574a3";
    let ours: String = bytes[..76].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(ours, theirs);
    assert!(bytes[76..].iter().all(|&byte| byte == 0));
}

#[test]
fn data_of_several_pages_is_taken_page_by_page() {
    let seed = Seed::of(&UUID);
    let mut block = emit(&Meta { seq: 1, position: Sectors(0), payloads: vec![data(24, 1)] }, seed);
    put(&mut block, 36, &16u32.to_le_bytes());
    put(&mut block, 52, &77u32.to_le_bytes());
    put(&mut block, field::USED, &56u32.to_le_bytes());
    let sum = seed.meta_checksum(&block);
    put(&mut block, field::CHECKSUM, &sum.to_le_bytes());
    let meta = parse(&block, seed).unwrap();
    assert_eq!(meta.payloads, [data(24, 1), Payload::Data { at: Sectors(32), checksum: 77 }]);
}

#[test]
fn payloads_that_make_no_sense_make_no_block() {
    let seed = Seed::of(&UUID);
    let good = emit(&Meta { seq: 1, position: Sectors(0), payloads: vec![data(24, 1)] }, seed);
    for (at, value) in
        [(32, 3u32), (36, 0), (36, 7), (36, 4096), (40, 5), (12, 31), (12, 4097), (12, 50)]
    {
        let mut block = good.clone();
        put(&mut block, at, &value.to_le_bytes());
        let sum = seed.meta_checksum(&block);
        put(&mut block, field::CHECKSUM, &sum.to_le_bytes());
        assert_eq!(parse(&block, seed), None, "{value} at {at}");
    }
}

#[test]
fn a_log_is_read_from_its_tail_to_the_first_break() {
    let mut image = Image::new();
    let b = image.put(5, 0, &[data(0, 1), parity(0, &[2])], &[1, 2]);
    let c = image.put(6, b, &[data(8, 3)], &[3]);
    let d = image.put(7, c, &[flush(&[0])], &[]);
    assert_eq!(image.outcome(0), Some((vec![5, 6, 7], d, 8)));
    assert_eq!(image.outcome(b), Some((vec![6, 7], d, 8)));
    // A tail off the ring, or between blocks, counts as the start.
    assert_eq!(image.outcome(4096), Some((vec![5, 6, 7], d, 8)));
    assert_eq!(image.outcome(4), Some((vec![5, 6, 7], d, 8)));
    // Not a meta block there.
    assert_eq!(image.outcome(8), None);
    // A number left out ends the log.
    image.put(8, c, &[flush(&[0])], &[]);
    assert_eq!(image.outcome(0), Some((vec![5, 6], c, 7)));
    // So does a page that is not whole, even if whole blocks follow.
    image.put(7, c, &[flush(&[0])], &[]);
    image.0[b as usize * 512 + BLOCK_BYTES + 17] ^= 1;
    assert_eq!(image.outcome(0), Some((vec![5], b, 6)));
}

#[test]
fn a_ring_wraps_between_and_inside_blocks() {
    let mut image = Image::new();
    let b = image.put(1, 72, &[data(0, 1), parity(0, &[2])], &[1, 2]);
    assert_eq!(b, 0);
    let c = image.put(2, b, &[data(8, 3)], &[3]);
    assert_eq!(image.outcome(72), Some((vec![1, 2], c, 3)));
    let mut image = Image::new();
    let b = image.put(1, 88, &[data(0, 1), parity(0, &[2])], &[1, 2]);
    assert_eq!(b, 16);
    assert_eq!(image.outcome(88), Some((vec![1], 16, 2)));
    let scan = image.scan(88).unwrap();
    let places: Vec<u64> = scan.metas[0].places(RING).map(|(at, _)| at.0).collect();
    assert_eq!(places, [0, 8]);
}

#[test]
fn a_full_ring_is_read_once_round() {
    let mut image = Image::new();
    let mut at = 0;
    for seq in 0..12 {
        at = image.put(seq, at, &[flush(&[seq * 8])], &[]);
    }
    assert_eq!(at, 0);
    image.put(12, 0, &[flush(&[0])], &[]);
    let scan = image.scan(8).unwrap();
    assert_eq!(scan.metas.len(), 12);
    assert_eq!(scan.seq, 13);
}
