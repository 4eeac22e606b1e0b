//! From drafts to layers: tensors get their ids, and what no recorded call wrote gets a layer of its own.
//!
//! A view that was not recorded becomes a `view`. A tensor that comes from calls which were not recorded
//! becomes the output of a layer `unrecorded`, which reads what it can depend on: in the forward pass the
//! inputs of the module around it and what ran before it, in the backward pass the gradients that those
//! forward calls received which read the tensor. Of a single product that gradient can be recomputed.

use std::collections::{HashMap, HashSet};

use serde_json::json;

use super::edges::{Edges, Named};
use super::key::Key;
use super::layers::{Draft, Reading, Slot};
use super::payload::{self, Payloads};
use crate::run::assemble::RecordedLayer;
use crate::run::{Attrs, LayerKind, Pass};
use crate::tensor::{DType, element_count};

/// Arguments that are parameters wherever nothing wrote them.
const PARAMETERS: &[&str] = &["weight", "bias", "gamma", "beta", "running_mean", "running_var"];

/// Most modules around a call that are asked for their inputs.
const DEEPEST: usize = 64;

/// Most forward calls that read one tensor.
const MOST_READERS: usize = 256;

/// Layers in the making.
pub(super) struct Connecting<'a, 'p> {
    reading: &'p Reading<'a>,
    payloads: &'a Payloads,
    edges: Edges<'a>,
    layers: Vec<RecordedLayer>,
    /// Forward calls by key: where they stand in `layers`.
    forward: HashMap<String, usize>,
    /// Forward operators that read a tensor, by its id.
    readers: HashMap<String, Vec<usize>>,
    /// Gradients that the backward of a forward call received, by the forward's key.
    gradients: HashMap<String, Vec<String>>,
    /// What the last operator of each pass wrote.
    before: HashMap<Pass, Vec<String>>,
}

/// What is read by a layer that was not recorded, and how it computed.
#[derive(Default)]
struct Gap {
    inputs: Vec<String>,
    compute: Option<DType>,
    /// The call that it was, where it is known: operator, argument names, attributes.
    call: Option<(&'static str, Vec<&'static str>, Attrs)>,
}

impl<'a, 'p> Connecting<'a, 'p> {
    pub(super) fn new(reading: &'p Reading<'a>, payloads: &'a Payloads) -> Self {
        Self {
            reading,
            payloads,
            edges: Edges::new(payloads),
            layers: Vec::new(),
            forward: HashMap::new(),
            readers: HashMap::new(),
            gradients: HashMap::new(),
            before: HashMap::new(),
        }
    }

    /// All layers and the tensors that they name.
    pub(super) fn finish(self) -> (Vec<RecordedLayer>, Vec<Named<'a>>) {
        (self.layers, self.edges.named)
    }

    /// Adds a layer, with what has to stand before it.
    pub(super) fn add(&mut self, draft: Draft<'a>) {
        let Draft { mut layer, key, inputs, outputs } = draft;
        for (at, slot) in inputs.iter().enumerate() {
            let read = self.edges.read(&slot.place, slot.tensor);
            let name = layer.input_names.as_ref().and_then(|names| names.get(at)).map(String::as_str);
            if let Some(view_of) = read.view_of {
                let view = RecordedLayer {
                    name: format!("{}.input.{at}.view", layer.name),
                    op_name: "view".into(),
                    inputs: vec![view_of],
                    input_names: Some(vec!["self".into()]),
                    ..beside(&layer, &read.id)
                };
                self.push(view);
            } else if read.is_new && is_telling(slot) {
                self.fill(&layer, key, at, name, &read.id);
            }
            layer.inputs.push(read.id);
        }
        for Slot { place, tensor } in &outputs {
            let id = self.edges.write(place, tensor, layer.kind, &layer.inputs);
            layer.outputs.push(id);
            let payload = tensor.data_name.as_deref().and_then(|name| self.payloads.get(name));
            if let Some((dtype, payload)) = tensor.dtype.zip(payload)
                && payload::is_widened(dtype, payload.stored.dtype)
            {
                layer.compute = layer.compute.or(Some(dtype));
            }
        }
        if let Some(key) = key {
            match layer.pass {
                Pass::Backward => {
                    if let Some(forward) = Key::forward_of(key) {
                        // What a completed call reads of its forward is no gradient.
                        let own = |slot: &Slot<'_>| slot.place.starts_with(key);
                        let received = inputs.iter().zip(&layer.inputs).filter(|(slot, _)| own(slot));
                        self.gradients.insert(forward, received.map(|(_, id)| id.clone()).collect());
                    }
                }
                _ => {
                    self.forward.insert(key.to_string(), self.layers.len());
                }
            }
        }
        self.push(layer);
    }

    fn push(&mut self, layer: RecordedLayer) {
        if layer.kind == LayerKind::Operator {
            if layer.pass == Pass::Forward {
                for id in &layer.inputs {
                    let readers = self.readers.entry(id.clone()).or_default();
                    if readers.len() < MOST_READERS {
                        readers.push(self.layers.len());
                    }
                }
            }
            if !layer.outputs.is_empty() && !matches!(layer.op_name.as_str(), "param" | "input") {
                self.before.insert(layer.pass, layer.outputs.clone());
            }
        }
        self.layers.push(layer);
    }

    /// A layer for the tensor `id`, which no recorded call wrote and `reader` reads.
    fn fill(&mut self, reader: &RecordedLayer, key: Option<&str>, at: usize, argument: Option<&str>, id: &str) {
        let Some(key) = key else { return };
        if reader.pass == Pass::Forward && argument.is_some_and(|name| PARAMETERS.contains(&name)) {
            let name = format!("{}.{}", reader.name, argument.unwrap_or_default());
            let parameter = RecordedLayer { name, op_name: "param".into(), ..beside(reader, id) };
            return self.push(parameter);
        }
        let mut gap = if reader.pass == Pass::Backward { self.gradient(key) } else { self.inside(key) };
        if gap.inputs.is_empty() {
            gap.inputs = self.before.get(&reader.pass).cloned().unwrap_or_default();
        }
        gap.inputs.retain(|input| input != id);
        if gap.call.is_none() {
            let mut seen = HashSet::new();
            gap.inputs.retain(|input| seen.insert(input.clone()));
        }
        // What follows from nothing that was recorded is given: no layer can say more of it.
        if gap.inputs.is_empty() {
            return;
        }
        let mut layer = RecordedLayer {
            name: format!("{}.input.{at}.unrecorded", reader.name),
            op_name: "unrecorded".into(),
            kind: LayerKind::Module,
            inputs: gap.inputs,
            compute: gap.compute,
            ..beside(reader, id)
        };
        if let Some((function, names, attrs)) = gap.call {
            layer.op_name = function.into();
            layer.kind = LayerKind::Operator;
            layer.input_names = Some(names.into_iter().map(str::to_string).collect());
            layer.attrs = Some(attrs);
        }
        self.push(layer);
    }

    /// What a tensor inside a module can depend on: the inputs of the nearest module that read something
    /// recorded, and what ran before.
    fn inside(&self, key: &str) -> Gap {
        let mut inputs = Vec::new();
        let mut at = self.reading.parent(key);
        for _ in 0..DEEPEST {
            let Some(module) = at.filter(|_| inputs.is_empty()) else { break };
            inputs.extend(self.reading.arguments_at(module).iter().filter_map(|slot| self.edges.known(slot.tensor)));
            at = self.reading.parent(module);
        }
        inputs.extend(self.before.get(&Pass::Forward).cloned().unwrap_or_default());
        Gap { inputs, ..Gap::default() }
    }

    /// What the gradient of a forward call's result depends on.
    fn gradient(&self, key: &str) -> Gap {
        let forward = Key::forward_of(key).and_then(|forward| self.forward.get(&forward).copied());
        let Some(result) = forward.and_then(|at| self.layers.get(at)?.outputs.first()) else { return Gap::default() };
        let mut gap = Gap::default();
        let mut uses = Vec::new();
        let mut queue: Vec<&String> = vec![result];
        let mut seen = HashSet::new();
        while let Some(id) = queue.pop() {
            for &reader in self.readers.get(id).into_iter().flatten() {
                let Some(layer) = self.layers.get(reader).filter(|_| seen.insert(reader)) else { continue };
                match self.gradients.get(&layer.name) {
                    Some(gradients) => {
                        gap.inputs.extend(gradients.iter().cloned());
                        gap.inputs.extend(layer.inputs.iter().filter(|input| *input != id).cloned());
                        gap.compute = gap.compute.or(layer.compute);
                        uses.push((layer, id));
                    }
                    // A view that was not recorded, or whose backward was not: the gradient passes it.
                    None if seen.len() < MOST_READERS => queue.extend(&layer.outputs),
                    None => {}
                }
            }
        }
        if let [(layer, id)] = uses.as_slice()
            && seen.len() == 1
            && let Some([grad]) = self.gradients.get(&layer.name).map(Vec::as_slice)
            && let Some((call, inputs)) = of_product(layer, id, grad)
        {
            (gap.call, gap.inputs) = (Some(call), inputs);
        }
        gap
    }
}

type Call = (&'static str, Vec<&'static str>, Attrs);

/// The backward call of a product for the one operand `id`, and what it reads.
fn of_product(layer: &RecordedLayer, id: &str, grad: &str) -> Option<(Call, Vec<String>)> {
    let argument = |name: &str| {
        let at = layer.input_names.as_ref()?.iter().position(|own| own == name)?;
        layer.inputs.get(at).cloned()
    };
    let function = layer.schema.as_deref().unwrap_or(&layer.op_name);
    match function {
        "linear" if argument("input")? == id && argument("weight")? != id => {
            let attrs = Attrs::from([("output_mask".to_string(), json!([true, false, false]))]);
            let call = ("linear_backward", vec!["self", "grad_output", "weight"], attrs);
            Some((call, vec![id.to_string(), grad.to_string(), argument("weight")?]))
        }
        "matmul" => {
            let (a, b) = (argument("self")?, argument("other")?);
            if (a == id) == (b == id) {
                return None;
            }
            let attrs = Attrs::from([("mask".to_string(), json!([a == id, b == id]))]);
            Some((("matmul_backward", vec!["grad", "self", "other"], attrs), vec![grad.to_string(), a, b]))
        }
        _ => None,
    }
}

/// A layer that stands before `reader` and writes `output`.
fn beside(reader: &RecordedLayer, output: &str) -> RecordedLayer {
    RecordedLayer {
        line: reader.line,
        pass: reader.pass,
        outputs: vec![output.to_string()],
        module: reader.module.clone(),
        ..RecordedLayer::default()
    }
}

/// Whether a tensor says anything by itself: a float of more than one element that are not all the same.
fn is_telling(slot: &Slot<'_>) -> bool {
    let tensor = slot.tensor;
    let float = tensor.dtype.is_some_and(|dtype| dtype.unit_roundoff().is_some());
    let several = tensor.shape.as_deref().and_then(element_count).is_some_and(|count| count > 1);
    let constant = tensor.max.is_some() && tensor.max == tensor.min;
    float && several && !constant
}
