//! A running array as a volume: its bytes, and the texts that tell how it does.

use crate::export::Volume;
use crate::report::make::{self, Background};
use crate::report::{Bitmap, Report, detail, mdstat};
use raid_core::buf::Buf;
use raid_core::driver::Array;
use raid_core::error::Result;
use raid_core::meta::assemble::Assembly;
use std::sync::Arc;

/// The array's state as the kernel's `/proc/mdstat` would show it.
pub const MDSTAT: &str = "mdstat";
/// The same as `mdadm --detail` would.
pub const DETAIL: &str = "detail";
/// The same for programs.
pub const STATUS: &str = "status.json";

/// An array with what is told of it.
pub struct ArrayVolume {
    array: Arc<Array>,
    size: u64,
    read_only: bool,
    background: Background,
}

impl ArrayVolume {
    /// The volume of a started array.
    pub fn new(array: Arc<Array>, assembly: &Assembly, bitmap: Option<Bitmap>) -> ArrayVolume {
        let status = array.status();
        let background = Background {
            metadata: assembly.format.name.into(),
            bitmap,
            warnings: make::warnings(assembly),
        };
        ArrayVolume { size: array.size(), read_only: status.read_only, array, background }
    }

    /// The array at this moment.
    pub fn report(&self) -> Report {
        let status = self.array.status();
        let dead = status.broken || !self.array.layout().survives(&status.degraded);
        make::live(&status, &self.background, dead)
    }
}

impl Volume for ArrayVolume {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn buffer(&self, len: usize) -> Buf {
        self.array.pool().take(len)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.array.read(at, buf)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.array.write(at, data)
    }

    fn flush(&self) -> Result<()> {
        self.array.flush()
    }

    fn texts(&self) -> Vec<(&'static str, String)> {
        let report = self.report();
        let title = if report.name.is_empty() { &report.uuid } else { &report.name };
        vec![
            (MDSTAT, mdstat::text(&report)),
            (DETAIL, detail::text(&report, title)),
            (STATUS, report.json()),
        ]
    }
}
