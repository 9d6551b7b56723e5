//! A filter that counts and remembers what passes: to show, and to prove what was not done.
//!
//! The counts are exact; the log keeps the newest operations up to a limit and says how many it
//! lost. With an output file the text of both is written there when the device is closed.

use super::spec::Args;
use super::{Device, DeviceKind, Facts, Shared, bounds};
use crate::error::Error;
use crate::units::Sectors;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IoSlice, IoSliceMut};
use std::path::PathBuf;
use std::sync::Arc;

/// `trace:out=t.txt,log=100+file:x`.
pub const KIND: DeviceKind = DeviceKind {
    scheme: "trace",
    summary: "counts and lists operations; writes the list to a file at the end",
    usage: "trace:out=FILE,log=OPERATIONS+DEVICE",
    filter: true,
    inner_read_only: false,
    open: |args, inner, _| {
        let mut args = Args::parse(args)?;
        let output = args.take("out").map(PathBuf::from);
        let log = args.take("log").map_or(Ok(LOG_MAX), |log| {
            let wrong = |_| Error::invalid(format!("log: found `{log}`, expected a number"));
            log.parse().map_err(wrong)
        })?;
        args.finish(KIND.usage)?;
        let inner = inner.expect("a filter is opened with its inner device");
        Ok(Arc::new(TraceDevice::with(inner, log, output)) as Shared)
    },
};

/// Operations the log keeps unless told otherwise: 3 MiB at most.
pub const LOG_MAX: usize = 1 << 16;

/// What an operation was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Verb {
    /// [`Device::read`].
    Read,
    /// [`Device::write`].
    Write,
    /// [`Device::flush`].
    Flush,
    /// [`Device::discard`].
    Discard,
}

impl Verb {
    /// The verb as a word.
    pub const fn name(self) -> &'static str {
        match self {
            Verb::Read => "read",
            Verb::Write => "write",
            Verb::Flush => "flush",
            Verb::Discard => "discard",
        }
    }
}

/// One operation that passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// What it was.
    pub verb: Verb,
    /// Where it began; zero for a flush.
    pub at: Sectors,
    /// How far it reached; zero for a flush.
    pub len: Sectors,
    /// Whether it succeeded.
    pub ok: bool,
}

/// How often and how much of one verb passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Operations, also failed ones.
    pub operations: u64,
    /// Sectors that those which succeeded covered.
    pub sectors: Sectors,
    /// Operations that failed.
    pub failed: u64,
}

/// A device that keeps a record of what is done to another.
pub struct TraceDevice {
    facts: Facts,
    inner: Shared,
    log_max: usize,
    output: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    counts: [Count; 4],
    log: VecDeque<Operation>,
    lost: u64,
}

impl TraceDevice {
    /// A trace of `inner` that remembers [`LOG_MAX`] operations.
    pub fn new(inner: Shared) -> TraceDevice {
        TraceDevice::with(inner, LOG_MAX, None)
    }

    /// A trace of `inner` that remembers `log_max` operations and, on closing, writes its text to
    /// `output`.
    pub fn with(inner: Shared, log_max: usize, output: Option<PathBuf>) -> TraceDevice {
        let facts = inner.facts().without_fd();
        TraceDevice { facts, inner, log_max, output, state: Mutex::default() }
    }

    /// How much of `verb` passed since the start or the last [`TraceDevice::clear`].
    pub fn count(&self, verb: Verb) -> Count {
        self.state.lock().counts[verb as usize]
    }

    /// The operations still remembered, oldest first.
    pub fn operations(&self) -> Vec<Operation> {
        self.state.lock().log.iter().copied().collect()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.state.lock() = State::default();
    }

    /// Counts and operations, one a line.
    pub fn to_text(&self) -> String {
        let state = self.state.lock();
        let mut text = format!("{}\n", self.facts.name);
        for verb in [Verb::Read, Verb::Write, Verb::Flush, Verb::Discard] {
            let Count { operations, sectors, failed } = state.counts[verb as usize];
            let name = verb.name();
            let _ = writeln!(text, "{name}: {operations} ops, {sectors} sectors, {failed} failed");
        }
        if state.lost > 0 {
            let _ = writeln!(text, "({} older operations not kept)", state.lost);
        }
        for Operation { verb, at, len, ok } in &state.log {
            let end = if *ok { "" } else { " failed" };
            let _ = match verb {
                Verb::Flush => writeln!(text, "flush{end}"),
                _ => writeln!(text, "{} {at}+{len}{end}", verb.name()),
            };
        }
        text
    }

    fn note(&self, verb: Verb, at: Sectors, len: Sectors, result: &io::Result<()>) {
        let mut state = self.state.lock();
        let count = &mut state.counts[verb as usize];
        count.operations += 1;
        match result {
            Ok(()) => count.sectors += len,
            Err(_) => count.failed += 1,
        }
        if state.log.len() == self.log_max {
            state.log.pop_front();
            state.lost += 1;
        }
        if self.log_max > 0 {
            state.log.push_back(Operation { verb, at, len, ok: result.is_ok() });
        }
    }
}

impl Drop for TraceDevice {
    fn drop(&mut self) {
        if let Some(path) = &self.output
            && let Err(error) = std::fs::write(path, self.to_text())
        {
            // Nobody is left to return it to, and the data is not concerned.
            eprintln!("{}: cannot write the trace: {error}", path.display());
        }
    }
}

impl Device for TraceDevice {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = Sectors::floor_bytes(bounds::total(bufs));
        let result = self.inner.read(at, bufs);
        self.note(Verb::Read, at, len, &result);
        result
    }

    fn write(&self, at: Sectors, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let len = Sectors::floor_bytes(bounds::total(bufs));
        let result = self.inner.write(at, bufs);
        self.note(Verb::Write, at, len, &result);
        result
    }

    fn flush(&self) -> io::Result<()> {
        let result = self.inner.flush();
        self.note(Verb::Flush, Sectors::ZERO, Sectors::ZERO, &result);
        result
    }

    fn discard(&self, at: Sectors, len: Sectors) -> io::Result<()> {
        let result = self.inner.discard(at, len);
        self.note(Verb::Discard, at, len, &result);
        result
    }

    fn warning(&self) -> Option<String> {
        self.inner.warning()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::mem::MemDevice;
    use crate::device::{read_at, write_at};
    use std::sync::Arc;

    fn memory() -> Shared {
        Arc::new(MemDevice::new("m", Sectors(64)).unwrap())
    }

    #[test]
    fn the_text_tells_what_was_done() {
        let trace = TraceDevice::new(memory());
        write_at(&trace, Sectors(8), &[1; 4096]).unwrap();
        read_at(&trace, Sectors(10), &mut [0; 512]).unwrap();
        read_at(&trace, Sectors(64), &mut [0; 512]).unwrap_err();
        trace.flush().unwrap();
        let told = "m\nread: 2 ops, 1 sectors, 1 failed\nwrite: 1 ops, 8 sectors, 0 failed\n\
            flush: 1 ops, 0 sectors, 0 failed\ndiscard: 0 ops, 0 sectors, 0 failed\n\
            write 8+8\nread 10+1\nread 64+1 failed\nflush\n";
        assert_eq!(trace.to_text(), told);
        assert_eq!(trace.count(Verb::Read).operations, 2);
        trace.clear();
        assert_eq!(trace.count(Verb::Read), Count::default());
    }

    #[test]
    fn the_log_has_an_end() {
        let trace = TraceDevice::with(memory(), 2, None);
        for at in 0..5 {
            write_at(&trace, Sectors(at), &[1; 512]).unwrap();
        }
        assert_eq!(trace.operations().iter().map(|o| o.at.0).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(trace.count(Verb::Write).operations, 5);
        assert!(trace.to_text().contains("(3 older operations not kept)"));
    }

    #[test]
    fn the_text_is_left_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace.txt");
        let trace = TraceDevice::with(memory(), 2, Some(path.clone()));
        trace.flush().unwrap();
        drop(trace);
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("flush\n"));
    }
}
