//! 8-bit and 4-bit floats by table (OCP FP8 and MX specifications; FNUZ: arXiv 2206.02915).

use std::sync::LazyLock;

use super::DType;

/// One value per bit pattern.
pub(super) fn table(dtype: DType) -> &'static [f64; 256] {
    static E4M3: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|b| e4m3(b as u8)));
    static E5M2: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|b| e5m2(b as u8)));
    static E4M3_FNUZ: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|b| fnuz(b as u8, 3, 8)));
    static E5M2_FNUZ: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|b| fnuz(b as u8, 2, 16)));
    static E8M0: LazyLock<[f64; 256]> = LazyLock::new(|| std::array::from_fn(|b| e8m0(b as u8)));
    match dtype {
        DType::F8E5M2 => &E5M2,
        DType::F8E4M3Fnuz => &E4M3_FNUZ,
        DType::F8E5M2Fnuz => &E5M2_FNUZ,
        DType::F8E8M0 => &E8M0,
        _ => &E4M3,
    }
}

/// Value of a pattern with `mantissa` mantissa bits and exponent bias `bias`, specials aside.
fn minifloat(bits: u8, mantissa: i32, exponent_bits: u32, bias: i32) -> f64 {
    let sign = if bits >> (exponent_bits + mantissa as u32) & 1 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(bits >> mantissa) & ((1 << exponent_bits) - 1);
    let fraction = f64::from(i32::from(bits) & ((1 << mantissa) - 1)) / f64::from(1 << mantissa);
    if exponent == 0 {
        sign * fraction * 2f64.powi(1 - bias)
    } else {
        sign * (1.0 + fraction) * 2f64.powi(exponent - bias)
    }
}

fn e4m3(bits: u8) -> f64 {
    if bits & 0x7f == 0x7f { f64::NAN } else { minifloat(bits, 3, 4, 7) }
}

fn e5m2(bits: u8) -> f64 {
    match bits & 0x7f {
        0x7c if bits & 0x80 == 0 => f64::INFINITY,
        0x7c => f64::NEG_INFINITY,
        0x7d..=0x7f => f64::NAN,
        _ => minifloat(bits, 2, 5, 15),
    }
}

fn fnuz(bits: u8, mantissa: i32, bias: i32) -> f64 {
    if bits == 0x80 { f64::NAN } else { minifloat(bits, mantissa, 7 - mantissa as u32, bias) }
}

fn e8m0(bits: u8) -> f64 {
    if bits == 0xff { f64::NAN } else { 2f64.powi(i32::from(bits) - 127) }
}

/// OCP MX FP4.
pub(super) fn e2m1(nibble: u8) -> f64 {
    minifloat(nibble & 0xf, 1, 2, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_match_the_specifications() {
        let largest = |dtype| table(dtype).iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        for dtype in [DType::F8E4M3, DType::F8E5M2, DType::F8E4M3Fnuz, DType::F8E5M2Fnuz, DType::F8E8M0] {
            assert_eq!(Some(largest(dtype)), dtype.max_finite(), "{dtype}");
            let smallest = table(dtype).iter().copied().filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            assert_eq!(Some(smallest), dtype.smallest_subnormal(), "{dtype}");
        }
        assert_eq!((0..8).map(e2m1).collect::<Vec<_>>(), [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!(table(DType::F8E4M3)[0xb8], -1.0);
    }
}
