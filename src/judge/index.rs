//! Index outputs (topk, argmax, sort, pooling): an index that differs is no difference where the
//! values it chooses between tie.

use super::threshold::{TIE, TOTAL};
use crate::error::Result;
use crate::op::{IndexInto, axis_index};
use crate::run::{Layer, Run, TensorId};
use crate::tensor::{Kind, Tensor};

/// What the differing indices of one output come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Ties {
    /// Indices that differ.
    pub(super) differing: u64,
    /// The golden's values at both indices are equal.
    pub(super) exact: u64,
    /// They differ by less than the dtype and the error budget explain.
    pub(super) near: u64,
    /// They are apart, or cannot be looked up.
    pub(super) apart: u64,
}

/// What values may be off, and where indices count.
pub(super) struct Within<'a> {
    /// The larger unit roundoff of the two sides' values.
    pub(super) roundoff: f64,
    /// Their relative error budget.
    pub(super) budget: f64,
    /// Indices that count; `None` where all do.
    pub(super) valid: Option<&'a [bool]>,
}

/// Counts ties among differing indices.
///
/// # Errors
/// A tensor that cannot be read. `Ok(None)` where the values chosen between were not recorded.
pub(super) fn ties(
    golden: &Run,
    candidate: &Run,
    layer: &Layer,
    pair: (TensorId, TensorId),
    into: IndexInto,
    within: &Within<'_>,
) -> Result<Option<Ties>> {
    let Some(&values) = layer.inputs.first() else { return Ok(None) };
    let (Some(values), Some(left), Some(right)) = (golden.load(values)?, golden.load(pair.0)?, candidate.load(pair.1)?)
    else {
        return Ok(None);
    };
    if left.shape() != right.shape() || left.dtype().kind() != Kind::Int || right.dtype().kind() != Kind::Int {
        return Ok(None);
    }
    let (Some(numbers), Some(a), Some(b)) = (values.decode(), left.decode(), right.decode()) else { return Ok(None) };
    let lanes = Lanes::new(&values, &left, layer, into);
    let mut ties = Ties::default();
    let counts = |at: usize| within.valid.is_none_or(|valid| valid.get(at) != Some(&false));
    let bound = TIE * within.roundoff + TOTAL * within.budget;
    for (at, (&a, &b)) in a.iter().zip(&b).enumerate().filter(|(at, (a, b))| a != b && counts(*at)) {
        ties.differing += 1;
        let value =
            |index: f64| lanes.as_ref().and_then(|l| l.element(at, index)).and_then(|at| numbers.get(at)).copied();
        match (value(a), value(b)) {
            (Some(x), Some(y)) if x == y => ties.exact += 1,
            (Some(x), Some(y)) if (x - y).abs() <= bound * x.abs().max(y.abs()) => ties.near += 1,
            _ => ties.apart += 1,
        }
    }
    Ok(Some(ties))
}

/// How an index at a position of the index tensor finds its element in the values.
enum Lanes {
    /// Along one axis: extents before, along and behind it, in values and indices.
    Axis { along: usize, behind: usize, indices_along: usize },
    /// In the flattened last two axes.
    Plane { plane: usize, indices_plane: usize },
    /// In the whole tensor.
    Flat { len: usize },
}

impl Lanes {
    fn new(values: &Tensor, indices: &Tensor, layer: &Layer, into: IndexInto) -> Option<Self> {
        let shape = values.shape();
        match into {
            IndexInto::Flat => Some(Self::Flat { len: values.len() }),
            IndexInto::Plane => {
                let split = shape.len().checked_sub(2)?;
                if indices.shape().len() != shape.len() || indices.shape()[..split] != shape[..split] {
                    return None;
                }
                Some(Self::Plane {
                    plane: shape[split..].iter().product(),
                    indices_plane: indices.shape()[split..].iter().product(),
                })
            }
            IndexInto::Dim => {
                let axis = match axis_index(shape.len(), layer.attrs.as_ref(), "dim") {
                    Some(axis) => axis,
                    // Without `dim`, argmax works on the flattened tensor, topk on the last axis.
                    None if indices.len() == 1 && values.len() > 1 => return Some(Self::Flat { len: values.len() }),
                    None => shape.len().checked_sub(1)?,
                };
                let behind = shape[axis + 1..].iter().product();
                let before: usize = shape[..axis].iter().product();
                let lanes = before * behind;
                // keepdim or not, the index tensor holds `indices_along` entries per lane.
                let indices_along = indices.len().checked_div(lanes)?;
                (indices_along * lanes == indices.len()).then_some(Self::Axis {
                    along: shape[axis],
                    behind,
                    indices_along,
                })
            }
        }
    }

    /// Flat position in the values of the element that `index` at position `at` names.
    fn element(&self, at: usize, index: f64) -> Option<usize> {
        let index = (index >= 0.0).then_some(index as usize)?;
        match *self {
            Self::Axis { along, behind, indices_along } => {
                let lane_block = at / (indices_along * behind).max(1);
                (index < along).then(|| lane_block * along * behind + index * behind + at % behind.max(1))
            }
            Self::Plane { plane, indices_plane } => (index < plane).then(|| at / indices_plane.max(1) * plane + index),
            Self::Flat { len } => (index < len).then_some(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_its_element() {
        // values [2, 3, 4], topk over axis 1 with k = 2: indices [2, 2, 4].
        let axis = Lanes::Axis { along: 3, behind: 4, indices_along: 2 };
        assert_eq!(axis.element(0, 2.0), Some(8));
        assert_eq!(axis.element(5, 1.0), Some(5));
        assert_eq!(axis.element(8, 0.0), Some(12));
        assert_eq!(axis.element(0, 3.0), None);
        assert_eq!(axis.element(0, -1.0), None);
        let plane = Lanes::Plane { plane: 9, indices_plane: 4 };
        assert_eq!(plane.element(6, 3.0), Some(12));
    }
}
