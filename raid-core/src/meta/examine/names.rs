//! mdadm's names for levels and layouts.

use crate::meta::sizes::Copies;

/// The name of a level number: `raid5`; a number nobody uses stays a number.
pub fn level(level: i32) -> String {
    match level {
        -1 => "linear".into(),
        -4 => "multipath".into(),
        -5 => "faulty".into(),
        -100 => "container".into(),
        0 | 1 | 4 | 5 | 6 | 10 => format!("raid{level}"),
        other => format!("unknown level {other}"),
    }
}

/// RAID 5's rotations, which RAID 6 shares up to 5.
const ROTATIONS: [&str; 6] = [
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
];

/// The name of a level's layout word; `None` where the level has none.
pub fn layout(level: i32, layout: u32) -> Option<String> {
    let unknown = || format!("unknown layout {layout:#x}");
    match level {
        0 => match layout {
            1 => Some("original".into()),
            2 => Some("alternate".into()),
            _ => None,
        },
        5 => Some(rotation(layout).map_or_else(unknown, String::from)),
        6 => Some(rotation6(layout).map_or_else(unknown, String::from)),
        10 => Some(copies(layout)),
        _ => None,
    }
}

fn rotation(layout: u32) -> Option<&'static str> {
    ROTATIONS.get(layout as usize).copied()
}

fn rotation6(layout: u32) -> Option<&'static str> {
    match layout {
        8 => Some("ddf-zero-restart"),
        9 => Some("ddf-N-restart"),
        10 => Some("ddf-N-continue"),
        16 => Some("left-asymmetric-6"),
        17 => Some("right-asymmetric-6"),
        18 => Some("left-symmetric-6"),
        19 => Some("right-symmetric-6"),
        20 => Some("parity-first-6"),
        other => rotation(other),
    }
}

fn copies(layout: u32) -> String {
    let Copies { near, far, offset } = Copies::of(layout);
    let mut parts = Vec::new();
    if near > 1 || far <= 1 {
        parts.push(format!("near={near}"));
    }
    if far > 1 {
        parts.push(format!("{}={far}", if offset { "offset" } else { "far" }));
    }
    match layout >> 17 {
        0 => {}
        mode => parts.push(format!("far sets {mode}")),
    }
    parts.join(", ")
}
