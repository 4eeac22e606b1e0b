//! Positions whose values differ, for rules that look at them one by one (indices, ties).

use super::blocks::Blocks;
use super::pair::Pair;
use super::{Options, mismatch};
use crate::tensor::Tensor;

/// Where two tensors differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Differing {
    /// Number of values that differ.
    pub total: u64,
    /// Flat indices of the first of them in order, as many as were asked for. A complex element of
    /// which both components differ stands twice.
    pub first: Vec<usize>,
}

/// Finds the values that are not equal (integers exactly; NaN equals NaN, -0 equals +0, mask sentinels
/// equal each other), keeping the indices of the first `limit`. `None` where the two cannot be compared.
pub fn differing(golden: &Tensor, candidate: &Tensor, limit: usize) -> Option<Differing> {
    if mismatch(golden, candidate).is_some() || !golden.dtype().decodes() {
        return None;
    }
    let pair = Pair::new(golden, candidate, &Options::default());
    let blocks = Blocks::new(pair.values, pair.row, limit.saturating_mul(size_of::<usize>()));
    let stripes = blocks.map(|ranges| {
        let mut buffers = pair.buffers(blocks.largest());
        let mut found = Differing { total: 0, first: Vec::new() };
        for range in ranges {
            for position in pair.positions(range, &mut buffers).filter(|position| !position.equal()) {
                found.total += 1;
                if found.first.len() < limit {
                    found.first.push(position.at / pair.lanes);
                }
            }
        }
        found
    });
    let mut all = Differing { total: 0, first: Vec::new() };
    for stripe in stripes {
        all.total += stripe.total;
        let room = limit - all.first.len();
        all.first.extend(stripe.first.into_iter().take(room));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn i64s(values: &[i64]) -> Tensor {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(DType::I64, vec![values.len()], bytes).unwrap()
    }

    #[test]
    fn the_first_few_and_the_total() {
        let golden = i64s(&[1, 1 << 53, 3, 4, 5]);
        let candidate = i64s(&[1, (1 << 53) + 1, 0, 4, 0]);
        let found = differing(&golden, &candidate, 2).unwrap();
        assert_eq!(found, Differing { total: 3, first: vec![1, 2] });
        assert_eq!(differing(&golden, &candidate, 0).unwrap().total, 3);
        assert!(differing(&golden, &i64s(&[1]), 2).is_none());
    }

    #[test]
    fn order_holds_across_many_stripes() {
        let golden = i64s(&vec![0; 300_000]);
        let mut values = vec![0; 300_000];
        for at in [5, 70_000, 140_000, 299_999] {
            values[at] = 1;
        }
        let found = differing(&golden, &i64s(&values), 3).unwrap();
        assert_eq!(found, Differing { total: 4, first: vec![5, 70_000, 140_000] });
    }
}
