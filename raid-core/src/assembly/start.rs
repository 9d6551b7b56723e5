//! Starting what was decided.

use super::{bitmap, layout_of};
use crate::buf::Pool;
use crate::device;
use crate::driver::{self, Array};
use crate::engine::{Member, Setup, State};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::meta::assemble::{Assembly, SeatState};
use crate::time::Instant;
use crate::units::Sectors;
use std::sync::Arc;

/// Memory set aside for requests in flight: 32 of 1 MiB with their parity. Beyond it the heap is
/// used, so this is no limit.
const ARENA: usize = 64 << 20;

/// How to start.
#[derive(Clone, Debug, Default)]
pub struct StartOptions {
    /// Never write, whatever the assembly allows.
    pub read_only: bool,
    /// The RAID 0 order to use where the superblock does not say.
    pub raid0_layout: Option<u32>,
    /// How to run it.
    pub driver: driver::Options,
}

/// Starts the array; `devices` as the candidates were, those it needs are kept.
///
/// # Errors
/// The geometry cannot be mapped, or a member's areas lie outside of it.
pub fn start(
    assembly: &Assembly,
    devices: &[device::Shared],
    options: &StartOptions,
) -> Result<Array> {
    let mut array = assembly.array.clone();
    if array.level == 0 {
        array.layout = options.raid0_layout.unwrap_or(array.layout);
    }
    let seats = assembly.seats.iter();
    let lens: Vec<Sectors> =
        seats.map(|s| s.as_ref().map_or(Sectors::ZERO, |s| s.member.data_len)).collect();
    let layout: Arc<dyn Layout> = layout_of(&array, &lens)?.into();
    let hazard = layout.hazard().is_some_and(|hazard| hazard.read_only());
    let read_only = options.read_only || assembly.read_only || hazard;
    let mut members = Vec::new();
    let mut seated = Vec::new();
    for (slot, seat) in assembly.seats.iter().enumerate() {
        let Some(seat) = seat else {
            members.push(None);
            seated.push(None);
            continue;
        };
        let device = devices.get(seat.candidate).cloned().ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("no device for {}", seat.name))
        })?;
        check_room(&array, &*device, seat)?;
        let bitmap = bitmap::prepare(&array, &seat.member, &*device, read_only)
            .map_err(|e| e.context(format!("member {} in slot {slot}", seat.name)))?;
        let state = match seat.state {
            SeatState::InSync => State::InSync,
            SeatState::Recovering(at) => State::Recovering(at),
        };
        let (name, record) = (seat.name.clone(), seat.member.clone());
        members.push(Some(Member { name, record, state, errors: 0, bitmap }));
        seated.push(Some(device));
    }
    let setup = Setup {
        layout,
        array,
        members,
        emit: assembly.format.emit,
        uneven: assembly.seats.iter().flatten().any(|s| s.events != assembly.array.events),
        read_only,
        // Assembly lets this combination through only for reading or by force.
        trust_unsynced: !assembly.missing.is_empty(),
        pool: Pool::new(ARENA),
        now: Instant::default(),
    };
    Ok(Array::start(setup, seated, options.driver.clone()))
}

/// The data the layout will use must lie on the device.
fn check_room(
    array: &crate::meta::record::ArrayRecord,
    device: &dyn device::Device,
    seat: &crate::meta::assemble::Seat,
) -> Result<()> {
    let used = array.component.max(seat.member.data_len);
    let end = seat.member.data_at.0.checked_add(used.0);
    match end.is_some_and(|end| end <= device.facts().sectors.0) {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Metadata,
            format!(
                "{} has {} sectors, but its data would reach to sector {}: the image is cut off",
                seat.name,
                device.facts().sectors,
                seat.member.data_at.0.saturating_add(used.0)
            ),
        )),
    }
}
