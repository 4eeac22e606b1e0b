//! Positions that count: padding is compared, never judged.

use crate::case::Case;
use crate::error::Result;
use crate::run::{Run, TensorId};

/// Which positions count, by the case's `valid.mask`.
#[derive(Debug, Clone)]
pub(crate) struct ValidPositions {
    mask: Option<(Vec<usize>, Vec<bool>)>,
    /// The mask itself, which counts everywhere: a position that only one run masks must show.
    tensor: Option<TensorId>,
    pub(super) note: Option<String>,
}

impl ValidPositions {
    /// Elements of a golden tensor whose leading axes are the mask's (or the mask's, flattened).
    pub(crate) fn elements(&self, golden: &Run, tensor: TensorId) -> Option<Vec<bool>> {
        let (extents, mask) = self.mask.as_ref().filter(|_| self.tensor != Some(tensor))?;
        let (_, shape) = golden.dtype_and_shape(tensor)?;
        let flat = [mask.len()];
        let covers = |axes: &[usize]| shape.len() >= axes.len() && shape[..axes.len()] == *axes;
        let leading = if covers(extents) {
            extents.len()
        } else if covers(&flat) {
            1
        } else {
            return None;
        };
        let inner: usize = shape[leading..].iter().product();
        Some(mask.iter().flat_map(|&valid| std::iter::repeat_n(valid, inner)).collect())
    }
}

pub(super) fn valid_positions(golden: &Run, case: &Case) -> Result<ValidPositions> {
    let none = |note| ValidPositions { mask: None, tensor: None, note };
    let Some(valid) = &case.valid else { return Ok(none(None)) };
    let source = golden.layers.iter().find(|layer| layer.name == valid.mask);
    let Some(tensor) = source.and_then(|layer| layer.outputs.first()) else {
        return Ok(none(Some(format!("valid.mask: the golden has no layer {}, so every position counts", valid.mask))));
    };
    let Some(mask) = golden.load(*tensor)? else {
        return Ok(none(Some(format!("valid.mask: {} was not stored, so every position counts", valid.mask))));
    };
    let values = mask.decode().unwrap_or_default();
    let mask = (mask.shape().to_vec(), values.iter().map(|v| *v != 0.0).collect());
    Ok(ValidPositions { mask: Some(mask), tensor: Some(*tensor), note: None })
}
