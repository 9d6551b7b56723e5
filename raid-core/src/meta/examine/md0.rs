//! A 0.90 superblock, shown.

use super::names;
use super::{Examination, Sheet, Value, human, where_it_lies};
use crate::meta::md0::Packet;
use crate::meta::{time, uuid};
use crate::units::Sectors;

/// Shows the superblock in `bytes`, found at sector `at` of a device of `device` sectors.
pub fn examine(bytes: &[u8], at: Sectors, device: Sectors) -> Examination {
    let mut sheet = Sheet::default();
    if let Some(packet) = Packet::new(bytes) {
        show(&mut sheet, &packet);
    }
    where_it_lies(&mut sheet, at, device);
    Examination { metadata: "0.90", at_bytes: at.bytes(), fields: sheet.0, problems: Vec::new() }
}

fn show(sheet: &mut Sheet, packet: &Packet) {
    sheet.words("magic", "Magic", "a92b4efc".into());
    sheet.words("version", "Version", format!("0.{}.00", packet.minor()));
    let order = if packet.is_big_endian() { "big-endian" } else { "little-endian" };
    sheet.words("byte_order", "Byte Order", order.into());
    sheet.words("uuid", "UUID", uuid::to_text(&packet.uuid()));
    sheet.words("created", "Creation Time", time::to_text(packet.ctime()));
    sheet.words("level", "Raid Level", names::level(packet.level()));
    let component = packet.component();
    let text = format!("{}{}", component.0 / 2, human(component.bytes().into()));
    sheet.line("component_bytes", Value::Number(component.bytes()), "Used Dev Size", text);
    sheet.number("slots", "Raid Devices", packet.raid_disks().into());
    sheet.blank();
    sheet.words("updated", "Update Time", time::to_text(packet.utime()));
    let state = if packet.is_clean() { "clean" } else { "active" };
    sheet.words("state", "State", state.into());
    checksum(sheet, packet.checksum(), Some(packet.expected_checksum()));
    sheet.number("events", "Events", packet.events());
    sheet.blank();
    if let Some(layout) = names::layout(packet.level(), packet.layout()) {
        sheet.words("layout", "Layout", layout);
    }
    let chunk = u64::from(packet.chunk_bytes());
    let label = match packet.level() {
        0 | 4 | 5 | 6 | 10 => "Chunk Size",
        -1 => "Rounding",
        _ => "",
    };
    match label.is_empty() {
        true => sheet.quiet("chunk_bytes", Value::Number(chunk)),
        false => {
            sheet.line("chunk_bytes", Value::Number(chunk), label, format!("{}K", chunk / 1024));
        }
    }
    let (number, slot, state) = packet.this_disk();
    sheet.blank();
    sheet.remark("This Device", format!("number {number}, slot {slot}, state {state:#x}"));
    sheet.quiet("device_number", Value::Number(number.into()));
    sheet.quiet("device_slot", Value::Number(slot.into()));
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
