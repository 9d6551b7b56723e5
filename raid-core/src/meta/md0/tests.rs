//! Superblocks as the kernel writes them, in both byte orders, and bytes nobody should trust.

use super::packet::{Packet, SIZE, word};
use super::*;
use crate::meta::record::{Area, DeviceRole};
use crate::meta::{Found, Sighting, examine, probe};
use crate::units::Slot;

/// Where an 8 MiB member has its superblock.
const AT: Sectors = Sectors(16256);
const DEVICE: Sectors = Sectors(16384);

/// Names of words in the texts below.
const NAMES: &[(&str, usize)] = &[
    ("minor", word::MINOR),
    ("level", word::LEVEL),
    ("size", word::SIZE),
    ("nr", word::NR_DISKS),
    ("slots", word::RAID_DISKS),
    ("state", word::STATE),
    ("active", word::ACTIVE),
    ("working", word::WORKING),
    ("failed", word::FAILED),
    ("spare", word::SPARE),
    ("events", word::EVENTS),
    ("cp", word::CP_EVENTS),
    ("rcp", word::RECOVERY_CP),
    ("delta", word::DELTA_DISKS),
    ("layout", word::LAYOUT),
    ("chunk", word::CHUNK),
];

/// What the kernel wrote: a RAID 5 of three and a spare; dirty; after a failure; a mirror.
const R5_SPARE: &str = "minor=90 level=5 size=8128 nr=4 slots=3 state=1 active=3 working=4 spare=1 \
    events=19 cp=19 rcp=-1 layout=2 chunk=65536 \
    d0(0,7,0,0,6) d1(1,7,1,1,6) d2(2,7,2,2,6) d3(3,7,3,3,0) this(1,7,1,1,6)";
const R5_DIRTY: &str = "minor=90 level=5 size=8128 nr=3 slots=3 active=3 working=3 events=2 \
    layout=2 chunk=65536 d0(0,7,0,0,6) d1(1,7,1,1,6) d2(2,7,2,2,6) this(0,7,0,0,6)";
const R5_FAILED: &str = "minor=90 level=5 size=8128 nr=3 slots=3 active=2 working=2 failed=1 \
    events=4 layout=2 chunk=65536 \
    d0(0,7,0,0,6) d1(1,0,0,1,9) d2(2,7,2,2,6) d3(3,7,1,3,1) this(0,7,0,0,6)";
const R1_MISSING: &str = "minor=90 level=1 size=8128 nr=2 slots=3 state=1 active=2 working=2 \
    failed=1 events=3 cp=3 rcp=-1 d0(0,7,0,0,6) d1(1,0,0,1,9) d2(2,7,2,2,518) this(2,7,2,2,518)";
const R1_BITMAP: &str = "minor=90 level=1 size=8128 nr=2 slots=2 state=257 active=2 working=2 \
    events=1 cp=1 rcp=-1 d0(0,7,0,0,6) d1(1,7,1,1,6) this(0,7,0,0,6)";
const LINEAR: &str = "minor=90 level=-1 nr=3 slots=3 state=1 active=3 working=3 events=1 \
    chunk=65536 d0(0,7,0,0,6) d1(1,7,1,1,6) d2(2,7,2,2,6) this(0,7,0,0,6)";
const OF_THE_KERNEL: &[&str] = &[R5_SPARE, R5_DIRTY, R5_FAILED, R1_MISSING, R1_BITMAP, LINEAR];

/// The superblock of a text, with an id, times, and words nobody knows.
fn packet(text: &str) -> Packet {
    let mut packet = Packet::blank(ByteOrder::Little);
    packet.put(word::MAGIC, packet::MAGIC);
    word::UUID.iter().zip(1..).for_each(|(&n, value)| packet.put(n, 0x0102_0300 + value));
    packet.put(word::CTIME, 1_700_000_000);
    packet.put(word::UTIME, 1_700_000_099);
    packet.put(word::MD_MINOR, 127);
    [20, 100, 138, 1023].iter().for_each(|&n| packet.put(n, 0x5555_0000 + n as u32));
    for item in text.split_whitespace() {
        if let Some((name, numbers)) = item.split_once('(') {
            let at = match name.strip_prefix('d') {
                Some(number) => word::DISKS + 32 * number.parse::<usize>().unwrap(),
                None => word::THIS_DISK,
            };
            let numbers = numbers.trim_end_matches(')').split(',');
            (at..).zip(numbers).for_each(|(n, value)| packet.put(n, value.parse().unwrap()));
        } else {
            let (name, value) = item.split_once('=').unwrap();
            let (_, n) = NAMES.iter().find(|(known, _)| *known == name).expect(name);
            packet.put(*n, value.parse::<i64>().unwrap() as u32);
        }
    }
    packet.sign();
    packet
}

/// The text of a superblock: what is zero is left out. Device numbers are those of the kernel.
pub(in crate::meta) fn text(bytes: &[u8]) -> String {
    let packet = Packet::new(bytes).unwrap();
    let mut items = Vec::new();
    for &(name, n) in NAMES.iter().filter(|(_, n)| packet.word(*n) != 0) {
        items.push(format!("{name}={}", packet.word(n) as i32));
    }
    let disks = (0..DEVICES_MAX).map(|n| (format!("d{n}"), packet.disk(n)));
    for (name, disk) in disks.chain([("this".to_string(), packet.this_disk())]) {
        if disk != packet::Disk::default() {
            let packet::Disk { number, major, minor, raid_disk, state } = disk;
            items.push(format!("{name}({number},{major},{minor},{raid_disk},{state})"));
        }
    }
    items.join(" ")
}

fn parsed(packet: &Packet) -> Found {
    (V0_90.parse)(&packet.to_bytes(), AT, DEVICE).unwrap()
}

fn emitted(found: &Found) -> String {
    let (at, bytes) = (V0_90.emit)(&found.array, &found.member).unwrap();
    assert_eq!(at, AT);
    assert!(
        Packet::new(&bytes).unwrap().checksum() == Packet::new(&bytes).unwrap().expected_checksum()
    );
    text(&bytes)
}

fn tidy(words: &str) -> String {
    words.split_whitespace().collect::<Vec<&str>>().join(" ")
}

#[test]
fn emitting_what_the_kernel_wrote_gives_the_same_bytes_in_both_orders() {
    for words in OF_THE_KERNEL {
        for packet in [packet(words), packet(words).turned()] {
            let found = parsed(&packet);
            let emitted = (V0_90.emit)(&found.array, &found.member).unwrap();
            assert!(emitted.1 == packet.to_bytes(), "{words}: {}", text(&emitted.1));
            assert_eq!(emitted.0, AT);
        }
    }
}

#[test]
fn both_byte_orders_say_the_same_and_keep_theirs() {
    for words in OF_THE_KERNEL {
        let (little, big) = (packet(words), packet(words).turned());
        assert_eq!(big.byte_order(), ByteOrder::Big);
        assert_eq!(big.to_bytes()[..4], packet::MAGIC.to_be_bytes());
        let (mut a, b) = (parsed(&little), parsed(&big));
        assert_ne!(a.member.raw, b.member.raw);
        assert!((V0_90.identity)(&b.member.raw).is_sound);
        a.member.raw.clone_from(&b.member.raw);
        assert_eq!((&a.array, &a.member), (&b.array, &b.member));
        let turned = other_byte_order(&big.to_bytes()).unwrap();
        assert_eq!(turned, little.to_bytes());
    }
}

#[test]
fn the_halves_of_the_counter_change_places_with_the_byte_order() {
    let mut little = packet(R5_SPARE);
    little.put_pair(word::EVENTS, (1 << 32) + 77);
    little.put_pair(word::CP_EVENTS, (1 << 32) + 77);
    little.sign();
    let big = little.clone().turned();
    let words = |packet: &Packet| (packet.word(word::EVENTS), packet.word(word::EVENTS + 1));
    assert_eq!((words(&little), words(&big)), ((77, 1), (1, 77)));
    assert_eq!(parsed(&big).array.events, (1 << 32) + 77);
    assert_eq!(big.to_bytes()[39 * 4..41 * 4], [0, 0, 0, 1, 0, 0, 0, 77]);
}

#[test]
fn every_field_becomes_a_record() {
    let found = parsed(&packet(R5_SPARE));
    let active = |slot| DeviceRole::Active(Slot(slot));
    assert_eq!(found.array.roles, [active(0), active(1), active(2)]);
    assert_eq!((found.array.level, found.array.layout, found.array.slots), (5, 2, 3));
    assert_eq!((found.array.chunk, found.array.component), (Sectors(128), AT));
    assert_eq!((found.array.events, found.array.resync), (19, None));
    assert_eq!(found.array.uuid, [1, 2, 3, 1, 1, 2, 3, 2, 1, 2, 3, 3, 1, 2, 3, 4]);
    assert_eq!((found.member.number, found.member.data_len), (1, AT));
    let found = parsed(&packet(R5_FAILED));
    let faulty = DeviceRole::Faulty;
    assert_eq!(found.array.roles, [active(0), faulty, active(2), faulty]);
    let found = parsed(&packet(R1_MISSING));
    assert!(found.member.write_mostly && !found.member.failfast);
    assert_eq!(parsed(&packet(R1_BITMAP)).member.bitmap_at, Some(AT + Sectors(8)));
}

#[test]
fn a_checkpoint_counts_only_while_its_counter_is_the_superblocks() {
    for (words, resync) in [
        ("state=1 events=7 cp=7 rcp=-1", None),
        ("state=1 events=7", None),
        ("events=7", Some(0)),
        ("events=7 cp=7 rcp=640", Some(640)),
        ("events=8 cp=7 rcp=640", Some(0)),
        ("events=7 cp=7", Some(0)),
        ("state=256 events=7 cp=7 rcp=640", Some(640)),
    ] {
        let packet = packet(&format!("{} {words}", R5_DIRTY.replace("events=2", "")));
        assert_eq!(parsed(&packet).array.resync, resync.map(Sectors), "{words}");
    }
}

#[test]
fn state_and_checkpoint_are_the_kernels() {
    let mut found = parsed(&packet(R5_SPARE));
    found.array.events = 30;
    for (resync, words) in [
        (None, "state=1 active=3 working=4 spare=1 events=30 cp=30 rcp=-1"),
        (Some(0), "slots=3 active=3 working=4 spare=1 events=30 layout"),
        (Some(640), "slots=3 active=3 working=4 spare=1 events=30 cp=30 rcp=640"),
        (Some(1 << 32), "slots=3 active=3 working=4 spare=1 events=30 layout"),
    ] {
        found.array.resync = resync.map(Sectors);
        let emitted = emitted(&found);
        assert!(emitted.contains(words), "{resync:?}: {emitted}");
    }
}

#[test]
fn a_failed_member_leaves_a_gap() {
    let mut found = parsed(&packet(R5_SPARE));
    found.array.set_role(2, DeviceRole::Faulty);
    let expected = "nr=3 slots=3 state=1 active=2 working=3 failed=1 spare=1 events=19 cp=19 \
        rcp=-1 layout=2 chunk=65536 \
        d0(0,7,0,0,6) d1(1,7,1,1,6) d2(2,0,0,2,9) d3(3,7,3,3,0) this(1,7,1,1,6)";
    assert!(emitted(&found).ends_with(&tidy(expected)), "{}", emitted(&found));
}

#[test]
fn a_spare_that_became_active_gets_the_number_of_its_slot() {
    let mut spare = packet(R5_SPARE);
    for (n, value) in (word::THIS_DISK..).zip([3, 7, 3, 3, 0]) {
        spare.put(n, value);
    }
    spare.sign();
    let mut found = parsed(&spare);
    found.array.set_role(1, DeviceRole::Faulty);
    found.array.set_role(3, DeviceRole::Active(Slot(1)));
    found.member.recovery = Some(Sectors(640));
    let rebuilding = emitted(&found);
    let expected = "d0(0,7,0,0,6) d1(1,0,0,1,9) d2(2,7,2,2,6) d3(3,7,3,3,0) this(3,7,3,3,0)";
    assert!(rebuilding.ends_with(expected), "how far it came has no place: {rebuilding}");
    found.member.recovery = None;
    let complete = emitted(&found);
    let expected = "d0(0,7,0,0,6) d1(1,7,3,1,6) d2(2,7,2,2,6) this(1,7,3,1,6)";
    assert!(complete.ends_with(expected), "{complete}");
}

#[test]
fn what_there_is_no_word_for_is_refused() {
    type Bend = fn(&mut Found);
    let cases: [(Bend, &str); 6] = [
        (|f| f.array.component = COMPONENT_END, "4 TiB"),
        (|f| f.array.name = b"x".to_vec(), "name"),
        (|f| f.array.slots = 28, "27 devices"),
        (|f| f.array.chunk = Sectors(1 << 24), "chunk"),
        (|f| f.member.bad_blocks = vec![(Sectors(8), Sectors(8))], "bad blocks"),
        (|f| f.array.roles = vec![DeviceRole::Active(Slot(30))], "27 devices"),
    ];
    for (bend, words) in cases {
        let mut found = parsed(&packet(R5_SPARE));
        bend(&mut found);
        let error = (V0_90.emit)(&found.array, &found.member).unwrap_err().to_string();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn every_check_refuses_with_its_reason() {
    for (bend, words) in [
        ("minor=92", "0.92"),
        ("minor=1", "0.1 "),
        ("slots=0", "0 slots"),
        ("slots=28", "28 slots"),
        ("chunk=0", "chunk of 0"),
        ("chunk=1000", "chunk of 1000"),
        ("size=0", "component size is zero"),
        ("size=8129", "16258 sectors"),
        ("slots=2", "fill slot 2"),
        ("this(27,0,0,0,6)", "beyond the 27"),
    ] {
        let packet = packet(&format!("{R5_SPARE} {bend}"));
        let error = (V0_90.parse)(&packet.to_bytes(), AT, DEVICE).unwrap_err().to_string();
        assert!(error.contains(words), "{bend}: {error}");
    }
    let good = packet(R5_SPARE).to_bytes();
    let error = |bytes: &[u8]| (V0_90.parse)(bytes, AT, DEVICE).unwrap_err().to_string();
    let mut bytes = good.clone();
    bytes[32 * 4] ^= 1;
    assert!(error(&bytes).contains("checksum is wrong"), "{}", error(&bytes));
    assert!(error(&good[..2048]).contains("cut off"));
    assert!(error(&[]).contains("no md 0.90 superblock"));
}

#[test]
fn a_checksum_folded_to_16_bits_is_right() {
    let mut packet = packet(R5_SPARE);
    let sum = packet.expected_checksum();
    let once = (sum & 0xffff) + (sum >> 16);
    packet.put(word::CHECKSUM, (once & 0xffff) + (once >> 16));
    assert!((V0_90.parse)(&packet.to_bytes(), AT, DEVICE).is_ok());
    packet.put(word::CHECKSUM, sum ^ 1);
    assert!((V0_90.parse)(&packet.to_bytes(), AT, DEVICE).is_err());
}

#[test]
fn a_reshape_is_named_and_not_started() {
    let found = parsed(&packet(&format!("{R5_SPARE} minor=91 slots=4 delta=1")));
    assert_eq!(found.array.reshape.unwrap().delta_slots, 1);
    assert!(found.startable().unwrap_err().contains("0.91"));
    assert!((V0_90.emit)(&found.array, &found.member).is_err());
}

#[test]
fn it_lies_in_the_last_whole_64_kib() {
    assert_eq!(super_at(Sectors(256)), Some(Sectors(128)));
    assert_eq!(super_at(Sectors(383)), Some(Sectors(128)));
    assert_eq!(super_at(Sectors(384)), Some(Sectors(256)));
    assert_eq!(super_at(Sectors(127)), None);
    assert_eq!(super_at(Sectors(128)), None, "no room for data");
}

/// A disk with a superblock at `AT` and a table with one partition.
fn disk(packet: &Packet, partition: Area) -> Vec<Sighting> {
    let mut image = vec![0; DEVICE.len()];
    image[AT.len()..AT.len() + SIZE].copy_from_slice(&packet.to_bytes());
    image[510..512].copy_from_slice(&[0x55, 0xaa]);
    image[450] = 0xfd;
    image[454..458].copy_from_slice(&(partition.at.0 as u32).to_le_bytes());
    image[458..462].copy_from_slice(&(partition.len.0 as u32).to_le_bytes());
    let mut read = |at: Sectors, buffer: &mut [u8]| {
        buffer.copy_from_slice(&image[at.len()..at.len() + buffer.len()]);
        Ok(())
    };
    probe(DEVICE, &mut read).unwrap()
}

#[test]
fn a_superblock_at_the_place_of_a_partitions_is_the_partitions() {
    for (at, len, component, is_partitions) in [
        (2048, 14336, 7104, true),
        (128, 16256, 8064, true),
        (128, 16300, 8064, false),
        (63, 16321, 8096, false),
        (2048, 14000, 6900, false),
        (2048, 14336, 8128, false),
    ] {
        let packet = packet(&format!("{R5_SPARE} size={component}"));
        let found = disk(&packet, Area { at: Sectors(at), len: Sectors(len) });
        assert_eq!(found.len(), 1);
        match &found[0].record {
            Err(error) => {
                assert!(is_partitions, "{at} {len}: {error}");
                let slice = format!("slice:start={at},len={len}+");
                assert!(error.to_string().contains(&slice), "{error}");
            }
            Ok(_) => assert!(!is_partitions, "{at} {len}"),
        }
    }
}

#[test]
fn the_host_is_in_the_second_half_of_the_id() {
    let id = id_with_host(&[9; 16], b"vm");
    let printed = crate::meta::uuid::to_text(&id);
    assert_eq!(printed, "09090909:09090909:df9c7c0a:e059fa87", "as mdadm shows it");
}

#[test]
fn damaged_superblocks_never_panic() {
    let mut state = 20_231_114u64;
    let mut random = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % end
    };
    for round in 0..2000 {
        let words = OF_THE_KERNEL[random(OF_THE_KERNEL.len() as u64) as usize];
        let mut packet = packet(words);
        for _ in 0..=random(4) {
            let n = [random(70), 128 + random(200), 992 + random(5)][random(3) as usize] as usize;
            packet
                .put(n, [0, 1, 90, u32::MAX, 1 << 31, random(1 << 32) as u32][random(6) as usize]);
        }
        packet.sign();
        let bytes = if round % 2 == 0 { packet.to_bytes() } else { packet.turned().to_bytes() };
        let _ = examine::examine_md0(&bytes, AT, DEVICE).to_string();
        let Ok(found) = (V0_90.parse)(&bytes, AT, DEVICE) else { continue };
        let Ok((at, again)) = (V0_90.emit)(&found.array, &found.member) else { continue };
        let again = (V0_90.parse)(&again, at, DEVICE).unwrap();
        assert_eq!(again.array.events, found.array.events);
    }
}
