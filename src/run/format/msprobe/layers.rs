//! From the entries of `dump.json` to layers: what each call was, what it read and wrote.
//!
//! In go entries in execution order with what stands around them, out come [`Draft`]s whose tensors have no ids
//! yet. Each entry gives one; parameters and inputs of the model come first, as layers of their own.

use std::collections::{HashMap, HashSet};

use serde_json::json;

use super::arguments::{Bound, Use, bind, unnamed};
use super::backward::{Forward, complete};
use super::dump::{Dump, Entry};
use super::key::{self, Key};
use super::node::{Node, Recorded};
use super::precision::Precision;
use super::signatures::{Dialect, signatures};
use super::surroundings::Surroundings;
use crate::run::assemble::RecordedLayer;
use crate::run::{Attrs, LayerKind, Pass};

/// A layer before its tensors have ids.
#[derive(Debug, Default)]
pub(super) struct Draft<'a> {
    pub(super) layer: RecordedLayer,
    /// Its key, where it was recorded as a call.
    pub(super) key: Option<&'a str>,
    pub(super) inputs: Vec<Slot<'a>>,
    pub(super) outputs: Vec<Slot<'a>>,
}

/// A tensor of a draft, and where it was recorded (`Torch.matmul.0.forward.input.1`).
#[derive(Debug, Clone)]
pub(super) struct Slot<'a> {
    pub(super) place: String,
    pub(super) tensor: &'a Recorded,
}

fn slots<'a>(key: &str, uses: &[Use<'a>]) -> Vec<Slot<'a>> {
    uses.iter().map(|used| Slot { place: format!("{key}.{}", used.place), tensor: used.tensor }).collect()
}

/// Names of the tensors, where all have one.
fn names(uses: &[Use<'_>]) -> Option<Vec<String>> {
    uses.iter().map(|used| used.name.clone()).collect::<Option<Vec<_>>>().filter(|names| !names.is_empty())
}

/// The dump, with what is asked of it again and again.
pub(super) struct Reading<'a> {
    dump: &'a Dump,
    around: &'a Surroundings,
    dialect: Dialect,
    pub(super) precision: Precision<'a>,
    by_key: HashMap<&'a str, &'a Entry>,
    /// Operators in a module, by the module's key.
    held: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(dump: &'a Dump, around: &'a Surroundings) -> Self {
        let by_key = dump.entries.iter().map(|entry| (entry.key.as_str(), entry)).collect();
        let mut held: HashMap<&str, Vec<&str>> = HashMap::new();
        for entry in &dump.entries {
            if let Some(parent) = around.parent(&entry.key) {
                held.entry(parent).or_default().push(entry.key.as_str());
            }
        }
        let dialect = match dump.setting("framework") {
            Some("mindspore") => Dialect::MindSpore,
            _ => Dialect::Torch,
        };
        let precision = Precision::of(dump, around, dialect);
        Self { dump, around, dialect, precision, by_key, held }
    }

    /// The key of the module that holds this call.
    pub(super) fn parent(&self, key: &str) -> Option<&str> {
        self.around.parent(key)
    }

    /// What the call of this key was given; nothing where it was not recorded.
    pub(super) fn arguments_at(&self, key: &str) -> Vec<Slot<'a>> {
        self.by_key.get(key).map(|entry| self.arguments_of(entry)).unwrap_or_default()
    }

    /// MindSpore's `mint` has PyTorch's signatures.
    fn dialect(&self, key: &Key<'_>) -> Dialect {
        if key.family.starts_with("Mint") { Dialect::Torch } else { self.dialect }
    }

    /// All layers, in execution order.
    pub(super) fn layers(&self, first_inputs: &HashSet<String>) -> Vec<Draft<'a>> {
        let mut drafts = self.parameters();
        drafts.extend(self.inputs(first_inputs));
        for (position, entry) in (1u64..).zip(&self.dump.entries) {
            if let Some(mut draft) = self.draft(entry) {
                draft.layer.line = position;
                draft.layer.name.clone_from(&entry.key);
                draft.key = Some(&entry.key);
                draft.layer.source = self.around.source(&entry.key).map(str::to_string);
                drafts.push(draft);
            }
        }
        drafts
    }

    fn draft(&self, entry: &'a Entry) -> Option<Draft<'a>> {
        let key = key::parse(&entry.key);
        let mut draft = match (key.parameter_gradients, key.kind, key.pass) {
            (true, ..) => self.parameter_gradients(entry, &key),
            (_, LayerKind::Module, _) => module(entry),
            (_, LayerKind::Operator, Pass::Backward) => self.backward(entry),
            (_, LayerKind::Operator, _) => self.operator(entry, &key),
        };
        // A call of which nothing but its name was recorded says nothing.
        if draft.inputs.is_empty() && draft.outputs.is_empty() && entry.parts.is_empty() {
            return None;
        }
        if draft.layer.op_name.is_empty() {
            draft.layer.op_name = match key.pass {
                Pass::Backward => format!("{}_backward", key.name),
                _ => key.name.to_string(),
            };
        }
        draft.layer.compute = self.precision.lowered(&forward_key(entry, &key));
        draft.layer.pass = self.pass(entry, &key);
        draft.layer.module = self.module(entry, &key);
        Some(draft)
    }

    /// What runs inside the optimizer's step is its pass.
    fn pass(&self, entry: &Entry, key: &Key<'_>) -> Pass {
        match self.around.parent(&entry.key) {
            Some("optimizer" | "clip_grad") => Pass::Optimizer,
            _ => key.pass,
        }
    }

    /// Path of the enclosing module.
    fn module(&self, entry: &Entry, key: &Key<'_>) -> Option<String> {
        let parent = self.around.parent(&entry.key).map(|parent| key::parse(parent).path).unwrap_or(key.path);
        Some(parent.to_string()).filter(|path| !path.is_empty())
    }

    fn bound(&self, entry: &'a Entry, key: &Key<'_>) -> Bound<'a> {
        let (args, kwargs) = arguments(entry);
        bind(signatures(self.dialect(key), key.family, key.name), args, kwargs)
    }

    fn operator(&self, entry: &'a Entry, key: &Key<'_>) -> Draft<'a> {
        let mut bound = self.bound(entry, key);
        let outputs = unnamed(&[("output", entry.part(&["output"]))]);
        if key.is_in_place() && overwritten(&bound, &outputs) {
            // Early versions record arguments after the call: what was overwritten is not known.
            bound.tensors.remove(0);
        }
        let schema = bound.function.filter(|function| *function != key.name).map(str::to_string);
        Draft {
            layer: RecordedLayer {
                input_names: names(&bound.tensors),
                attrs: bound.attrs,
                schema,
                ..RecordedLayer::default()
            },
            inputs: slots(&entry.key, &bound.tensors),
            outputs: slots(&entry.key, &outputs),
            ..Draft::default()
        }
    }

    fn backward(&self, entry: &'a Entry) -> Draft<'a> {
        let (args, kwargs) = arguments(entry);
        let grads = unnamed(&[("input", args), ("kwargs", kwargs)]);
        let made = entry.part(&["output"]);
        let forward_key = Key::forward_of(&entry.key);
        let forward = forward_key.as_deref().and_then(|key| self.by_key.get(key)).copied();
        let completed = forward.and_then(|forward| {
            let key = key::parse(&forward.key);
            let outputs = unnamed(&[("output", forward.part(&["output"]))]);
            complete(&Forward { bound: self.bound(forward, &key), outputs }, &grads, made)
        });
        let outputs = slots(&entry.key, &unnamed(&[("output", made)]));
        let Some(completed) = completed else {
            return Draft { inputs: slots(&entry.key, &grads), outputs, ..Draft::default() };
        };
        let of_forward = forward_key.unwrap_or_default();
        let key = |from_forward| if from_forward { of_forward.as_str() } else { entry.key.as_str() };
        let slot = |s: &super::backward::Source<'a>| {
            let place = format!("{}.{}", key(s.from_forward), s.place);
            Slot { place, tensor: s.tensor }
        };
        Draft {
            layer: RecordedLayer {
                op_name: completed.function.to_string(),
                input_names: Some(completed.inputs.iter().map(|input| input.name.to_string()).collect()),
                attrs: Some(completed.attrs),
                ..RecordedLayer::default()
            },
            inputs: completed.inputs.iter().map(slot).collect(),
            outputs,
            ..Draft::default()
        }
    }

    /// Gradients of a module's parameters: of a linear layer that ran once a call that can be recomputed.
    fn parameter_gradients(&self, entry: &'a Entry, key: &Key<'_>) -> Draft<'a> {
        let rank = |name: &str| (!matches!(name, "weight"), name != "bias", name.to_string());
        let mut parts: Vec<&(String, Node)> = entry.parts.iter().collect();
        parts.sort_by_key(|(name, _)| rank(name));
        let mut outputs = Vec::new();
        for (name, node) in &parts {
            for tensor in node.tensors() {
                outputs.push(Slot { place: format!("{}.{name}", entry.key), tensor });
            }
        }
        let mut draft = Draft { outputs, ..Draft::default() };
        draft.layer.op_name = format!("{}_parameters_grad", key.name);
        draft.layer.kind = LayerKind::Module;
        if let Some((inputs, attrs)) = self.linear_gradients(key, &parts) {
            draft.layer.kind = LayerKind::Operator;
            draft.layer.op_name = "linear_backward".into();
            draft.layer.input_names = Some(vec!["self".into(), "grad_output".into(), "weight".into()]);
            draft.layer.attrs = Some(attrs);
            draft.inputs = inputs;
        }
        draft
    }

    /// What the gradients of a linear layer's weight and bias follow from.
    fn linear_gradients(&self, key: &Key<'_>, parts: &[&(String, Node)]) -> Option<(Vec<Slot<'a>>, Attrs)> {
        let again = |call: u32| format!("{}.{}.{}.forward.{call}", key.family, key.path, key.name);
        // Gradients of several calls add up.
        if key.call.unwrap_or(0) != 0 || self.by_key.contains_key(again(1).as_str()) {
            return None;
        }
        let module = again(0);
        let linear = |key: &&&str| {
            let parsed = key::parse(key);
            parsed.name == "linear" && parsed.pass == Pass::Forward
        };
        let mut calls = self.held.get(module.as_str())?.iter().filter(linear);
        let (Some(forward_key), None) = (calls.next(), calls.next()) else { return None };
        let forward = self.by_key.get(forward_key)?;
        let backward_key = forward_key.replace(".forward", ".backward");
        let backward = self.by_key.get(backward_key.as_str())?;
        let bound = self.bound(forward, &key::parse(forward_key));
        let argument = |name: &str| {
            let found = bound.tensors.iter().find(|t| t.name.as_deref() == Some(name))?;
            Some(Slot { place: format!("{forward_key}.{}", found.place), tensor: found.tensor })
        };
        let grads = unnamed(&[("input", arguments(backward).0)]);
        let [grad] = grads.as_slice() else { return None };
        let grad = Slot { place: format!("{backward_key}.{}", grad.place), tensor: grad.tensor };
        let given = |name: &str| parts.iter().any(|(part, _)| part == name);
        if parts.iter().any(|(name, _)| name != "weight" && name != "bias") {
            return None;
        }
        let attrs = Attrs::from([("output_mask".to_string(), json!([false, given("weight"), given("bias")]))]);
        Some((vec![argument("input")?, grad, argument("weight")?], attrs))
    }

    /// A layer for each parameter that a module recorded.
    fn parameters(&self) -> Vec<Draft<'a>> {
        let mut seen = HashSet::new();
        let mut drafts = Vec::new();
        for (position, entry) in (1u64..).zip(&self.dump.entries) {
            let key = key::parse(&entry.key);
            let Some(Node::Map(parameters)) = entry.part(&["parameters"]) else { continue };
            for (name, node) in parameters {
                let path = if key.path.is_empty() { name.clone() } else { format!("{}.{name}", key.path) };
                let tensors = node.tensors();
                let [tensor] = tensors.as_slice() else { continue };
                if !seen.insert(path.clone()) {
                    continue;
                }
                let place = format!("{}.parameters.{name}", entry.key);
                let layer = RecordedLayer {
                    line: position,
                    name: path,
                    op_name: "param".into(),
                    module: Some(key.path.to_string()).filter(|path| !path.is_empty()),
                    ..RecordedLayer::default()
                };
                drafts.push(Draft { layer, outputs: vec![Slot { place, tensor }], ..Draft::default() });
            }
        }
        drafts
    }

    /// The outermost module that ran first, whose arguments are the model's inputs.
    pub(super) fn first_module(&self) -> Option<(usize, &'a Entry)> {
        let outermost = |entry: &&Entry| {
            let key = key::parse(&entry.key);
            key.kind == LayerKind::Module && key.pass == Pass::Forward && self.around.is_outermost(&entry.key)
        };
        let at = self.dump.entries.iter().position(|entry| outermost(&entry))?;
        Some((at, self.dump.entries.get(at)?))
    }

    /// Places of the first module's arguments that no call before it wrote; `same` says which contents are one.
    pub(super) fn model_inputs<C: Eq + std::hash::Hash>(
        &self,
        content: &dyn Fn(&Recorded) -> Option<C>,
    ) -> HashSet<String> {
        let Some((at, module)) = self.first_module() else { return HashSet::new() };
        let earlier = self.dump.entries.iter().take(at).filter(|e| !self.around.is_within(&e.key, &module.key));
        let written: HashSet<C> =
            earlier.filter_map(|entry| entry.part(&["output"])).flat_map(Node::tensors).filter_map(content).collect();
        let given = self.arguments_of(module).into_iter();
        given
            .filter(|slot| content(slot.tensor).is_some_and(|c| !written.contains(&c)))
            .map(|slot| slot.place)
            .collect()
    }

    fn arguments_of(&self, module: &'a Entry) -> Vec<Slot<'a>> {
        let (args, kwargs) = arguments(module);
        slots(&module.key, &unnamed(&[("input", args), ("kwargs", kwargs)]))
    }

    /// A layer for each input of the model.
    fn inputs(&self, places: &HashSet<String>) -> Vec<Draft<'a>> {
        let Some((at, module)) = self.first_module() else { return Vec::new() };
        let given = self.arguments_of(module).into_iter().filter(|slot| places.contains(&slot.place));
        let draft = |slot: Slot<'a>| {
            let name = slot.place.strip_prefix(module.key.as_str()).unwrap_or(&slot.place);
            let name = name.strip_prefix(".kwargs").unwrap_or(name).trim_start_matches('.');
            let layer = RecordedLayer {
                line: u64::try_from(at).unwrap_or(u64::MAX).saturating_add(1),
                name: name.to_string(),
                op_name: "input".into(),
                ..RecordedLayer::default()
            };
            Draft { layer, outputs: vec![slot], ..Draft::default() }
        };
        given.map(draft).collect()
    }
}

/// The key of the forward call to which an entry belongs.
fn forward_key(entry: &Entry, key: &Key<'_>) -> String {
    if key.parameter_gradients {
        return format!("{}.{}.{}.forward.0", key.family, key.path, key.name);
    }
    Key::forward_of(&entry.key).unwrap_or_else(|| entry.key.clone())
}

/// Positional and keyword arguments; a backward call has gradients instead.
pub(super) fn arguments(entry: &Entry) -> (Option<&Node>, Option<&Node>) {
    (entry.part(&["input_args", "input"]), entry.part(&["input_kwargs", "kwargs"]))
}

/// A module: what went in, its parameters, what came out.
fn module(entry: &Entry) -> Draft<'_> {
    let (args, kwargs) = arguments(entry);
    let given = [("input", args), ("kwargs", kwargs), ("parameters", entry.part(&["parameters"]))];
    let outputs = unnamed(&[("output", entry.part(&["output"]))]);
    Draft {
        layer: RecordedLayer { kind: LayerKind::Module, ..RecordedLayer::default() },
        inputs: slots(&entry.key, &unnamed(&given)),
        outputs: slots(&entry.key, &outputs),
        ..Draft::default()
    }
}

/// Whether what was recorded as the first argument of an in-place call is what the call wrote: the arithmetic
/// of it changes what it is given.
fn overwritten(bound: &Bound<'_>, outputs: &[Use<'_>]) -> bool {
    let (Some(first), Some(output)) = (bound.tensors.first(), outputs.first()) else { return false };
    let changes =
        matches!(bound.function, Some("add" | "sub" | "mul" | "div" | "pow" | "addcmul" | "addcdiv" | "lerp"));
    let (a, b) = (first.tensor, output.tensor);
    let known = [a.max, a.min, a.mean, a.norm].iter().any(|value| value.is_some_and(|value| value != 0.0));
    changes && known && (a.max, a.min, a.mean, a.norm, &a.shape) == (b.max, b.min, b.mean, b.norm, &b.shape)
}
