//! Explanations by order: the right values at other places.

use std::collections::HashMap;

use super::evidence::Evidence;
use super::{Explanation, SHARE};
use crate::error::Result;

/// Longest axis whose slices are matched by distance, which costs a pass for each of them.
const MATCHED: usize = 32;

/// Most axes of which pairs are transposed.
const AXES: usize = 6;

/// The best rearrangement of the expected values: axes transposed, halves swapped, rolled by one,
/// reversed, slices (heads, rows) in another order.
pub(super) fn permutation(evidence: &Evidence<'_>) -> Result<Vec<Explanation>> {
    let mut best: Option<Explanation> = None;
    let mut offer = |share: f64, what: String| {
        if share >= SHARE && best.as_ref().is_none_or(|best| share > best.share) {
            let why = format!("{what}: look at the layout, strides and order that the kernel assumes");
            best = Some(Explanation { kind: "permutation", share, why });
        }
    };
    let strides = evidence.strides();
    for (axis, (&stride, &extent)) in strides.iter().zip(&evidence.shape).enumerate() {
        if extent < 2 {
            continue;
        }
        let index = |at: usize| at / stride % extent;
        let moved = |to: &dyn Fn(usize) -> usize| {
            evidence.share(|at| evidence.exact[at - index(at) * stride + to(index(at)) * stride])
        };
        offer(moved(&|i| (i + extent - 1) % extent), format!("axis {axis} is rolled by one, forwards"));
        if extent > 2 {
            offer(moved(&|i| (i + 1) % extent), format!("axis {axis} is rolled by one, backwards"));
            offer(moved(&|i| extent - 1 - i), format!("axis {axis} is reversed"));
        }
        if extent > 2 && extent % 2 == 0 {
            offer(moved(&|i| (i + extent / 2) % extent), format!("the halves of axis {axis} are swapped"));
            let pair = |i: usize| (i % 2) * (extent / 2) + i / 2;
            offer(moved(&pair), format!("the halves of axis {axis} are interleaved"));
        }
        if let Some(from) = by_slices(evidence, axis) {
            let wrong = from.iter().enumerate().filter(|(to, from)| to != *from).count();
            let mut seen = vec![false; extent];
            let bijective = from.iter().all(|&i| !std::mem::replace(&mut seen[i], true));
            let first = from.iter().enumerate().find(|(to, from)| to != *from);
            let example = first.map(|(to, from)| format!(", first {to}, which holds {from}")).unwrap_or_default();
            let how = if bijective { "stand in another order" } else { "come from other places" };
            offer(moved(&|i| from[i]), format!("{wrong} of {extent} slices of axis {axis} {how}{example}"));
        }
    }
    let axes = evidence.shape.len().min(AXES);
    for first in 0..axes {
        for second in first + 1..axes {
            if evidence.shape[first] < 2 || evidence.shape[second] < 2 {
                continue;
            }
            let source = transposed(evidence, first, second);
            offer(
                evidence.share(|at| evidence.exact[source[at]]),
                format!("axes {first} and {second} are transposed in memory"),
            );
        }
    }
    Ok(best.into_iter().collect())
}

/// For each flat position of the output with axes `a` and `b` exchanged, written contiguously: the flat
/// position it comes from.
fn transposed(evidence: &Evidence<'_>, a: usize, b: usize) -> Vec<usize> {
    let strides = evidence.strides();
    let mut order: Vec<usize> = (0..evidence.shape.len()).collect();
    order.swap(a, b);
    let mut source = vec![0usize];
    for &axis in &order {
        source = source
            .iter()
            .flat_map(|base| (0..evidence.shape[axis]).map(move |i| (base, i)))
            .map(|(base, i)| base + i * strides[axis])
            .collect();
    }
    source
}

/// Which expected slice each recorded slice along an axis holds: bit by bit, for short axes by
/// distance. `None` where that is none or each its own.
fn by_slices(evidence: &Evidence<'_>, axis: usize) -> Option<Vec<usize>> {
    let (stride, extent) = (evidence.strides()[axis], evidence.shape[axis]);
    // A slice of one element is no witness.
    if evidence.len() / extent < 2 || extent < 2 {
        return None;
    }
    let slice = |values: &[f64], i: usize| -> Vec<u64> {
        let block = stride * extent;
        (0..evidence.len() / block)
            .flat_map(|outer| outer * block + i * stride..outer * block + (i + 1) * stride)
            .map(|at| (values[at] + 0.0).to_bits())
            .collect()
    };
    let mut known: HashMap<Vec<u64>, usize> = HashMap::new();
    for i in 0..extent {
        known.entry(slice(&evidence.expected, i)).or_insert(i);
    }
    let is_own = |i: usize| slice(&evidence.expected, i) == slice(&evidence.recorded, i);
    let exact: Option<Vec<usize>> = (0..extent)
        .map(|i| if is_own(i) { Some(i) } else { known.get(&slice(&evidence.recorded, i)).copied() })
        .collect();
    let from = match exact {
        Some(from) => from,
        None if extent <= MATCHED => nearest(evidence, stride, extent),
        None => return None,
    };
    from.iter().enumerate().any(|(to, from)| to != *from).then_some(from)
}

/// The expected slice nearest to each recorded one.
fn nearest(evidence: &Evidence<'_>, stride: usize, extent: usize) -> Vec<usize> {
    let mut distance = vec![0.0; extent * extent];
    for at in 0..evidence.len() {
        let i = at / stride % extent;
        let base = at - i * stride;
        for j in 0..extent {
            let d = evidence.recorded[at] - evidence.expected[base + j * stride];
            distance[i * extent + j] += d * d;
        }
    }
    distance
        .chunks(extent)
        .enumerate()
        .map(|(own, row)| {
            // Where nothing is nearer, a slice is its own.
            (0..extent).fold(own, |best, j| if row[j] < row[best] { j } else { best })
        })
        .collect()
}
