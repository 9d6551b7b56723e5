//! The contents of one stripe: what parity is, what both ways of a write make of it.

use super::super::geometry::{self, Geometry};
use super::super::values::{assignment, hex};
use raid_core::error::{Error, Result};
use raid_core::layout::Role;
use raid_core::teach::{Parity, Part, Update, Way, update};
use raid_core::units::Sectors;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// What is in a stripe, and what is written to it.
#[derive(Debug)]
pub struct Contents {
    data: Vec<Vec<u8>>,
    p: Option<Vec<u8>>,
    q: Option<Vec<u8>>,
    /// Neighbouring data units, in order.
    new: Vec<(usize, Vec<u8>)>,
}

/// What comes of a write.
#[derive(Debug)]
pub struct Outcome {
    contents: Contents,
    /// P and Q of the data before the write.
    right: (Vec<u8>, Vec<u8>),
    update: Update,
    way: Way,
    powers: Vec<u8>,
    has_q: bool,
}

impl Contents {
    /// Takes `--values` and `--new` apart.
    pub fn parse(values: &[String], new: &[String]) -> Result<Contents> {
        let mut units = units("--values", values)?;
        let (p, q) = (units.remove(&Role::P), units.remove(&Role::Q));
        let count = units.len();
        let named = |index: usize| units.contains_key(&Role::Data(index as u16));
        if let Some(index) = (0..count).find(|&index| !named(index)) {
            return Err(Error::invalid(format!(
                "--values: D{index} is missing; give every data unit of the stripe, from D0 on"
            )));
        }
        let data: Vec<Vec<u8>> = units.into_values().collect();
        let new = new_units(new, count)?;
        let len = data.first().map_or(0, Vec::len);
        let given = data.iter().chain(&p).chain(&q).chain(new.iter().map(|(_, value)| value));
        if len == 0 || given.into_iter().any(|value| value.len() != len) {
            return Err(Error::invalid(
                "the values of --values and --new must be as long as each other",
            ));
        }
        Ok(Contents { data, p, q, new })
    }

    /// The geometry of the options, or a RAID 5 (with Q: 6) of as many members as there are
    /// units.
    pub fn geometry(&self, args: &geometry::Args) -> Result<Geometry> {
        let data = self.data.len();
        let mut args = args.clone();
        if args.is_empty() {
            let (level, parities) = if self.q.is_some() { ("6", 2) } else { ("5", 1) };
            args.level = Some(level.to_string());
            let slots = u16::try_from(data + parities)
                .map_err(|_| Error::invalid(format!("{data} data units are too many")))?;
            args.raid_devices = args.raid_devices.or(Some(slots));
        }
        let geometry = args.build()?;
        let shape = geometry.layout.shape();
        if shape.tolerance == 0 || !matches!(shape.level, 4..=6) {
            return Err(Error::invalid(format!(
                "--values is about parity, and {} has none; give -l4, -l5 or -l6",
                geometry.level.name
            )));
        }
        if shape.data_units as usize != data {
            return Err(Error::invalid(format!(
                "--values has {data} data units, but a stripe of {} with {} members has {}",
                geometry.level.name, shape.slots, shape.data_units
            )));
        }
        match self.q.is_some() && shape.level != 6 {
            true => Err(Error::invalid(format!("{} has no Q; leave it out", geometry.level.name))),
            false => Ok(geometry),
        }
    }

    /// The bytes of the array that the new units of the stripe with byte `start` are.
    pub fn range(&self, geometry: &Geometry, start: u64) -> (u64, u64) {
        let layout = &*geometry.layout;
        let stripe = layout.stripe(layout.locate(Sectors::floor_bytes(start)));
        let (first, count) = (self.new[0].0 as u64, self.new.len() as u64);
        ((stripe.start + stripe.len.times(first)).bytes(), stripe.len.times(count).bytes())
    }

    /// What comes of the write that `part` plans.
    pub fn result(&self, part: &Part) -> Result<Outcome> {
        let powers: Vec<u8> = part.stripe.data().map(|unit| unit.power).collect();
        let has_q = part.stripe.units.iter().any(|unit| unit.role == Role::Q);
        // Where there is no Q all powers are zero; any different ones do.
        let distinct = (0..self.data.len()).map(|index| index as u8).collect();
        let counted = if has_q { powers.clone() } else { distinct };
        let stripe = Parity::new(self.data.clone(), counted)?;
        let right = stripe.pq();
        let (p, q) = (self.p.as_ref().unwrap_or(&right.0), self.q.as_ref().unwrap_or(&right.1));
        let update = update(&stripe, &self.new, p, q);
        let contents = Contents {
            data: self.data.clone(),
            p: self.p.clone(),
            q: self.q.clone(),
            new: self.new.clone(),
        };
        Ok(Outcome { contents, right, update, way: part.way, powers, has_q })
    }

    /// The content of data unit `index` after the write.
    fn after(&self, index: usize) -> &[u8] {
        let new = self.new.iter().find(|(unit, _)| *unit == index);
        new.map_or(&self.data[index], |(_, value)| value)
    }
}

/// Units by role, each once.
fn units(option: &str, texts: &[String]) -> Result<BTreeMap<Role, Vec<u8>>> {
    let mut units = BTreeMap::new();
    for text in texts {
        let (role, value) = assignment(text).map_err(|error| error.context(option))?;
        if units.insert(role, value).is_some() {
            return Err(Error::invalid(format!("{option}: {role} is given twice")));
        }
    }
    Ok(units)
}

/// The new data units, which must be neighbours in a stripe of `count`.
fn new_units(texts: &[String], count: usize) -> Result<Vec<(usize, Vec<u8>)>> {
    let mut new: Vec<(usize, Vec<u8>)> = Vec::new();
    for (role, value) in units("--new", texts)? {
        let index = match role {
            Role::Data(index) if (index as usize) < count => index as usize,
            Role::Data(index) => {
                let message = format!("--new: there is no D{index}; --values has {count} units");
                return Err(Error::invalid(message));
            }
            _ => {
                return Err(Error::invalid(
                    "--new: parity is computed; give data units, as D0=7453",
                ));
            }
        };
        if new.last().is_some_and(|(last, _)| last + 1 != index) {
            return Err(Error::invalid(
                "--new: one write covers neighbouring units; explain the others one by one",
            ));
        }
        new.push((index, value));
    }
    match new.is_empty() {
        true => Err(Error::invalid("--new: nothing is written; give a unit, as D0=7453")),
        false => Ok(new),
    }
}

impl Outcome {
    /// Appends the numbers.
    pub fn write_text(&self, out: &mut String) {
        out.push('\n');
        let all: Vec<String> = self.contents.data.iter().map(|value| hex(value)).collect();
        let _ = writeln!(
            out,
            "the parity of the data is P = {} = {}",
            all.join(" ^ "),
            hex(&self.right.0)
        );
        if self.has_q {
            let terms = self.terms(|index| self.contents.data[index].as_slice());
            let _ = writeln!(out, "and Q = {terms} = {}", hex(&self.right.1));
        }
        for warning in self.warnings() {
            let _ = writeln!(out, "warning: {warning}");
        }
        self.modify_text(out);
        self.reconstruct_text(out);
        if self.stale() {
            let end = match self.way {
                Way::Modify => "the write leaves parity wrong: a check or resync would find it",
                _ => "the write makes parity right again",
            };
            let _ = writeln!(out, "taken is {}: {end}", self.way.word());
        }
    }

    fn modify_text(&self, out: &mut String) {
        let difference: Vec<String> = self
            .contents
            .new
            .iter()
            .map(|(index, value)| format!("{} ^ {}", hex(&self.contents.data[*index]), hex(value)))
            .collect();
        let difference = difference.join(" ^ ");
        let (p, q) = &self.update.modify;
        let before = self.contents.p.as_ref().unwrap_or(&self.right.0);
        let _ = writeln!(out, "\nread-modify-write: new P = old P ^ old data ^ new data");
        let _ = writeln!(out, "  P = {} ^ {difference} = {}", hex(before), hex(p));
        if self.has_q {
            let before = self.contents.q.as_ref().unwrap_or(&self.right.1);
            let terms: Vec<String> = self
                .contents
                .new
                .iter()
                .map(|(index, value)| {
                    let old = hex(&self.contents.data[*index]);
                    format!("2^{}*({old} ^ {})", self.powers[*index], hex(value))
                })
                .collect();
            let _ = writeln!(out, "  Q = {} ^ {} = {}", hex(before), terms.join(" ^ "), hex(q));
        }
    }

    fn reconstruct_text(&self, out: &mut String) {
        let after: Vec<String> =
            (0..self.contents.data.len()).map(|index| hex(self.contents.after(index))).collect();
        let (p, q) = &self.update.reconstruct;
        let _ = writeln!(out, "\nreconstruct-write: new P = all data as it is after the write");
        let _ = writeln!(out, "  P = {} = {}", after.join(" ^ "), hex(p));
        if self.has_q {
            let _ = writeln!(out, "  Q = {} = {}", self.terms(|i| self.contents.after(i)), hex(q));
        }
        out.push('\n');
    }

    /// The sum that Q is.
    fn terms<'a>(&self, value: impl Fn(usize) -> &'a [u8]) -> String {
        let terms = self.powers.iter().enumerate();
        let terms = terms.map(|(index, power)| format!("2^{power}*{}", hex(value(index))));
        terms.collect::<Vec<_>>().join(" ^ ")
    }

    /// True if parity was given and is not that of the data.
    fn stale(&self) -> bool {
        !self.warnings().is_empty()
    }

    fn warnings(&self) -> Vec<String> {
        let given =
            [("P", &self.contents.p, &self.right.0), ("Q", &self.contents.q, &self.right.1)];
        let stale = given.into_iter().filter_map(|(name, given, right)| {
            let given = given.as_ref().filter(|given| *given != right)?;
            Some(format!(
                "the given {name}={} is stale: the {name} of the data is {}",
                hex(given),
                hex(right)
            ))
        });
        stale.collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let q = |value: &[u8]| self.has_q.then(|| hex(value));
        let pair = |(p, q_value): &(Vec<u8>, Vec<u8>)| json!({ "p": hex(p), "q": q(q_value) });
        json!({
            "given": {
                "p": self.contents.p.as_ref().map(|p| hex(p)),
                "q": self.contents.q.as_ref().map(|q| hex(q)),
            },
            "true_parity": pair(&self.right),
            "stale": self.stale(),
            "warnings": self.warnings(),
            "read_modify_write": pair(&self.update.modify),
            "reconstruct_write": pair(&self.update.reconstruct),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use raid_core::teach;
    use raid_core::units::SlotSet;

    fn outcome(values: &str, new: &str, geometry: &str) -> Result<Outcome> {
        let list = |text: &str| text.split(',').map(String::from).collect::<Vec<_>>();
        let contents = Contents::parse(&list(values), &list(new))?;
        let geometry = match geometry {
            "" => contents.geometry(&geometry::Args::default())?,
            words => Geometry::of(words)?,
        };
        let (start, len) = contents.range(&geometry, 0);
        let (at, len) = (Sectors::floor_bytes(start), Sectors::floor_bytes(len));
        contents.result(&teach::write(&*geometry.layout, at, len, &SlotSet::new(), true)[0])
    }

    #[test]
    fn the_textbook_case_with_its_stale_parity() {
        let outcome = outcome("D0=AB9C,D1=AABB,D2=0098,D3=549C,P=2FFF", "D0=7453", "").unwrap();
        assert_eq!(hex(&outcome.right.0), "5523");
        assert_eq!(hex(&outcome.update.modify.0), "F030");
        assert_eq!(hex(&outcome.update.reconstruct.0), "8AEC");
        assert_eq!(outcome.way, Way::Modify);
        let mut text = String::new();
        outcome.write_text(&mut text);
        for expected in [
            "P = AB9C ^ AABB ^ 0098 ^ 549C = 5523",
            "warning: the given P=2FFF is stale: the P of the data is 5523",
            "P = 2FFF ^ AB9C ^ 7453 = F030",
            "P = 7453 ^ AABB ^ 0098 ^ 549C = 8AEC",
            "the write leaves parity wrong",
        ] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
    }

    #[test]
    fn right_parity_gives_the_same_in_both_ways() {
        for values in ["D0=01,D1=02,D2=03,P=00", "D0=01,D1=02,D2=03", "D0=11,D1=22,P=33,Q=55"] {
            let outcome = outcome(values, "D1=F7", "").unwrap();
            assert!(!outcome.stale(), "{values}");
            assert_eq!(outcome.update.modify, outcome.update.reconstruct, "{values}");
        }
    }

    #[test]
    fn impossible_contents_are_refused_with_words() {
        for (values, new, words) in [
            ("D0=01,D2=02", "D0=02", "D1 is missing"),
            ("D0=01,D1=0203", "D0=02", "as long as each other"),
            ("D0=01,D1=02", "D2=02", "there is no D2"),
            ("D0=01,D1=02,D2=03", "D0=02,D2=02", "neighbouring"),
            ("D0=01,D0=02", "D0=02", "twice"),
            ("D0=01,D1=02", "P=02", "parity is computed"),
            ("P=01", "D0=02", "no D0"),
        ] {
            let said = outcome(values, new, "").unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
    }
}
