//! Backward calls, completed with what their forward read.
//!
//! msprobe hooks the node that made an API's result in autograd's graph: it records the gradient of the result
//! and those that this one node hands on. In go the forward call and both lists of gradients, out comes the
//! call of the backward function that makes the one from the other, where it is known; else the gradients alone.
//! Of a product that the framework brings to two axes first (`linear`, `matmul` of batches) the last node is
//! the view, and the recorded gradient is the result's in other extents.

use serde_json::{Value, json};

use super::arguments::{Bound, Use};
use super::node::{Node, Recorded};
use crate::run::Attrs;

/// A forward call, as far as its backward needs it.
#[derive(Debug)]
pub(super) struct Forward<'a> {
    pub(super) bound: Bound<'a>,
    /// Its results, in order.
    pub(super) outputs: Vec<Use<'a>>,
}

/// A call that makes gradients.
#[derive(Debug)]
pub(super) struct Gradients<'a> {
    pub(super) function: &'static str,
    /// Tensors that it reads, with the names of the function's schema; places are those of the forward's entry
    /// where `from_forward` says so.
    pub(super) inputs: Vec<Source<'a>>,
    pub(super) attrs: Attrs,
}

/// A tensor that a backward call reads.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) name: &'static str,
    pub(super) tensor: &'a Recorded,
    /// Where in the entry of the forward (else of the backward) it stands.
    pub(super) place: String,
    pub(super) from_forward: bool,
}

fn shape(tensor: &Recorded) -> Option<&[usize]> {
    tensor.shape.as_deref()
}

fn attrs(value: Value) -> Attrs {
    match value {
        Value::Object(map) => map.into_iter().collect(),
        _ => Attrs::new(),
    }
}

impl<'a> Forward<'a> {
    fn input(&self, name: &'static str) -> Option<Source<'a>> {
        self.input_as(name, name)
    }

    /// The forward's argument `from` under another name.
    fn input_as(&self, from: &str, name: &'static str) -> Option<Source<'a>> {
        let found = self.bound.tensors.iter().find(|t| t.name.as_deref() == Some(from))?;
        Some(Source { name, tensor: found.tensor, place: found.place.clone(), from_forward: true })
    }

    fn result(&self, name: &'static str) -> Option<Source<'a>> {
        let found = self.outputs.first()?;
        Some(Source { name, tensor: found.tensor, place: found.place.clone(), from_forward: true })
    }

    fn attr(&self, name: &str) -> Option<&Value> {
        self.bound.attrs.as_ref()?.get(name)
    }

    fn flag(&self, name: &str) -> bool {
        self.attr(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// An attribute under the same name, alone.
    fn only(&self, name: &str) -> Option<Attrs> {
        Some(Attrs::from([(name.to_string(), self.attr(name)?.clone())]))
    }
}

/// Which of a node's gradients were made, in its own order.
fn mask(outputs: Option<&Node>) -> Vec<bool> {
    match outputs {
        Some(Node::List(nodes)) => nodes.iter().map(|node| matches!(node, Node::Tensor(_))).collect(),
        Some(Node::Tensor(_)) => vec![true],
        _ => Vec::new(),
    }
}

/// The backward function of a forward call, applied to `grads`, with `outputs` as its result.
pub(super) fn complete<'a>(
    forward: &Forward<'a>,
    grads: &[Use<'a>],
    outputs: Option<&'a Node>,
) -> Option<Gradients<'a>> {
    let [grad] = grads else { return None };
    let made: Vec<&Recorded> = outputs?.tensors();
    let first = *made.first()?;
    let grad_as = |name| Source { name, tensor: grad.tensor, place: grad.place.clone(), from_forward: false };
    let gives = |function, inputs: Vec<Source<'a>>, attrs| Some(Gradients { function, inputs, attrs });
    let view = || gives("view", vec![grad_as("self")], Attrs::new());
    let same_elements = shape(first)?.iter().product::<usize>() == shape(grad.tensor)?.iter().product::<usize>();
    let mask = mask(outputs);
    let masked = || attrs(json!({"output_mask": mask}));
    let arithmetic = |function| {
        // What is a number in the forward is one here.
        let scalar = |name: &str| forward.attr(name).filter(|v| !v.is_null()).map(|v| (name.to_string(), v.clone()));
        let mut known = masked();
        known.extend(["self", "other", "alpha"].iter().filter_map(|name| scalar(name)));
        let inputs = [Some(grad_as("grad_output")), forward.input("self"), forward.input("other")];
        gives(function, inputs.into_iter().flatten().collect(), known)
    };
    match forward.bound.function? {
        "linear" | "matmul" if made.len() == 1 && is_collapsed(shape(first)?, shape(grad.tensor)?) => view(),
        "linear" => {
            let (input, weight) = (forward.input_as("input", "self")?, forward.input("weight")?);
            let bias = forward.input("bias");
            let own = [Some(&input), Some(&weight), bias.as_ref()].map(|source| source.and_then(|s| shape(s.tensor)));
            let fits = mask.len() <= 3 && made_fit(&mask, &made, &own);
            let whole = attrs(json!({"output_mask": padded(&mask, 3)}));
            if fits { gives("linear_backward", vec![input, grad_as("grad_output"), weight], whole) } else { None }
        }
        "matmul" => {
            let (a, b) = (forward.input("self")?, forward.input("other")?);
            let fits = mask.len() <= 2 && made_fit(&mask, &made, &[shape(a.tensor), shape(b.tensor)]);
            let whole = attrs(json!({"mask": padded(&mask, 2)}));
            if fits { gives("matmul_backward", vec![grad_as("grad"), a, b], whole) } else { None }
        }
        "softmax" | "log_softmax" if same_dtype(forward, first) => {
            let log = forward.bound.function == Some("log_softmax");
            let function = if log { "_log_softmax_backward_data" } else { "_softmax_backward_data" };
            gives(function, vec![grad_as("grad_output"), forward.result("output")?], forward.only("dim")?)
        }
        "gelu" => {
            gives("gelu_backward", vec![grad_as("grad_output"), forward.input("self")?], forward.only("approximate")?)
        }
        "silu" => gives("silu_backward", vec![grad_as("grad_output"), forward.input("self")?], Attrs::new()),
        "relu" => gives("relu_backward", vec![grad_as("grad_output"), forward.result("result")?], Attrs::new()),
        "tanh" => gives("tanh_backward", vec![grad_as("grad_output"), forward.result("output")?], Attrs::new()),
        "sigmoid" => gives("sigmoid_backward", vec![grad_as("grad_output"), forward.result("output")?], Attrs::new()),
        "layer_norm" => {
            let mut known = attrs(json!({"output_mask": padded(&mask, 3)}));
            for name in ["normalized_shape", "eps"] {
                known.insert(name.into(), forward.attr(name)?.clone());
            }
            let inputs = [Some(grad_as("grad_out")), forward.input("input"), forward.input("weight")];
            gives("layer_norm_backward", inputs.into_iter().flatten().collect(), known)
        }
        "embedding" if !forward.flag("scale_grad_by_freq") && !forward.flag("sparse") => {
            let mut known = forward.only("padding_idx")?;
            known.insert("num_weights".into(), json!(shape(forward.input("weight")?.tensor)?.first()?));
            gives("embedding_dense_backward", vec![grad_as("grad_output"), forward.input("indices")?], known)
        }
        "add" => arithmetic("add_backward"),
        "sub" => arithmetic("sub_backward"),
        "mul" => arithmetic("mul_backward"),
        "div" if forward.attr("rounding_mode").is_none_or(Value::is_null) => arithmetic("div_backward"),
        "sum" => {
            // A sum over everything, or one that kept its axes, is spread over what it summed.
            let kept = shape(grad.tensor)?.is_empty() || forward.flag("keepdim");
            if kept { gives("expand", vec![grad_as("self")], Attrs::new()) } else { None }
        }
        "transpose" => {
            let mut known = forward.only("dim0")?;
            known.extend(forward.only("dim1")?);
            gives("transpose", vec![grad_as("self")], known)
        }
        "permute" => {
            let dims = inverse(forward.attr("dims")?, shape(first)?.len())?;
            gives("permute", vec![grad_as("self")], attrs(json!({"dims": dims})))
        }
        "masked_fill" => {
            let known = attrs(json!({"value": 0}));
            gives("masked_fill", vec![grad_as("self"), forward.input("mask")?], known)
        }
        "to" | "float" | "half" | "bfloat16" | "double" if made.len() == 1 && same_elements => {
            gives("to", vec![grad_as("self")], Attrs::new())
        }
        "dropout" => {
            let drops = forward.flag("training") && forward.attr("p").and_then(Value::as_f64) != Some(0.0);
            if drops { None } else { view() }
        }
        "view" | "reshape" | "view_as" | "flatten" | "unflatten" | "squeeze" | "unsqueeze" | "contiguous" | "clone"
            if made.len() == 1 && same_elements =>
        {
            view()
        }
        _ => None,
    }
}

/// `[B.., M, N]` with all leading axes in one (`[B·M, N]`), or all but the last two (`[B.., M, N]` as `[B, M, N]`).
fn is_collapsed(made: &[usize], grad: &[usize]) -> bool {
    let leads = |kept: usize| {
        let lead = grad.len().checked_sub(kept).filter(|lead| *lead > 1)?;
        let (head, tail) = grad.split_at_checked(lead)?;
        Some(made.split_first().is_some_and(|(first, rest)| *first == head.iter().product::<usize>() && rest == tail))
    };
    leads(1) == Some(true) || leads(2) == Some(true)
}

/// Whether each gradient that was made has the shape of what it is the gradient of.
fn made_fit(mask: &[bool], made: &[&Recorded], own: &[Option<&[usize]>]) -> bool {
    let asked = mask.iter().zip(own).filter(|(asked, _)| **asked).map(|(_, own)| *own);
    made.iter().map(|made| shape(made)).eq(asked)
}

fn padded(mask: &[bool], len: usize) -> Vec<bool> {
    mask.iter().copied().chain(std::iter::repeat(false)).take(len).collect()
}

/// The gradient of a softmax that converted its input first is converted back.
fn same_dtype(forward: &Forward<'_>, first: &Recorded) -> bool {
    forward.outputs.first().is_some_and(|output| output.tensor.dtype == first.dtype)
}

/// The permutation that undoes `dims`.
fn inverse(dims: &Value, rank: usize) -> Option<Vec<usize>> {
    let dims = dims.as_array()?;
    let mut back = vec![None; rank];
    for (at, dim) in dims.iter().enumerate() {
        let dim = dim.as_i64()?;
        let dim = if dim < 0 { dim + i64::try_from(rank).ok()? } else { dim };
        *back.get_mut(usize::try_from(dim).ok()?)? = Some(at);
    }
    back.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::arguments::{bind, unnamed};
    use super::super::signatures::{Dialect, signatures};
    use super::*;

    fn tensor(shape: &[usize]) -> Value {
        json!({"type": "torch.Tensor", "dtype": "torch.float32", "shape": shape})
    }

    fn node(value: &Value) -> Node {
        serde_json::from_str(&value.to_string()).unwrap()
    }

    /// The completed call in words.
    fn said(api: &str, args: Value, result: &[usize], grads: Value) -> Option<String> {
        let (args, result, grad, made) =
            (node(&args), node(&json!([tensor(result)])), node(&json!([tensor(result)])), node(&grads));
        let forward = Forward {
            bound: bind(signatures(Dialect::Torch, "Tensor", api), Some(&args), None),
            outputs: unnamed(&[("output", Some(&result))]),
        };
        let grads = unnamed(&[("input", Some(&grad))]);
        let found = complete(&forward, &grads, Some(&made))?;
        let inputs: Vec<&str> = found.inputs.iter().map(|input| input.name).collect();
        Some(format!("{}({}) {}", found.function, inputs.join(", "), serde_json::to_string(&found.attrs).unwrap()))
    }

    #[test]
    fn each_node_is_what_it_hands_on() {
        let linear = || json!([tensor(&[2, 5, 4]), tensor(&[3, 4]), tensor(&[3])]);
        let view = Some("view(self) {}".to_string());
        assert_eq!(said("linear", linear(), &[2, 5, 3], json!([tensor(&[10, 3])])), view);
        assert_eq!(
            said("linear", linear(), &[2, 5, 3], json!([tensor(&[2, 5, 4]), null, tensor(&[3])])).as_deref(),
            Some(r#"linear_backward(self, grad_output, weight) {"output_mask":[true,false,true]}"#)
        );
        assert_eq!(said("linear", linear(), &[2, 5, 3], json!([tensor(&[9])])), None);
        let product = || json!([tensor(&[2, 4, 5, 6]), tensor(&[2, 4, 6, 7])]);
        assert_eq!(said("matmul", product(), &[2, 4, 5, 7], json!([tensor(&[8, 5, 7])])), view);
        assert_eq!(
            said("matmul", product(), &[2, 4, 5, 7], json!([tensor(&[2, 4, 5, 6]), null])).as_deref(),
            Some(r#"matmul_backward(grad, self, other) {"mask":[true,false]}"#)
        );
        assert_eq!(
            said("__mul__", json!([tensor(&[2]), {"type": "float", "value": 0.5}]), &[2], json!([tensor(&[2]), null]))
                .as_deref(),
            Some(r#"mul_backward(grad_output, self) {"other":0.5,"output_mask":[true,false]}"#)
        );
        assert_eq!(
            said("permute", json!([tensor(&[2, 3, 4]), [1, -1, 0]]), &[3, 4, 2], json!([tensor(&[2, 3, 4])]))
                .as_deref(),
            Some(r#"permute(self) {"dims":[2,0,1]}"#)
        );
        assert_eq!(
            said("sum", json!([tensor(&[2, 3])]), &[], json!([tensor(&[2, 3])])).as_deref(),
            Some("expand(self) {}")
        );
        assert_eq!(said("unheard_of", json!([tensor(&[2])]), &[2], json!([tensor(&[2])])), None);
    }
}
