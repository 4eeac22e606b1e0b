//! A recorded layer as a call that can be recomputed.
//!
//! In goes one layer of one run, out comes its [`Call`]: decoded inputs, attributes, and what it wrote.

use ndarray::{ArcArray, ArrayD, IxDyn};

use super::Replayed;
use super::rows::Rows;
use crate::error::Result;
use crate::replay::{Call, Operand, OutputSpec, function_name};
use crate::run::{LayerId, Run};
use crate::tensor::{Kind, Tensor};

/// The call of one layer, or why there is none: a tensor that was not stored
/// ([`Replayed::Skipped`]) or that replay does not take ([`Replayed::Unmodelled`]).
///
/// # Errors
/// A tensor that cannot be read.
pub fn recorded_call(run: &Run, id: LayerId) -> Result<std::result::Result<Call<'_>, Replayed>> {
    call(run, id, None)
}

/// The same of some rows alone, where `rows` says which.
pub(super) fn call<'r>(
    run: &'r Run,
    id: LayerId,
    rows: Option<&Rows>,
) -> Result<std::result::Result<Call<'r>, Replayed>> {
    let layer = run.layer(id);
    let mut inputs = Vec::with_capacity(layer.inputs.len());
    for (slot, &input) in layer.inputs.iter().enumerate() {
        let Some(tensor) = run.load(input)? else {
            return Ok(Err(Replayed::Skipped("an input was not stored".into())));
        };
        let tensor = match taken(rows, slot, tensor) {
            Ok(tensor) => tensor,
            Err(reason) => return Ok(Err(Replayed::Unmodelled(reason))),
        };
        let Some(value) = array(&tensor) else {
            let reason = format!("an input is {}, which is not replayed", tensor.dtype());
            return Ok(Err(Replayed::Unmodelled(reason)));
        };
        let name = layer.input_names.as_ref().and_then(|names| names.get(slot)).cloned();
        inputs.push(Operand { name, dtype: tensor.dtype(), value });
    }
    let outputs: Vec<OutputSpec> = layer
        .outputs
        .iter()
        .filter_map(|&output| {
            let (dtype, shape) = run.dtype_and_shape(output)?;
            let width = shape.last().copied().unwrap_or(1);
            Some(OutputSpec { dtype, shape: rows.map_or_else(|| shape.to_vec(), |rows| rows.shape(width)) })
        })
        .collect();
    if outputs.len() != layer.outputs.len() {
        return Ok(Err(Replayed::Skipped("an output was not stored".into())));
    }
    let function = function_name(layer.schema.as_deref().unwrap_or(&layer.op_name));
    Ok(Ok(Call { function, attrs: layer.attrs.as_ref(), inputs, outputs }))
}

fn taken(rows: Option<&Rows>, slot: usize, tensor: Tensor) -> std::result::Result<Tensor, String> {
    match rows {
        Some(rows) => rows.input(slot, tensor),
        None => Ok(tensor),
    }
}

fn array(tensor: &Tensor) -> Option<ArcArray<f64, IxDyn>> {
    if tensor.dtype().kind() == Kind::Complex {
        return None;
    }
    ArrayD::from_shape_vec(IxDyn(tensor.shape()), tensor.decode()?).ok().map(ArrayD::into_shared)
}
