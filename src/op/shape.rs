//! What an operator sums: its operands and its reduction length K, from shapes, argument names and
//! attributes.

use std::collections::BTreeMap;

use super::{Class, Op};

/// Argument names of the two operands of a contraction, in the frameworks' schemas.
const OPERANDS: &[(&str, &str)] = &[
    ("mat1", "mat2"),
    ("batch1", "batch2"),
    ("input", "weight"),
    ("self", "mat2"),
    ("self", "other"),
    ("input", "other"),
    ("self", "weight"),
    ("query", "key"),
    ("mat", "vec"),
];

/// Slots of the two operands of a contraction: by argument name, else the first two inputs with two
/// or more axes (a bias, which `addmm` names first, has one).
pub fn operands(names: Option<&[String]>, shapes: &[Option<&[usize]>]) -> Option<(usize, usize)> {
    if let Some(names) = names {
        for (first, second) in OPERANDS {
            let at = |wanted: &str| names.iter().position(|name| name == wanted);
            if let (Some(a), Some(b)) = (at(first), at(second)) {
                return Some((a, b));
            }
        }
    }
    let mut large = shapes.iter().enumerate().filter(|(_, shape)| shape.is_some_and(|s| s.len() >= 2));
    Some((large.next()?.0, large.next()?.0))
}

/// Number of terms that each output element sums (K of the error model); 1 where nothing is summed
/// or too little is known.
pub fn reduction_length(
    op: Op,
    names: Option<&[String]>,
    inputs: &[Option<&[usize]>],
    output: &[usize],
    attrs: Option<&BTreeMap<String, serde_json::Value>>,
) -> usize {
    let product = |shape: &[usize]| shape.iter().product::<usize>();
    let first = inputs.iter().flatten().next().copied().unwrap_or(&[]);
    let length = match op.class() {
        Class::Contraction => match operands(names, inputs) {
            Some((_, weight)) if matches!(op.name(), "conv" | "conv_transpose") => {
                inputs[weight].map_or(1, |shape| product(shape.get(1..).unwrap_or(&[])))
            }
            Some((first, second)) => {
                let width = inputs[first].and_then(|s| s.last().copied()).unwrap_or(1);
                // Attention sums over the head's width, then over the keys.
                let keys = if op.name() == "attention" {
                    inputs[second].and_then(|s| s.iter().rev().nth(1).copied()).unwrap_or(1)
                } else {
                    1
                };
                width.max(keys)
            }
            None => first.last().copied().unwrap_or(1),
        },
        Class::Softmax => axis(first, attrs, "dim").unwrap_or_else(|| first.last().copied().unwrap_or(1)),
        Class::Norm => match attrs.and_then(|a| a.get("normalized_shape")).and_then(|v| v.as_array()) {
            Some(extents) => extents.iter().filter_map(serde_json::Value::as_u64).product::<u64>() as usize,
            // Running statistics are given, nothing is summed.
            None if op.name() == "batch_norm" => 1,
            None => first.last().copied().unwrap_or(1),
        },
        Class::Reduction if op.name() == "cumsum" => axis(first, attrs, "dim").unwrap_or(1),
        Class::Reduction => product(first) / product(output).max(1),
        _ => 1,
    };
    length.max(1)
}

/// Extent of the axis that attribute `name` gives (negative counts from the end).
pub fn axis(shape: &[usize], attrs: Option<&BTreeMap<String, serde_json::Value>>, name: &str) -> Option<usize> {
    axis_index(shape.len(), attrs, name).and_then(|at| shape.get(at).copied())
}

/// Index of the axis that attribute `name` gives, for a tensor of `rank` axes.
pub fn axis_index(rank: usize, attrs: Option<&BTreeMap<String, serde_json::Value>>, name: &str) -> Option<usize> {
    let dim = attrs?.get(name)?.as_i64()?;
    let rank = i64::try_from(rank).ok()?;
    let dim = if dim < 0 { dim + rank } else { dim };
    (0..rank).contains(&dim).then(|| usize::try_from(dim).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn length(op: &str, inputs: &[&[usize]], output: &[usize]) -> usize {
        let inputs: Vec<_> = inputs.iter().map(|s| Some(*s)).collect();
        reduction_length(Op::named(op), None, &inputs, output, None)
    }

    #[test]
    fn reduction_lengths_follow_from_shapes() {
        assert_eq!(length("linear", &[&[8, 64], &[32, 64], &[32]], &[8, 32]), 64);
        assert_eq!(length("addmm", &[&[32], &[8, 64], &[64, 32]], &[8, 32]), 64);
        assert_eq!(length("conv2d", &[&[1, 3, 9, 9], &[6, 3, 3, 3]], &[1, 6, 9, 9]), 27);
        assert_eq!(length("attention", &[&[2, 4, 128, 8], &[2, 4, 128, 8], &[2, 4, 128, 8]], &[2, 4, 128, 8]), 128);
        assert_eq!(length("mean", &[&[8, 64]], &[8, 1]), 64);
        assert_eq!(length("sum", &[&[0, 4]], &[0]), 1);
        assert_eq!(length("relu", &[&[8]], &[8]), 1);
    }
}
