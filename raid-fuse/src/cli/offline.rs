//! Members of an array that does not run, opened to be compared, and words that commands about
//! them share.

use super::choice::Choice;
use super::{members, values};
use raid_core::assembly;
use raid_core::device::{OpenOptions, Shared};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::{Layout, Role, level_by_number};
use raid_core::meta::assemble::{Assembly, Options};
use raid_core::scrub::{Finding, Part, Target};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// Bytes of a content that are shown.
const SHOWN: usize = 8;

/// How often progress is told.
const PAUSE: Duration = Duration::from_millis(200);

/// An array on its members, not started.
pub struct Offline {
    /// The decision who serves.
    pub assembly: Assembly,
    /// What is compared, and with which devices.
    pub target: Target,
}

impl Offline {
    /// Opens the members as `how` says and decides as `options` say for the array that is
    /// meant. Nothing is written.
    pub fn open(
        specs: &[String],
        how: &OpenOptions,
        array: &Choice,
        options: &Options,
    ) -> Result<Offline> {
        let devices = members::open(specs, how, None)?;
        let uuid = array.of(&members::examine(&devices))?;
        Offline::on(&devices, &Options { uuid, ..options.clone() })
    }

    /// The same with devices that are open already.
    pub fn on(devices: &[Shared], options: &Options) -> Result<Offline> {
        let assembly = assembly::decide(&members::examine(devices), options)?;
        let target = Target::of(&assembly, devices)?;
        Ok(Offline { assembly, target })
    }

    /// `raid5`.
    pub fn level(&self) -> &'static str {
        level_name(&*self.target.layout)
    }

    /// The path of the member in the slot of `part`.
    pub fn name(&self, part: &Part) -> &str {
        let member = self.target.members.get(part.unit.slot.index()).and_then(Option::as_ref);
        member.map_or("missing", |member| &member.name)
    }
}

/// The level's name.
pub fn level_name(layout: &dyn Layout) -> &'static str {
    let number = layout.shape().level;
    level_by_number(number).map_or("an unknown level", |level| level.name)
}

/// What a unit is at this place: `data chunk 360`, `copy 1`, `P`.
pub fn role(part: &Part, layout: &dyn Layout) -> String {
    let chunk = layout.shape().chunk;
    match (part.unit.role, part.array_at) {
        (Role::Data(_), Some(at)) if !chunk.is_empty() => {
            format!("data chunk {}", at.div_floor(chunk))
        }
        (Role::Data(_), _) => "first copy".into(),
        (Role::Copy(number), _) => format!("copy {number}"),
        (Role::P, _) => "P".into(),
        (Role::Q, _) => "Q".into(),
    }
}

/// Where a finding is: `row 120, in-chunk sector 576`, for mirrors the array sectors.
pub fn place(finding: &Finding, layout: &dyn Layout) -> String {
    let (first, len) = (finding.parts[0].array_at, finding.len);
    match (layout.shape().level, first) {
        (4..=6, _) => {
            format!("row {}, in-chunk sector {}, {len} sectors", finding.stripe.0, finding.low)
        }
        (_, Some(at)) => format!("array sector {at}, {}", plural(len.0, "sector")),
        (_, None) => format!("stripe {}, sector {}", finding.stripe.0, finding.low),
    }
}

/// The first bytes from `at` on: `0x8F2A...`.
pub fn short(bytes: &[u8], at: usize) -> String {
    let shown = &bytes[at.min(bytes.len())..bytes.len().min(at + SHOWN)];
    format!("{}..", values::hex(shown))
}

/// `1 row`, `2 rows`.
pub fn plural(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// Refuses to write to an array whose members are not all there.
pub fn want_all(error: Error) -> Error {
    match error.kind {
        ErrorKind::Degraded => Error::new(
            ErrorKind::Degraded,
            format!("{error}\nevery member is needed here: what is missing cannot be compared"),
        ),
        _ => error,
    }
}

/// Tells how far something is, on a terminal, a few times a second.
pub struct Progress {
    what: &'static str,
    told: Option<Instant>,
    begun: Instant,
}

impl Progress {
    /// Nothing told yet.
    pub fn new(what: &'static str) -> Progress {
        Progress { what, told: None, begun: Instant::now() }
    }

    /// So many of so many are done.
    pub fn tell(&mut self, done: u64, total: u64) {
        let now = Instant::now();
        let is_due = now.duration_since(self.told.unwrap_or(self.begun)) >= PAUSE;
        if !is_due || total == 0 || !std::io::stderr().is_terminal() {
            return;
        }
        self.told = Some(now);
        let share = done as f64 / total as f64;
        let left = now.duration_since(self.begun).as_secs_f64() * (1.0 - share) / share.max(1e-9);
        // Who closed standard error does not want to know.
        let _closed = write!(
            std::io::stderr(),
            "\r{}: {:.1}%, {left:.0} s left\x1b[K",
            self.what,
            100.0 * share
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.told.is_some() {
            // As above.
            let _closed = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
