//! From what a format reader found to a [`Run`]: tensors get their ids, layers their calls, and the
//! same tensor name in outputs and inputs becomes an edge.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use super::{
    Attrs, Layer, LayerId, LayerKind, Pass, RecordedStats, Run, RunMeta, Stored, TensorId, TensorInfo, shared,
};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::tensor::{DType, element_count};

/// Most elements that a tensor can have which is not stored: 2^48, a thousand times what a machine holds.
const MOST_ELEMENTS: usize = 1 << 48;

/// A layer as a file names it, before ids are given.
#[derive(Debug, Default)]
pub(super) struct RecordedLayer {
    /// One-based line (or position) in the file that recorded it.
    pub(super) line: u64,
    pub(super) name: String,
    pub(super) op_name: String,
    pub(super) kind: LayerKind,
    pub(super) pass: Pass,
    /// `None`: as many as there were earlier layers of this name and pass.
    pub(super) call: Option<u32>,
    pub(super) inputs: Vec<String>,
    pub(super) input_names: Option<Vec<String>>,
    pub(super) outputs: Vec<String>,
    pub(super) attrs: Option<Attrs>,
    pub(super) schema: Option<String>,
    pub(super) module: Option<String>,
    pub(super) source: Option<String>,
    pub(super) compute: Option<DType>,
    pub(super) accumulate: Option<DType>,
    pub(super) device: Option<String>,
    pub(super) grad_of: Option<String>,
}

/// Everything a format reader found.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) path: PathBuf,
    pub(super) meta: RunMeta,
    /// The file that recorded the layers, for errors.
    pub(super) layers_file: PathBuf,
    pub(super) layers: Vec<RecordedLayer>,
    pub(super) files: Vec<PathBuf>,
    /// Each name once, `Stored::file` an index into `files`.
    pub(super) stored: Vec<(String, Stored)>,
    /// Each name once.
    pub(super) stats: Vec<(String, RecordedStats)>,
    pub(super) warnings: Vec<String>,
}

impl Parts {
    /// Puts the run together.
    ///
    /// # Errors
    /// A layer recorded twice (same name, pass and call); more layers or tensors than ids.
    pub(super) fn assemble(self) -> Result<Run> {
        let Self { path, meta, layers_file, layers, files, mut stored, stats, mut warnings } = self;
        let identities = identify(&layers, &layers_file)?;
        let mut table = Table::default();
        let mut assembled = Vec::with_capacity(layers.len());
        for (recorded, (call, shares_name)) in layers.into_iter().zip(identities) {
            let too_many = |_| Error::at(&layers_file, "more layers than can be numbered").line(recorded.line);
            let id = LayerId(u32::try_from(assembled.len()).map_err(too_many)?);
            let inputs = table.read(id, &recorded.inputs).map_err(|e| e.in_line(&layers_file, recorded.line))?;
            let outputs = table
                .written(id, recorded.kind, &inputs, &recorded.outputs)
                .map_err(|e| e.in_line(&layers_file, recorded.line))?;
            assembled.push(recorded.into_layer(id, call, shares_name, inputs, outputs));
        }
        // By name, so that the ids do not depend on how tensors were laid out over the files.
        stored.sort_by(|a, b| a.0.cmp(&b.0));
        let named = table.tensors.len();
        for (name, place) in stored {
            let id = table.id(&name).map_err(|e| e.in_line(&path, 0))?;
            table.tensors[id.0 as usize].stored = Some(place);
        }
        let unnamed = &table.tensors[named..];
        if let Some(first) = unnamed.first() {
            warnings.push(format!("{} stored tensors that no layer names, `{}` first", unnamed.len(), first.name));
        }
        let mut strangers = 0u64;
        let mut contradicting: Vec<String> = Vec::new();
        let mut endless: Vec<String> = Vec::new();
        for (name, mut recorded) in stats {
            // A shape that nothing stands behind is a file's word; no later product of extents overflows.
            if recorded.shape.as_ref().is_some_and(|shape| element_count(shape).is_none_or(|n| n > MOST_ELEMENTS)) {
                recorded.shape = None;
                endless.push(name.clone());
            }
            let Some(id) = table.ids.get(&name) else {
                strangers += 1;
                continue;
            };
            let tensor = &mut table.tensors[id.0 as usize];
            if tensor.stored.as_ref().is_some_and(|stored| contradicts(&recorded, stored)) {
                contradicting.push(name);
            }
            tensor.stats = Some(recorded);
        }
        if let Some(first) = endless.first() {
            warnings.push(format!(
                "statistics of {} tensors give a shape of more than 2^48 elements, `{first}` first: not taken",
                endless.len()
            ));
        }
        if let Some(first) = contradicting.first() {
            warnings.push(format!(
                "statistics of {} tensors give another dtype or shape than was stored, `{first}` first",
                contradicting.len()
            ));
        }
        warnings.extend(shared::resolve(&mut table.tensors, &table.ids));
        if strangers > 0 {
            warnings.push(format!("{strangers} lines of statistics about tensors that no layer names: left out"));
        }
        Ok(Run { path, meta, layers: assembled, tensors: table.tensors, files, warnings, joined: None })
    }
}

/// Whether statistics speak of another tensor than the stored one. Where only some rows were stored,
/// the shapes differ rightly.
fn contradicts(stats: &RecordedStats, stored: &Stored) -> bool {
    let dtype = stats.dtype.is_some_and(|dtype| dtype != stored.dtype);
    dtype || (stats.slice.is_none() && stats.shape.as_ref().is_some_and(|shape| *shape != stored.shape))
}

/// The call of each layer, and whether another layer of the same pass shares its name.
fn identify(layers: &[RecordedLayer], file: &std::path::Path) -> Result<Vec<(u32, bool)>> {
    #[derive(Default)]
    struct Seen {
        count: u32,
        lines: HashMap<u32, u64>,
    }
    let mut seen: HashMap<(&str, Pass), Seen> = HashMap::new();
    let mut calls = Vec::with_capacity(layers.len());
    for layer in layers {
        let earlier = seen.entry((layer.name.as_str(), layer.pass)).or_default();
        let call = layer.call.unwrap_or(earlier.count);
        if let Some(line) = earlier.lines.insert(call, layer.line) {
            let text = format!(
                "layer `{}` ({}, call {call}) was already recorded in line {line}: expected each name, pass and call once",
                layer.name, layer.pass
            );
            return Err(Error::at(file, text).line(layer.line));
        }
        earlier.count = earlier.count.saturating_add(1);
        calls.push(call);
    }
    let shares = |layer: &RecordedLayer| seen.get(&(layer.name.as_str(), layer.pass)).is_some_and(|s| s.count > 1);
    Ok(layers.iter().zip(calls).map(|(layer, call)| (call, shares(layer))).collect())
}

impl RecordedLayer {
    fn into_layer(
        self,
        id: LayerId,
        call: u32,
        shares_name: bool,
        inputs: Vec<TensorId>,
        outputs: Vec<TensorId>,
    ) -> Layer {
        let named = Op::named(&self.op_name);
        let op = match &self.schema {
            Some(schema) if named == Op::UNKNOWN => Op::named(schema),
            _ => named,
        };
        Layer {
            id,
            name: self.name,
            shares_name,
            op_name: self.op_name,
            op,
            kind: self.kind,
            pass: self.pass,
            call,
            inputs,
            input_names: self.input_names,
            outputs,
            attrs: self.attrs,
            schema: self.schema,
            module: self.module,
            source: self.source,
            compute: self.compute,
            accumulate: self.accumulate,
            device: self.device,
            grad_of: self.grad_of,
        }
    }
}

/// Tensors in order of first appearance.
#[derive(Default)]
struct Table {
    tensors: Vec<TensorInfo>,
    ids: HashMap<String, TensorId>,
    /// Tensors of which a module is the producer.
    made_by_module: HashSet<TensorId>,
}

/// There are more tensors than ids.
struct TooMany;

impl TooMany {
    fn in_line(&self, file: &std::path::Path, line: u64) -> Error {
        let error = Error::at(file, "more tensors than can be numbered");
        if line == 0 { error } else { error.line(line) }
    }
}

impl Table {
    fn id(&mut self, name: &str) -> Result<TensorId, TooMany> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        let id = TensorId(u32::try_from(self.tensors.len()).map_err(|_| TooMany)?);
        self.ids.insert(name.to_string(), id);
        let name = name.to_string();
        self.tensors.push(TensorInfo { name, stored: None, stats: None, producer: None, consumers: Vec::new() });
        Ok(id)
    }

    fn read(&mut self, layer: LayerId, names: &[String]) -> Result<Vec<TensorId>, TooMany> {
        let mut ids = Vec::with_capacity(names.len());
        for (slot, name) in names.iter().enumerate() {
            let id = self.id(name)?;
            self.tensors[id.0 as usize].consumers.push((layer, slot));
            ids.push(id);
        }
        Ok(ids)
    }

    fn written(
        &mut self,
        layer: LayerId,
        kind: LayerKind,
        inputs: &[TensorId],
        names: &[String],
    ) -> Result<Vec<TensorId>, TooMany> {
        let mut ids = Vec::with_capacity(names.len());
        for (slot, name) in names.iter().enumerate() {
            let id = self.id(name)?;
            let producer = &mut self.tensors[id.0 as usize].producer;
            let takes = match (*producer, kind) {
                (None, _) => true,
                // A tensor listed twice by one layer is that layer's first of the two outputs.
                (Some((earlier, _)), _) if earlier == layer => false,
                // A module around the layer that made a tensor hands it on, and so does an operator that reads
                // what a module made.
                (Some(_), LayerKind::Module) => false,
                (Some(_), LayerKind::Operator) => !(self.made_by_module.contains(&id) && inputs.contains(&id)),
            };
            if takes {
                *producer = Some((layer, slot));
                if kind == LayerKind::Module {
                    self.made_by_module.insert(id)
                } else {
                    self.made_by_module.remove(&id)
                };
            }
            ids.push(id);
        }
        Ok(ids)
    }
}
