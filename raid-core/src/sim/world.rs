//! Virtual time: a heap of completions around one engine and its disks.

use super::disk::Disk;
use super::rng::Rng;
use crate::buf::{Pool, Shared};
use crate::engine::{Action, Actions, Ask, AskId, Engine, Event, Io, Member, OpId, Outcome, Setup};
use crate::engine::{DeviceId, State, Status};
use crate::layout::{self, Layout, Params};
use crate::meta::md1;
use crate::meta::record::{ArrayRecord, DeviceRole};
use crate::meta::{Format, Found};
use crate::time::Instant;
use crate::units::{Sectors, Slot};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member is slow by up to this much per operation, in nanoseconds.
const LATENCY_MAX: u64 = 2_000_000;

/// What will happen at some time.
enum Coming {
    Io { op: OpId, slot: Slot, at: Sectors, io: Io, mark: u64 },
    Computed(OpId, Box<crate::engine::Work>),
    Tick,
}

/// One array on virtual time.
pub struct World {
    engine: Engine,
    layout: Arc<dyn Layout>,
    /// The members by slot, whatever their state.
    pub disks: Vec<Disk>,
    /// One in so many operations of a doomed slot fails; zero: none.
    pub fault_rate: u64,
    /// The slots whose operations may fail.
    pub doomed: Vec<Slot>,
    pool: Pool,
    now: Instant,
    count: u64,
    coming: BTreeMap<(Instant, u64), Coming>,
    replies: Vec<(AskId, Outcome)>,
    ask_next: AskId,
}

impl World {
    /// Starts the array whose superblocks are on `disks`, as of `now`.
    pub fn start(disks: Vec<Disk>, read_only: bool, now: Instant) -> Result<World, String> {
        let (array, members, uneven) = assemble(&disks)?;
        let layout = layout_of(&array, &members)?;
        let pool = Pool::new(0);
        let mut actions = Actions::new();
        let setup = Setup {
            layout: layout.clone(),
            array,
            members,
            replacements: Vec::new(),
            spares: Vec::new(),
            bitmap: None,
            emit: md1::V1_2.emit,
            uneven,
            read_only,
            trust_unsynced: false,
            pool: pool.clone(),
            now,
        };
        let engine = Engine::new(setup, &mut actions);
        let mut world = World {
            engine,
            layout,
            disks,
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
            Coming::Io { op, slot, at, io, mark } => self.complete(op, slot, at, io, mark, rng),
        };
        let mut actions = Actions::new();
        self.engine.step(self.now, event, &mut actions);
        self.take(actions, rng);
        true
    }

    /// The power goes and comes back: the disks as they are found then.
    pub fn crash(mut self, rng: &mut Rng) -> Vec<Disk> {
        let mut in_flight: Vec<Vec<(Sectors, Vec<u8>)>> = vec![Vec::new(); self.disks.len()];
        for coming in std::mem::take(&mut self.coming).into_values() {
            if let Coming::Io { slot, at, io: Io::Write(data), .. } = coming {
                in_flight[slot.index()].push((at, data.to_vec()));
            }
        }
        for (disk, writes) in self.disks.iter_mut().zip(in_flight) {
            let writes = if disk.vanished { Vec::new() } else { writes };
            disk.crash(writes, rng);
        }
        self.disks
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
                    let slot = Slot(device.0 as u16);
                    let mark = self.disks[slot.index()].mark();
                    (rng.below(LATENCY_MAX), Coming::Io { op, slot, at, io, mark })
                }
            };
            self.count += 1;
            self.coming.insert((Instant(self.now.0 + after), self.count), coming);
        }
    }

    fn complete(
        &mut self,
        op: OpId,
        slot: Slot,
        at: Sectors,
        io: Io,
        mark: u64,
        rng: &mut Rng,
    ) -> Event {
        let faulty =
            self.fault_rate > 0 && self.doomed.contains(&slot) && rng.once_in(self.fault_rate);
        let disk = &mut self.disks[slot.index()];
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

/// Reads the superblocks and puts the members in their slots.
fn assemble(disks: &[Disk]) -> Result<(ArrayRecord, Vec<Option<Member>>, bool), String> {
    let format: &Format = &md1::V1_2;
    let mut found: Vec<(String, Found)> = Vec::new();
    for (i, disk) in disks.iter().enumerate() {
        let at = (format.super_at)(disk.sectors()).expect("simulated disks are large enough");
        let bytes = &disk.bytes()[at.len()..at.len() + 4096];
        match (format.parse)(bytes, at, disk.sectors()) {
            Ok(record) => found.push((format!("disk{i}"), record)),
            // A torn superblock: the member is out, as the kernel would have it.
            Err(_) => continue,
        }
    }
    let freshest = found.iter().max_by_key(|(_, f)| f.array.events).ok_or("no superblock")?;
    let array = freshest.1.array.clone();
    let mut members: Vec<Option<Member>> = vec![None; array.slots as usize];
    let mut uneven = false;
    for (name, found) in found {
        let fresh = found.array.events + 1 >= array.events;
        let role = array.role(found.member.number);
        if let (true, DeviceRole::Active(slot)) = (fresh, role) {
            let state = match found.member.recovery {
                Some(at) => State::Recovering(at),
                None => State::InSync,
            };
            uneven |= found.array.events != array.events;
            let device = DeviceId(slot.index());
            let member = Member::new(device, name, found.member, state);
            members[slot.index()] = Some(member);
        }
    }
    Ok((array, members, uneven))
}

fn layout_of(array: &ArrayRecord, members: &[Option<Member>]) -> Result<Arc<dyn Layout>, String> {
    let lens = members.iter().map(|m| m.as_ref().map_or(Sectors(0), |m| m.record.data_len));
    let params = Params {
        layout: array.layout,
        chunk: array.chunk,
        slots: array.slots,
        component: array.component,
        members: lens.collect(),
    };
    layout::make(array.level, &params).map(Arc::from).map_err(|e| e.to_string())
}
