//! Tensors whose bytes are stored under another tensor's id: equal ones (`alias_of`) and views
//! (`view_of`), so that each content is in a run once.
//!
//! In go the tensors with their statistics, out comes where the bytes of such a tensor lie. What is
//! said there is a file's word: it is held against the dtype, shape and length of the stored tensor,
//! and what does not fit stays unstored, with a warning.

use std::collections::HashMap;

use super::stored::MAX_REPEATED;
use super::{Encoding, Layout, RecordedStats, Stored, TensorId, TensorInfo};
use crate::tensor::{DType, element_count};

/// Gives each tensor that is not stored itself the place of the one that it shares bytes with.
/// Returns warnings.
pub(super) fn resolve(tensors: &mut [TensorInfo], ids: &HashMap<String, TensorId>) -> Vec<String> {
    let mut found = Vec::new();
    let mut refused: Vec<String> = Vec::new();
    for (at, tensor) in tensors.iter().enumerate().filter(|(_, tensor)| tensor.stored.is_none()) {
        let Some(stats) = &tensor.stats else { continue };
        let Some(owner) = stats.view_of.as_ref().map(|view| &view.tensor).or(stats.alias_of.as_ref()) else { continue };
        let owning = ids.get(owner).and_then(|id| tensors.get(id.0 as usize)).filter(|info| info.name != tensor.name);
        let stored = owning.and_then(|info| info.stored.as_ref());
        if stored.is_none() && owning.is_some_and(|info| info.stats.is_some()) {
            // Statistics alone were recorded of both.
            continue;
        }
        match stored.ok_or_else(|| "which is not stored".to_string()).and_then(|stored| part_of(stored, stats)) {
            Ok(place) => found.push((at, place)),
            Err(reason) => refused.push(format!("`{}` is said to lie in `{owner}`, {reason}", tensor.name)),
        }
    }
    for (at, place) in found {
        tensors[at].stored = Some(place);
    }
    match refused.first() {
        Some(first) => {
            vec![format!("{} tensors share bytes with another that does not hold them: {first}", refused.len())]
        }
        None => Vec::new(),
    }
}

/// Where in `stored` the tensor lies that `stats` describe.
fn part_of(stored: &Stored, stats: &RecordedStats) -> Result<Stored, String> {
    let (Some(dtype), Some(shape)) = (stats.dtype, stats.shape.clone()) else {
        return Err("but has no dtype and shape".into());
    };
    if dtype != stored.dtype || stored.layout.is_some() {
        return Err(format!("which is {}, not {dtype}", stored.dtype));
    }
    let unfit = || format!("whose {} bytes do not hold {shape:?}", stored.len);
    let bytes = |elements: u64| bytes_of(dtype, elements);
    let len = element_count(&shape).and_then(|n| dtype.byte_len(n)).and_then(|n| u64::try_from(n).ok());
    let len = len.ok_or_else(unfit)?;
    let Some(view) = &stats.view_of else {
        return if len == stored.len { Ok(Stored { shape, ..stored.clone() }) } else { Err(unfit()) };
    };
    if view.strides.len() != shape.len() {
        return Err(format!("with {} strides for {} axes", view.strides.len(), shape.len()));
    }
    let last = shape.iter().zip(&view.strides).try_fold(0u64, |last, (&extent, &stride)| {
        last.checked_add(stride.checked_mul(u64::try_from(extent).ok()?.saturating_sub(1))?)
    });
    let reach = if len == 0 { Some(0) } else { last.and_then(|last| last.checked_add(1)) };
    let (offset, reach) = bytes(view.offset).zip(reach.and_then(bytes)).ok_or_else(unfit)?;
    if offset.checked_add(reach).is_none_or(|end| end > stored.len) {
        return Err(unfit());
    }
    if len > reach && len > MAX_REPEATED {
        return Err(format!("{reach} bytes of which would be repeated to {len}, expected at most {MAX_REPEATED}"));
    }
    let strides = Some(view.strides.clone());
    let layout =
        Layout { span: reach, encoding: Encoding::Plain, skip: 0, strides, big_endian: false, negated: [false; 2] };
    let layout = Some(Box::new(layout));
    Ok(Stored { shape, offset: stored.offset + offset, len, crc32: None, layout, ..stored.clone() })
}

fn bytes_of(dtype: DType, elements: u64) -> Option<u64> {
    dtype.byte_len(usize::try_from(elements).ok()?).and_then(|n| u64::try_from(n).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::ViewOf;

    /// A run with `a`, six f32 at byte 8 of its file, and `b`, which `stats` describe.
    fn resolved(stats: RecordedStats) -> (Option<Stored>, Vec<String>) {
        let info = |name: &str| TensorInfo {
            name: name.into(),
            stored: None,
            stats: None,
            producer: None,
            consumers: Vec::new(),
        };
        let mut tensors = [info("a"), info("b")];
        tensors[0].stored = Some(Stored::dense(DType::F32, vec![2, 3], 0, 8, 24));
        tensors[1].stats = Some(stats);
        let ids = HashMap::from([("a".to_string(), TensorId(0)), ("b".to_string(), TensorId(1))]);
        let warnings = resolve(&mut tensors, &ids);
        (tensors[1].stored.clone(), warnings)
    }

    fn alias(of: &str, dtype: DType, shape: &[usize]) -> RecordedStats {
        RecordedStats {
            dtype: Some(dtype),
            shape: Some(shape.to_vec()),
            alias_of: Some(of.into()),
            ..RecordedStats::default()
        }
    }

    fn view(shape: &[usize], offset: u64, strides: &[u64]) -> RecordedStats {
        let view_of = Some(ViewOf { tensor: "a".into(), offset, strides: strides.to_vec() });
        RecordedStats { alias_of: None, view_of, ..alias("a", DType::F32, shape) }
    }

    #[test]
    fn equal_tensors_and_views_have_a_place() {
        let (stored, warnings) = resolved(alias("a", DType::F32, &[6]));
        assert_eq!((stored, warnings.len()), (Some(Stored::dense(DType::F32, vec![6], 0, 8, 24)), 0));
        let (stored, warnings) = resolved(view(&[3, 2], 0, &[1, 3]));
        assert!(warnings.is_empty());
        assert_eq!(stored.map(|s| (s.offset, s.len, s.layout.map(|l| l.span))), Some((8, 24, Some(24))));
        let (stored, _) = resolved(view(&[2], 2, &[3]));
        assert_eq!(stored.map(|s| (s.offset, s.len, s.layout.map(|l| l.span))), Some((16, 8, Some(16))));
    }

    #[test]
    fn where_statistics_alone_were_recorded_nothing_is_shared() {
        let info = |stats| TensorInfo {
            name: if stats { "a".into() } else { "b".into() },
            stored: None,
            stats: Some(if stats { RecordedStats::default() } else { alias("a", DType::F32, &[6]) }),
            producer: None,
            consumers: Vec::new(),
        };
        let mut tensors = [info(true), info(false)];
        let ids = HashMap::from([("a".to_string(), TensorId(0)), ("b".to_string(), TensorId(1))]);
        assert!(resolve(&mut tensors, &ids).is_empty() && tensors[1].stored.is_none());
    }

    #[test]
    fn what_does_not_hold_the_tensor_is_refused() {
        let huge = 1u64 << 62;
        for (stats, reason) in [
            (alias("c", DType::F32, &[6]), "not stored"),
            (alias("b", DType::F32, &[6]), "not stored"),
            (alias("a", DType::I32, &[6]), "is float32, not int32"),
            (alias("a", DType::F32, &[5]), "do not hold [5]"),
            (alias("a", DType::F32, &[usize::MAX, 2]), "do not hold"),
            (view(&[3, 2], 1, &[1, 3]), "do not hold"),
            (view(&[2], huge, &[1]), "do not hold"),
            (view(&[2], 0, &[u64::MAX]), "do not hold"),
            (view(&[2], 0, &[]), "0 strides for 1 axes"),
            (view(&[1 << 30], 0, &[0]), "expected at most 1073741824"),
            (RecordedStats { shape: None, ..alias("a", DType::F32, &[]) }, "no dtype and shape"),
        ] {
            let (stored, warnings) = resolved(stats);
            assert!(stored.is_none() && warnings.len() == 1 && warnings[0].contains(reason), "{warnings:?}");
        }
    }
}
