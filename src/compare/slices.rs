//! Where the error sits: the worst channel, row and element, found in a second pass.
//!
//! The pass runs only where an element differs, since it needs the golden's rms and the norms of
//! every slice. Stripes hold partial sums for all channels and for the rows that they touch.

use std::ops::Range;

use super::blocks::Blocks;
use super::pair::{Pair, Position};
use super::{Element, Metrics, Slice};

/// Channels (extent of the last axis) beyond which none are looked at: each stripe keeps sums for all.
pub const MAX_CHANNELS: usize = 1 << 20;

/// Rows beyond which none are looked at: all of their sums are kept at once (64 MiB).
pub const MAX_ROWS: usize = 4 << 20;

/// Sums of squares of the error and of the golden.
#[derive(Debug, Clone, Copy, Default)]
struct Energy {
    error: f64,
    golden: f64,
}

impl Energy {
    fn add(&mut self, other: Self) {
        self.error += other.error;
        self.golden += other.golden;
    }
}

/// What a stretch of positions contributes.
struct Partial {
    /// One entry for each value of a row, or none where channels are not looked at.
    channels: Vec<Energy>,
    /// Consecutive rows from `first_row` on, or none where rows are not looked at.
    rows: Vec<Energy>,
    first_row: usize,
    element: Option<Element>,
}

/// Fills in the worst channel, row and element of `metrics`, which hold what `pair` was measured as.
pub(super) fn localise(pair: &Pair, metrics: &mut Metrics) {
    if metrics.max_abs == 0.0 || pair.row == 0 {
        return;
    }
    let (axes, channels, rows) = (metrics.shape.len(), pair.row / pair.lanes, pair.values / pair.row);
    let by_channel = axes >= 2 && (2..=MAX_CHANNELS).contains(&channels);
    let by_row = axes >= 2 && (2..=MAX_ROWS).contains(&rows);
    let channel_sums = if by_channel { pair.row } else { 0 };
    let rms = metrics.golden.rms();

    let blocks = Blocks::new(pair.values, pair.row, channel_sums * size_of::<Energy>());
    let stripes = blocks.map(|ranges| {
        let mut buffers = pair.buffers(blocks.largest());
        let mut energies = Vec::with_capacity(blocks.largest());
        let mut stripe =
            Partial { channels: vec![Energy::default(); channel_sums], rows: Vec::new(), first_row: 0, element: None };
        let mut begun = false;
        for range in ranges {
            if !begun {
                (stripe.first_row, begun) = (range.start / pair.row, true);
            }
            energies.clear();
            for position in pair.positions(range.clone(), &mut buffers) {
                let counts = position.judged() && pair.is_valid(position.at);
                energies.push(if counts { energy(&position) } else { Energy::default() });
                if counts && position.difference != 0.0 {
                    stripe.element = worse(stripe.element, Some(scored(&position, rms)));
                }
            }
            stripe.add(range, &energies, pair.row, by_row);
        }
        stripe
    });

    let mut channel_totals = vec![Energy::default(); channel_sums];
    let mut row_totals = vec![Energy::default(); if by_row { rows } else { 0 }];
    let mut element = None;
    for stripe in &stripes {
        channel_totals.iter_mut().zip(&stripe.channels).for_each(|(total, part)| total.add(*part));
        row_totals.iter_mut().skip(stripe.first_row).zip(&stripe.rows).for_each(|(total, part)| total.add(*part));
        element = worse(element, stripe.element);
    }
    let channel_totals: Vec<Energy> = channel_totals.chunks(pair.lanes).map(sum).collect();
    metrics.worst_channel = worst(&channel_totals);
    metrics.worst_row = worst(&row_totals);
    metrics.worst_element = element.map(|element| Element { index: element.index / pair.lanes as u64, ..element });
}

impl Partial {
    /// Adds one block, cut into stretches that lie within a row.
    fn add(&mut self, range: Range<usize>, energies: &[Energy], row: usize, by_row: bool) {
        let mut at = range.start;
        let mut rest = energies;
        while !rest.is_empty() {
            let column = at % row;
            let (stretch, after) = rest.split_at(rest.len().min(row - column));
            self.channels.iter_mut().skip(column).zip(stretch).for_each(|(total, part)| total.add(*part));
            if by_row {
                let index = at / row - self.first_row;
                if index >= self.rows.len() {
                    self.rows.resize(index + 1, Energy::default());
                }
                self.rows[index].add(sum(stretch));
            }
            at += stretch.len();
            rest = after;
        }
    }
}

fn energy(position: &Position) -> Energy {
    Energy { error: position.difference * position.difference, golden: position.golden * position.golden }
}

fn sum(energies: &[Energy]) -> Energy {
    let mut total = Energy::default();
    energies.iter().for_each(|energy| total.add(*energy));
    total
}

fn scored(position: &Position, rms: f64) -> Element {
    let (error, scale) = (position.difference.abs(), position.golden.abs().max(rms));
    // f64's own range is the limit where an error overflows.
    let score = if scale == 0.0 || error.is_infinite() { f64::INFINITY } else { error / scale };
    Element { index: position.at as u64, golden: position.golden, candidate: position.candidate, score }
}

/// The element with the higher score, then the larger error; the first of equals.
fn worse(first: Option<Element>, second: Option<Element>) -> Option<Element> {
    let rank = |element: &Element| (element.score, (element.candidate - element.golden).abs());
    match (first, second) {
        (Some(a), Some(b)) => Some(if rank(&b) > rank(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// The slice with the largest error against `max(norm, median norm)`, then the largest error; the
/// first of equals. `None` without slices.
fn worst(slices: &[Energy]) -> Option<Slice> {
    let median_norm = median(slices.iter().map(|slice| slice.golden.sqrt()).collect());
    let mut worst: Option<(f64, Slice)> = None;
    for (index, energy) in slices.iter().enumerate() {
        let (error, norm) = (energy.error.sqrt(), energy.golden.sqrt());
        let scale = norm.max(median_norm);
        let score = match error {
            0.0 => 0.0,
            _ if scale == 0.0 || error.is_infinite() => f64::INFINITY,
            _ => error / scale,
        };
        if worst.is_none_or(|(best, slice)| (score, error) > (best, slice.error)) {
            let count = slices.len() as u64;
            worst = Some((score, Slice { index: index as u64, error, norm, median_norm, count }));
        }
    }
    worst.map(|(_, slice)| slice)
}

/// Middle of the sorted values, the mean of both middles for an even number; 0 for none.
fn median(mut values: Vec<f64>) -> f64 {
    let middle = values.len() / 2;
    if middle >= values.len() {
        return 0.0;
    }
    let even = values.len().is_multiple_of(2);
    let (below, &mut upper, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if even { below.iter().copied().fold(0.0, f64::max).midpoint(upper) } else { upper }
}
