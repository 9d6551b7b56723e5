//! What is asked of a running array, done.

use super::members::{Known, absolute, file_of, find, known, overlapping};
use super::request::sync_action;
use super::{Commands, Done, Request, Watch};
use crate::cli::members::{self as open_members, quoted};
use crate::report::Report;
use parking_lot::Mutex;
use raid_core::assembly::{Back, JoinOptions, join};
use raid_core::device::{OpenOptions, Shared};
use raid_core::driver::Array;
use raid_core::engine::{DeviceId, Limits, Manage, State};
use raid_core::error::{Error, ErrorKind, Result};
use raid_core::layout::Code;
use raid_core::meta::Format;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How long a device that was removed may still be held by requests that began before.
const SETTLE: Duration = Duration::from_secs(3);
const SETTLE_PAUSE: Duration = Duration::from_millis(5);

/// What a running array does not say itself.
pub struct Context {
    /// The format of its superblocks.
    pub format: &'static Format,
    /// How members are opened.
    pub open: OpenOptions,
    /// Changes go to files in this folder, an absolute path.
    pub overlay: Option<PathBuf>,
    /// What the array was started from, as typed.
    pub specs: Vec<String>,
    /// Where it is mounted, for the commands that messages suggest.
    pub mountpoint: PathBuf,
    /// Makes the report.
    pub report: Box<dyn Fn() -> Report + Send + Sync>,
}

/// A running array that takes requests.
pub struct Control {
    array: Arc<Array>,
    context: Context,
    /// The members by what they were opened from: absolute specs.
    specs: Mutex<BTreeMap<DeviceId, String>>,
    /// Specs of members that were removed, for `re-add missing`.
    removed: Mutex<Vec<String>>,
    watch: OnceLock<Watch>,
    /// One device joins at a time.
    joining: Mutex<()>,
}

impl Control {
    /// Control of `array`. Relative specs are those of the folder this process is in now.
    pub fn new(array: Arc<Array>, context: Context) -> Control {
        let all = known(&array, &array.status());
        let specs = context.specs.iter().filter_map(|spec| {
            let known = find(&all, spec).ok()?;
            Some((known.device, absolute(spec)))
        });
        let specs = Mutex::new(specs.collect());
        let (removed, watch, joining) = Default::default();
        Control { array, context, specs, removed, watch, joining }
    }

    /// The array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// What its superblocks are written in.
    pub(super) fn format(&self) -> &'static Format {
        self.context.format
    }

    fn known(&self) -> Vec<Known> {
        known(&self.array, &self.array.status())
    }

    /// `raid-fuse WORD MOUNT MEMBER`, to type next.
    fn command(&self, word: &str, member: &str) -> String {
        let point = self.context.mountpoint.to_string_lossy();
        format!("raid-fuse {}", quoted([word, &point, member]))
    }

    /// Whether the file of a device is gone.
    fn is_detached(&self, device: DeviceId) -> bool {
        let specs = self.specs.lock();
        specs.get(&device).is_some_and(|spec| {
            let gone = std::fs::metadata(file_of(spec)).err();
            gone.is_some_and(|error| error.kind() == std::io::ErrorKind::NotFound)
        })
    }

    /// Fails one device.
    pub fn fail(&self, known: &Known) -> Result<()> {
        self.array.manage(Manage::Fail(known.device)).map_err(|error| match error.kind {
            ErrorKind::Busy => {
                let advice = self.command("replace", &known.name);
                Error::new(
                    ErrorKind::Busy,
                    format!("{error}; to take it out, let another take its place first: {advice}"),
                )
            }
            _ => error,
        })
    }

    /// Lets one device go.
    pub fn remove(&self, known: &Known) -> Result<()> {
        let device = self.array.device(known.device).map(|device| Arc::downgrade(&device));
        self.array.manage(Manage::Remove(known.device)).map_err(|error| match error.kind {
            ErrorKind::Busy => {
                let (name, advice) = (&known.name, self.command("fail", &known.name));
                let text = format!("{name} is in use; first say {advice}");
                Error::new(ErrorKind::Busy, text)
            }
            _ => error,
        })?;
        if let Some(spec) = self.specs.lock().remove(&known.device) {
            let mut removed = self.removed.lock();
            removed.retain(|other| *other != spec);
            removed.push(spec);
        }
        self.members_changed();
        // Requests that began before may hold it for a moment.
        let held = || device.as_ref().is_some_and(|device| device.strong_count() > 0);
        eventually(|| !held());
        Ok(())
    }

    fn members_changed(&self) {
        let Some(watch) = self.watch.get() else { return };
        let specs: Vec<String> = self.specs.lock().values().cloned().collect();
        watch(&open_members::paths(&specs));
    }

    fn fail_by_name(&self, word: &str) -> Result<Done> {
        if word != "detached" {
            let all = self.known();
            let known = find(&all, word)?;
            self.fail(known)?;
            return Ok(Done::say(format!("{} is failed", known.name)));
        }
        let mut all = self.known();
        all.retain(|known| known.state != State::Failed && self.is_detached(known.device));
        self.each(&all, "failed", |known| self.fail(known))
    }

    fn remove_by_name(&self, word: &str) -> Result<Done> {
        let mut all = self.known();
        match word {
            "failed" | "faulty" => all.retain(|known| known.state == State::Failed),
            "detached" | "missing" => all.retain(|known| self.is_detached(known.device)),
            _ => {
                let known = find(&all, word)?;
                self.remove(known)?;
                return Ok(Done::say(format!("{} is out of the array", known.name)));
            }
        }
        self.each(&all, "removed", |known| {
            if word != "failed" && word != "faulty" && known.state != State::Failed {
                self.fail(known)?;
            }
            self.remove(known)
        })
    }

    /// The same for several; nothing to do is no error, as for mdadm.
    fn each(&self, all: &[Known], what: &str, work: impl Fn(&Known) -> Result<()>) -> Result<Done> {
        for known in all {
            work(known)?;
        }
        let names: Vec<&str> = all.iter().map(|known| known.name.as_str()).collect();
        Ok(Done::say(match names.is_empty() {
            true => format!("nothing to be {what}"),
            false => format!("{what}: {}", names.join(", ")),
        }))
    }

    /// Opens a device that is not in the array, and lets it join.
    fn join(&self, spec: &str, options: JoinOptions) -> Result<(DeviceId, bool)> {
        let _one_at_a_time = self.joining.lock();
        self.check_takes_devices()?;
        self.check_not_in(spec)?;
        let device = self.open(spec)?;
        let device_uuid = open_members::random_id()?;
        let options = JoinOptions { device_uuid, ..options };
        let joined = join(&self.array, self.context.format, device, &options)?;
        self.removed.lock().retain(|other| other != spec);
        self.specs.lock().insert(joined.device, spec.to_string());
        self.members_changed();
        Ok((joined.device, joined.back))
    }

    /// Opens as the members were opened. One that was removed here may still be locked by what
    /// the kernel holds of it for us.
    fn open(&self, spec: &str) -> Result<Shared> {
        let (specs, overlay) = ([spec.to_string()], self.context.overlay.as_deref());
        let was_here = self.removed.lock().iter().any(|removed| removed == spec);
        let mut opened = Ok(Vec::new());
        eventually(|| {
            opened = open_members::open(&specs, &self.context.open, overlay);
            let busy = opened.as_ref().is_err_and(|error| error.kind == ErrorKind::Busy);
            !(busy && was_here)
        });
        let nothing = || Error::new(ErrorKind::Io, format!("{spec} was not opened"));
        opened?.pop().ok_or_else(nothing)
    }

    /// Looked at before a new device is touched; the engine refuses the same.
    fn check_takes_devices(&self) -> Result<()> {
        let status = self.array.status();
        let (kind, text) = match () {
            () if status.shape.code == Code::None => {
                (ErrorKind::Unsupported, "this level has no redundancy: it takes no spares")
            }
            () if status.read_only => (ErrorKind::ReadOnly, "the array is read-only"),
            () if status.broken => {
                (ErrorKind::Dead, "more members failed than the level survives; stop the array")
            }
            () => return Ok(()),
        };
        Err(Error::new(kind, text))
    }

    /// A device that is in the array cannot come in once more.
    fn check_not_in(&self, spec: &str) -> Result<()> {
        let all = self.known();
        let Some(known) = overlapping(&all, spec) else { return Ok(()) };
        let name = &known.name;
        let known_as = self.specs.lock().get(&known.device).cloned();
        let place = |spec: &str| file_of(spec).canonicalize().ok();
        let other_name = known_as.is_some_and(|known_as| place(&known_as) != place(spec));
        if other_name && known.state != State::Failed {
            let text = format!(
                "{spec} is the same storage as {name}, which is in this array already; give \
                 another file or disk"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let text = match known.state {
            State::Failed => {
                let advice = self.command("remove", name);
                format!("{name} is in this array as failed; first say {advice}")
            }
            State::InSync | State::Recovering(_) => format!("{name} is in this array already"),
            State::Spare => format!("{name} is a spare of this array already"),
            State::Journal => format!("{name} is the journal of this array already"),
        };
        Err(Error::new(ErrorKind::Busy, text))
    }

    fn add(&self, spec: &str, force: bool, write_mostly: bool) -> Result<Done> {
        let options = JoinOptions { force, write_mostly, ..JoinOptions::default() };
        let (device, back) = self.join(spec, options)?;
        Ok(Done::say(self.arrival(spec, device, back)))
    }

    /// What became of a device that joined.
    fn arrival(&self, spec: &str, device: DeviceId, back: bool) -> String {
        let now = self.known().into_iter().find(|known| known.device == device);
        match now.map(|known| (known.state, known.slot, known.replacement)) {
            Some((_, Some(slot), _)) if back && self.array.status().bitmap.is_some() => {
                format!("{spec} is back in slot {slot}; only what it missed is copied")
            }
            Some((_, Some(slot), _)) if back => {
                format!("{spec} is back in slot {slot}; without a bitmap all of it is copied")
            }
            Some((_, Some(slot), false)) => format!("{spec} is being filled for slot {slot}"),
            Some((_, Some(slot), true)) => format!("{spec} is being filled to replace slot {slot}"),
            _ => format!("{spec} is a spare"),
        }
    }

    /// A failed member goes out and back in one step, as with mdadm.
    fn re_add(&self, word: &str, write_mostly: bool) -> Result<Done> {
        if word == "missing" {
            return self.re_add_missing(write_mostly);
        }
        let mut spec = word.to_string();
        let all = self.known();
        if let Ok(known) = find(&all, word)
            && known.state == State::Failed
        {
            spec = self.specs.lock().get(&known.device).cloned().unwrap_or(spec);
            self.remove(known)?;
        }
        let options = JoinOptions { write_mostly, back: Back::Only, ..JoinOptions::default() };
        let (device, back) = self.join(&spec, options).map_err(|error| match error.kind {
            ErrorKind::Refused => {
                Error::new(ErrorKind::Refused, format!("{error}: {}", self.command("add", &spec)))
            }
            _ => error,
        })?;
        Ok(Done::say(self.arrival(&spec, device, back)))
    }

    fn re_add_missing(&self, write_mostly: bool) -> Result<Done> {
        let removed = self.removed.lock().clone();
        let there = removed.iter().filter(|spec| file_of(spec).exists());
        let lines: Result<Vec<String>> =
            there.map(|spec| self.re_add(spec, write_mostly).map(|done| done.text)).collect();
        let lines = lines?;
        Ok(Done::say(match lines.is_empty() {
            true => "nothing was removed that could come back".into(),
            false => lines.join("\n"),
        }))
    }

    fn replace(&self, word: &str, with: Option<&str>, force: bool) -> Result<Done> {
        let all = self.known();
        let old = find(&all, word)?;
        let Some(with) = with else {
            self.array.manage(Manage::Replace(old.device, None))?;
            return Ok(Done::say(self.replacing(old)));
        };
        if old.state != State::InSync {
            let text = format!("{} is not in sync, so it cannot be replaced", old.name);
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let new = match find(&all, with) {
            Ok(known) => known.device,
            Err(_) => self.spare_for(with, force)?,
        };
        self.array.manage(Manage::Replace(old.device, Some(new)))?;
        Ok(Done::say(self.replacing(old)))
    }

    /// A new device as a spare that nobody else takes.
    fn spare_for(&self, spec: &str, force: bool) -> Result<DeviceId> {
        let status = self.array.status();
        if !status.degraded.is_empty() {
            let advice = self.command("add", spec);
            let text = format!(
                "the array is degraded: a new device takes the missing place first; say {advice}"
            );
            return Err(Error::new(ErrorKind::Busy, text));
        }
        let options = JoinOptions { force, back: Back::Never, ..JoinOptions::default() };
        self.join(spec, options).map(|(device, _)| device)
    }

    fn replacing(&self, old: &Known) -> String {
        let all = self.known();
        let new = all.iter().find(|known| known.replacement && known.slot == old.slot);
        match new {
            Some(new) => format!("{} is being filled to replace {}", new.name, old.name),
            None => {
                let advice = self.command("add", "NEW");
                let name = &old.name;
                format!("{name} will be replaced as soon as there is a spare: {advice}")
            }
        }
    }

    fn write_mostly(&self, word: &str, on: bool) -> Result<Done> {
        let all = self.known();
        let known = find(&all, word)?;
        self.array.manage(Manage::WriteMostly(known.device, on))?;
        let how = if on { "only when no other can be" } else { "as the others" };
        Ok(Done::say(format!("{} is read {how}", known.name)))
    }

    /// Sets the limits that are given.
    pub fn limits(&self, min: Option<u32>, max: Option<u32>) -> Result<Done> {
        let now = self.array.status().limits;
        let limits = Limits { min: min.unwrap_or(now.min), max: max.unwrap_or(now.max) };
        if limits.min == 0 || limits.max == 0 {
            return Err(Error::invalid("a limit is at least 1 KiB a second"));
        }
        if min.is_some() || max.is_some() {
            self.array.manage(Manage::Limits(limits))?;
        }
        let Limits { min, max } = limits;
        Ok(Done::say(format!(
            "jobs take at least {min} and at most {max} KiB of each member a second"
        )))
    }

    /// A word of md's `sync_action`.
    pub fn sync_action(&self, word: &str) -> Result<Done> {
        self.array.manage(Manage::Sync(sync_action(word)?))?;
        Ok(Done::say(format!("sync_action is {word}")))
    }
}

/// Tries until it is so, but not for long.
fn eventually(mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + SETTLE;
    while !is_so() && Instant::now() < until {
        std::thread::sleep(SETTLE_PAUSE);
    }
}

impl Commands for Control {
    fn perform(&self, request: &Request) -> Result<Done> {
        match request {
            Request::Fail { member } => self.fail_by_name(member),
            Request::Remove { member } => self.remove_by_name(member),
            Request::Add { member, force, write_mostly } => self.add(member, *force, *write_mostly),
            Request::ReAdd { member, write_mostly } => self.re_add(member, *write_mostly),
            Request::Replace { member, with, force } => {
                self.replace(member, with.as_deref(), *force)
            }
            Request::WriteMostly { member, on } => self.write_mostly(member, *on),
            Request::SyncAction { action } => self.sync_action(action),
            Request::Bitmap { place, chunk } => self.bitmap(place, *chunk),
            Request::Limits { min, max } => self.limits(*min, *max),
            Request::Status {} => {
                let report = Some(Box::new((self.context.report)()));
                Ok(Done { report, ..Done::say("") })
            }
        }
    }

    fn watch(&self, watch: Watch) {
        // There is one daemon, and it watches once.
        let _second = self.watch.set(watch);
    }
}
