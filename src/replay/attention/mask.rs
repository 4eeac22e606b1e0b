//! Which keys a query sees, and what is added to their scores.

use ndarray::{ArrayView1, ArrayViewD, IxDyn};

use crate::replay::{Operand, Unmodelled};
use crate::tensor::{DType, Kind};

/// Restrictions of an attention; all of them apply.
#[derive(Debug, Clone, Default)]
pub(super) struct Mask<'a> {
    /// Added to the scores; broadcasts to `[B, N, L, S]`.
    pub(super) bias: Option<ArrayViewD<'a, f64>>,
    /// Nonzero where a key may (`true`) or may not (`false`) be seen; broadcasts likewise.
    pub(super) flags: Option<(ArrayViewD<'a, f64>, bool)>,
    /// Query `i` sees keys up to `i` plus this.
    pub(super) causal: Option<i64>,
}

impl<'a> Mask<'a> {
    /// ATen's reading of a mask: booleans keep where true, floats are added.
    ///
    /// # Errors
    /// The mask is of another kind.
    pub(super) fn aten(mask: Option<&'a Operand>) -> Result<Self, Unmodelled> {
        let Some(mask) = mask else { return Ok(Self::default()) };
        let value = mask.value.view();
        match mask.dtype.kind() {
            Kind::Bool => Ok(Self { flags: Some((value, true)), ..Self::default() }),
            Kind::Float => Ok(Self { bias: Some(value), ..Self::default() }),
            _ => Err(Unmodelled(format!("an attention mask of {} is not modelled", mask.dtype))),
        }
    }

    /// Ascend's reading: nonzero hides.
    ///
    /// # Errors
    /// The mask is neither boolean nor of bytes.
    pub(super) fn hiding(mask: &'a Operand) -> Result<Self, Unmodelled> {
        match mask.dtype {
            DType::Bool | DType::U8 | DType::I8 => {
                Ok(Self { flags: Some((mask.value.view(), false)), ..Self::default() })
            }
            other => Err(Unmodelled(format!("atten_mask of {other} is not modelled"))),
        }
    }

    /// True where nothing is hidden and nothing added.
    pub(super) fn is_open(&self) -> bool {
        self.bias.is_none() && self.flags.is_none() && self.causal.is_none()
    }

    /// The mask with its tensors broadcast to `[B, N, L, S]`.
    ///
    /// # Errors
    /// They do not broadcast to it.
    pub(super) fn broadcast(&self, extents: [usize; 4]) -> Result<Mask<'_>, Unmodelled> {
        Ok(Mask {
            bias: self.bias.as_ref().map(|bias| spread(bias, extents)).transpose()?,
            flags: match &self.flags {
                Some((flags, keeps)) => Some((spread(flags, extents)?, *keeps)),
                None => None,
            },
            causal: self.causal,
        })
    }

    /// Applies a broadcast mask to the scores of one query.
    pub(super) fn apply(&self, [batch, head, query]: [usize; 3], scores: &mut [f64]) {
        if let Some(bias) = self.bias.as_ref().and_then(|bias| row(bias, [batch, head, query])) {
            scores.iter_mut().zip(bias).for_each(|(score, bias)| *score += bias);
        }
        if let Some((flags, keeps)) = &self.flags
            && let Some(flags) = row(flags, [batch, head, query])
        {
            for (score, flag) in scores.iter_mut().zip(flags) {
                if (*flag != 0.0) != *keeps {
                    *score = f64::NEG_INFINITY;
                }
            }
        }
        if let Some(offset) = self.causal {
            let seen = i64::try_from(query).unwrap_or(i64::MAX).saturating_add(offset).saturating_add(1).max(0);
            let hidden = scores.iter_mut().skip(usize::try_from(seen).unwrap_or(usize::MAX));
            hidden.for_each(|score| *score = f64::NEG_INFINITY);
        }
    }
}

fn spread<'b>(tensor: &'b ArrayViewD<'_, f64>, extents: [usize; 4]) -> Result<ArrayViewD<'b, f64>, Unmodelled> {
    let spread = tensor.broadcast(IxDyn(&extents));
    spread.ok_or_else(|| Unmodelled(format!("mask {:?} does not broadcast to {extents:?}", tensor.shape())))
}

/// The keys' entries for one query in a tensor of four axes.
fn row<'a>(tensor: &'a ArrayViewD<f64>, at: [usize; 3]) -> Option<ArrayView1<'a, f64>> {
    let mut view = tensor.view();
    for index in at {
        if index >= *view.shape().first()? {
            return None;
        }
        view = view.index_axis_move(ndarray::Axis(0), index);
    }
    view.into_dimensionality().ok()
}
