//! Calls as a recorder would have written them, for the tests of the families here.

use ndarray::{ArrayD, IxDyn};
use serde_json::Value;

use crate::replay::{Call, Operand, OutputSpec, Reference, References, Unmodelled, replay};
use crate::run::Attrs;
use crate::tensor::DType;

/// A call under construction.
pub(in crate::replay) struct Recorded {
    function: String,
    attrs: Option<Attrs>,
    inputs: Vec<Operand>,
    outputs: Vec<OutputSpec>,
}

/// A call of `function` whose attributes were not recorded.
pub(in crate::replay) fn recorded(function: &str) -> Recorded {
    Recorded { function: function.to_string(), attrs: None, inputs: Vec::new(), outputs: Vec::new() }
}

impl Recorded {
    /// A tensor argument; an empty name for one that was recorded without.
    pub(in crate::replay) fn input(self, name: &str, shape: &[usize], values: &[f64]) -> Self {
        self.typed(name, DType::F32, shape, values)
    }

    pub(in crate::replay) fn array(self, name: &str, array: &ArrayD<f64>) -> Self {
        let values: Vec<_> = array.iter().copied().collect();
        self.input(name, array.shape(), &values)
    }

    pub(in crate::replay) fn typed(mut self, name: &str, dtype: DType, shape: &[usize], values: &[f64]) -> Self {
        let value = ArrayD::from_shape_vec(IxDyn(shape), values.to_vec()).unwrap().into_shared();
        let name = (!name.is_empty()).then(|| name.to_string());
        self.inputs.push(Operand { name, dtype, value });
        self
    }

    pub(in crate::replay) fn attrs(mut self, attrs: Value) -> Self {
        self.attrs = Some(attrs.as_object().unwrap().clone().into_iter().collect());
        self
    }

    pub(in crate::replay) fn output(self, shape: &[usize]) -> Self {
        self.output_of(DType::F32, shape)
    }

    pub(in crate::replay) fn output_of(mut self, dtype: DType, shape: &[usize]) -> Self {
        self.outputs.push(OutputSpec { dtype, shape: shape.to_vec() });
        self
    }

    pub(in crate::replay) fn replay(&self) -> Result<References, Unmodelled> {
        replay(&Call {
            function: self.function.clone(),
            attrs: self.attrs.as_ref(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
        })
    }

    /// The reference of the first output.
    pub(in crate::replay) fn first(&self) -> Reference {
        self.replay().unwrap().swap_remove(0).unwrap()
    }

    /// The values of the first output.
    pub(in crate::replay) fn values(&self) -> Vec<f64> {
        self.first().value.iter().copied().collect()
    }

    /// Why the call is not modelled.
    pub(in crate::replay) fn refusal(&self) -> String {
        match self.replay() {
            Ok(_) => panic!("{} is modelled", self.function),
            Err(Unmodelled(reason)) => reason,
        }
    }
}

/// Numbers that look random and follow from `seed` alone.
pub(in crate::replay) fn noise(shape: &[usize], seed: u64) -> ArrayD<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    })
}

/// That two arrays agree to f64's rounding of a few hundred operations.
pub(in crate::replay) fn assert_close(found: &ArrayD<f64>, expected: &ArrayD<f64>) {
    assert_eq!(found.shape(), expected.shape());
    for (index, &value) in expected.indexed_iter() {
        let near = (found[&index] - value).abs() <= 1e-12 * (1.0 + value.abs());
        assert!(near || found[&index].to_bits() == value.to_bits(), "at {index:?}: {} for {value}", found[&index]);
    }
}
