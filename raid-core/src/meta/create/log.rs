//! What a new array's log needs: a partial parity log on its members, or a write journal.

use super::{NewMember, Request, old};
use crate::error::{Error, Result};
use crate::meta::md_journal::{self, Meta, Seed};
use crate::meta::record::{ArrayRecord, MemberRecord};
use crate::meta::{Placed, md_ppl};
use crate::units::{Sectors, Slot};

/// The kernel keeps partial parity for so many members.
const PPL_SLOTS_MAX: usize = 64;

/// A log to be: what keeps parity right through a crash.
#[derive(Clone, Debug)]
pub enum NewLog {
    /// A partial parity log on the members themselves; RAID 5 only.
    Ppl,
    /// A write journal on a device of its own; RAID 4, 5 and 6.
    Journal(NewMember),
}

/// What mdadm and the kernel ask of an array with a log.
pub(super) fn check(request: &Request) -> Result<()> {
    let fault = match (&request.log, request.level) {
        (None, _) => return Ok(()),
        (Some(_), _) if old::is(request.format) => {
            "metadata 0.90 has no place for a log; choose --metadata 1.2"
        }
        (Some(_), _) if request.bitmap.is_some() => {
            "a log and a bitmap exclude each other; leave out --bitmap"
        }
        (Some(NewLog::Ppl), 5) if request.members.len() > PPL_SLOTS_MAX => {
            "a partial parity log serves at most 64 members; leave out --consistency-policy"
        }
        (Some(NewLog::Ppl), 5) | (Some(NewLog::Journal(_)), 4..=6) => return Ok(()),
        (Some(NewLog::Ppl), _) => {
            "only RAID 5 keeps a partial parity log; leave out --consistency-policy"
        }
        (Some(NewLog::Journal(_)), _) => {
            "only RAID 4, 5 and 6 have a write journal; leave out --write-journal"
        }
    };
    Err(Error::invalid(fault))
}

/// With a log parity must be known to be right: the last member is rebuilt from the others.
pub(super) fn recovery(request: &Request, slot: Slot) -> Option<Sectors> {
    let is_known = request.assume_clean || request.zeroed || request.level == 6;
    let is_last = slot.index() + 1 == request.members.len();
    let is_rebuilt = request.log.is_some() && !is_known && is_last;
    (is_rebuilt && request.members.iter().all(Option::is_some)).then_some(Sectors::ZERO)
}

/// An empty log: the whole area of partial parity, or the first block of the journal.
pub(super) fn first(array: &ArrayRecord, member: &MemberRecord) -> Option<Placed> {
    if let Some(area) = member.ppl {
        let mut bytes = md_ppl::empty(&array.uuid, 0);
        bytes.resize(area.len.len(), 0);
        return Some((area.at, bytes));
    }
    member.journal_tail.map(|tail| {
        let seq = md_journal::fresh_seq(&member.device_uuid, array.ctime);
        let block = md_journal::emit(&Meta::empty(seq, tail), Seed::of(&array.uuid));
        (member.data_at + tail, block)
    })
}
