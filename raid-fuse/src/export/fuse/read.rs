//! Reads of the volume: with memory where the bytes lie, or with a copy of them.

use super::Front;
use crate::export::connection::LENT_MIN;
use crate::export::scratch;
use fuser::{Errno, ReplyData, RequestId};
use raid_core::device::Lent;

impl Front {
    /// Answers a read of the volume.
    pub(super) fn read_volume(&self, unique: RequestId, at: u64, size: u32, reply: ReplyData) {
        let end = at.saturating_add(u64::from(size)).min(self.size);
        if at >= end {
            return reply.data(&[]);
        }
        let len = (end - at) as usize;
        if len >= LENT_MIN && self.lend(unique, at, len) {
            // Used up without effect: the kernel has its answer and knows the request no more.
            return reply.error(Errno::EIO);
        }
        scratch::with(&*self.volume, len, |buf| {
            let what = || format!("read of {len} bytes at {at}");
            match self.ask(what, || self.volume.read(at, buf)) {
                Ok(()) => reply.data(buf),
                Err(errno) => reply.error(errno),
            }
        });
    }

    /// Answers a read with what lies in memory already; false: nothing was answered.
    fn lend(&self, unique: RequestId, at: u64, len: usize) -> bool {
        let Some(connection) = &self.connection else { return false };
        let mut give = |places: &[Lent]| connection.reply(unique.0, places);
        let what = || format!("read of {len} bytes at {at}");
        self.ask(what, || Ok(self.volume.lend(at, len, &mut give))).unwrap_or(false)
    }
}
