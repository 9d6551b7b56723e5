//! A layout drawn: rows of chunks, a column per member, as in every RAID handbook.
//!
//! [`picture`] makes a neutral structure for programs; [`Picture::text`] and [`super::svg`] draw
//! it. Pictures are cut to the rows that teach: the first ones of each section (the far copies
//! of RAID 10, the zones of RAID 0), with a row of dots where something is left out.

use super::{Layout, Role, check, level_by_number};
use crate::units::{Sectors, Slot, StripeNo};
use std::collections::BTreeSet;
use std::fmt::Write;

/// Most sections drawn: hostile RAID 0 arrays could have one per member.
pub const SECTIONS_MAX: usize = 8;

/// What to draw.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Rows per section; zero chooses enough to see one rotation.
    pub rows: u64,
    /// Members that are not in order.
    pub marks: Vec<(Slot, Mark)>,
}

/// The state of a member, as drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Mark {
    /// Present and trusted.
    Good,
    /// Not there.
    Lost,
    /// There, but behind the others.
    Stale,
    /// Being filled.
    Rebuilding,
}

impl Mark {
    /// The word for people and for JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Mark::Good => "good",
            Mark::Lost => "lost",
            Mark::Stale => "stale",
            Mark::Rebuilding => "rebuilding",
        }
    }

    /// A cell's text with the mark around it.
    pub(super) fn around(self, text: &str) -> String {
        match self {
            Mark::Good => format!(" {text} "),
            Mark::Lost => format!("[{text}]"),
            Mark::Stale => format!(" {text}?"),
            Mark::Rebuilding => format!(" {text}+"),
        }
    }
}

/// A picture of a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Picture {
    /// The heading; the caller may set a better one.
    pub title: String,
    /// What a cell is large.
    pub unit: Sectors,
    /// One per slot.
    pub columns: Vec<Column>,
    /// From the start of the members downwards.
    pub lines: Vec<Line>,
}

/// A member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Its slot.
    pub slot: Slot,
    /// Its state.
    pub mark: Mark,
}

/// A row, or rows left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// One unit of every member.
    Row {
        /// Its number: the member sector divided by the unit.
        row: u64,
        /// One per column.
        cells: Vec<Cell>,
    },
    /// Rows that are not drawn.
    Gap,
}

/// A unit of one member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// Chunk `number` of the array, or its `copy`-th further copy where that is not zero.
    Data {
        /// Counted from 0 over the array.
        number: u64,
        /// Zero for the first copy.
        copy: u16,
        /// The stripe it belongs to.
        stripe: StripeNo,
    },
    /// P of a stripe.
    P(StripeNo),
    /// Q of a stripe.
    Q(StripeNo),
    /// Not part of the array.
    Unused,
}

impl Cell {
    /// What stands in the cell: `7`, `7'` (first further copy), `7''`, `7'3`, `P`, `Q`, `.`.
    pub fn text(&self) -> String {
        match *self {
            Cell::Data { number, copy: copy @ 0..=2, .. } => {
                format!("{number}{}", "'".repeat(copy as usize))
            }
            Cell::Data { number, copy, .. } => format!("{number}'{copy}"),
            Cell::P(_) => "P".to_string(),
            Cell::Q(_) => "Q".to_string(),
            Cell::Unused => ".".to_string(),
        }
    }

    /// The word for programs: `data`, `copy`, `p`, `q` or `unused`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Cell::Data { copy: 0, .. } => "data",
            Cell::Data { .. } => "copy",
            Cell::P(_) => "p",
            Cell::Q(_) => "q",
            Cell::Unused => "unused",
        }
    }

    /// The stripe it belongs to.
    pub const fn stripe(&self) -> Option<StripeNo> {
        match *self {
            Cell::Data { stripe, .. } | Cell::P(stripe) | Cell::Q(stripe) => Some(stripe),
            Cell::Unused => None,
        }
    }
}

/// Draws `layout`.
pub fn picture(layout: &dyn Layout, options: &Options) -> Picture {
    let shape = layout.shape();
    let mark_of = |slot| {
        let mark = options.marks.iter().rev().find(|(marked, _)| *marked == slot);
        mark.map_or(Mark::Good, |&(_, mark)| mark)
    };
    let columns =
        (0..shape.slots).map(Slot).map(|slot| Column { slot, mark: mark_of(slot) }).collect();
    let unit = unit(layout);
    Picture { title: title(layout, unit), unit, columns, lines: lines(layout, unit, options.rows) }
}

impl Picture {
    /// The picture as a table of characters, with a legend of what occurs in it.
    pub fn text(&self) -> String {
        let texts: Vec<Option<(u64, Vec<String>)>> =
            self.lines.iter().map(|line| self.line_texts(line)).collect();
        let cells = texts.iter().flatten().flat_map(|(_, cells)| cells);
        let heads = self.columns.iter().map(|column| column.mark.around(&column.slot.to_string()));
        let heads: Vec<String> = heads.collect();
        let marked = self.columns.iter().any(|column| column.mark != Mark::Good);
        let longest = cells.chain(&heads).map(String::len).max().unwrap_or(0);
        let width = longest + usize::from(marked);
        let last_row = texts.iter().flatten().map(|(row, _)| *row).max().unwrap_or(0);
        let label = last_row.to_string().len().max("row".len());

        let mut out = format!("{}\n\n", self.title);
        let line = |out: &mut String, name: &str, cells: &[String]| {
            let row: String = cells.iter().map(|cell| format!("{cell:>width$}")).collect();
            out.push_str(format!("{name:>label$} |{row}").trim_end());
            out.push('\n');
        };
        line(&mut out, "row", &heads);
        let rule = "-".repeat(width * self.columns.len());
        let _ = writeln!(out, "{}-+{rule}", "-".repeat(label));
        let dots = vec![": ".to_string(); self.columns.len()];
        for text in &texts {
            match text {
                Some((row, cells)) => line(&mut out, &row.to_string(), cells),
                None => line(&mut out, ":", &dots),
            }
        }
        out.push_str(&self.legend());
        out
    }

    /// Cell texts with the marks of their members.
    fn line_texts(&self, line: &Line) -> Option<(u64, Vec<String>)> {
        let Line::Row { row, cells } = line else { return None };
        let marked = cells.iter().zip(&self.columns);
        let texts = marked.map(|(cell, column)| match cell {
            Cell::Unused => " . ".to_string(),
            cell => column.mark.around(&cell.text()),
        });
        Some((*row, texts.collect()))
    }

    /// One line for each kind of sign that occurs.
    pub fn legend(&self) -> String {
        let cells = self.lines.iter().filter_map(|line| match line {
            Line::Row { cells, .. } => Some(cells),
            Line::Gap => None,
        });
        let kinds: BTreeSet<&str> = cells.flatten().map(Cell::kind).collect();
        let mut legend = String::from("\n");
        let mut say = |there: bool, words: String| {
            if there {
                let _ = writeln!(legend, "{words}");
            }
        };
        say(kinds.contains("copy"), "5': further copy of chunk 5".to_string());
        say(kinds.contains("p"), "P: XOR of the data in its row".to_string());
        say(kinds.contains("q"), "Q: second parity of the data in its row".to_string());
        say(kinds.contains("unused"), ".: not used".to_string());
        for (mark, sign) in [(Mark::Lost, "[5]"), (Mark::Stale, "5?"), (Mark::Rebuilding, "5+")] {
            let marked = self.columns.iter().filter(|column| column.mark == mark);
            let slots: Vec<String> = marked.map(|column| column.slot.to_string()).collect();
            say(!slots.is_empty(), format!("{sign}: {} (slot {})", mark.word(), slots.join(", ")));
        }
        if legend == "\n" { String::new() } else { legend }
    }
}

fn title(layout: &dyn Layout, unit: Sectors) -> String {
    let shape = layout.shape();
    let name = level_by_number(shape.level).map_or("array", |level| level.name);
    let members = if shape.slots == 1 { "1 member" } else { &format!("{} members", shape.slots) };
    format!("{name}, {members}, one cell = {}", check::size_text(unit))
}

/// The size of a cell: the longest unit at the head of a region.
fn unit(layout: &dyn Layout) -> Sectors {
    let regions = layout.regions();
    let lens = regions.iter().map(|region| layout.stripe(region.first).len);
    lens.max().expect("an array has a region")
}

fn lines(layout: &dyn Layout, unit: Sectors, rows: u64) -> Vec<Line> {
    let end = rows_end(layout, unit);
    let count = if rows == 0 { layout.shape().period.clamp(4, 12) } else { rows };
    let starts = section_starts(layout, unit);
    let mut lines = Vec::new();
    let mut next = 0;
    for &start in starts.iter().take(SECTIONS_MAX) {
        if start > next {
            lines.push(Line::Gap);
        }
        for row in start.max(next)..start.saturating_add(count).min(end) {
            lines.push(Line::Row { row, cells: cells(layout, unit, row) });
            next = row + 1;
        }
    }
    if next < end {
        lines.push(Line::Gap);
    }
    lines
}

fn cells(layout: &dyn Layout, unit: Sectors, row: u64) -> Vec<Cell> {
    let at = unit.times(row);
    (0..layout.shape().slots).map(|slot| cell(layout, Slot(slot), at)).collect()
}

fn cell(layout: &dyn Layout, slot: Slot, at: Sectors) -> Cell {
    let Some(no) = layout.find(slot, at) else { return Cell::Unused };
    let stripe = layout.stripe(no);
    let here = |at_unit: Sectors| at_unit <= at && at < at_unit + stripe.len;
    let unit = stripe.units.iter().find(|unit| unit.slot == slot && here(unit.at));
    let first = no.0 * layout.shape().data_units as u64;
    match unit.expect("find names a stripe with a unit there").role {
        Role::Data(index) => Cell::Data { number: first + index as u64, copy: 0, stripe: no },
        Role::Copy(copy) => Cell::Data { number: first, copy, stripe: no },
        Role::P => Cell::P(no),
        Role::Q => Cell::Q(no),
    }
}

/// The row behind the last used one: the last period of each region reaches the end of members.
fn rows_end(layout: &dyn Layout, unit: Sectors) -> u64 {
    let last_stripes = layout.regions().into_iter().flat_map(|region| {
        let end = region.first.0 + region.stripes;
        end - region.period.min(region.stripes)..end
    });
    let ends = last_stripes.map(|no| {
        let stripe = layout.stripe(StripeNo(no));
        let last = stripe.units.iter().map(|unit| unit.at).max().expect("a stripe has units");
        (last + stripe.len).0.div_ceil(unit.0)
    });
    ends.max().expect("an array has a region")
}

/// Rows where something begins: a region, or a further copy well below the first.
fn section_starts(layout: &dyn Layout, unit: Sectors) -> Vec<u64> {
    let mut starts = BTreeSet::new();
    for region in layout.regions() {
        let stripe = layout.stripe(region.first);
        let base = stripe.units[0].at.div_floor(unit);
        let group = base + stripe.units.len() as u64;
        let rows = stripe.units.iter().map(|unit_there| unit_there.at.div_floor(unit));
        starts.extend(rows.filter(|&row| row == base || row >= group));
    }
    starts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Params, level_by_name};
    use super::*;

    fn draw(level: &str, layout: &str, slots: u16, chunks: u64, options: &Options) -> Picture {
        let level = level_by_name(level).unwrap();
        let chunk = Sectors::kib(64);
        let params = Params {
            layout: (level.parse_layout)(layout).unwrap(),
            chunk,
            slots,
            component: chunk.times(chunks),
            members: (0..slots).map(|slot| chunk.times(chunks + slot as u64 % 2 * 3)).collect(),
        };
        picture(&*(level.make)(&params).unwrap(), options)
    }

    fn check(level: &str, layout: &str, slots: u16, chunks: u64, expected: &str) {
        let text = draw(level, layout, slots, chunks, &Options::default()).text();
        assert_eq!(text, expected.trim_start(), "got\n{text}");
    }

    #[test]
    fn raid5_shows_one_rotation() {
        check(
            "raid5",
            "ls",
            4,
            100,
            "
raid5, 4 members, one cell = 64 KiB

row |  0   1   2   3
----+----------------
  0 |  0   1   2   P
  1 |  4   5   P   3
  2 |  8   P   6   7
  3 |  P   9  10  11
  : |  :   :   :   :

P: XOR of the data in its row
",
        );
    }

    #[test]
    fn far_copies_are_a_section_below() {
        check(
            "raid10",
            "f2",
            3,
            100,
            "
raid10, 3 members, one cell = 64 KiB

row |   0    1    2
----+---------------
  0 |   0    1    2
  1 |   3    4    5
  2 |   6    7    8
  3 |   9   10   11
  : |   :    :    :
 50 |  2'   0'   1'
 51 |  5'   3'   4'
 52 |  8'   6'   7'
 53 | 11'   9'  10'
  : |   :    :    :

5': further copy of chunk 5
",
        );
    }

    #[test]
    fn offset_copies_are_a_row_below() {
        check(
            "raid10",
            "o2",
            4,
            100,
            "
raid10, 4 members, one cell = 64 KiB

row |  0   1   2   3
----+----------------
  0 |  0   1   2   3
  1 | 3'  0'  1'  2'
  2 |  4   5   6   7
  3 | 7'  4'  5'  6'
  : |  :   :   :   :

5': further copy of chunk 5
",
        );
    }

    #[test]
    fn near_copies_wrap_on_an_odd_member() {
        check(
            "raid10",
            "n2",
            3,
            4,
            "
raid10, 3 members, one cell = 64 KiB

row |  0   1   2
----+------------
  0 |  0  0'   1
  1 | 1'   2  2'
  2 |  3  3'   4
  3 | 4'   5  5'

5': further copy of chunk 5
",
        );
    }

    #[test]
    fn zones_leave_small_members_unused() {
        check(
            "raid0",
            "alternate",
            4,
            3,
            "
raid0, 4 members, one cell = 64 KiB

row |  0   1   2   3
----+----------------
  0 |  0   1   2   3
  1 |  4   5   6   7
  2 |  8   9  10  11
  3 |  .  12   .  13
  4 |  .  14   .  15
  5 |  .  16   .  17

.: not used
",
        );
    }

    #[test]
    fn members_out_of_order_are_marked() {
        let marks =
            vec![(Slot(0), Mark::Stale), (Slot(1), Mark::Lost), (Slot(4), Mark::Rebuilding)];
        let text = draw("raid6", "la", 5, 100, &Options { rows: 2, marks }).text();
        let expected = "
raid6, 5 members, one cell = 64 KiB

row |  0? [1]  2   3   4+
----+--------------------
  0 |  Q? [0]  1   2   P+
  1 |  3? [4]  5   P   Q+
  : |  :   :   :   :   :

P: XOR of the data in its row
Q: second parity of the data in its row
[5]: lost (slot 1)
5?: stale (slot 0)
5+: rebuilding (slot 4)
";
        assert_eq!(text, expected.trim_start(), "got\n{text}");
    }

    #[test]
    fn every_count_of_members_draws() {
        for slots in (2..=24).chain([100, 1000]) {
            for (level, layout) in
                [("raid0", "1"), ("raid1", "-"), ("raid5", "ls"), ("raid10", "f2")]
            {
                let picture = draw(level, layout, slots, 50, &Options::default());
                assert_eq!(picture.columns.len(), slots as usize);
                let lines: Vec<usize> = picture.text().lines().skip(2).map(str::len).collect();
                assert_eq!(lines[0], lines[2], "{level} on {slots}: columns line up");
                assert!(picture.lines.len() < 30, "{level} on {slots}");
                let svg = super::super::svg::svg(&picture);
                assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
            }
        }
    }
}
