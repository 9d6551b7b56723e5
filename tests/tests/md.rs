//! Batches of arrays in the guest: what goes in comes out, what is damaged is found.

use raid_tests::images::{self, Images, MIB};
use raid_tests::md::{self, Geometry, Job};
use raid_tests::pattern::Pattern;
use raid_tests::requires::{self, Need};
use std::fs::File;

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
