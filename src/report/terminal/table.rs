//! The table of layers: those of interest with their neighbours, or all of them.

use std::collections::BTreeMap;
use std::io::{self, Write};

use tabled::builder::Builder;
use tabled::settings::object::{Cell, Columns, Rows};
use tabled::settings::style::HorizontalLine;
use tabled::settings::{Alignment, Color, Padding, Style as Lines};

use super::style::{Style, Tone, shortened, width_of};
use crate::error::legible;
use crate::report::figure::{counted, grouped};
use crate::report::model::{LayerRow, Report};
use crate::report::row_figures::RowFigures;

/// Rows shown before and after each origin.
const CONTEXT: usize = 2;
/// Origins, births and mismatches that get their rows; a run in which all layers are out names the first.
const MOST_PLACES: usize = 8;
/// Columns that a layer's name is given before narrower columns give way.
const NAME_WIDTH: usize = 40;
/// No table is squeezed below this many columns of name.
const LEAST_NAME_WIDTH: usize = 8;
/// An operator's name takes no more than this.
const OP_WIDTH: usize = 16;
/// Between two columns.
const GAP: usize = 2;

/// The columns in order; those with a rank give way, lowest first, where the width does not suffice.
const COLUMNS: [(&str, Option<u8>, bool); 9] = [
    ("#", None, true),
    ("layer", None, false),
    ("op", Some(4), false),
    ("verdict", None, false),
    ("rel_l2", None, true),
    ("limit", Some(5), true),
    ("max_abs", Some(2), true),
    ("cosine", Some(1), true),
    ("role", Some(3), false),
];
const NAME_COLUMN: usize = 1;
const VERDICT_COLUMN: usize = 3;

/// A line of the table.
enum Entry<'a> {
    Layer(&'a LayerRow),
    /// Rows left out here, by verdict.
    Hidden(BTreeMap<&'a str, u64>),
}

/// Writes the table and what it hides; nothing where the report has no layers.
pub(super) fn write(report: &Report, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let shown = if style.all { vec![true; report.layers.len()] } else { of_interest(report) };
    let entries = entries(&report.layers, &shown);
    if shown.contains(&true) {
        write_entries(report, &entries, style, out)?;
    }
    let mut hidden: BTreeMap<&str, u64> = BTreeMap::new();
    for (row, _) in report.layers.iter().zip(&shown).filter(|(_, shown)| !**shown) {
        *hidden.entry(&row.verdict).or_default() += 1;
    }
    let total: u64 = hidden.values().sum();
    if total > 0 {
        let text = format!("{} not shown ({}): --all shows every layer", counted(total, "layer"), by_verdict(&hidden));
        writeln!(out, "{}", style.paint(Tone::Quiet, &text))?;
    }
    Ok(())
}

fn by_verdict(counts: &BTreeMap<&str, u64>) -> String {
    counts
        .iter()
        .map(|(verdict, count)| format!("{} {}", grouped(*count), legible(verdict)))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Which rows a person wants to see: origins and births with their neighbours, the first layer that
/// is out, where NaN began and ended, and what cannot be compared.
fn of_interest(report: &Report) -> Vec<bool> {
    let mut shown = vec![false; report.layers.len()];
    let find = |layer: &str, pass: Option<&str>| {
        report.layers.iter().position(|row| row.layer == layer && pass.is_none_or(|pass| row.pass == pass))
    };
    let mut show = |at: Option<usize>, context: usize| {
        let Some(at) = at else { return };
        let end = at.saturating_add(context + 1).min(shown.len());
        if let Some(rows) = shown.get_mut(at.saturating_sub(context)..end) {
            rows.fill(true);
        }
    };
    for origin in report.origins.iter().take(MOST_PLACES) {
        show(find(&origin.layer, Some(&origin.pass)), CONTEXT);
    }
    for birth in report.nonfinite_origins.iter().take(MOST_PLACES) {
        show(find(&birth.layer, Some(&birth.pass)), CONTEXT);
        for layer in [&birth.cause_layer, &birth.first_nan_layer, &birth.ended].into_iter().flatten() {
            show(find(layer, None), 0);
        }
    }
    if let Some(first) = &report.first_drift {
        show(find(&first.layer, Some(&first.pass)), CONTEXT);
    }
    let mismatches = report.layers.iter().enumerate().filter(|(_, row)| row.verdict == "mismatch");
    for (at, _) in mismatches.take(MOST_PLACES) {
        show(Some(at), 0);
    }
    close_small_gaps(&mut shown);
    shown
}

/// A single row between two that are shown takes no more room than saying that it is hidden.
fn close_small_gaps(shown: &mut [bool]) {
    if !shown.contains(&true) {
        return;
    }
    let alone: Vec<usize> = (0..shown.len())
        .filter(|&at| {
            let is = |at: Option<usize>| at.and_then(|at| shown.get(at)).copied();
            is(at.checked_sub(1)) != Some(false) && is(Some(at)) == Some(false) && is(at.checked_add(1)) != Some(false)
        })
        .collect();
    for at in alone {
        if let Some(row) = shown.get_mut(at) {
            *row = true;
        }
    }
}

fn entries<'a>(layers: &'a [LayerRow], shown: &[bool]) -> Vec<Entry<'a>> {
    let mut entries: Vec<Entry<'a>> = Vec::new();
    for (row, shown) in layers.iter().zip(shown) {
        match (shown, entries.last_mut()) {
            (true, _) => entries.push(Entry::Layer(row)),
            (false, Some(Entry::Hidden(counts))) => *counts.entry(&row.verdict).or_default() += 1,
            (false, _) => entries.push(Entry::Hidden(BTreeMap::from([(row.verdict.as_str(), 1)]))),
        }
    }
    entries
}

fn write_entries(report: &Report, entries: &[Entry<'_>], style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.iter().map(|(name, ..)| (*name).to_owned()).collect()];
    rows.extend(entries.iter().map(|entry| cells(report, entry)));
    let kept = fit(&mut rows, style.columns());
    let mut builder = Builder::default();
    for row in &rows {
        builder.push_record(kept.iter().filter_map(|&column| row.get(column).cloned()));
    }
    let mut table = builder.build();
    table
        .with(Lines::empty().horizontals([(1, HorizontalLine::new('─'))]))
        .with(Padding::new(0, GAP, 0, 0))
        .with(Alignment::left());
    for (place, &column) in kept.iter().enumerate() {
        if COLUMNS.get(column).is_some_and(|(_, _, number)| *number) {
            table.modify(Columns::one(place), Alignment::right());
        }
        if place + 1 == kept.len() {
            table.modify(Columns::one(place), Padding::zero());
        }
    }
    if style.colour {
        let colour = |tone: Tone| Color::new(tone.ansi().render().to_string(), tone.ansi().render_reset().to_string());
        table.modify(Rows::first(), colour(Tone::Quiet));
        let verdict_place = kept.iter().position(|&column| column == VERDICT_COLUMN);
        for (place, entry) in entries.iter().enumerate() {
            match (entry, verdict_place) {
                (Entry::Layer(row), Some(column)) => {
                    table.modify(Cell::new(place + 1, column), colour(Tone::of(&row.verdict)));
                }
                (Entry::Layer(_), None) => {}
                (Entry::Hidden(_), _) => {
                    // The marker and the counts; the other cells are empty.
                    table.modify(Cell::new(place + 1, 0), colour(Tone::Quiet));
                    table.modify(Cell::new(place + 1, 1), colour(Tone::Quiet));
                }
            }
        }
    }
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn cells(report: &Report, entry: &Entry<'_>) -> Vec<String> {
    let row = match entry {
        Entry::Layer(row) => row,
        Entry::Hidden(counts) => {
            let mut cells = vec!["⋮".to_owned(), by_verdict(counts)];
            cells.resize(COLUMNS.len(), String::new());
            return cells;
        }
    };
    let figures = RowFigures::of(row);
    let mut name = legible(&row.layer);
    if row.pass != "forward" {
        name.push_str(&format!(" [{}]", legible(&row.pass)));
    }
    vec![
        row.index.map_or_else(|| "+".to_owned(), |index| index.to_string()),
        name,
        shortened(&legible(&row.op), OP_WIDTH),
        legible(&row.verdict),
        figures.rel_l2,
        legible(&figures.limit),
        figures.max_abs,
        figures.cosine,
        role(report, row),
    ]
}

fn role(report: &Report, row: &LayerRow) -> String {
    let born = report
        .nonfinite_origins
        .iter()
        .any(|birth| birth.layer == row.layer && birth.pass == row.pass && birth.side != "both");
    let role = row.role.as_deref().map(legible).unwrap_or_default();
    match (born, role.as_str()) {
        (true, "" | "introduced") => "birth".to_owned(),
        (true, role) => format!("birth, {role}"),
        (false, _) => role,
    }
}

/// Chooses the columns that fit and shortens the names to what is left. An empty column is dropped first.
fn fit(rows: &mut [Vec<String>], width: usize) -> Vec<usize> {
    let widest = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| width_of(cell)).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(widest).collect();
    let mut kept: Vec<usize> = (0..COLUMNS.len())
        .filter(|&column| rows.iter().skip(1).any(|row| row.get(column).is_some_and(|cell| !cell.is_empty())))
        .collect();
    let width_at = |column: usize| widths.get(column).copied().unwrap_or_default();
    let wanted = width_at(NAME_COLUMN).min(NAME_WIDTH);
    let room_for_names = |kept: &[usize]| {
        let others: usize = kept.iter().filter(|&&c| c != NAME_COLUMN).map(|&c| width_at(c) + GAP).sum();
        width.saturating_sub(others)
    };
    while room_for_names(&kept) < wanted {
        let rank = |column: &usize| COLUMNS.get(*column).and_then(|(_, rank, _)| *rank);
        let Some(&next) = kept.iter().filter(|c| rank(c).is_some()).min_by_key(|c| rank(c)) else { break };
        kept.retain(|&column| column != next);
    }
    let room = room_for_names(&kept).max(LEAST_NAME_WIDTH);
    for row in rows {
        if let Some(cell) = row.get_mut(NAME_COLUMN) {
            *cell = shortened(cell, room);
        }
    }
    kept
}
