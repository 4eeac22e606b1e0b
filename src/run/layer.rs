//! One recorded execution of a module or an operator.

use std::collections::BTreeMap;
use std::fmt;

use crate::op::Op;
use crate::run::TensorId;
use crate::tensor::DType;

/// Position of a layer in its run's execution order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LayerId(pub u32);

/// Arguments that are no tensors, by the schema's names.
pub type Attrs = BTreeMap<String, serde_json::Value>;

/// Whether a layer is a module (which may hold operators) or a single operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum LayerKind {
    /// One operator.
    #[default]
    Operator,
    /// A module, recorded around the operators inside it.
    Module,
}

/// Which part of a training step a layer belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Pass {
    /// The forward pass.
    #[default]
    Forward,
    /// The backward pass.
    Backward,
    /// The optimizer step.
    Optimizer,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
            Self::Optimizer => "optimizer",
        })
    }
}

/// One recorded execution of a module or an operator, with the tensors it read and wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// Position in execution order.
    pub id: LayerId,
    /// Name as recorded.
    pub name: String,
    /// True where another layer of the same pass has the same recorded name.
    pub shares_name: bool,
    /// Operator as recorded (reports print this).
    pub op_name: String,
    /// Canonical operator.
    pub op: Op,
    /// Module or operator.
    pub kind: LayerKind,
    /// Pass it belongs to.
    pub pass: Pass,
    /// How many layers of this name and pass ran before it.
    pub call: u32,
    /// Tensors read, in the recorder's order.
    pub inputs: Vec<TensorId>,
    /// Argument names of `inputs` (same length), where recorded.
    pub input_names: Option<Vec<String>>,
    /// Tensors written.
    pub outputs: Vec<TensorId>,
    /// Non-tensor arguments; `None` means not known, `Some` is complete.
    pub attrs: Option<Attrs>,
    /// Schema as recorded (`aten::addmm`).
    pub schema: Option<String>,
    /// Enclosing module.
    pub module: Option<String>,
    /// Source line.
    pub source: Option<String>,
    /// Dtype it computed in, where recorded.
    pub compute: Option<DType>,
    /// Dtype it accumulated in, where recorded.
    pub accumulate: Option<DType>,
    /// Device it ran on, where recorded.
    pub device: Option<String>,
    /// Tensor whose gradient this backward layer makes, where recorded.
    pub grad_of: Option<String>,
}

impl Layer {
    /// The input with this argument name.
    pub fn input(&self, name: &str) -> Option<TensorId> {
        let at = self.input_names.as_ref()?.iter().position(|n| n == name)?;
        self.inputs.get(at).copied()
    }

    /// An integer attribute.
    pub fn attr_i64(&self, name: &str) -> Option<i64> {
        self.attrs.as_ref()?.get(name)?.as_i64()
    }
}
