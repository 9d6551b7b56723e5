//! The teaching commands as they are typed: numbers that books and users found, exit codes, JSON
//! that is nothing but JSON, and everything printed accepted back.

use raid_tests::cli::program;
use serde_json::Value;
use std::process::{Command, Output};

fn raid_fuse(words: &str) -> Output {
    Command::new(program()).args(words.split_whitespace()).output().unwrap()
}

/// Standard output of a command that must succeed.
fn said(words: &str) -> String {
    let output = raid_fuse(words);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}: {errors}");
    assert_eq!(errors, "", "{words}: nothing on standard error");
    String::from_utf8(output.stdout).unwrap()
}

fn json(words: &str) -> Value {
    serde_json::from_str(&said(&format!("{words} --json"))).unwrap()
}

fn assert_says(words: &str, expected: &[&str]) {
    let text = said(words);
    for line in expected {
        assert!(text.contains(line), "{words}: expected {line:?} in\n{text}");
    }
}

/// The exit code and words of a command that must fail.
fn refused(words: &str) -> (i32, String) {
    let output = raid_fuse(words);
    assert!(output.stdout.is_empty(), "{words}: nothing on standard output");
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn map_prints_where_far_copies_land() {
    assert_says(
        "map -l10 -pf2 -n3 -c64 -z 8c",
        &[
            "raid10, 3 members, far=2 (layout 0x201), chunk 64 KiB",
            "0->(0,0),(1,4)   0, 262144\n",
            "1->(1,0),(2,4)",
            "2->(2,0),(0,4)",
            "3->(0,1),(1,5)   65536, 327680\n",
        ],
    );
}

#[test]
fn map_goes_both_ways_with_the_arithmetic() {
    let there = json("map -l6 -n6 -p la -c64 1234567");
    let place = &there["answers"][0]["places"][0];
    let (slot, offset) = (&place["slot"], &place["member_offset"]);
    let back = json(&format!("map -l6 -n6 -p la -c64 --member {slot} {offset}"));
    assert_eq!(back["answers"][0]["array_offset"], 1_234_567);
    assert_says(
        "map -l5 -n4 -c64 1234567 --explain",
        &[
            "chunk = sector 2411 / 128 sectors = 18, 107 sectors into it",
            "P slot = (4 - 1) - stripe 6 mod 4 = 1 (left-symmetric)",
        ],
    );
    assert_says("map -l5 -n4 -c64 --member 1 448135", &["(1,6): P of stripe 6"]);
    assert_says("map -l5 -n4 -c64 1,6", &["(1,6): P of stripe 6"]);
    assert_says("map -l5 -n4 -c64 (1,6) 4->(1,1)", &["(1,6): P of stripe 6", "chunk 4, 0 bytes"]);
    assert!(!said("map -l10 -n4 100K").contains("stripe"), "md has none there");
}

#[test]
fn layout_draws_every_number_of_members() {
    assert_says(
        "layout -l5 -n4",
        &[
            "raid5, 4 members, left-symmetric (layout 2), chunk 512 KiB",
            "left: P starts on the last member and moves left",
            "also called ls, ",
            "members of 24 MiB (48 chunks) are assumed",
            "  0 |  0   1   2   P\n  1 |  4   5   P   3\n",
        ],
    );
    for n in 3..=24 {
        let drawn = json(&format!("layout -l6 -n {} --missing 1 --stale 2 --rebuilding 0", n + 1));
        assert_eq!(drawn["members"].as_array().unwrap().len(), n + 1);
        let states = ["rebuilding", "lost", "stale", "good"];
        let member = |slot: usize| drawn["members"][slot]["state"].as_str().unwrap().to_string();
        assert_eq!([0, 1, 2, 3].map(member), states);
        let svg = said(&format!("show -l5 -n {n} --missing 1 --svg -"));
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{n}");
    }
    let wide = said("layout -l5 -n 100");
    assert!(wide.lines().skip(3).all(|line| line.len() <= 160), "{wide}");
}

#[test]
fn names_of_layouts_are_accepted_as_printed() {
    for (level, n) in [("raid5", 4), ("raid6", 5), ("raid10", 4), ("raid0", 2)] {
        let layouts: &[&str] = match level {
            "raid10" => &["n2", "f2", "o2", "0x201"],
            "raid0" => &["original", "alternate"],
            _ => &["ls", "LA", "right_symmetric", "right-data-restart", "parity-first"],
        };
        for layout in layouts {
            let words = format!("layout -l {level} -n {n} --json -p");
            let drawn: Value = serde_json::from_str(&said(&format!("{words} {layout}"))).unwrap();
            let geometry = &drawn["geometry"];
            let name = geometry["layout"].as_str().unwrap();
            let again: Value = serde_json::from_str(&said(&format!("{words} {name}"))).unwrap();
            assert_eq!(&again["geometry"], geometry, "{level} {layout}");
        }
    }
}

#[test]
fn survives_lists_pairs_and_what_is_lost() {
    assert_says(
        "pairs -l10 -n4",
        &[
            "without 2 of 4 members: 4 of 6 ways survive",
            "survives {0,2} {0,3} {1,2} {1,3}",
            "dies     {0,1} {2,3}",
        ],
    );
    for (layout, surviving) in [("f2", 9), ("0x20201", 9), ("0x40201", 12)] {
        let counted = json(&format!("survives -l10 -n6 -k2 -p {layout}"));
        assert_eq!(counted["failures"][0]["surviving"], surviving, "{layout}");
        assert_eq!(counted["failures"][0]["ways"], 15);
    }
    assert_says("survives -l6 -n5", &["without 3 of 5 members: 0 of 10 ways survive"]);
    let lost = raid_fuse("survives -l10 -n4 -c64 -z 2c --missing 0,1");
    assert_eq!(lost.status.code(), Some(2));
    let text = String::from_utf8(lost.stdout).unwrap();
    assert!(text.contains("bytes 0 to 65535 (chunk 0)"), "{text}");
    assert!(!text.contains("chunk 1)"), "{text}");
    assert_says("survives -l10 -n4 --missing 0,3", &["survives, nothing is lost"]);
}

#[test]
fn info_has_the_sizes_the_kernel_exports() {
    let near = json("info --geometry -l10 -n6 -c64");
    assert_eq!(near["optimal_io_bytes"], 196_608);
    let far = json("info --geometry -l10 -n6 -c64 -p f2");
    assert_eq!(
        (&far["optimal_io_bytes"], &far["minimum_io_bytes"]),
        (&393_216.into(), &65_536.into())
    );
    assert_says("info -l5 -n4 -c64", &["-E stride=16,stripe-width=48", "-d su=65536,sw=3"]);
    assert_says("info -l10 -n2 -p 0x20201", &["no redundancy: all 2 copies of chunk 0"]);
}

#[test]
fn explain_read_lists_the_reads_and_what_runs_in_parallel() {
    assert_says(
        "explain-read -l5 -n5 --failed 0 --block 0",
        &["D0 = D1 ^ D2 ^ D3 ^ P", "4 reads on 4 members: {1,2,3,4}"],
    );
    assert_says(
        "explain-read -l5 -n4 -c64 --lost 1 0 192K",
        &["3 reads on 3 members: {0,2,3}, 196608 bytes"],
    );
    let lost = raid_fuse("explain-read -l0 -n4 -c64 --missing 1 0 192K");
    let text = String::from_utf8(lost.stdout).unwrap();
    for words in [
        "bytes 65536 to 131071: lost, cannot be read without slots {1}\n",
        "65536 of 196608 bytes cannot be read\n",
    ] {
        assert!(lost.status.code() == Some(2) && text.contains(words), "{text}");
    }
    let rounds = json("explain-read -l5 -n5 --failed 0 --block 0,1,4");
    assert_eq!(rounds["rounds"], serde_json::json!([[0], [1, 2]]));
    assert_eq!(raid_fuse("explain-read -l5 -n5 --failed 0,1 --block 0").status.code(), Some(2));
}

#[test]
fn explain_write_computes_the_textbook_case() {
    let words = "explain-write --values D0=AB9C,D1=AABB,D2=0098,D3=549C,P=2FFF --new D0=7453";
    let told = json(words);
    let values = &told["values"];
    assert_eq!(values["true_parity"]["p"], "5523");
    assert_eq!(values["read_modify_write"]["p"], "F030");
    assert_eq!(values["reconstruct_write"]["p"], "8AEC");
    assert_eq!(
        (&values["stale"], &told["parts"][0]["taken"]),
        (&true.into(), &"read-modify-write".into())
    );
    assert_says(
        words,
        &[
            "read-modify-write  reads 2 (D0 P), writes 2",
            "reconstruct-write  reads 3 (D1 D2 D3), writes 2",
            "warning: the given P=2FFF is stale: the P of the data is 5523",
        ],
    );
    assert_says("explain-write -l5 -n5 -c64 0 4c", &["full-stripe-write", "encode | commit"]);
}

#[test]
fn parity_is_xor_and_not_addition() {
    let row = json("parity --raid6 44 11 22 33");
    assert_eq!((&row["p"], &row["q"]), (&"44".into(), &"6B".into()));
    assert_eq!(json("parity --raid6 11 22 33 44")["q"], "83");
    assert_says("parity --op add --decimal 7 2", &["sum = 7 + 2 = 9", "9 - 2 = 7  right"]);
    assert_says(
        "parity --op add --decimal 200 100",
        &["it keeps 44", "44 - 100 = -56  wrong: it was 200", "200 ^ 100 = 172"],
    );
}

#[test]
fn geometry_comes_from_members_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let member = |n: u64, mib: u64| {
        let path = dir.path().join(format!("d{n}.img"));
        std::fs::File::create(&path).unwrap().set_len(mib << 20).unwrap();
        path.to_str().unwrap().to_string()
    };
    let far: Vec<String> = (0..3).map(|n| member(n, 16)).collect();
    said(&format!("create -l10 -n3 -p f2 -c64 {}", far.join(" ")));
    let one = json(&format!("info --from {}", far[1]));
    assert_eq!(one["geometry"]["layout"], "far=2");
    assert_eq!(one["geometry"]["member_size_assumed"], false);
    assert_eq!(one["optimal_io_bytes"], 196_608);

    let uneven = [(3, 16), (4, 24), (5, 24)].map(|(n, mib)| member(n, mib));
    said(&format!("create -l0 -n3 -c64 {}", uneven.join(" ")));
    let all: Vec<String> = uneven.iter().map(|name| format!("--from {name}")).collect();
    let zones = json(&format!("info {}", all.join(" ")));
    assert_eq!(zones["zones"][1]["slots"], serde_json::json!([1, 2]));
    let (_, message) = refused(&format!("info --from {}", uneven[0]));
    assert!(message.contains("give --from also for slots 1, 2"), "{message}");
    let (_, message) = refused(&format!("info --from {} --from {}", uneven[0], far[0]));
    assert!(message.contains("different arrays"), "{message}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_rule() {
    let cases = [
        ("layout -l5 -n4 -c12", "power of two of at least 4 KiB"),
        ("layout -l1 -n2 -c64", "raid1 has no chunk"),
        ("map -l10 -n4 -p 0x60201", "bits 17 and 18"),
        ("map -l5 -n4 100G", "beyond the end of the array"),
        ("map -l5 -n4 12x", "give it as 4096"),
        ("survives -l5 -n4 --missing 4", "there is no slot 4"),
        ("explain-write -l5 -n4 1 1", "are in 0s 1s"),
        ("explain-write --values D0=01,D1=02 --new D7=03", "there is no D7"),
        ("parity AB9", "two hexadecimal digits"),
        ("layout", "-l LEVEL -n MEMBERS"),
        ("layout -l99 -n4", "known are linear"),
        ("info -l5 -n4 -p sideways", "has no layout"),
        ("layout --from /nonexistent/member", "/nonexistent/member"),
    ];
    for (words, expected) in cases {
        let (code, message) = refused(words);
        assert!(message.contains(expected), "{words}: {message}");
        let expected = if words.contains("/nonexistent") { 1 } else { 64 };
        assert_eq!((code, message.lines().count()), (expected, 1), "{words}: {message}");
    }
    let (code, message) = refused("layout -l0 -c64 --member-sizes 3c,6c,6c -p unset");
    assert!(code == 4 && message.contains("--raid0-layout alternate"), "{message}");
    said("layout -l0 -c64 --member-sizes 3c,6c,6c --raid0-layout alternate");
    assert_eq!(refused("map --bogus").0, 64);
}

#[test]
fn every_command_has_help_with_examples() {
    for command in ["layout", "map", "survives", "info", "explain-read", "explain-write", "parity"]
    {
        assert_says(&format!("{command} --help"), &["Examples:", &format!("raid-fuse {command}")]);
    }
}

#[test]
fn help_lists_the_exit_codes() {
    assert_says(
        "--help",
        &["   0  done", "   1  failed", "   2  ", "   3  ", "   4  ", "   5  ", "  64  "],
    );
}

#[test]
fn a_loss_has_the_same_words_everywhere() {
    for command in ["layout", "survives", "explain-read 0", "explain-write 0 4K"] {
        for option in ["--missing", "--failed", "--lost"] {
            said(&format!("{command} -l6 -n6 {option} 1"));
        }
    }
}
