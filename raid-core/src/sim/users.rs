//! Users of a simulated array: a few at once, each asks, waits for the reply, checks it, asks
//! again.

use super::oracle::Oracle;
use super::rng::Rng;
use super::world::World;
use crate::buf::Buf;
use crate::engine::{Ask, AskId, Keep, Manage, Outcome};
use crate::units::{SECTOR, Sectors};
use std::collections::BTreeMap;

/// Requests open at once.
const USERS: usize = 5;

/// What a user waits for.
enum Open {
    Read { at: u64, began: u64 },
    Write { at: u64, len: u64, number: u64 },
    Flush { number: u64 },
    Manage,
}

/// The users and what they know.
pub struct Users {
    open: BTreeMap<AskId, Open>,
    stamp: u64,
    /// Requests answered.
    pub done: u64,
    /// Changes of the devices that were done.
    pub changes: u64,
    /// Requests answered with an error that the level may give in its state.
    pub refused: u64,
}

impl Users {
    pub fn new() -> Users {
        Users { open: BTreeMap::new(), stamp: 0, done: 0, changes: 0, refused: 0 }
    }

    /// A crash: nobody gets an answer any more.
    pub fn forget(&mut self) {
        self.open.clear();
    }

    /// Lets users ask until `ops` more requests were answered; `Err` tells what was wrong.
    pub fn run(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        rng: &mut Rng,
        ops: u64,
    ) -> Result<(), String> {
        let until = self.done + ops;
        while self.done < until {
            while self.open.len() < USERS {
                self.ask(world, oracle, rng);
            }
            if !world.step(rng) && world.replies().is_empty() && !self.open.is_empty() {
                return Err(format!("{} requests hang", self.open.len()));
            }
            self.hear(world, oracle)?;
        }
        Ok(())
    }

    /// Lets everything open finish.
    pub fn settle(
        &mut self,
        world: &mut World,
        oracle: &mut Oracle,
        rng: &mut Rng,
    ) -> Result<(), String> {
        while world.step(rng) {
            self.hear(world, oracle)?;
        }
        self.hear(world, oracle)?;
        match self.open.is_empty() && world.is_idle() {
            true => Ok(()),
            false => Err(format!("{} requests hang at the end", self.open.len())),
        }
    }

    /// Asks for a change; it may be refused.
    pub fn manage(&mut self, world: &mut World, change: Manage, rng: &mut Rng) {
        let id = world.ask(Ask::Manage(change), rng);
        self.open.insert(id, Open::Manage);
    }

    fn ask(&mut self, world: &mut World, oracle: &mut Oracle, rng: &mut Rng) {
        let size = world.layout().shape().size.0;
        let width = world.layout().shape().data_units as u64 * 24;
        let at = rng.below(size);
        let len = (1 + rng.below(width.min(64))).min(size - at);
        match rng.below(20) {
            0..9 => {
                let buf = world.buffer(Sectors(len).len());
                let began = oracle.begin_read();
                let id = world.ask(Ask::Read { at: Sectors(at), buf }, rng);
                self.open.insert(id, Open::Read { at, began });
            }
            9..11 => {
                let number = oracle.flush();
                let id = world.ask(Ask::Flush, rng);
                self.open.insert(id, Open::Flush { number });
            }
            _ => self.write(world, oracle, rng, at, len),
        }
    }

    fn write(&mut self, world: &mut World, oracle: &mut Oracle, rng: &mut Rng, at: u64, len: u64) {
        self.stamp += 1;
        let mut data = vec![0; Sectors(len).len()];
        for (i, sector) in data.chunks_mut(SECTOR as usize).enumerate() {
            let mut fill = Rng::new(self.stamp << 20 | (at + i as u64));
            sector
                .chunks_mut(8)
                .for_each(|word| word.copy_from_slice(&fill.number().to_le_bytes()));
        }
        let keep = match rng.once_in(4) {
            true => self.keep(oracle, rng, at, &mut data),
            false => Keep::default(),
        };
        let number = oracle.write(at, &data);
        if keep != Keep::default() {
            // What is to be kept must come from the array, not from us.
            let tail = data.len() - keep.tail;
            data[..keep.head].fill(0xee);
            data[tail..].fill(0xee);
        }
        let data = Buf::copy_of(&data).freeze();
        let id = world.ask(Ask::Write { at: Sectors(at), data, keep }, rng);
        self.open.insert(id, Open::Write { at, len, number });
    }

    /// Bytes to keep at both ends, put into `data` as the oracle knows them; none where the
    /// oracle cannot know because of a write under way.
    fn keep(&self, oracle: &Oracle, rng: &mut Rng, at: u64, data: &mut [u8]) -> Keep {
        let len = data.len() as u64 / SECTOR;
        let (Some(first), Some(last)) = (oracle.only(at), oracle.only(at + len - 1)) else {
            return Keep::default();
        };
        let head = rng.below(SECTOR) as usize;
        let room = if len == 1 { SECTOR as usize - head } else { SECTOR as usize };
        let tail = rng.below(room as u64) as usize;
        data[..head].copy_from_slice(&first[..head]);
        let from = data.len() - tail;
        data[from..].copy_from_slice(&last[SECTOR as usize - tail..]);
        Keep { head, tail }
    }

    fn hear(&mut self, world: &mut World, oracle: &mut Oracle) -> Result<(), String> {
        for (id, outcome) in world.replies() {
            let open = self.open.remove(&id).ok_or("a reply nobody waits for")?;
            self.done += 1;
            match (open, outcome) {
                (Open::Read { at, began }, Outcome::Read(buf)) => {
                    oracle.check_read(at, &buf, began)?;
                }
                (Open::Write { at, len, number }, Outcome::Done) => oracle.acked(at, len, number),
                (Open::Flush { number }, Outcome::Done) => oracle.flushed(number),
                (Open::Manage, Outcome::Done) => self.changes += 1,
                (Open::Manage, Outcome::Failed(_)) => {}
                (_, Outcome::Failed(error)) => {
                    // The one refusal that is right: see the engine's eighth invariant.
                    if !error.to_string().contains("parity is not resynced here") {
                        let status = world.status();
                        let members = status.members.iter().flatten().chain(&status.others);
                        let states: Vec<String> = members
                            .map(|m| {
                                format!(
                                    "{} {:?} {:?} bad {:?}",
                                    m.name, m.device, m.state, m.record.bad_blocks
                                )
                            })
                            .collect();
                        return Err(format!(
                            "a request failed: {error}; {states:?}, doomed {:?}",
                            world.doomed
                        ));
                    }
                    self.refused += 1;
                }
                (_, outcome) => return Err(format!("the wrong kind of reply: {outcome:?}")),
            }
        }
        Ok(())
    }
}
