//! Cut points: tensors through which everything passes on its way from what ran before to what runs
//! after.
//!
//! In goes the golden's data flow within one pass, out comes a [`Plan`]: few *side* tensors that are
//! read across the network (a mask, a table of angles, a skip around everything) and the cut points
//! that are left once these are known to be in. A tensor is a cut point of the boundary behind a
//! layer if it alone, besides the side tensors, was written before that boundary and is read after
//! it: it then dominates every later layer that depends on any earlier one.

use std::collections::BTreeSet;

use crate::op::Class;
use crate::run::{Layer, LayerId, LayerKind, Pass, Run, TensorId};

/// Most side tensors that are tried. Each costs a load; the plan with the fewest expected loads is
/// taken, and networks need one to four.
const MAX_SIDE: usize = 24;

/// A tensor that everything passes through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// The layer behind which it cuts.
    pub(super) after: LayerId,
    /// The golden tensor.
    pub(super) tensor: TensorId,
}

/// Where to probe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// Tensors that bypass cut points, in order of execution.
    pub(super) side: Vec<TensorId>,
    /// Cut points in order of execution.
    pub(super) cuts: Vec<Cut>,
}

/// Where a tensor is alive: written at or before `from`, read last at `to`.
#[derive(Debug, Clone, Copy)]
struct Span {
    tensor: TensorId,
    from: u32,
    to: u32,
    /// Layer that wrote it last: an in-place operator writes it again.
    last_write: u32,
}

/// Plans the probes of one pass. `can_probe` says whether a golden tensor can be compared.
pub(super) fn plan(golden: &Run, pass: Pass, can_probe: &dyn Fn(TensorId) -> bool) -> Plan {
    let nodes: Vec<&Layer> = nodes(golden, pass);
    let spans = spans(golden, &nodes);
    let mut by_length: Vec<Span> = spans.iter().copied().filter(|span| can_probe(span.tensor)).collect();
    by_length.sort_by_key(|span| (std::cmp::Reverse(span.to - span.from), span.tensor));
    let mut best: Option<(f64, Plan)> = None;
    for count in 0..=by_length.len().min(MAX_SIDE) {
        let chosen = by_length.get(..count).unwrap_or_default();
        let side: BTreeSet<TensorId> = chosen.iter().map(|span| span.tensor).collect();
        let cuts = cuts(golden, &nodes, &spans, &side, can_probe);
        let cost = expected_loads(&nodes, side.len(), &cuts);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            let mut ordered = chosen.to_vec();
            ordered.sort_by_key(|span| (span.from, span.tensor));
            best = Some((cost, Plan { side: ordered.iter().map(|span| span.tensor).collect(), cuts }));
        }
    }
    best.map(|(_, plan)| plan).unwrap_or_default()
}

/// Layers of the pass that compute. A module around recorded layers adds no data flow of its own,
/// yet its line would keep its inputs alive to its end.
fn nodes(golden: &Run, pass: Pass) -> Vec<&Layer> {
    let mut by_operator = vec![false; golden.tensors.len()];
    let mut by_module: Vec<Option<LayerId>> = vec![None; golden.tensors.len()];
    for layer in &golden.layers {
        for id in &layer.outputs {
            let at = id.0 as usize;
            match layer.kind {
                LayerKind::Operator => by_operator[at] = true,
                LayerKind::Module => by_module[at] = by_module[at].or(Some(layer.id)),
            }
        }
    }
    let is_wrapper = |layer: &Layer| {
        layer.kind == LayerKind::Module
            && layer
                .outputs
                .iter()
                .all(|id| by_operator[id.0 as usize] || by_module[id.0 as usize].is_some_and(|first| first < layer.id))
    };
    golden.layers.iter().filter(|layer| layer.pass == pass && !layer.op.is_source() && !is_wrapper(layer)).collect()
}

/// Where each tensor that the nodes write and read is alive, ordered by tensor.
fn spans(golden: &Run, nodes: &[&Layer]) -> Vec<Span> {
    let mut writes: Vec<Option<(u32, u32)>> = vec![None; golden.tensors.len()];
    let mut reads = vec![0u32; golden.tensors.len()];
    for layer in nodes {
        for id in &layer.outputs {
            let write = &mut writes[id.0 as usize];
            *write = Some((write.map_or(layer.id.0, |(first, _)| first), layer.id.0));
        }
        for id in &layer.inputs {
            reads[id.0 as usize] = layer.id.0;
        }
    }
    let alive = (0u32..).map(TensorId).zip(writes.into_iter().zip(reads));
    alive
        .filter_map(|(tensor, (writes, to))| {
            let (from, last_write) = writes?;
            Some(Span { tensor, from, to, last_write })
        })
        .filter(|span| span.to > span.from)
        .collect()
}

fn cuts(
    golden: &Run,
    nodes: &[&Layer],
    spans: &[Span],
    side: &BTreeSet<TensorId>,
    can_probe: &dyn Fn(TensorId) -> bool,
) -> Vec<Cut> {
    // Where one tensor crosses a boundary, the sum of the ids that cross is its id.
    let mut change = vec![(0i64, 0i64); golden.layers.len() + 1];
    let mut last_write = vec![0u32; golden.tensors.len()];
    for span in spans.iter().filter(|span| !side.contains(&span.tensor)) {
        let id = i64::from(span.tensor.0);
        last_write[span.tensor.0 as usize] = span.last_write;
        let start = &mut change[span.from as usize];
        *start = (start.0 + 1, start.1 + id);
        let stop = &mut change[span.to as usize];
        *stop = (stop.0 - 1, stop.1 - id);
    }
    let (mut crossing, mut sum) = (0i64, 0i64);
    let mut at = 0usize;
    let mut cuts: Vec<Cut> = Vec::new();
    for layer in nodes {
        while at <= layer.id.0 as usize {
            crossing += change[at].0;
            sum += change[at].1;
            at += 1;
        }
        let Some(tensor) = u32::try_from(sum).ok().map(TensorId).filter(|_| crossing == 1) else { continue };
        let known = cuts.last().is_some_and(|last| last.tensor == tensor);
        // What was recorded of it stands for this boundary alone if nothing writes it again.
        let written_later = last_write[tensor.0 as usize] > layer.id.0;
        if !known && !written_later && is_steady(golden, tensor) && can_probe(tensor) {
            cuts.push(Cut { after: layer.id, tensor });
        }
    }
    cuts
}

/// Whether the operator that wrote a tensor carries an error on: a choice or a truth value may hide
/// it, and what a random operator draws says nothing about what came before.
fn is_steady(golden: &Run, tensor: TensorId) -> bool {
    let class = golden.tensor(tensor).producer.map(|(id, _)| golden.layer(id).op.class());
    !matches!(
        class,
        None | Some(
            Class::Random | Class::Selection | Class::Logic | Class::Quantizer | Class::Uninitialised | Class::Factory
        )
    )
}

/// Loads that a search with this plan is expected to need for a fault in a layer chosen evenly: the
/// side tensors, one probe for each halving, and the block that is left.
fn expected_loads(nodes: &[&Layer], side: usize, cuts: &[Cut]) -> f64 {
    let mut blocks = vec![0f64; cuts.len() + 1];
    let mut at = 0usize;
    for layer in nodes {
        while cuts.get(at).is_some_and(|cut| cut.after < layer.id) {
            at += 1;
        }
        blocks[at] += 1.0;
    }
    let all = (nodes.len() as f64).max(1.0);
    side as f64 + (blocks.len() as f64).log2() + blocks.iter().map(|size| size * size).sum::<f64>() / all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of layers `name op inputs -> outputs`, without tensors.
    fn run(layers: &[(&str, &str, &[&str], &[&str])]) -> Run {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("run.json"), r#"{"format":"goldline.run/1","complete":true}"#).unwrap();
        let lines: String = layers
            .iter()
            .map(|(name, op, inputs, outputs)| {
                let kind = if name.starts_with("M.") { "module" } else { "operator" };
                format!(
                    "{}\n",
                    serde_json::json!({"name": name, "op": op, "kind": kind, "inputs": inputs, "outputs": outputs})
                )
            })
            .collect();
        std::fs::write(dir.path().join("layers.jsonl"), lines).unwrap();
        Run::open(dir.path()).unwrap()
    }

    fn planned(run: &Run) -> (Vec<&str>, Vec<&str>) {
        let plan = plan(run, Pass::Forward, &|_| true);
        let name = |id: TensorId| run.tensor(id).name.as_str();
        (plan.side.into_iter().map(name).collect(), plan.cuts.into_iter().map(|cut| name(cut.tensor)).collect())
    }

    #[test]
    fn what_runs_beside_a_skip_is_no_cut_point() {
        let run = run(&[
            ("x", "input", &[], &["x"]),
            ("a", "relu", &["x"], &["a"]),
            ("b", "relu", &["a"], &["b"]),
            ("c", "relu", &["b"], &["c"]),
            ("d", "add", &["a", "c"], &["d"]),
            ("e", "relu", &["d"], &["e"]),
        ]);
        assert_eq!(planned(&run), (vec![], vec!["a", "d"]), "b and c stand beside the skip from a to d");
    }

    #[test]
    fn a_mask_that_every_block_reads_is_set_aside() {
        let names: Vec<String> = (0..=30).map(|k| format!("h{k}")).collect();
        let mut layers: Vec<(&str, &str, Vec<&str>, Vec<&str>)> = vec![
            ("x", "input", vec![], vec!["x"]),
            ("mask", "cast", vec!["x"], vec!["mask"]),
            ("h0", "relu", vec!["x"], vec!["h0"]),
        ];
        for pair in names.windows(2) {
            layers.push((&pair[1], "mul", vec![&pair[0], "mask"], vec![&pair[1]]));
        }
        let layers: Vec<_> = layers.iter().map(|(n, o, i, w)| (*n, *o, i.as_slice(), w.as_slice())).collect();
        let run = run(&layers);
        let (side, cuts) = planned(&run);
        assert_eq!(side, ["mask"]);
        assert_eq!(cuts.len(), 30, "every h but the last, which nothing reads: {cuts:?}");
    }

    #[test]
    fn a_module_around_its_operators_keeps_nothing_alive() {
        let run = run(&[
            ("x", "input", &[], &["x"]),
            ("a", "relu", &["x"], &["a"]),
            ("M.m.b", "relu", &["a"], &["b"]),
            ("m.c", "relu", &["b"], &["c"]),
            ("M.m", "block", &["a"], &["c"]),
            ("d", "relu", &["c"], &["d"]),
        ]);
        assert_eq!(planned(&run), (vec![], vec!["a", "b", "c"]));
    }

    #[test]
    fn a_tensor_that_is_written_again_cuts_only_behind_the_last_write() {
        let run = run(&[
            ("x", "input", &[], &["x"]),
            ("a", "relu", &["x"], &["t"]),
            ("b", "relu", &["t"], &["t"]),
            ("c", "relu", &["t"], &["u"]),
        ]);
        let plan = plan(&run, Pass::Forward, &|_| true);
        assert_eq!(plan.cuts.iter().map(|cut| cut.after).collect::<Vec<_>>(), [LayerId(2)]);
    }
}
