//! What waits to be done, and doing a batch of it.

use super::batch::{Executor, MemberIo, Verb};
use crate::buf::Pool;
use crate::device;
use crate::engine::{Action, Event, Io, OpId};
use smallvec::SmallVec;

/// Actions of a batch, without replies and wakes (those the driver handles at once).
pub(super) type Batch = Vec<Action>;

/// Does everything in `batch`: parity work in this thread, member I/O through `executor`.
/// One event an action, in any order.
pub(super) fn perform(
    batch: Batch,
    devices: &[Option<device::Shared>],
    executor: &dyn Executor,
    pool: &Pool,
    events: &mut Vec<Event>,
) {
    let mut ops: SmallVec<[OpId; 8]> = SmallVec::new();
    let mut ios: SmallVec<[MemberIo; 8]> = SmallVec::new();
    for action in batch {
        match action {
            Action::Compute(op, mut work) => {
                work.perform(pool);
                events.push(Event::Computed(op, work));
            }
            Action::Io { op, device, at, io, .. } => {
                ops.push(op);
                ios.push(match io {
                    Io::Read(buf) => MemberIo::read(device.0, at, [buf]),
                    Io::Write(data) => MemberIo::write(device.0, at, [data]),
                    Io::Flush => MemberIo::flush(device.0),
                });
            }
            Action::Reply(..) | Action::Wake(_) => panic!("replies and wakes are not batched"),
        }
    }
    if ios.is_empty() {
        return;
    }
    let results = executor.run(devices, &mut ios);
    for ((op, io), result) in ops.into_iter().zip(ios).zip(results) {
        let io = match io.verb {
            Verb::Read(mut bufs) => Io::Read(bufs.pop().expect("the buffer comes back")),
            Verb::Write(mut views) => Io::Write(views.pop().expect("the view comes back")),
            Verb::Flush => Io::Flush,
        };
        events.push(Event::Io { op, io, failed: result.err().map(|e| e.to_string()) });
    }
}
