//! One tensor in three runs: how far golden and candidate are from the truth, over the same elements.
//!
//! In go three tensors of one shape; out come their [`Ratios`], or why there are none ([`NoRho`]).
//! Elements count where all three are finite, where the case counts them and where no mask sentinel
//! stands. One pass in order, a block at a time, so that nothing depends on threads.

use std::fmt;

use super::limit::figure;
use super::threshold::{ROUNDING, TRUTH_FAR_OFF, TRUTH_LEAST, vendor_small};
use crate::tensor::{DType, Kind, Tensor};

/// Elements decoded at a time.
const BLOCK: usize = 8192;

/// Errors against the truth and their ratios, candidate over golden. Every error is floored at what
/// one rounding to that side's dtype leaves: an error below it is luck, and so is a ratio of such.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratios {
    /// Elements that were judged.
    pub elements: u64,
    /// rel_l2 of the golden against the truth.
    pub golden: f64,
    /// rel_l2 of the candidate against the truth.
    pub candidate: f64,
    /// The ratio of the two, both floored at 0.42 u; equal to the ratio of the RMSE.
    pub rho: f64,
    /// Ratio of the largest relative errors, each floored at u; over elements that are not small by
    /// the vendor's standard. `None` where all are.
    pub max: Option<f64>,
    /// Ratio of the mean relative errors over the same elements, each floored at 0.42 u.
    pub mean: Option<f64>,
}

/// Why no rho exists of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NoRho {
    /// The truth has no tensor that answers it, or one side was not stored.
    Absent,
    /// Not floating point, or of different shapes.
    Kind,
    /// Fewer elements than a ratio of errors can rest on.
    Few(u64),
    /// The truth is zero throughout.
    Zero,
    /// The golden itself is too far from the truth, by this rel_l2.
    FarOff(f64),
    /// A discrete choice before it differs between the runs: routing, sampling, a comparison.
    Diverged,
}

impl NoRho {
    /// The reason without its number, by which reports count.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Absent => "not in all three runs",
            Self::Kind => "not floating point, or of another shape",
            Self::Few(_) => "fewer than 64 elements",
            Self::Zero => "zero in the truth",
            Self::FarOff(_) => "the golden is further than 0.3 from the truth",
            Self::Diverged => "after a discrete divergence",
        }
    }
}

impl fmt::Display for NoRho {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Few(n) => write!(f, "{n} elements, {}", self.kind()),
            Self::FarOff(error) => write!(f, "{} (rel_l2 {})", self.kind(), figure(*error)),
            _ => f.write_str(self.kind()),
        }
    }
}

/// Sums of one side.
#[derive(Default, Clone, Copy)]
struct Errors {
    sq: f64,
    max_rel: f64,
    sum_rel: f64,
}

impl Errors {
    fn add(&mut self, value: f64, truth: f64, is_small: bool) {
        let error = (value - truth).abs();
        self.sq += error * error;
        if !is_small {
            let relative = error / truth.abs();
            self.max_rel = self.max_rel.max(relative);
            self.sum_rel += relative;
        }
    }
}

/// Holds `golden` and `candidate` against `truth`. `valid` has one entry for each element.
pub(super) fn ratios(
    truth: &Tensor,
    golden: &Tensor,
    candidate: &Tensor,
    valid: Option<&[bool]>,
) -> Result<Ratios, NoRho> {
    let sides = [truth, golden, candidate];
    let fits = |tensor: &Tensor| {
        tensor.dtype().kind() == Kind::Float && tensor.dtype().decodes() && tensor.shape() == truth.shape()
    };
    if !sides.into_iter().all(fits) || valid.is_some_and(|valid| valid.len() != truth.len()) {
        return Err(NoRho::Kind);
    }
    let roundoff = |dtype: DType| dtype.unit_roundoff().unwrap_or(0.0);
    let (of_golden, of_candidate) = (roundoff(golden.dtype()), roundoff(candidate.dtype()));
    let small = vendor_small(super::coarser(golden.dtype(), candidate.dtype()));
    let lowest = sides.map(|tensor| -tensor.dtype().max_finite().unwrap_or(f64::INFINITY));
    let (mut judged, mut large, mut norm_sq) = (0u64, 0u64, 0.0f64);
    let (mut left, mut right) = (Errors::default(), Errors::default());
    let mut blocks = [[0.0; BLOCK]; 3];
    let mut start = 0;
    while start < truth.len() {
        let length = BLOCK.min(truth.len() - start);
        for (block, tensor) in blocks.iter_mut().zip(sides) {
            tensor.dtype().decode_into(tensor.bytes(), start, &mut block[..length]);
        }
        let [t, g, c] = &blocks;
        for (at, ((&t, &g), &c)) in t.iter().zip(g).zip(c).take(length).enumerate() {
            let counts = valid.is_none_or(|valid| valid.get(start + at).copied().unwrap_or(false));
            let is_sentinel = t == lowest[0] || g == lowest[1] || c == lowest[2];
            if !counts || is_sentinel || !(t.is_finite() && g.is_finite() && c.is_finite()) {
                continue;
            }
            let is_small = t.abs() < small || t == 0.0;
            judged += 1;
            large += u64::from(!is_small);
            norm_sq += t * t;
            left.add(g, t, is_small);
            right.add(c, t, is_small);
        }
        start += length;
    }
    if judged < TRUTH_LEAST {
        return Err(NoRho::Few(judged));
    }
    // A sum of squares that leaves the range of f64 says as little as none.
    if !(norm_sq >= f64::MIN_POSITIVE && norm_sq.is_finite() && right.sq.is_finite()) {
        return Err(NoRho::Zero);
    }
    let error = |side: Errors| (side.sq / norm_sq).sqrt();
    let (golden, candidate) = (error(left), error(right));
    if !golden.is_finite() || golden > TRUTH_FAR_OFF {
        return Err(NoRho::FarOff(golden));
    }
    let ratio = |candidate: f64, golden: f64, share: f64| {
        let floored = candidate.max(share * of_candidate) / golden.max(share * of_golden);
        Some(floored).filter(|ratio| ratio.is_finite())
    };
    let mean = |side: Errors| side.sum_rel / large as f64;
    Ok(Ratios {
        elements: judged,
        golden,
        candidate,
        rho: ratio(candidate, golden, ROUNDING).ok_or(NoRho::Zero)?,
        max: ratio(right.max_rel, left.max_rel, 1.0).filter(|_| large > 0),
        mean: if large > 0 { ratio(mean(right), mean(left), ROUNDING) } else { None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(values: &[f64]) -> Tensor {
        let bytes = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
        Tensor::new(DType::F32, vec![values.len()], bytes).unwrap()
    }

    fn waves(n: usize, error: f64) -> Tensor {
        tensor(&(0..n).map(|at| (1.0 + at as f64).sin() * (1.0 + error * (at as f64).cos())).collect::<Vec<_>>())
    }

    #[test]
    fn the_ratio_of_known_errors() {
        let ratios = ratios(&waves(512, 0.0), &waves(512, 1e-3), &waves(512, 3e-3), None).unwrap();
        assert!((ratios.rho - 3.0).abs() < 1e-3, "{ratios:?}");
        assert!((ratios.max.unwrap() - 3.0).abs() < 1e-2 && (ratios.mean.unwrap() - 3.0).abs() < 1e-2, "{ratios:?}");
        assert_eq!(ratios.elements, 512);
    }

    #[test]
    fn errors_below_one_rounding_are_no_ratio() {
        let truth = waves(512, 0.0);
        let ratios = ratios(&truth, &truth, &waves(512, 1e-9), None).unwrap();
        assert_eq!((ratios.rho, ratios.golden), (1.0, 0.0));
    }

    #[test]
    fn the_conditions_under_which_there_is_none() {
        let of = |n: usize, golden: f64| ratios(&waves(n, 0.0), &waves(n, golden), &waves(n, 0.0), None);
        assert_eq!(of(63, 1e-3), Err(NoRho::Few(63)));
        assert!(matches!(of(64, 0.9), Err(NoRho::FarOff(error)) if error > 0.3));
        let zero = tensor(&[0.0; 64]);
        assert_eq!(ratios(&zero, &zero, &waves(64, 0.0), None), Err(NoRho::Zero));
        assert_eq!(ratios(&waves(64, 0.0), &waves(65, 0.0), &waves(64, 0.0), None), Err(NoRho::Kind));
    }

    #[test]
    fn what_does_not_count_is_left_out() {
        let (truth, golden) = (waves(200, 0.0), waves(200, 1e-3));
        let mut values: Vec<f64> = waves(200, 1e-3).decode().unwrap();
        values[7] = 1e6;
        values[8] = f64::NAN;
        let spoilt = tensor(&values);
        let mut valid = vec![true; 200];
        assert!(ratios(&truth, &golden, &spoilt, Some(&valid)).unwrap().rho > 1e3);
        valid[7] = false;
        let ratios = ratios(&truth, &golden, &spoilt, Some(&valid)).unwrap();
        assert!((ratios.rho - 1.0).abs() < 1e-9 && ratios.elements == 198, "{ratios:?}");
    }
}
