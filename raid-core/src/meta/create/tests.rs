//! Plans against what mdadm and the kernel made of the same request.

use super::*;
use crate::meta::md_journal::{self, Seed};
use crate::meta::{format, md_ppl, md1::packet::Packet};

/// A line of the table: the request, and the answer's fields.
fn lines() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("mdadm.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(" : ").unwrap())
}

pub(super) fn request(line: &str) -> Request {
    let fields: Vec<&str> = line.split(' ').collect();
    let number = |text: &str| text.parse::<u64>().unwrap();
    let optional = |text: &str| (text != "-").then(|| number(text));
    let new = |sectors| NewMember {
        sectors: Sectors(sectors),
        device_uuid: [9; 16],
        write_mostly: false,
        failfast: false,
    };
    let mut request = Request {
        format: format(fields[1]).unwrap(),
        level: fields[0].parse().unwrap(),
        layout: optional(fields[3]).map(|word| word as u32),
        chunk: optional(fields[2]).map(Sectors),
        members: match fields[4].split_once('*') {
            Some((len, times)) => vec![optional(len).map(new); number(times) as usize],
            None => fields[4].split(',').map(|len| optional(len).map(new)).collect(),
        },
        name: if fields[1] == "0.90" { Vec::new() } else { b"0".to_vec() },
        homehost: Some(b"host".to_vec()),
        uuid: [1; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: true,
        zeroed: false,
        bitmap: None,
        log: None,
        force: false,
    };
    for option in fields[5].split(',') {
        match option.split_once('=').unwrap_or((option, "")) {
            ("bitmap", _) => request.bitmap = Some(NewBitmap::default()),
            ("bmchunk", bytes) => {
                request.bitmap = Some(NewBitmap { chunk_bytes: Some(number(bytes) as u32) });
            }
            ("ppl", _) => request.log = Some(NewLog::Ppl),
            ("journal", len) => {
                request.log = Some(NewLog::Journal(new(number(len))));
            }
            ("size", sectors) => request.size = Some(Sectors(number(sectors))),
            ("data", sectors) => request.data_at = Some(Sectors(number(sectors))),
            ("force", _) => request.force = true,
            ("-", _) => {}
            other => panic!("unknown option {other:?}"),
        }
    }
    request
}

fn answer(creation: &Creation) -> String {
    let first = &creation.members[0];
    let packet = Packet::new(&first.superblock.1);
    let lens: Vec<String> =
        creation.members.iter().map(|planned| planned.member.data_len.to_string()).collect();
    let bitmap = first.bitmap.as_ref().map(|(_, bytes)| {
        let bitmap = md_bitmap::parse(bytes, &creation.array.uuid).unwrap();
        format!("{},{},{}", packet.bitmap_offset(), bitmap.chunk_bytes, bitmap.sync_size)
    });
    let ppl = first.member.ppl.map(|_| format!("{},{}", packet.ppl_offset(), packet.ppl_size()));
    let journal = creation.journal.as_ref().map(|journal| {
        let packet = Packet::new(&journal.superblock.1);
        let number = packet.dev_number();
        format!("{},{number},{:#x}", journal.member.data_len, packet.role(number))
    });
    format!(
        "{} {} {} {},{} {} {} {} {:#x} {}",
        packet.data_offset(),
        packet.size(),
        lens.join(","),
        packet.bblog_offset(),
        packet.bblog_size(),
        packet.max_dev(),
        creation.size,
        packet.layout(),
        packet.features(),
        bitmap.or(ppl).or(journal).unwrap_or("-".into())
    )
}

#[test]
fn plans_are_those_of_mdadm() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for (line, theirs) in lines() {
        let ours = match create(&request(line)) {
            Ok(creation) => answer(&creation),
            Err(error) => format!("refused ({error})"),
        };
        count += 1;
        if ours != theirs && !(theirs == "refused" && ours.starts_with("refused")) {
            wrong.push(format!("{line}\n  mdadm {theirs}\n  ours  {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 100, "the table has {count} lines");
}

/// The answer of a plan with metadata 0.90.
fn answer_090(creation: &Creation) -> String {
    let first = &creation.members[0];
    assert_eq!(first.member.device_uuid, [0; 16]);
    let bitmap = first.bitmap.as_ref().map(|(at, bytes)| {
        assert_eq!(*at, first.superblock.0 + Sectors(8));
        let b = md_bitmap::parse(bytes, &creation.array.uuid).unwrap();
        let Bitmap { version, events, sync_size, state, chunk_bytes, daemon_sleep, .. } = b;
        format!(" bitmap({version},{events},{sync_size},{state},{chunk_bytes},{daemon_sleep})")
    });
    let words = crate::meta::md0::tests::text(&first.superblock.1);
    format!("{} {words}{}", creation.size, bitmap.unwrap_or_default())
}

#[test]
fn plans_with_metadata_090_are_those_of_mdadm() {
    let lines = include_str!("mdadm-0.90.txt").lines().filter(|line| !line.starts_with('#'));
    let mut wrong = Vec::new();
    let mut count = 0;
    for (line, theirs) in lines.map(|line| line.split_once(" : ").unwrap()) {
        let ours = match create(&request(line)) {
            Ok(creation) => answer_090(&creation),
            Err(error) => format!("refused ({error})"),
        };
        count += 1;
        if ours != theirs && !(theirs == "refused" && ours.starts_with("refused")) {
            wrong.push(format!("{line}\n  mdadm {theirs}\n  ours  {ours}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 35, "the table has {count} lines");
}

#[test]
fn the_account_balances_for_every_plan() {
    let mut count = 0;
    let old = include_str!("mdadm-0.90.txt").lines().filter(|line| !line.starts_with('#'));
    for (line, _) in lines().chain(old.map(|line| line.split_once(" : ").unwrap())) {
        let Ok(creation) = create(&request(line)) else { continue };
        let Breakdown { given, missing, usable, redundancy, metadata, rounding, unused } =
            creation.breakdown;
        let parts = usable + redundancy + metadata + rounding + unused;
        assert_eq!(given + missing, parts, "{line}");
        assert_eq!(usable, creation.size);
        count += 1;
    }
    assert!(count > 100);
}

#[test]
fn sizes_by_metadata_alone_are_those_of_the_layout() {
    for (line, _) in lines() {
        let Ok(creation) = create(&request(line)) else { continue };
        let array = &creation.array;
        let lens: Vec<Sectors> = creation.members.iter().map(|p| p.member.data_len).collect();
        let geometry = crate::meta::sizes::Geometry {
            level: array.level,
            layout: array.layout,
            chunk: array.chunk,
            slots: array.slots.into(),
            component: array.component,
            members: &lens,
        };
        assert_eq!(crate::meta::sizes::array_size(&geometry), Some(creation.size), "{line}");
    }
}

#[test]
fn three_members_of_32_mib_say_where_the_rest_went() {
    let creation = create(&request("5 1.2 128 - 65536,65536,65536 -")).unwrap();
    let mib = |sectors: Sectors| sectors.bytes() >> 20;
    let Breakdown { given, usable, redundancy, metadata, rounding, .. } = creation.breakdown;
    assert_eq!([given, usable, redundancy, metadata, rounding].map(mib), [96, 62, 31, 3, 0]);
}

#[test]
fn the_default_chunk_is_stored_and_a_given_one_is_too() {
    let chunk =
        |line| Packet::new(&create(&request(line)).unwrap().members[0].superblock.1).chunk();
    assert_eq!(chunk("5 1.2 - - 65536,65536,65536 -"), 1024);
    assert_eq!(chunk("5 1.2 128 - 65536,65536,65536 -"), 128);
}

#[test]
fn metadata_090_makes_raid0_of_equal_members_and_takes_no_name() {
    let line = "0 0.90 128 - 65536,65599 -";
    let creation = create(&request(line)).unwrap();
    assert_eq!(creation.size, Sectors(2 * 65408));
    assert_eq!((creation.array.layout, creation.array.events), (0, 1));
    let named = Request { name: b"x".to_vec(), ..request(line) };
    assert!(create(&named).unwrap_err().to_string().contains("--name"));
}

#[test]
fn names_get_their_host_while_they_fit() {
    let name = |host: Option<&str>, name: &str| {
        let full = full_name(host.map(str::as_bytes), name.as_bytes());
        full.map(|name| String::from_utf8(name).unwrap()).map_err(|error| error.to_string())
    };
    let host = "abcdefghijklmnopqrstuvwxyz";
    assert_eq!(name(None, "foo").unwrap(), "foo");
    assert_eq!(name(Some("abc"), "foo").unwrap(), "abc:foo");
    assert_eq!(name(Some(host), "abcd").unwrap(), format!("{host}:abcd"));
    assert_eq!(name(Some(host), "abcde").unwrap(), "abcde");
    assert_eq!(name(Some("abc"), "x:foo").unwrap(), "x:foo");
    assert!(name(None, &"x".repeat(33)).unwrap_err().contains("33 bytes"));
}

#[test]
fn only_what_is_known_to_be_consistent_is_called_clean() {
    let resync = |line: &str, assume_clean: bool, zeroed: bool| {
        let request = Request { assume_clean, zeroed, ..request(line) };
        create(&request).map(|creation| creation.array.resync.map(|at| at.0))
    };
    let raid6 = "6 1.2 128 - 65536,65536,65536,-";
    for (line, dirty) in [
        ("0 1.2 128 - 65536,65536 -", None),
        ("1 1.2 - - 65536,65536 -", Some(0)),
        ("1 1.2 - - 65536,- -", Some(0)),
        ("5 1.2 128 - 65536,65536,65536 -", Some(0)),
        ("5 1.2 128 - 65536,65536,- -", None),
        ("6 1.2 128 - 65536,65536,-,- -", None),
        ("10 1.2 128 - 65536,65536,65536,65536 -", Some(0)),
    ] {
        assert_eq!(resync(line, false, false).unwrap(), dirty, "{line}");
        assert_eq!(resync(line, true, false).unwrap(), None, "{line}");
        assert_eq!(resync(line, false, true).unwrap(), None, "{line}");
    }
    let raid6 = format!("{raid6} -");
    assert_eq!(resync(&raid6, false, false).unwrap_err().kind, ErrorKind::Refused);
    assert_eq!(resync(&raid6, false, true).unwrap(), None);
}

#[test]
fn with_a_log_the_last_member_is_rebuilt_unless_parity_is_known() {
    let recovery = |line: &str, assume_clean: bool, zeroed: bool| -> Vec<Option<u64>> {
        let request = Request { assume_clean, zeroed, ..request(line) };
        let creation = create(&request).unwrap();
        assert_eq!(creation.array.resync, None, "{line}");
        creation.members.iter().map(|p| p.member.recovery.map(|at| at.0)).collect()
    };
    for log in ["ppl", "journal=65536"] {
        let line = format!("5 1.2 128 - 65536,65536,65536 {log}");
        assert_eq!(recovery(&line, false, false), [None, None, Some(0)]);
        assert_eq!(recovery(&line, true, false), [None; 3]);
        assert_eq!(recovery(&line, false, true), [None; 3]);
        let line = format!("5 1.2 128 - 65536,-,65536 {log}");
        assert_eq!(recovery(&line, false, false), [None; 2]);
    }
}

#[test]
fn a_new_log_is_empty() {
    let uuid = [1; 16];
    let creation = create(&request("5 1.2 128 - 65536,65536,65536 ppl")).unwrap();
    for planned in &creation.members {
        let (at, bytes) = planned.log.as_ref().unwrap();
        assert_eq!(*at, planned.member.super_at + Sectors(8));
        assert_eq!(bytes.len(), md_ppl::AREA_LEN.len());
        assert!(md_ppl::parse(&bytes[..md_ppl::HEADER], &uuid).unwrap().is_empty());
    }
    let creation = create(&request("6 1.2 128 - 65536,65536,65536,65536 journal=65536")).unwrap();
    assert!(creation.members.iter().all(|planned| planned.log.is_none()));
    let (at, bytes) = creation.journal.unwrap().log.unwrap();
    assert_eq!(at, Sectors(2048));
    assert!(md_journal::parse(&bytes, Seed::of(&uuid)).unwrap().is_empty());
}

#[test]
fn what_cannot_work_is_refused_in_words() {
    for (line, words) in [
        ("7 1.2 128 - 65536,65536,65536 -", "level 7"),
        ("5 1.2 100 - 65536,65536,65536 -", "power of two"),
        ("0 1.2 12 - 65536,65536 -", "multiple of 4 KiB"),
        ("5 1.2 128 9 65536,65536,65536 -", "layout"),
        ("6 1.2 128 - 65536,65536,65536 -", "takes 4"),
        ("1 1.2 - - 65536 -", "--force"),
        ("5 1.2 128 - 65536,-,- -", "there is no array"),
        ("0 1.2 128 - 65536,- -", "there is no array"),
        ("10 1.2 128 259 65536,65536 -", "3 copies"),
        ("10 1.2 128 - -,-,65536,65536 -", "there is no array"),
        ("1 1.2 - - 2000,65536 -", "too small"),
        ("5 1.2 128 - 65536,65536,65536 size=65536", "has room for"),
        ("0 1.2 128 - 65536,65536 size=4096", "leave out --size"),
        ("0 1.2 128 - 65536,65536 bitmap", "leave out --bitmap"),
        ("1 1.0 - - 65536,65536 data=2048", "--metadata 1.2"),
        ("1 1.2 - - 65536,65536 data=8", "--data-offset"),
        ("1 1.2 - - 65536,65536 bmchunk=3000", "power of two"),
        ("6 1.2 128 - 65536,65536,65536,65536 ppl", "only RAID 5"),
        ("5 1.2 128 - 65536,65536,65536 ppl,bitmap", "exclude each other"),
        ("5 1.2 128 - 65536,65536,65536 ppl,data=1024", "--data-offset"),
        ("1 1.2 - - 65536,65536 journal=65536", "only RAID 4, 5 and 6"),
        ("5 1.2 128 - 65536,65536,65536 journal=3000", "too small"),
        ("5 1.2 128 - 65536,65536,65536 journal=2000", "too small"),
        ("1 0.90 - - 9000000000,9000000000 -", "4 TiB"),
        ("1 0.90 - - 16384*28 -", "takes 1 to 27"),
        ("1 0.90 - - 65536,65536 data=2048", "--metadata 1.2"),
        ("0 0.90 128 - 65536,32768 -", "members of one size"),
        ("0 0.90 128 1 65536,65536 -", "layout of a raid0"),
        ("1 0.90 - - 200,200 -", "too small"),
    ] {
        let error = create(&request(line)).unwrap_err().to_string();
        assert!(error.contains(words), "{line}: {error}");
    }
}
