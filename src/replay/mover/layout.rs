//! Other extents for the same elements in the same order: views, copies, broadcasts.

use ndarray::IxDyn;

use super::super::reference::{integer_range, plain};
use super::super::{Call, Exactness, References, Replay, Unmodelled, resolve_axis};
use super::{SELF, single, subject};
use crate::tensor::element_count;

pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "view" | "reshape" | "_unsafe_view" | "view_as" | "reshape_as" | "flatten" | "unflatten" | "ravel"
        | "_reshape_alias" | "view_copy" | "_reshape_copy" => reshape,
        "squeeze" => squeeze,
        "unsqueeze" | "expand_dims" => unsqueeze,
        "atleast_1d" | "atleast_2d" => reshape,
        "expand" | "expand_as" | "broadcast_to" | "expand_copy" => expand,
        "clone" | "contiguous" | "detach" | "identity" | "alias" | "lift" | "lift_fresh" | "lift_fresh_copy"
        | "positive" | "requires_grad" | "detach_copy" | "alias_copy" | "npu_format_cast" | "graph_output"
        | "output" => same,
        "copy" => copy,
        "as_strided" => |call| Err(call.unmodelled("strides refer to memory that was not recorded")),
        "buffer" => |call| Err(call.unmodelled("what updates a buffer was not recorded")),
        _ => return None,
    })
}

/// The recorded extents are the result's; the attribute, where there is one, must agree.
fn reshape(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let output = call.output(0)?;
    if output.dtype != x.dtype {
        return Err(call.unmodelled("bits are reinterpreted as another dtype"));
    }
    let asked = match call.attrs {
        Some(_) => call.integers("size")?.or(call.integers("shape")?),
        None => None,
    };
    if let Some(asked) = asked {
        let agrees = asked.len() == output.shape.len()
            && asked.iter().zip(&output.shape).all(|(&a, &o)| a == -1 || usize::try_from(a) == Ok(o));
        if !agrees {
            return Err(call.unmodelled(&format!("size {asked:?} does not fit the recorded {:?}", output.shape)));
        }
    }
    reshaped(call)
}

/// The subject's elements in the recorded extents.
fn reshaped(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    let shape = &call.output(0)?.shape;
    if element_count(shape) != Some(x.value.len()) {
        return Err(call.unmodelled(&format!("{:?} does not become the recorded {shape:?}", x.value.shape())));
    }
    let value = x.value.to_shape(IxDyn(shape)).map_err(|_| call.unmodelled("the result's shape overflows"))?;
    single(call, x, &value.view())
}

/// Drops all axes of extent 1, or those of `dim`.
fn squeeze(call: &Call) -> Result<References, Unmodelled> {
    if let Some(attrs) = call.attrs {
        let shape = subject(call)?.value.shape();
        let dropped: Vec<usize> = match (attrs.contains_key("dim"), call.integers("dim")?) {
            (true, Some(dims)) => dims
                .iter()
                .map(|&dim| resolve_axis(dim, shape.len()).ok_or_else(|| call.unmodelled("dim is out of range")))
                .collect::<Result<_, _>>()?,
            _ => (0..shape.len()).collect(),
        };
        let kept = |(axis, extent): (usize, &usize)| (*extent != 1 || !dropped.contains(&axis)).then_some(*extent);
        let expected: Vec<usize> = shape.iter().enumerate().filter_map(kept).collect();
        call.fits(0, &expected)?;
    }
    reshaped(call)
}

fn unsqueeze(call: &Call) -> Result<References, Unmodelled> {
    if call.attrs.is_some() {
        let mut shape = subject(call)?.value.shape().to_vec();
        let axis = call.axis("dim", None, shape.len() + 1)?;
        shape.insert(axis, 1);
        call.fits(0, &shape)?;
    }
    reshaped(call)
}

/// Broadcasts to the recorded extents; `repeats` in the attributes means tiling.
fn expand(call: &Call) -> Result<References, Unmodelled> {
    if call.attrs.is_some_and(|attrs| attrs.contains_key("repeats") || attrs.contains_key("dims")) {
        return super::join::repeat(call);
    }
    let x = subject(call)?;
    let output = call.output(0)?;
    if call.attrs.is_some()
        && let Some(size) = call.integers("size")?
    {
        let missing = size.len().checked_sub(x.value.ndim());
        let missing = missing.ok_or_else(|| call.unmodelled("fewer extents than the tensor has"))?;
        let expected = size.iter().enumerate().map(|(axis, &extent)| match extent {
            -1 => axis.checked_sub(missing).and_then(|own| x.value.shape().get(own).copied()),
            extent => usize::try_from(extent).ok(),
        });
        let expected: Option<Vec<usize>> = expected.collect();
        call.fits(0, &expected.ok_or_else(|| call.unmodelled("a size is no extent"))?)?;
    }
    element_count(&output.shape).ok_or_else(|| call.unmodelled("the result's shape overflows"))?;
    let view = x.value.broadcast(IxDyn(&output.shape));
    let view = view.ok_or_else(|| call.unmodelled("the tensor does not broadcast to the recorded shape"))?;
    single(call, x, &view)
}

fn same(call: &Call) -> Result<References, Unmodelled> {
    let x = subject(call)?;
    single(call, x, &x.value.view())
}

/// `copy_(self, src)`: the value of `src`, broadcast to `self` and converted to its dtype.
fn copy(call: &Call) -> Result<References, Unmodelled> {
    let source = match call.named(&["src", "source"]) {
        Some(source) => source,
        None => call.optional_input(&["src"], 1).map_or_else(|| call.input(SELF, 0), Ok)?,
    };
    let output = call.output(0)?;
    if source.dtype != output.dtype && integer_range(output.dtype).is_some() {
        return Err(call.unmodelled("a copy into integers truncates"));
    }
    element_count(&output.shape).ok_or_else(|| call.unmodelled("the result's shape overflows"))?;
    let view = source.value.broadcast(IxDyn(&output.shape));
    let view = view.ok_or_else(|| call.unmodelled("the source does not broadcast to the recorded shape"))?;
    call.output_count(1)?;
    let exactness = if source.dtype == output.dtype { Exactness::Exact } else { Exactness::Rounded };
    Ok(vec![Some(plain(view.as_standard_layout().into_owned(), exactness))])
}
