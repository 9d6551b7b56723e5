//! What people and programs say: command lines, amounts, layout names, control requests, made to
//! break their parsers.
//!
//! See [`raid_tests::fuzz`] for how to replay a failure and how long it runs.

use raid_core::layout::LEVELS;
use raid_core::units::Sectors;
use raid_fuse::cli::amount;
use raid_fuse::control::Request;
use raid_tests::cli::Desk;
use raid_tests::fuzz::meter::Meter;
use raid_tests::fuzz::{mutate, run};

#[global_allocator]
static METER: Meter = Meter;

/// Words a command line is made of, right and wrong.
const WORDS: &[&str] = &[
    "raid5",
    "0",
    "1",
    "10",
    "-1",
    "linear",
    "left-symmetric",
    "n2",
    "f2",
    "o9",
    "n255",
    "f0",
    "0x",
    "64K",
    "4K",
    "1",
    "3c",
    "-5",
    "9999999999999999999",
    "8E",
    "0x7fffffffffffffff",
    "4096P",
    "é",
    "18446744073709551615",
    "65535",
    "65536",
    "1920",
    "3",
    "D0=AB9C",
    "P=",
    "Q=0",
    "D65535=00",
    "512s",
    "1s",
    "+1",
    " ",
    "",
    ",",
    "1,2,3",
    "0,0",
    "mem:1M",
    "mem:9999999T",
    "mem:",
    "mem:1",
    "slice:start=18446744073709551615,len=2+mem:1M",
    "slice:+mem:1M",
    "fault:read=2+mem:1M",
    "fault:seed=x+mem:8K",
    "fault:read=1e-400,seed=1+mem:4K",
    "cow:dir=+mem:1M",
    "trace:+mem:1M",
    "default",
    "parity-last",
    "near=2",
    "ddf-n-restart",
    "NaN",
    "1e9",
    "8p",
    "1K,3c,9999P",
];

/// Options of the commands that only compute, and members that are looked at.
const OPTIONS: &[&str] = &[
    "-l",
    "-n",
    "-c",
    "-p",
    "-z",
    "--member-sizes",
    "--missing",
    "--rows",
    "--json",
    "--width",
    "--stale",
    "--rebuilding",
    "--member",
    "--explain",
    "--chunks",
    "--block",
    "--failed",
    "-k",
    "--ranges",
    "--all",
    "--values",
    "--new",
    "--unsynced",
    "--from",
    "--q",
    "-d",
    "--op",
    "--",
];

#[test]
fn command_lines() {
    let desk = Desk::new();
    run("command_lines", &[], |rng| {
        let commands = ["layout", "map", "explain-read", "explain-write", "survives", "info"];
        let others = ["parity", "examine", "scan", "assemble", "check", "cat"];
        let command = if rng.once_in(4) { *rng.pick(&others) } else { *rng.pick(&commands) };
        let mut words = vec![command];
        let geometry = commands.contains(&command) && rng.below(5) > 0;
        if geometry {
            let level = *rng.pick(&["0", "1", "4", "5", "6", "10", "linear"]);
            words.extend(["-l", level, "-n", *rng.pick(&["2", "4", "5", "64", "1920"])]);
        }
        for _ in 0..rng.below(6) {
            let option = *rng.pick(OPTIONS);
            if rng.once_in(2) && !(geometry && matches!(option, "-l" | "-n")) {
                words.push(option);
            }
            words.push(*rng.pick(WORDS));
        }
        let ran = desk.run_words(&words);
        assert!(!ran.err.contains("panicked"), "{words:?}: {}", ran.err);
        assert!((0..=100).contains(&ran.code), "{words:?}: {ran:?}");
        // Finding nothing is told by the exit code alone, as grep does.
        let is_told = ran.code == 0 || !ran.err.is_empty() || !ran.out.is_empty();
        assert!(is_told || command == "scan", "{words:?}: {ran:?}");
    });
}

#[test]
fn control_requests() {
    const REQUESTS: &[&str] = &[
        r#"{"cmd":"fail","member":"slot:1"}"#,
        r#"{"cmd":"add","member":"/d4.img","force":true,"write_mostly":false}"#,
        r#"{"cmd":"replace","member":"number:0","with":null}"#,
        r#"{"cmd":"sync_action","action":"check"}"#,
        r#"{"cmd":"limits","min":1,"max":4294967295}"#,
        r#"{"cmd":"status"}"#,
    ];
    run("control_requests", &[], |rng| {
        let mut line = rng.pick(REQUESTS).as_bytes().to_vec();
        match rng.below(3) {
            0 => mutate::bytes(rng, &mut line),
            1 => mutate::flip(rng, &mut line),
            _ => line.extend(vec![*rng.pick(b"{[\"0 \\"); rng.below(3000) as usize]),
        }
        let Ok(request) = serde_json::from_slice::<Request>(&line) else { return };
        let again = serde_json::to_vec(&request).expect("plain fields");
        assert_eq!(serde_json::from_slice::<Request>(&again).ok(), Some(request));
    });
}

#[test]
fn amounts_and_layout_names() {
    run("amounts_and_layout_names", &[], |rng| {
        let letters: Vec<char> = "0123456789xXkKmMgGtTpPscbiB+-. é=nfo".chars().collect();
        let made: String = (0..rng.below(12)).map(|_| *rng.pick(&letters)).collect();
        let text = if rng.once_in(2) { made } else { rng.pick(WORDS).to_string() };
        if let Ok(bytes) = amount::bytes(&text) {
            assert!(bytes <= i64::MAX as u64);
            assert_eq!(
                amount::bytes(&amount::exact(Sectors::floor_bytes(bytes))),
                Ok(bytes / 512 * 512)
            );
        }
        let scale =
            amount::Scale { bare: 1024, chunk: Some(Sectors(mutate::number(rng) % (1 << 22))) };
        let _ = (amount::kib(&text), amount::of("--offset", &text, scale));
        for level in LEVELS {
            if let Ok(word) = (level.parse_layout)(&text) {
                let name = (level.layout_name)(word);
                assert_eq!((level.parse_layout)(&name).ok(), Some(word), "{} {name}", level.name);
            }
        }
    });
}
