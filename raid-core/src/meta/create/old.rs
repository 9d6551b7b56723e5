//! What is different when a new array gets metadata 0.90.
//!
//! mdadm 4.2 makes no RAID 0 of it at all, since it cannot record the order of zones; members of
//! one size have one zone, so that there is nothing to record.

use super::{Request, place};
use crate::error::{Error, Result};
use crate::meta::Format;
use crate::meta::md0::{COMPONENT_END, DEVICES_MAX, V0_90};
use crate::units::Sectors;

/// True for metadata 0.90.
pub fn is(format: &Format) -> bool {
    format.name == V0_90.name
}

/// Refuses what 0.90 has no words for.
pub fn check(request: &Request, chunk: Sectors) -> Result<()> {
    if !is(request.format) {
        return Ok(());
    }
    let fault = if !request.name.is_empty() {
        "metadata 0.90 has no place for a name; leave out --name"
    } else if request.level == 0 && request.layout.is_some() {
        "metadata 0.90 cannot record the layout of a raid0; leave out --layout or choose \
         --metadata 1.2"
    } else if request.level == 0 && !is_one_zone(request, chunk)? {
        "metadata 0.90 cannot record the layout of a raid0 whose members differ in size, and the \
         kernel would not start it; give members of one size or choose --metadata 1.2"
    } else {
        return Ok(());
    };
    Err(Error::invalid(fault))
}

/// Refuses a component that the size word does not hold.
pub fn check_component(request: &Request, component: Sectors) -> Result<()> {
    match is(request.format) && component >= COMPONENT_END {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "metadata 0.90 records less than 4 TiB of each member, but {} KiB would be used; \
             choose --metadata 1.2, or give a smaller --size",
            component.0 / 2
        ))),
    }
}

/// Devices an array may have.
pub fn members_max(format: &Format, otherwise: u32) -> u32 {
    if is(format) { DEVICES_MAX } else { otherwise }
}

/// True if all members give equally many chunks.
fn is_one_zone(request: &Request, chunk: Sectors) -> Result<bool> {
    let mut first = None;
    for member in request.members.iter().flatten() {
        let room = place::room(request, member.sectors, Sectors::ZERO)?.round_down(chunk);
        if *first.get_or_insert(room) != room {
            return Ok(false);
        }
    }
    Ok(true)
}
