//! A filter that fails as it is told: by a plan, or by a seed.
//!
//! The plan is text, one rule after the other, parted by `;` or new lines; `#` begins a comment.
//! Ranges are bytes on the device (`4096..8192`, also `4K..8K`; the end is not part of it) and
//! cover whole sectors. See [`Plan`] for the rules. The same plan and the same operations in the
//! same order give the same faults, which [`FaultDevice::to_text`] lists.

mod plan;

pub use plan::{Fault, Plan, Rule, When};

use super::spec::Args;
use super::trace::Verb;
use super::{Device, DeviceKind, Facts, Shared, bounds};
use crate::error::{Error, Result};
use crate::units::{SECTOR, Sectors};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fmt::Write as _;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::Duration;

/// `fault:seed=7,read=1e-4+file:a.img`, `fault:eio read 4096..8192 on 3; vanish after 100+a.img`.
pub const KIND: DeviceKind = DeviceKind {
    scheme: "fault",
    summary: "fails as a plan or a seed says",
    usage: "fault:RULES+DEVICE, fault:plan=FILE+DEVICE or \
            fault:seed=N,read=RATE,write=RATE,flush=RATE+DEVICE",
    filter: true,
    inner_read_only: false,
    open: |args, inner, _| {
        let inner = inner.expect("a filter is opened with its inner device");
        Ok(Arc::new(FaultDevice::new(inner, plan_of(args)?)) as Shared)
    },
};

/// The plan in the arguments of a spec.
fn plan_of(args: &str) -> Result<Plan> {
    if !args.contains('=') {
        return args.parse();
    }
    let mut args = Args::parse(args)?;
    let mut text = String::new();
    if let Some(path) = args.take("plan") {
        text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
    }
    for (key, rule) in [("seed", "seed"), ("read", "rate read"), ("write", "rate write")]
        .into_iter()
        .chain([("flush", "rate flush"), ("discard", "rate discard")])
    {
        if let Some(value) = args.take(key) {
            let _ = write!(text, "\n{rule} {value}");
        }
    }
    args.finish(KIND.usage)?;
    text.parse()
}

/// Faults the list keeps; later ones are counted.
const FIRED_MAX: usize = 10_000;

/// What to do where a plan says to wait. A test passes its own, so that nothing sleeps.
pub type Sleep = Arc<dyn Fn(Duration) + Send + Sync>;

/// A device that follows a plan of faults.
pub struct FaultDevice {
    facts: Facts,
    inner: Shared,
    plan: Plan,
    sleep: Sleep,
    state: Mutex<State>,
}

/// What has happened so far.
struct State {
    /// How often each rule has matched.
    matched: Vec<u64>,
    /// Operations so far, for the random faults.
    operations: u64,
    fired: Vec<Fired>,
    /// Faults that are not in the list any more.
    more: u64,
    /// Set once the device has vanished.
    gone: bool,
}

/// A fault that happened.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Fired {
    verb: Verb,
    at: Sectors,
    len: Sectors,
    what: String,
}

/// What a plan makes of one operation.
#[derive(Default)]
struct Verdict {
    delay: Duration,
    error: Option<i32>,
    /// Write that many bytes, then fail.
    torn: Option<u64>,
    /// Say it was written, and do not.
    lost: bool,
    /// Bytes on the device and bits in them that read wrong.
    flips: SmallVec<[(u64, u8); 1]>,
}

impl FaultDevice {
    /// `inner` under `plan`, really waiting where it says so.
    pub fn new(inner: Shared, plan: Plan) -> FaultDevice {
        FaultDevice::with_sleep(inner, plan, Arc::new(std::thread::sleep))
    }

    /// `inner` under `plan`; delays go to `sleep`.
    pub fn with_sleep(inner: Shared, plan: Plan, sleep: Sleep) -> FaultDevice {
        let state = State {
            matched: vec![0; plan.rules.len()],
            operations: 0,
            fired: Vec::new(),
            more: 0,
            gone: false,
        };
        let facts = inner.facts().without_fd();
        FaultDevice { facts, inner, plan, sleep, state: Mutex::new(state) }
    }

    /// How many faults have happened.
    pub fn count(&self) -> u64 {
        let state = self.state.lock();
        state.fired.len() as u64 + state.more
    }

    /// The faults that happened, one a line.
    pub fn to_text(&self) -> String {
        let state = self.state.lock();
        let mut text = String::new();
        for Fired { verb, at, len, what } in &state.fired {
            let _ = writeln!(text, "{} {at}+{len}: {what}", verb.name());
        }
        if state.more > 0 {
            let _ = writeln!(text, "and {} more", state.more);
        }
        text
    }

    /// Counts the operation, finds what the plan says, and waits if it says so.
    fn judge(&self, verb: Verb, at: Sectors, len: Sectors) -> io::Result<Verdict> {
        let verdict = self.state.lock().judge(&self.plan, verb, at, len);
        if !verdict.delay.is_zero() {
            (self.sleep)(verdict.delay);
        }
        match verdict.error {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(verdict),
        }
    }
}

impl State {
    fn judge(&mut self, plan: &Plan, verb: Verb, at: Sectors, len: Sectors) -> Verdict {
        let mut verdict = Verdict::default();
        if self.gone {
            verdict.error = Some(libc::ENODEV);
            return verdict;
        }
        for (index, rule) in plan.rules.iter().enumerate() {
            if !rule.matches(verb, at, len) {
                continue;
            }
            self.matched[index] += 1;
            if rule.when.includes(self.matched[index]) {
                self.apply(rule, &mut verdict, (verb, at, len));
            }
        }
        if plan.random_error(verb, self.operations) {
            verdict.error = Some(libc::EIO);
            self.note((verb, at, len), "eio by chance".into());
        }
        self.operations += 1;
        verdict
    }

    fn apply(&mut self, rule: &Rule, verdict: &mut Verdict, op: (Verb, Sectors, Sectors)) {
        let (_, at, len) = op;
        match rule.fault {
            Fault::Eio => verdict.error = Some(libc::EIO),
            Fault::Vanish => {
                self.gone = true;
                verdict.error = Some(libc::ENODEV);
            }
            Fault::Torn(bytes) if bytes < len.bytes() => verdict.torn = Some(bytes),
            Fault::Torn(_) => return,
            Fault::Lose => verdict.lost = true,
            Fault::Flip { byte, bit } if at.bytes() <= byte && byte < (at + len).bytes() => {
                verdict.flips.push((byte, bit));
            }
            Fault::Flip { .. } => return,
            Fault::Delay(time) => verdict.delay += time,
        }
        self.note(op, rule.to_string());
    }

    fn note(&mut self, (verb, at, len): (Verb, Sectors, Sectors), what: String) {
        match self.fired.len() < FIRED_MAX {
            true => self.fired.push(Fired { verb, at, len, what }),
            false => self.more += 1,
        }
    }
}

impl Device for FaultDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let bytes = bounds::total(bufs);
        bounds::check_read(&self.facts, at, bytes)?;
        let verdict = self.judge(Verb::Read, at, Sectors::floor_bytes(bytes))?;
        self.inner.read(at, bufs)?;
        for (byte, bit) in verdict.flips {
            flip(bufs, (byte - at.bytes()) as usize, bit);
        }
        Ok(())
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let bytes = bounds::total(bufs);
        bounds::check_write(&self.facts, at, bytes)?;
        let verdict = self.judge(Verb::Write, at, Sectors::floor_bytes(bytes))?;
        if verdict.lost {
            return Ok(());
        }
        match verdict.torn {
            Some(bytes) => {
                self.inner.write(at, &beginning(bufs, bytes))?;
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            None => self.inner.write(at, bufs),
        }
    }

    fn flush(&self) -> io::Result<()> {
        let verdict = self.judge(Verb::Flush, Sectors::ZERO, Sectors::ZERO)?;
        if verdict.lost { Ok(()) } else { self.inner.flush() }
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        bounds::check_discard(&self.facts, at, len)?;
        let verdict = self.judge(Verb::Discard, at, len)?;
        if verdict.lost { Ok(()) } else { self.inner.discard(at, len) }
    }

    fn warning(&self) -> Option<String> {
        self.inner.warning()
    }
}

fn flip(bufs: &mut [IoSliceMut<'_>], mut at: usize, bit: u8) {
    for buf in bufs {
        if let Some(byte) = buf.get_mut(at) {
            *byte ^= 1 << bit;
            return;
        }
        at -= buf.len();
    }
}

/// The first `bytes` of `bufs`, whole sectors.
fn beginning<'a>(bufs: &'a [IoSlice<'_>], bytes: u64) -> SmallVec<[IoSlice<'a>; 8]> {
    let mut left = (bytes - bytes % SECTOR) as usize;
    let mut some = SmallVec::new();
    for buf in bufs {
        let now = left.min(buf.len());
        some.push(IoSlice::new(&buf[..now]));
        left -= now;
    }
    some
}

#[cfg(test)]
mod tests;
