//! Rounding to a narrower format: what a device does to operands that it computes in less precision.

use crate::tensor::DType;

/// A compute format that operands are rounded to before a product.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Format {
    /// Name, as reports print it.
    pub name: &'static str,
    /// Stored mantissa bits.
    mantissa: i32,
    /// Smallest normal exponent; below it the spacing stays.
    smallest_exponent: i32,
    /// Largest finite value.
    max: f64,
}

/// How a value between two neighbours is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// To the nearest, ties to even (IEEE 754's default).
    NearestEven,
    /// To the nearest, ties away from zero.
    NearestAway,
    /// Towards zero.
    Truncate,
}

impl Rounding {
    /// As reports print it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NearestEven => "nearest-even",
            Self::NearestAway => "nearest-away",
            Self::Truncate => "truncated",
        }
    }
}

/// Formats in which devices compute what is recorded in fp32. TF32 and HF32 have fp32's exponent and
/// 10 and 11 mantissa bits (NVIDIA's and Huawei's documentation).
pub const REDUCED: [Format; 4] = [
    Format { name: "hf32", mantissa: 11, smallest_exponent: -126, max: f32::MAX as f64 },
    Format { name: "tf32", mantissa: 10, smallest_exponent: -126, max: f32::MAX as f64 },
    Format { name: "float16", mantissa: 10, smallest_exponent: -14, max: 65504.0 },
    Format { name: "bfloat16", mantissa: 7, smallest_exponent: -126, max: f32::MAX as f64 },
];

impl Format {
    /// The format of a floating-point dtype of up to 32 bits; `None` for f64 and others.
    pub fn of(dtype: DType) -> Option<Self> {
        let unit = dtype.unit_roundoff()?;
        let smallest = dtype.smallest_subnormal()?;
        if dtype == DType::F64 {
            return None;
        }
        // u = 2^-(mantissa + 1); the smallest subnormal is 2^(smallest_exponent - mantissa).
        let mantissa = -(unit.log2() as i32) - 1;
        Some(Self {
            name: dtype.name(),
            mantissa,
            smallest_exponent: smallest.log2() as i32 + mantissa,
            max: dtype.max_finite()?,
        })
    }

    /// `value` in this format; infinite beyond its largest value, NaN stays NaN.
    pub fn round(self, value: f64, rounding: Rounding) -> f64 {
        if value == 0.0 || !value.is_finite() {
            return value;
        }
        let exponent = (((value.to_bits() >> 52) & 0x7ff) as i32 - 1023).max(self.smallest_exponent);
        // Scaling by powers of two is exact within f64's range, which every narrower format is inside.
        let spacing = 2f64.powi(exponent - self.mantissa);
        let steps = value / spacing;
        let rounded = spacing
            * match rounding {
                Rounding::NearestEven => steps.round_ties_even(),
                Rounding::NearestAway => steps.round(),
                Rounding::Truncate => steps.trunc(),
            };
        if rounded.abs() > self.max { f64::INFINITY.copysign(value) } else { rounded }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_hardware_formats() {
        let (f16, bf16, f32) =
            (Format::of(DType::F16).unwrap(), Format::of(DType::BF16).unwrap(), Format::of(DType::F32).unwrap());
        for value in [
            0.1,
            -1.0 / 3.0,
            65519.0,
            65520.0,
            6e-8,
            2.9e-8,
            1e-5,
            1.0 + 2f64.powi(-11),
            1.0 + 3.0 * 2f64.powi(-11),
            3.4e38,
        ] {
            assert_eq!(f32.round(value, Rounding::NearestEven), f64::from(value as f32), "{value}");
            // `half` rounds from f32 here, so that both round once.
            let exact = f64::from(value as f32);
            assert_eq!(f16.round(exact, Rounding::NearestEven), half::f16::from_f32(value as f32).to_f64(), "{value}");
            assert_eq!(
                bf16.round(exact, Rounding::NearestEven),
                half::bf16::from_f32(value as f32).to_f64(),
                "{value}"
            );
        }
        assert_eq!(bf16.round(1.0 + 2f64.powi(-8), Rounding::NearestEven), 1.0);
        assert_eq!(bf16.round(1.0 + 2f64.powi(-8), Rounding::NearestAway), 1.0 + 2f64.powi(-7));
        assert_eq!(bf16.round(-1.0 - 1.9 * 2f64.powi(-8), Rounding::Truncate), -1.0);
        assert!(f16.round(f64::NAN, Rounding::NearestEven).is_nan());
    }
}
