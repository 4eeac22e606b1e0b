//! A tensor seen as rows: the axes that an operator reduces or normalises over come last.

use ndarray::{ArcArray, ArrayD, IxDyn};
use rayon::prelude::*;

use super::Unmodelled;

/// A split of a shape's axes into kept ones (which number the rows) and inner ones (which make up a
/// row), each in their original order.
#[derive(Debug, Clone)]
pub(super) struct Lanes {
    shape: Vec<usize>,
    order: Vec<usize>,
    kept: usize,
    rows: usize,
    len: usize,
}

impl Lanes {
    /// Rows over the axes `inner`; axes that the shape does not have are ignored, so that a 0-d
    /// tensor is one row of one element.
    pub(super) fn over(shape: &[usize], inner: &[usize]) -> Self {
        let is_inner = |axis: &usize| inner.contains(axis);
        let (last, mut order): (Vec<_>, Vec<_>) = (0..shape.len()).partition(is_inner);
        let kept = order.len();
        order.extend(last);
        // Saturating: a tensor without elements may have extents whose product overflows.
        let product = |axes: &[usize]| axes.iter().fold(1usize, |n, &axis| n.saturating_mul(shape[axis]));
        let (rows, len) = (product(&order[..kept]), product(&order[kept..]));
        Self { shape: shape.to_vec(), order, kept, rows, len }
    }

    /// Number of rows.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of a row.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The shape that is left of the kept axes; with `keepdim` the inner ones stay with extent 1.
    pub(super) fn kept_shape(&self, keepdim: bool) -> Vec<usize> {
        let mut kept = self.order[..self.kept].to_vec();
        kept.sort_unstable();
        let extent = |axis: usize| if kept.contains(&axis) { Some(self.shape[axis]) } else { keepdim.then_some(1) };
        (0..self.shape.len()).filter_map(extent).collect()
    }

    /// The elements, row after row. `value` has the shape that the lanes were made for.
    pub(super) fn gather(&self, value: &ArcArray<f64, IxDyn>) -> Vec<f64> {
        value.view().permuted_axes(self.order.clone()).iter().copied().collect()
    }

    /// Puts rows back into the original shape.
    pub(super) fn restore(&self, rows: Vec<f64>) -> Result<ArrayD<f64>, Unmodelled> {
        let permuted: Vec<usize> = self.order.iter().map(|&axis| self.shape[axis]).collect();
        let mut inverse = vec![0; self.order.len()];
        for (at, &axis) in self.order.iter().enumerate() {
            inverse[axis] = at;
        }
        let array = array(&permuted, rows)?.permuted_axes(inverse);
        Ok(array.as_standard_layout().into_owned())
    }

    /// One result for each row, rows in parallel; each row is worked on by one thread, so that
    /// results do not depend on their number.
    pub(super) fn each<T: Send>(&self, data: &[f64], f: impl Fn(&[f64]) -> T + Sync) -> Vec<T> {
        let row = |at: usize| data.get(at * self.len..(at + 1) * self.len).unwrap_or(&[]);
        (0..self.rows).into_par_iter().map(|at| f(row(at))).collect()
    }

    /// Two values for each element, from its row: `f(row number, row, first out, second out)`.
    pub(super) fn map(
        &self,
        data: &[f64],
        f: impl Fn(usize, &[f64], &mut [f64], &mut [f64]) + Sync,
    ) -> (Vec<f64>, Vec<f64>) {
        let (mut first, mut second) = (vec![0.0; data.len()], vec![0.0; data.len()]);
        let len = self.len.max(1);
        let rows = data.par_chunks(len).zip(first.par_chunks_mut(len)).zip(second.par_chunks_mut(len));
        rows.enumerate().for_each(|(at, ((row, first), second))| f(at, row, first, second));
        (first, second)
    }
}

/// `data` in `shape`.
pub(super) fn array(shape: &[usize], data: Vec<f64>) -> Result<ArrayD<f64>, Unmodelled> {
    ArrayD::from_shape_vec(IxDyn(shape), data).map_err(|e| Unmodelled(format!("shape {shape:?} cannot be formed: {e}")))
}

/// Sum in blocks: the error of a plain sum grows with its length, which for millions of terms would
/// come near the roundoff of fp32.
pub(super) fn sum(values: impl IntoIterator<Item = f64>) -> f64 {
    const BLOCK: usize = 512;
    let (mut total, mut block, mut filled) = (0.0, 0.0, 0);
    for value in values {
        block += value;
        filled += 1;
        if filled == BLOCK {
            total += block;
            (block, filled) = (0.0, 0);
        }
    }
    total + block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(shape: &[usize]) -> ArcArray<f64, IxDyn> {
        let n = shape.iter().product::<usize>();
        array(shape, (0..n).map(|v| v as f64).collect()).unwrap().into_shared()
    }

    #[test]
    fn inner_axes_become_rows_and_come_back() {
        let value = counted(&[2, 3, 2]);
        let lanes = Lanes::over(&[2, 3, 2], &[1]);
        let rows = lanes.gather(&value);
        assert_eq!((lanes.rows(), lanes.len()), (4, 3));
        assert_eq!(rows[..6], [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
        assert_eq!(lanes.restore(rows).unwrap(), value.to_owned());
        assert_eq!(lanes.kept_shape(true), [2, 1, 2]);
        assert_eq!(lanes.kept_shape(false), [2, 2]);
    }

    #[test]
    fn scalars_and_empty_tensors_have_rows_too() {
        let scalar = Lanes::over(&[], &[0]);
        assert_eq!((scalar.rows(), scalar.len()), (1, 1));
        let empty = Lanes::over(&[3, 0], &[1]);
        assert_eq!(empty.each(&[], <[f64]>::len), [0, 0, 0]);
        let (a, b) = empty.map(&[], |_, _, _, _| unreachable!("there is no element"));
        assert!(a.is_empty() && b.is_empty());
    }

    #[test]
    fn long_sums_keep_their_digits() {
        assert!((sum(std::iter::repeat_n(0.1, 3_000_000)) - 300_000.0).abs() < 1e-7);
    }
}
