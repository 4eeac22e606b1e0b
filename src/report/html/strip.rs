//! A strip chart: rel_l2 along the layers on a logarithmic scale, with the limit as a line.
//!
//! Coordinates are whole tenths of a unit, so that the page does not depend on how a platform
//! prints long fractions.

use crate::report::decisive::{deciding_output, is_out};
use crate::report::figure::figure;
use crate::report::model::LayerRow;

/// Size of the drawing area in SVG units, and its distance from the left edge (room for the scale).
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 140.0;
const LEFT: f64 = 56.0;
const TOP: f64 = 8.0;
/// Errors below this power of ten are drawn at it: an exact agreement has no place on a log scale.
const LEAST_POWER: i32 = -9;
/// Beyond this many layers neighbours share a mark: the worst of each group is drawn.
const MOST_MARKS: usize = 900;

/// What the template draws.
pub(super) struct Strip {
    /// Horizontal lines of the scale: y and text.
    pub(super) scale: Vec<(String, String)>,
    /// One mark per layer or group of layers.
    pub(super) marks: Vec<Mark>,
    /// Points of the limit's line; a new list wherever the limit is absent.
    pub(super) limits: Vec<String>,
    /// Left and right end of the drawing area.
    pub(super) left: String,
    pub(super) right: String,
    /// Whole size.
    pub(super) width: String,
    pub(super) height: String,
}

/// One layer.
pub(super) struct Mark {
    pub(super) x: String,
    pub(super) y: String,
    pub(super) tone: &'static str,
    /// Shown when pointed at.
    pub(super) title: String,
}

struct Point<'a> {
    row: &'a LayerRow,
    error: f64,
    limit: Option<f64>,
}

impl Strip {
    /// The chart, or nothing where fewer than two layers have a rel_l2.
    pub(super) fn of(layers: &[LayerRow]) -> Option<Self> {
        let points: Vec<Point<'_>> = layers.iter().filter_map(point).collect();
        if points.len() < 2 {
            return None;
        }
        let group = points.len().div_ceil(MOST_MARKS);
        let points: Vec<&Point<'_>> = points
            .chunks(group)
            .filter_map(|chunk| chunk.iter().reduce(|a, b| if badness(b) > badness(a) { b } else { a }))
            .collect();
        let values = points.iter().flat_map(|p| [Some(p.error), p.limit]).flatten().filter(|v| *v > 0.0);
        let powers: Vec<i32> = values.map(|v| (v.log10().floor() as i32).clamp(LEAST_POWER, 6)).collect();
        let low = powers.iter().min().copied().unwrap_or(LEAST_POWER);
        let high = powers.iter().max().copied().unwrap_or(0) + 1;
        let y = |value: f64| {
            let power = if value > 0.0 { value.log10() } else { f64::from(low) };
            let share = (power.clamp(f64::from(low), f64::from(high)) - f64::from(low)) / f64::from(high - low);
            tenths(TOP + HEIGHT * (1.0 - share))
        };
        let step = (WIDTH - LEFT) / points.len() as f64;
        let x = |place: usize| tenths(LEFT + step * (place as f64 + 0.5));
        let marks = points
            .iter()
            .enumerate()
            .map(|(place, point)| Mark {
                x: x(place),
                y: y(point.error),
                tone: super::tone(&point.row.verdict),
                title: format!(
                    "{} ({}): {}, rel_l2 {}",
                    crate::error::escape(&point.row.layer),
                    crate::error::escape(&point.row.op),
                    crate::error::escape(&point.row.verdict),
                    figure(Some(point.error))
                ),
            })
            .collect();
        let mut limits: Vec<String> = vec![String::new()];
        for (place, point) in points.iter().enumerate() {
            match (point.limit, limits.last_mut()) {
                (Some(limit), Some(line)) => line.push_str(&format!("{},{} ", x(place), y(limit))),
                _ => limits.push(String::new()),
            }
        }
        limits.retain(|line| line.contains(' '));
        let every = ((high - low) / 6).max(1) as usize;
        Some(Self {
            scale: (low..=high).step_by(every).map(|power| (y(10_f64.powi(power)), format!("1e{power}"))).collect(),
            marks,
            limits,
            left: tenths(LEFT),
            right: tenths(WIDTH),
            width: tenths(WIDTH + 8.0),
            height: tenths(TOP + HEIGHT + 8.0),
        })
    }
}

fn point(row: &LayerRow) -> Option<Point<'_>> {
    let output = deciding_output(row)?;
    let error = output.metrics.get("rel_l2").copied().flatten().filter(|x| x.is_finite())?;
    let limit = output.limits.get("rel_l2").map(|limit| limit.value).filter(|x| x.is_finite() && *x > 0.0);
    Some(Point { row, error, limit })
}

fn badness(point: &Point<'_>) -> (bool, f64) {
    (is_out(&point.row.verdict), point.error)
}

fn tenths(value: f64) -> String {
    format!("{value:.1}")
}
