//! The only definition of correctness: for every array sector, the contents it may have.
//!
//! A content stays possible until another one, issued after it was acknowledged, is acknowledged
//! (for readers), or is covered by an acknowledged flush (for what a crash may leave).

use crate::units::SECTOR;

/// What every sector may hold.
#[derive(Clone, Debug)]
pub struct Oracle {
    sectors: Vec<Vec<Entry>>,
    clock: u64,
}

#[derive(Clone, Debug)]
struct Entry {
    content: Box<[u8]>,
    issued: u64,
    acked: Option<u64>,
    durable: bool,
    /// Since when it is impossible for new reads and after a crash; a read that began earlier may
    /// still return it.
    gone: Option<u64>,
}

/// A content that is gone is forgotten after so many ticks: far longer than a read is open.
const MEMORY: u64 = 10_000;

impl Oracle {
    /// `sectors` durable zero sectors.
    pub fn new(sectors: u64) -> Oracle {
        let zero = Entry {
            content: vec![0; SECTOR as usize].into(),
            issued: 0,
            acked: Some(0),
            durable: true,
            gone: None,
        };
        Oracle { sectors: vec![vec![zero]; sectors as usize], clock: 0 }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// A write of whole sectors begins; the number names it in [`Oracle::acked`].
    pub fn write(&mut self, at: u64, data: &[u8]) -> u64 {
        let issued = self.tick();
        for (i, content) in data.chunks(SECTOR as usize).enumerate() {
            let entry =
                Entry { content: content.into(), issued, acked: None, durable: false, gone: None };
            self.sectors[at as usize + i].push(entry);
        }
        issued
    }

    /// The write `number` of `len` sectors at `at` was acknowledged.
    pub fn acked(&mut self, at: u64, len: u64, number: u64) {
        let now = self.tick();
        for sector in &mut self.sectors[at as usize..(at + len) as usize] {
            let entry = sector.iter_mut().find(|e| e.issued == number);
            entry.expect("an open write is in the list").acked = Some(now);
            prune(sector, now);
        }
    }

    /// A flush begins: what it covers is known by this number.
    pub fn flush(&mut self) -> u64 {
        self.tick()
    }

    /// The flush `number` was acknowledged.
    pub fn flushed(&mut self, number: u64) {
        let now = self.tick();
        for sector in &mut self.sectors {
            for entry in sector.iter_mut() {
                entry.durable |= entry.acked.is_some_and(|a| a < number);
            }
            prune(sector, now);
        }
    }

    /// The one content of `sector`, if only one is possible.
    pub fn only(&self, sector: u64) -> Option<&[u8]> {
        let mut left = self.sectors[sector as usize].iter().filter(|e| e.gone.is_none());
        let first = left.next()?;
        left.next().is_none().then_some(&first.content)
    }

    /// The contents a read that begins now may see, to be compared when it ends.
    pub fn begin_read(&mut self) -> u64 {
        self.tick()
    }

    /// Checks what a read that began at `began` returned. Says what is wrong in words.
    pub fn check_read(&self, at: u64, data: &[u8], began: u64) -> Result<(), String> {
        for (i, content) in data.chunks(SECTOR as usize).enumerate() {
            let entries = &self.sectors[at as usize + i];
            let possible = |e: &Entry| {
                // Void if something issued after its acknowledgement was acknowledged before us.
                let by = |f: &Entry| {
                    f.acked.is_some_and(|a| a < began) && e.acked.is_some_and(|a| a < f.issued)
                };
                !entries.iter().any(by)
            };
            if !entries.iter().any(|e| *e.content == *content && possible(e)) {
                return Err(self.complain(at + i as u64, content));
            }
        }
        Ok(())
    }

    /// Checks what a crash left.
    pub fn check_crash(&self, at: u64, data: &[u8]) -> Result<(), String> {
        for (i, content) in data.chunks(SECTOR as usize).enumerate() {
            let entries = &self.sectors[at as usize + i];
            if !entries.iter().any(|e| e.gone.is_none() && *e.content == *content) {
                return Err(self.complain(at + i as u64, content));
            }
        }
        Ok(())
    }

    /// Checks what a crash left where a member was lost with it: all that was not being written.
    pub fn check_hole(&self, at: u64, data: &[u8]) -> Result<(), String> {
        for (i, content) in data.chunks(SECTOR as usize).enumerate() {
            let sector = at + i as u64;
            if self.only(sector).is_some_and(|only| only != content) {
                return Err(self.complain(sector, content));
            }
        }
        Ok(())
    }

    /// The power was cut and came back: what may be left may be read from now on, and stays so
    /// until something newer is written or the resync settles it.
    pub fn crashed(&mut self) {
        let now = self.tick();
        for sector in &mut self.sectors {
            sector.retain(|e| e.gone.is_none());
            for entry in sector.iter_mut() {
                (entry.issued, entry.acked, entry.durable) = (now, Some(now), true);
            }
        }
    }

    /// After a crash and a complete resync: `data` is what the array holds, for good.
    pub fn settle(&mut self, data: &[u8]) {
        for (sector, content) in self.sectors.iter_mut().zip(data.chunks(SECTOR as usize)) {
            sector.clear();
            sector.push(Entry {
                content: content.into(),
                issued: 0,
                acked: Some(0),
                durable: true,
                gone: None,
            });
        }
    }

    fn complain(&self, sector: u64, content: &[u8]) -> String {
        let short = |c: &[u8]| format!("{:02x?}", &c[..8]);
        let entries = self.sectors[sector as usize].iter().map(|e| {
            let content = short(&e.content);
            format!("{content} issued {} acked {:?} durable {}", e.issued, e.acked, e.durable)
        });
        let entries: Vec<String> = entries.collect();
        format!("array sector {sector} holds {}, possible are: {entries:#?}", short(content))
    }
}

/// Marks contents that can neither be read by a new read nor be left by a crash any more, and
/// forgets those that are long gone.
fn prune(sector: &mut Vec<Entry>, now: u64) {
    for i in 0..sector.len() {
        let Some(acked) = sector[i].acked else { continue };
        let superseded = sector.iter().any(|f| f.durable && acked < f.issued);
        if superseded && sector[i].gone.is_none() {
            sector[i].gone = Some(now);
        }
    }
    sector.retain(|e| e.gone.is_none_or(|gone| gone + MEMORY > now));
}
