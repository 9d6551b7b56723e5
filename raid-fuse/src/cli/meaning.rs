//! What the words in a layout's name mean, in a line, and what else it is called.

use raid_core::layout::Level;

/// What the words of layout `word` mean here; empty where the level has nothing to tell.
pub fn meaning(level: &Level, word: u32) -> String {
    let name = (level.layout_name)(word);
    let parts = match level.number {
        -1 => vec!["the members follow each other, whole"],
        0 => zones(word),
        1 => vec!["every member holds the whole array"],
        4 => vec!["parity is always on the last member"],
        5 | 6 => rotation(level.number == 6, &name),
        10 => copies(word),
        _ => Vec::new(),
    };
    parts.join("; ")
}

/// Other names of the same layout, as the tables of levels accept them.
pub fn aliases(level: &Level, word: u32) -> Vec<&'static str> {
    let names = level.layouts.iter().filter(|&&(_, other)| other == word);
    names.skip(1).map(|&(name, _)| name).collect()
}

fn zones(word: u32) -> Vec<&'static str> {
    match word {
        1 => vec![
            "original: where members differ in size, a later zone goes on counting from chunk 0 of \
             the array",
        ],
        2 => vec!["alternate: where members differ in size, each zone counts from its own chunk 0"],
        _ => Vec::new(),
    }
}

fn rotation(has_q: bool, name: &str) -> Vec<&'static str> {
    let mut parts = vec![match name {
        "parity-first" | "parity-first-6" => "P is always on the first member",
        "parity-last" if has_q => "P is always on the last member but one",
        "parity-last" => "P is always on the last member",
        "ddf-zero-restart" => "P starts on the first member and moves right, one a stripe",
        "ddf-N-restart" => "P starts on the last member but one and moves left, one a stripe",
        "ddf-N-continue" => "P starts on the last member and moves left, one a stripe",
        "left-symmetric-6" | "left-asymmetric-6" => {
            "left: P starts on the last member but one and moves left, one a stripe"
        }
        _ if name.starts_with("left") => {
            "left: P starts on the last member and moves left, one a stripe"
        }
        _ => "right: P starts on the first member and moves right, one a stripe",
    }];
    parts.push(match name {
        "ddf-N-continue" => "data starts behind P and goes round",
        _ if name.contains("asymmetric") => {
            "asymmetric: data starts on the first member in every stripe and skips parity"
        }
        _ if name.contains("symmetric") => "symmetric: data starts behind parity and goes round",
        _ => "data starts on the first member in every stripe and skips parity",
    });
    if has_q {
        parts.push(match name {
            "ddf-N-continue" => "Q is before P and counts data by slot",
            _ if name.starts_with("ddf") => "Q is behind P and counts data by slot",
            _ if name.ends_with("-6") => "Q is always on the last member",
            _ => "Q is behind P and counts data from behind itself",
        });
    }
    parts
}

/// RAID 10's word: near copies in bits 0-7, far in 8-15, offset in 16, far sets in 17 and 18.
fn copies(word: u32) -> Vec<&'static str> {
    let (near, far, offset, sets) = (word & 0xff, word >> 8 & 0xff, word >> 16 & 1, word >> 17);
    let mut parts = Vec::new();
    if near > 1 {
        parts.push("near: the copies of a chunk are on neighbouring members, in the same row");
    }
    if far > 1 {
        parts.push(match (offset, near) {
            (1, _) => "offset: each further copy is in the next row, turned to the next member",
            _ => {
                "far: each further copy is in the next section of the members, turned to the next \
                 member"
            }
        });
    }
    if sets != 0 {
        parts.push("far sets: copies stay inside sets of members");
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use raid_core::layout::{LEVELS, level_by_name};

    #[test]
    fn every_layout_of_every_level_has_words() {
        for level in LEVELS {
            for &(name, word) in level.layouts.iter().filter(|&&(_, word)| word != 0) {
                assert!(!meaning(level, word).is_empty(), "{} {name}", level.name);
            }
        }
        let raid10 = level_by_name("10").unwrap();
        for (text, first) in [("n2", "near: "), ("f2", "far: "), ("o2", "offset: ")] {
            let word = (raid10.parse_layout)(text).unwrap();
            assert!(meaning(raid10, word).starts_with(first), "{text}");
        }
    }

    #[test]
    fn left_symmetric_has_its_other_names() {
        let raid5 = level_by_name("5").unwrap();
        let names = aliases(raid5, 2);
        assert!(names.contains(&"ls") && names.contains(&"left-synchronous"), "{names:?}");
        assert!(!names.contains(&"left-symmetric"));
        for name in names {
            assert_eq!((raid5.parse_layout)(name).unwrap(), 2, "{name}");
        }
    }
}
