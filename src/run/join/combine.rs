//! The arithmetic of joining: shapes of the whole, bytes of stretches put together, terms summed.

use super::How;
use crate::tensor::{DType, Kind, Shape, Tensor, element_count};

/// Dtype and shape of the tensor whose parts have these, or why there is none. A stretch may be empty,
/// and stretches of several lengths are one tensor still.
pub(super) fn whole(how: How, parts: &[(DType, &[usize])]) -> Result<(DType, Shape), String> {
    let Some(&(dtype, first)) = parts.first() else { return Err("expected at least one part, found none".into()) };
    if let Some((other, _)) = parts.iter().find(|(other, _)| *other != dtype) {
        return Err(format!("expected one dtype in all parts, found {dtype} and {other}"));
    }
    let axis = match how {
        How::Concat(dim) => Some(axis_of(dim, first.len()).ok_or_else(|| {
            format!("there is no dim {dim} in a part of shape {first:?}: give it an entry of its own")
        })?),
        How::Sum if !summable(dtype) => {
            return Err(format!("expected float64, float32, float16 or bfloat16 parts to sum, found {dtype}"));
        }
        How::Sum | How::Replica => None,
    };
    let mut shape = first.to_vec();
    for (_, other) in parts.iter().skip(1) {
        let fits = other.len() == first.len()
            && other.iter().zip(first).enumerate().all(|(at, (a, b))| a == b || Some(at) == axis);
        if !fits {
            let but = axis.map_or(String::new(), |axis| format!(" but for dim {axis}"));
            return Err(format!("expected parts of one shape{but}, found {first:?} and {other:?}"));
        }
        if let Some(axis) = axis {
            let extent = shape[axis].checked_add(other[axis]);
            shape[axis] = extent.ok_or("the joined shape is beyond any memory")?;
        }
    }
    match element_count(&shape).and_then(|n| dtype.byte_len(n)) {
        Some(_) => Ok((dtype, shape)),
        None => Err("the joined shape is beyond any memory".into()),
    }
}

/// Joins parts, as [`whole`] says.
///
/// # Errors
/// Parts that do not fit each other; packed elements that share a byte with the next stretch.
pub(super) fn join(how: How, parts: &[Tensor]) -> Result<Tensor, String> {
    let shapes: Vec<(DType, &[usize])> = parts.iter().map(|part| (part.dtype(), part.shape())).collect();
    let (dtype, shape) = whole(how, &shapes)?;
    let bytes = match how {
        How::Concat(dim) => concat(dtype, &shape, axis_of(dim, shape.len()).unwrap_or(0), parts)?,
        How::Sum => sum(dtype, parts)?,
        How::Replica => parts.first().map(|part| part.bytes().to_vec()).unwrap_or_default(),
    };
    Tensor::new(dtype, shape, bytes)
}

fn axis_of(dim: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if dim < 0 { dim.checked_add(rank)? } else { dim };
    usize::try_from(axis).ok().filter(|_| (0..rank).contains(&axis))
}

/// Row-major: for each index before the axis, the parts' stretches one behind the other.
fn concat(dtype: DType, shape: &[usize], axis: usize, parts: &[Tensor]) -> Result<Vec<u8>, String> {
    let outer: usize = shape.iter().take(axis).product();
    let stretch = |part: &Tensor| -> Result<usize, String> {
        let elements = part.shape().iter().skip(axis).product();
        dtype
            .byte_len(elements)
            .ok_or_else(|| format!("a stretch of {elements} elements of {dtype} ends inside a byte"))
    };
    let lengths = parts.iter().map(stretch).collect::<Result<Vec<usize>, String>>()?;
    let mut bytes = Vec::new();
    let total = parts.iter().map(|part| part.bytes().len()).sum();
    bytes.try_reserve_exact(total).map_err(|_| format!("{total} bytes do not fit memory"))?;
    // Of nothing there may be any number of empty stretches.
    for at in 0..if total == 0 { 0 } else { outer } {
        for (part, &length) in parts.iter().zip(&lengths) {
            bytes.extend_from_slice(part.bytes().get(at * length..(at + 1) * length).unwrap_or_default());
        }
    }
    Ok(bytes)
}

fn summable(dtype: DType) -> bool {
    dtype.kind() == Kind::Float && matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

/// Elements of a sum that are decoded at a time.
const BLOCK: usize = 1 << 14;

/// Summed in f64 in the order of the group and rounded once to the parts' dtype, the way in which a
/// reduction over few ranks errs least. For one rank all bits stay.
fn sum(dtype: DType, parts: &[Tensor]) -> Result<Vec<u8>, String> {
    let Some(first) = parts.first() else { return Ok(Vec::new()) };
    if parts.len() == 1 {
        return Ok(first.bytes().to_vec());
    }
    let total = first.bytes().len();
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(total).map_err(|_| format!("{total} bytes do not fit memory"))?;
    let (mut term, mut sums) = (vec![0.0; BLOCK], vec![0.0; BLOCK]);
    for start in (0..first.len()).step_by(BLOCK) {
        let length = BLOCK.min(first.len() - start);
        dtype.decode_into(first.bytes(), start, &mut sums[..length]);
        for part in &parts[1..] {
            dtype.decode_into(part.bytes(), start, &mut term[..length]);
            sums.iter_mut().zip(&term).take(length).for_each(|(sum, term)| *sum += term);
        }
        for &value in &sums[..length] {
            match dtype {
                DType::F64 => bytes.extend_from_slice(&value.to_le_bytes()),
                DType::F16 => bytes.extend_from_slice(&half::f16::from_f64(value).to_le_bytes()),
                DType::BF16 => bytes.extend_from_slice(&half::bf16::from_f64(value).to_le_bytes()),
                _ => bytes.extend_from_slice(&(value as f32).to_le_bytes()),
            }
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn f32s(shape: &[usize], values: &[f32]) -> Tensor {
        Tensor::new(DType::F32, shape.to_vec(), values.iter().flat_map(|v| v.to_le_bytes()).collect()).unwrap()
    }

    fn refusal(how: How, parts: &[Tensor]) -> String {
        join(how, parts).unwrap_err()
    }

    #[test]
    fn stretches_lie_behind_each_other_along_the_dim() {
        let (a, b) = (f32s(&[2, 1], &[1.0, 2.0]), f32s(&[2, 2], &[3.0, 4.0, 5.0, 6.0]));
        let joined = join(How::Concat(-1), &[a.clone(), b.clone()]).unwrap();
        assert_eq!((joined.shape(), joined.decode().unwrap()), (&[2, 3][..], vec![1.0, 3.0, 4.0, 2.0, 5.0, 6.0]));
        let joined = join(How::Concat(0), &[f32s(&[1, 2], &[0.0, 9.0]), b]).unwrap();
        assert_eq!((joined.shape(), joined.decode().unwrap()), (&[3, 2][..], vec![0.0, 9.0, 3.0, 4.0, 5.0, 6.0]));
        let empty = f32s(&[2, 0], &[]);
        assert_eq!(join(How::Concat(1), &[empty, a.clone()]).unwrap(), a);
    }

    #[test]
    fn terms_are_summed_before_they_are_rounded() {
        let half = |v: f64| Tensor::new(DType::F16, vec![1], half::f16::from_f64(v).to_le_bytes().to_vec()).unwrap();
        // 1 + u/2 + u/2: rounded after each term it would stay 1.
        let joined = join(How::Sum, &[half(1.0), half(0.000_488_281_25), half(0.000_488_281_25)]).unwrap();
        assert_eq!(joined.decode().unwrap(), [1.000_976_562_5]);
        let nan = join(How::Sum, &[f32s(&[1], &[f32::INFINITY]), f32s(&[1], &[f32::NEG_INFINITY])]).unwrap();
        assert!(nan.decode().unwrap()[0].is_nan());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (a, b) = (f32s(&[2, 2], &[0.0; 4]), f32s(&[3, 3], &[0.0; 9]));
        assert!(refusal(How::Concat(0), &[a.clone(), b.clone()]).contains("but for dim 0, found [2, 2] and [3, 3]"));
        assert!(refusal(How::Sum, &[a.clone(), b]).contains("expected parts of one shape, found"));
        for dim in [2, -3, i64::MIN, i64::MAX] {
            assert!(refusal(How::Concat(dim), std::slice::from_ref(&a)).contains(&format!("no dim {dim} in a part")));
        }
        let count = Tensor::new(DType::I64, vec![1], vec![0; 8]).unwrap();
        assert!(refusal(How::Sum, &[count.clone(), count.clone()]).contains("parts to sum, found int64"));
        let flag = Tensor::new(DType::Bool, vec![1], vec![0]).unwrap();
        assert!(refusal(How::Concat(0), &[count, flag]).contains("found int64 and bool"));
        let nibbles = Tensor::new(DType::F4, vec![2, 1], vec![0]).unwrap();
        assert!(refusal(How::Concat(1), &[nibbles.clone(), nibbles]).contains("ends inside a byte"));
    }

    /// Cuts `tensor` along `axis` behind these indices.
    fn cut(tensor: &Tensor, axis: usize, ends: &[usize]) -> Vec<Tensor> {
        let shape = tensor.shape();
        let inner: usize = shape[axis + 1..].iter().product::<usize>() * tensor.dtype().byte_len(1).unwrap();
        let (extent, mut start) = (shape[axis], 0);
        ends.iter()
            .chain([&extent])
            .map(|&end| {
                let mut bytes = Vec::new();
                for row in tensor.bytes().chunks(inner * extent) {
                    bytes.extend_from_slice(&row[start * inner..end * inner]);
                }
                let mut shape = shape.to_vec();
                shape[axis] = end - start;
                start = end;
                Tensor::new(tensor.dtype(), shape, bytes).unwrap()
            })
            .collect()
    }

    proptest! {
        #[test]
        fn what_was_cut_is_whole_again(
            shape in prop::collection::vec(1usize..5, 1..4),
            axis in 0usize..3,
            ends in prop::collection::vec(0usize..5, 1..4),
            seed in any::<u8>(),
        ) {
            let axis = axis % shape.len();
            let mut ends: Vec<usize> = ends.iter().map(|end| end % (shape[axis] + 1)).collect();
            ends.sort_unstable();
            let n: usize = shape.iter().product();
            let bytes = (0..n * 2).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect();
            let tensor = Tensor::new(DType::BF16, shape.clone(), bytes).unwrap();
            let parts = cut(&tensor, axis, &ends);
            let dim = if seed % 2 == 0 { axis as i64 } else { axis as i64 - shape.len() as i64 };
            prop_assert_eq!(join(How::Concat(dim), &parts).unwrap(), tensor);
        }
    }
}
