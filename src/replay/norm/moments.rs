//! Mean and variance of a row with what their own rounding errors are held against, and the affine
//! step that all normalisations share.

use crate::replay::lanes::{Lanes, array, sum};
use crate::replay::{Reference, Unmodelled};
use crate::tensor::DType;

/// Statistics of one row of n elements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    /// Σx/n.
    pub(super) mean: f64,
    /// Σ(x-μ)²/n.
    pub(super) variance: f64,
    /// Σ|x|/n.
    absolute: f64,
    /// Σ(x/n)².
    squares: f64,
    /// Σ|x-μ|(|x|+|μ|)/n: how the variance answers to a relative rounding of x-μ's operands.
    spread: f64,
    /// Σ(|x|+|μ|)²/n: the same to second order, which is what is left where all x are equal.
    energy: f64,
}

/// Statistics of one row; of an empty one NaN, as 0/0 is.
pub(super) fn moments(row: &[f64]) -> Moments {
    let n = row.len() as f64;
    let mean = sum(row.iter().copied()) / n;
    let magnitude = |x: f64| x.abs() + mean.abs();
    Moments {
        mean,
        variance: sum(row.iter().map(|x| (x - mean).powi(2))) / n,
        absolute: sum(row.iter().map(|x| x.abs())) / n,
        squares: sum(row.iter().map(|x| (x / n).powi(2))),
        spread: sum(row.iter().map(|&x| (x - mean).abs() * magnitude(x))) / n,
        energy: sum(row.iter().map(|&x| magnitude(x).powi(2))) / n,
    }
}

impl Moments {
    /// 1/sqrt(var + eps).
    pub(super) fn rstd(&self, eps: f64) -> f64 {
        1.0 / (self.variance + eps).sqrt()
    }

    /// The centre and width that a row is normalised by, for a result in `output`.
    pub(super) fn centre(&self, eps: f64, output: DType) -> Centre {
        let statistics = DType::F32.unit_roundoff().unwrap_or(0.0);
        // A coarser result does not see the roundings of fp32 statistics.
        let visible = output.unit_roundoff().map_or(1.0, |roundoff| (statistics / roundoff).min(1.0));
        Centre { mean: self.mean, rstd: self.rstd(eps), blur: visible * self.absolute }
    }

    /// What an error of rstd is held against: rstd·(1 + δvar/(var+eps)), by first-order propagation
    /// through rstd = (var+eps)^-1/2 of an error of one unit roundoff in x-μ, its square included.
    pub(super) fn rstd_scale(&self, eps: f64) -> f64 {
        // Statistics of 16-bit tensors are computed in fp32.
        let roundoff = DType::F32.unit_roundoff().unwrap_or(0.0);
        self.rstd(eps) * (1.0 + (self.spread + roundoff * self.energy) / (self.variance + eps))
    }
}

/// The references of saved means and reciprocal deviations, in `shape` (one element per row).
pub(super) fn saved(
    stats: &[Moments],
    eps: f64,
    terms: usize,
    shape: &[usize],
) -> Result<(Reference, Reference), Unmodelled> {
    let each = |f: &dyn Fn(&Moments) -> f64| array(shape, stats.iter().map(f).collect());
    let mean = Reference::summed(each(&|m| m.mean)?, each(&|m| m.absolute)?, terms, each(&|m| m.squares)?);
    let rstd = Reference::function(each(&|m| m.rstd(eps))?, each(&|m| m.rstd_scale(eps))?, super::NORM_ULP);
    Ok((mean, rstd))
}

/// What a row is normalised by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Centre {
    pub(super) mean: f64,
    pub(super) rstd: f64,
    /// What the mean's own rounding error is proportional to, Σ|x|/n in units of the result's
    /// roundoff: where terms cancel it is far above |μ|, and it moves all elements of the row. 0 for a
    /// mean that was given.
    pub(super) blur: f64,
}

/// Weight and bias by channel, where there are any.
#[derive(Debug, Default)]
pub(super) struct Affine {
    pub(super) gamma: Option<Vec<f64>>,
    pub(super) beta: Option<Vec<f64>>,
}

impl Affine {
    /// (γ, β) of a channel.
    fn of(&self, channel: usize) -> (f64, f64) {
        let at = |values: &Option<Vec<f64>>, absent| {
            values.as_ref().map_or(absent, |v| v.get(channel).copied().unwrap_or(absent))
        };
        (at(&self.gamma, 1.0), at(&self.beta, 0.0))
    }
}

/// γ·(x-μ)·rstd+β over all rows, with the scale |γ|·rstd·(|x|+|μ|+blur)+|β|; `centre` gives
/// what each row is normalised by, `channel` the channel of (row, position).
pub(super) fn normalise(
    lanes: &Lanes,
    data: &[f64],
    centre: impl Fn(usize) -> Centre + Sync,
    affine: &Affine,
    channel: impl Fn(usize, usize) -> usize + Sync,
) -> Result<Reference, Unmodelled> {
    let (value, scale) = lanes.map(data, |row, x, value, scale| {
        let Centre { mean, rstd, blur } = centre(row);
        for (at, ((x, value), scale)) in x.iter().zip(value).zip(scale).enumerate() {
            let (gamma, beta) = affine.of(channel(row, at));
            *value = (x - mean) * rstd * gamma + beta;
            *scale = gamma.abs() * rstd * (x.abs() + mean.abs() + blur) + beta.abs();
        }
    });
    Ok(Reference::function(lanes.restore(value)?, lanes.restore(scale)?, super::NORM_ULP))
}
