//! One recorded call: inputs, attributes, and what it wrote.

use ndarray::{ArcArray, IxDyn};
use serde_json::Value;

use super::Unmodelled;
use crate::run::Attrs;
use crate::tensor::DType;

/// A tensor argument.
#[derive(Debug, Clone)]
pub struct Operand {
    /// Argument name, where recorded.
    pub name: Option<String>,
    /// Recorded element type.
    pub dtype: DType,
    /// Value in f64, in the recorded shape.
    pub value: ArcArray<f64, IxDyn>,
}

/// Dtype and shape of a recorded output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputSpec {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Vec<usize>,
}

/// One recorded call.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Function name without namespace, overload and in-place underscore (`addmm`, `gelu`).
    pub function: String,
    /// Attributes; `None` where they were not recorded.
    pub attrs: Option<&'a Attrs>,
    /// Tensor arguments in recorded order.
    pub inputs: Vec<Operand>,
    /// What was written.
    pub outputs: Vec<OutputSpec>,
}

/// The function's own name in a recorded operator or schema: `aten::add_.Tensor` -> `add`,
/// `torch.nn.functional.gelu` -> `gelu`, `_softmax` -> `_softmax`.
pub fn function_name(recorded: &str) -> String {
    let name = recorded.rsplit("::").next().unwrap_or(recorded);
    let name = match name.split_once('.') {
        // `aten.add.Tensor`, `torch.nn.functional.gelu`: a namespace stands before the name.
        Some(("aten" | "torch" | "prims" | "npu" | "torch_npu", rest)) => {
            rest.trim_start_matches("nn.functional.").split('.').next().unwrap_or(rest)
        }
        Some((name, _overload)) => name,
        None => name,
    };
    let in_place = name.len() > 1 && name.ends_with('_') && !name.ends_with("__");
    if in_place { name[..name.len() - 1].to_string() } else { name.to_string() }
}

impl Call<'_> {
    /// The function's name.
    pub fn function(&self) -> &str {
        &self.function
    }

    /// The tensor argument with one of these names.
    pub fn named(&self, names: &[&str]) -> Option<&Operand> {
        names.iter().find_map(|name| self.inputs.iter().find(|input| input.name.as_deref() == Some(name)))
    }

    /// The tensor argument with one of these names; where no argument names were recorded at all, the
    /// one at `position`.
    ///
    /// # Errors
    /// There is none.
    pub fn input(&self, names: &[&str], position: usize) -> Result<&Operand, Unmodelled> {
        self.optional_input(names, position)
            .ok_or_else(|| Unmodelled(format!("argument {} of {} was not recorded", names[0], self.function)))
    }

    /// Like [`Call::input`], for an argument that may be absent.
    pub fn optional_input(&self, names: &[&str], position: usize) -> Option<&Operand> {
        let unnamed = self.inputs.iter().all(|input| input.name.is_none());
        self.named(names).or_else(|| if unnamed { self.inputs.get(position) } else { None })
    }

    /// All entries of a tensor-list argument.
    pub fn list(&self, name: &str) -> Vec<&Operand> {
        self.inputs.iter().filter(|input| input.name.as_deref() == Some(name)).collect()
    }

    /// An attribute: `Err` where attributes were not recorded, `Ok(None)` where it is absent or null.
    ///
    /// # Errors
    /// Attributes were not recorded, so its value is not known.
    pub fn attr(&self, name: &str) -> Result<Option<&Value>, Unmodelled> {
        match self.attrs {
            Some(attrs) => Ok(attrs.get(name).filter(|value| !value.is_null())),
            None => Err(Unmodelled(format!("attributes of {} were not recorded", self.function))),
        }
    }

    /// A number attribute (`"inf"`, `"-inf"`, `"nan"` as the format spells them), or its default
    /// where it is absent.
    ///
    /// # Errors
    /// Attributes were not recorded, or the value is no number.
    pub fn number(&self, name: &str, default: Option<f64>) -> Result<f64, Unmodelled> {
        let value = match self.attr(name)? {
            None => default,
            Some(Value::String(text)) => match text.as_str() {
                "inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                "nan" => Some(f64::NAN),
                _ => None,
            },
            Some(Value::Bool(flag)) => Some(f64::from(u8::from(*flag))),
            Some(value) => value.as_f64(),
        };
        value.ok_or_else(|| Unmodelled(format!("attribute {name} of {} is no number", self.function)))
    }

    /// An integer attribute, or its default where it is absent.
    ///
    /// # Errors
    /// Attributes were not recorded, or the value is no integer.
    pub fn integer(&self, name: &str, default: Option<i64>) -> Result<i64, Unmodelled> {
        let value = match self.attr(name)? {
            None => default,
            Some(value) => value.as_i64(),
        };
        value.ok_or_else(|| Unmodelled(format!("attribute {name} of {} is no integer", self.function)))
    }

    /// A boolean attribute, or its default where it is absent.
    ///
    /// # Errors
    /// Attributes were not recorded, or the value is no boolean.
    pub fn flag(&self, name: &str, default: bool) -> Result<bool, Unmodelled> {
        match self.attr(name)? {
            None => Ok(default),
            Some(value) => value
                .as_bool()
                .ok_or_else(|| Unmodelled(format!("attribute {name} of {} is no boolean", self.function))),
        }
    }

    /// A text attribute.
    ///
    /// # Errors
    /// Attributes were not recorded, or the value is no text.
    pub fn text(&self, name: &str) -> Result<Option<&str>, Unmodelled> {
        match self.attr(name)? {
            None => Ok(None),
            Some(value) => value
                .as_str()
                .map(Some)
                .ok_or_else(|| Unmodelled(format!("attribute {name} of {} is no text", self.function))),
        }
    }

    /// A list of integers (a single integer counts as a list of one); `None` where it is absent.
    ///
    /// # Errors
    /// Attributes were not recorded, or the value is no list of integers.
    pub fn integers(&self, name: &str) -> Result<Option<Vec<i64>>, Unmodelled> {
        let wrong = || Unmodelled(format!("attribute {name} of {} is no list of integers", self.function));
        match self.attr(name)? {
            None => Ok(None),
            Some(Value::Array(values)) => {
                values.iter().map(|v| v.as_i64().ok_or_else(wrong)).collect::<Result<_, _>>().map(Some)
            }
            Some(value) => value.as_i64().map(|v| Some(vec![v])).ok_or_else(wrong),
        }
    }

    /// An axis attribute, negative values counted from the end.
    ///
    /// # Errors
    /// Attributes were not recorded, it is absent without default, or out of range for `rank`.
    pub fn axis(&self, name: &str, default: Option<i64>, rank: usize) -> Result<usize, Unmodelled> {
        resolve_axis(self.integer(name, default)?, rank)
            .ok_or_else(|| Unmodelled(format!("attribute {name} of {} is out of range", self.function)))
    }
}

/// An axis of a tensor of `rank` axes, negative values counted from the end; a 0-d tensor has axis 0
/// and -1 as torch has it.
pub fn resolve_axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank.max(1)).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    (0..rank).contains(&axis).then_some(axis as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_overloads_and_underscores_come_off() {
        for (recorded, name) in [
            ("aten::add_.Tensor", "add"),
            ("aten.addmm.default", "addmm"),
            ("torch.nn.functional.gelu", "gelu"),
            ("_softmax", "_softmax"),
            ("__mul__", "__mul__"),
            ("relu_", "relu"),
            ("linear", "linear"),
        ] {
            assert_eq!(function_name(recorded), name, "{recorded}");
        }
    }
}
