//! From devices to a running array, and from a plan to a new one: where metadata meets devices.
//!
//! [`examine`] looks, [`decide`] chooses (see [`crate::meta::assemble`]), [`start`] runs;
//! [`make`] writes what [`crate::meta::create`] planned; [`join`](join()) brings a device into a
//! running array; [`byte_order`] rewrites superblocks when asked. Looking never writes. What a
//! crash left in a partial parity log or a journal is replayed before an array runs ([`Replayed`]).

mod bitmap;
pub mod byte_order;
mod grow;
mod join;
mod make;
mod replay;
mod start;

pub use grow::{add_bitmap, remove_bitmap};
pub use join::{Back, JoinOptions, Joined, join};
pub use make::{Content, content, data_is_zero, holds_data, make};
pub use replay::Replayed;
pub(crate) use start::check_room;
pub use start::{StartOptions, setup, start};

use crate::device::{Device, read_at};
use crate::error::{Error, Result};
use crate::layout::{self, Layout, Params};
use crate::meta::assemble::{Assembly, Candidate, Options, assemble};
use crate::meta::record::ArrayRecord;
use crate::meta::{self, enough};
use crate::units::{Sectors, Slot, SlotSet};

/// All superblocks on `device`, as a candidate for assembly.
pub fn examine(device: &dyn Device) -> Result<Candidate> {
    let facts = device.facts();
    let mut window = |at: Sectors, buf: &mut [u8]| read_at(device, at, buf);
    let sightings = meta::probe(facts.sectors, &mut window)
        .map_err(|error| error.context(format!("examining {}", facts.name)))?;
    Ok(Candidate { name: facts.name.clone(), sectors: facts.sectors, sightings })
}

/// Decides which candidates serve; the failures a layout survives are those it really survives.
pub fn decide(candidates: &[Candidate], options: &Options) -> Result<Assembly> {
    assemble(candidates, options, &survives).map_err(Error::from)
}

/// True if all data of `array` can be served without the `missing` slots.
pub fn survives(array: &ArrayRecord, missing: &SlotSet) -> bool {
    match layout_of(array, &[]) {
        Ok(layout) => layout.survives(missing),
        Err(_) => {
            let all = (0..array.slots).map(Slot);
            let present: SlotSet = all.filter(|slot| !missing.contains(*slot)).collect();
            enough(array.level, array.layout, array.slots, &present)
        }
    }
}

/// The layout of `array`; `lens` are the data lengths of its members by slot, which only the
/// levels without redundancy look at.
pub fn layout_of(array: &ArrayRecord, lens: &[Sectors]) -> Result<Box<dyn Layout>> {
    let params = Params {
        layout: array.layout,
        chunk: array.chunk,
        slots: array.slots,
        component: array.component,
        members: lens.to_vec(),
    };
    layout::make(array.level, &params)
}
