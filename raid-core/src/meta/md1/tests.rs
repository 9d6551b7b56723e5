//! Laws of parse and emit, every check of the kernel, and bytes that nobody should trust.

use super::packet::{HEAD, MAX_DEV, checksum};
use super::*;
use crate::meta::bytes::put;
use crate::meta::create::{NewMember, Request, create};
use crate::meta::record::{Area, DeviceRole};
use crate::meta::{PROBED, Sighting, bad_blocks, examine, foreign, probe};
use crate::units::Slot;

const DEVICE: Sectors = Sectors(20480);

/// The formats of this module.
const FORMATS: [&Format; 3] = [&V1_2, &V1_1, &V1_0];

/// A member of a three-member array and where its superblock lies.
fn block(format: &'static Format, level: i32) -> (Sectors, Vec<u8>) {
    let new = |n| NewMember {
        sectors: DEVICE,
        device_uuid: [n; 16],
        write_mostly: true,
        failfast: false,
    };
    let request = Request {
        format,
        level,
        layout: None,
        chunk: Some(Sectors(8)),
        members: (1..4).map(|n| Some(new(n))).collect(),
        name: b"test".to_vec(),
        homehost: None,
        uuid: [5; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: false,
        zeroed: false,
        bitmap: None,
        log: None,
        force: false,
    };
    create(&request).unwrap().members.swap_remove(1).superblock
}

fn sign(block: &mut [u8]) {
    let sum = checksum(&block[..Packet::new(block).used().min(block.len())]);
    put(block, field::CHECKSUM, &sum.to_le_bytes());
}

#[test]
fn emitting_what_was_parsed_gives_the_same_bytes() {
    for format in FORMATS {
        for level in [-1, 0, 1, 4, 5, 10] {
            let (at, mut bytes) = block(format, level);
            // Bytes no record knows: the reshape fields, the journal's, unused flags.
            put(&mut bytes, field::NEW_LAYOUT, &[1, 2, 3, 4]);
            put(&mut bytes, field::RECOVERY_OFFSET, &[9; 8]);
            bytes[field::DEVFLAGS] |= 0x80;
            sign(&mut bytes);
            let found = (format.parse)(&bytes, at, DEVICE).unwrap();
            let emitted = (format.emit)(&found.array, &found.member).unwrap();
            assert_eq!(emitted, (at, bytes), "{format} level {level}");
        }
    }
}

#[test]
fn parsing_what_was_emitted_gives_the_same_record() {
    let (at, bytes) = block(&V1_2, 5);
    let mut found = (V1_2.parse)(&bytes, at, DEVICE).unwrap();
    found.array.events = 77;
    found.array.utime = 1_700_000_099;
    found.array.resync = Some(Sectors(640));
    found.array.logical_block = Some(4096);
    found.array.set_role(0, DeviceRole::Faulty);
    found.member.recovery = Some(Sectors(800));
    found.member.write_mostly = false;
    found.member.failfast = true;
    found.member.corrected_reads = 3;
    found.member.bitmap_at = Some(Sectors(40));
    let (at, bytes) = (V1_2.emit)(&found.array, &found.member).unwrap();
    let mut again = (V1_2.parse)(&bytes, at, DEVICE).unwrap();
    again.member.raw = found.member.raw.clone();
    assert_eq!((again.array, again.member), (found.array, found.member));
}

#[test]
fn feature_bits_follow_the_record_and_others_stay() {
    let (at, mut bytes) = block(&V1_2, 0);
    put(&mut bytes, field::FEATURES, &features::RAID0_LAYOUT.to_le_bytes());
    sign(&mut bytes);
    let mut found = (V1_2.parse)(&bytes, at, DEVICE).unwrap();
    found.member.bad_blocks = vec![(Sectors(3000), Sectors(1))];
    let bits = |found: &crate::meta::Found| {
        Packet::new(&(V1_2.emit)(&found.array, &found.member).unwrap().1).features()
    };
    assert_eq!(bits(&found), features::RAID0_LAYOUT | features::BAD_BLOCKS);
    found.member.bad_blocks.clear();
    assert_eq!(bits(&found), features::RAID0_LAYOUT);
}

#[test]
fn the_role_map_grows_in_whole_sectors() {
    let (at, bytes) = block(&V1_2, 1);
    let mut found = (V1_2.parse)(&bytes, at, DEVICE).unwrap();
    for (number, entries) in [(127, 128), (128, 384), (383, 384), (384, 640), (1919, 1920)] {
        found.array.set_role(number, DeviceRole::Spare);
        found.member.number = number;
        let (_, bytes) = (V1_2.emit)(&found.array, &found.member).unwrap();
        assert_eq!(Packet::new(&bytes).max_dev(), entries);
        assert_eq!(bytes.len(), (HEAD + 2 * entries as usize).next_multiple_of(512));
        (V1_2.parse)(&bytes, at, DEVICE).unwrap();
    }
    found.member.number = MAX_DEV;
    assert!((V1_2.emit)(&found.array, &found.member).is_err());
}

#[test]
fn every_check_refuses_with_its_reason() {
    let u64_ = |value: u64| value.to_le_bytes().to_vec();
    let u32_ = |value: u32| value.to_le_bytes().to_vec();
    let cases: Vec<(usize, Vec<u8>, &str)> = vec![
        (field::MAGIC, vec![0], "no md 1.x superblock"),
        (field::MAJOR, vec![2], "no md 1.x superblock"),
        (field::PAD0, vec![1], "padding is not zero"),
        (field::SUPER_OFFSET, u64_(16), "found at sector 8"),
        (field::FEATURES, u32_(0xc00), "both kinds of partial parity log"),
        (field::FEATURES, u32_(0x401), "together with a bitmap"),
        (field::FEATURES, u32_(0x1000), "on another level"),
        (field::CHUNK, u32_(0), "chunk of 0"),
        (field::CHUNK, u32_(0x8000_0000), "makes no sense"),
        (field::RAID_DISKS, u32_(0), "0 slots"),
        (field::RAID_DISKS, u32_(2000), "2000 slots"),
        (field::RAID_DISKS, u32_(2), "there are 2 slots"),
        (field::SIZE, u64_(0), "component size is zero"),
        (field::SIZE, u64_(1 << 54), "makes no sense"),
        (field::SIZE, u64_(18500), "has only 18432 for data"),
        (field::DATA_OFFSET, u64_(u64::MAX), "makes no sense"),
        (field::DATA_OFFSET, u64_(2056), "has room for 18424 only"),
        (field::DATA_OFFSET, u64_(8), "covers its superblock"),
        (field::DATA_OFFSET, u64_(24), "covers its bad-block log"),
        (field::DATA_SIZE, u64_(9), "too few"),
        (field::DATA_SIZE, u64_(18433), "cut off or is another device"),
        (field::RESYNC_OFFSET, u64_(1 << 60), "resync position"),
        (field::ROLES, vec![0x34, 0xff], "role 0xff34"),
        (field::BBLOG_OFFSET, u32_(i32::MIN as u32), "before the start"),
        (field::BBLOG_OFFSET, u32_(20470), "beyond the member's end"),
    ];
    let (at, good) = block(&V1_2, 5);
    for (field, bytes, reason) in cases {
        let mut block = good.clone();
        put(&mut block, field, &bytes);
        sign(&mut block);
        let error = (V1_2.parse)(&block, at, DEVICE).unwrap_err().to_string();
        assert!(error.contains(reason), "{error} / {reason}");
    }
    for (field, bytes, reason) in [
        (field::EVENTS, vec![1], "checksum is wrong"),
        (field::MAX_DEV, u32_(1921), "at most 1920 fit"),
        (field::MAX_DEV, u32_(1920), "cut off"),
    ] {
        let mut block = good.clone();
        put(&mut block, field, &bytes);
        let error = (V1_2.parse)(&block, at, DEVICE).unwrap_err().to_string();
        assert!(error.contains(reason), "{error} / {reason}");
    }
}

#[test]
fn bad_blocks_without_a_log_or_with_a_long_one_are_refused() {
    let (at, good) = block(&V1_2, 5);
    for (log_at, len, reason) in [(0u32, 8u16, "no place"), (16, 9, "too long")] {
        let mut block = good.clone();
        put(&mut block, field::FEATURES, &features::BAD_BLOCKS.to_le_bytes());
        put(&mut block, field::BBLOG_OFFSET, &log_at.to_le_bytes());
        put(&mut block, field::BBLOG_SIZE, &len.to_le_bytes());
        sign(&mut block);
        let error = (V1_2.parse)(&block, at, DEVICE).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn what_may_be_read_but_not_written_says_why() {
    let (at, good) = block(&V1_2, 5);
    for (bits, writable, startable) in [
        (0u32, true, true),
        (features::BITMAP | features::RECOVERY_OFFSET | features::BAD_BLOCKS, true, true),
        (features::JOURNAL, true, true),
        (features::PPL, true, true),
        (features::MULTIPLE_PPLS, true, true),
        (features::REPLACEMENT, true, true),
        (features::BITMAP | features::BITMAP_VERSIONED, false, true),
        (features::RESHAPE_ACTIVE, false, false),
        (0x8000_0000, false, false),
    ] {
        let mut block = good.clone();
        put(&mut block, field::FEATURES, &bits.to_le_bytes());
        // A bitmap far behind the superblock, or 16 sectors of partial parity 24 behind it.
        put(&mut block, field::BITMAP_OFFSET, &0x10_0018_i32.to_le_bytes());
        sign(&mut block);
        let found = (V1_2.parse)(&block, at, DEVICE).unwrap();
        assert_eq!(found.writable().is_ok(), writable, "{bits:#x}");
        assert_eq!(found.startable().is_ok(), startable, "{bits:#x}");
    }
    let mut block = good;
    block[field::PAD3 + 5] = 1;
    sign(&mut block);
    let found = (V1_2.parse)(&block, at, DEVICE).unwrap();
    assert!(found.startable().unwrap_err().contains("later version"));
}

#[test]
fn all_superblocks_of_a_device_are_found_with_their_bad_blocks() {
    let mut image = vec![0; DEVICE.len()];
    for format in [&V1_2, &V1_0] {
        let (at, bytes) = block(format, 1);
        put(&mut image, at.len(), &bytes);
    }
    let found = probe_image(&image);
    let places: Vec<(&str, Sectors)> = found.iter().map(|s| (s.format.name, s.at)).collect();
    assert_eq!(places, [("1.2", Sectors(8)), ("1.0", Sectors(20464))]);

    let member = &found[0].record.as_ref().unwrap().member;
    let mut member = member.clone();
    member.bad_blocks = vec![(Sectors(2060), Sectors(600)), (Sectors(5000), Sectors(2))];
    let array = &found[0].record.as_ref().unwrap().array;
    let (log_at, log) = emit::emit_bad_blocks(&member).unwrap().unwrap();
    let (at, bytes) = emit::emit(array, &member).unwrap();
    put(&mut image, log_at.len(), &log);
    put(&mut image, at.len(), &bytes);
    let found = probe_image(&image);
    assert_eq!(found[0].record.as_ref().unwrap().member.bad_blocks, member.bad_blocks);
}

#[test]
fn a_log_as_the_kernel_wrote_it_reads_sorted_and_joined() {
    let mut log = vec![0xff; 4096];
    for (n, (at, len)) in [(100u64, 1u64), (2512, 88), (2000, 512)].into_iter().enumerate() {
        put(&mut log, n * 8, &(at << 10 | len).to_le_bytes());
    }
    let runs = bad_blocks::parse(&log, 0).unwrap();
    assert_eq!(runs, [(Sectors(100), Sectors(1)), (Sectors(2000), Sectors(600))]);
    let emitted = bad_blocks::emit(&runs, Sectors(8), 0).unwrap();
    assert_eq!(bad_blocks::parse(&emitted, 0).unwrap(), runs);
    let many: Vec<(Sectors, Sectors)> = (0..513).map(|n| (Sectors(n * 2), Sectors(1))).collect();
    assert!(bad_blocks::emit(&many, Sectors(8), 0).is_err());
    assert!(bad_blocks::emit(&many[..512], Sectors(8), 0).is_ok());
    assert!(bad_blocks::parse(&log, 40).is_err());
}

#[test]
fn the_checksum_counts_a_trailing_half_word() {
    let mut block = vec![1u8; HEAD + 2];
    put(&mut block, field::CHECKSUM, &[0; 4]);
    // 63 words of 0x01010101 and a half word of 0x0101.
    assert_eq!(checksum(&block), 63 * 0x0101_0101 + 0x0101);
}

fn probe_image(image: &[u8]) -> Vec<Sighting> {
    let mut read = |at: Sectors, buffer: &mut [u8]| {
        buffer.copy_from_slice(&image[at.len()..at.len() + buffer.len()]);
        Ok(())
    };
    probe(Sectors::floor_bytes(image.len() as u64), &mut read).unwrap()
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Damages `image` where superblocks lie; half of the time the checksum is made right again,
/// so that the checks behind it are reached.
fn damage(image: &mut [u8], at: usize, random: &mut Random) {
    let len = image.len();
    for _ in 0..=random.below(4) {
        let place = (at + random.below(300)).min(len - 8);
        match random.below(3) {
            0 => image[place] ^= 1 << random.below(8),
            1 => put(image, place, &[u64::MAX, 0, 1 << 63, 1 << 54][random.below(4)].to_le_bytes()),
            _ => put(image, place / 8 * 8, &random.next().to_le_bytes()),
        }
    }
    if random.below(2) == 0 {
        let end = (at + 4096).min(len);
        sign(&mut image[at..end]);
    }
}

#[test]
fn damaged_superblocks_never_panic() {
    let seed = std::env::var("RAID_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(20_231_114);
    println!("RAID_SEED={seed}");
    let mut random = Random(seed);
    for round in 0..1000 {
        let format = FORMATS[random.below(FORMATS.len())];
        let level = [-1, 0, 1, 4, 5, 10][random.below(6)];
        let (at, bytes) = block(format, level);
        let mut image = vec![0; DEVICE.len()];
        put(&mut image, at.len(), &bytes);
        damage(&mut image, at.len(), &mut random);
        if round % 3 == 0 {
            image.truncate(random.below(DEVICE.0 as usize) * 512);
        }
        look_at(&image);
    }
}

/// Everything that reads foreign bytes.
fn look_at(image: &[u8]) {
    let device = Sectors::floor_bytes(image.len() as u64);
    let mut read = |at: Sectors, buffer: &mut [u8]| {
        let bytes = image.get(at.len()..at.len() + buffer.len());
        buffer.copy_from_slice(bytes.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    };
    let sightings = probe(device, &mut read).unwrap_or_default();
    for sighting in &sightings {
        let _ = examine::examine(sighting, device).to_string();
        if let Ok(found) = &sighting.record {
            let (at, bytes) = (found.format.emit)(&found.array, &found.member).unwrap();
            let again = (found.format.parse)(&bytes, at, device).unwrap();
            assert_eq!(again.array, found.array);
        }
    }
    let _ = foreign::probe(device, &mut read);
}

#[test]
fn views_of_nothing_never_panic() {
    for len in [0, 1, 100, 255, 256, 4095, 4096] {
        for byte in [0, 0xff] {
            let bytes = vec![byte; len];
            for format in PROBED {
                let _ = (format.examine)(&bytes, Sectors(8), Sectors(0)).to_string();
                assert!((format.parse)(&bytes, Sectors(8), Sectors(0)).is_err());
                assert!(!(format.recognise)(&bytes));
            }
        }
    }
}

#[test]
fn members_of_one_array_may_have_different_data_offsets() {
    let (at, good) = block(&V1_2, 5);
    for data_at in [2048u64, 4096, 132_736, 264_192] {
        let mut block = good.clone();
        put(&mut block, field::DATA_OFFSET, &data_at.to_le_bytes());
        sign(&mut block);
        let found = (V1_2.parse)(&block, at, Sectors(data_at + 18432)).unwrap();
        assert_eq!(found.member.data_at, Sectors(data_at));
        assert_eq!(found.array.role(1), DeviceRole::Active(Slot(1)));
        assert_eq!(found.member.bad_log, Some(Area { at: Sectors(24), len: Sectors(8) }));
    }
}
