//! How close mounted arrays come to what the front end and the members allow.
//!
//! Everything is mounted at once and measured in turn, in short bursts, many rounds: on a machine
//! whose speed wanders, only ratios within a round mean something. Beside the arrays stand an
//! empty FUSE file served by the same front end (the ceiling of FUSE: nothing is read or written)
//! and the same array without FUSE, called in this process.

mod client;
mod members;
pub mod serve;

use client::{Client, Workload};
use members::Geometry;
use raid_core::driver::Array;
use raid_core::error::{Error, Result};
use raid_core::units::Sectors;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// What to measure.
#[derive(clap::Args)]
pub struct Arguments {
    /// Folder for the members; the default is in memory
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// MiB of each member
    #[arg(long, default_value_t = 96)]
    size: u64,
    /// KiB of a chunk
    #[arg(long, default_value_t = 64)]
    chunk: u64,
    /// Rounds
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds a burst
    #[arg(long, default_value_t = 0.25)]
    burst: f64,
}

#[rustfmt::skip]
const WORKLOADS: &[Workload] = &[
    Workload { name: "read 1M depth 1", write: false, len: 1 << 20, depth: 1, random: false },
    Workload { name: "read 1M depth 8", write: false, len: 1 << 20, depth: 8, random: false },
    Workload { name: "read 4K depth 1", write: false, len: 4096, depth: 1, random: true },
    Workload { name: "read 4K depth 32", write: false, len: 4096, depth: 32, random: true },
    Workload { name: "write 768K depth 1", write: true, len: 768 << 10, depth: 1, random: false },
    Workload { name: "write 4K depth 32", write: true, len: 4096, depth: 32, random: true },
];

#[rustfmt::skip]
const ARRAYS: &[Geometry] = &[
    Geometry { name: "raid0x4", level: 0, slots: 4, missing: 0 },
    Geometry { name: "raid5x4", level: 5, slots: 4, missing: 0 },
    Geometry { name: "raid5x4-1", level: 5, slots: 4, missing: 1 },
    Geometry { name: "raid6x6", level: 6, slots: 6, missing: 0 },
];

/// A server process with its mount.
struct Server {
    child: Child,
    volume: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It ends when its standard input does; a failure to wait leaves nothing to do.
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Something that is measured.
enum Target {
    Mounted(Box<Client>, Option<PathBuf>),
    Called(Array),
}

/// Runs everything and prints the table.
pub fn run(arguments: &Arguments) -> Result<()> {
    let dir = tempfile::Builder::new().prefix("raid-ceiling").tempdir_in(&arguments.dir);
    let dir = dir.map_err(|error| Error::io(arguments.dir.display(), error))?;
    let chunk = Sectors::kib(arguments.chunk);
    let mut servers = Vec::new();
    let mut targets: Vec<(String, Target)> = Vec::new();
    let span = arguments.size << 20;
    let server = serve(dir.path(), "empty", &["--empty".into(), span.to_string().into()])?;
    targets.push((
        "empty".into(),
        Target::Mounted(Box::new(Client::open(&server.volume, span)?), None),
    ));
    servers.push(server);
    let plain = dir.path().join("plain");
    std::fs::write(&plain, vec![1; span as usize]).map_err(|e| Error::io(plain.display(), e))?;
    let server = serve(dir.path(), "file", &["--plain".into(), plain.into_os_string()])?;
    let client = Box::new(Client::open(&server.volume, span)?);
    targets.push(("one file".into(), Target::Mounted(client, None)));
    servers.push(server);
    for geometry in ARRAYS {
        let paths = members::make_filled(dir.path(), geometry, arguments.size << 20, chunk)?;
        let list: Vec<_> = paths.iter().map(|p| p.clone().into_os_string()).collect();
        let server = serve(dir.path(), geometry.name, &list)?;
        let stats = server.volume.with_file_name("stats");
        let client = Box::new(Client::open(&server.volume, span)?);
        targets.push((geometry.name.into(), Target::Mounted(client, Some(stats))));
        servers.push(server);
    }
    let called = Geometry { name: "raid5x4-called", ..ARRAYS[1] };
    let paths = members::make_filled(dir.path(), &called, arguments.size << 20, chunk)?;
    targets.push(("raid5x4, no FUSE".into(), Target::Called(members::open(&paths)?)));
    measure(arguments, &mut targets, span)?;
    drop(targets);
    drop(servers);
    Ok(())
}

fn serve(dir: &Path, name: &str, arguments: &[std::ffi::OsString]) -> Result<Server> {
    let mount = dir.join(format!("mnt-{name}"));
    std::fs::create_dir(&mount).map_err(|error| Error::io(mount.display(), error))?;
    let program = std::env::current_exe().map_err(|error| Error::io("this program", error))?;
    let mut child = Command::new(program)
        .arg("serve")
        .arg("--mount")
        .arg(&mount)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| Error::io("starting a server", error))?;
    let mut line = String::new();
    let out = child.stdout.take().expect("standard output was asked for");
    let read = BufReader::new(out).read_line(&mut line);
    let server = Server { child, volume: mount.join("volume") };
    match (read, line.trim()) {
        (Ok(_), "ready") => Ok(server),
        _ => Err(Error::invalid(format!("the server of {name} did not start"))),
    }
}

fn measure(arguments: &Arguments, targets: &mut [(String, Target)], span: u64) -> Result<()> {
    let burst = Duration::from_secs_f64(arguments.burst);
    println!("{:20} {:18} {:>9} {:>8} {:>17}", "workload", "target", "MiB/s", "ratio", "quartiles");
    for workload in WORKLOADS {
        let mut rates = vec![Vec::new(); targets.len()];
        let before: Vec<u64> = targets.iter().map(|t| pre_reads(&t.1)).collect();
        for round in 0..=arguments.rounds {
            for (rates, (_, target)) in rates.iter_mut().zip(targets.iter_mut()) {
                let rate = target.burst(workload, burst, span)?;
                // The first round warms up.
                if round > 0 {
                    rates.push(rate);
                }
            }
        }
        for (i, (name, target)) in targets.iter().enumerate() {
            let ratios = rates[i].iter().zip(&rates[0]).map(|(rate, empty)| rate / empty);
            let [low, middle, high] = quartiles(ratios.collect());
            let [_, rate, _] = quartiles(rates[i].clone());
            let reads = pre_reads(target) - before[i];
            let note = if workload.write && reads > 0 {
                format!("  pre-reads {reads}")
            } else {
                String::new()
            };
            println!(
                "{:20} {name:18} {:>9.0} {middle:>8.2} {:>17}{note}",
                workload.name,
                rate / (1 << 20) as f64,
                format!("{low:.2} to {high:.2}"),
            );
        }
    }
    Ok(())
}

/// Units read before writes so far.
fn pre_reads(target: &Target) -> u64 {
    let text = match target {
        Target::Mounted(_, Some(stats)) => std::fs::read_to_string(stats).unwrap_or_default(),
        Target::Mounted(_, None) => String::new(),
        Target::Called(array) => array.status().stats.to_text(),
    };
    let value = text.lines().find_map(|line| line.strip_prefix("pre_reads "));
    value.and_then(|v| v.parse().ok()).unwrap_or(0)
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|q| values[(values.len() - 1) * q / 4])
}

impl Target {
    fn burst(&mut self, workload: &Workload, time: Duration, span: u64) -> Result<f64> {
        match self {
            Target::Mounted(client, _) => client.burst(workload, time),
            Target::Called(array) => call(array, workload, time, span),
        }
    }
}

/// One thread calls the array; depth means nothing here.
fn call(array: &Array, workload: &Workload, time: Duration, span: u64) -> Result<f64> {
    let mut buf = array.pool().zeroed(workload.len);
    let (start, mut done, mut next) = (Instant::now(), 0u64, 0u64);
    while start.elapsed() < time {
        next = match workload.random {
            true => next.wrapping_mul(6364136223846793005).wrapping_add(1),
            false => next + 1,
        };
        let places = span / workload.len as u64;
        let place = if workload.random { (next >> 20) % places } else { next % places };
        match workload.write {
            true => array.write(place * workload.len as u64, &buf)?,
            false => array.read(place * workload.len as u64, &mut buf)?,
        }
        done += workload.len as u64;
    }
    Ok(done as f64 / start.elapsed().as_secs_f64())
}
