//! What a log is told of a write.

use super::Flight;
use crate::engine::log;
use crate::layout::Role;
use crate::meta::md_ppl::Entry;
use crate::plan::Band;

impl Flight {
    /// What a partial parity log says of this write, with the partial parity: none where every
    /// data unit is written.
    pub fn log_entry(&self) -> (Entry, &[u8]) {
        let Band { stripe, first, last, .. } = &self.band;
        let partial = self.cells.partial.as_deref().unwrap_or_default();
        let data = self.band.height().times((last - first + 1).into());
        let p = stripe.units.iter().find(|u| u.role == Role::P);
        let slot = p.expect("only stripes with parity are logged").slot;
        (log::entry(self.band.array_at(*first), data, slot, partial), partial)
    }

    /// What `unit` will hold, where that is known by now.
    pub fn new_content(&self, unit: u16) -> Option<&[u8]> {
        self.cells.new[unit as usize].as_deref()
    }

    /// True if every data unit of the stripe is written.
    pub(super) fn is_full(&self) -> bool {
        (self.band.last - self.band.first + 1) as usize == self.band.stripe.data().count()
    }
}
