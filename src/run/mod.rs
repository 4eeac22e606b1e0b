//! A run: what one execution of the model on one device left behind.
//!
//! In goes a path, out comes a [`Run`]: its layers in execution order, the tensors they read and
//! wrote (loaded only when asked for), the data-flow edges between them, and what was odd about the
//! files. Everything read here is untrusted and checked once; later modules rely on it:
//! every id is in range, an edge is the same [`TensorId`] in one layer's outputs and another's inputs.

mod assemble;
mod discover;
pub mod format;
mod graph;
pub mod join;
mod layer;
mod shared;
mod stored;

pub use discover::Located;
pub use layer::{Attrs, Layer, LayerId, LayerKind, Pass};
pub use stored::{Encoding, Layout, Stored};

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::tensor::{DType, Shape, Tensor};

/// Index of a tensor in its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

/// What is known of one tensor of a run without loading it.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    /// The id under which `layers.jsonl` and the tensor files know it.
    pub name: String,
    /// Where its bytes are; `None` where the tensor was not stored.
    pub stored: Option<Stored>,
    /// Statistics that were recorded beside or instead of the bytes.
    pub stats: Option<RecordedStats>,
    /// The layer that wrote it (the last operator, where several list it; a module only where nothing inside
    /// it was recorded) and the output slot.
    pub producer: Option<(LayerId, usize)>,
    /// Layers that read it, with the input slot.
    pub consumers: Vec<(LayerId, usize)>,
}

/// A line of `stats.jsonl`: statistics recorded for a tensor that may not have been stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedStats {
    /// Element type, where it is one that Goldline knows.
    pub dtype: Option<DType>,
    /// Extents.
    pub shape: Option<Shape>,
    /// Smallest finite value.
    pub min: Option<f64>,
    /// Largest finite value.
    pub max: Option<f64>,
    /// Mean over the finite values.
    pub mean: Option<f64>,
    /// Euclidean norm over the finite values.
    pub l2: Option<f64>,
    /// Number of NaN.
    pub nan: Option<u64>,
    /// Number of infinities.
    pub inf: Option<u64>,
    /// NaN and infinities were seen but not counted: `nan` and `inf` are 1 where there are some, and absent
    /// where the others hide them.
    pub specials_uncounted: bool,
    /// `alg:hex` over the recorded bytes.
    pub digest: Option<String>,
    /// Another tensor of the run with the same content.
    pub alias_of: Option<String>,
    /// The part of another stored tensor of the run that holds this one's elements.
    pub view_of: Option<ViewOf>,
    /// Which rows were stored, as recorded; `None` where all were.
    pub slice: Option<serde_json::Value>,
    /// Values at coordinates that follow from a hash of the name, as recorded.
    pub samples: Option<serde_json::Value>,
}

/// A tensor as a view of a stored one: `offset` and `strides` in elements of it.
#[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
pub struct ViewOf {
    /// The stored tensor.
    pub tensor: String,
    /// Its element that is this tensor's first.
    pub offset: u64,
    /// Distance in elements from one index of an axis to the next, one per axis.
    pub strides: Vec<u64>,
}

/// `run.json` as far as it is known.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunMeta {
    /// Format identifier, `goldline.run/1` for native runs.
    pub format: String,
    /// Name given by the recorder.
    pub name: Option<String>,
    /// When it was recorded (RFC 3339).
    pub created: Option<String>,
    /// Seed of the random generators.
    pub seed: Option<i64>,
    /// Training or decoding step.
    pub step: Option<u64>,
    /// Rank in a distributed run.
    pub rank: Option<u64>,
    /// Number of ranks.
    pub world_size: Option<u64>,
    /// `sha256:hex` over the inputs.
    pub inputs_digest: Option<String>,
    /// Dtype the run computes in (`float16` …), where declared.
    pub compute: Option<DType>,
    /// Whether autocast was on.
    pub autocast: Option<bool>,
    /// Operators the recorder says were kept in fp32.
    pub fp32_ops: Vec<String>,
    /// `environment` flattened to sorted `key`, `value` pairs (`flags.allow_tf32`, `true`).
    pub environment: Vec<(String, String)>,
    /// True where the recorder closed the run; a crashed run keeps a valid prefix.
    pub complete: bool,
}

/// One recorded execution.
#[derive(Debug)]
pub struct Run {
    /// The directory (or file) it was read from.
    pub path: PathBuf,
    /// `run.json`.
    pub meta: RunMeta,
    /// Layers in execution order; `layers[id.0]` has that id.
    pub layers: Vec<Layer>,
    /// Tensors; `tensors[id.0]` has that id.
    pub tensors: Vec<TensorInfo>,
    /// Files that hold tensors.
    pub files: Vec<PathBuf>,
    /// What was odd but could be worked around (torn last line, tensors no layer names …).
    pub warnings: Vec<String>,
    /// The ranks' runs, where this one was put together from them.
    pub(crate) joined: Option<Box<join::Joined>>,
}

impl Run {
    /// Opens the run at `path`; the format is recognised by content.
    ///
    /// # Errors
    /// Any file that cannot be read or does not hold what the format asks for.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        format::open(path.as_ref())
    }

    /// The layer with this id.
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.layers[id.0 as usize]
    }

    /// What is known of this tensor.
    pub fn tensor(&self, id: TensorId) -> &TensorInfo {
        &self.tensors[id.0 as usize]
    }

    /// Dtype and shape of a tensor, stored or from its statistics.
    pub fn dtype_and_shape(&self, id: TensorId) -> Option<(DType, &[usize])> {
        let info = self.tensor(id);
        if let Some(stored) = &info.stored {
            return Some((stored.dtype, &stored.shape));
        }
        let stats = info.stats.as_ref()?;
        Some((stats.dtype?, stats.shape.as_deref()?))
    }

    /// Reads a stored tensor from its file; `None` where it was not stored.
    ///
    /// # Errors
    /// A file that can no longer be read, or ends before the tensor does.
    pub fn load(&self, id: TensorId) -> Result<Option<Tensor>> {
        match &self.joined {
            Some(joined) => joined.load(self, id),
            None => format::load(self, id),
        }
    }

    /// The layer's name as reports print it: with `#call` appended only where several layers of the
    /// same pass share the name.
    pub fn display_name(&self, id: LayerId) -> String {
        let layer = self.layer(id);
        if layer.shares_name { format!("{}#{}", layer.name, layer.call) } else { layer.name.clone() }
    }
}
