//! A write, band by band: both ways to do it, what each reads, and which one is taken.

use crate::layout::{Code, Layout, Role, Stripe};
use crate::plan::{self, Access, Accesses, Band, Phase, Plan, Units};
use crate::units::{Sectors, Slot, SlotSet};

/// How a band of a write is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// There is no parity: every copy is written.
    Copies,
    /// Every data unit is new: parity comes from them and nothing is read.
    Full,
    /// The data units that stay are read, and parity is made anew.
    Reconstruct,
    /// Old data and old parity are read, and parity is changed by the difference.
    Modify,
    /// A lost unit is solved from redundancy first, then parity is made anew.
    Solve,
    /// The members of all parity units are missing: only data is written.
    DataOnly,
    /// Too few members: the write fails.
    Lost,
}

impl Way {
    /// The word for people and programs.
    pub const fn word(self) -> &'static str {
        match self {
            Way::Copies => "write-copies",
            Way::Full => "full-stripe-write",
            Way::Reconstruct => "reconstruct-write",
            Way::Modify => "read-modify-write",
            Way::Solve => "solve-and-write",
            Way::DataOnly => "write-data-only",
            Way::Lost => "lost",
        }
    }
}

/// A read or write of part of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// What the unit holds.
    pub role: Role,
    /// The member's slot.
    pub slot: Slot,
    /// First sector, from the member's data offset.
    pub at: Sectors,
}

/// A band: sectors of one stripe in which the same data units are new from top to bottom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// The stripe.
    pub stripe: Stripe,
    /// First sector inside each unit.
    pub low: Sectors,
    /// One past the last sector inside each unit.
    pub high: Sectors,
    /// The data units that are new.
    pub new: Vec<Role>,
    /// What reconstruct-write would read; `None`: there is no parity, or a unit cannot be read.
    pub reconstruct: Option<Vec<Role>>,
    /// What read-modify-write would read; `None`: there is no parity, or a unit cannot be read.
    pub modify: Option<Vec<Role>>,
    /// What is done.
    pub way: Way,
    /// What is read.
    pub reads: Vec<Step>,
    /// What is written.
    pub writes: Vec<Step>,
    /// The plan in one line; empty where there is none.
    pub plan: String,
}

/// The parts of a write of `len` sectors at `at`, which must lie inside the array, without the
/// `missing` members. `consistent`: parity is known to match the data.
pub fn write(
    layout: &dyn Layout,
    at: Sectors,
    len: Sectors,
    missing: &SlotSet,
    consistent: bool,
) -> Vec<Part> {
    let code = layout.shape().code;
    let bands = plan::split(layout, at, len);
    bands.iter().map(|band| part(band, code, missing, consistent)).collect()
}

fn part(band: &Band, code: Code, missing: &SlotSet, consistent: bool) -> Part {
    let access: Accesses = band
        .stripe
        .units
        .iter()
        .map(|unit| if missing.contains(unit.slot) { Access::NONE } else { Access::FULL })
        .collect();
    let roles = |units: &Units| units.iter().map(|&u| role(band, u)).collect::<Vec<_>>();
    let (reconstruct, modify) = match code {
        Code::P | Code::PQ => {
            let ways = plan::ways(band, &access);
            (ways.reconstruct.as_ref().map(roles), ways.modify.as_ref().map(roles))
        }
        Code::None | Code::Copy => (None, None),
    };
    let plan = plan::write(band, code, &access, consistent, false).ok();
    let steps = |test: fn(&Phase) -> Option<&Units>| {
        let phases = plan.iter().flat_map(|plan| &plan.phases);
        phases.filter_map(test).flatten().map(|&unit| step(band, unit)).collect::<Vec<_>>()
    };
    let reads = steps(|phase| if let Phase::Read(units) = phase { Some(units) } else { None });
    let writes = steps(|phase| if let Phase::Commit(units) = phase { Some(units) } else { None });
    Part {
        stripe: band.stripe.clone(),
        low: band.low,
        high: band.high,
        new: (band.first..=band.last).map(Role::Data).collect(),
        reconstruct,
        modify,
        way: plan.as_ref().map_or(Way::Lost, |plan| way(plan, code)),
        reads,
        writes,
        plan: plan.map_or(String::new(), |plan| plan.to_text(&band.stripe)),
    }
}

fn way(plan: &Plan, code: Code) -> Way {
    let has = |test: fn(&Phase) -> bool| plan.phases.iter().any(test);
    match code {
        Code::None | Code::Copy => Way::Copies,
        _ if has(|phase| matches!(phase, Phase::Solve(_))) => Way::Solve,
        _ if has(|phase| matches!(phase, Phase::Update)) => Way::Modify,
        _ if !has(|phase| matches!(phase, Phase::Encode)) => Way::DataOnly,
        _ if plan.reads() == 0 => Way::Full,
        _ => Way::Reconstruct,
    }
}

fn role(band: &Band, unit: u16) -> Role {
    band.stripe.units[unit as usize].role
}

fn step(band: &Band, unit: u16) -> Step {
    let unit = band.stripe.units[unit as usize];
    Step { role: unit.role, slot: unit.slot, at: unit.at + band.low }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Params, level_by_name};

    fn parts(level: &str, slots: u16, at: u64, len: u64, missing: &[u16]) -> Vec<Part> {
        let level = level_by_name(level).unwrap();
        let (chunk, layout) = (Sectors(8), (level.parse_layout)("default").unwrap());
        let members = vec![chunk.times(20); slots as usize];
        let params = Params { layout, chunk, slots, component: members[0], members };
        let layout = (level.make)(&params).unwrap();
        let missing = missing.iter().copied().map(Slot).collect();
        write(&*layout, Sectors(at), Sectors(len), &missing, true)
    }

    #[test]
    fn the_way_that_reads_less_is_taken() {
        use Way::*;
        // Level, slots, first sector, sectors, missing, way, units read.
        type Case<'a> = (&'a str, u16, u64, u64, &'a [u16], Way, usize);
        #[rustfmt::skip]
        let cases: &[Case] = &[
            ("raid5", 5, 0, 8, &[], Modify, 2),
            ("raid5", 4, 0, 8, &[], Reconstruct, 2),
            ("raid5", 5, 0, 32, &[], Full, 0),
            ("raid5", 5, 0, 8, &[4], DataOnly, 0),
            ("raid5", 5, 0, 8, &[0], Reconstruct, 3),
            ("raid5", 5, 0, 8, &[0, 1], Lost, 0),
            ("raid10", 4, 0, 8, &[], Copies, 0),
            ("raid0", 2, 0, 8, &[], Copies, 0),
            ("raid0", 2, 0, 8, &[0], Lost, 0),
        ];
        for &(level, slots, at, len, missing, way, reads) in cases {
            let parts = parts(level, slots, at, len, missing);
            assert_eq!(parts.len(), 1, "{level}");
            assert_eq!((parts[0].way, parts[0].reads.len()), (way, reads), "{level} {missing:?}");
        }
    }

    #[test]
    fn both_ways_are_told() {
        let part = &parts("raid5", 5, 0, 8, &[])[0];
        assert_eq!(part.modify, Some(vec![Role::Data(0), Role::P]));
        assert_eq!(part.reconstruct, Some((1..4).map(Role::Data).collect()));
        assert_eq!(part.plan, "read D0 P | update | commit D0 P");
        let slots: Vec<u16> = part.writes.iter().map(|step| step.slot.0).collect();
        assert_eq!(slots, [0, 4]);
    }
}
