//! Element types and their decoding to f64.

use std::fmt;

/// What kind of value an element is; tensors of different kinds are never compared by tolerance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Floating point.
    Float,
    /// Signed or unsigned integer.
    Int,
    /// Boolean.
    Bool,
    /// Complex floating point.
    Complex,
}

/// Element type, as safetensors 0.8 spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are the format's")]
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    F8E5M2,
    F8E4M3Fnuz,
    F8E5M2Fnuz,
    F8E8M0,
    F6E2M3,
    F6E3M2,
    F4,
    C64,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    Bool,
}

/// One row of the dtype table: type, spelling in safetensors, spelling in torch, bits, kind.
type Row = (DType, &'static str, &'static str, u32, Kind);

const TABLE: &[Row] = &[
    (DType::F64, "F64", "float64", 64, Kind::Float),
    (DType::F32, "F32", "float32", 32, Kind::Float),
    (DType::F16, "F16", "float16", 16, Kind::Float),
    (DType::BF16, "BF16", "bfloat16", 16, Kind::Float),
    (DType::F8E4M3, "F8_E4M3", "float8_e4m3fn", 8, Kind::Float),
    (DType::F8E5M2, "F8_E5M2", "float8_e5m2", 8, Kind::Float),
    (DType::F8E4M3Fnuz, "F8_E4M3FNUZ", "float8_e4m3fnuz", 8, Kind::Float),
    (DType::F8E5M2Fnuz, "F8_E5M2FNUZ", "float8_e5m2fnuz", 8, Kind::Float),
    (DType::F8E8M0, "F8_E8M0", "float8_e8m0fnu", 8, Kind::Float),
    (DType::F6E2M3, "F6_E2M3", "float6_e2m3", 6, Kind::Float),
    (DType::F6E3M2, "F6_E3M2", "float6_e3m2", 6, Kind::Float),
    (DType::F4, "F4", "float4_e2m1fn_x2", 4, Kind::Float),
    (DType::C64, "C64", "complex64", 64, Kind::Complex),
    (DType::I64, "I64", "int64", 64, Kind::Int),
    (DType::I32, "I32", "int32", 32, Kind::Int),
    (DType::I16, "I16", "int16", 16, Kind::Int),
    (DType::I8, "I8", "int8", 8, Kind::Int),
    (DType::U64, "U64", "uint64", 64, Kind::Int),
    (DType::U32, "U32", "uint32", 32, Kind::Int),
    (DType::U16, "U16", "uint16", 16, Kind::Int),
    (DType::U8, "U8", "uint8", 8, Kind::Int),
    (DType::Bool, "BOOL", "bool", 8, Kind::Bool),
];

impl DType {
    fn row(self) -> &'static Row {
        &TABLE[TABLE.iter().position(|row| row.0 == self).unwrap_or(0)]
    }

    /// The type with this spelling: safetensors' (`BF16`) or torch's (`bfloat16`, `torch.bfloat16`,
    /// `half`, `float`).
    pub fn parse(spelling: &str) -> Option<Self> {
        let name = spelling.strip_prefix("torch.").unwrap_or(spelling);
        let name = match name {
            "half" | "fp16" => "float16",
            "float" | "fp32" => "float32",
            "double" | "fp64" => "float64",
            "bf16" => "bfloat16",
            "long" => "int64",
            "int" => "int32",
            other => other,
        };
        TABLE.iter().find(|row| row.1 == name || row.2 == name).map(|row| row.0)
    }

    /// The type that safetensors spells like this (`BF16`), and no other spelling.
    pub fn from_safetensors(spelling: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == spelling).map(|row| row.0)
    }

    /// Every type, widest kinds first, as the table lists them.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// Spelling in safetensors files.
    pub fn safetensors_name(self) -> &'static str {
        self.row().1
    }

    /// Spelling in torch (`float16`), which reports and case files use.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// Bits of one element.
    pub fn bits(self) -> u32 {
        self.row().3
    }

    /// Kind of value.
    pub fn kind(self) -> Kind {
        self.row().4
    }

    /// Bytes that `elements` elements take, or `None` where that is no whole number or overflows.
    pub fn byte_len(self, elements: usize) -> Option<usize> {
        let bits = elements.checked_mul(self.bits() as usize)?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }

    /// Unit roundoff u (half the spacing at 1), for floating-point types. Source: the formats'
    /// mantissa widths (IEEE 754; OCP FP8; OCP MX).
    pub fn unit_roundoff(self) -> Option<f64> {
        let mantissa_bits = match self {
            Self::F64 => 52,
            Self::F32 | Self::C64 => 23,
            Self::F16 => 10,
            Self::BF16 => 7,
            Self::F8E4M3 | Self::F8E4M3Fnuz | Self::F6E2M3 => 3,
            Self::F8E5M2 | Self::F8E5M2Fnuz | Self::F6E3M2 => 2,
            Self::F4 => 1,
            Self::F8E8M0 => 0,
            _ => return None,
        };
        Some(0.5f64.powi(mantissa_bits + 1))
    }

    /// Largest finite value, for floating-point types.
    pub fn max_finite(self) -> Option<f64> {
        Some(match self {
            Self::F64 => f64::MAX,
            Self::F32 | Self::C64 => f64::from(f32::MAX),
            Self::F16 => 65504.0,
            Self::BF16 => 3.389_531_389_251_535_5e38,
            Self::F8E4M3 => 448.0,
            Self::F8E5M2 => 57344.0,
            Self::F8E4M3Fnuz => 240.0,
            Self::F8E5M2Fnuz => 57344.0,
            Self::F8E8M0 => 2f64.powi(127),
            Self::F6E2M3 => 7.5,
            Self::F6E3M2 => 28.0,
            Self::F4 => 6.0,
            _ => return None,
        })
    }

    /// Smallest positive subnormal, for floating-point types.
    pub fn smallest_subnormal(self) -> Option<f64> {
        Some(match self {
            Self::F64 => f64::from_bits(1),
            Self::F32 | Self::C64 => 2f64.powi(-149),
            Self::F16 => 2f64.powi(-24),
            Self::BF16 => 2f64.powi(-133),
            Self::F8E4M3 => 2f64.powi(-9),
            Self::F8E5M2 => 2f64.powi(-16),
            Self::F8E4M3Fnuz => 2f64.powi(-10),
            Self::F8E5M2Fnuz => 2f64.powi(-17),
            Self::F8E8M0 => 2f64.powi(-127),
            Self::F6E2M3 => 0.125,
            Self::F6E3M2 => 0.0625,
            Self::F4 => 0.5,
            _ => return None,
        })
    }

    /// Values per element: 2 for complex types, else 1.
    pub fn components(self) -> usize {
        if self.kind() == Kind::Complex { 2 } else { 1 }
    }

    /// Whether elements can be decoded. The packing of 6-bit floats into bytes is not defined by
    /// safetensors, so such tensors are compared by their bytes alone.
    pub fn decodes(self) -> bool {
        !matches!(self, Self::F6E2M3 | Self::F6E3M2)
    }

    /// Decodes `out.len()` values from `bytes`, starting at value `start` (a complex element is two
    /// values). Must not be called where [`DType::decodes`] is false or beyond the end of `bytes`.
    pub fn decode_into(self, bytes: &[u8], start: usize, out: &mut [f64]) {
        fn each<const N: usize>(bytes: &[u8], start: usize, out: &mut [f64], value: impl Fn([u8; N]) -> f64) {
            let (chunks, _) = bytes.as_chunks::<N>();
            for (slot, chunk) in out.iter_mut().zip(&chunks[start..]) {
                *slot = value(*chunk);
            }
        }
        match self {
            Self::F64 => each(bytes, start, out, f64::from_le_bytes),
            Self::F32 | Self::C64 => each(bytes, start, out, |b| f64::from(f32::from_le_bytes(b))),
            Self::F16 => each(bytes, start, out, |b| half::f16::from_le_bytes(b).to_f64()),
            Self::BF16 => each(bytes, start, out, |b| half::bf16::from_le_bytes(b).to_f64()),
            Self::I64 => each(bytes, start, out, |b| i64::from_le_bytes(b) as f64),
            Self::I32 => each(bytes, start, out, |b| f64::from(i32::from_le_bytes(b))),
            Self::I16 => each(bytes, start, out, |b| f64::from(i16::from_le_bytes(b))),
            Self::I8 => each(bytes, start, out, |b| f64::from(i8::from_le_bytes(b))),
            Self::U64 => each(bytes, start, out, |b| u64::from_le_bytes(b) as f64),
            Self::U32 => each(bytes, start, out, |b| f64::from(u32::from_le_bytes(b))),
            Self::U16 => each(bytes, start, out, |b| f64::from(u16::from_le_bytes(b))),
            Self::U8 => each(bytes, start, out, |[b]| f64::from(b)),
            Self::Bool => each(bytes, start, out, |[b]| f64::from(u8::from(b != 0))),
            Self::F8E4M3 | Self::F8E5M2 | Self::F8E4M3Fnuz | Self::F8E5M2Fnuz | Self::F8E8M0 => {
                let table = super::small_float::table(self);
                each(bytes, start, out, |[b]| table[usize::from(b)]);
            }
            Self::F4 => {
                for (at, slot) in out.iter_mut().enumerate() {
                    let at = start + at;
                    let nibble = (bytes[at / 2] >> (4 * (at % 2))) & 0xf;
                    *slot = super::small_float::e2m1(nibble);
                }
            }
            Self::F6E2M3 | Self::F6E3M2 => unreachable!("callers ask DType::decodes first"),
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(dtype: DType, bytes: &[u8], values: usize) -> Vec<f64> {
        let mut out = vec![0.0; values];
        dtype.decode_into(bytes, 0, &mut out);
        out
    }

    /// A value and its bytes, worked out by hand from each format's definition.
    const KNOWN: &[(DType, &[u8], &[f64])] = &[
        (DType::F64, &[0, 0, 0, 0, 0, 0, 0xf8, 0xbf], &[-1.5]),
        (DType::F32, &[0, 0, 0xc0, 0x3f, 1, 0, 0, 0], &[1.5, 1.401298464324817e-45]),
        (DType::F16, &[0xff, 0x7b, 1, 0, 0, 0xbc], &[65504.0, 5.960464477539063e-8, -1.0]),
        (DType::BF16, &[0x80, 0x3f, 0x49, 0x40], &[1.0, 3.140625]),
        (DType::F8E4M3, &[0x7e, 0x01, 0xb8], &[448.0, 0.001953125, -1.0]),
        (DType::F8E5M2, &[0x7b, 0x7c, 0xfc], &[57344.0, f64::INFINITY, f64::NEG_INFINITY]),
        (DType::F8E4M3Fnuz, &[0x7f, 0x40], &[240.0, 1.0]),
        (DType::F8E5M2Fnuz, &[0x7f, 0x40], &[57344.0, 1.0]),
        (DType::F8E8M0, &[127, 128, 0], &[1.0, 2.0, 5.877471754111438e-39]),
        (DType::F4, &[0x21, 0xfe], &[0.5, 1.0, -4.0, -6.0]),
        (DType::C64, &[0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0], &[1.0, -2.0]),
        (DType::I64, &[0xff; 8], &[-1.0]),
        (DType::I32, &[0, 0, 0, 0x80], &[-2147483648.0]),
        (DType::I16, &[0xfe, 0xff], &[-2.0]),
        (DType::I8, &[0x80], &[-128.0]),
        (DType::U64, &[0xff; 8], &[18446744073709551616.0]),
        (DType::U32, &[0xff; 4], &[4294967295.0]),
        (DType::U16, &[1, 2], &[513.0]),
        (DType::U8, &[255], &[255.0]),
        (DType::Bool, &[0, 1, 2], &[0.0, 1.0, 1.0]),
    ];

    #[test]
    fn every_dtype_decodes_to_known_values() {
        for (dtype, bytes, values) in KNOWN {
            assert_eq!(decode(*dtype, bytes, values.len()), *values, "{dtype}");
        }
        let shown: Vec<DType> = KNOWN.iter().map(|known| known.0).collect();
        assert!(DType::all().filter(|d| d.decodes()).all(|d| shown.contains(&d)), "a dtype without a known value");
    }

    #[test]
    fn nan_patterns_decode_to_nan() {
        let patterns: &[(DType, &[u8])] = &[
            (DType::F16, &[1, 0x7c]),
            (DType::BF16, &[0x81, 0x7f]),
            (DType::F8E4M3, &[0x7f]),
            (DType::F8E5M2, &[0x7d]),
            (DType::F8E4M3Fnuz, &[0x80]),
            (DType::F8E5M2Fnuz, &[0x80]),
            (DType::F8E8M0, &[0xff]),
        ];
        for (dtype, bytes) in patterns {
            assert!(decode(*dtype, bytes, 1)[0].is_nan(), "{dtype}");
        }
    }

    #[test]
    fn all_16_bit_floats_agree_with_their_definition() {
        let value = |bits: u16, mantissa: i32, bias: i32| {
            let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
            let fraction = f64::from(bits & ((1 << mantissa) - 1)) / 2f64.powi(mantissa);
            match i32::from((bits & 0x7fff) >> mantissa) {
                0 => sign * fraction * 2f64.powi(1 - bias),
                exponent if exponent == 2 * bias + 1 && fraction == 0.0 => sign * f64::INFINITY,
                exponent if exponent == 2 * bias + 1 => f64::NAN,
                exponent => sign * (1.0 + fraction) * 2f64.powi(exponent - bias),
            }
        };
        for bits in 0..=u16::MAX {
            for (dtype, mantissa, bias) in [(DType::F16, 10, 15), (DType::BF16, 7, 127)] {
                let (found, expected) = (decode(dtype, &bits.to_le_bytes(), 1)[0], value(bits, mantissa, bias));
                assert!(found == expected || (found.is_nan() && expected.is_nan()), "{dtype} {bits:#06x}");
            }
        }
    }

    #[test]
    fn decoding_may_start_within_a_byte() {
        let mut out = [0.0; 2];
        DType::F4.decode_into(&[0x21, 0x43], 1, &mut out);
        assert_eq!(out, [1.0, 1.5]);
        DType::I16.decode_into(&[1, 0, 2, 0, 3, 0], 1, &mut out);
        assert_eq!(out, [2.0, 3.0]);
    }

    #[test]
    fn spellings_lead_back_to_the_type() {
        for dtype in DType::all() {
            assert_eq!(DType::from_safetensors(dtype.safetensors_name()), Some(dtype));
            assert_eq!(DType::parse(dtype.name()), Some(dtype));
            assert_eq!(DType::parse(&format!("torch.{}", dtype.name())), Some(dtype));
        }
        assert_eq!(DType::parse("half"), Some(DType::F16));
        assert_eq!(DType::from_safetensors("float32"), None);
    }
}
