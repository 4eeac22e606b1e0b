//! Questions about the data flow of a run: what a layer's inputs depend on, and where the flow ends.

use super::{LayerId, LayerKind, Run, TensorId};

impl Run {
    /// The layers whose outputs reach the inputs of `layer`, in execution order, without itself.
    ///
    /// A tensor that several layers wrote (in-place operators, a module around its last operator)
    /// depends on each of them that ran before its reader.
    pub fn ancestors(&self, layer: LayerId) -> Vec<LayerId> {
        // Edges lead forward in execution order alone, so that one sweep backwards finds them all
        // and no recording, however wrong, makes it loop.
        let Some(start) = self.layers.get(layer.0 as usize) else { return Vec::new() };
        let mut needed = vec![false; self.tensors.len()];
        let need = |ids: &[TensorId], needed: &mut Vec<bool>| {
            for id in ids {
                needed[id.0 as usize] = true;
            }
        };
        need(&start.inputs, &mut needed);
        let mut found = Vec::new();
        for earlier in self.layers[..layer.0 as usize].iter().rev() {
            if earlier.outputs.iter().any(|id| needed[id.0 as usize]) {
                need(&earlier.inputs, &mut needed);
                found.push(earlier.id);
            }
        }
        found.reverse();
        found
    }

    /// Whether `layer` is a module that hands `output` on: what made it was recorded inside.
    pub fn hands_on(&self, layer: LayerId, output: TensorId) -> bool {
        let made_by = self.tensor(output).producer.map(|(producer, _)| producer);
        self.layer(layer).kind == LayerKind::Module && made_by.is_some_and(|producer| producer != layer)
    }

    /// The tensors at which the flow ends, ascending: written by a layer that is no source, and read
    /// by no layer after the last operator that wrote them. By-products of an operator (saved
    /// statistics) are among them; [`crate::op::Op::is_auxiliary`] tells them.
    pub fn terminal_tensors(&self) -> Vec<TensorId> {
        // The operator counts rather than a module around it, for the module's line comes after
        // operators inside it that read the same tensor.
        let mut writers: Vec<Option<&super::Layer>> = vec![None; self.tensors.len()];
        for layer in &self.layers {
            for id in &layer.outputs {
                let writer = &mut writers[id.0 as usize];
                let keep = layer.kind == LayerKind::Module && writer.is_some_and(|w| w.kind == LayerKind::Operator);
                if !keep {
                    *writer = Some(layer);
                }
            }
        }
        let ends = |(id, writer): (TensorId, &super::Layer)| {
            let read_later = self.tensor(id).consumers.iter().any(|(reader, _)| *reader > writer.id);
            (!read_later && !writer.op.is_source()).then_some(id)
        };
        (0u32..).map(TensorId).zip(writers).filter_map(|(id, writer)| ends((id, writer?))).collect()
    }

    /// The layers none of whose outputs is read by a later layer, in execution order, sources
    /// excepted.
    pub fn terminal_layers(&self) -> Vec<LayerId> {
        let mut terminal = vec![false; self.tensors.len()];
        for id in self.terminal_tensors() {
            terminal[id.0 as usize] = true;
        }
        let ends = |layer: &&super::Layer| {
            !layer.op.is_source() && !layer.outputs.is_empty() && layer.outputs.iter().all(|id| terminal[id.0 as usize])
        };
        self.layers.iter().filter(ends).map(|layer| layer.id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunMeta;
    use crate::run::assemble::{Parts, RecordedLayer};

    /// Layers as `name: inputs -> outputs`; a name in capitals is a module.
    fn run(layers: &[(&str, &[&str], &[&str])]) -> Run {
        let texts = |names: &[&str]| names.iter().map(|n| (*n).to_string()).collect();
        let layers = layers.iter().enumerate().map(|(at, (name, inputs, outputs))| RecordedLayer {
            line: at as u64 + 1,
            name: (*name).into(),
            op_name: "relu".into(),
            kind: if name.to_uppercase() == **name { LayerKind::Module } else { LayerKind::Operator },
            inputs: texts(inputs),
            outputs: texts(outputs),
            ..RecordedLayer::default()
        });
        let parts = Parts {
            path: "run".into(),
            meta: RunMeta::default(),
            layers_file: "run/layers.jsonl".into(),
            layers: layers.collect(),
            files: vec![],
            stored: vec![],
            stats: vec![],
            warnings: vec![],
        };
        parts.assemble().unwrap()
    }

    fn names(run: &Run, ids: &[LayerId]) -> Vec<String> {
        ids.iter().map(|id| run.layer(*id).name.clone()).collect()
    }

    #[test]
    fn ancestors_follow_edges_backwards_only() {
        let run = run(&[
            ("a", &[], &["t"]),
            ("b", &[], &["u"]),
            ("c", &["t"], &["v"]),
            ("d", &["v", "w"], &["x"]),
            ("e", &["x"], &["w"]),
        ]);
        assert_eq!(names(&run, &run.ancestors(LayerId(3))), ["a", "c"]);
        assert_eq!(names(&run, &run.ancestors(LayerId(4))), ["a", "c", "d"]);
        assert!(run.ancestors(LayerId(0)).is_empty());
        assert!(run.ancestors(LayerId(99)).is_empty());
    }

    #[test]
    fn a_tensor_written_in_place_depends_on_its_earlier_writers() {
        let run = run(&[("a", &[], &["t"]), ("b_", &["t"], &["t"]), ("c", &["t"], &["u"]), ("d_", &["t"], &["t"])]);
        assert_eq!(names(&run, &run.ancestors(LayerId(2))), ["a", "b_"]);
        let ends: Vec<&str> = run.terminal_tensors().iter().map(|id| run.tensor(*id).name.as_str()).collect();
        assert_eq!(ends, ["t", "u"]);
        assert_eq!(names(&run, &run.terminal_layers()), ["a", "b_", "c", "d_"]);
    }

    #[test]
    fn a_module_around_its_operators_does_not_make_their_tensors_terminal() {
        let run = run(&[("a", &["x"], &["t"]), ("b", &["t"], &["y"]), ("M", &["x"], &["y", "t"])]);
        let ends: Vec<&str> = run.terminal_tensors().iter().map(|id| run.tensor(*id).name.as_str()).collect();
        assert_eq!(ends, ["y"]);
        assert_eq!(names(&run, &run.terminal_layers()), ["b"]);
    }
}
