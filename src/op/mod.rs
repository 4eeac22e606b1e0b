//! What is known about operators: one registry, asked by every rule that depends on the kind of an
//! operator.
//!
//! In goes a spelling as some framework writes it, out comes an [`Op`]: its canonical name, its
//! [`Class`] (source, factory, random, mover, …), how a coordinate of an input reaches the output
//! ([`Reach`]), how many terms it sums, which outputs are indices or auxiliary, how CANN spells it.
//! Adding an operator is one row in a file of `table/`.

mod shape;
mod spelling;
mod table;

pub use shape::{axis, axis_index, operands, reduction_length};

/// A canonical operator; `Copy`, compared by identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op(u16);

/// The operator of a tensor of which nothing but its content was recorded, as recorders spell it.
pub const UNRECORDED: &str = "unrecorded";

/// What part an operator plays in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A tensor the model is given: input or parameter.
    Source,
    /// Makes a tensor without defined content (`empty`): never judged.
    Uninitialised,
    /// Makes a tensor from its arguments alone (`zeros`, `arange`).
    Factory,
    /// Draws from a random generator: a source where it differs.
    Random,
    /// Moves elements without changing them (view, transpose, cat, gather …): exact.
    Mover,
    /// Converts the dtype: correctly rounded.
    Cast,
    /// Sums products over a reduction axis (linear, matmul, conv, attention).
    Contraction,
    /// Normalises (layer_norm, batch_norm …).
    Norm,
    /// Softmax family.
    Softmax,
    /// Sums or averages (sum, mean, cumsum, losses with reduction).
    Reduction,
    /// Addition and subtraction: errors add absolutely.
    Additive,
    /// Multiplication and division: errors add relatively.
    Multiplicative,
    /// Any other function applied element by element.
    Elementwise,
    /// Selects by comparing (topk, argmax, sort): its index output is discrete.
    Selection,
    /// Compares or combines truth values and integers.
    Logic,
    /// Rounds to a grid of steps (quantize): one step of difference is legitimate.
    Quantizer,
    /// Nothing is known.
    Unknown,
}

/// Which output coordinates a special value at an input coordinate can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reach {
    /// The same coordinate, under broadcasting.
    Elementwise,
    /// All coordinates of the same row (the last axis, or attribute `dim`).
    Row,
    /// Contraction of the first operand's last axis: the same row of the output for the first
    /// operand, anything for the others.
    Contraction,
    /// Anything.
    Anywhere,
}

/// How an index output refers to elements of the first input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexInto {
    /// Position along attribute `dim` (default: the last axis).
    Dim,
    /// Position in the flattened last two axes (2-d pooling).
    Plane,
    /// Position in the whole flattened tensor.
    Flat,
}

/// How an autocast region treats an operator by default (torch's lists).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Autocast {
    /// Runs in the low-precision dtype.
    Lower,
    /// Runs in fp32.
    Fp32,
    /// Follows its inputs.
    Follows,
}

/// How the relative error of the first argument grows through an elementwise function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Conditioning {
    /// A relative error stays about what it was.
    Benign,
    /// The *absolute* error of the argument becomes the relative error of the result (sin, cos, exp,
    /// softmax): large arguments amplify.
    AbsoluteArgument,
    /// A discrete choice: an error may flip it (topk, argmax, comparisons).
    Discrete,
}

/// One row of the registry.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) spellings: &'static [&'static str],
    pub(crate) class: Class,
    pub(crate) reach: Reach,
    pub(crate) conditioning: Conditioning,
    /// Output slot that holds indices, and what they index.
    pub(crate) index_output: Option<(usize, IndexInto)>,
    /// Output slots from which on outputs are auxiliary (lse, saved statistics, seeds).
    pub(crate) auxiliary_from: Option<usize>,
    /// Whether auxiliary outputs differ by design between implementations and are never compared.
    pub(crate) auxiliary_private: bool,
    pub(crate) autocast: Autocast,
    /// Operator type as CANN spells it.
    pub(crate) cann: Option<&'static str>,
}

impl Op {
    /// The operator with this spelling (`aten::addmm`, `Functional.layer_norm`, `npu_rms_norm`,
    /// `LayerNorm` …); [`Op::UNKNOWN`] where the registry has none.
    pub fn named(spelling: &str) -> Self {
        spelling::resolve(spelling)
    }

    /// The operator of which nothing is known.
    pub const UNKNOWN: Self = Self(u16::MAX);

    fn row(self) -> &'static Row {
        table::rows().get(usize::from(self.0)).copied().unwrap_or(&table::UNKNOWN_ROW)
    }

    /// Canonical lower-case name; `unknown` for [`Op::UNKNOWN`].
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// What part it plays.
    pub fn class(self) -> Class {
        self.row().class
    }

    /// Where a special value can come from.
    pub fn reach(self) -> Reach {
        self.row().reach
    }

    /// How input errors grow through it.
    pub fn conditioning(self) -> Conditioning {
        self.row().conditioning
    }

    /// The output slot that holds indices, and what they refer to.
    pub fn index_output(self) -> Option<(usize, IndexInto)> {
        self.row().index_output
    }

    /// Whether output `slot` is a by-product (saved statistics, lse, seed).
    pub fn is_auxiliary(self, slot: usize) -> bool {
        self.row().auxiliary_from.is_some_and(|from| slot >= from)
    }

    /// Whether output `slot` differs by design between implementations and is never compared.
    pub fn is_private(self, slot: usize) -> bool {
        self.is_auxiliary(slot) && self.row().auxiliary_private
    }

    /// What autocast does with it by default.
    pub fn autocast(self) -> Autocast {
        self.row().autocast
    }

    /// Operator type in CANN's spelling (`LayerNormV3`), where known.
    pub fn cann_name(self) -> Option<&'static str> {
        self.row().cann
    }

    /// A tensor the model is given.
    pub fn is_source(self) -> bool {
        self.class() == Class::Source
    }

    /// Computes in floating point and so rounds: every other class is either right or wrong.
    pub fn rounds(self) -> bool {
        !matches!(
            self.class(),
            Class::Source
                | Class::Uninitialised
                | Class::Factory
                | Class::Random
                | Class::Mover
                | Class::Cast
                | Class::Selection
                | Class::Logic
                | Class::Quantizer
        )
    }

    /// Moves elements without changing them.
    pub fn is_mover(self) -> bool {
        self.class() == Class::Mover
    }
}

/// Canonical names of all operators, sorted.
pub fn all_names() -> Vec<&'static str> {
    let mut names: Vec<_> = table::rows().iter().map(|row| row.name).collect();
    names.sort_unstable();
    names
}
