//! The slope of an output over its exact values: a small common factor that no element shows.
//!
//! In go pairs of a recorded and an exact value, out comes what a factor other than 1 would have to
//! say for itself. A factor of 1.003 stays below the spacing of bf16 in each element, yet moves the
//! slope <y, r>/<r, r> by 0.003, where independent roundings leave it at 1 to a few millionths.

use super::limit::figure;
use super::threshold::{ROUNDING, SLOPE_BIAS, SLOPE_ROWS, SLOPE_SIGMAS};
use crate::tensor::DType;

/// Sums over the rows of one output.
pub(super) struct Slope {
    /// Unit roundoff of the output; `None` where the test does not apply.
    roundoff: Option<f64>,
    /// Elements of a row.
    width: usize,
    /// Per row: the sum of y*r and of r*r.
    rows: Vec<(f64, f64)>,
    /// Sum of r^4: how much single elements dominate.
    fourth: f64,
}

impl Slope {
    /// For `len` values of `dtype` and `shape`. The test is made for 16-bit floats alone: their
    /// rounding hides a small factor, and is unbiased; in fp32 the own error of the functions would be
    /// taken for one.
    pub(super) fn new(dtype: DType, len: usize, shape: &[usize]) -> Self {
        let roundoff = matches!(dtype, DType::F16 | DType::BF16).then(|| dtype.unit_roundoff()).flatten();
        let last = shape.last().copied().unwrap_or(1).max(1);
        // Where there are few rows, their pieces stand for rows.
        let width = if len / last >= SLOPE_ROWS { last } else { len.div_ceil(SLOPE_ROWS).max(1) };
        let rows = if roundoff.is_some() { vec![(0.0, 0.0); len.div_ceil(width)] } else { Vec::new() };
        Self { roundoff, width, rows, fourth: 0.0 }
    }

    /// Takes the value at flat index `at`.
    pub(super) fn add(&mut self, at: usize, recorded: f64, exact: f64) {
        if let Some(row) = self.rows.get_mut(at / self.width) {
            row.0 += recorded * exact;
            row.1 += exact * exact;
            self.fourth += (exact * exact).powi(2);
        }
    }

    /// The bias in words, where it is beyond what independent roundings leave.
    pub(super) fn bias(&self) -> Option<String> {
        let roundoff = self.roundoff?;
        let rows: Vec<(f64, f64)> = self.rows.iter().copied().filter(|(_, d)| *d > 0.0).collect();
        if rows.len() < SLOPE_ROWS {
            return None;
        }
        let (n, d) = rows.iter().fold((0.0, 0.0), |(n, d), row| (n + row.0, d + row.1));
        let bias = n / d - 1.0;
        // Of a ratio of sums over independent rows (the linearised ratio estimator).
        let count = rows.len() as f64;
        let spread: f64 = rows.iter().map(|row| (row.0 - (1.0 + bias) * row.1).powi(2)).sum();
        let among_rows = (spread * count / (count - 1.0)).sqrt() / d;
        // Where one row or element dominates, it agrees with itself: one rounding of each element
        // leaves no less than this.
        let of_rounding = ROUNDING * roundoff * self.fourth.sqrt() / d;
        let error = among_rows.max(of_rounding);
        if !bias.is_finite() || bias.abs() <= SLOPE_SIGMAS * error || bias.abs() <= SLOPE_BIAS * roundoff {
            return None;
        }
        Some(format!(
            "over {} rows it is {:+.3} % off as a whole, {} standard errors from none (limit {SLOPE_SIGMAS})",
            rows.len(),
            100.0 * bias,
            figure(bias.abs() / error),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of values without pattern, times `factor`, rounded to bf16.
    fn slope(factor: f64, dtype: DType) -> Option<String> {
        let (rows, width) = (32, 64);
        let mut slope = Slope::new(dtype, rows * width, &[rows, width]);
        let mut state = 0.37f64;
        for at in 0..rows * width {
            // The logistic map, which wanders over (0, 1).
            state = 3.99 * state * (1.0 - state);
            let exact = state - 0.5;
            slope.add(at, half::bf16::from_f64(exact * factor).to_f64(), exact);
        }
        slope.bias()
    }

    #[test]
    fn a_factor_below_the_spacing_is_found_and_rounding_is_none() {
        assert!(slope(1.003, DType::BF16).is_some_and(|why| why.contains(" +0.")));
        assert!(slope(0.997, DType::BF16).is_some_and(|why| why.contains(" -0.")));
        assert_eq!(slope(1.0, DType::BF16), None);
        assert_eq!(slope(1.003, DType::F32), None, "fp32 outputs have limits of their own");
    }

    #[test]
    fn few_values_say_nothing() {
        let mut few = Slope::new(DType::F16, 8, &[2, 4]);
        (0..8).for_each(|at| few.add(at, 1.1, 1.0));
        assert_eq!(few.bias(), None);
        let mut dominated = Slope::new(DType::F16, 64, &[64, 1]);
        (0..64).for_each(|at| dominated.add(at, if at == 0 { 1.0004 } else { 1e-3 }, if at == 0 { 1.0 } else { 1e-3 }));
        assert_eq!(dominated.bias(), None, "one rounded element outweighs all others");
        let mut nothing = Slope::new(DType::F16, 0, &[0, 4]);
        nothing.add(0, 1.0, 1.0);
        assert_eq!(nothing.bias(), None);
    }
}
