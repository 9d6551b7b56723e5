//! What is shown, right or wrong; the comparison with mdadm itself is an integration test.

use super::*;
use crate::meta::create::{NewMember, Request, create};
use crate::meta::md1::packet::field;
use crate::meta::{FORMATS, PROBED, probe};

const DEVICE: Sectors = Sectors(16384);

fn image() -> Vec<u8> {
    let new = |n| NewMember {
        sectors: DEVICE,
        device_uuid: [n; 16],
        write_mostly: n == 1,
        failfast: false,
    };
    let request = Request {
        format: FORMATS[0],
        level: 5,
        layout: None,
        chunk: Some(Sectors(128)),
        members: vec![Some(new(0x11)), Some(new(0x22)), None],
        name: b"0".to_vec(),
        homehost: Some(b"vm".to_vec()),
        uuid: *b"0123456789abcdef",
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: false,
        zeroed: false,
        bitmap: None,
        log: None,
        force: false,
    };
    let creation = create(&request).unwrap();
    let (at, bytes) = &creation.members[1].superblock;
    let mut image = vec![0; DEVICE.len()];
    image[at.len()..at.len() + bytes.len()].copy_from_slice(bytes);
    image
}

fn shown(image: &[u8]) -> Examination {
    let mut read = |at: Sectors, buffer: &mut [u8]| {
        buffer.copy_from_slice(&image[at.len()..at.len() + buffer.len()]);
        Ok(())
    };
    examine(&probe(DEVICE, &mut read).unwrap()[0], DEVICE)
}

#[test]
fn a_superblock_reads_like_mdadms_examine() {
    let expected = "          Magic : a92b4efc
        Version : 1.2
    Feature Map : 0x0
     Array UUID : 30313233:34353637:38396162:63646566
           Name : vm:0
  Creation Time : Tue Nov 14 22:13:20 2023
     Raid Level : raid5
   Raid Devices : 3

 Avail Dev Size : 14336 sectors (7.00 MiB 7.34 MB)
     Array Size : 14336 KiB (14.00 MiB 14.68 MB)
    Data Offset : 2048 sectors
   Super Offset : 8 sectors
   Unused Space : before=1968 sectors, after=0 sectors
          State : clean
    Device UUID : 22222222:22222222:22222222:22222222

    Update Time : Tue Nov 14 22:13:20 2023
  Bad Block Log : 512 entries available at offset 16 sectors
       Checksum : CHECKSUM - correct
         Events : 0

         Layout : left-symmetric
     Chunk Size : 64K

   Device Role : Active device 1
   Array State : AA. ('A' == active, '.' == missing, 'R' == replacing)
       Found At : sector 8 (byte 4096) of 16384
";
    let shown = shown(&image());
    let Some(Value::Text(sum)) = shown.value("checksum") else { panic!("no checksum") };
    let expected = expected
        .replace("CHECKSUM", sum.trim_start_matches('0'))
        .replace("   Device Role", "    Device Role")
        .replace("   Array State", "    Array State");
    assert_eq!(shown.to_string(), expected);
}

#[test]
fn programs_get_bytes_and_stable_keys() {
    let shown = shown(&image());
    let number = |key: &str| match shown.value(key) {
        Some(Value::Number(n)) => *n,
        other => panic!("{key}: {other:?}"),
    };
    assert_eq!(number("data_offset_bytes"), 2048 * 512);
    assert_eq!(number("component_bytes"), 14336 * 512);
    assert_eq!(number("array_bytes"), 2 * 14336 * 512);
    assert_eq!(number("chunk_bytes"), 65536);
    assert_eq!(number("found_at_bytes"), 4096);
    assert_eq!(number("created_seconds"), 1_700_000_000);
    assert_eq!(shown.value("checksum_correct"), Some(&Value::Flag(true)));
    let keys: Vec<&str> = shown.values().map(|(key, _)| key).collect();
    let mut unique = keys.clone();
    unique.sort_unstable();
    unique.dedup();
    assert_eq!(unique.len(), keys.len(), "{keys:?}");
}

#[test]
fn a_damaged_superblock_is_shown_with_its_damage() {
    let mut image = image();
    image[4096 + field::EVENTS] = 42;
    let shown = shown(&image);
    assert_eq!(shown.value("events"), Some(&Value::Number(42)));
    assert_eq!(shown.value("checksum_correct"), Some(&Value::Flag(false)));
    assert!(shown.problems[0].contains("checksum is wrong"), "{:?}", shown.problems);
    assert!(shown.to_string().contains(" - expected "));
}

#[test]
fn feature_bits_are_named() {
    let mut image = image();
    image[4096 + field::FEATURES] = 0x0a;
    image[4096 + field::FEATURES + 1] = 0x82;
    let names = ["recovery offset", "bad blocks", "journal", "unknown 0x8000"];
    let names = names.map(String::from).to_vec();
    assert_eq!(shown(&image).value("features"), Some(&Value::List(names)));
}

#[test]
fn sizes_are_rounded_as_mdadm_rounds() {
    for (bytes, text) in [
        (5_119_999, ""),
        (7_340_032, " (7.00 MiB 7.34 MB)"),
        (8_372_224, " (7.98 MiB 8.37 MB)"),
        (3 << 30, " (3.00 GiB 3.22 GB)"),
        (3 << 40, " (3.00 TiB 3.30 TB)"),
    ] {
        assert_eq!(human(bytes), text);
    }
}

#[test]
fn superblocks_lie_where_md_looks() {
    let sectors = Sectors(2_000_003);
    let places = places(sectors, PROBED);
    let byte = |sector: u64| Some(sector * 512);
    assert_eq!(
        places,
        [
            ("1.2", byte(8)),
            ("1.1", byte(0)),
            ("1.0", byte((2_000_003 - 16) / 8 * 8)),
            ("0.90", byte(2_000_003 / 128 * 128 - 128)),
        ]
    );
}
