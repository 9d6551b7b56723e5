//! A place where redundancy and data disagree, with the contents of all units there.

use crate::layout::{Role, Stripe, Unit};
use crate::units::{Sectors, StripeNo};
use std::ops::Range;

/// Who holds what at a place that disagrees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The stripe: for RAID 4, 5 and 6 a row of chunks.
    pub stripe: StripeNo,
    /// First sector inside each unit.
    pub low: Sectors,
    /// How many sectors of each unit: a page for parity, the differing run for copies.
    pub len: Sectors,
    /// Every unit of the stripe, in its order: data, copies, P, Q.
    pub parts: Vec<Part>,
    /// Who is wrong, as far as that can be known.
    pub verdict: Verdict,
}

/// One unit at that place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The unit; its sectors here are `unit.at + low` on.
    pub unit: Unit,
    /// First array sector of it here; none for P and Q.
    pub array_at: Option<Sectors>,
    /// What it holds; none if it could not be read.
    pub content: Option<Vec<u8>>,
    /// What it would hold if it alone were wrong; none if that explains nothing.
    pub implied: Option<Vec<u8>>,
}

/// Who is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These parts: RAID 6 found the one unit that explains P and Q, or most copies agree.
    Liars(Vec<usize>),
    /// Any one of the parts that have an implied content, and nothing says which.
    CannotTell,
    /// RAID 6: no single unit explains P and Q, so two or more are wrong.
    Several,
}

impl Finding {
    /// The parts of `stripe` from sector `low` of each unit on, nothing judged yet.
    pub(super) fn new(
        stripe: &Stripe,
        low: Sectors,
        len: Sectors,
        contents: &[Option<&[u8]>],
    ) -> Finding {
        assert_eq!(contents.len(), stripe.units.len(), "one content for each unit");
        let part = |(unit, content): (&Unit, &Option<&[u8]>)| Part {
            unit: *unit,
            array_at: array_at(stripe, unit.role, low),
            content: content.map(<[u8]>::to_vec),
            implied: None,
        };
        let parts = stripe.units.iter().zip(contents).map(part).collect();
        Finding { stripe: stripe.no, low, len, parts, verdict: Verdict::CannotTell }
    }

    /// First sector of `part` here, counted from its member's data offset.
    pub fn member_at(&self, part: &Part) -> Sectors {
        part.unit.at + self.low
    }

    /// The parts that may be the wrong one.
    pub fn candidates(&self) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().enumerate().filter(|(_, part)| part.implied.is_some())
    }

    /// True if part `index` is known to be wrong.
    pub fn is_liar(&self, index: usize) -> bool {
        matches!(&self.verdict, Verdict::Liars(liars) if liars.contains(&index))
    }

    /// Takes `next`, which goes on where this ends and was judged alike.
    pub(super) fn join(&mut self, next: Finding) {
        assert_eq!(self.low + self.len, next.low, "findings that touch");
        self.len += next.len;
        for (part, more) in self.parts.iter_mut().zip(next.parts) {
            for (all, bytes) in
                [(&mut part.content, more.content), (&mut part.implied, more.implied)]
            {
                if let (Some(all), Some(bytes)) = (all, bytes) {
                    all.extend(bytes);
                }
            }
        }
    }
}

impl Part {
    /// The bytes from the first to the last that differ between content and implied content.
    pub fn difference(&self) -> Option<Range<usize>> {
        difference(self.content.as_deref()?, self.implied.as_deref()?)
    }
}

/// The bytes from the first to the last in which two contents differ.
fn difference(a: &[u8], b: &[u8]) -> Option<Range<usize>> {
    let differs = |(a, b): (&u8, &u8)| a != b;
    let first = a.iter().zip(b).position(differs)?;
    let last = a.iter().zip(b).rposition(differs)?;
    Some(first..last + 1)
}

/// The array sector of a unit, `low` sectors into it.
fn array_at(stripe: &Stripe, role: Role, low: Sectors) -> Option<Sectors> {
    match role {
        Role::Data(index) => Some(stripe.start + stripe.len.times(index.into()) + low),
        Role::Copy(_) => Some(stripe.start + low),
        Role::P | Role::Q => None,
    }
}
