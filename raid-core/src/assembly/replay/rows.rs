//! What a journal asks for, row by row: which of its pages go where.
//!
//! A row is the 4 KiB at the same sector of every member. The order is that of the log, and the
//! rules are those of the kernel (`r5c_recovery_analyze_meta_block`): parity completes the data
//! before it; data that comes for a complete row begins a new one; all that came before a row was
//! flushed is done.

use crate::error::{Error, ErrorKind, Result};
use crate::layout::{Code, Layout};
use crate::meta::md_journal::{BLOCK, Payload, Ring, Scan};
use crate::units::Sectors;
use std::collections::BTreeMap;

/// Pages of a row that the journal has, as places in its ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// By number of the data unit.
    pub data: BTreeMap<u16, Sectors>,
    /// P, and Q behind it where the level has one.
    pub parity: Option<Sectors>,
}

/// What is to be done, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows to write as they are: what came one after the other, in this order.
    pub complete: BTreeMap<Sectors, Vec<Pages>>,
    /// Rows without parity, to merge with what the members then hold.
    pub data_only: BTreeMap<Sectors, Pages>,
}

impl Rows {
    /// Sorts the payloads of `scan`.
    ///
    /// # Errors
    /// A payload speaks of what is not in the array.
    pub fn of(scan: &Scan, ring: Ring, layout: &dyn Layout) -> Result<Rows> {
        let mut rows = Rows::default();
        let mut open: BTreeMap<Sectors, Pages> = BTreeMap::new();
        for (place, payload) in scan.metas.iter().flat_map(|meta| meta.places(ring)) {
            match payload {
                Payload::Data { at, .. } => {
                    let (row, unit) = locate(layout, *at)?;
                    if open.get(&row).is_some_and(|pages| pages.parity.is_some()) {
                        rows.complete.entry(row).or_default().extend(open.remove(&row));
                    }
                    open.entry(row).or_default().data.insert(unit, place);
                }
                Payload::Parity { row, checksums } => {
                    check_parity(layout, *row, checksums.len())?;
                    open.entry(*row).or_default().parity = Some(place);
                }
                Payload::Flush { rows: flushed } => flushed.iter().for_each(|row| {
                    open.remove(row);
                    rows.complete.remove(row);
                }),
            }
        }
        for (row, pages) in open {
            match pages.parity {
                // Parity alone is left of a row whose data reached the members long ago.
                Some(_) if pages.data.is_empty() => {}
                Some(_) => rows.complete.entry(row).or_default().push(pages),
                None => {
                    rows.data_only.insert(row, pages);
                }
            }
        }
        Ok(rows)
    }
}

/// The row and the data unit of array sector `at`.
fn locate(layout: &dyn Layout, at: Sectors) -> Result<(Sectors, u16)> {
    let end = at.0.saturating_add(BLOCK.0);
    if end > layout.shape().size.0 {
        return Err(beyond(format!("array sector {at}")));
    }
    let stripe = layout.stripe(layout.locate(at));
    let inside = at - stripe.start;
    let unit = inside.div_floor(stripe.len) as u16;
    Ok((stripe.units[unit as usize].at + inside.rem(stripe.len), unit))
}

fn check_parity(layout: &dyn Layout, row: Sectors, pages: usize) -> Result<()> {
    let shape = layout.shape();
    let end = shape.chunk.times(shape.stripes);
    let wanted = if shape.code == Code::PQ { 2 } else { 1 };
    match row.0.checked_add(BLOCK.0).is_some_and(|last| last <= end.0) && pages == wanted {
        true => Ok(()),
        false => Err(beyond(format!("{pages} pages of parity at sector {row} of the members"))),
    }
}

fn beyond(what: String) -> Error {
    let text = format!("it speaks of {what}, which this array does not have");
    Error::new(ErrorKind::Metadata, text)
}
