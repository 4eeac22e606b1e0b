//! Loads a stored tensor: reads its bytes and, where they do not lie dense, decodes and gathers them.
//!
//! In goes what a reader said of a tensor, out comes the tensor, row-major and little-endian. Nothing
//! is trusted twice: ranges are held against the file's present length, a compressed stream is never
//! unpacked beyond the bytes that the tensor needs, and a stride never leads out of them.

use std::io::Read;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::error::{Error, Result};
use crate::run::{Encoding, Layout, Stored};
use crate::tensor::{DType, DataFile, Kind, Tensor};

/// Reads the tensor `name` that lies in the file at `path` as `stored` says.
///
/// # Errors
/// A file that can no longer be read or has become shorter; bytes that do not decode, or to fewer than
/// the tensor needs.
pub(super) fn tensor(path: &Path, name: &str, stored: &Stored) -> Result<Tensor> {
    let file = DataFile::open(path)?;
    let span = stored.layout.as_ref().map_or(stored.len, |layout| layout.span);
    if stored.offset.checked_add(span).is_none_or(|end| end > file.len()) {
        let text = format_args!(
            "expected {span} bytes of tensor `{name}`, the file now ends at byte {}: it has changed since it was opened",
            file.len()
        );
        return Err(Error::at(path, text).byte(stored.offset));
    }
    let bytes = file.read(stored.offset, span)?;
    let refused = |text: String| Error::at(path, format_args!("tensor `{name}`: {text}")).byte(stored.offset);
    let bytes = match &stored.layout {
        None => {
            intact(&bytes, stored.crc32).map_err(refused)?;
            bytes
        }
        Some(layout) => unpack(bytes, stored, layout).map_err(refused)?,
    };
    Tensor::new(stored.dtype, stored.shape.clone(), bytes).map_err(refused)
}

/// The dense bytes of a tensor whose bytes in the file are `bytes`.
fn unpack(bytes: Vec<u8>, stored: &Stored, layout: &Layout) -> Result<Vec<u8>, String> {
    let unfit = || format!("{} {:?} does not fit memory", stored.dtype, stored.shape);
    let needed = match &layout.strides {
        None => stored.len,
        Some(strides) => reach(&stored.shape, strides).and_then(|n| bytes_of(stored.dtype, n)).ok_or_else(unfit)?,
    };
    let mut decoded = decode(bytes, layout, needed, stored.crc32)?;
    if layout.big_endian {
        swap(&mut decoded, stored.dtype);
    }
    let mut dense = match &layout.strides {
        None => decoded,
        Some(strides) => gather(&decoded, stored, strides).ok_or_else(unfit)?,
    };
    if layout.negated != [false; 2] {
        negate(&mut dense, stored.dtype, layout.negated)?;
    }
    Ok(dense)
}

/// Elements from the first to the last that a view reaches, both included.
fn reach(shape: &[usize], strides: &[u64]) -> Option<u64> {
    if shape.len() != strides.len() {
        return None;
    }
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1u64, |last, (&extent, &stride)| {
        last.checked_add(stride.checked_mul(u64::try_from(extent - 1).ok()?)?)
    })
}

fn bytes_of(dtype: DType, elements: u64) -> Option<u64> {
    dtype.byte_len(usize::try_from(elements).ok()?).and_then(|n| u64::try_from(n).ok())
}

/// `needed` decoded bytes from `layout.skip` on.
fn decode(mut bytes: Vec<u8>, layout: &Layout, needed: u64, crc32: Option<u32>) -> Result<Vec<u8>, String> {
    let end = layout.skip.checked_add(needed).and_then(|n| usize::try_from(n).ok());
    let (Some(end), Ok(skip)) = (end, usize::try_from(layout.skip)) else {
        return Err(format!("{needed} bytes do not fit memory"));
    };
    let short = |found: usize| format!("expected {needed} bytes, found {}", found.saturating_sub(skip));
    match layout.encoding {
        Encoding::Plain => {}
        Encoding::Deflate => {
            let mut unpacked = Vec::new();
            flate2::read::DeflateDecoder::new(bytes.as_slice())
                .take(end as u64)
                .read_to_end(&mut unpacked)
                .map_err(|e| format!("damaged deflate stream: {e}"))?;
            bytes = unpacked;
        }
        Encoding::Base64 => bytes = STANDARD.decode(&bytes).map_err(|e| format!("damaged base64 text: {e}"))?,
    }
    if bytes.len() < end {
        return Err(short(bytes.len()));
    }
    bytes.truncate(end);
    intact(&bytes, crc32)?;
    bytes.drain(..skip);
    Ok(bytes)
}

/// Holds bytes against the checksum that their file gives.
fn intact(bytes: &[u8], expected: Option<u32>) -> Result<(), String> {
    match expected {
        Some(expected) if crc32fast::hash(bytes) != expected => Err(format!(
            "expected content with CRC-32 {expected:08x}, found {:08x}: it is damaged",
            crc32fast::hash(bytes)
        )),
        _ => Ok(()),
    }
}

/// Turns the bytes of each number around (both parts of a complex one).
fn swap(bytes: &mut [u8], dtype: DType) {
    let size = dtype.byte_len(1).unwrap_or(1) / dtype.components();
    if size > 1 {
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// Flips the sign of the parts that lie there negated. The sign is the top bit of the last byte in every
/// type that has one; of others no format says so.
fn negate(bytes: &mut [u8], dtype: DType, negated: [bool; 2]) -> Result<(), String> {
    if !matches!(dtype.kind(), Kind::Float | Kind::Complex) || dtype.bits() < 8 || dtype == DType::F8E8M0 {
        return Err(format!("expected a type with a sign bit, found negated {dtype}"));
    }
    let size = dtype.byte_len(1).unwrap_or(1) / dtype.components();
    for (part, number) in bytes.chunks_exact_mut(size).enumerate() {
        if let Some(last) = number.last_mut()
            && negated[part % dtype.components()]
        {
            *last ^= 0x80;
        }
    }
    Ok(())
}

/// The elements of a view in row-major order; `None` where they do not fit memory or lie outside.
fn gather(bytes: &[u8], stored: &Stored, strides: &[u64]) -> Option<Vec<u8>> {
    let size = stored.dtype.byte_len(1)?;
    let len = usize::try_from(stored.len).ok()?;
    let mut out = Vec::new();
    out.try_reserve_exact(len).ok()?;
    let mut index = vec![0usize; stored.shape.len()];
    let strides: Vec<usize> = strides.iter().map(|&s| usize::try_from(s).ok()).collect::<Option<_>>()?;
    let mut at = 0usize;
    while out.len() < len {
        out.extend_from_slice(bytes.get(at.checked_mul(size)?..)?.get(..size)?);
        // One step on, with carry: `at` follows the index.
        for axis in (0..index.len()).rev() {
            index[axis] += 1;
            if index[axis] < stored.shape[axis] {
                at += strides[axis];
                break;
            }
            at -= strides[axis] * (index[axis] - 1);
            index[axis] = 0;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn load(bytes: &[u8], stored: &Stored) -> Result<Tensor> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, bytes).unwrap();
        tensor(&path, "t", stored)
    }

    fn laid_out(shape: &[usize], len: u64, layout: Layout) -> Stored {
        Stored { layout: Some(Box::new(layout)), ..Stored::dense(DType::I16, shape.to_vec(), 0, 0, len) }
    }

    const PLAIN: Layout =
        Layout { span: 12, encoding: Encoding::Plain, skip: 0, strides: None, big_endian: false, negated: [false; 2] };

    fn numbers(n: i16) -> Vec<u8> {
        (0..n).flat_map(i16::to_le_bytes).collect()
    }

    #[test]
    fn views_are_gathered_in_row_major_order() {
        let transposed = laid_out(&[3, 2], 12, Layout { strides: Some(vec![1, 3]), ..PLAIN });
        assert_eq!(load(&numbers(6), &transposed).unwrap().decode().unwrap(), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let expanded = laid_out(&[2, 3], 12, Layout { span: 4, strides: Some(vec![0, 0]), skip: 2, ..PLAIN });
        assert_eq!(load(&numbers(6), &expanded).unwrap().decode().unwrap(), [1.0; 6]);
        let scalar = laid_out(&[], 2, Layout { span: 2, strides: Some(vec![]), ..PLAIN });
        assert_eq!(load(&numbers(6), &scalar).unwrap().decode().unwrap(), [0.0]);
        let empty = laid_out(&[0, 3], 0, Layout { span: 0, strides: Some(vec![3, 1]), ..PLAIN });
        assert_eq!(load(&numbers(6), &empty).unwrap().len(), 0);
    }

    #[test]
    fn big_endian_deflated_and_text_tensors_decode() {
        let big = laid_out(&[6], 12, Layout { big_endian: true, ..PLAIN });
        let bytes: Vec<u8> = (0..6i16).flat_map(i16::to_be_bytes).collect();
        assert_eq!(load(&bytes, &big).unwrap().bytes(), numbers(6));
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(b"head").unwrap();
        encoder.write_all(&numbers(600)).unwrap();
        let packed = encoder.finish().unwrap();
        let span = packed.len() as u64;
        let stored = laid_out(&[6], 12, Layout { span, encoding: Encoding::Deflate, skip: 4, ..PLAIN });
        assert_eq!(load(&packed, &stored).unwrap().bytes(), numbers(6));
        let text = STANDARD.encode(numbers(7));
        let span = text.len() as u64;
        let stored = laid_out(&[6], 12, Layout { span, encoding: Encoding::Base64, skip: 2, ..PLAIN });
        assert_eq!(load(text.as_bytes(), &stored).unwrap().bytes(), &numbers(7)[2..]);
    }

    #[test]
    fn parts_that_lie_there_negated_get_their_sign_back() {
        let flipped = |dtype: DType, bytes: &[u8], negated: [bool; 2]| {
            let shape = vec![1];
            let layout = Layout { span: bytes.len() as u64, negated, ..PLAIN };
            let stored =
                Stored { layout: Some(Box::new(layout)), ..Stored::dense(dtype, shape, 0, 0, bytes.len() as u64) };
            load(bytes, &stored).map(|tensor| tensor.decode().unwrap())
        };
        let complex = [1.5f32.to_le_bytes(), (-0.0f32).to_le_bytes()].concat();
        assert_eq!(flipped(DType::C64, &complex, [false, true]).unwrap(), [1.5, 0.0]);
        assert!(flipped(DType::C64, &complex, [false, true]).unwrap()[1].is_sign_positive());
        assert_eq!(flipped(DType::C64, &complex, [true, false]).unwrap(), [-1.5, -0.0]);
        assert_eq!(flipped(DType::F16, &[0, 0x3c], [true, false]).unwrap(), [-1.0]);
        assert_eq!(flipped(DType::F8E5M2, &[0xbc], [true, false]).unwrap(), [1.0]);
        let error = flipped(DType::I8, &[1], [true, false]).unwrap_err();
        assert_eq!(error.message(), "tensor `t`: expected a type with a sign bit, found negated int8");
    }

    #[test]
    fn content_is_held_against_its_checksum() {
        let bytes = numbers(6);
        let plain = Stored { crc32: Some(crc32fast::hash(&bytes)), ..Stored::dense(DType::I16, vec![6], 0, 0, 12) };
        assert_eq!(load(&bytes, &plain).unwrap().bytes(), bytes);
        let skipping = laid_out(&[4], 8, Layout { skip: 4, ..PLAIN });
        let skipping = Stored { crc32: plain.crc32, ..skipping };
        assert_eq!(load(&bytes, &skipping).unwrap().bytes(), &bytes[4..], "the sum is over what is skipped as well");
        let mut damaged = bytes;
        damaged[7] ^= 1;
        for stored in [plain, skipping] {
            let error = load(&damaged, &stored).unwrap_err();
            assert!(error.message().contains("it is damaged"), "{error}");
        }
    }

    #[test]
    fn what_does_not_hold_the_tensor_is_refused() {
        let reason = |bytes: &[u8], stored: &Stored| load(bytes, stored).unwrap_err().message().to_string();
        assert_eq!(
            reason(&numbers(5), &laid_out(&[6], 12, PLAIN)),
            "expected 12 bytes of tensor `t`, the file now ends at byte 10: it has changed since it was opened"
        );
        let beyond = laid_out(&[2, 2], 8, Layout { strides: Some(vec![5, 1]), ..PLAIN });
        assert_eq!(reason(&numbers(6), &beyond), "tensor `t`: expected 14 bytes, found 12");
        let wild = laid_out(&[2, 2], 8, Layout { strides: Some(vec![u64::MAX, u64::MAX]), ..PLAIN });
        assert!(reason(&numbers(6), &wild).ends_with("does not fit memory"));
        let odd = laid_out(&[2, 2], 8, Layout { strides: Some(vec![1]), ..PLAIN });
        assert!(reason(&numbers(6), &odd).ends_with("does not fit memory"));
        let deflate = laid_out(&[6], 12, Layout { encoding: Encoding::Deflate, ..PLAIN });
        assert!(reason(&[0xff; 12], &deflate).contains("damaged deflate stream"));
        let text = laid_out(&[6], 12, Layout { encoding: Encoding::Base64, ..PLAIN });
        assert!(reason(b"????????????", &text).contains("damaged base64 text"));
    }
}
