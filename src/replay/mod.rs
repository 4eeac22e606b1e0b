//! Operators recomputed in fp64 from recorded inputs.
//!
//! In goes a [`Call`]: one layer's recorded inputs as f64 arrays, its attributes and the shapes and
//! dtypes of what it wrote; out comes one [`Reference`] per output: the exact result, the magnitude
//! each element is held against, and how exact the operator is meant to be. What is not modelled, or
//! ambiguous because attributes were not recorded, is [`Unmodelled`] with the reason: never a guess
//! that looks like a measurement. Nothing here knows of limits or verdicts.
//!
//! Adding an operator is one function in its family's file and one line of the family's table.

mod answer;
mod attention;
mod call;
mod cast;
mod contraction;
mod convolution;
mod elementwise;
mod interpolation;
mod lanes;
mod mover;
mod norm;
mod optimizer;
mod pooling;
mod quantize;
mod reduction;
mod reference;
mod rope;
mod round;
#[cfg(test)]
mod sample_call;
mod softmax;
#[cfg(test)]
mod staged;
mod swiglu;

pub use call::{Call, Operand, OutputSpec, function_name, resolve_axis};
pub use round::{Format, REDUCED, Rounding};

use ndarray::ArrayD;

/// Why a layer cannot be replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unmodelled(pub String);

/// What the exact operator gives for one output.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The exact result (in f64), in the output's shape.
    pub value: ArrayD<f64>,
    /// Per element, the magnitude that was summed or passed through: at least |value|. An element's
    /// error is held against unit roundoff times this. Same shape as `value`.
    pub scale: ArrayD<f64>,
    /// How exact the operator is meant to be.
    pub exactness: Exactness,
}

/// How exact an operator is meant to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Exactness {
    /// Moves bits: the output must be bit-equal to the reference.
    Exact,
    /// Rounds each element once, correctly (casts; add, sub, mul, div and sqrt of exact operands).
    Rounded,
    /// A sum of products or of terms.
    Summed {
        /// Number of terms K that each output element sums.
        terms: usize,
        /// Per element, Q = sum of squares of the terms; same shape as the value.
        squares: ArrayD<f64>,
    },
    /// A function with an error budget of its own.
    Function {
        /// ULP of the compute dtype that a healthy implementation may be off by, against `scale`.
        ulp: f64,
        /// Legitimate internal roundings to the output dtype before the last (0 for most).
        roundings: u32,
    },
    /// Discrete (indices, comparisons): differing is right or wrong, nothing between.
    Discrete,
}

/// One [`Reference`] per output of the call; `None` for an output that is never compared (private
/// by-products such as a dropout seed).
pub type References = Vec<Option<Reference>>;

/// A function of one family.
pub(crate) type Replay = fn(&Call) -> Result<References, Unmodelled>;

/// Families in the order in which they are asked: a family answers `None` for a function it does not
/// know.
const FAMILIES: &[fn(&str) -> Option<Replay>] = &[
    contraction::family,
    convolution::family,
    attention::family,
    rope::family,
    swiglu::family,
    elementwise::family,
    cast::family,
    mover::family,
    norm::family,
    softmax::family,
    reduction::family,
    pooling::family,
    interpolation::family,
    optimizer::family,
    quantize::family,
];

/// Recomputes a call in f64.
///
/// # Errors
/// [`Unmodelled`] where no family knows the function or its attributes leave it ambiguous.
pub fn replay(call: &Call) -> Result<References, Unmodelled> {
    let function = call.function();
    match FAMILIES.iter().find_map(|family| family(function)) {
        Some(replay) => replay(call),
        None => Err(Unmodelled(format!("{function} is not modelled"))),
    }
}
