//! Explanations by value: dropped, clipped, on a coarser grid, rounded another way.

use super::evidence::Evidence;
use super::{Explanation, SHARE};
use crate::error::Result;
use crate::judge::figure;
use crate::op::Class;
use crate::replay::{Format, REDUCED, Rounding};
use crate::tensor::DType;

/// Standard deviations by which the share that was dropped may be off the scale of what was kept.
const SIGMAS: f64 = 5.0;

/// Fewest elements, other than 0, that tell a coarser grid from chance: each lies on TF32's by chance
/// with 2^-13.
const ON_GRID: usize = 8;

/// Some elements are zero, the others larger by the 1/(1-p) that dropout gives them.
pub(super) fn dropout(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let (y, r) = (&evidence.recorded, &evidence.expected);
    let (mut cross, mut square, mut dropped, mut kept) = (0.0, 0.0, 0u64, 0u64);
    for (y, r) in y.iter().zip(r).filter(|(_, r)| **r != 0.0) {
        if *y == 0.0 {
            dropped += 1;
        } else {
            kept += 1;
            cross += y * r;
            square += r * r;
        }
    }
    if dropped < 2 || kept < 2 {
        return Ok(Vec::new());
    }
    let scale = cross / square;
    let p = dropped as f64 / (dropped + kept) as f64;
    let tolerance = SIGMAS * (p * (1.0 - p) / (dropped + kept) as f64).sqrt();
    let implied = 1.0 - 1.0 / scale;
    // Without the larger rest it is not dropout but something that was not written.
    if scale <= 1.0 || p <= tolerance || (implied - p).abs() > tolerance {
        return Ok(Vec::new());
    }
    let share = evidence.share(|at| if y[at] == 0.0 { 0.0 } else { scale * evidence.exact[at] });
    let why = format!(
        "{} % of the elements are zero and the others {} times larger, as dropout with p = {} leaves them: put the model into evaluation mode",
        figure(100.0 * p),
        figure(scale),
        figure((implied * 1e4).round() / 1e4)
    );
    Ok(vec![Explanation { kind: "dropout", share, why }])
}

/// Everything beyond a plateau stands on it.
pub(super) fn saturation(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let y = &evidence.recorded;
    let top = y.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let bottom = y.iter().copied().fold(f64::INFINITY, f64::min);
    let mut found: Vec<Explanation> = Vec::new();
    for (low, high) in [(f64::NEG_INFINITY, top), (bottom, f64::INFINITY), (bottom, top)] {
        let beyond = |at: &usize| evidence.expected[*at] > high || evidence.expected[*at] < low;
        let clipped = (0..y.len()).filter(beyond).count();
        let on_plateau = (0..y.len()).filter(beyond).filter(|&at| y[at] == low || y[at] == high).count();
        // One element is no plateau, a constant is no clipping, and a shrunk tensor has no plateau.
        if on_plateau < 2 || (on_plateau as f64) < SHARE * clipped as f64 || clipped == y.len() || bottom == top {
            continue;
        }
        let share = evidence.share_unrounded(|at| evidence.expected[at].clamp(low, high));
        if share < SHARE || found.first().is_some_and(|known| known.share >= share) {
            continue;
        }
        let limits: Vec<String> = [low, high].iter().filter(|v| v.is_finite()).map(|v| figure(*v)).collect();
        let largest = evidence.dtype.max_finite() == Some(high) || DType::F16.max_finite() == Some(high);
        let advice = if largest {
            "that is a dtype's largest value, to which this device saturates: keep it in fp32 or scale before it"
        } else {
            "look for a clamp, a quantisation range or an int8 path"
        };
        let why = format!("{clipped} elements are clipped to {}: {advice}", limits.join(" and "));
        found = vec![Explanation { kind: "saturation", share, why }];
    }
    Ok(found)
}

/// A recorded fp32 output whose every value is one of a coarser format.
pub(super) fn coarser_grid(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    if evidence.dtype != DType::F32 || matches!(evidence.layer.op.class(), Class::Mover) {
        return Ok(Vec::new());
    }
    let values = || evidence.recorded.iter().filter(|y| **y != 0.0);
    if values().count() < ON_GRID {
        return Ok(Vec::new());
    }
    // The coarsest first: what lies on its grid lies on the finer ones.
    for format in REDUCED.iter().rev() {
        if !values().all(|&y| format.round(y, Rounding::NearestEven) == y) {
            continue;
        }
        let mut best = (Rounding::NearestEven, f64::NEG_INFINITY);
        for rounding in [Rounding::NearestEven, Rounding::NearestAway, Rounding::Truncate] {
            let share = evidence.share_unrounded(|at| format.round(evidence.exact[at], rounding));
            if share > best.1 {
                best = (rounding, share);
            }
        }
        let why = format!(
            "every value of this float32 output is a {} one ({}): it was computed or stored in {}; keep this operator in fp32, or allow its precision on both sides",
            format.name,
            best.0.name(),
            format.name
        );
        return Ok(vec![Explanation { kind: "reduced_mantissa", share: best.1, why }]);
    }
    Ok(Vec::new())
}

/// The exact result rounded another way than to the nearest, ties to even.
pub(super) fn rounding(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let Some(format) = Format::of(evidence.dtype) else { return Ok(Vec::new()) };
    // An fp32 result is not exact in its last bit: how that was rounded cannot be told.
    let tells = evidence.dtype.unit_roundoff() > DType::F32.unit_roundoff() || evidence.layer.op.class() == Class::Cast;
    if !tells {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    for (kind, rounding, what) in [
        (
            "rounding",
            Rounding::Truncate,
            "values are cut off towards zero instead of rounded to the nearest: set the device's rounding mode, or report it",
        ),
        (
            "tie",
            Rounding::NearestAway,
            "only ties differ, which are rounded away from zero instead of to even: set the device's rounding mode, or allow one ULP",
        ),
    ] {
        let share = evidence.share_unrounded(|at| format.round(evidence.exact[at], rounding));
        found.push(Explanation { kind, share, why: what.into() });
    }
    Ok(found)
}
