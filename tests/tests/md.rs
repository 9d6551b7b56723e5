//! Batches of arrays in the guest: what goes in comes out, what is damaged is found.

use raid_tests::images::{self, Images, MIB};
use raid_tests::md::{self, Geometry, Job};
use raid_tests::pattern::Pattern;
use raid_tests::requires::{self, Need};
use std::fs::File;
use std::path::PathBuf;

const RAID5: Geometry =
    Geometry { level: "5", layout: Some("ls"), chunk_kib: Some(64), metadata: "1.2" };

#[test]
fn a_batch_reports_each_job_and_a_failing_one_does_not_stop_the_next() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let old = images.path("old");
    Pattern::Seeded(1).write_file(&old, 32 * MIB).unwrap();
    let new = images.path("new");
    Pattern::Seeded(2).write_file(&new, MIB).unwrap();
    let made: Vec<_> = (0..3).map(|i| images.member(&format!("a{i}"), 8 * MIB)).collect();
    let mirror: Vec<_> = (0..2).map(|i| images.member(&format!("b{i}"), 8 * MIB)).collect();
    let spare = images.member("spare", 8 * MIB);
    let copy = images.path("copy");
    let jobs = [
        Job::new("made", &made).create(&RAID5).write(&old).check().stop().examine(),
        Job::new("refused", &mirror).create(&Geometry { level: "6", ..RAID5 }).stop(),
        Job::degraded("degraded", &[Some(made[0].clone()), None, Some(made[2].clone())])
            .assemble()
            .expect(&old)
            .write_at(&new, 64 * 1024)
            .stop(),
        Job::degraded("recovered", &[Some(made[0].clone()), None, Some(made[2].clone())])
            .assemble()
            .recover_onto(&spare)
            .check()
            .read_to(&copy)
            .stop()
            .examine(),
        Job::new("mirror", &mirror).create_zeroed(&md::MIRROR).write(&old).fail(0).expect(&old),
    ];
    let reports = md::run(&jobs);
    let status: Vec<i32> = reports.iter().map(|report| report.status).collect();
    for i in [0, 2, 3, 4] {
        reports[i].expect_success();
    }
    assert_ne!(status[1], 0, "RAID 6 over two members:\n{}", reports[1].text);

    assert_eq!(reports[0].number("mismatch"), 0);
    assert_eq!(reports[3].number("mismatch"), 0);
    let size = reports[0].number("size");
    assert_eq!(size, 14 * MIB, "two data members of 8 MiB less data offsets of 1 MiB");
    for (report, devices) in [(&reports[0], 3), (&reports[3], 3)] {
        let examined = report.examined();
        assert_eq!(examined.len(), devices);
        for member in &examined {
            assert!(member.checksum_is_correct(), "{}", member.text);
            assert_eq!(member.field("State"), "clean");
            assert_eq!(member.field("Events"), examined[0].field("Events"));
        }
    }
    let content = std::fs::read(&copy).unwrap();
    let (at, len) = (64 * 1024, MIB as usize);
    Pattern::Seeded(1).check(0, &content[..at]).unwrap();
    Pattern::Seeded(2).check(0, &content[at..at + len]).unwrap();
    Pattern::Seeded(1).check((at + len) as u64, &content[at + len..]).unwrap();
    assert_eq!(content.len() as u64, size);
}

#[test]
fn the_kernel_judges_members_and_finds_what_is_wrong_with_them() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    Pattern::Seeded(4).write_file(&content, 32 * MIB).unwrap();
    let kinds = ["good", "data", "parity", "superblock", "striped"];
    let members = kinds.map(|kind| {
        let dir = images.subdir(kind);
        (0..3).map(|i| images::sparse(&dir.join(format!("m{i}")), 8 * MIB)).collect::<Vec<_>>()
    });
    let striped = Geometry { level: "0", layout: None, ..RAID5 };
    let made = kinds.iter().zip(&members).map(|(kind, members)| {
        let job = Job::new(*kind, members);
        let job = match *kind {
            "striped" => job.create_with(&striped, ""),
            _ => job.create_zeroed(&RAID5),
        };
        job.write(&content).stop()
    });
    for report in md::run(&made.collect::<Vec<_>>()) {
        report.expect_success();
    }
    // Left-symmetric: the first row of three slots is D0, D1, P.
    images::flip(&members[1][0], MIB, 1);
    images::flip(&members[2][2], MIB, 1);
    images::flip(&members[3][1], 4096 + 64, 1);

    let there = |members: &Vec<PathBuf>| members.iter().cloned().map(Some).collect::<Vec<_>>();
    let pairs = kinds.iter().zip(&members);
    let mut jobs: Vec<Job> =
        pairs.map(|(kind, members)| Job::judge(*kind, &there(members), &content)).collect();
    let degraded = [Some(members[0][0].clone()), None, Some(members[0][2].clone())];
    jobs.push(Job::judge("degraded", &degraded, &content));
    let reports = md::run(&jobs);
    reports[0].expect_good(3);
    reports[4].expect_good(3);
    reports[5].expect_good(2);
    for report in &reports[1..4] {
        let verdict = std::panic::catch_unwind(|| report.expect_good(3).status);
        assert!(verdict.is_err(), "{} is found:\n{}", report.name, report.text);
    }
}

#[test]
fn damage_is_found_by_a_check_and_by_reading() {
    if !requires::met(&[Need::Guest]) {
        return;
    }
    let images = Images::new();
    let content = images.path("content");
    Pattern::Seeded(3).write_file(&content, 32 * MIB).unwrap();
    let members = images.members(3, 8 * MIB);
    let made = Job::new("made", &members).create_zeroed(&RAID5).write(&content).stop();
    md::run(&[made])[0].expect_success();
    // Data of RAID 5 begins one MiB into these members; the first unit of slot 0 is data unit 0.
    images::flip(&members[0], MIB + 4096, 1);

    let jobs = [
        Job::new("checked", &members).assemble().check().stop(),
        Job::new("read", &members).assemble().expect(&content).stop(),
    ];
    let reports = md::run(&jobs);
    assert_eq!(reports[0].expect_success().number("mismatch"), 8, "one 4 KiB row of sectors");
    assert_ne!(reports[1].status, 0, "{}", reports[1].text);
    let found = File::open(images.path("content.found")).unwrap();
    let error = Pattern::Seeded(3).check_reader(0, &mut { found }).unwrap_err().to_string();
    assert!(error.starts_with("byte 4096 (block 1) is "), "{error}");
}
