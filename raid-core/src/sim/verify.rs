//! Looking at the members with other eyes: superblocks, redundancy, content.

use super::disk::Disk;
use super::oracle::Oracle;
use super::rng::Rng;
use super::story::{may_refuse, read_all, weak};
use super::world::World;
use crate::code;
use crate::engine::{Ask, DeviceId, State};
use crate::layout::{Code, Layout, Role, Stripe};
use crate::units::{Slot, SlotSet, StripeNo};

/// Stops the array, then looks at the members with other eyes: superblocks, redundancy, and the
/// content with every tolerated set of members missing.
pub(super) fn check_end(mut world: World, oracle: &Oracle, rng: &mut Rng) -> Result<(), String> {
    world.fault_rate = 0;
    if !may_refuse(&world) {
        read_all(&mut world, rng, |at, data| oracle.check_read(at, data, u64::MAX))?;
    }
    world.ask(Ask::Stop, rng);
    while world.step(rng) {}
    let status = world.status();
    if status.dirty {
        return Err("the array is dirty after a stop".into());
    }
    if may_refuse(&world) {
        return Ok(());
    }
    check_redundancy(&world)?;
    let layout = world.layout().clone();
    let degraded = weak(&status);
    let now = world.now();
    // Only what serves: others could not be told from it any more.
    let device = |m: &Option<crate::engine::Member>| m.as_ref().map(|m| m.device);
    let serving: Vec<Option<DeviceId>> = status.members.iter().map(device).collect();
    let pulled = serving.iter().map(|id| id.map(|id| world.pull(id)));
    let mut disks: Vec<Option<Disk>> = pulled.collect();
    let journal = status.others.iter().find(|m| m.state == State::Journal).map(|m| m.device);
    disks.extend(journal.map(|id| Some(world.pull(id))));
    disks.iter_mut().flatten().for_each(|disk| disk.crash(Vec::new(), rng));
    for extra in tolerated(&*layout, &degraded) {
        let mut left = disks.clone();
        extra.iter().for_each(|slot| left[slot.index()] = None);
        let left: Vec<Disk> = left.into_iter().flatten().collect();
        let mut world = World::start(left, true, now).map_err(|e| e.to_string())?;
        if world.status().unsynced {
            return Err(format!(
                "not clean after a stop, {extra} taken away, before {degraded}: {:?}",
                world.status().array
            ));
        }
        read_all(&mut world, rng, |at, data| oracle.check_read(at, data, u64::MAX))
            .map_err(|e| format!("without slots {extra}: {e}"))?;
    }
    Ok(())
}

/// Sets of at most two further slots the layout survives without; the empty set first.
fn tolerated(layout: &dyn Layout, gone: &SlotSet) -> Vec<SlotSet> {
    let slots = layout.shape().slots;
    let mut sets = vec![SlotSet::new()];
    if layout.shape().code == Code::None {
        return sets;
    }
    for a in 0..slots {
        for b in a..slots {
            let extra: SlotSet = [Slot(a), Slot(b)].into_iter().collect();
            let all: SlotSet = extra.iter().chain(gone.iter()).collect();
            let new = extra.iter().all(|s| !gone.contains(s));
            if new && layout.survives(&all) {
                sets.push(extra);
            }
        }
    }
    sets
}

/// Every stripe encodes: copies agree, P and Q are those of the data.
pub(super) fn check_redundancy(world: &World) -> Result<(), String> {
    let status = world.status();
    if status.unsynced {
        return Ok(());
    }
    for no in 0..world.layout().shape().stripes {
        let stripe = world.layout().stripe(StripeNo(no));
        let unit = |i: usize| -> Option<&[u8]> {
            let unit = &stripe.units[i];
            let member = status.members[unit.slot.index()].as_ref()?;
            (member.holds(unit.at, unit.at + stripe.len)).then_some(())?;
            let at = (member.record.data_at + unit.at).len();
            Some(&world.disks[member.device.0].bytes()[at..at + stripe.len.len()])
        };
        if !encodes(&stripe, unit) {
            return Err(format!("stripe {no} does not encode"));
        }
    }
    Ok(())
}

fn encodes<'a>(stripe: &Stripe, unit: impl Fn(usize) -> Option<&'a [u8]>) -> bool {
    let data = || stripe.units.iter().enumerate().filter(|(_, u)| matches!(u.role, Role::Data(_)));
    let find = |role| stripe.units.iter().position(|u| u.role == role).and_then(&unit);
    let copies = stripe.units.iter().any(|u| matches!(u.role, Role::Copy(_)));
    if copies {
        let mut all = (0..stripe.units.len()).filter_map(&unit);
        let first = all.next();
        return all.all(|copy| Some(copy) == first);
    }
    let has_q = stripe.units.iter().any(|u| u.role == Role::Q);
    let power = |i: usize| if has_q { stripe.units[i].power as usize } else { i };
    let mut table = vec![None; data().map(|(i, _)| power(i)).max().unwrap_or(0) + 1];
    for (i, _) in data() {
        let Some(content) = unit(i) else { return true };
        table[power(i)] = Some(content);
    }
    let sources: Vec<&[u8]> = table.iter().flatten().copied().collect();
    match (find(Role::P), find(Role::Q)) {
        (Some(p), Some(q)) => code::check_pq(&table, p, q) == (true, true),
        (Some(p), None) => code::check_p(&sources, p),
        (None, Some(q)) => {
            let mut expected = vec![0; q.len()];
            code::q(&table, &mut expected);
            expected == q
        }
        (None, None) => true,
    }
}
