//! The server side in a process of its own: one volume on one mount point.

use super::members;
use raid_core::buf::Buf;
use raid_core::device::{self, Lent, file};
use raid_core::driver::Array;
use raid_core::error::{Error, Result};
use raid_core::units::Sectors;
use raid_fuse::export::null::Null;
use raid_fuse::export::options::Options;
use raid_fuse::export::{Text, Volume};
use raid_fuse::mounted::mount_volume;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What to serve, and where.
#[derive(clap::Args)]
pub struct Arguments {
    /// Mount point
    #[arg(long)]
    mount: PathBuf,
    /// Size of the empty volume in bytes, where no members are given
    #[arg(long, default_value_t = 0)]
    empty: u64,
    /// A file to serve as it is
    #[arg(long)]
    plain: Option<PathBuf>,
    /// Members of an array
    members: Vec<PathBuf>,
}

/// An array behind the front end.
struct Served(Array);

impl Volume for Served {
    fn size(&self) -> u64 {
        self.0.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn buffer(&self, len: usize) -> Buf {
        self.0.pool().take(len)
    }
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(at, buf)
    }
    fn lend(&self, at: u64, len: usize, give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        self.0.lend(at, len, give)
    }
    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.0.write(at, data)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn texts(&self) -> Vec<Text> {
        vec![Text::fixed("stats", self.0.status().stats.to_text())]
    }
}

/// A file as it is: what the front end makes of bytes that lie in memory.
struct Plain(device::Shared);

impl Volume for Plain {
    fn size(&self) -> u64 {
        self.0.facts().sectors.bytes()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        let read = device::read_at(&*self.0, Sectors::floor_bytes(at), buf);
        read.map_err(|error| Error::io("the file", error))
    }
    fn lend(&self, at: u64, len: usize, give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        self.0.lend(Sectors::floor_bytes(at), len).is_some_and(|lent| give(&[lent]))
    }
    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        let written = device::write_at(&*self.0, Sectors::floor_bytes(at), data);
        written.map_err(|error| Error::io("the file", error))
    }
    fn flush(&self) -> Result<()> {
        self.0.flush().map_err(|error| Error::io("the file", error))
    }
    fn texts(&self) -> Vec<Text> {
        Vec::new()
    }
}

/// Serves until standard input ends.
pub fn run(arguments: &Arguments) -> Result<()> {
    let volume: Arc<dyn Volume> = match (&arguments.plain, arguments.members.is_empty()) {
        (Some(path), _) => Arc::new(Plain(file::open(path, &file::OpenOptions::default())?)),
        (None, true) => Arc::new(Null::new(arguments.empty)),
        (None, false) => Arc::new(Served(members::open(&arguments.members)?)),
    };
    let mut mounted = mount_volume(volume, &arguments.mount, &Options::default())?;
    println!("ready");
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest).map_err(|error| Error::io("standard input", error))?;
    mounted.stop(Duration::from_secs(5))
}
