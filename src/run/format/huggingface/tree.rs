//! The JSON of a debug tree: calls in the order in which they ended, with the tensors each read and wrote.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::super::json;
use crate::error::{Error, Result};
use crate::run::RecordedStats;
use crate::tensor::{DType, Shape, element_count};

/// A debug tree.
pub(super) struct Tree {
    /// The model's class.
    pub(super) class: String,
    /// The model's inputs (one call without inputs), then its modules.
    pub(super) calls: Vec<Call>,
    /// Every file that the tree names, those of modules around others too.
    pub(super) named: BTreeSet<String>,
}

/// One call of a module.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Path of the module, with the model's class in front.
    pub(super) name: String,
    /// Whether this is no module but what the model was given.
    pub(super) is_given: bool,
    /// Whether this is the model itself.
    pub(super) is_whole: bool,
    pub(super) inputs: Vec<Slot>,
    pub(super) outputs: Vec<Slot>,
}

impl Call {
    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.inputs.iter().chain(&self.outputs)
    }

    pub(super) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.inputs.iter_mut().chain(&mut self.outputs)
    }
}

/// A tensor that a call read or wrote.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Its place among the arguments or results (`hidden_states`, `0`), empty where there is but one.
    pub(super) key: String,
    /// Name of its file beside the tree.
    pub(super) file: Option<String>,
    /// When that file was written, counted over the tree.
    pub(super) time: u64,
    pub(super) dtype: Option<DType>,
    pub(super) shape: Option<Shape>,
    /// What was printed of it.
    pub(super) stats: Option<RecordedStats>,
}

#[derive(Deserialize)]
struct Node {
    module_path: String,
    #[serde(default)]
    inputs: Value,
    #[serde(default)]
    outputs: Value,
    children: Option<Vec<Node>>,
}

/// Reads the tree in `bytes`, the content of the file at `path`.
///
/// # Errors
/// No JSON of this form, nested too deeply, or a shape that is none.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Tree> {
    let root: Node = json::parse(path, bytes)?;
    let mut reader = Reader { path, time: 0, calls: Vec::new(), named: BTreeSet::new() };
    let given = Call {
        name: root.module_path.clone(),
        is_given: true,
        outputs: reader.slots(&root.module_path, &root.inputs)?,
        ..Call::default()
    };
    reader.calls.push(given);
    for child in root.children.iter().flatten() {
        reader.visit(child)?;
    }
    let outputs = reader.slots(&root.module_path, &root.outputs)?;
    if !outputs.is_empty() {
        reader.calls.push(Call { name: root.module_path.clone(), is_whole: true, outputs, ..Call::default() });
    }
    Ok(Tree { class: root.module_path, calls: reader.calls, named: reader.named })
}

struct Reader<'a> {
    path: &'a Path,
    time: u64,
    calls: Vec<Call>,
    named: BTreeSet<String>,
}

impl Reader<'_> {
    /// A module after those it holds; serde_json bounds how deep they nest. One without outputs is no
    /// layer: the debugger records them of the innermost modules alone.
    fn visit(&mut self, node: &Node) -> Result<()> {
        let inputs = self.slots(&node.module_path, &node.inputs)?;
        for child in node.children.iter().flatten() {
            self.visit(child)?;
        }
        let outputs = self.slots(&node.module_path, &node.outputs)?;
        if !outputs.is_empty() {
            self.calls.push(Call { name: node.module_path.clone(), inputs, outputs, ..Call::default() });
        }
        Ok(())
    }

    fn slots(&mut self, module: &str, value: &Value) -> Result<Vec<Slot>> {
        let mut slots = Vec::new();
        self.collect(module, value, "", &mut slots)?;
        Ok(slots)
    }

    fn collect(&mut self, module: &str, value: &Value, key: &str, slots: &mut Vec<Slot>) -> Result<()> {
        let below = |part: &str| match key {
            "" if matches!(part, "args" | "kwargs") => String::new(),
            "" => part.to_string(),
            _ => format!("{key}.{part}"),
        };
        match value {
            Value::Object(fields) => match (fields.get("shape"), fields.get("dtype")) {
                (Some(Value::String(shape)), Some(Value::String(dtype))) => {
                    slots.push(self.tensor(module, key, shape, dtype, value)?);
                }
                _ => {
                    for (part, value) in fields {
                        self.collect(module, value, &below(part), slots)?;
                    }
                }
            },
            Value::Array(items) => {
                for (at, value) in items.iter().enumerate() {
                    self.collect(module, value, &below(&at.to_string()), slots)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn tensor(&mut self, module: &str, key: &str, shape: &str, dtype: &str, fields: &Value) -> Result<Slot> {
        self.time += 1;
        let shape = shape_of(shape).ok_or_else(|| {
            let text = format_args!("module `{module}`: expected a shape such as torch.Size([2, 3]), found `{shape}`");
            Error::at(self.path, text)
        })?;
        let dtype = DType::parse(dtype);
        let file = fields.get("value").and_then(Value::as_str);
        let file = file.map(|name| name.strip_prefix("./").unwrap_or(name).to_string());
        self.named.extend(file.clone());
        Ok(Slot {
            key: key.to_string(),
            file,
            time: self.time,
            stats: dtype.map(|dtype| printed(dtype, &shape, fields)),
            dtype,
            shape: Some(shape),
        })
    }
}

/// `torch.Size([2, 3])`.
fn shape_of(text: &str) -> Option<Shape> {
    let inside = text.strip_prefix("torch.Size([")?.strip_suffix("])")?;
    if inside.trim().is_empty() {
        return Some(Shape::new());
    }
    let shape: Shape = inside.split(',').map(|extent| extent.trim().parse().ok()).collect::<Option<_>>()?;
    element_count(&shape).map(|_| shape)
}

/// What was printed of a tensor. Five digits are too few to judge float32 by; of 16-bit floats they tell
/// more than their precision, and the norm follows from mean and (unbiased) standard deviation.
fn printed(dtype: DType, shape: &[usize], fields: &Value) -> RecordedStats {
    let mut stats = RecordedStats { dtype: Some(dtype), shape: Some(shape.to_vec()), ..RecordedStats::default() };
    if !matches!(dtype, DType::F16 | DType::BF16) {
        return stats;
    }
    let number = |key: &str| {
        let text = fields.get(key)?.as_str()?.strip_prefix("tensor(")?;
        let number: f64 = text.split([',', ')']).next()?.trim().parse().ok()?;
        number.is_finite().then_some(number)
    };
    (stats.min, stats.max, stats.mean) = (number("min"), number("max"), number("mean"));
    let elements = shape.iter().product::<usize>() as f64;
    stats.l2 = stats
        .mean
        .zip(number("std"))
        .map(|(mean, std)| (elements * mean * mean + (elements - 1.0).max(0.0) * std * std).sqrt());
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read_as_torch_prints_them() {
        assert_eq!(shape_of("torch.Size([1, 3])"), Some(vec![1, 3]));
        assert_eq!(shape_of("torch.Size([])"), Some(vec![]));
        for bad in ["[1]", "torch.Size([-1])", "torch.Size([1,])", "torch.Size([99999999999, 99999999999])"] {
            assert_eq!(shape_of(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_norm_follows_from_what_was_printed() {
        // [1, 2, 3]: mean 2, unbiased deviation 1, norm sqrt(14).
        let fields = serde_json::json!({"mean": "tensor(2.0000e+00, dtype=torch.float16)", "std": "tensor(1.)"});
        let stats = printed(DType::F16, &[3], &fields);
        assert!((stats.l2.unwrap() - 14f64.sqrt()).abs() < 1e-12);
        assert_eq!(printed(DType::F32, &[3], &fields).l2, None);
    }
}
