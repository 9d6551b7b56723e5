//! A [`Picture`] as SVG: one self-contained file, readable on light and dark pages, from 1 to
//! many members. Colours tell data, copies, P and Q; a pattern tells lost, stale and rebuilding,
//! and so does the sign that the table of characters has: the text is on a plate above the pattern.

use super::picture::{Cell, Column, Line, Mark, Picture};
use std::fmt::Write;

/// Height of a row, pixels.
const ROW: usize = 26;
/// Width of the column with the row numbers, pixels.
const LABEL: usize = 64;
/// Width of one character in a cell, pixels: enough for the monospaced font of [`STYLE`].
const CHAR: usize = 9;
/// Narrowest column, pixels.
const COLUMN_MIN: usize = 44;
/// Space around the picture, pixels.
const MARGIN: usize = 12;
/// Narrowest picture, pixels: the title and the legend need it.
const WIDTH_MIN: usize = 420;

const STYLE: &str = "\
.page{fill:#fff}text{font:13px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24;\
text-anchor:middle}.left{text-anchor:start}.soft{fill:#57606a}\
rect.cell{stroke:#fff;stroke-width:2}.data{fill:#cfe3fb}.data.odd{fill:#a9cdf5}\
.copy{fill:#d8efd3}.copy.odd{fill:#b5dfac}.p{fill:#ffd9a8}.q{fill:#f3c4dd}.unused{fill:#f0f2f4}\
.lost{fill:url(#lost)}.stale{fill:url(#stale)}.rebuilding{fill:url(#rebuilding)}\
.line,.dash{stroke-width:2;opacity:.55}.line{stroke:#c62828}.dash{stroke:#8250df}\
.dots{fill:#1a7f37;opacity:.7}\
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.soft{fill:#9aa4af}\
rect.cell{stroke:#0d1117}.data{fill:#1d3b5f}.data.odd{fill:#2a5283}.copy{fill:#1f4425}\
.copy.odd{fill:#2d5f35}.p{fill:#6b4310}.q{fill:#642a4b}.unused{fill:#1b2028}\
.line{stroke:#ff7b72}.dash{stroke:#d2a8ff}.dots{fill:#56d364}}";

const PATTERNS: &str = "\
<pattern id=\"lost\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
<path class=\"line\" d=\"M0 8L8 0\"/></pattern>\
<pattern id=\"stale\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
<path class=\"dash\" d=\"M0 4H4\"/></pattern>\
<pattern id=\"rebuilding\" width=\"8\" height=\"8\" patternUnits=\"userSpaceOnUse\">\
<circle class=\"dots\" cx=\"4\" cy=\"4\" r=\"1.5\"/></pattern>";

/// Draws `picture`.
pub fn svg(picture: &Picture) -> String {
    let column = column_width(picture);
    let legend = picture.legend();
    let legend_lines: Vec<&str> = legend.lines().filter(|line| !line.is_empty()).collect();
    let grid = LABEL + picture.columns.len() * column + 2 * MARGIN;
    let width = grid.max(WIDTH_MIN).max(picture.title.chars().count() * CHAR + 2 * MARGIN);
    let height = (picture.lines.len() + legend_lines.len() + 3) * ROW + 2 * MARGIN;
    let title = escape(&picture.title);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n<defs>{PATTERNS}</defs>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    let text = |out: &mut String, class: &str, x: usize, y: usize, words: &str| {
        let _ =
            writeln!(out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(words));
    };
    text(&mut out, "left", MARGIN, MARGIN + 16, &picture.title);
    let mut y = MARGIN + ROW;
    text(&mut out, "soft", MARGIN + LABEL / 2, y + 17, "row");
    for (i, head) in picture.columns.iter().enumerate() {
        text(
            &mut out,
            "soft",
            MARGIN + LABEL + i * column + column / 2,
            y + 17,
            head.mark.around(&head.slot.to_string()).trim(),
        );
    }
    for line in &picture.lines {
        y += ROW;
        match line {
            Line::Gap => text(&mut out, "soft", MARGIN + LABEL / 2, y + 17, ":"),
            Line::Row { row, .. } => {
                text(&mut out, "soft", MARGIN + LABEL / 2, y + 17, &row.to_string());
            }
        }
        for (i, head) in picture.columns.iter().enumerate() {
            let x = MARGIN + LABEL + i * column;
            match line {
                Line::Gap => text(&mut out, "soft", x + column / 2, y + 17, ":"),
                Line::Row { row, cells } => {
                    draw_cell(&mut out, head, *row, &cells[i], (x, y, column))
                }
            }
        }
    }
    for words in legend_lines {
        y += ROW;
        text(&mut out, "left soft", MARGIN, y + ROW / 2 + 17, words);
    }
    out.push_str("</svg>\n");
    out
}

/// A cell: its box, the pattern of its member's state, its text, and words under the pointer.
fn draw_cell(
    out: &mut String,
    column: &Column,
    row: u64,
    cell: &Cell,
    (x, y, width): (usize, usize, usize),
) {
    let odd = if cell.stripe().is_some_and(|stripe| stripe.0 % 2 == 1) { " odd" } else { "" };
    let shape = format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{ROW}\" rx=\"4\"");
    let words = hint(column, row, cell);
    let _ =
        write!(out, "<g><title>{words}</title><rect class=\"cell {}{odd}\" {shape}/>", cell.kind());
    let (middle, base) = (x + width / 2, y + 17);
    let marked = column.mark.around(&cell.text());
    let text = if *cell == Cell::Unused { "." } else { marked.trim() };
    if column.mark != Mark::Good && *cell != Cell::Unused {
        let plate = text.len() * CHAR + 4;
        let _ = write!(
            out,
            "<rect class=\"{}\" {shape}/><rect class=\"plate {}{odd}\" x=\"{}\" y=\"{}\" \
             width=\"{plate}\" height=\"{}\" rx=\"3\"/>",
            column.mark.word(),
            cell.kind(),
            middle.saturating_sub(plate / 2),
            y + 4,
            ROW - 8
        );
    }
    let _ = writeln!(out, "<text x=\"{middle}\" y=\"{base}\">{}</text></g>", escape(text));
}

fn hint(column: &Column, row: u64, cell: &Cell) -> String {
    let what = match cell {
        Cell::Data { number, copy: 0, stripe } => format!("chunk {number} (stripe {})", stripe.0),
        Cell::Data { number, copy, .. } => format!("copy {copy} of chunk {number}"),
        Cell::P(stripe) => format!("P of stripe {}", stripe.0),
        Cell::Q(stripe) => format!("Q of stripe {}", stripe.0),
        Cell::Unused => "not used".to_string(),
    };
    let state = match column.mark {
        Mark::Good => String::new(),
        mark => format!(" ({})", mark.word()),
    };
    format!("slot {}{state}, row {row}: {what}", column.slot)
}

fn column_width(picture: &Picture) -> usize {
    let cells = picture.lines.iter().filter_map(|line| match line {
        Line::Row { cells, .. } => Some(cells),
        Line::Gap => None,
    });
    let longest = cells.flatten().map(|cell| cell.text().len()).max().unwrap_or(0);
    let marks = picture.columns.iter().map(|column| column.mark.around("").trim().len());
    let longest = longest + marks.max().unwrap_or(0);
    // Beside the text the pattern is to be seen.
    (longest * CHAR + 26).max(COLUMN_MIN)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::picture::{Options, picture};
    use super::super::{Params, make};
    use super::*;
    use crate::units::{Sectors, Slot};

    #[test]
    fn a_drawing_is_self_contained_and_names_every_cell() {
        let params = Params {
            layout: 2,
            chunk: Sectors(128),
            slots: 4,
            component: Sectors(1 << 20),
            members: Vec::new(),
        };
        let options = Options { rows: 4, marks: vec![(Slot(1), Mark::Lost)] };
        let mut picture = picture(&*make(5, &params).unwrap(), &options);
        picture.title = "a <b> & c".to_string();
        let svg = svg(&picture);
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
        assert!(svg.ends_with("</svg>\n"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        assert!(svg.contains("<title>a &lt;b&gt; &amp; c</title>"));
        assert_eq!(svg.matches("<rect class=\"cell data").count(), 12);
        assert_eq!(svg.matches("<rect class=\"cell p").count(), 4);
        assert_eq!(svg.matches("<rect class=\"lost\"").count(), 4);
        assert!(svg.contains("slot 1 (lost), row 1: chunk 5 (stripe 1)"));
        assert_eq!(svg.matches("<rect class=\"plate").count(), 4);
        assert!(svg.contains(">[5]</text>") && svg.contains(">[1]</text>"));
        assert!(!svg.contains("href"));
    }
}
