//! Integers of any width, exactly: f64 cannot tell 2^53 from 2^53 + 1.

use crate::tensor::{DType, Kind};

/// Whether values of `dtype` are integers that f64 does not hold exactly.
pub(super) fn is_wide(dtype: DType) -> bool {
    dtype.kind() == Kind::Int && dtype.bits() > 53
}

/// Decodes `out.len()` integers from `bytes`, starting at element `start`; zeros for other kinds.
pub(super) fn decode_into(dtype: DType, bytes: &[u8], start: usize, out: &mut [i128]) {
    fn each<const N: usize>(bytes: &[u8], start: usize, out: &mut [i128], value: impl Fn([u8; N]) -> i128) {
        let (chunks, _) = bytes.as_chunks::<N>();
        for (slot, chunk) in out.iter_mut().zip(chunks.iter().skip(start)) {
            *slot = value(*chunk);
        }
    }
    match dtype {
        DType::I64 => each(bytes, start, out, |b| i64::from_le_bytes(b).into()),
        DType::I32 => each(bytes, start, out, |b| i32::from_le_bytes(b).into()),
        DType::I16 => each(bytes, start, out, |b| i16::from_le_bytes(b).into()),
        DType::I8 => each(bytes, start, out, |b| i8::from_le_bytes(b).into()),
        DType::U64 => each(bytes, start, out, |b| u64::from_le_bytes(b).into()),
        DType::U32 => each(bytes, start, out, |b| u32::from_le_bytes(b).into()),
        DType::U16 => each(bytes, start, out, |b| u16::from_le_bytes(b).into()),
        DType::U8 => each(bytes, start, out, |[b]| b.into()),
        _ => out.fill(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_the_widest_types() {
        let mut out = [0; 1];
        decode_into(DType::U64, &[0xff; 16], 1, &mut out);
        assert_eq!(out, [i128::from(u64::MAX)]);
        decode_into(DType::I64, &i64::MIN.to_le_bytes(), 0, &mut out);
        assert_eq!(out, [i128::from(i64::MIN)]);
        decode_into(DType::I8, &[1, 0x80], 1, &mut out);
        assert_eq!(out, [-128]);
        assert!(is_wide(DType::U64) && !is_wide(DType::U32) && !is_wide(DType::F64));
    }
}
