//! Distances in units in the last place: a float's position on the grid of a binary format.
//!
//! Positions are consecutive integers, 0 at zero and negative below it, so a distance is a
//! difference. The grid has the format's precision and its lower end (subnormals), but no upper one:
//! a value beyond the format's range has the position that it would have with more exponent bits, so
//! an overflow shows as the large distance that it is.

use crate::tensor::DType;

const F64_FRACTION: u32 = 52;
const F64_BIAS: i32 = 1023;

/// The grid of one floating-point format.
#[derive(Debug, Clone, Copy)]
pub(super) enum Grid {
    /// f64 itself: positions are the bit patterns in order.
    Double,
    /// A format narrower than f64.
    Narrow {
        /// Stored mantissa bits.
        mantissa: u32,
        /// Exponent of the smallest normal number.
        smallest_exponent: i32,
    },
}

impl Grid {
    /// The grid of `dtype`; `None` for integers and bools.
    pub(super) fn of(dtype: DType) -> Option<Self> {
        let (unit, smallest) = (dtype.unit_roundoff()?, dtype.smallest_subnormal()?);
        if dtype == DType::F64 {
            return Some(Self::Double);
        }
        // u = 2^-(mantissa + 1); the smallest subnormal is 2^(smallest_exponent - mantissa).
        let mantissa = (-exponent(unit) - 1).unsigned_abs();
        Some(Self::Narrow { mantissa, smallest_exponent: exponent(smallest) + mantissa as i32 })
    }

    /// The grid of the coarser of two dtypes: the larger unit roundoff, then the larger subnormal step.
    pub(super) fn coarser(golden: DType, candidate: DType) -> Option<Self> {
        let coarseness = |dtype: DType| Some((dtype.unit_roundoff()?, dtype.smallest_subnormal()?));
        let dtype = if coarseness(candidate)? > coarseness(golden)? { candidate } else { golden };
        Self::of(dtype)
    }

    /// Position of the finite `value` after rounding to the grid, ties to even.
    pub(super) fn position(self, value: f64) -> i64 {
        let magnitude_bits = value.abs().to_bits();
        let magnitude = match self {
            // A magnitude's bits are below 2^63.
            Self::Double => magnitude_bits as i64,
            Self::Narrow { mantissa, smallest_exponent } => {
                let own = exponent(value.abs());
                // Subnormals of f64 (own = -1023) are below the smallest exponent of every narrower format.
                if own < smallest_exponent {
                    let scale = power_of_two(mantissa as i32 - smallest_exponent);
                    (value.abs() * scale).round_ties_even() as i64
                } else {
                    let significand = f64::from_bits(magnitude_bits & ((1 << F64_FRACTION) - 1) | 1f64.to_bits());
                    let steps = (significand * power_of_two(mantissa as i32)).round_ties_even() as i64;
                    steps + (i64::from(own - smallest_exponent) << mantissa)
                }
            }
        };
        if value.is_sign_negative() { -magnitude } else { magnitude }
    }

    /// Number of steps between two finite values.
    pub(super) fn distance(self, a: f64, b: f64) -> u64 {
        self.position(a).abs_diff(self.position(b))
    }
}

/// Distance of two finite values in units in the last place of `dtype`, after rounding both to it;
/// `None` for integers and bools.
pub fn ulp_distance(dtype: DType, a: f64, b: f64) -> Option<u64> {
    Grid::of(dtype).map(|grid| grid.distance(a, b))
}

/// Exponent of a normal f64 magnitude; -1023 for zero and subnormals.
fn exponent(magnitude: f64) -> i32 {
    (magnitude.to_bits() >> F64_FRACTION) as i32 - F64_BIAS
}

/// 2^`exponent` for exponents of normal f64 numbers.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + F64_BIAS) as u64) << F64_FRACTION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Tensor;

    #[test]
    fn neighbours_are_one_step_apart_in_every_narrow_format() {
        for dtype in [DType::F16, DType::BF16] {
            let grid = Grid::of(dtype).unwrap();
            // All finite non-negative patterns in order are consecutive positions from 0.
            let patterns: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let values = Tensor::new(dtype, vec![65536], patterns).unwrap().decode().unwrap();
            for (at, value) in values.iter().enumerate().take(32768).filter(|(_, v)| v.is_finite()) {
                assert_eq!(grid.position(*value), at as i64, "{dtype} {value}");
                assert_eq!(grid.position(-*value), -(at as i64), "{dtype} {value}");
            }
        }
        for dtype in [DType::F8E4M3, DType::F8E5M2, DType::F8E4M3Fnuz, DType::F8E5M2Fnuz] {
            let grid = Grid::of(dtype).unwrap();
            let values = Tensor::new(dtype, vec![256], (0..=255).collect()).unwrap().decode().unwrap();
            for (at, value) in values.iter().enumerate().take(128).filter(|(_, v)| v.is_finite()) {
                assert_eq!(grid.position(*value), at as i64, "{dtype} {value}");
            }
        }
        let f32_grid = Grid::of(DType::F32).unwrap();
        for bits in [0u32, 1, 0x7f_ffff, 0x80_0000, 0x3f80_0000, 0x7f7f_ffff] {
            assert_eq!(f32_grid.position(f64::from(f32::from_bits(bits))), i64::from(bits));
        }
        let f4 = Grid::of(DType::F4).unwrap();
        for (at, value) in [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0].into_iter().enumerate() {
            assert_eq!(f4.position(value), at as i64);
        }
    }

    #[test]
    fn rounding_agrees_with_half() {
        let (f16, bf16) = (Grid::of(DType::F16).unwrap(), Grid::of(DType::BF16).unwrap());
        let mut x = 1e-9f32;
        while x < 6e4 {
            assert_eq!(f16.position(f64::from(x)), i64::from(half::f16::from_f32(x).to_bits()), "{x}");
            assert_eq!(bf16.position(f64::from(x)), i64::from(half::bf16::from_f32(x).to_bits()), "{x}");
            x *= 1.000_37;
        }
    }

    #[test]
    fn f64_across_zero_and_the_whole_range() {
        let grid = Grid::of(DType::F64).unwrap();
        assert_eq!(grid.distance(f64::from_bits(1), -f64::from_bits(1)), 2);
        assert_eq!(grid.distance(0.0, -0.0), 0);
        assert_eq!(grid.distance(f64::MAX, f64::MIN), 2 * f64::MAX.to_bits());
    }

    #[test]
    fn the_coarser_dtype_decides_and_overflow_goes_on() {
        // 1 + 2^-8 is half a bf16 step above 1: a tie, to even, so no distance; in f16 it is 4 steps.
        let value = 1.0 + 2f64.powi(-8);
        assert_eq!(Grid::coarser(DType::F32, DType::BF16).unwrap().distance(1.0, value), 0);
        assert_eq!(Grid::coarser(DType::F32, DType::F16).unwrap().distance(1.0, value), 4);
        // 65504 is the last f16; 65536 would be the next, 131072 one binade of 1024 steps on.
        let f16 = Grid::of(DType::F16).unwrap();
        assert_eq!(f16.distance(65504.0, 65536.0), 1);
        assert_eq!(f16.distance(65504.0, 131_072.0), 1025);
        assert!(Grid::coarser(DType::I32, DType::I32).is_none());
    }
}
