//! Which rows of a layer are replayed where the whole is too large.
//!
//! In go a layer's recorded shapes, out comes whether all of it is replayed, some rows of its output,
//! or nothing, with the reason. Rows can be taken apart where each row of the output follows from the
//! same row of some inputs and from all of the others: products with a matrix, norms and softmax over
//! the last axis, elementwise functions. Chosen are the rows that differ most between the two runs,
//! and some that follow from their number, so that both sides and every repetition take the same.

use std::collections::BTreeSet;

use super::threshold::{REPLAY_ELEMENTS, REPLAY_PRODUCTS, ROWS_AT_RANDOM};
use crate::op::Reach;
use crate::run::{Layer, Run, TensorId};
use crate::tensor::Tensor;

/// How much of a layer is replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Extent {
    /// All of it.
    All,
    /// These rows (indices into all axes but the last, flattened), in rising order.
    Rows(Rows),
    /// Nothing, for this reason.
    TooLarge(String),
}

/// Rows of a layer, and the inputs that are taken by rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rows {
    /// Chosen rows, in rising order.
    pub(super) chosen: Vec<usize>,
    /// Rows there are.
    pub(super) of: usize,
    /// By input slot: whether it is taken by rows; the others are taken whole.
    sliced: Vec<bool>,
}

/// What a replay may cost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Elements of inputs and outputs together.
    elements: u64,
    /// Products that are summed.
    products: u64,
}

/// The bounds that hold by default.
pub(super) const AUTO: Bounds = Bounds { elements: REPLAY_ELEMENTS, products: REPLAY_PRODUCTS };

/// What a replay of `layer` costs.
struct Cost {
    /// Elements of inputs and outputs.
    elements: u64,
    /// Terms summed for each element of the output.
    terms: u64,
    /// Elements of the first output.
    output: u64,
}

impl Cost {
    fn fits(&self, bounds: Bounds) -> bool {
        self.elements <= bounds.elements && self.output.saturating_mul(self.terms) <= bounds.products
    }
}

/// How much of `layer` fits `bounds`. `differing` gives the rows of the first output that differ most
/// between the two runs; it is asked only where rows must be chosen.
pub(super) fn extent(run: &Run, layer: &Layer, bounds: Bounds, differing: impl FnOnce() -> Vec<usize>) -> Extent {
    let cost = cost(run, layer);
    if cost.fits(bounds) {
        return Extent::All;
    }
    let too_large = |why: &str| {
        let Cost { elements, terms, .. } = cost;
        Extent::TooLarge(format!("too large to replay by default ({elements} elements, {terms} terms each){why}"))
    };
    let Some(mut rows) = by_rows(run, layer) else { return too_large("") };
    rows.chosen = chosen(rows.of, differing());
    // What is not taken by rows is taken whole, so it may still be too much.
    let count = |slot: usize, id: TensorId| {
        let all = elements(run, id);
        if rows.sliced.get(slot) == Some(&true) { all / rows.of as u64 * rows.chosen.len() as u64 } else { all }
    };
    let read: u64 = layer.inputs.iter().enumerate().map(|(slot, &id)| count(slot, id)).sum();
    let output = cost.output / rows.of as u64 * rows.chosen.len() as u64;
    if (Cost { elements: read.saturating_add(output), output, ..cost }).fits(bounds) {
        Extent::Rows(rows)
    } else {
        too_large(", even by rows")
    }
}

fn cost(run: &Run, layer: &Layer) -> Cost {
    let shapes: Vec<Option<&[usize]>> = layer.inputs.iter().map(|&id| shape(run, id)).collect();
    let first = layer.outputs.first().copied();
    let terms = crate::op::reduction_length(
        layer.op,
        layer.input_names.as_deref(),
        &shapes,
        first.and_then(|id| shape(run, id)).unwrap_or(&[]),
        layer.attrs.as_ref(),
    );
    Cost {
        elements: layer.inputs.iter().chain(&layer.outputs).map(|&id| elements(run, id)).sum(),
        terms: terms as u64,
        output: first.map_or(0, |id| elements(run, id)),
    }
}

fn shape(run: &Run, id: TensorId) -> Option<&[usize]> {
    run.dtype_and_shape(id).map(|(_, shape)| shape)
}

fn elements(run: &Run, id: TensorId) -> u64 {
    shape(run, id).map_or(0, |shape| shape.iter().map(|&n| n as u64).product())
}

/// Which inputs of the layer are taken by rows; `None` where its rows are not independent, or that is
/// not known.
fn by_rows(run: &Run, layer: &Layer) -> Option<Rows> {
    let (_, leading) = shape(run, *layer.outputs.first()?)?.split_last()?;
    let of: usize = leading.iter().product();
    let leads = |id: TensorId| shape(run, id).is_some_and(|s| s.len() == leading.len() + 1 && s.starts_with(leading));
    if of < 2 || !layer.outputs.iter().all(|&id| leads(id)) {
        return None;
    }
    let shapes: Vec<Option<&[usize]>> = layer.inputs.iter().map(|&id| shape(run, id)).collect();
    // Vectors and scalars reach all rows alike.
    let flat = |slot: usize| shapes[slot].is_some_and(|s| s.len() <= 1);
    let slots = 0..layer.inputs.len();
    let sliced: Vec<bool> = match layer.op.reach() {
        Reach::Contraction => {
            let (first, second) = crate::op::operands(layer.input_names.as_deref(), &shapes)?;
            let fits = matches!(layer.op.name(), "linear" | "matmul") && shapes[second]?.len() == 2;
            let others = slots.clone().filter(|&slot| slot != first && slot != second);
            if !fits || !leads(layer.inputs[first]) || !others.into_iter().all(flat) {
                return None;
            }
            slots.map(|slot| slot == first).collect()
        }
        Reach::Elementwise => {
            let sliced: Vec<bool> = slots.clone().map(|slot| leads(layer.inputs[slot]) && !flat(slot)).collect();
            slots.clone().all(|slot| sliced[slot] || flat(slot)).then_some(sliced)?
        }
        Reach::Row => {
            let rank = leading.len() as i64 + 1;
            let over_last = match layer.op.name() {
                "layer_norm" | "rms_norm" => {
                    let extents = layer.attrs.as_ref().and_then(|attrs| attrs.get("normalized_shape"));
                    extents.is_none_or(|extents| extents.as_array().is_some_and(|extents| extents.len() == 1))
                }
                "softmax" | "log_softmax" => layer.attr_i64("dim").is_some_and(|dim| dim == -1 || dim == rank - 1),
                _ => false,
            };
            let sliced: Vec<bool> = slots.clone().map(|slot| leads(layer.inputs[slot]) && !flat(slot)).collect();
            (over_last && slots.clone().all(|slot| sliced[slot] || flat(slot))).then_some(sliced)?
        }
        Reach::Anywhere => return None,
    };
    sliced.contains(&true).then_some(Rows { chosen: Vec::new(), of, sliced })
}

/// The rows that differ most and some that follow from how many there are, which is the same on both sides
/// whatever they are called.
fn chosen(of: usize, differing: Vec<usize>) -> Vec<usize> {
    let mut rows: BTreeSet<usize> = differing.into_iter().filter(|&row| row < of).collect();
    for at in 0..ROWS_AT_RANDOM as u64 {
        let digest = blake3::hash(&[(of as u64).to_le_bytes(), at.to_le_bytes()].concat());
        let mut bytes = [0u8; 8];
        bytes.copy_from_slice(&digest.as_bytes()[..8]);
        rows.insert((u64::from_le_bytes(bytes) % of as u64) as usize);
    }
    rows.into_iter().collect()
}

impl Rows {
    /// Input `slot` as it is replayed.
    ///
    /// # Errors
    /// A message, where the tensor is not of the recorded shape.
    pub(super) fn input(&self, slot: usize, tensor: Tensor) -> Result<Tensor, String> {
        if self.sliced.get(slot) == Some(&true) { self.of(&tensor) } else { Ok(tensor) }
    }

    /// The chosen rows of a tensor, as a matrix.
    ///
    /// # Errors
    /// A message, where the tensor does not have these rows.
    pub(super) fn of(&self, tensor: &Tensor) -> Result<Tensor, String> {
        let width = tensor.shape().last().copied().unwrap_or(0);
        let row = tensor.bytes().len() / self.of;
        let mut bytes = Vec::with_capacity(row * self.chosen.len());
        for &at in &self.chosen {
            let part = tensor.bytes().get(at * row..(at + 1) * row);
            bytes.extend_from_slice(part.ok_or_else(|| format!("expected {} rows", self.of))?);
        }
        Tensor::new(tensor.dtype(), self.shape(width), bytes)
    }

    /// Shape of a tensor with rows of `width` elements.
    pub(super) fn shape(&self, width: usize) -> Vec<usize> {
        vec![self.chosen.len(), width]
    }

    /// The same rows of a mask over all elements.
    pub(super) fn mask(&self, mask: &[bool]) -> Vec<bool> {
        let width = mask.len() / self.of;
        self.chosen
            .iter()
            .flat_map(|&row| mask.get(row * width..(row + 1) * width).unwrap_or_default())
            .copied()
            .collect()
    }

    /// Flat index in the whole tensor of flat index `at` in the chosen rows of `width` elements.
    pub(super) fn whole_index(&self, at: u64, width: usize) -> u64 {
        let width = width.max(1) as u64;
        let row = usize::try_from(at / width).ok().and_then(|row| self.chosen.get(row)).copied().unwrap_or(0);
        row as u64 * width + at % width
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::judge::Replayed;
    use crate::judge::introduced::replay_within;
    use crate::run::LayerId;
    use crate::tensor::DType;

    const ROWS: usize = 1000;
    const WIDTH: usize = 4;

    /// `y = x @ w^T` over 1000 rows, of which row 700 is wrong, and its mean over the rows.
    fn run(dir: &Path) -> Run {
        let x: Vec<f32> = (0..ROWS * WIDTH).map(|at| (at % 7) as f32 - 3.0).collect();
        let w: Vec<f32> = (0..WIDTH * WIDTH).map(|at| (at % 5) as f32 - 2.0).collect();
        let mut y = Vec::new();
        for row in x.chunks(WIDTH) {
            y.extend(w.chunks(WIDTH).map(|w| row.iter().zip(w).map(|(x, w)| x * w).sum::<f32>()));
        }
        y[700 * WIDTH + 2] += 1.0;
        let m: Vec<f32> = (0..WIDTH).map(|c| y.iter().skip(c).step_by(WIDTH).sum::<f32>() / ROWS as f32).collect();
        let bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let tensors = [
            ("x", vec![2, 500, 4], bytes(&x)),
            ("w", vec![4, 4], bytes(&w)),
            ("y", vec![2, 500, 4], bytes(&y)),
            ("m", vec![4], bytes(&m)),
        ];
        let views = tensors.iter().map(|(name, shape, bytes)| {
            let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.clone(), bytes).unwrap();
            (*name, view)
        });
        let file = safetensors::serialize(views, None).unwrap();
        std::fs::write(dir.join("tensors.safetensors"), file).unwrap();
        std::fs::write(dir.join("run.json"), r#"{"format":"goldline.run/1","complete":true}"#).unwrap();
        let layers = r#"{"name":"fc","op":"linear","inputs":["x","w"],"input_names":["input","weight"],"outputs":["y"],"attrs":{}}
{"name":"mean","op":"mean","inputs":["y"],"input_names":["self"],"outputs":["m"],"attrs":{"dim":[0,1],"keepdim":false}}
"#;
        std::fs::write(dir.join("layers.jsonl"), layers).unwrap();
        Run::open(dir).unwrap()
    }

    const TIGHT: Bounds = Bounds { elements: 1_200, products: u64::MAX };

    #[test]
    fn a_layer_that_is_too_large_is_replayed_on_the_rows_that_differ() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path());
        let replay = |differing: Vec<usize>| {
            replay_within(&run, LayerId(0), Some(TIGHT), false, &|_, _| None, &|_| differing.clone()).unwrap()
        };
        let Replayed::Done(errors) = replay(vec![700]) else { panic!("it was not replayed") };
        let error = errors[0].as_ref().unwrap();
        assert!(error.is_out && error.why.ends_with("of 1000 rows)"), "{}", error.why);
        assert_eq!(error.element_at, 700 * WIDTH as u64 + 2, "the index counts in the whole tensor");
        let Replayed::Done(errors) = replay(vec![5]) else { panic!("it was not replayed") };
        assert!(!errors[0].as_ref().unwrap().is_out, "the wrong row is not among those that their number gives");
    }

    #[test]
    fn rows_that_depend_on_each_other_are_not_taken_apart() {
        let dir = tempfile::tempdir().unwrap();
        let run = run(dir.path());
        let reason = |id: u32, bounds: Bounds| match extent(&run, run.layer(LayerId(id)), bounds, Vec::new) {
            Extent::TooLarge(reason) => reason,
            other => panic!("{other:?}"),
        };
        let mean = reason(1, TIGHT);
        assert_eq!(mean, "too large to replay by default (4004 elements, 1000 terms each)");
        let by_rows = reason(0, Bounds { elements: 100, ..TIGHT });
        assert!(by_rows.ends_with("even by rows"), "{by_rows}");
        assert_eq!(extent(&run, run.layer(LayerId(1)), AUTO, Vec::new), Extent::All);
    }

    #[test]
    fn rows_of_a_tensor_and_of_a_mask_are_the_same() {
        let rows = Rows { chosen: vec![1, 3], of: 4, sliced: vec![true, false] };
        let tensor = Tensor::new(DType::U8, vec![2, 2, 2], (0..8).collect()).unwrap();
        assert_eq!(rows.of(&tensor).unwrap().bytes(), [2, 3, 6, 7]);
        assert_eq!(rows.input(1, tensor.clone()).unwrap(), tensor);
        let mask: Vec<bool> = (0..8).map(|at| at < 3).collect();
        assert_eq!(rows.mask(&mask), [true, false, false, false]);
        assert_eq!(rows.whole_index(3, 2), 7);
    }
}
