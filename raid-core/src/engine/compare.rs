//! Comparing redundancy with data, and counting as md does.

use super::cells::Work;
use crate::buf::Pool;
use crate::plan::Units;

/// Bytes of a row of parity: md works in pages (`RAID5_STRIPE_SECTORS`).
const ROW: usize = 4096;

/// Bytes of a window of copies: md compares so much at once (`RESYNC_BLOCK_SIZE`).
const WINDOW: usize = 64 << 10;

/// Sectors counted as mismatched where `a` and `b` differ, in windows of `window` bytes.
fn mismatched(a: &[u8], b: &[u8], window: usize) -> u64 {
    let pairs = a.chunks(window).zip(b.chunks(window));
    pairs.filter(|(a, b)| a != b).map(|(a, _)| a.len() as u64 / 512).sum()
}

impl Work {
    /// Compares what was read; leaves in the cells what a repair would write, or nothing where
    /// all agree. `source`: the copy that is right by definition.
    pub(super) fn compare(&mut self, source: u16, pool: &Pool) {
        let has_parity = self.units.iter().any(|u| u.role.is_parity());
        self.mismatches = match has_parity {
            true => self.compare_parity(pool),
            false => self.compare_copies(source as usize),
        };
    }

    /// Every copy that differs counts, as in raid1.c and raid10.c.
    fn compare_copies(&mut self, source: usize) -> u64 {
        let kept = self.cells.old[source].take().expect("the source was read");
        let others = self.cells.old.iter_mut().filter_map(Option::take);
        let mismatches = others.map(|copy| mismatched(&kept, &copy, WINDOW)).sum();
        self.cells.old[source] = Some(kept);
        mismatches
    }

    /// A row counts once, whether P or Q or both are wrong, as in raid5.c.
    fn compare_parity(&mut self, pool: &Pool) -> u64 {
        let parity: Units = (0..self.units.len() as u16)
            .filter(|&u| self.units[u as usize].role.is_parity())
            .collect();
        let stored: Vec<_> =
            parity.iter().map(|&u| (u as usize, self.cells.old[u as usize].take())).collect();
        self.encode(&parity, pool);
        let made = |unit: usize| self.cells.new[unit].as_deref().expect("parity was just made");
        let pairs: Vec<(&[u8], &[u8])> = stored
            .iter()
            .map(|(unit, old)| (old.as_deref().expect("parity was read"), made(*unit)))
            .collect();
        let rows = (0..self.len.div_ceil(ROW)).map(|row| {
            let (from, to) = (row * ROW, self.len.min((row + 1) * ROW));
            let differs = pairs.iter().any(|(old, new)| old[from..to] != new[from..to]);
            if differs { (to - from) as u64 / 512 } else { 0 }
        });
        rows.sum()
    }
}
