//! fio writes, reads and verifies the volume of a mounted array: whole and without members.
//!
//! `RAID_FIO_SECONDS=600 cargo test -p raid-tests --test volume_fio` runs each for ten minutes.

use raid_tests::guards::Process;
use raid_tests::images::MIB;
use raid_tests::redundancy::assert_consistent;
use raid_tests::requires::{self, Need};
use raid_tests::served::ImageArray;
use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long each workload is repeated if nothing else is said.
const SECONDS: u64 = 6;

/// Requests of any size and place, down to the sector: eight jobs, each in its own part.
const ANY_SIZE: &str = "--rw=randrw --bsrange=512-256k --blockalign=512 --numjobs=8 --size=6m \
    --offset_increment=6m --ioengine=psync --verify_backlog=64";

/// 4K requests of eight jobs in 4 MiB: with chunks of 512K and four of them in a stripe, jobs
/// share every stripe but no block.
const CROWDED: &str = "--rw=randrw --bs=4k --numjobs=8 --size=512k --offset_increment=512k \
    --ioengine=psync --loops=4 --verify_backlog=16";

/// One job in 4 MiB with 32 requests under way, none over another. (Not submitted by threads of
/// fio: version 3.33 hangs with `io_submit_mode=offload` and `serialize_overlap`, on any file.)
const DEEP: &str = "--rw=randrw --bs=4k --numjobs=1 --size=4m --ioengine=libaio --iodepth=32 \
    --serialize_overlap=1 --loops=4 --verify_backlog=64";

fn seconds() -> Duration {
    let given = env::var("RAID_FIO_SECONDS").ok();
    let seconds = given.map(|text| text.parse().expect("RAID_FIO_SECONDS is a number"));
    Duration::from_secs(seconds.unwrap_or(SECONDS))
}

/// Repeats the workload with another seed until the time is over; any error is told and fails.
fn fio(array: &ImageArray, missing: &[usize], workload: &str) {
    let served = array.mount_without(missing, "");
    let start = Instant::now();
    let mut passes = 0;
    while passes == 0 || start.elapsed() < seconds() {
        passes += 1;
        let mut command = Command::new("fio");
        command.args(["--name=volume", "--direct=1", "--verify=crc32c", "--verify_fatal=1"]);
        command.args(["--group_reporting", "--thread", "--allow_file_create=0"]);
        command.arg(format!("--randseed={passes}")).args(workload.split_whitespace());
        command.arg(format!("--filename={}", served.volume().display()));
        command.current_dir(array.images().dir());
        let (status, output) = Process::start(&mut command).wait();
        assert!(status == 0 && !output.contains("verify:"), "pass {passes}: {status}\n{output}");
        assert!(output.contains("err= 0"), "pass {passes}: {output}");
    }
    let after = start.elapsed();
    eprintln!("{passes} passes in {after:.1?}, missing {missing:?}: {}", &workload[..30]);
    served.unmount();
    if missing.is_empty() {
        assert_consistent(array.members());
    }
}

fn met() -> bool {
    requires::met(&[Need::Fuse, Need::Fio])
}

#[test]
fn raid6_whole_and_without_two() {
    if !met() {
        return;
    }
    let array = ImageArray::create("-l 6 -c 64", 6, 24 * MIB);
    fio(&array, &[], ANY_SIZE);
    fio(&array, &[0, 3], ANY_SIZE);
}

#[test]
fn raid5_without_one_and_raid10() {
    if !met() {
        return;
    }
    let array = ImageArray::create("-l 5 -c 64", 4, 24 * MIB);
    fio(&array, &[2], ANY_SIZE);
    let array = ImageArray::create("-l 10 -c 64", 4, 32 * MIB);
    fio(&array, &[], ANY_SIZE);
    fio(&array, &[1, 2], ANY_SIZE);
}

#[test]
fn many_small_requests_on_raid6_without_two() {
    if !met() {
        return;
    }
    let array = ImageArray::create("-l 6", 6, 24 * MIB);
    fio(&array, &[1, 4], CROWDED);
    fio(&array, &[1, 4], DEEP);
}
