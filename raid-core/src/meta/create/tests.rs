//! Plans against what mdadm and the kernel made of the same request.

use super::*;
use crate::meta::{format, md1::packet::Packet};

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
        members: fields[4].split(',').map(|len| optional(len).map(new)).collect(),
        name: b"0".to_vec(),
        homehost: Some(b"host".to_vec()),
        uuid: [1; 16],
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: true,
        zeroed: false,
        bitmap: None,
        force: false,
    };
    for option in fields[5].split(',') {
        match option.split_once('=').unwrap_or((option, "")) {
            ("bitmap", _) => request.bitmap = Some(NewBitmap::default()),
            ("bmchunk", bytes) => {
                request.bitmap = Some(NewBitmap { chunk_bytes: Some(number(bytes) as u32) });
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
        bitmap.unwrap_or("-".into())
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
