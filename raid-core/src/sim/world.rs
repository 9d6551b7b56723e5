//! Virtual time: a heap of completions around one engine and its disks.

use super::disk::Disk;
use super::rng::Rng;
use crate::assembly::{self, StartOptions};
use crate::buf::{Pool, Shared};
use crate::device::cow::MemoryOverlay;
use crate::device::{self, Device, Facts, read_at};
use crate::engine::{
    Action, Actions, Ask, AskId, DeviceId, Engine, Event, Io, OpId, Outcome, Setup, Status,
};
use crate::error::Error;
use crate::layout::Layout;
use crate::meta::Format;
use crate::meta::assemble::{Candidate, Options};
use crate::time::Instant;
use crate::units::Sectors;
use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

/// A member is slow by up to this much per operation, in nanoseconds.
const LATENCY_MAX: u64 = 2_000_000;

/// So many things happen between two visits nobody asked for.
const TICKS: u64 = 5;

/// What will happen at some time.
enum Coming {
    Io { op: OpId, device: DeviceId, at: Sectors, io: Io, mark: u64 },
    Computed(OpId, Box<crate::engine::Work>),
    Tick,
}

/// One array on virtual time.
pub struct World {
    engine: Engine,
    layout: Arc<dyn Layout>,
    format: &'static Format,
    /// The disks by device id, whatever their state.
    pub disks: Vec<Disk>,
    /// Disks that are there and not part of the array.
    pub beside: Vec<Disk>,
    /// One in so many operations of a doomed slot fails; zero: none.
    pub fault_rate: u64,
    /// The devices whose operations may fail.
    pub doomed: Vec<DeviceId>,
    pool: Pool,
    now: Instant,
    count: u64,
    coming: BTreeMap<(Instant, u64), Coming>,
    replies: Vec<(AskId, Outcome)>,
    ask_next: AskId,
}

impl World {
    /// Starts the array whose superblocks are on `disks`, as of `now`, also with members missing.
    /// Disks that have no place in it wait beside.
    pub fn start(disks: Vec<Disk>, read_only: bool, now: Instant) -> Result<World, Error> {
        let disks: Vec<Arc<Disk>> = disks.into_iter().map(Arc::new).collect();
        let over = |looked| Arc::new(MemoryOverlay::new(snapshot(looked)));
        let overlays: Vec<Arc<MemoryOverlay>> = disks.iter().enumerate().map(over).collect();
        let mut devices: Vec<device::Shared> =
            overlays.iter().map(|overlay| overlay.clone() as device::Shared).collect();
        let looks = devices.iter().map(|device| assembly::examine(&**device));
        let candidates = looks.collect::<Result<Vec<_>, Error>>()?;
        let options = Options { degraded: true, read_only, ..Options::default() };
        let decision = assembly::decide(&candidates, &options)
            .map_err(|error| Error::new(error.kind, format!("{error}\n{}", maps(&candidates))))?;
        let options = StartOptions { read_only, ..StartOptions::default() };
        let (setup, table) = assembly::setup(&decision, &mut devices, &options, Pool::new(0))?;
        let (setup, format) = (Setup { now, ..setup }, decision.format);
        let (layout, pool) = (setup.layout.clone(), setup.pool.clone());
        drop(devices);
        let replayed: Vec<Option<Vec<u8>>> = overlays.iter().map(|o| changed(o)).collect();
        drop(overlays);
        let own = |disk| Arc::try_unwrap(disk).expect("nobody looks at it any more");
        let mut disks: Vec<Disk> = disks.into_iter().map(own).collect();
        take_back(&mut disks, replayed)?;
        let mut disks: Vec<Option<Disk>> = disks.into_iter().map(Some).collect();
        let size = disks.iter().flatten().map(Disk::sectors).max().unwrap_or_default();
        let mut take = |index: Option<usize>| {
            let taken = index.and_then(|index| disks[index].take());
            // A place without a disk: whatever is asked of it fails.
            taken.unwrap_or_else(|| Disk::hole(size))
        };
        let seated: Vec<Disk> = table.into_iter().map(&mut take).collect();
        let mut actions = Actions::new();
        let engine = Engine::new(setup, &mut actions);
        let mut world = World {
            engine,
            layout,
            format,
            disks: seated,
            beside: disks.into_iter().flatten().collect(),
            fault_rate: 0,
            doomed: Vec::new(),
            pool,
            now,
            count: 0,
            coming: BTreeMap::new(),
            replies: Vec::new(),
            ask_next: 0,
        };
        // Members answer in order until the run gives them its seed.
        world.take(actions, &mut Rng::new(0));
        Ok(world)
    }

    /// What the superblocks are written in.
    pub fn format(&self) -> &'static Format {
        self.format
    }

    /// Plugs a disk in; the id it has from now on.
    pub fn plug(&mut self, disk: Disk) -> DeviceId {
        self.disks.push(disk);
        DeviceId(self.disks.len() - 1)
    }

    /// Pulls a disk out.
    pub fn pull(&mut self, device: DeviceId) -> Disk {
        let size = self.disks[device.0].sectors();
        let hole = Disk::hole(size);
        std::mem::replace(&mut self.disks[device.0], hole)
    }

    /// The geometry.
    pub fn layout(&self) -> &Arc<dyn Layout> {
        &self.layout
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// What the engine tells.
    pub fn status(&self) -> Status {
        self.engine.status()
    }

    /// True if nothing is open and nothing will happen by itself.
    pub fn is_idle(&self) -> bool {
        self.coming.is_empty() && self.engine.is_idle()
    }

    /// Asks for something; the id comes back with the reply.
    pub fn ask(&mut self, ask: Ask, rng: &mut Rng) -> AskId {
        let id = self.ask_next;
        self.ask_next += 1;
        let mut actions = Actions::new();
        self.engine.step(self.now, Event::Ask(id, ask), &mut actions);
        self.take(actions, rng);
        id
    }

    /// Replies since the last call.
    pub fn replies(&mut self) -> Vec<(AskId, Outcome)> {
        std::mem::take(&mut self.replies)
    }

    /// A buffer for a read.
    pub fn buffer(&self, len: usize) -> crate::buf::Buf {
        self.pool.take(len)
    }

    /// Lets the next thing happen; false if there is none.
    pub fn step(&mut self, rng: &mut Rng) -> bool {
        let Some(((at, _), coming)) = self.coming.pop_first() else { return false };
        self.now = self.now.max(at);
        let event = match coming {
            Coming::Tick => Event::Tick,
            Coming::Computed(op, work) => Event::Computed(op, work),
            Coming::Io { op, device, at, io, mark } => self.complete(op, device, at, io, mark, rng),
        };
        let mut actions = Actions::new();
        self.engine.step(self.now, event, &mut actions);
        // A driver may come at any time, not only when it was asked to.
        if self.count.is_multiple_of(TICKS) {
            self.engine.step(self.now, Event::Tick, &mut actions);
        }
        self.take(actions, rng);
        true
    }

    /// The power goes and comes back: the disks as they are found then.
    pub fn crash(mut self, rng: &mut Rng) -> Vec<Disk> {
        let mut in_flight: Vec<Vec<(Sectors, Vec<u8>)>> = vec![Vec::new(); self.disks.len()];
        for coming in std::mem::take(&mut self.coming).into_values() {
            if let Coming::Io { device, at, io: Io::Write(data), .. } = coming {
                in_flight[device.0].push((at, data.to_vec()));
            }
        }
        for (disk, writes) in self.disks.iter_mut().zip(in_flight) {
            let writes = if disk.vanished { Vec::new() } else { writes };
            disk.crash(writes, rng);
        }
        let seated = self.disks.into_iter().filter(|disk| !disk.is_blank());
        seated.chain(self.beside).collect()
    }

    /// The disks as they are in the moment of a power cut, before it is known what of the writes
    /// that were not flushed survives it; those on their way are among them.
    pub fn power_cut(&self) -> Vec<Disk> {
        let mut disks = self.disks.clone();
        for coming in self.coming.values() {
            if let Coming::Io { device, at, io: Io::Write(data), .. } = coming {
                disks[device.0].receive(*at, data.to_vec());
            }
        }
        disks.into_iter().chain(self.beside.iter().cloned()).collect()
    }

    fn take(&mut self, actions: Actions, rng: &mut Rng) {
        for action in actions {
            let (after, coming) = match action {
                Action::Reply(id, outcome) => {
                    self.replies.push((id, outcome));
                    continue;
                }
                Action::Wake(at) => (at.0.saturating_sub(self.now.0), Coming::Tick),
                Action::Compute(op, mut work) => {
                    work.perform(&self.pool);
                    (rng.below(100_000), Coming::Computed(op, work))
                }
                Action::Io { op, device, at, io, .. } => {
                    let mark = self.disks[device.0].mark();
                    (rng.below(LATENCY_MAX), Coming::Io { op, device, at, io, mark })
                }
            };
            self.count += 1;
            self.coming.insert((Instant(self.now.0 + after), self.count), coming);
        }
    }

    fn complete(
        &mut self,
        op: OpId,
        device: DeviceId,
        at: Sectors,
        io: Io,
        mark: u64,
        rng: &mut Rng,
    ) -> Event {
        let faulty =
            self.fault_rate > 0 && self.doomed.contains(&device) && rng.once_in(self.fault_rate);
        let disk = &mut self.disks[device.0];
        let (io, result) = match io {
            Io::Read(mut buf) => {
                if faulty && rng.once_in(8) {
                    disk.vanished = true;
                } else if faulty {
                    disk.spoil(at, Sectors(1 + rng.below(buf.len() as u64 / 512)));
                }
                let result = disk.read(at, &mut buf);
                (Io::Read(buf), result)
            }
            Io::Write(data) => {
                let result = match faulty {
                    true => fail_write(disk, at, &data, rng),
                    false => disk.write(at, &data),
                };
                (Io::Write(data), result)
            }
            Io::Flush => {
                disk.vanished |= faulty && rng.once_in(2);
                (Io::Flush, disk.flush(mark))
            }
        };
        Event::Io { op, io, failed: result.err() }
    }
}

/// A write that reports an error after some of its sectors; or the whole disk goes.
fn fail_write(disk: &mut Disk, at: Sectors, data: &Shared, rng: &mut Rng) -> Result<(), String> {
    let sectors = data.len() as u64 / 512;
    let done = rng.below(sectors + 1);
    disk.write(at, &data[..Sectors(done).len()])?;
    disk.vanished = rng.once_in(2);
    Err(format!("write error after {done} sectors"))
}

/// What each disk says, for whoever looks for a bug.
fn maps(candidates: &[Candidate]) -> String {
    let found = |c: &Candidate| c.sightings.iter().find_map(|s| s.record.as_ref().ok().cloned());
    let line = |c: &Candidate| match found(c) {
        Some(f) => format!(
            "{}: number {} events {} recovery {:?} roles {:?}\n",
            c.name, f.member.number, f.array.events, f.member.recovery, f.array.roles
        ),
        None => format!("{}: nothing\n", c.name),
    };
    candidates.iter().map(line).collect()
}

/// A disk as a device to examine.
fn snapshot((index, disk): (usize, &Arc<Disk>)) -> device::Shared {
    let facts = Facts::plain(format!("disk{index}"), disk.sectors());
    Arc::new(Snapshot { facts, disk: disk.clone() })
}

/// A disk that is only looked at.
struct Snapshot {
    facts: Facts,
    disk: Arc<Disk>,
}

impl Device for Snapshot {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read(&self, at: Sectors, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut from = at.len();
        for buf in bufs {
            let to = from + buf.len();
            let bytes = self.disk.bytes().get(from..to).ok_or(io::ErrorKind::UnexpectedEof)?;
            buf.copy_from_slice(bytes);
            from = to;
        }
        Ok(())
    }

    fn write(&self, _: Sectors, _: &[IoSlice<'_>]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: Sectors, _: Sectors) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What a disk holds after a replay of logs; nothing where none changed it.
fn changed(overlay: &MemoryOverlay) -> Option<Vec<u8>> {
    let mut bytes = vec![0; overlay.facts().sectors.len()];
    let is_read = !overlay.is_empty() && read_at(overlay, Sectors::ZERO, &mut bytes).is_ok();
    is_read.then_some(bytes)
}

/// Writes what a replay of logs changed to the disks, durably.
fn take_back(disks: &mut [Disk], replayed: Vec<Option<Vec<u8>>>) -> Result<(), Error> {
    const BLOCK: usize = 4096;
    for (disk, bytes) in disks.iter_mut().zip(replayed) {
        let Some(bytes) = bytes else { continue };
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            let at = index * BLOCK;
            if disk.bytes()[at..at + block.len()] != *block {
                let written = disk.write(Sectors::floor_bytes(at as u64), block);
                written.map_err(Error::invalid)?;
            }
        }
        disk.flush(disk.mark()).map_err(Error::invalid)?;
    }
    Ok(())
}
