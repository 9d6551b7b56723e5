//! The bytes of a flight, and the parity work on them that a driver does outside the engine.

use crate::buf::{Buf, Pool, Shared};
use crate::code;
use crate::layout::{Role, Stripe, Unit};
use crate::plan::Units;
use smallvec::SmallVec;

/// Content of the units of one band, in the order of the stripe's units.
#[derive(Debug, Default)]
pub struct Cells {
    /// What the members hold, as far as it was read or solved.
    pub old: SmallVec<[Option<Buf>; 8]>,
    /// What shall be written.
    pub new: SmallVec<[Option<Shared>; 8]>,
    /// What the data units that are not written come to, where a log must know.
    pub partial: Option<Buf>,
}

impl Cells {
    pub(super) fn empty(units: usize) -> Cells {
        Cells {
            old: std::iter::repeat_with(|| None).take(units).collect(),
            new: std::iter::repeat_with(|| None).take(units).collect(),
            partial: None,
        }
    }

    /// The content unit `unit` has once everything is written.
    fn content(&self, unit: usize) -> &[u8] {
        match (&self.new[unit], &self.old[unit]) {
            (Some(new), _) => new,
            (None, Some(old)) => old,
            (None, None) => panic!("unit {unit} was neither read nor given"),
        }
    }
}

/// A piece of parity work.
#[derive(Debug)]
pub(super) enum Task {
    /// Fill `old` of these lost data units.
    Solve(Units),
    /// Make `new` of these parity units from all data.
    Encode(Units),
    /// Make `new` of these parity units from their `old` and the change of these data units.
    Update { parity: Units, data: Units },
    /// Make `partial`: what is left of this new parity without these new data units.
    Partial { parity: Units, data: Units },
    /// Compare parity with data, or copies with this one.
    Compare { source: u16 },
}

/// Cells on their way through a driver: [`Work::perform`], then give it back to the engine.
#[derive(Debug)]
pub struct Work {
    pub(super) task: Task,
    pub(super) units: SmallVec<[Unit; 8]>,
    pub(super) cells: Cells,
    pub(super) len: usize,
    /// Sectors that did not agree, counted as md counts them.
    pub(super) mismatches: u64,
    /// Nobody waits for it: work of a job.
    pub background: bool,
}

impl Work {
    pub(super) fn new(task: Task, stripe: &Stripe, cells: Cells, len: usize) -> Box<Work> {
        let (units, mismatches, background) = (stripe.units.clone(), 0, false);
        Box::new(Work { task, units, cells, len, mismatches, background })
    }

    /// Does the work, with scratch memory from `pool`. Pure computation; needs no lock.
    pub fn perform(&mut self, pool: &Pool) {
        match std::mem::replace(&mut self.task, Task::Solve(Units::new())) {
            Task::Solve(lost) => self.solve(&lost, pool),
            Task::Encode(parity) => self.encode(&parity, pool),
            Task::Update { parity, data } => self.update(&parity, &data),
            Task::Partial { parity, data } => self.partial(&parity, &data, pool),
            Task::Compare { source } => self.compare(source, pool),
        }
    }

    /// `content` of the data units by their power in Q; `None` for lost ones and where the order
    /// of powers has holes.
    fn by_power<'a>(
        &'a self,
        lost: &[u16],
        content: impl Fn(usize) -> &'a [u8],
    ) -> Vec<Option<&'a [u8]>> {
        let data = self.units.iter().enumerate().filter(|(_, u)| matches!(u.role, Role::Data(_)));
        let top = data.clone().map(|(i, _)| self.power(i)).max().expect("a stripe has data");
        let mut table = vec![None; top + 1];
        for (i, _) in data.filter(|(i, _)| !lost.contains(&(*i as u16))) {
            table[self.power(i)] = Some(content(i));
        }
        table
    }

    /// The exponent of data unit `unit` in Q; where there is no Q, any distinct number does.
    fn power(&self, unit: usize) -> usize {
        match self.units.last().map(|u| u.role) {
            Some(Role::Q) => self.units[unit].power as usize,
            _ => unit,
        }
    }

    fn unit_of(&self, role: Role) -> Option<usize> {
        self.units.iter().position(|u| u.role == role)
    }

    pub(super) fn encode(&mut self, parity: &[u16], pool: &Pool) {
        let mut p = self.wanted(Role::P, parity).map(|_| pool.take(self.len));
        let mut q = self.wanted(Role::Q, parity).map(|_| pool.take(self.len));
        let data = self.by_power(&[], |i| self.cells.content(i));
        match (&mut p, &mut q) {
            (Some(p), Some(q)) => code::pq(&data, p, q),
            (Some(p), None) => code::xor(&data.iter().flatten().copied().collect::<Vec<_>>(), p),
            (None, Some(q)) => code::q(&data, q),
            (None, None) => {}
        }
        self.put(Role::P, p);
        self.put(Role::Q, q);
    }

    fn wanted(&self, role: Role, units: &[u16]) -> Option<usize> {
        self.unit_of(role).filter(|&i| units.contains(&(i as u16)))
    }

    fn put(&mut self, role: Role, buf: Option<Buf>) {
        if let Some(buf) = buf {
            let unit = self.unit_of(role).expect("a parity that was asked for exists");
            self.cells.new[unit] = Some(buf.freeze());
        }
    }

    fn update(&mut self, parity: &[u16], data: &[u16]) {
        let mut take = |role| {
            let unit = self.wanted(role, parity)?;
            Some(self.cells.old[unit].take().expect("old parity was read"))
        };
        let (mut p, mut q) = (take(Role::P), take(Role::Q));
        for &unit in data {
            let unit = unit as usize;
            let old = self.cells.old[unit].as_deref().expect("old data was read");
            let new = self.cells.new[unit].as_deref().expect("new data was given");
            let power = self.units[unit].power;
            match (&mut p, &mut q) {
                (Some(p), Some(q)) => code::update_pq(old, new, power, p, q),
                (Some(p), None) => code::update_p(old, new, p),
                (None, Some(q)) => code::update_q(old, new, power, q),
                (None, None) => {}
            }
        }
        self.put(Role::P, p);
        self.put(Role::Q, q);
    }

    fn partial(&mut self, parity: &[u16], data: &[u16], pool: &Pool) {
        let new = |unit: &u16| self.cells.new[*unit as usize].as_deref();
        let sources: SmallVec<[&[u8]; 8]> = (parity.iter().chain(data))
            .map(|unit| new(unit).expect("new parity was made of new data"))
            .collect();
        let mut partial = pool.take(self.len);
        code::xor(&sources, &mut partial);
        self.cells.partial = Some(partial);
    }

    fn solve(&mut self, lost: &[u16], pool: &Pool) {
        let mut outs: SmallVec<[Buf; 2]> = SmallVec::new();
        for &unit in lost {
            // The place a wanted unit is to be solved into waits in its cell.
            let out = self.cells.old[unit as usize].take();
            outs.push(out.unwrap_or_else(|| pool.take(self.len)));
        }
        let known = |role| self.unit_of(role).and_then(|i| self.cells.old[i].as_deref());
        let old = |i: usize| self.cells.old[i].as_deref().expect("known data was read");
        let data = self.by_power(lost, old);
        let power = |unit: u16| self.power(unit as usize);
        match (lost, &mut outs[..], known(Role::P), known(Role::Q)) {
            ([_], [out], Some(p), _) => {
                let mut sources: Vec<&[u8]> = data.iter().flatten().copied().collect();
                sources.push(p);
                code::xor(&sources, out);
            }
            ([x], [out], None, Some(q)) => code::rec_data_q(&data, power(*x), q, out),
            ([x, y], [a, b], Some(p), Some(q)) => match power(*x) < power(*y) {
                true => code::rec_two(&data, power(*x), power(*y), p, q, a, b),
                false => code::rec_two(&data, power(*y), power(*x), p, q, b, a),
            },
            _ => panic!("a plan solves only what its parity can: {lost:?}"),
        }
        for (&unit, out) in lost.iter().zip(outs) {
            self.cells.old[unit as usize] = Some(out);
        }
    }
}
