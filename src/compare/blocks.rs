//! How a tensor is cut: into blocks that are decoded at once, and stripes of blocks that run in parallel.
//!
//! Both follow from the number of values and the row length alone, and partial results come back in
//! index order: whoever merges them in that order gets the same bits for any number of threads.

use std::ops::Range;

use rayon::prelude::*;

/// Values in a block, where rows fit: two decoded blocks of f64 stay within a core's second-level cache.
pub(super) const BLOCK: usize = 64 * 1024;

/// Stripes at most: enough to keep many cores busy, few enough that a partial may be large.
const MAX_STRIPES: usize = 256;

/// Bytes of partial results that all stripes together may hold.
const PARTIAL_BUDGET: usize = 64 << 20;

/// The cut of one tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Blocks {
    values: usize,
    block: usize,
    stripes: usize,
}

impl Blocks {
    /// Cuts `values` values in rows of `row`; `partial` is the size in bytes of one stripe's partial
    /// result. Blocks hold whole rows unless a row is longer than a block.
    pub(super) fn new(values: usize, row: usize, partial: usize) -> Self {
        let block = if row == 0 || row > BLOCK { BLOCK } else { BLOCK - BLOCK % row };
        let affordable = (PARTIAL_BUDGET / partial.max(1)).max(1);
        let stripes = values.div_ceil(block).min(MAX_STRIPES).min(affordable);
        Self { values, block, stripes }
    }

    /// Values in the largest block.
    pub(super) fn largest(&self) -> usize {
        self.block.min(self.values)
    }

    /// Runs `stripe` over the blocks (ranges of values) of each stripe; the results in index order.
    pub(super) fn map<P: Send>(&self, stripe: impl Fn(&mut dyn Iterator<Item = Range<usize>>) -> P + Sync) -> Vec<P> {
        let total = self.values.div_ceil(self.block);
        let run = |index: usize| {
            let blocks = index * total / self.stripes..(index + 1) * total / self.stripes;
            stripe(&mut blocks.map(|at| at * self.block..((at + 1) * self.block).min(self.values)))
        };
        if self.stripes <= 1 {
            return (0..self.stripes).map(run).collect();
        }
        (0..self.stripes).into_par_iter().map(run).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(values: usize, row: usize, partial: usize) -> Vec<Vec<Range<usize>>> {
        Blocks::new(values, row, partial).map(|blocks| blocks.collect::<Vec<_>>())
    }

    #[test]
    fn blocks_cover_everything_in_order_and_hold_whole_rows() {
        for (values, row, partial) in [(1, 1, 8), (700_000, 100, 8), (70_000_000, 7, 1 << 23), (600_000, 300_000, 8)] {
            let blocks: Vec<_> = cut(values, row, partial).into_iter().flatten().collect();
            assert_eq!(blocks.first().map(|b| b.start), Some(0));
            assert_eq!(blocks.last().map(|b| b.end), Some(values));
            assert!(blocks.windows(2).all(|w| w[0].end == w[1].start));
            assert!(blocks.iter().all(|b| !b.is_empty() && b.len() <= BLOCK));
            assert!(row > BLOCK || blocks.iter().all(|b| b.start % row == 0));
        }
        assert!(cut(0, 4, 8).is_empty());
    }

    #[test]
    fn large_partials_mean_few_stripes() {
        assert_eq!(cut(10_000_000, 1000, 64 << 20).len(), 1);
        assert_eq!(cut(100_000_000, 1000, 8).len(), MAX_STRIPES);
    }
}
