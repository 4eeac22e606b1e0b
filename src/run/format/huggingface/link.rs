//! Edges of a debug tree: a module reads what an earlier one wrote if both tensors are equal.
//!
//! A tensor that nothing recorded wrote (a residual add between two modules) comes from a layer of its
//! own, named `BLOCK.before_MODULE` as the native recorder does, which reads what no module read before.

use std::collections::HashMap;
use std::path::PathBuf;

use super::super::load;
use super::tree::{Call, Slot};
use crate::error::Result;
use crate::op;
use crate::run::assemble::RecordedLayer;
use crate::run::{LayerKind, RecordedStats, Stored};
use crate::tensor::{DType, Shape};

/// Largest tensor that is read to find its edges, in bytes.
const LARGEST: u64 = 16 << 20;

/// Bytes that are read to find edges, all together: about a second.
const ALL: u64 = 1 << 30;

/// What is needed of a tree to assemble a run.
#[derive(Default)]
pub(super) struct Linked {
    pub(super) layers: Vec<RecordedLayer>,
    pub(super) stored: Vec<(String, Stored)>,
    pub(super) stats: Vec<(String, RecordedStats)>,
}

/// Content by which tensors are the same.
type Content = (DType, Shape, blake3::Hash);

struct Linker<'a> {
    places: &'a HashMap<String, Stored>,
    files: &'a [PathBuf],
    /// The tensor that was written last with this content.
    known: HashMap<Content, String>,
    /// Tensors that nothing has read yet, and those of the last layer.
    unread: Vec<String>,
    last: Vec<String>,
    read: u64,
    unlinked: u64,
    out: Linked,
}

/// Links `calls`, of which the tensors that lie in files lie at `places` in `files`.
///
/// # Errors
/// A tensor that cannot be read.
pub(super) fn link(
    calls: &[Call],
    places: &HashMap<String, Stored>,
    files: &[PathBuf],
    warnings: &mut Vec<String>,
) -> Result<Linked> {
    let mut linker = Linker {
        places,
        files,
        known: HashMap::new(),
        unread: Vec::new(),
        last: Vec::new(),
        read: 0,
        unlinked: 0,
        out: Linked::default(),
    };
    let mut counts: HashMap<&str, u64> = HashMap::new();
    for call in calls {
        let count = counts.entry(call.name.as_str()).or_default();
        let prefix = if *count == 0 { call.name.clone() } else { format!("{}#{count}", call.name) };
        *count += u64::from(!call.is_given && !call.is_whole);
        match (call.is_given, call.is_whole) {
            (true, _) => linker.given(call, &prefix)?,
            (_, true) => linker.whole(call, &prefix)?,
            _ => linker.module(call, &prefix)?,
        }
    }
    if linker.unlinked > 0 {
        let text = format!(
            "{} tensors above {LARGEST} bytes, or beyond the first {ALL} bytes of all, were not searched for edges",
            linker.unlinked
        );
        warnings.push(text);
    }
    Ok(linker.out)
}

impl<'a> Linker<'a> {
    fn given(&mut self, call: &Call, prefix: &str) -> Result<()> {
        for slot in &call.outputs {
            let name = if slot.key.is_empty() { "input" } else { &slot.key };
            let id = self.written(&format!("{prefix}:input"), slot)?;
            self.layer(name, "input", LayerKind::Operator, Vec::new(), vec![id]);
        }
        Ok(())
    }

    fn module(&mut self, call: &Call, prefix: &str) -> Result<()> {
        let mut inputs = Vec::new();
        for slot in &call.inputs {
            let Some(content) = self.content(slot)? else {
                continue;
            };
            let id = match content.and_then(|content| self.known.get(&content).cloned()) {
                Some(id) => id,
                None => {
                    let id = self.written(&format!("{prefix}:in"), slot)?;
                    // Positions and masks are not made of what modules computed.
                    let is_float = self.place(slot).is_some_and(|place| place.dtype.unit_roundoff().is_some());
                    let from = if is_float { self.loose_ends() } else { Vec::new() };
                    let (block, leaf) = call.name.rsplit_once('.').unwrap_or(("", &call.name));
                    let name =
                        if block.is_empty() { format!("before_{leaf}") } else { format!("{block}.before_{leaf}") };
                    self.layer(&name, op::UNRECORDED, LayerKind::Operator, from, vec![id.clone()]);
                    id
                }
            };
            inputs.push(id);
        }
        let outputs = self.all_written(call, prefix)?;
        self.layer(&call.name, op::UNRECORDED, LayerKind::Module, inputs, outputs);
        Ok(())
    }

    /// The model's own outputs, as far as no module wrote them.
    fn whole(&mut self, call: &Call, prefix: &str) -> Result<()> {
        let mut outputs = Vec::new();
        for slot in &call.outputs {
            let content = self.content(slot)?.flatten();
            if content.is_none_or(|content| !self.known.contains_key(&content)) {
                outputs.push(self.written(&format!("{prefix}:out"), slot)?);
            }
        }
        if !outputs.is_empty() {
            let from = self.loose_ends();
            self.layer(&call.name, op::UNRECORDED, LayerKind::Module, from, outputs);
        }
        Ok(())
    }

    fn all_written(&mut self, call: &Call, prefix: &str) -> Result<Vec<String>> {
        call.outputs.iter().map(|slot| self.written(&format!("{prefix}:out"), slot)).collect()
    }

    fn place(&self, slot: &Slot) -> Option<&'a Stored> {
        slot.file.as_ref().and_then(|file| self.places.get(file))
    }

    fn loose_ends(&self) -> Vec<String> {
        if self.unread.is_empty() { self.last.clone() } else { self.unread.clone() }
    }

    fn layer(&mut self, name: &str, op: &str, kind: LayerKind, inputs: Vec<String>, outputs: Vec<String>) {
        self.unread.retain(|id| !inputs.contains(id));
        self.unread.extend(outputs.iter().cloned());
        self.last.clone_from(&outputs);
        self.out.layers.push(RecordedLayer {
            line: self.out.layers.len() as u64 + 1,
            name: name.to_string(),
            op_name: op.to_string(),
            kind,
            inputs,
            outputs,
            ..RecordedLayer::default()
        });
    }

    /// Names a tensor that a layer writes, and keeps where it lies or what is known of it.
    fn written(&mut self, prefix: &str, slot: &Slot) -> Result<String> {
        let id = if slot.key.is_empty() { prefix.to_string() } else { format!("{prefix}.{}", slot.key) };
        if let Some(content) = self.content(slot)?.flatten() {
            self.known.insert(content, id.clone());
        }
        match self.place(slot) {
            Some(place) => self.out.stored.push((id.clone(), place.clone())),
            None => self.out.stats.extend(slot.stats.clone().map(|stats| (id.clone(), stats))),
        }
        Ok(id)
    }

    /// The content of a tensor: `None` for one that lies in no file, `Some(None)` for one too large to be
    /// read for this.
    fn content(&mut self, slot: &Slot) -> Result<Option<Option<Content>>> {
        let Some((place, path)) = self.place(slot).and_then(|place| Some((place, self.files.get(place.file)?))) else {
            return Ok(None);
        };
        if place.len > LARGEST || self.read.saturating_add(place.len) > ALL {
            self.unlinked += 1;
            return Ok(Some(None));
        }
        self.read += place.len;
        let tensor = load::tensor(path, &slot.key, place)?;
        Ok(Some(Some((place.dtype, place.shape.clone(), blake3::hash(tensor.bytes())))))
    }
}
