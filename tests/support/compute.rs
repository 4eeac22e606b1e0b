//! Operators in f64, for the layers of small models.

use super::{Recorder, Values};

impl Recorder {
    /// `y = x wᵀ` with w of shape `[out, in]`, its parameter `name.weight` recorded by the caller.
    pub(crate) fn linear(&mut self, name: &str, x: &str) {
        let weight = format!("{name}.weight");
        let result = product(self.value(x), self.value(&weight));
        self.op(name, "linear", &[x, &weight], result);
    }

    pub(crate) fn add(&mut self, name: &str, a: &str, b: &str) {
        let result = zip(self.value(a), self.value(b), |a, b| a + b);
        self.op(name, "add", &[a, b], result);
    }

    pub(crate) fn mul(&mut self, name: &str, a: &str, b: &str) {
        let result = zip(self.value(a), self.value(b), |a, b| a * b);
        self.op(name, "mul", &[a, b], result);
    }

    /// Any function of one argument, element by element.
    pub(crate) fn apply(&mut self, name: &str, op: &str, x: &str, function: impl Fn(f64) -> f64) {
        let result = exact(self.value(x)).map(function);
        self.op(name, op, &[x], result);
    }

    pub(crate) fn softmax(&mut self, name: &str, x: &str) {
        let result = by_row(self.value(x), |row| {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let powers: Vec<f64> = row.iter().map(|v| (v - max).exp()).collect();
            let sum: f64 = powers.iter().sum();
            powers.into_iter().map(|power| power / sum).collect()
        });
        self.op(name, "softmax", &[x], result);
    }

    /// Without scale and shift.
    pub(crate) fn layer_norm(&mut self, name: &str, x: &str) {
        let result = by_row(self.value(x), |row| {
            let n = row.len() as f64;
            let mean = row.iter().sum::<f64>() / n;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            row.iter().map(|v| (v - mean) / (variance + 1e-5).sqrt()).collect()
        });
        self.op(name, "layer_norm", &[x], result);
    }

    /// Mean over the last axis, which stays with extent 1.
    pub(crate) fn mean(&mut self, name: &str, x: &str) {
        let result = by_row(self.value(x), |row| vec![row.iter().sum::<f64>() / row.len() as f64]);
        self.op(name, "mean", &[x], result);
    }
}

/// The same numbers, as f64: what a layer computes is rounded once, when it is recorded.
fn exact(x: &Values) -> Values {
    x.clone().to(goldline::tensor::DType::F64)
}

fn unrounded(shape: &[usize], numbers: Vec<f64>) -> Values {
    Values::of(goldline::tensor::DType::F64, shape, numbers)
}

/// `x wᵀ` over the last axis.
pub(crate) fn product(x: &Values, weight: &Values) -> Values {
    let (width, out) = (x.width(), weight.shape[0]);
    let mut shape = x.shape.clone();
    *shape.last_mut().expect("at least one axis") = out;
    let dot = |row: &[f64], of: &[f64]| row.iter().zip(of).map(|(a, b)| a * b).sum::<f64>();
    let rows = x.numbers.chunks(width);
    let numbers = rows.flat_map(|row| weight.numbers.chunks(width).map(move |of| dot(row, of))).collect();
    unrounded(&shape, numbers)
}

/// Element by element; `b` may be one row, or one number a row, of `a`.
pub(crate) fn zip(a: &Values, b: &Values, function: impl Fn(f64, f64) -> f64) -> Values {
    let (n, m, width) = (a.numbers.len(), b.numbers.len(), a.width());
    let partner = |at: usize| {
        if m == n {
            at
        } else if m == width {
            at % width
        } else {
            assert_eq!(m * width, n, "{:?} and {:?} broadcast", a.shape, b.shape);
            at / width
        }
    };
    let numbers = a.numbers.iter().enumerate().map(|(at, v)| function(*v, b.numbers[partner(at)])).collect();
    unrounded(&a.shape, numbers)
}

/// Row by row; the rows keep their number and may change their length.
pub(crate) fn by_row(x: &Values, function: impl Fn(&[f64]) -> Vec<f64>) -> Values {
    let rows: Vec<Vec<f64>> = x.numbers.chunks(x.width()).map(function).collect();
    let mut shape = x.shape.clone();
    *shape.last_mut().expect("at least one axis") = rows.first().map_or(0, Vec::len);
    unrounded(&shape, rows.concat())
}
