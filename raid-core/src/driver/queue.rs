//! What waits to be done, and doing a batch of it.

use crate::buf::Pool;
use crate::device;
use crate::engine::{Action, Event, Io, OpId};
use crate::units::Sectors;
use std::io::{IoSlice, IoSliceMut};

/// Actions of a batch, without replies and wakes (those the driver handles at once).
pub(super) type Batch = Vec<Action>;

/// Does everything in `batch`; one event an action, in any order.
pub(super) fn perform(
    batch: Batch,
    devices: &[Option<device::Shared>],
    pool: &Pool,
    events: &mut Vec<Event>,
) {
    for action in batch {
        match action {
            Action::Compute(op, mut work) => {
                work.perform(pool);
                events.push(Event::Computed(op, work));
            }
            Action::Io { op, slot, at, io } => {
                let device = devices[slot.index()].as_ref();
                events.push(member_io(device.expect("a live slot has a device"), op, at, io));
            }
            Action::Reply(..) | Action::Wake(_) => panic!("replies and wakes are not batched"),
        }
    }
}

fn member_io(device: &device::Shared, op: OpId, at: Sectors, io: Io) -> Event {
    let (io, result) = match io {
        Io::Read(mut buf) => {
            let result = device.read(at, &mut [IoSliceMut::new(&mut buf)]);
            (Io::Read(buf), result)
        }
        Io::Write(data) => {
            let result = device.write(at, &[IoSlice::new(&data)]);
            (Io::Write(data), result)
        }
        Io::Flush => (Io::Flush, device.flush()),
    };
    Event::Io { op, io, failed: result.err().map(|e| e.to_string()) }
}
