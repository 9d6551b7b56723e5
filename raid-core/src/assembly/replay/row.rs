//! One row of a stripe in memory: 4 KiB of each unit, lost ones solved, parity made.

use super::members::Members;
use crate::code;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Role, Stripe};
use crate::meta::md_journal::BLOCK_BYTES;
use crate::units::{Sectors, StripeNo};

/// The units of a row, in the order of their stripe; `None`: not known.
pub struct Row {
    /// First sector on each member, from the start of data.
    pub at: Sectors,
    /// The stripe it is a part of.
    pub stripe: Stripe,
    /// Contents by unit.
    pub units: Vec<Option<Vec<u8>>>,
}

impl Row {
    /// The row at sector `at`, nothing of it known. Levels 4, 5 and 6 have as many sectors of each
    /// member in a stripe as their chunk.
    pub fn new(members: &Members<'_>, at: Sectors) -> Row {
        let no = StripeNo(at.div_floor(members.layout.shape().chunk));
        let stripe = members.layout.stripe(no);
        let units = vec![None; stripe.units.len()];
        Row { at, stripe, units }
    }

    /// Makes the content of a role known; a role that the level does not have is left out.
    pub fn put(&mut self, role: Role, bytes: Vec<u8>) {
        if let Some(index) = self.stripe.units.iter().position(|unit| unit.role == role) {
            self.units[index] = Some(bytes);
        }
    }

    /// True if a data unit is neither known nor can be read.
    pub fn lacks_data(&self, members: &Members<'_>) -> bool {
        let units = self.stripe.units.iter().zip(&self.units);
        units
            .filter(|(unit, _)| matches!(unit.role, Role::Data(_)))
            .any(|(unit, known)| known.is_none() && !members.can_read(unit.slot, self.at))
    }

    /// The old content of every unit that can be read: data, and parity if `parity` is wanted.
    fn old(&self, members: &Members<'_>, parity: bool) -> Result<Vec<Option<Vec<u8>>>> {
        let read = |unit: &crate::layout::Unit| {
            let wanted = parity || matches!(unit.role, Role::Data(_));
            if !wanted || !members.can_read(unit.slot, self.at) {
                return Ok(None);
            }
            let mut bytes = vec![0; BLOCK_BYTES];
            members.read(unit.slot, self.at, &mut bytes)?;
            Ok(Some(bytes))
        };
        self.stripe.units.iter().map(read).collect()
    }

    /// Fills in what is not known from the members, solving what is lost, and makes parity anew.
    ///
    /// # Errors
    /// More is lost than the level survives.
    pub fn complete(&mut self, members: &Members<'_>) -> Result<()> {
        let lacks = self.lacks_data(members);
        let mut old = self.old(members, lacks)?;
        if lacks {
            solve(&self.stripe, &mut old)?;
        }
        for (unit, (known, old)) in self.stripe.units.iter().zip(self.units.iter_mut().zip(old)) {
            if matches!(unit.role, Role::Data(_)) && known.is_none() {
                *known = old;
            }
        }
        encode(&self.stripe, &mut self.units);
        Ok(())
    }

    /// Writes what is known to the members that are there.
    pub fn write(&self, members: &Members<'_>) -> Result<()> {
        let units = self.stripe.units.iter().zip(&self.units);
        units
            .filter_map(|(unit, known)| known.as_ref().map(|bytes| (unit.slot, bytes)))
            .try_for_each(|(slot, bytes)| members.write(slot, self.at, bytes))
    }

    /// The row's contents of a role.
    pub fn unit(&self, role: Role) -> Option<&[u8]> {
        let index = self.stripe.units.iter().position(|unit| unit.role == role)?;
        self.units[index].as_deref()
    }
}

/// The data units that are known.
fn known_data<'a>(stripe: &Stripe, units: &'a [Option<Vec<u8>>]) -> Vec<&'a [u8]> {
    let data = stripe.units.iter().zip(units).filter(|(u, _)| matches!(u.role, Role::Data(_)));
    data.filter_map(|(_, known)| known.as_deref()).collect()
}

/// The data by power, as Q counts it.
fn by_power<'a>(stripe: &Stripe, units: &'a [Option<Vec<u8>>]) -> Vec<Option<&'a [u8]>> {
    let data = || stripe.units.iter().zip(units).filter(|(u, _)| matches!(u.role, Role::Data(_)));
    let powers = data().map(|(unit, _)| unit.power as usize + 1).max().unwrap_or(0);
    let mut list = vec![None; powers];
    data().for_each(|(unit, bytes)| list[unit.power as usize] = bytes.as_deref());
    list
}

/// Brings the lost data units back.
fn solve(stripe: &Stripe, units: &mut [Option<Vec<u8>>]) -> Result<()> {
    let find = |role: Role| stripe.units.iter().position(|unit| unit.role == role);
    let take = |role| find(role).and_then(|index| units[index].clone());
    let (p, q) = (take(Role::P), take(Role::Q));
    let lost: Vec<usize> = (stripe.units.iter().zip(&*units).enumerate())
        .filter(|(_, (unit, known))| matches!(unit.role, Role::Data(_)) && known.is_none())
        .map(|(index, _)| index)
        .collect();
    let powers: Vec<usize> = lost.iter().map(|&i| stripe.units[i].power as usize).collect();
    let data = by_power(stripe, units);
    let (mut x, mut y) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    match (&lost[..], p, q) {
        ([], ..) => return Ok(()),
        ([_], Some(p), _) => {
            let mut sources = known_data(stripe, units);
            sources.push(&p);
            code::xor(&sources, &mut x);
        }
        ([_], None, Some(q)) => code::rec_data_q(&data, powers[0], &q, &mut x),
        ([_, _], Some(p), Some(q)) => {
            code::rec_two(&data, powers[0], powers[1], &p, &q, &mut x, &mut y);
        }
        _ => {
            let text = "more members are gone than the level survives";
            return Err(Error::new(ErrorKind::Dead, text));
        }
    }
    for (index, bytes) in lost.into_iter().zip([x, y]) {
        units[index] = Some(bytes);
    }
    Ok(())
}

/// Makes the parity of a row whose data is all known.
fn encode(stripe: &Stripe, units: &mut [Option<Vec<u8>>]) {
    for role in [Role::P, Role::Q] {
        let Some(index) = stripe.units.iter().position(|unit| unit.role == role) else { continue };
        let mut parity = vec![0; BLOCK_BYTES];
        match role {
            Role::P => code::xor(&known_data(stripe, units), &mut parity),
            _ => code::q(&by_power(stripe, units), &mut parity),
        }
        units[index] = Some(parity);
    }
}
