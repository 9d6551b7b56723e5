//! A running array as a volume: its bytes, and the texts that tell how it does.

use crate::control::{Control, files};
use crate::export::{Text, Volume};
use crate::report::make::{self, Background};
use crate::report::{Bitmap, Report, detail, mdstat};
use raid_core::buf::Buf;
use raid_core::device::Lent;
use raid_core::driver::Array;
use raid_core::engine::{Member, State, Status};
use raid_core::error::{Error, Result};
use raid_core::layout::Code;
use raid_core::meta::assemble::{Assembly, quoted};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The array's state as the kernel's `/proc/mdstat` would show it.
pub const MDSTAT: &str = "mdstat";
/// The same as `mdadm --detail` would.
pub const DETAIL: &str = "detail";
/// The same for programs.
pub const STATUS: &str = "status.json";

/// An array and what it does not know of itself.
pub struct Facts {
    array: Arc<Array>,
    background: Background,
    mountpoint: PathBuf,
}

impl Facts {
    /// What is known of a started array that is to be mounted on `mountpoint`.
    pub fn new(
        array: Arc<Array>,
        assembly: &Assembly,
        bitmap: Option<Bitmap>,
        mountpoint: &Path,
    ) -> Facts {
        // They stay what they were: a slot may be filled since.
        let warnings = make::warnings(assembly).into_iter();
        let background = Background {
            metadata: assembly.format.name.into(),
            bitmap,
            warnings: warnings.map(|text| format!("at the start: {text}")).collect(),
        };
        Facts { array, background, mountpoint: mountpoint.to_path_buf() }
    }

    /// The array at this moment.
    pub fn report(&self) -> Report {
        let status = self.array.status();
        let dead = status.broken || !self.array.layout().survives(&status.degraded);
        let mut report = make::live(&status, &self.background, dead);
        report.warnings.extend(self.member_warnings(&status));
        report
    }

    /// What happened to the files of members that are used.
    fn member_warnings(&self, status: &Status) -> Vec<String> {
        let all = status.members.iter().chain(&status.replacements).flatten();
        let used = all.chain(&status.others).filter(|member| member.state != State::Failed);
        let warning = |member: &Member| {
            let warning = self.array.device(member.device)?.warning()?;
            let name = &member.name;
            let point = self.mountpoint.to_string_lossy();
            let advice = match status.shape.code {
                Code::None => "copy what you need to another place now".to_string(),
                _ => format!("raid-fuse {} --with NEW", quoted(["replace", &*point, name])),
            };
            Some(format!("member {name}: {warning}; {advice}"))
        };
        used.filter_map(warning).collect()
    }
}

/// An array with what is told of it.
pub struct ArrayVolume {
    facts: Arc<Facts>,
    size: u64,
    read_only: bool,
    control: Option<Arc<Control>>,
}

impl ArrayVolume {
    /// The volume of a started array; with `control`, the kernel's files are beside it.
    pub fn new(facts: Arc<Facts>, control: Option<Arc<Control>>) -> ArrayVolume {
        let (size, read_only) = (facts.array.size(), facts.array.status().read_only);
        ArrayVolume { facts, size, read_only, control }
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
        self.facts.array.pool().take(len)
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.facts.array.read(at, buf)
    }

    fn lend(&self, at: u64, len: usize, give: &mut dyn FnMut(&[Lent]) -> bool) -> bool {
        self.facts.array.lend(at, len, give)
    }

    fn write(&self, at: u64, data: &[u8]) -> Result<()> {
        self.facts.array.write(at, data)
    }

    fn flush(&self) -> Result<()> {
        self.facts.array.flush()
    }

    fn texts(&self) -> Vec<Text> {
        let report = self.facts.report();
        let title = if report.name.is_empty() { &report.uuid } else { &report.name };
        let mut texts = vec![
            Text::fixed(MDSTAT, mdstat::text(&report)),
            Text::fixed(DETAIL, detail::text(&report, title)),
            Text::fixed(STATUS, report.json()),
        ];
        if self.control.is_some() {
            texts.extend(files::all(&self.facts.array, &report));
        }
        texts
    }

    fn write_text(&self, path: &str, bytes: &[u8]) -> Result<()> {
        match &self.control {
            Some(control) => control.store(path, bytes),
            None => Err(Error::invalid(format!("{path} cannot be written"))),
        }
    }
}
