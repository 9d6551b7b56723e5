//! `raid-fuse layout`: where everything lies, drawn.
//!
//! As a table of characters, as SVG or as JSON; members that are missing, stale or being rebuilt
//! are marked. Wide arrays are drawn in blocks of members.

use super::geometry::{self, Geometry};
use super::{amount, meaning, out};
use raid_core::error::{Error, Result};
use raid_core::layout::picture::{self, Cell, Line, Mark, Options, Picture, picture};
use raid_core::layout::svg::svg;
use raid_core::units::Slot;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

/// Most rows of a section: pictures are for eyes.
const ROWS_MAX: u64 = 10_000;

/// Draw where chunks, copies and parity lie
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  raid-fuse layout -l5 -n4                      left-symmetric, md's default
  raid-fuse layout -l5 -n4 -p right-asymmetric
  raid-fuse layout -l10 -pf2 -n3 -c64 -z8c      far copies, the whole array
  raid-fuse layout -l0 -c64 --member-sizes 3c,6c,6c -p alternate
  raid-fuse layout -l6 -n6 --missing 1,3 --svg raid6.svg
  raid-fuse layout --from d0.img")]
pub struct Args {
    /// Rows to draw of each section [default: enough to see one rotation]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    rows: u64,

    /// Draw these slots as missing
    #[arg(long, visible_aliases = ["failed", "lost"], value_name = "SLOTS", value_delimiter = ',')]
    missing: Vec<u16>,

    /// Draw these slots as stale
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    stale: Vec<u16>,

    /// Draw these slots as being rebuilt
    #[arg(long, value_name = "SLOTS", value_delimiter = ',')]
    rebuilding: Vec<u16>,

    /// Write SVG to this file, or to standard output with -
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Columns of text after which members go into another block; 0 for never
    #[arg(long, value_name = "COLUMNS", default_value_t = 160)]
    width: usize,

    #[command(flatten)]
    geometry: geometry::Args,
}

/// Draws.
pub fn run(args: &Args) -> Result<ExitCode> {
    let geometry = args.geometry.build()?;
    let drawn = draw(args, &geometry)?;
    match (&args.svg, args.json) {
        (Some(file), _) if file == "-" => out::print(&svg(&drawn))?,
        (Some(file), _) => std::fs::write(Path::new(file), svg(&drawn))
            .map_err(|e| Error::io(format!("writing {file}"), e))?,
        (None, true) => out::json(&to_json(&geometry, &drawn))?,
        (None, false) => out::print(&to_text(&geometry, &drawn, args.width))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn draw(args: &Args, geometry: &Geometry) -> Result<Picture> {
    if args.rows > ROWS_MAX {
        return Err(Error::invalid(format!("--rows: at most {ROWS_MAX} are drawn")));
    }
    let lists = [
        ("--missing", &args.missing, Mark::Lost),
        ("--stale", &args.stale, Mark::Stale),
        ("--rebuilding", &args.rebuilding, Mark::Rebuilding),
    ];
    let mut marks: Vec<(Slot, Mark)> = Vec::new();
    for (option, slots, mark) in lists {
        for slot in geometry.slots(option, slots)?.iter() {
            if let Some((_, other)) = marks.iter().find(|(marked, _)| *marked == slot) {
                let other = other.word();
                return Err(Error::invalid(format!("{option}: slot {slot} is {other} already")));
            }
            marks.push((slot, mark));
        }
    }
    let options = Options { rows: args.rows, marks };
    let mut drawn = picture(&*geometry.layout, &options);
    drawn.title = geometry.title();
    if geometry.chunk() != drawn.unit || geometry.layout.shape().chunk.is_empty() {
        drawn.title += &format!(", one cell = {}", amount::size(drawn.unit.bytes()));
    }
    Ok(drawn)
}

fn to_text(geometry: &Geometry, drawn: &Picture, width: usize) -> String {
    let mut head = format!("{}\n", drawn.title);
    let meaning = meaning::meaning(geometry.level, geometry.word);
    if !meaning.is_empty() {
        head += &format!("{meaning}\n");
    }
    let aliases = meaning::aliases(geometry.level, geometry.word);
    if !aliases.is_empty() {
        head += &format!("also called {}\n", aliases.join(", "));
    }
    head += &geometry.note();
    let legend = drawn.legend();
    let blocks: Vec<String> = blocks(drawn, width).iter().map(body).collect();
    let hazard = geometry.layout.hazard().map_or(String::new(), |h| format!("warning: {h}\n"));
    format!("{head}\n{}{legend}{hazard}", blocks.join("\n"))
}

/// The rows of a picture, without its title and legend.
fn body(block: &Picture) -> String {
    let text = block.text();
    let text = text.strip_suffix(&block.legend()).unwrap_or(&text);
    text.split_once("\n\n").map_or(text, |(_, rows)| rows).to_string()
}

/// `drawn` in pictures of neighbouring members that are at most `width` columns wide, if a
/// single member fits at all.
fn blocks(drawn: &Picture, width: usize) -> Vec<Picture> {
    let all = drawn.columns.len();
    let widest = body(drawn).lines().map(str::len).max().unwrap_or(0);
    if width == 0 || widest <= width {
        return vec![drawn.clone()];
    }
    let column = widest.div_ceil(all);
    let label = widest - column.min(widest / all) * all;
    let count = (width.saturating_sub(label) / column).clamp(1, all);
    // As even as the count allows.
    let count = all.div_ceil(all.div_ceil(count));
    let firsts = (0..all).step_by(count);
    firsts.map(|first| part(drawn, first, (first + count).min(all))).collect()
}

/// The picture of members `first..end`.
fn part(drawn: &Picture, first: usize, end: usize) -> Picture {
    let lines = drawn.lines.iter().map(|line| match line {
        Line::Row { row, cells } => Line::Row { row: *row, cells: cells[first..end].to_vec() },
        Line::Gap => Line::Gap,
    });
    Picture {
        title: drawn.title.clone(),
        unit: drawn.unit,
        columns: drawn.columns[first..end].to_vec(),
        lines: lines.collect(),
    }
}

fn to_json(geometry: &Geometry, drawn: &Picture) -> Value {
    let members: Vec<Value> = drawn
        .columns
        .iter()
        .map(|column| json!({ "slot": column.slot.0, "state": column.mark.word() }))
        .collect();
    json!({
        "geometry": geometry.json(),
        "title": drawn.title,
        "meaning": meaning::meaning(geometry.level, geometry.word),
        "aliases": meaning::aliases(geometry.level, geometry.word),
        "hazard": geometry.layout.hazard().map(|hazard| hazard.to_string()),
        "cell_bytes": drawn.unit.bytes(),
        "members": members,
        "rows": drawn.lines.iter().filter_map(row_json).collect::<Vec<_>>(),
    })
}

fn row_json(line: &Line) -> Option<Value> {
    let Line::Row { row, cells } = line else { return None };
    let cells: Vec<Value> = cells.iter().map(cell_json).collect();
    Some(json!({ "row": row, "cells": cells }))
}

fn cell_json(cell: &Cell) -> Value {
    let (chunk, copy) = match *cell {
        picture::Cell::Data { number, copy, .. } => (Some(number), Some(copy)),
        _ => (None, None),
    };
    json!({
        "kind": cell.kind(),
        "chunk": chunk,
        "copy": copy,
        "stripe": cell.stripe().map(|stripe| stripe.0),
    })
}
