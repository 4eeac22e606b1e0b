//! Calls for tests, written in one expression.

use ndarray::{ArcArray, IxDyn};
use serde_json::Value;

use super::{Call, Operand, OutputSpec, Reference, References, Unmodelled, replay};
use crate::run::Attrs;
use crate::tensor::DType;

/// A call under construction.
pub(super) struct SampleCall {
    function: &'static str,
    inputs: Vec<Operand>,
    attrs: Option<Attrs>,
    outputs: Vec<OutputSpec>,
}

/// A call of `function` without inputs and outputs, its attributes not recorded.
pub(super) fn sample(function: &'static str) -> SampleCall {
    SampleCall { function, inputs: Vec::new(), attrs: None, outputs: Vec::new() }
}

impl SampleCall {
    /// A tensor argument; an empty name means that names were not recorded.
    pub(super) fn input(mut self, name: &str, dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let value = ArcArray::from_shape_vec(IxDyn(shape), values.to_vec()).expect("a test's own shape");
        let name = (!name.is_empty()).then(|| name.to_string());
        self.inputs.push(Operand { name, dtype, value });
        self
    }

    /// An F32 argument.
    pub(super) fn f32(self, name: &str, shape: &[usize], values: &[f64]) -> Self {
        self.input(name, DType::F32, shape, values)
    }

    /// An I64 argument.
    pub(super) fn i64(self, name: &str, shape: &[usize], values: &[f64]) -> Self {
        self.input(name, DType::I64, shape, values)
    }

    /// A bool argument.
    pub(super) fn bool(self, name: &str, shape: &[usize], values: &[f64]) -> Self {
        self.input(name, DType::Bool, shape, values)
    }

    /// The recorded attributes.
    pub(super) fn attrs(mut self, attrs: Value) -> Self {
        self.attrs = Some(serde_json::from_value(attrs).expect("a test's own attributes"));
        self
    }

    /// A recorded output.
    pub(super) fn out(mut self, dtype: DType, shape: &[usize]) -> Self {
        self.outputs.push(OutputSpec { dtype, shape: shape.to_vec() });
        self
    }

    /// Replays the call.
    pub(super) fn run(self) -> Result<References, Unmodelled> {
        replay(&Call {
            function: self.function.to_string(),
            attrs: self.attrs.as_ref(),
            inputs: self.inputs,
            outputs: self.outputs,
        })
    }

    /// The only output of a call that is modelled; its scale is held against its value.
    pub(super) fn only(self) -> Reference {
        let mut references = self.run().expect("modelled");
        let reference = references.swap_remove(0).expect("compared");
        assert_eq!(reference.value.shape(), reference.scale.shape());
        for (value, scale) in reference.value.iter().zip(&reference.scale) {
            assert!(*scale >= value.abs() || value.is_nan(), "scale {scale} below {value}");
        }
        reference
    }

    /// Values of the only output in row-major order.
    pub(super) fn values(self) -> Vec<f64> {
        self.only().value.iter().copied().collect()
    }

    /// Why the call is not modelled.
    pub(super) fn refusal(self) -> String {
        self.run().err().map(|reason| reason.0).expect("not modelled")
    }
}
