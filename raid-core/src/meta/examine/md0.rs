//! A 0.90 superblock, shown in the order of `mdadm --examine`.

use super::names;
use super::{Examination, Sheet, Value, byte_value, human, where_it_lies};
use crate::meta::md0::DEVICES_MAX;
use crate::meta::md0::packet::{ByteOrder, Disk, Packet, disk_state, word};
use crate::meta::sizes::{Geometry, array_size};
use crate::meta::{time, uuid};
use crate::units::{SECTOR, Sectors};

/// Shows the superblock in `bytes`, found at sector `at` of a device of `device` sectors.
pub fn examine(bytes: &[u8], at: Sectors, device: Sectors) -> Examination {
    let mut sheet = Sheet::default();
    if let Some(packet) = Packet::new(bytes) {
        show_array(&mut sheet, &packet);
        show_reshape(&mut sheet, &packet);
        sheet.blank();
        show_state(&mut sheet, &packet);
        sheet.blank();
        show_geometry(&mut sheet, &packet);
        sheet.blank();
        show_disks(&mut sheet, &packet);
    }
    where_it_lies(&mut sheet, at, device);
    Examination { metadata: "0.90", at_bytes: at.bytes(), fields: sheet.0, problems: Vec::new() }
}

fn show_array(sheet: &mut Sheet, packet: &Packet) {
    sheet.words("magic", "Magic", "a92b4efc".into());
    sheet.words("version", "Version", format!("0.{}.{:02}", packet.minor(), packet.word(3)));
    let order = packet.byte_order().name();
    match packet.byte_order() {
        ByteOrder::Little => sheet.quiet("byte_order", Value::Text(order.into())),
        ByteOrder::Big => sheet.words("byte_order", "Byte Order", order.into()),
    }
    sheet.words("uuid", "UUID", uuid::to_text(&packet.uuid()));
    sheet.words("created", "Creation Time", time::to_text(packet.ctime()));
    sheet.quiet("created_seconds", Value::Number(packet.ctime()));
    sheet.words("level", "Raid Level", names::level(packet.level()));
    match packet.level() > 0 {
        true => show_sizes(sheet, packet),
        false => {
            sheet.quiet("component_bytes", Value::Number(packet.component().bytes()));
            sheet.quiet("array_bytes", Value::Null);
        }
    }
    sheet.number("slots", "Raid Devices", packet.raid_disks().into());
    sheet.number("devices", "Total Devices", packet.word(word::NR_DISKS).into());
    sheet.number("preferred_minor", "Preferred Minor", packet.word(word::MD_MINOR).into());
}

fn show_sizes(sheet: &mut Sheet, packet: &Packet) {
    let kib = |sectors: Sectors| {
        let bytes = u128::from(sectors.0) * u128::from(SECTOR);
        format!("{}{}", bytes >> 10, human(bytes))
    };
    let component = packet.component();
    let bytes = Value::Number(component.bytes());
    sheet.line("component_bytes", bytes, "Used Dev Size", kib(component));
    let geometry = Geometry {
        level: packet.level(),
        layout: packet.layout(),
        chunk: Sectors::floor_bytes(packet.chunk_bytes().into()),
        slots: packet.raid_disks().into(),
        component,
        members: &[],
    };
    match array_size(&geometry) {
        Some(size) => sheet.line("array_bytes", byte_value(size.0), "Array Size", kib(size)),
        None => sheet.quiet("array_bytes", Value::Null),
    }
}

fn show_reshape(sheet: &mut Sheet, packet: &Packet) {
    if packet.minor() != 91 {
        return;
    }
    sheet.blank();
    let at = packet.pair(word::RESHAPE_POSITION);
    let text = format!("{}{}", at / 2, human(u128::from(at) * u128::from(SECTOR)));
    sheet.line("reshape_position_bytes", byte_value(at), "Reshape pos'n", text);
    let delta = i64::from(packet.word(word::DELTA_DISKS) as i32);
    if delta != 0 {
        let new = i64::from(packet.raid_disks());
        let text = format!("{delta} ({}->{new})", new - delta);
        sheet.line("delta_devices", Value::Signed(delta), "Delta Devices", text);
    }
    let new_level = packet.word(word::NEW_LEVEL) as i32;
    if new_level != packet.level() {
        sheet.words("new_level", "New Level", names::level(new_level));
    }
    if packet.word(word::NEW_LAYOUT) != packet.layout() {
        let name = names::layout(packet.level(), packet.word(word::NEW_LAYOUT));
        sheet.words("new_layout", "New Layout", name.unwrap_or_default());
    }
    let chunk = packet.word(word::NEW_CHUNK);
    if chunk != packet.chunk_bytes() {
        let text = chunk.to_string();
        sheet.line("new_chunk_bytes", Value::Number(chunk.into()), "New Chunksize", text);
    }
}

fn show_state(sheet: &mut Sheet, packet: &Packet) {
    sheet.words("updated", "Update Time", time::to_text(packet.utime()));
    sheet.quiet("updated_seconds", Value::Number(packet.utime()));
    let state = if packet.is_clean() { "clean" } else { "active" };
    sheet.words("state", "State", state.into());
    let resync = match packet.is_clean() {
        true => Value::Null,
        false => byte_value(packet.recovery_cp().into()),
    };
    sheet.quiet("resync_offset_bytes", resync);
    match packet.has_bitmap() {
        true => sheet.line("bitmap", Value::Flag(true), "Internal Bitmap", "present".into()),
        false => sheet.quiet("bitmap", Value::Flag(false)),
    }
    let counts = [
        ("active_devices", "Active Devices", word::ACTIVE),
        ("working_devices", "Working Devices", word::WORKING),
        ("failed_devices", "Failed Devices", word::FAILED),
        ("spare_devices", "Spare Devices", word::SPARE),
    ];
    for (key, label, n) in counts {
        sheet.number(key, label, packet.word(n).into());
    }
    let (stored, expected) = (packet.checksum(), packet.expected_checksum());
    checksum(sheet, stored, if packet.checksum_matches() { Some(stored) } else { Some(expected) });
    sheet.number("events", "Events", packet.events());
}

fn show_geometry(sheet: &mut Sheet, packet: &Packet) {
    match names::layout(packet.level(), packet.layout()) {
        Some(name) if packet.level() != 0 => sheet.words("layout", "Layout", name),
        _ => sheet.quiet("layout", Value::Null),
    }
    let chunk = u64::from(packet.chunk_bytes());
    let kib = format!("{}K", chunk / 1024);
    match packet.level() {
        0 | 4 | 5 | 6 | 10 => sheet.line("chunk_bytes", Value::Number(chunk), "Chunk Size", kib),
        -1 => sheet.line("chunk_bytes", Value::Number(chunk), "Rounding", kib),
        _ => sheet.quiet("chunk_bytes", Value::Number(chunk)),
    }
}

/// The table of descriptors: this member's own, then those of the slots and spares.
fn show_disks(sheet: &mut Sheet, packet: &Packet) {
    let own = packet.this_disk();
    let listed = packet.raid_disks().saturating_add(packet.word(word::SPARE));
    sheet.0.push(row("      Number   Major   Minor   RaidDevice State".into()));
    sheet.0.push(row(disk_row("this", &own)));
    sheet.blank();
    for number in 0..listed.min(DEVICES_MAX) {
        sheet.0.push(row(disk_row(&number.to_string(), &packet.disk(number))));
    }
    let role = match own.has(disk_state::SYNC) {
        true => format!("Active device {}", own.raid_disk),
        false => disk_words(&own),
    };
    sheet.quiet("role", Value::Text(role));
    sheet.quiet("device_number", Value::Number(own.number.into()));
    let marks = (0..packet.raid_disks().min(DEVICES_MAX)).map(|slot| {
        let fills = |disk: &Disk| disk.has(disk_state::SYNC) && disk.raid_disk == slot;
        let filled = (0..DEVICES_MAX).any(|n| fills(&packet.disk(n)));
        if filled { 'A' } else { '.' }
    });
    sheet.quiet("array_state", Value::Text(marks.collect()));
}

fn row(text: String) -> super::Field {
    super::Field { key: "", value: Value::Null, label: super::ROW, text: Some(text) }
}

fn disk_row(name: &str, disk: &Disk) -> String {
    let Disk { number, major, minor, raid_disk, .. } = disk;
    let words = disk_words(disk);
    format!("{name:>4} {number:>5}   {major:>5}    {minor:>5}    {raid_disk:>5}      {words}")
}

fn disk_words(disk: &Disk) -> String {
    let known = [
        (disk_state::FAULTY, "faulty"),
        (disk_state::ACTIVE, "active"),
        (disk_state::SYNC, "sync"),
        (disk_state::REMOVED, "removed"),
        (disk_state::WRITE_MOSTLY, "write-mostly"),
        (disk_state::FAILFAST, "failfast"),
    ];
    let set = known.iter().filter(|(bit, _)| disk.has(*bit)).map(|(_, word)| *word);
    let mut words: Vec<&str> = set.collect();
    if disk.state & !disk_state::ADVICE == 0 {
        words.push("spare");
    }
    words.join(" ")
}

/// The checksum as stored, and whether it is right.
pub fn checksum(sheet: &mut Sheet, stored: u32, expected: Option<u32>) {
    let verdict = match expected {
        Some(sum) if sum == stored => "correct".to_string(),
        Some(sum) => format!("expected {sum:x}"),
        None => "cannot be computed".to_string(),
    };
    let text = format!("{stored:x} - {verdict}");
    sheet.line("checksum", Value::Text(format!("{stored:08x}")), "Checksum", text);
    sheet.quiet("checksum_correct", Value::Flag(expected == Some(stored)));
}
