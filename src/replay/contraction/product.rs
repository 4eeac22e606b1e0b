//! Matrix products in f64 together with the sum of the squares of their terms.

use ndarray::linalg::general_mat_mul;
use ndarray::{Array3, ArrayD, ArrayView2, ArrayView3, ArrayViewMut2, ArrayViewMut3, Axis, Slice};
use rayon::prelude::*;

use crate::replay::{Call, Exactness, Reference, Unmodelled};
use crate::tensor::{DType, Kind};

/// Edge of an output tile; one tile is one task. It fixes what is summed together and in which
/// order, so results do not depend on the number of threads.
const TILE: usize = 256;

/// Terms that one product call sums; bounds what the squared operands of a tile take (2 x 4 MiB).
const DEPTH: usize = 2048;

/// Products of a tile from which the squares of their terms are formed in f32: below it there is no
/// time to be saved.
const LONG: usize = 1 << 20;

/// Integers up to here are exact in f64.
const EXACT_INTEGERS: f64 = 9_007_199_254_740_992.0;

/// Sums of products: the value, and per element the sum of the squares of its terms.
#[derive(Debug, Clone)]
pub(in crate::replay) struct Sums {
    /// The sums.
    pub(in crate::replay) value: ArrayD<f64>,
    /// Per element, the squares of the terms, summed; same shape as `value`.
    pub(in crate::replay) squares: ArrayD<f64>,
    /// How many terms each element sums.
    pub(in crate::replay) terms: usize,
}

impl Sums {
    /// Multiplies every term by `factor`.
    pub(in crate::replay) fn scaled(mut self, factor: f64) -> Self {
        if factor != 1.0 {
            self.value.mapv_inplace(|value| value * factor);
            self.squares.mapv_inplace(|square| square * factor * factor);
        }
        self
    }

    /// Adds one more term to each element, `factor` times `addend` broadcast to the value's shape. A
    /// factor of zero leaves the addend unread, as BLAS and ATen have it (its NaN do not spread).
    ///
    /// # Errors
    /// The addend does not broadcast to the value's shape.
    pub(in crate::replay) fn plus(
        mut self,
        addend: &ndarray::ArrayViewD<f64>,
        factor: f64,
    ) -> Result<Self, Unmodelled> {
        if factor == 0.0 {
            return Ok(self);
        }
        let Some(addend) = addend.broadcast(self.value.raw_dim()) else {
            return Err(Unmodelled(format!(
                "shape {:?} of the addend does not broadcast to {:?}",
                addend.shape(),
                self.value.shape()
            )));
        };
        ndarray::Zip::from(&mut self.value).and(&mut self.squares).and(&addend).for_each(|value, square, &term| {
            *value += factor * term;
            *square += (factor * term) * (factor * term);
        });
        self.terms = self.terms.saturating_add(1);
        Ok(self)
    }

    /// The reference of a sum. Integers are exact or not modelled: what wraps around depends on
    /// the device.
    ///
    /// # Errors
    /// The recorded output at `slot` is boolean, complex or an integer that may have overflowed.
    pub(in crate::replay) fn reference(self, call: &Call, slot: usize) -> Result<Reference, Unmodelled> {
        let dtype = call.outputs.get(slot).map_or(DType::F64, |output| output.dtype);
        let mut scale = self.squares.mapv(f64::sqrt);
        scale.zip_mut_with(&self.value, |scale, value| *scale = value.abs().max(*scale));
        let exactness = match dtype.kind() {
            Kind::Float => Exactness::Summed { terms: self.terms, squares: self.squares },
            Kind::Int => {
                // |sum of any part of the terms| <= sqrt(K Q), by Cauchy and Schwarz.
                let largest = EXACT_INTEGERS.min(2f64.powi(dtype.bits() as i32 - 1));
                if self.squares.iter().any(|square| (self.terms as f64 * square).sqrt() >= largest) {
                    return Err(Unmodelled(format!("sums of {} may overflow {dtype}", call.function())));
                }
                Exactness::Discrete
            }
            _ => return Err(Unmodelled(format!("{} into {dtype} is not modelled", call.function()))),
        };
        Ok(Reference { value: self.value, scale, exactness })
    }
}

/// Batched products: `[B, M, K]` times `[B, K, N]` gives two `[B, M, N]`, the products and the sums of
/// the squares of their terms. The caller has made the inner and the batch extents equal.
pub(in crate::replay) fn multiply(a: ArrayView3<f64>, b: ArrayView3<f64>) -> (Array3<f64>, Array3<f64>) {
    let (batches, rows, _) = a.dim();
    let extents = (batches.min(b.len_of(Axis(0))), rows, b.len_of(Axis(2)));
    multiply_each(extents, |batch| a.index_axis(Axis(0), batch), |batch| b.index_axis(Axis(0), batch))
}

/// [`multiply`] for `extents` `(B, M, N)` with operands that are looked up by batch, so that broadcast
/// ones are never copied. Views of any stride are taken as they are; each thread holds the squares of
/// two slabs of at most `TILE x DEPTH` elements.
pub(in crate::replay) fn multiply_each<'a>(
    extents: (usize, usize, usize),
    a: impl Fn(usize) -> ArrayView2<'a, f64> + Sync,
    b: impl Fn(usize) -> ArrayView2<'a, f64> + Sync,
) -> (Array3<f64>, Array3<f64>) {
    let (_, rows, columns) = extents;
    let mut value = Array3::zeros(extents);
    let mut squares = Array3::zeros(extents);
    // Small matrices are taken many to a task.
    let together = (TILE * TILE / rows.saturating_mul(columns).max(1)).max(1);
    let cuts = [together, TILE, TILE];
    let tasks: Vec<_> = tiles(value.view_mut(), cuts).into_iter().zip(tiles(squares.view_mut(), cuts)).collect();
    tasks.into_par_iter().for_each(|((corner, mut value), (_, mut squares))| {
        let [first, row, column] = corner;
        for (at, (mut value, mut squares)) in value.outer_iter_mut().zip(squares.outer_iter_mut()).enumerate() {
            let (a, b) = (a(first + at), b(first + at));
            let depth = a.ncols().min(b.nrows());
            let a = a.slice_axis(Axis(0), (row..row + value.nrows()).into());
            let b = b.slice_axis(Axis(1), (column..column + value.ncols()).into());
            for start in (0..depth).step_by(DEPTH) {
                let part = Slice::from(start..depth.min(start + DEPTH));
                let (a, b) = (a.slice_axis(Axis(1), part), b.slice_axis(Axis(0), part));
                general_mat_mul(1.0, &a, &b, 1.0, &mut value);
                add_squares(&a, &b, &mut squares);
            }
        }
    });
    (value, squares)
}

/// Adds the products of the squared operands to `squares`. These are read to a few digits alone (they
/// say how large a rounding error may be), so they are formed in f32, which takes half the time; the
/// operands are brought to at most 1 first, so that no square overflows.
fn add_squares(a: &ArrayView2<f64>, b: &ArrayView2<f64>, squares: &mut ArrayViewMut2<f64>) {
    let largest = |x: &ArrayView2<f64>| x.fold(0.0f64, |max, v| max.max(v.abs()));
    let (amax, bmax) = (largest(a), largest(b));
    let unit = (amax * bmax) * (amax * bmax);
    let is_long = a.nrows() * b.ncols() * a.ncols() >= LONG;
    // Special values, nothing at all, or magnitudes whose squares leave f64: as f64 has it.
    if !is_long || !unit.is_normal() || !special_free(a) || !special_free(b) {
        general_mat_mul(1.0, &a.mapv(|x| x * x), &b.mapv(|x| x * x), 1.0, squares);
        return;
    }
    let squared = |x: &ArrayView2<f64>, max: f64| x.mapv(|v| ((v / max) * (v / max)) as f32);
    let part = squared(a, amax).dot(&squared(b, bmax));
    squares.zip_mut_with(&part, |sum, &part| *sum += unit * f64::from(part));
}

fn special_free(x: &ArrayView2<f64>) -> bool {
    x.iter().all(|v| v.is_finite())
}

/// Cuts an array into tiles of at most `cuts`, each with the corner at which it begins, in row-major
/// order; an empty array has none.
pub(in crate::replay) fn tiles(array: ArrayViewMut3<f64>, cuts: [usize; 3]) -> Vec<([usize; 3], ArrayViewMut3<f64>)> {
    if array.is_empty() {
        return Vec::new();
    }
    let mut parts = vec![([0; 3], array)];
    for (axis, cut) in cuts.into_iter().enumerate() {
        let mut cut_parts = Vec::new();
        for (mut corner, mut rest) in parts {
            while rest.len_of(Axis(axis)) > cut.max(1) {
                let (part, beyond) = rest.split_at(Axis(axis), cut.max(1));
                cut_parts.push((corner, part));
                (rest, corner[axis]) = (beyond, corner[axis] + cut.max(1));
            }
            cut_parts.push((corner, rest));
        }
        parts = cut_parts;
    }
    parts
}

/// That the output at `slot` was recorded with the shape that was computed; asked before anything is
/// allocated for it.
///
/// # Errors
/// It was not recorded, or with another shape.
pub(in crate::replay) fn fits(call: &Call, slot: usize, shape: &[usize]) -> Result<(), Unmodelled> {
    match call.outputs.get(slot) {
        // A zero elsewhere may hide extents that no array can have.
        Some(output) if output.shape == shape && !addressable(shape) => {
            Err(Unmodelled(format!("result shape {shape:?} of {} is too large", call.function())))
        }
        Some(output) if output.shape == shape => Ok(()),
        Some(output) => Err(Unmodelled(format!(
            "result shape {shape:?} of {} does not fit the recorded {:?}",
            call.function(),
            output.shape
        ))),
        None => Err(Unmodelled(format!("output {slot} of {} was not recorded", call.function()))),
    }
}

/// True where an array of `shape` can exist: a zero extent may stand beside any others.
pub(super) fn addressable(shape: &[usize]) -> bool {
    let extents = shape.iter().filter(|&&extent| extent > 0);
    extents.copied().try_fold(1usize, usize::checked_mul).is_some_and(|count| count < isize::MAX as usize)
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, Axis};

    use super::*;

    #[test]
    fn long_products_have_the_same_squares_to_f32() {
        let wave = |shape: (usize, usize), scale: f64| {
            Array2::from_shape_fn(shape, |(i, j)| scale * ((i * 31 + j * 17) as f64 * 0.618_034).fract() - scale / 3.0)
        };
        for scale in [1e-30, 1.0, 1e30] {
            let (a, b) = (wave((128, 200), scale), wave((200, 64), 2.0));
            assert!(a.nrows() * a.ncols() * b.ncols() >= LONG);
            let (_, squares) = multiply(a.view().insert_axis(Axis(0)), b.view().insert_axis(Axis(0)));
            let exact = a.mapv(|x| x * x).dot(&b.mapv(|x| x * x));
            for (&found, &exact) in squares.iter().zip(&exact) {
                approx::assert_relative_eq!(found, exact, max_relative = 1e-5);
            }
        }
        let mut special = wave((128, 200), 1.0);
        special[[3, 5]] = f64::INFINITY;
        let b = wave((200, 64), 2.0);
        let (_, squares) = multiply(special.view().insert_axis(Axis(0)), b.view().insert_axis(Axis(0)));
        assert!(squares[[0, 3, 0]].is_infinite() && squares[[0, 4, 0]].is_finite());
    }
}
