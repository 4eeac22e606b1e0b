//! Calls put together by hand, for the tests of the families.

use serde_json::Value;

use super::lanes::array;
use super::{Call, Exactness, Operand, OutputSpec, Reference, References, Unmodelled, replay};
use crate::run::Attrs;
use crate::tensor::DType;

/// A call in the making; inputs and outputs are float32 unless said otherwise.
#[derive(Debug, Clone)]
pub(super) struct Staged {
    function: String,
    attrs: Option<Attrs>,
    inputs: Vec<Operand>,
    outputs: Vec<OutputSpec>,
}

impl Staged {
    /// `attrs` is an object, or null for attributes that were not recorded.
    pub(super) fn new(function: &str, attrs: Value) -> Self {
        let attrs = match attrs {
            Value::Object(map) => Some(map.into_iter().collect()),
            _ => None,
        };
        Self { function: function.to_string(), attrs, inputs: Vec::new(), outputs: Vec::new() }
    }

    /// A named tensor argument (an empty name: not recorded).
    pub(super) fn input(self, name: &str, shape: &[usize], values: &[f64]) -> Self {
        self.typed(name, DType::F32, shape, values)
    }

    /// A tensor argument of some dtype.
    pub(super) fn typed(mut self, name: &str, dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let value = array(shape, values.to_vec()).unwrap().into_shared();
        self.inputs.push(Operand { name: (!name.is_empty()).then(|| name.to_string()), dtype, value });
        self
    }

    /// A recorded float32 output.
    pub(super) fn output(self, shape: &[usize]) -> Self {
        self.writes(DType::F32, shape)
    }

    /// A recorded output of some dtype.
    pub(super) fn writes(mut self, dtype: DType, shape: &[usize]) -> Self {
        self.outputs.push(OutputSpec { dtype, shape: shape.to_vec() });
        self
    }

    /// The call's references; their shapes and scales are checked on the way.
    pub(super) fn replay(&self) -> Result<References, Unmodelled> {
        let call = Call {
            function: self.function.clone(),
            attrs: self.attrs.as_ref(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
        };
        let references = replay(&call)?;
        assert_eq!(references.len(), self.outputs.len(), "one reference for each output");
        for (reference, output) in references.iter().zip(&self.outputs) {
            let Some(reference) = reference else { continue };
            assert_eq!(reference.value.shape(), output.shape);
            assert_eq!(reference.scale.shape(), output.shape);
            if let Exactness::Summed { squares, .. } = &reference.exactness {
                assert_eq!(squares.shape(), output.shape);
            }
            for (scale, value) in reference.scale.iter().zip(&reference.value) {
                assert!(*scale >= value.abs() || value.is_nan(), "scale {scale} below value {value}");
            }
        }
        Ok(references)
    }

    /// Reference of one output.
    pub(super) fn reference(&self, slot: usize) -> Reference {
        self.replay().unwrap().swap_remove(slot).expect("this output is compared")
    }

    /// Values of one output, row-major.
    pub(super) fn values(&self, slot: usize) -> Vec<f64> {
        self.reference(slot).value.iter().copied().collect()
    }

    /// Why the call is not modelled.
    pub(super) fn refusal(&self) -> String {
        self.replay().expect_err("expected this to be refused").0
    }
}

/// Asserts equality up to 1e-12 relative to the larger of 1 and the value; NaN equals NaN.
#[track_caller]
pub(super) fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?} against {expected:?}");
    for (at, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= 1e-12 * e.abs().max(1.0);
        assert!(same, "element {at}: {f} against {e}");
    }
}
