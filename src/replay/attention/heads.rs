//! Attention of heads, `[B, N, L, E]`, block by block of queries.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, Array3, Array4, ArrayView2, ArrayView4, Axis, Ix4};
use rayon::prelude::*;

use super::mask::Mask;
use crate::replay::Unmodelled;
use crate::replay::contraction::product::tiles;

/// Scores that one task may hold (8 MiB), unless those of a single query are more.
const SCORES: usize = 1 << 20;

/// Queries of one task at most.
const QUERIES: usize = 128;

/// Queries, keys and values of all heads. Several query heads may share one head of keys and values:
/// query head `n` reads head `n / (N / Nk)`.
#[derive(Debug, Clone)]
pub(super) struct Heads<'a> {
    /// `[B, N, L, E]`.
    pub(super) query: ArrayView4<'a, f64>,
    /// `[B, Nk, S, E]`.
    pub(super) key: ArrayView4<'a, f64>,
    /// `[B, Nk, S, Ev]`.
    pub(super) value: ArrayView4<'a, f64>,
}

/// What attention gives.
#[derive(Debug, Clone)]
pub(super) struct Attended {
    /// `[B, N, L, Ev]`.
    pub(super) value: Array4<f64>,
    /// sqrt(Σ (p v)²), at least |value|.
    pub(super) scale: Array4<f64>,
    /// The error to be foreseen for an implementation that sums in plain order, root-mean-square in ULP
    /// of its dtype against `scale`, for the worst query.
    pub(super) spread: f64,
}

impl Heads<'_> {
    /// The shape of the result, `[B, N, L, Ev]`.
    ///
    /// # Errors
    /// Queries, keys and values do not fit each other.
    pub(super) fn result(&self) -> Result<[usize; 4], Unmodelled> {
        let ((b, n, l, e), (kb, kn, s, ke), (vb, vn, vs, ev)) = (self.query.dim(), self.key.dim(), self.value.dim());
        let sound = (b, b) == (kb, vb) && kn == vn && s == vs && e == ke && (n == kn || kn > 0 && n % kn == 0);
        if sound {
            Ok([b, n, l, ev])
        } else {
            Err(Unmodelled(format!(
                "query {:?}, key {:?} and value {:?} do not fit each other",
                self.query.shape(),
                self.key.shape(),
                self.value.shape()
            )))
        }
    }

    /// Computes softmax(scale · Q Kᵀ + mask) V.
    ///
    /// # Errors
    /// The extents or the mask do not fit; a query sees no key; or values that are not finite lie
    /// behind the mask: what is written there differs between implementations.
    pub(super) fn attend(&self, mask: &Mask, scale: f64) -> Result<Attended, Unmodelled> {
        let [batch, heads, queries, size] = self.result()?;
        let keys = self.key.len_of(Axis(2));
        let open = mask.is_open();
        let mask = mask.broadcast([batch, heads, queries, keys])?;
        if !open && self.value.iter().any(|value| !value.is_finite()) {
            return Err(Unmodelled("values that are not finite may lie behind the mask".to_string()));
        }
        let mut value = Array3::zeros((batch * heads, queries, size));
        let mut scales = Array3::zeros((batch * heads, queries, size));
        let cuts = [1, (SCORES / keys.max(1)).clamp(1, QUERIES), usize::MAX];
        let tasks: Vec<_> = tiles(value.view_mut(), cuts).into_iter().zip(tiles(scales.view_mut(), cuts)).collect();
        let sharing = heads / self.key.len_of(Axis(1)).max(1);
        let scores: Result<Vec<f64>, Unmodelled> = tasks
            .into_par_iter()
            .map(|(([at, start, _], mut value), (_, mut scales))| {
                let (batch, head) = (at / heads, at % heads);
                let shared = head / sharing.max(1);
                let key = self.key.index_axis(Axis(0), batch).index_axis_move(Axis(0), shared);
                let values = self.value.index_axis(Axis(0), batch).index_axis_move(Axis(0), shared);
                let query = self.query.index_axis(Axis(0), batch).index_axis_move(Axis(0), head);
                let query = query.slice_axis(Axis(0), (start..start + value.dim().1).into());
                let (mut weights, score) = probabilities(&query, &key, scale, |query, scores| {
                    mask.apply([batch, head, start + query], scores);
                })?;
                let mut value = value.index_axis_mut(Axis(0), 0);
                let mut scales = scales.index_axis_mut(Axis(0), 0);
                general_mat_mul(1.0, &weights, &values, 0.0, &mut value);
                weights.mapv_inplace(|p| p * p);
                general_mat_mul(1.0, &weights, &values.mapv(|v| v * v), 0.0, &mut scales);
                scales.zip_mut_with(&value, |scale, value| *scale = value.abs().max(scale.sqrt()));
                Ok(score)
            })
            .collect();
        let score = scores?.into_iter().fold(0.0, f64::max);
        let wrong = |_| Unmodelled("the heads have another shape".to_string());
        let shape = Ix4(batch, heads, queries, size);
        Ok(Attended {
            value: value.into_shape_with_order(shape).map_err(wrong)?,
            scale: scales.into_shape_with_order(shape).map_err(wrong)?,
            spread: spread(score, keys, self.query.len_of(Axis(3))),
        })
    }
}

/// NUMERICS 1 for both sums: a score sums `size` products and its absolute error is the relative one of
/// its probability; the values are then summed over `keys`. `score` is the largest Σ p |score|, and
/// its terms are taken to be no larger than 1 + `score` together.
fn spread(score: f64, keys: usize, size: usize) -> f64 {
    let of_score = size as f64 * (score * score / 3.0 + (1.0 + score) / 6.0);
    0.42 * (1.0 + keys as f64 / 3.0 + of_score).sqrt()
}

/// The probabilities `[L, S]` of some queries, and the largest Σ p |score| before masking.
fn probabilities(
    query: &ArrayView2<f64>,
    key: &ArrayView2<f64>,
    scale: f64,
    mask: impl Fn(usize, &mut [f64]),
) -> Result<(Array2<f64>, f64), Unmodelled> {
    let mut weights = Array2::zeros((query.nrows(), key.nrows()));
    general_mat_mul(scale, query, &key.t(), 0.0, &mut weights);
    let mut magnitude = 0.0f64;
    let mut raw = vec![0.0; key.nrows()];
    for (at, mut row) in weights.outer_iter_mut().enumerate() {
        let Some(scores) = row.as_slice_mut() else { continue };
        raw.copy_from_slice(scores);
        mask(at, scores);
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if highest == f64::NEG_INFINITY && !scores.iter().any(|score| score.is_nan()) {
            return Err(Unmodelled(
                "a query sees no key: what stands there differs between implementations".to_string(),
            ));
        }
        scores.iter_mut().for_each(|score| *score = (*score - highest).exp());
        let sum: f64 = scores.iter().sum();
        scores.iter_mut().for_each(|score| *score /= sum);
        let weighted = scores.iter().zip(&raw).filter(|(p, _)| **p > 0.0).map(|(p, score)| p * score.abs());
        magnitude = magnitude.max(weighted.sum());
    }
    Ok((weights, magnitude))
}
