//! What a run holds: layers, dtypes, shapes, bytes, and what is odd.

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

use crate::compare::{self, SideStats};
use crate::error::Result;
use crate::run::{Run, TensorId};
use crate::tensor::Tensor;

/// Schema identifier of an inspection.
pub const INSPECTION_SCHEMA: &str = "goldline.inspection/1";

/// What a run holds.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// Always [`INSPECTION_SCHEMA`].
    pub schema: &'static str,
    /// Path as given.
    pub path: String,
    /// `run.json`: name, seed, device and so on, as far as recorded.
    pub facts: BTreeMap<String, String>,
    /// Whether the recorder closed it.
    pub complete: bool,
    /// Number of layers.
    pub layers: usize,
    /// Number of tensors that layers name or files hold.
    pub tensors: usize,
    /// Of these, stored.
    pub stored: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Stored tensors by dtype: number and bytes.
    pub dtypes: BTreeMap<String, (u64, u64)>,
    /// Layers by operator.
    pub operators: BTreeMap<String, u64>,
    /// Operators that the registry does not know.
    pub unknown_operators: Vec<String>,
    /// What the reader worked around.
    pub warnings: Vec<String>,
    /// Every layer.
    pub rows: Vec<Row>,
    /// Tensors that no layer wrote.
    pub loose: Vec<TensorRow>,
}

/// One layer.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Position in execution order.
    pub index: u32,
    /// Name.
    pub layer: String,
    /// Operator as recorded.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// Its outputs.
    pub outputs: Vec<TensorRow>,
}

/// One tensor.
#[derive(Debug, Clone, Serialize)]
pub struct TensorRow {
    /// Id in the run.
    pub tensor: String,
    /// Element type; null where it is not known.
    pub dtype: Option<String>,
    /// Extents; null where they are not known.
    pub shape: Option<Vec<usize>>,
    /// Stored bytes.
    pub bytes: u64,
    /// Smallest and largest finite value.
    pub range: Option<[f64; 2]>,
    /// What is odd, in words.
    pub odd: Vec<String>,
}

/// What was read of one stored tensor.
struct Seen {
    stats: SideStats,
    digest: blake3::Hash,
}

/// Reads every stored tensor once and lists what the run holds. `on_progress` gets tensors done and in all.
///
/// # Errors
/// A tensor that cannot be read.
pub fn inspect(run: &Run, on_progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Inspection> {
    let stored: Vec<TensorId> = ids(run).filter(|&id| run.tensor(id).stored.is_some()).collect();
    let done = std::sync::atomic::AtomicU64::new(0);
    let seen: BTreeMap<TensorId, Seen> = stored
        .par_iter()
        .map(|&id| {
            let tensor = run.load(id)?;
            on_progress(done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1, stored.len() as u64);
            Ok(tensor.map(|tensor| (id, look(&tensor))))
        })
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .flatten()
        .collect();
    // The first tensor of each content; later ones are its duplicates.
    let mut first: BTreeMap<([u8; 32], u64), TensorId> = BTreeMap::new();
    for (&id, seen) in &seen {
        first.entry((*seen.digest.as_bytes(), bytes_of(run, id))).or_insert(id);
    }
    let row = |id: TensorId| tensor_row(run, id, seen.get(&id), &first);
    let rows = run
        .layers
        .iter()
        .map(|layer| Row {
            index: layer.id.0,
            layer: run.display_name(layer.id),
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
            outputs: layer.outputs.iter().map(|&id| row(id)).collect(),
        })
        .collect();
    let mut dtypes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for &id in &stored {
        if let Some((dtype, _)) = run.dtype_and_shape(id) {
            let entry = dtypes.entry(dtype.name().to_string()).or_default();
            *entry = (entry.0 + 1, entry.1 + bytes_of(run, id));
        }
    }
    let mut operators: BTreeMap<String, u64> = BTreeMap::new();
    let mut unknown = std::collections::BTreeSet::new();
    for layer in &run.layers {
        *operators.entry(layer.op_name.clone()).or_default() += 1;
        if layer.op == crate::op::Op::UNKNOWN {
            unknown.insert(layer.op_name.clone());
        }
    }
    Ok(Inspection {
        schema: INSPECTION_SCHEMA,
        path: run.path.to_string_lossy().into_owned(),
        facts: facts(run),
        complete: run.meta.complete,
        layers: run.layers.len(),
        tensors: run.tensors.len(),
        stored: stored.len(),
        bytes: stored.iter().map(|&id| bytes_of(run, id)).sum(),
        dtypes,
        operators,
        unknown_operators: unknown.into_iter().collect(),
        warnings: run.warnings.clone(),
        rows,
        loose: ids(run).filter(|&id| run.tensor(id).producer.is_none()).map(row).collect(),
    })
}

fn ids(run: &Run) -> impl Iterator<Item = TensorId> + '_ {
    (0..run.tensors.len()).map(|at| TensorId(at as u32))
}

fn bytes_of(run: &Run, id: TensorId) -> u64 {
    run.tensor(id).stored.as_ref().map_or(0, |stored| stored.len)
}

fn look(tensor: &Tensor) -> Seen {
    Seen { stats: compare::measure(tensor), digest: blake3::hash(tensor.bytes()) }
}

fn facts(run: &Run) -> BTreeMap<String, String> {
    let meta = &run.meta;
    let mut facts: BTreeMap<String, String> = meta.environment.iter().cloned().collect();
    let mut fact = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.insert(key.to_string(), value);
        }
    };
    fact("format", Some(meta.format.clone()));
    fact("name", meta.name.clone());
    fact("created", meta.created.clone());
    fact("seed", meta.seed.map(|v| v.to_string()));
    fact("step", meta.step.map(|v| v.to_string()));
    fact("rank", meta.rank.map(|v| v.to_string()));
    fact("world_size", meta.world_size.map(|v| v.to_string()));
    fact("compute", meta.compute.map(|v| v.to_string()));
    fact("autocast", meta.autocast.map(|v| v.to_string()));
    facts
}

fn tensor_row(run: &Run, id: TensorId, seen: Option<&Seen>, first: &BTreeMap<([u8; 32], u64), TensorId>) -> TensorRow {
    let info = run.tensor(id);
    let kind = run.dtype_and_shape(id);
    let mut odd = Vec::new();
    if info.stored.is_none() {
        odd.push(if info.stats.is_some() {
            "not stored, statistics alone".to_string()
        } else {
            "not stored".to_string()
        });
    }
    if kind.is_some_and(|(_, shape)| shape.contains(&0)) {
        odd.push("empty".into());
    }
    let mut range = None;
    if let Some(Seen { stats, digest }) = seen {
        let mut count = |n: u64, what: &str| {
            if n > 0 {
                odd.push(format!("{n} {what}"));
            }
        };
        count(stats.nan, "NaN");
        count(stats.pos_inf, "+Inf");
        count(stats.neg_inf, "-Inf");
        // A boolean or an integer stands at its maximum by right.
        if kind.is_some_and(|(dtype, _)| dtype.max_finite().is_some()) {
            count(stats.at_max, "at the dtype's largest magnitude");
        }
        if stats.finite > 0 {
            range = Some([stats.min, stats.max]);
        }
        if let Some(&original) =
            first.get(&(*digest.as_bytes(), bytes_of(run, id))).filter(|&&other| other != id && bytes_of(run, id) > 0)
        {
            // A mover's output equals its input by nature, as does a view's.
            let is_moved = info.producer.is_some_and(|(layer, _)| run.layer(layer).op.is_mover());
            if !is_moved {
                odd.push(format!("same bytes as {}", run.tensor(original).name));
            }
        }
    }
    TensorRow {
        tensor: info.name.clone(),
        dtype: kind.map(|(dtype, _)| dtype.name().to_string()),
        shape: kind.map(|(_, shape)| shape.to_vec()),
        bytes: bytes_of(run, id),
        range,
        odd,
    }
}
