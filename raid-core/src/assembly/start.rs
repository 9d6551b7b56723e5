//! Starting what was decided.

use super::replay::{self, Replayed};
use super::{bitmap, layout_of};
use crate::buf::Pool;
use crate::device;
use crate::driver::{self, Array};
use crate::engine::{DeviceId, Journal, Member, Setup, State};
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::meta::assemble::{Assembly, Seat, SeatState};
use crate::meta::md1::emit;
use crate::meta::record::{ArrayRecord, MemberRecord};
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
    let mut devices = devices.to_vec();
    let (setup, table) = setup(assembly, &mut devices, options, Pool::new(ARENA))?;
    let device = |index: Option<usize>| index.and_then(|index| devices.get(index).cloned());
    let table = table.into_iter().map(device).collect();
    Ok(Array::start(setup, table, options.driver.clone()))
}

/// What the engine must know to start the array, and by device id which of `devices` it is.
/// What logs hold is replayed; where nothing may be written, overlays in memory take the places
/// of members in `devices`.
///
/// # Errors
/// As [`start`].
pub fn setup(
    assembly: &Assembly,
    devices: &mut [device::Shared],
    options: &StartOptions,
    pool: Pool,
) -> Result<(Setup, Vec<Option<usize>>)> {
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
    let mut table: Vec<Option<usize>> = vec![None; assembly.seats.len()];
    let mut join = |seat: &Seat, id: usize| -> Result<Member> {
        let device = devices.get(seat.candidate).ok_or_else(|| {
            Error::new(ErrorKind::Invalid, format!("no device for {}", seat.name))
        })?;
        check_room(&array, &**device, seat)?;
        table.resize(table.len().max(id + 1), None);
        table[id] = Some(seat.candidate);
        let state = match seat.state {
            SeatState::InSync => State::InSync,
            SeatState::Recovering(at) => State::Recovering(at),
        };
        let mut record = seat.member.clone();
        emit::say_ring(&mut record);
        Ok(Member::new(DeviceId(id), seat.name.clone(), record, state))
    };
    let members: Vec<Option<Member>> = (assembly.seats.iter().enumerate())
        .map(|(slot, seat)| seat.as_ref().map(|seat| join(seat, slot)).transpose())
        .collect::<Result<_>>()?;
    let (mut replacements, spares) = waiting(assembly, &mut join)?;
    let bitmap = bitmap::load(&array, &assembly.seats, devices, read_only)?;
    let done = replayed(assembly, &mut array, &*layout, devices, read_only)?;
    if done.wrote() {
        // Replay wrote to the members only: what is to replace one of them is filled anew.
        let filled = replacements.iter_mut().flatten();
        filled.for_each(|member| member.state = State::Recovering(Sectors::ZERO));
    }
    let journal = journal(assembly, &done, &mut table);
    let behind = assembly.seats.iter().flatten().any(|s| s.events != assembly.array.events);
    let setup = Setup {
        layout,
        array,
        members,
        replacements,
        spares,
        bitmap,
        journal,
        emit: assembly.format.emit,
        uneven: behind || done.uneven,
        read_only,
        // Assembly lets the first through only for reading or by force.
        trust_unsynced: !assembly.missing.is_empty() || assembly.trust,
        pool,
        now: Instant::default(),
    };
    Ok((setup, table))
}

/// Devices beside the members: those that are to replace one, by slot, and spares. Their ids
/// follow those of the slots.
fn waiting(
    assembly: &Assembly,
    join: &mut dyn FnMut(&Seat, usize) -> Result<Member>,
) -> Result<(Vec<Option<Member>>, Vec<Member>)> {
    let slots = assembly.seats.len();
    let mut replacements = vec![None; slots];
    for (index, (slot, seat)) in assembly.replacements.iter().enumerate() {
        replacements[slot.index()] = Some(join(seat, slots + index)?);
    }
    let first = slots + assembly.replacements.len();
    let spare = |(index, seat): (usize, &Seat)| -> Result<Member> {
        Ok(Member { state: State::Spare, ..join(seat, first + index)? })
    };
    let spares = assembly.spares.iter().enumerate().map(spare).collect::<Result<_>>()?;
    Ok((replacements, spares))
}

/// The journal as the engine goes on with it, behind all other devices in `table`.
fn journal(
    assembly: &Assembly,
    done: &Replayed,
    table: &mut Vec<Option<usize>>,
) -> Option<Journal> {
    let (found, state) = assembly.journal.as_ref().zip(done.journal)?;
    let device = DeviceId(table.len());
    table.push(Some(found.candidate));
    let record = MemberRecord { journal_tail: Some(state.tail), ..found.member.clone() };
    let member = Member::new(device, found.name.clone(), record, State::Journal);
    Some(Journal { member, state })
}

/// Replays the logs of the members.
fn replayed(
    assembly: &Assembly,
    array: &mut ArrayRecord,
    layout: &dyn Layout,
    devices: &mut [device::Shared],
    read_only: bool,
) -> Result<Replayed> {
    let seats = assembly.seats.iter();
    let device = |seat: &Option<Seat>| devices.get(seat.as_ref()?.candidate).cloned();
    let mut seated: Vec<Option<device::Shared>> = seats.clone().map(device).collect();
    let done = replay::replay(assembly, array, layout, &mut seated, devices, read_only)?;
    for (seat, device) in seats.zip(seated) {
        if let (Some(seat), Some(device)) = (seat, device) {
            devices[seat.candidate] = device;
        }
    }
    Ok(done)
}

/// The data the layout will use must lie on the device.
pub(crate) fn check_room(
    array: &ArrayRecord,
    device: &dyn device::Device,
    seat: &Seat,
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
