//! A 1.x superblock, shown in the order of `mdadm --examine`.

use super::md0::checksum;
use super::{Examination, Sheet, Value, byte_value, device_flags, human, names};
use super::{printable, where_it_lies};
use crate::meta::md1::features;
use crate::meta::md1::packet::{MAX_DEV, MAX_SECTOR, Packet};
use crate::meta::sizes::{Geometry, array_size};
use crate::meta::{bytes, time, uuid};
use crate::units::{SECTOR, Sectors};

/// Sectors md keeps free behind a superblock at the start (36 KiB).
const RESERVED: i128 = 72;

/// Shows the superblock in `bytes`, found at sector `at` of a device of `device` sectors.
pub fn examine(metadata: &'static str, bytes: &[u8], at: Sectors, device: Sectors) -> Examination {
    let packet = Packet::new(bytes);
    let mut sheet = Sheet::default();
    show_array(&mut sheet, metadata, &packet);
    sheet.blank();
    show_sizes(&mut sheet, &packet, device);
    sheet.blank();
    show_extras(&mut sheet, &packet);
    show_state(&mut sheet, &packet);
    sheet.blank();
    show_geometry(&mut sheet, &packet);
    sheet.blank();
    show_roles(&mut sheet, &packet);
    where_it_lies(&mut sheet, at, device);
    Examination { metadata, at_bytes: at.bytes(), fields: sheet.0, problems: Vec::new() }
}

fn show_array(sheet: &mut Sheet, metadata: &str, packet: &Packet) {
    sheet.words("magic", "Magic", format!("{:08x}", packet.magic()));
    sheet.words("version", "Version", metadata.into());
    let (bits, names) = (packet.features(), features::names(packet.features()));
    let text = match names.is_empty() {
        true => format!("{bits:#x}"),
        false => format!("{bits:#x} ({})", names.join(", ")),
    };
    sheet.line("features", Value::List(names), "Feature Map", text);
    sheet.words("uuid", "Array UUID", uuid::to_text(&packet.uuid()));
    sheet.words("name", "Name", printable(packet.name()));
    sheet.words("created", "Creation Time", time::to_text(packet.ctime()));
    sheet.quiet("created_seconds", Value::Number(time::seconds(packet.ctime())));
    sheet.words("level", "Raid Level", names::level(packet.level()));
    sheet.number("slots", "Raid Devices", packet.raid_disks().into());
}

fn show_sizes(sheet: &mut Sheet, packet: &Packet, device: Sectors) {
    sheet.size("data_bytes", "Avail Dev Size", packet.data_size());
    match array_size(&geometry(packet)) {
        Some(size) => {
            let bytes = u128::from(size.0) * u128::from(SECTOR);
            let text = format!("{} KiB{}", bytes >> 10, human(bytes));
            sheet.line("array_bytes", byte_value(size.0), "Array Size", text);
        }
        None => sheet.quiet("array_bytes", Value::Null),
    }
    if packet.size() != packet.data_size() && packet.level() != 0 {
        sheet.size("component_bytes", "Used Dev Size", packet.size());
    } else {
        sheet.quiet("component_bytes", byte_value(packet.size()));
    }
    let behind = packet.data_offset() < packet.super_offset();
    match behind && packet.data_offset() == 0 {
        true => sheet.quiet("data_offset_bytes", Value::Number(0)),
        false => sheet.sectors("data_offset_bytes", "Data Offset", packet.data_offset()),
    }
    let bits = packet.features();
    if bits & features::NEW_OFFSET != 0 {
        let new = packet.data_offset().wrapping_add_signed(packet.new_offset().into());
        sheet.sectors("new_offset_bytes", "New Offset", new);
    }
    sheet.sectors("super_offset_bytes", "Super Offset", packet.super_offset());
    if bits & features::RECOVERY_OFFSET != 0 {
        sheet.sectors("recovery_offset_bytes", "Recovery Offset", packet.recovery_offset());
    }
    if bits & features::NEW_OFFSET == 0 {
        let (before, after) = unused(packet, device);
        sheet.remark("Unused Space", format!("before={before} sectors, after={after} sectors"));
    }
    let clean = packet.resync_offset() == MAX_SECTOR;
    sheet.words("state", "State", if clean { "clean" } else { "active" }.into());
    let resync = if clean { Value::Null } else { byte_value(packet.resync_offset()) };
    sheet.quiet("resync_offset_bytes", resync);
    sheet.words("device_uuid", "Device UUID", uuid::to_text(&packet.device_uuid()));
}

/// RAID 0 and linear are made of all members' sizes, which one superblock does not know.
fn geometry(packet: &Packet) -> Geometry<'static> {
    Geometry {
        level: if packet.level() > 0 { packet.level() } else { i32::MIN },
        layout: packet.layout(),
        chunk: Sectors(packet.chunk().into()),
        slots: packet.raid_disks().into(),
        component: Sectors(packet.size()),
        members: &[],
    }
}

/// Sectors that neither metadata nor data use, before and behind the data.
fn unused(packet: &Packet, device: Sectors) -> (i128, i128) {
    let used = if packet.size() == 0 { packet.data_size() } else { packet.size() };
    let (data, len) = (i128::from(packet.data_offset()), i128::from(used));
    let own = i128::from(packet.super_offset());
    let log = (packet.bblog_offset() != 0).then(|| own + i128::from(packet.bblog_offset()));
    let log_end = log.map(|at| at + i128::from(packet.bblog_size()));
    let bitmap = (packet.features() & features::BITMAP != 0)
        .then(|| own + i128::from(packet.bitmap_offset()));
    if data < own {
        let end = [log, bitmap].into_iter().flatten().fold(own, i128::min);
        return (data, (end - data - len).max(0));
    }
    let ppl = (packet.features() & (features::PPL | features::MULTIPLE_PPLS) != 0)
        .then(|| own + i128::from(packet.ppl_offset()) + i128::from(packet.ppl_size()));
    let first = [log_end, ppl].into_iter().flatten().fold(own + RESERVED, i128::max);
    ((data - first).max(0), i128::from(device.0) - data - len)
}

fn show_extras(sheet: &mut Sheet, packet: &Packet) {
    let bits = packet.features();
    if bits & features::BITMAP != 0 {
        let at = packet.bitmap_offset();
        let text = format!("{at} sectors from superblock");
        sheet.line("bitmap_offset_sectors", Value::Signed(at.into()), "Internal Bitmap", text);
    }
    if bits & (features::PPL | features::MULTIPLE_PPLS) != 0 {
        let (at, len) = (packet.ppl_offset(), packet.ppl_size());
        let text = format!("{len} sectors at offset {at} sectors from superblock");
        sheet.line("ppl_bytes", byte_value(len.into()), "PPL", text);
    }
    if bits & features::RESHAPE_ACTIVE != 0 {
        show_reshape(sheet, packet);
    }
    let flags = device_flags(packet.devflags());
    match flags.is_empty() {
        true => sheet.quiet("flags", Value::List(flags)),
        false => sheet.line("flags", Value::List(flags.clone()), "Flags", flags.join(" ")),
    }
}

fn show_reshape(sheet: &mut Sheet, packet: &Packet) {
    let at = packet.reshape_position();
    let text = format!("{}{}", at / 2, human(u128::from(at) * u128::from(SECTOR)));
    sheet.line("reshape_position_bytes", byte_value(at), "Reshape pos'n", text);
    let delta = i64::from(packet.delta_disks());
    if delta != 0 {
        let new = i64::from(packet.raid_disks());
        let text = format!("{delta} ({}->{new})", new - delta);
        sheet.line("delta_devices", Value::Signed(delta), "Delta Devices", text);
    }
    if packet.new_level() != packet.level() {
        sheet.words("new_level", "New Level", names::level(packet.new_level()));
    }
    if packet.new_layout() != packet.layout() {
        let name = names::layout(packet.level(), packet.new_layout()).unwrap_or_default();
        sheet.words("new_layout", "New Layout", name);
    }
    if packet.new_chunk() != packet.chunk() {
        let text = format!("{}K", packet.new_chunk() / 2);
        let bytes = byte_value(packet.new_chunk().into());
        sheet.line("new_chunk_bytes", bytes, "New Chunksize", text);
    }
    sheet.blank();
}

fn show_state(sheet: &mut Sheet, packet: &Packet) {
    sheet.words("updated", "Update Time", time::to_text(packet.utime()));
    sheet.quiet("updated_seconds", Value::Number(time::seconds(packet.utime())));
    let has_bad_blocks = packet.features() & features::BAD_BLOCKS != 0;
    if packet.bblog_size() != 0 && packet.bblog_offset() != 0 {
        let entries = u64::from(packet.bblog_size()) * SECTOR / 8;
        let present = if has_bad_blocks { " - bad blocks present." } else { "" };
        let at = packet.bblog_offset();
        let text = format!("{entries} entries available at offset {at} sectors{present}");
        sheet.line("bad_block_entries", Value::Number(entries), "Bad Block Log", text);
    }
    sheet.quiet("has_bad_blocks", Value::Flag(has_bad_blocks));
    checksum(sheet, packet.checksum(), packet.expected_checksum());
    sheet.number("events", "Events", packet.events());
    sheet.quiet("corrected_reads", Value::Number(packet.corrected_reads().into()));
    match packet.logical_block() {
        0 => {}
        bytes => sheet.line(
            "logical_block_bytes",
            Value::Number(bytes.into()),
            "Logical Block",
            format!("{bytes} bytes"),
        ),
    }
}

fn show_geometry(sheet: &mut Sheet, packet: &Packet) {
    let level = packet.level();
    // Without its feature bit the word of a RAID 0 says nothing.
    let says = level != 0 || packet.features() & features::RAID0_LAYOUT != 0;
    match names::layout(level, packet.layout()) {
        Some(name) if says => sheet.words("layout", "Layout", name),
        _ => sheet.quiet("layout", Value::Null),
    }
    let kib = format!("{}K", packet.chunk() / 2);
    let bytes = byte_value(packet.chunk().into());
    match level {
        0 | 4 | 5 | 6 | 10 => sheet.line("chunk_bytes", bytes, "Chunk Size", kib),
        -1 => sheet.line("chunk_bytes", bytes, "Rounding", kib),
        _ => sheet.quiet("chunk_bytes", bytes),
    }
}

fn show_roles(sheet: &mut Sheet, packet: &Packet) {
    let number = packet.dev_number();
    let role = match packet.role(number) {
        0xfffe | 0xffff => "spare".to_string(),
        0xfffd => "Journal".to_string(),
        slot if packet.features() & features::REPLACEMENT != 0 => {
            format!("Replacement device {slot}")
        }
        slot => format!("Active device {slot}"),
    };
    sheet.words("role", "Device Role", role);
    sheet.quiet("device_number", Value::Number(number.into()));
    let gone = match packet.features() & features::RESHAPE_ACTIVE != 0 {
        true => packet.delta_disks().min(0).unsigned_abs(),
        false => 0,
    };
    let slots = packet.raid_disks().min(MAX_DEV) + gone.min(MAX_DEV);
    let roles: Vec<u16> = (0..packet.max_dev().min(MAX_DEV)).map(|n| packet.role(n)).collect();
    let mark = |slot: u32| match roles.iter().filter(|&&role| u32::from(role) == slot).count() {
        0 => '.',
        1 => 'A',
        _ => 'R',
    };
    let marks: String = (0..slots).map(mark).collect();
    let text = format!("{marks} ('A' == active, '.' == missing, 'R' == replacing)");
    sheet.line("array_state", Value::Text(marks), "Array State", text);
    let failed = roles.iter().filter(|&&role| role == 0xfffe).count();
    sheet.quiet("failed_devices", Value::Number(failed as u64));
    let in_use = bytes::without_padding(packet.pad3()).len();
    if in_use != 0 {
        sheet.remark("Padding", format!("{in_use} bytes in use that should be zero"));
    }
}
