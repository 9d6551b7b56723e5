//! Every fault where and when it was asked for, and nowhere else.

use super::*;
use crate::device::mem::MemDevice;
use crate::device::{read_at, write_at};
use crate::units::Slot;

fn device(plan: &str) -> FaultDevice {
    let memory = Arc::new(MemDevice::new("m", Sectors(1024)).unwrap());
    FaultDevice::with_sleep(memory, plan.parse().unwrap(), Arc::new(|_| {}))
}

/// The errors of reading eight sectors at each of `places`, in order; 0 is success.
fn reads(device: &FaultDevice, places: &[u64]) -> Vec<i32> {
    let read = |at: &u64| read_at(device, Sectors(*at), &mut [0; 4096]);
    places.iter().map(|at| read(at).map_or_else(|e| e.raw_os_error().unwrap(), |()| 0)).collect()
}

#[test]
fn rules_say_which_operations_are_meant() {
    const EIO: i32 = libc::EIO;
    let cases: [(&str, [i32; 6]); 10] = [
        ("", [0, 0, 0, 0, 0, 0]),
        ("eio", [EIO; 6]),
        ("eio write", [0; 6]),
        ("eio read 4096..8192", [0, EIO, 0, EIO, 0, EIO]),
        ("eio 4096..8192 on 2", [0, 0, 0, EIO, 0, 0]),
        ("EIO at 4K..8K on 3rd read", [0, 0, 0, 0, 0, EIO]),
        ("eio read from 4", [0, 0, 0, EIO, EIO, EIO]),
        ("eio ..4096 on 1; eio 4096.. on 2", [EIO, 0, EIO, 0, 0, 0]),
        ("vanish after 4", [0, 0, 0, 0, libc::ENODEV, libc::ENODEV]),
        ("vanish 8192.. ", [0, 0, libc::ENODEV, libc::ENODEV, libc::ENODEV, libc::ENODEV]),
    ];
    for (plan, errors) in cases {
        assert_eq!(reads(&device(plan), &[0, 8, 16, 8, 0, 8]), errors, "{plan}");
    }
}

#[test]
fn a_torn_write_leaves_whole_sectors() {
    let device = device("torn write after 1300 B on 2");
    write_at(&device, Sectors(0), &[1; 4096]).unwrap();
    let error = write_at(&device, Sectors(0), &[2; 4096]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
    let mut buf = [0; 4096];
    read_at(&device, Sectors(0), &mut buf).unwrap();
    assert_eq!(buf[..1024], [2; 1024]);
    assert_eq!(buf[1024..], [1; 3072]);
    write_at(&device, Sectors(0), &[3; 4096]).unwrap();
    assert_eq!(device.to_text(), "write 0+8: torn write after 1300 on 2\n");
}

#[test]
fn lies_are_told_without_an_error() {
    let device = device("lose write 512..1024; flip 100 bit 3; lose flush");
    write_at(&device, Sectors(0), &[1; 512]).unwrap();
    write_at(&device, Sectors(1), &[1; 512]).unwrap();
    device.flush().unwrap();
    let mut buf = [9; 1024];
    device
        .read(Sectors(0), &mut buf.chunks_mut(64).map(IoSliceMut::new).collect::<Vec<_>>())
        .unwrap();
    let mut expected = [1; 1024];
    expected[100] = 9;
    expected[512..].fill(0);
    assert_eq!(buf, expected);
    assert_eq!(device.count(), 3);
}

#[test]
fn delays_go_to_the_hook() {
    let slept = Arc::new(Mutex::new(Vec::new()));
    let hook = slept.clone();
    let memory = Arc::new(MemDevice::new("m", Sectors(1024)).unwrap());
    let plan = "delay 20 ms write; delay 100us on 2".parse().unwrap();
    let device = FaultDevice::with_sleep(memory, plan, Arc::new(move |t| hook.lock().push(t)));
    write_at(&device, Sectors(0), &[0; 512]).unwrap();
    device.flush().unwrap();
    write_at(&device, Sectors(0), &[0; 512]).unwrap();
    let micros: Vec<u128> = slept.lock().iter().map(Duration::as_micros).collect();
    assert_eq!(micros, [20_000, 100, 20_000]);
}

#[test]
fn a_seed_gives_the_same_trace_twice() {
    let run = |plan: &str| {
        let device = device(plan);
        for at in 0..1000 {
            let _ = read_at(&device, Sectors(at), &mut [0; 512]);
        }
        (device.count(), device.to_text())
    };
    let (count, text) = run("seed 7; rate read 1e-1");
    assert!((60..140).contains(&count), "{count}");
    assert_eq!(run("seed 7; rate read 1e-1").1, text);
    assert_ne!(run("seed 8; rate read 1e-1").1, text);
    assert_eq!(run("seed 7; rate write 1").0, 0);
    assert_eq!(run("seed 7; rate read 1").0, 1000);
}

#[test]
fn a_plan_survives_its_own_words() {
    let text = "eio read 4096..8192 on 3; vanish from 101; torn write after 512; lose write; \
                flip 5000 bit 3 on 2; delay 20000us write; rate read 1e-4; seed 7";
    let plan: Plan = text.parse().unwrap();
    assert_eq!(plan.to_string(), text);
    assert_eq!(plan.to_string().parse::<Plan>().unwrap(), plan);
    let lines: Plan = "# a comment\n eio read # another\n\n;;\nvanish after 2\n".parse().unwrap();
    assert_eq!(lines.to_string(), "eio read; vanish from 3");
}

#[test]
fn a_plan_for_an_array_names_slots() {
    let text = "slot 1: EIO at 4096..8192 on 3rd read; slot 2: torn write after 512 B;\n\
                slot 0: delay 20 ms; eio flush\nslot 1: vanish after 10 writes";
    let plans = Plan::parse_array(text).unwrap();
    let told: Vec<(Slot, String)> = plans.into_iter().map(|(s, p)| (s, p.to_string())).collect();
    let expected = [
        (Slot(1), "eio read 4096..8192 on 3; vanish write from 11".to_string()),
        (Slot(2), "torn write after 512".to_string()),
        (Slot(0), "delay 20000us; eio flush".to_string()),
    ];
    assert_eq!(told, expected);
    assert!(Plan::parse_array("eio").is_err());
    assert!(Plan::parse_array("disk 1: eio").is_err());
}

#[test]
fn what_is_not_understood_is_named() {
    let cases = [
        ("explode", "explode"),
        ("eio read 4096..8192 on", "missing"),
        ("eio on 0", "from 1"),
        ("eio on 3x", "3x"),
        ("eio 8192..4096", "empty"),
        ("eio 1..4096", "sectors"),
        ("eio sometimes", "sometimes"),
        ("torn write after", "missing"),
        ("flip 100 bit 8", "0 to 7"),
        ("delay 20", "20ms"),
        ("delay 99999999999999999999s", "an hour"),
        ("delay 7200s", "an hour"),
        ("rate read 2", "0 to 1"),
        ("rate read nan", "0 to 1"),
        ("rate", "verb"),
        ("seed 1 2", "`2`"),
        ("eio 99999999999999999999..", "not a number"),
    ];
    for (plan, word) in cases {
        let error = plan.parse::<Plan>().expect_err(plan).to_string();
        assert!(error.contains(word), "{plan}: {error}");
    }
    assert!("eio;".repeat(2000).parse::<Plan>().is_err(), "too many rules");
}
