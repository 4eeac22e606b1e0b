//! Explanations by size: one factor, one constant, one element, one channel.

use super::evidence::Evidence;
use super::{Explanation, SHARE};
use crate::error::Result;
use crate::judge::figure;

/// How near a factor must be to a known ratio to be named after it: the factor itself is known to
/// about the dtype's roundoff over the square root of the number of elements.
const RATIO: f64 = 1e-3;

/// Fewest slices along an axis of which one can stand out.
const SLICES: usize = 3;

/// One factor on everything, or one constant added to it.
pub(super) fn fit(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let (y, r) = (&evidence.recorded, &evidence.expected);
    let mut found = Vec::new();
    let (cross, square) = y.iter().zip(r).fold((0.0, 0.0), |(cross, square), (y, r)| (cross + y * r, square + r * r));
    let factor = cross / square;
    // All zero is not a factor: nothing was written.
    if factor.is_finite() && factor.abs() > f64::EPSILON {
        let named = known_ratio(evidence, factor).map(|name| format!(" ({name})")).unwrap_or_default();
        found.push(Explanation {
            kind: "scale",
            share: evidence.share(|at| factor * evidence.exact[at]),
            why: format!(
                "everything is {} times what it should be{named}: look for a factor that is left out, applied twice or different (scale, alpha, dequantisation)",
                precise(factor)
            ),
        });
    }
    let offset = y.iter().zip(r).map(|(y, r)| y - r).sum::<f64>() / y.len() as f64;
    found.push(Explanation {
        kind: "offset",
        share: evidence.share(|at| evidence.exact[at] + offset),
        why: format!(
            "{} is added to everything: look for a bias, a zero point or a constant that differs",
            precise(offset)
        ),
    });
    Ok(found)
}

/// A factor with the digits that a person needs to see what it is near to.
fn precise(value: f64) -> String {
    format!("{value:.6}").trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The ratio that a factor is, where it is one that devices get wrong: powers of two, and the extents
/// that scales are made of.
fn known_ratio(evidence: &Evidence<'_>, factor: f64) -> Option<String> {
    let is = |ratio: f64| (factor.abs() / ratio - 1.0).abs() < RATIO;
    let power = factor.abs().log2().round();
    if power != 0.0 && power.abs() <= 24.0 && is(power.exp2()) {
        return Some(format!("2^{power}"));
    }
    let inputs = evidence.layer.inputs.iter().filter_map(|&id| evidence.run.dtype_and_shape(id));
    let mut extents: Vec<usize> = inputs.flat_map(|(_, shape)| shape.iter().copied()).collect();
    extents.extend(&evidence.shape);
    extents.sort_unstable();
    extents.dedup();
    for extent in extents.into_iter().filter(|&extent| extent > 2) {
        let n = extent as f64;
        for (ratio, name) in [
            (n.sqrt(), format!("sqrt({extent})")),
            (1.0 / n.sqrt(), format!("1/sqrt({extent})")),
            (n, format!("{extent}, an extent")),
            (1.0 / n, format!("1/{extent}, an extent")),
            (n / (n - 1.0), format!("{extent}/{}, Bessel's correction", extent - 1)),
        ] {
            // Bessel's correction of long axes is 1 within the tolerance.
            if is(ratio) && (ratio - 1.0).abs() > 2.0 * RATIO {
                return Some(name);
            }
        }
    }
    None
}

/// One element carries the error.
pub(super) fn element(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let worst = (0..evidence.len()).max_by(|&a, &b| evidence.error_sq(a).total_cmp(&evidence.error_sq(b)));
    let Some(at) = worst else { return Ok(Vec::new()) };
    let share = evidence.error_sq(at) / evidence.energy;
    if share < SHARE {
        return Ok(Vec::new());
    }
    let (y, r) = (evidence.recorded[at], evidence.expected[at]);
    let index = crate::compare::unravel(at as u64, &evidence.shape);
    let what = format!("one element at {index:?} is {} instead of {}", figure(y), figure(r));
    let ratio = y / r;
    let power = ratio.abs().log2().round();
    // A rounding on either side of the flip moves the ratio by the dtype's roundoff.
    let slack = 4.0 * evidence.dtype.unit_roundoff().unwrap_or(0.0);
    let by_power = ratio.is_finite() && (ratio.abs() / power.exp2() - 1.0).abs() <= slack;
    let flip = if by_power && power == 0.0 && ratio < 0.0 {
        Some("its sign".to_string())
    } else if by_power && power != 0.0 && ratio > 0.0 {
        Some(format!("a factor 2^{power}, a bit of the exponent"))
    } else {
        None
    };
    Ok(vec![match flip {
        Some(flip) => Explanation {
            kind: "bitflip",
            share,
            why: format!(
                "{what}, off by {flip}: repeat the run; if it moves it is the memory, else the kernel's indexing"
            ),
        },
        None => Explanation {
            kind: "element",
            share,
            why: format!("{what}: repeat the run; if it stays look at that coordinate's place in the kernel's tiles"),
        },
    }])
}

/// One slice along an axis carries the error: a channel, else a row.
pub(super) fn slice(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let rank = evidence.shape.len();
    let by_first = evidence.layer.op.name().contains("conv") || evidence.layer.op.name() == "batch_norm" || rank == 4;
    // Images carry their channels on axis 1, or, stored channels last, where all else does.
    let is_channel = |axis: usize| rank > 1 && (axis + 1 == rank || axis == 1 && by_first);
    let mut found = Vec::new();
    for axis in (0..rank).rev().filter(|&axis| evidence.shape[axis] >= SLICES && evidence.shape[axis] < evidence.len())
    {
        let energies = evidence.by_slice(axis, |at| evidence.error_sq(at));
        let Some((at, &most)) = energies.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)) else { continue };
        let share = most / evidence.energy;
        if share < SHARE {
            continue;
        }
        found.push(if is_channel(axis) {
            let why = format!(
                "channel {at} (axis {axis}) carries the error: hold its weight, bias and scale against the golden's, and look at how the kernel splits channels"
            );
            Explanation { kind: "channel", share, why }
        } else {
            let why = format!("index {at} of axis {axis} carries the error: look at how the kernel addresses it");
            Explanation { kind: "row", share, why }
        });
    }
    // The channel says more than the row that it may be at the same time.
    found.sort_by_key(|e| e.kind != "channel");
    Ok(found)
}
