//! Our superblocks through mdadm's eyes, and everybody's superblocks through ours.
//!
//! `mdadm --examine` works on plain files as any user, so it is an oracle that needs nothing.

use raid_core::meta::create::{Creation, NewBitmap, NewMember, Request, create};
use raid_core::meta::examine::{Examination, examine};
use raid_core::meta::{self, FORMATS, Format, Sighting, foreign, probe};
use raid_core::units::Sectors;
use raid_tests::requires::{Need, met, shared};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Sectors of a file, and a window that reads it; behind its end there are zeros.
fn window(file: &File) -> (Sectors, impl FnMut(Sectors, &mut [u8]) -> io::Result<()> + '_) {
    let bytes = file.metadata().unwrap().len();
    let read = move |at: Sectors, buffer: &mut [u8]| file.read_exact_at(buffer, at.bytes());
    (Sectors::floor_bytes(bytes), read)
}

fn sightings(path: &Path) -> (Sectors, Vec<Sighting>) {
    let file = File::open(path).unwrap();
    let (device, mut read) = window(&file);
    (device, probe(device, &mut read).unwrap())
}

/// What mdadm says of a file, in UTC.
fn mdadm(path: &Path) -> Option<String> {
    let output = Command::new("mdadm")
        .args(["--examine", path.to_str().unwrap()])
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .env("TZ", "UTC")
        .output()
        .unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Label and value of a line; what only one side can know is taken away.
fn comparable(line: &str) -> Option<String> {
    let Some((label, value)) = line.split_once(" : ") else { return row(line) };
    let label = label.trim();
    let value = match label {
        "Found At" | "Problem" | "Logical Block" | "Byte Order" | "This Device" => return None,
        // mdadm adds the host if it is its own, we the names of the bits.
        "Feature Map" | "Name" | "UUID" => value.split(" (").next().unwrap_or_default().trim(),
        _ => value.trim(),
    };
    Some(format!("{label} : {value}"))
}

/// A row of the table of 0.90, without the path that mdadm adds to devices of this machine.
fn row(line: &str) -> Option<String> {
    let words: Vec<&str> =
        line.split_whitespace().filter(|word| !word.starts_with("/dev/")).collect();
    let first = *words.first()?;
    let is_row = ["this", "Number"].contains(&first) || first.parse::<u32>().is_ok();
    is_row.then(|| words.join(" "))
}

fn lines(text: &str) -> Vec<String> {
    text.lines().filter_map(comparable).collect()
}

/// Takes away what we tell and mdadm does not, or only roughly: it hides the unused space where
/// one sector is left and for metadata 1.0 without a component size, and does not round the size
/// of a far or offset RAID 10 down to what the kernel makes of it. From 2 TiB on it shows the sizes
/// of 0.90 as negative.
fn forgive(ours: &mut Vec<String>, theirs: &mut Vec<String>) {
    let silent = !theirs.iter().any(|line| line.starts_with("Unused Space"));
    ours.retain(|line| !(silent && line.starts_with("Unused Space")));
    if theirs.iter().any(|line| line.starts_with("Used Dev Size : -")) {
        let is_size = |line: &String| line.contains(" Size : ");
        ours.retain(|line| !is_size(line));
        theirs.retain(|line| !is_size(line));
    }
    let rough = ["Layout : far=", "Layout : offset="];
    if theirs.iter().any(|line| rough.iter().any(|layout| line.starts_with(layout))) {
        ours.retain(|line| !line.starts_with("Array Size"));
        theirs.retain(|line| !line.starts_with("Array Size"));
    }
}

/// The lines that are not the same, in words; empty if none.
fn differences(path: &Path, ours: &Examination, theirs: &str) -> String {
    let (mut ours, mut theirs) = (lines(&ours.to_string()), lines(theirs));
    forgive(&mut ours, &mut theirs);
    let only = |a: &[String], b: &[String]| -> Vec<String> {
        a.iter().filter(|line| !b.contains(line)).cloned().collect()
    };
    match ours == theirs {
        true => String::new(),
        false => format!(
            "{}: ours {:?}, mdadm {:?}\n",
            path.display(),
            only(&ours, &theirs),
            only(&theirs, &ours)
        ),
    }
}

fn write(creation: &Creation, request: &Request, dir: &Path) -> Vec<PathBuf> {
    let present = request.members.iter().flatten();
    let planned = creation.members.iter().zip(present);
    planned
        .map(|(planned, new)| {
            let path = dir.join(format!("d{}", planned.slot));
            let file = File::create(&path).unwrap();
            file.set_len(new.sectors.bytes()).unwrap();
            let pieces = [planned.bad_log.as_ref(), planned.bitmap.as_ref()];
            for (at, bytes) in pieces.into_iter().flatten().chain([&planned.superblock]) {
                file.write_all_at(bytes, at.bytes()).unwrap();
            }
            path
        })
        .collect()
}

fn request(format: &'static Format, level: i32, layout: Option<u32>, sizes: &[u64]) -> Request {
    let new = |(slot, &sectors): (usize, &u64)| {
        (sectors > 0).then(|| NewMember {
            sectors: Sectors(sectors),
            device_uuid: [slot as u8 + 0x40; 16],
            write_mostly: level == 1 && slot == 1,
            failfast: level == 1 && slot == 0,
        })
    };
    Request {
        format,
        level,
        layout,
        chunk: (level != 1).then_some(Sectors(128)),
        members: sizes.iter().enumerate().map(new).collect(),
        name: if format.name == "0.90" { Vec::new() } else { b"examined".to_vec() },
        homehost: Some(b"nowhere.example".to_vec()),
        uuid: *b"0123456789abcdef",
        ctime: 1_700_000_000,
        size: None,
        data_at: None,
        assume_clean: level != 1,
        zeroed: false,
        bitmap: None,
        log: None,
        force: true,
    }
}

/// Levels, layouts, sizes; zero is a missing member.
const GEOMETRIES: &[(i32, Option<u32>, &[u64])] = &[
    (-1, None, &[40960, 81920]),
    (0, None, &[40960, 40960, 40960]),
    (0, Some(2), &[40960, 61440, 40960]),
    (1, None, &[40960, 40960]),
    (1, None, &[40960, 0, 40960]),
    (1, None, &[40960]),
    (4, None, &[40960, 40960, 40960]),
    (5, None, &[40960, 40960, 40960]),
    (5, Some(0), &[40960, 0, 40960]),
    (6, Some(10), &[40960, 40960, 40960, 40960]),
    (6, Some(18), &[40960, 40960, 40960, 40960, 40960]),
    (10, None, &[40960, 40960, 40960, 40960]),
    (10, Some(0x201), &[40960, 40960, 40960, 40960]),
    (10, Some(0x10201), &[40960, 40960, 40960, 40960]),
    (5, None, &[20_000_001, 20_000_008, 20_000_000]),
    (1, None, &[6_442_450_944, 6_442_450_944]),
];

#[test]
fn mdadm_reads_what_we_create_as_we_do() {
    if !met(&[Need::Mdadm]) {
        return;
    }
    let (mut count, mut wrong) = (0, String::new());
    for (format, &(level, layout, sizes)) in
        FORMATS.iter().flat_map(|format| GEOMETRIES.iter().map(move |row| (*format, row)))
    {
        for bitmap in [false, true] {
            if bitmap && level <= 0 {
                continue;
            }
            if format.name == "0.90" && layout.is_some() && level == 0 {
                // It cannot record the order of a RAID 0.
                continue;
            }
            let mut request = request(format, level, layout, sizes);
            request.bitmap = bitmap.then(NewBitmap::default);
            let creation = create(&request).unwrap();
            let dir = tempfile::tempdir().unwrap();
            for path in write(&creation, &request, dir.path()) {
                wrong += &check_member(&path, format);
                count += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 200, "{count} members");
}

/// One superblock, correct in mdadm's eyes; the lines that differ from ours.
fn check_member(path: &Path, format: &Format) -> String {
    let theirs = mdadm(path).unwrap_or_else(|| panic!("mdadm sees no {format} on {path:?}"));
    assert!(theirs.contains(" - correct"), "{theirs}");
    let named = theirs.contains("nowhere.example:examined");
    assert_eq!(named, format.name != "0.90", "{theirs}");
    let (device, found) = sightings(path);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].format.name, format.name);
    found[0].record.as_ref().unwrap().writable().unwrap();
    differences(path, &examine(&found[0], device), &theirs)
}

#[test]
fn the_same_request_gives_the_same_bytes() {
    let request = request(FORMATS[0], 1, None, &[40960, 40960]);
    let plan = || create(&request).unwrap();
    let bytes = |creation: Creation| -> Vec<(Sectors, Vec<u8>)> {
        creation.members.into_iter().map(|planned| planned.superblock).collect()
    };
    assert_eq!(bytes(plan()), bytes(plan()));
}

/// Unpacks an archive with tar and lists the files in it that may be members.
fn unpack(archive: &Path, dir: &Path) -> Vec<PathBuf> {
    let status = Command::new("tar").arg("xJf").arg(archive).arg("-C").arg(dir).status().unwrap();
    assert!(status.success(), "{}", archive.display());
    let mut files = Vec::new();
    let mut dirs = vec![dir.to_path_buf()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
            match entry.file_type().unwrap().is_dir() {
                true => dirs.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort();
    files
}

/// Archives whose members carry what mdadm calls "md superblocks", in `folder` of the material.
fn archives(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(shared().join(folder)).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".tar.xz"));
    paths.sort();
    paths
}

#[test]
fn superblocks_of_the_kernel_read_as_mdadm_reads_them() {
    if !met(&[Need::Mdadm, Need::Shared, Need::Unpackers]) {
        return;
    }
    let (mut count, mut wrong) = (0, String::new());
    for archive in archives("md-oracle/fixtures").into_iter().chain(archives("samples/md")) {
        let dir = tempfile::tempdir().unwrap();
        for path in unpack(&archive, dir.path()) {
            let (device, found) = sightings(&path);
            let Some(first) = found.first() else { continue };
            let Some(theirs) = mdadm(&path) else { continue };
            wrong += &differences(&path, &examine(first, device), &theirs);
            first.record.as_ref().unwrap();
            count += 1;
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(count > 60, "{count} members");
}

#[test]
fn other_raid_headers_are_named() {
    if !met(&[Need::Shared, Need::Unpackers]) {
        return;
    }
    let mut count = 0;
    for entry in fs::read_dir(shared().join("samples/headers")).unwrap() {
        let path = entry.unwrap().path();
        let Some(stem) = path.to_str().unwrap().strip_suffix(".img.xz") else { continue };
        let expected = fs::read_to_string(format!("{stem}.expected")).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let output = Command::new("xz").arg("-dkc").arg(&path).output().unwrap();
        fs::write(&image, output.stdout).unwrap();
        let kind = expected.lines().find_map(|line| line.strip_prefix("ID_FS_TYPE=")).unwrap();
        check_header(&image, kind);
        count += 1;
    }
    assert_eq!(count, 14);
}

/// `kind` is the name the collection gives: `isw_raid_member`, `LVM2_member`, …
fn check_header(image: &Path, kind: &str) {
    let file = File::open(image).unwrap();
    let (device, mut read) = window(&file);
    let found = foreign::probe(device, &mut read).unwrap();
    let names: Vec<&str> = found.iter().map(|foreign| foreign.name).collect();
    let md = meta::probe(device, &mut read).unwrap();
    if kind == "linux_raid_member" {
        assert_eq!(md.len(), 1, "{names:?}");
        return;
    }
    assert!(md.is_empty());
    let plain = kind.to_lowercase();
    let word = plain.split('_').next().unwrap();
    assert_eq!(names, [word], "{kind}");
}
