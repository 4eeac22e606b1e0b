//! Statistics of one side: of a pair, or of a tensor alone.

use super::SideStats;
use super::blocks::Blocks;
use super::pair::Marks;
use crate::tensor::Tensor;

/// Statistics of one tensor alone. No element is taken for a mask sentinel, since that needs both
/// sides; a tensor whose elements cannot be decoded has all counts 0.
pub fn measure(tensor: &Tensor) -> SideStats {
    let dtype = tensor.dtype();
    if !dtype.decodes() {
        return SideStats::default();
    }
    let marks = Marks::of(dtype);
    let blocks = Blocks::new(tensor.len() * dtype.components(), 1, size_of::<SideStats>());
    let partials = blocks.map(|ranges| {
        let mut values = vec![0.0; blocks.largest()];
        let mut stripe = SideStats::start();
        for range in ranges {
            let values = &mut values[..range.len()];
            dtype.decode_into(tensor.bytes(), range.start, values);
            let mut block = SideStats::start();
            values.iter().for_each(|&value| block.add(value, &marks));
            stripe.merge(&block);
        }
        stripe
    });
    let mut stats = SideStats::start();
    partials.iter().for_each(|partial| stats.merge(partial));
    stats.finish()
}

impl SideStats {
    /// The neutral element of [`SideStats::merge`].
    pub(super) fn start() -> Self {
        Self { min: f64::INFINITY, max: f64::NEG_INFINITY, amin_nonzero: f64::INFINITY, ..Self::default() }
    }

    /// Counts one value.
    pub(super) fn add(&mut self, value: f64, marks: &Marks) {
        if !value.is_finite() {
            return self.add_special(value);
        }
        let magnitude = value.abs();
        self.finite += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.amax = self.amax.max(magnitude);
        self.sum += value;
        self.sum_sq += value * value;
        self.at_max += u64::from(magnitude == marks.max);
        if magnitude == 0.0 {
            self.zeros += 1;
        } else {
            self.amin_nonzero = self.amin_nonzero.min(magnitude);
        }
    }

    /// Counts NaN and infinities, and nothing else.
    pub(super) fn add_special(&mut self, value: f64) {
        self.nan += u64::from(value.is_nan());
        self.pos_inf += u64::from(value == f64::INFINITY);
        self.neg_inf += u64::from(value == f64::NEG_INFINITY);
    }

    /// Adds the statistics of the values that follow.
    pub(super) fn merge(&mut self, next: &Self) {
        self.min = self.min.min(next.min);
        self.max = self.max.max(next.max);
        self.amax = self.amax.max(next.amax);
        self.amin_nonzero = self.amin_nonzero.min(next.amin_nonzero);
        self.sum_sq += next.sum_sq;
        self.sum += next.sum;
        self.nan += next.nan;
        self.pos_inf += next.pos_inf;
        self.neg_inf += next.neg_inf;
        self.zeros += next.zeros;
        self.at_max += next.at_max;
        self.finite += next.finite;
    }

    /// Replaces the extremes of nothing by 0.
    pub(super) fn finish(mut self) -> Self {
        for extreme in [&mut self.min, &mut self.max, &mut self.amin_nonzero] {
            if extreme.is_infinite() {
                *extreme = 0.0;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;
    use approx::assert_relative_eq;

    fn f32s(values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(DType::F32, vec![values.len()], bytes).unwrap()
    }

    #[test]
    fn every_field_of_a_small_tensor() {
        let stats = measure(&f32s(&[3.0, -4.0, 0.0, -0.0, 0.5, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 2.0]));
        assert_eq!((stats.min, stats.max, stats.amax, stats.amin_nonzero), (-4.0, 3.0, 4.0, 0.5));
        assert_eq!((stats.nan, stats.pos_inf, stats.neg_inf, stats.specials()), (1, 1, 1, 3));
        assert_eq!((stats.zeros, stats.finite, stats.at_max), (2, 6, 0));
        assert_relative_eq!(stats.sum, 1.5);
        assert_relative_eq!(stats.sum_sq, 29.25);
        assert_relative_eq!(stats.rms(), (29.25f64 / 6.0).sqrt());
    }

    #[test]
    fn extremes_of_nothing_are_zero_and_the_largest_value_is_counted() {
        assert_eq!(measure(&f32s(&[])), SideStats::default());
        let stats = measure(&f32s(&[f32::NAN]));
        assert_eq!((stats.min, stats.max, stats.amin_nonzero, stats.nan), (0.0, 0.0, 0.0, 1));
        assert_eq!(measure(&f32s(&[f32::MAX, f32::MIN, 1.0])).at_max, 2);
    }
}
