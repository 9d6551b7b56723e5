//! The feature bits of md 1.x: their names, and what they let us do.

/// An internal bitmap is in use.
pub const BITMAP: u32 = 0x1;
/// The member is in sync only up to its recovery offset.
pub const RECOVERY_OFFSET: u32 = 0x2;
/// A reshape is running.
pub const RESHAPE_ACTIVE: u32 = 0x4;
/// The bad-block log is not empty.
pub const BAD_BLOCKS: u32 = 0x8;
/// The member is to replace the other one of its slot.
pub const REPLACEMENT: u32 = 0x10;
/// The reshape runs from the end to the start.
pub const RESHAPE_BACKWARDS: u32 = 0x20;
/// The reshape moves the data offset.
pub const NEW_OFFSET: u32 = 0x40;
/// Recovery needs only what the bitmap marks.
pub const RECOVERY_BITMAP: u32 = 0x80;
/// Bitmap of a cluster.
pub const BITMAP_VERSIONED: u32 = 0x100;
/// A write journal belongs to the array.
pub const JOURNAL: u32 = 0x200;
/// Partial parity log.
pub const PPL: u32 = 0x400;
/// Partial parity log with several headers.
pub const MULTIPLE_PPLS: u32 = 0x800;
/// The layout word of a RAID 0 can be trusted.
pub const RAID0_LAYOUT: u32 = 0x1000;

/// Bits that follow from a record; all others are kept as they were found.
pub const REBUILT: u32 = BITMAP | RECOVERY_OFFSET | RECOVERY_BITMAP | BAD_BLOCKS | REPLACEMENT;

/// Every bit the kernel (6.1) knows, with its name.
pub const NAMES: &[(u32, &str)] = &[
    (BITMAP, "bitmap"),
    (RECOVERY_OFFSET, "recovery offset"),
    (RESHAPE_ACTIVE, "reshape active"),
    (BAD_BLOCKS, "bad blocks"),
    (REPLACEMENT, "replacement"),
    (RESHAPE_BACKWARDS, "reshape backwards"),
    (NEW_OFFSET, "new offset"),
    (RECOVERY_BITMAP, "recovery by bitmap"),
    (BITMAP_VERSIONED, "clustered bitmap"),
    (JOURNAL, "journal"),
    (PPL, "ppl"),
    (MULTIPLE_PPLS, "multiple ppls"),
    (RAID0_LAYOUT, "raid0 layout"),
];

/// The bits of `features` that nobody knows.
pub fn unknown(features: u32) -> u32 {
    NAMES.iter().fold(features, |rest, (bit, _)| rest & !bit)
}

/// The names of the bits that are set; unknown ones as hexadecimal numbers.
pub fn names(features: u32) -> Vec<String> {
    let known = NAMES.iter().filter(|(bit, _)| features & bit != 0);
    let mut names: Vec<String> = known.map(|(_, name)| name.to_string()).collect();
    if unknown(features) != 0 {
        names.push(format!("unknown {:#x}", unknown(features)));
    }
    names
}

/// Combinations the kernel refuses, with the reason.
pub fn contradiction(features: u32, level: i32) -> Option<&'static str> {
    let has = |bits: u32| features & bits != 0;
    if features & PPL != 0 && features & MULTIPLE_PPLS != 0 {
        Some("it has both kinds of partial parity log at once")
    } else if has(PPL | MULTIPLE_PPLS) && has(BITMAP | JOURNAL) {
        Some("it has a partial parity log together with a bitmap or a journal")
    } else if has(RAID0_LAYOUT) && level != 0 {
        Some("it has RAID 0's layout feature on another level")
    } else {
        None
    }
}

/// Why an array with these features may be read but not written; `None`: it may.
///
/// We write only what we keep truthful: plain arrays, an internal bitmap, recovery offsets,
/// replacements, bad-block logs, partial parity logs and journals.
pub fn bars_writing(features: u32) -> Option<&'static str> {
    const BARS: &[(u32, &str)] =
        &[(BITMAP_VERSIONED, "it belongs to a cluster and other nodes may have it open")];
    BARS.iter().find(|(bits, _)| features & bits != 0).map(|&(_, why)| why)
}

/// Why an array with these features cannot be started at all; `None`: it can.
pub fn bars_starting(features: u32) -> Option<String> {
    if features & RESHAPE_ACTIVE != 0 {
        return Some(
            "a reshape is running: part of the data lies in the old geometry and part in the \
             new one, which this version cannot map; let the kernel's md finish it"
                .into(),
        );
    }
    match unknown(features) {
        0 => None,
        bits => Some(format!(
            "its feature bits {bits:#x} are unknown to this version and may change where data lies"
        )),
    }
}
