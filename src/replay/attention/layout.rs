//! Layouts of fused attention: which axis holds batch, sequence, heads and their size.

use ndarray::{Array3, Array4, ArrayD, ArrayView3, ArrayView4, ArrayViewD, Axis, CowArray, Ix3, Ix4, IxDyn};

use super::heads::{Attended, Heads};
use super::mask::Mask;
use super::{budget, with_by_products};
use crate::replay::contraction::product::fits;
use crate::replay::{Call, Reference, References, Unmodelled};

/// How heads are laid out. `H` is heads times their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// `[B, S, H]`.
    Bsh,
    /// `[S, B, H]`.
    Sbh,
    /// `[B, N, S, D]`.
    Bnsd,
    /// `[B, S, N, D]`.
    Bsnd,
    /// `[B, S, D]`, a single head.
    Bsd,
    /// `[S, D]`, a single head.
    Sd,
}

impl Layout {
    /// The layout of that name; the packed `TND` is none of these.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "BSH" => Self::Bsh,
            "SBH" => Self::Sbh,
            "BNSD" => Self::Bnsd,
            "BSND" => Self::Bsnd,
            _ => return None,
        })
    }

    /// How many heads of `size` a tensor in this layout holds.
    pub(super) fn heads(self, shape: &[usize], size: usize) -> Option<usize> {
        match self {
            Self::Bsh | Self::Sbh => shape.get(2).filter(|_| size > 0).filter(|&h| h % size == 0).map(|h| h / size),
            Self::Bnsd => shape.get(1).copied(),
            Self::Bsnd => shape.get(2).copied(),
            Self::Bsd | Self::Sd => Some(1),
        }
    }

    /// A tensor of `heads` heads as `[B, N, S, D]`; copied only where its strides demand it.
    ///
    /// # Errors
    /// Its rank or its last axis does not fit.
    pub(super) fn split<'a>(
        self,
        tensor: ArrayViewD<'a, f64>,
        heads: usize,
    ) -> Result<CowArray<'a, f64, Ix4>, Unmodelled> {
        let shape = tensor.shape().to_vec();
        let wrong = || Unmodelled(format!("shape {shape:?} does not hold {heads} heads in layout {self:?}"));
        match self {
            Self::Bnsd => four(tensor).filter(|t| t.dim().1 == heads).map(Into::into).ok_or_else(wrong),
            Self::Bsnd => four(tensor)
                .map(|tensor| tensor.permuted_axes([0, 2, 1, 3]))
                .filter(|t| t.dim().1 == heads)
                .map(Into::into)
                .ok_or_else(wrong),
            Self::Bsd if tensor.ndim() == 3 => four(tensor.insert_axis(Axis(1))).map(Into::into).ok_or_else(wrong),
            Self::Sd if tensor.ndim() == 2 => {
                four(tensor.insert_axis(Axis(0)).insert_axis(Axis(0))).map(Into::into).ok_or_else(wrong)
            }
            Self::Bsd | Self::Sd => Err(wrong()),
            Self::Bsh | Self::Sbh => {
                let tensor = tensor.into_dimensionality::<Ix3>().map_err(|_| wrong())?;
                let (first, second, hidden) = tensor.dim();
                if heads == 0 || hidden % heads != 0 {
                    return Err(wrong());
                }
                let order = if self == Self::Bsh { [0, 2, 1, 3] } else { [1, 2, 0, 3] };
                let split = (first, second, heads, hidden / heads);
                if tensor.is_standard_layout() {
                    let view = tensor.into_shape_with_order(split).map_err(|_| wrong())?;
                    return Ok(view.permuted_axes(order).into());
                }
                let owned = tensor.as_standard_layout().into_owned().into_shape_with_order(split);
                Ok(owned.map_err(|_| wrong())?.permuted_axes(order).into())
            }
        }
    }

    /// The shape in this layout of a result `[B, N, L, D]`.
    pub(super) fn shape(self, [b, n, l, d]: [usize; 4]) -> Vec<usize> {
        match self {
            Self::Bsh => vec![b, l, n.saturating_mul(d)],
            Self::Sbh => vec![l, b, n.saturating_mul(d)],
            Self::Bnsd => vec![b, n, l, d],
            Self::Bsnd => vec![b, l, n, d],
            Self::Bsd => vec![b, l, d],
            Self::Sd => vec![l, d],
        }
    }

    fn join(self, heads: Array4<f64>, shape: &[usize]) -> Result<ArrayD<f64>, Unmodelled> {
        let order = match self {
            Self::Bsh | Self::Bsnd => [0, 2, 1, 3],
            Self::Sbh => [2, 0, 1, 3],
            Self::Bnsd | Self::Bsd | Self::Sd => [0, 1, 2, 3],
        };
        let turned = heads.permuted_axes(order).as_standard_layout().into_owned();
        turned.into_shape_with_order(IxDyn(shape)).map_err(|_| Unmodelled("the heads have another shape".to_string()))
    }
}

fn four(tensor: ArrayViewD<f64>) -> Option<ArrayView4<f64>> {
    tensor.into_dimensionality().ok()
}

/// Attention of heads for a call whose first output lies in `layout`.
pub(super) fn attended(
    call: &Call,
    heads: &Heads,
    mask: &Mask,
    scale: f64,
    layout: Layout,
) -> Result<References, Unmodelled> {
    let shape = layout.shape(heads.result()?);
    fits(call, 0, &shape)?;
    let attended = heads.attend(mask, scale)?;
    let exactness = budget(call, attended.spread);
    let (value, scale) = (layout.join(attended.value, &shape)?, layout.join(attended.scale, &shape)?);
    Ok(with_by_products(call, Reference { value, scale, exactness }))
}

/// Packed sequences, `[T, N, D]`, whose ends are recorded; `causal` gives the offset of the diagonal for
/// a sequence of so many queries and keys.
///
/// # Errors
/// The ends do not cover the tensors, or the heads do not fit.
pub(super) fn packed(
    call: &Call,
    [query, key, value]: [ArrayView3<f64>; 3],
    [query_ends, key_ends]: [&[usize]; 2],
    causal: impl Fn(usize, usize) -> Option<i64>,
    scale: f64,
) -> Result<References, Unmodelled> {
    let (total, heads, _) = query.dim();
    let shape = [total, heads, value.dim().2];
    fits(call, 0, &shape)?;
    let sound = |ends: &[usize], total: usize| {
        ends.windows(2).all(|pair| pair[0] <= pair[1]) && ends.last().copied().unwrap_or(0) == total
    };
    if query_ends.len() != key_ends.len() || !sound(query_ends, total) || !sound(key_ends, key.dim().0) {
        return Err(Unmodelled(format!("sequence ends of {} do not cover its tensors", call.function())));
    }
    let mut values = Array3::zeros(shape);
    let mut scales = Array3::zeros(shape);
    let (mut spread, mut from, mut key_from) = (0.0f64, 0, 0);
    for (&to, &key_to) in query_ends.iter().zip(key_ends) {
        let part = |tensor: &ArrayView3<f64>, from: usize, to: usize| -> Result<Array4<f64>, Unmodelled> {
            if from > to || to > tensor.dim().0 {
                return Err(Unmodelled(format!("sequence ends of {} do not cover its tensors", call.function())));
            }
            let part = tensor.slice_axis(Axis(0), (from..to).into()).to_owned();
            Ok(part.permuted_axes([1, 0, 2]).insert_axis(Axis(0)))
        };
        let (q, k, v) = (part(&query, from, to)?, part(&key, key_from, key_to)?, part(&value, key_from, key_to)?);
        let mask = Mask { causal: causal(to - from, key_to - key_from), ..Mask::default() };
        let one = Heads { query: q.view(), key: k.view(), value: v.view() };
        if to > from {
            let Attended { value, scale: magnitude, spread: of } = one.attend(&mask, scale)?;
            let place = |whole: &mut Array3<f64>, part: Array4<f64>| {
                let part = part.index_axis_move(Axis(0), 0).permuted_axes([1, 0, 2]);
                whole.slice_axis_mut(Axis(0), (from..to).into()).assign(&part);
            };
            place(&mut values, value);
            place(&mut scales, magnitude);
            spread = spread.max(of);
        }
        (from, key_from) = (to, key_to);
    }
    let reference = Reference { value: values.into_dyn(), scale: scales.into_dyn(), exactness: budget(call, spread) };
    Ok(with_by_products(call, reference))
}

/// Ends of sequences from a tensor or an attribute.
///
/// # Errors
/// One of them is no whole number.
pub(super) fn ends(call: &Call, values: impl Iterator<Item = f64>) -> Result<Vec<usize>, Unmodelled> {
    values
        .map(|value| {
            let whole = value >= 0.0 && value.fract() == 0.0 && value < 2f64.powi(53);
            whole
                .then_some(value as usize)
                .ok_or_else(|| Unmodelled(format!("a sequence of {} ends at {value}", call.function())))
        })
        .collect()
}
