//! What a call of one of torch's functions would have made: a view into a storage.
//!
//! In goes a node of the pickle, out comes the view as the file describes it; whether the storage is there
//! and long enough is for `place` to say. Source of the argument lists: `torch/_utils.py`,
//! `torch/_tensor.py` and `torch/serialization.py`, and torch_npu's `utils/storage.py`.

use super::Fault;
use super::globals::{Element, Global, Rebuild};
use super::value::{Call, Graph, Node, Value};
use crate::tensor::{DType, Shape};

/// Most axes of a tensor, torch's own limit.
const MAX_AXES: usize = 64;

/// Most functions wrapped around a tensor. Torch writes three (device, class, Parameter).
const MAX_WRAPPED: usize = 8;

/// Most characters of a storage's key, which torch numbers.
pub(super) const MAX_KEY: usize = 200;

/// Most entries of a tensor's metadata: two flags, and what a backend adds.
const MAX_METADATA: usize = 32;

/// A storage as a persistent id names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a str,
    pub(super) element: Element,
    /// Number of elements (bytes, where they have no type).
    pub(super) count: u64,
}

/// A tensor: a view into a storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct View<'a> {
    pub(super) storage: Storage<'a>,
    pub(super) dtype: DType,
    /// Elements before the first.
    pub(super) offset: u64,
    pub(super) shape: Shape,
    /// Elements from one index of an axis to the next.
    pub(super) strides: Vec<u64>,
    /// Whether the real and the imaginary parts are stored with the other sign.
    pub(super) negated: [bool; 2],
    /// Where in the pickle it stands.
    pub(super) byte: usize,
}

/// The tensor that a call makes.
///
/// # Errors
/// Arguments that are not those of the function; elements of a type that is not read.
pub(super) fn view<'a>(graph: &Graph<'a>, call: Call) -> Result<View<'a>, Fault> {
    let mut call = call;
    for _ in 0..MAX_WRAPPED {
        let arguments =
            Arguments { graph, values: graph.elements(call.arguments).unwrap_or_default(), byte: call.byte };
        match call.function {
            Global::Rebuild(Rebuild::Wrapped) => call = arguments.call(0)?,
            Global::Rebuild(Rebuild::FromType) => {
                let Value::Global(function @ Global::Rebuild(_)) = arguments.get(0)? else {
                    return Err(arguments.unlike(0, "a function that rebuilds a tensor"));
                };
                if arguments.get(1)? != Value::Global(Global::Class) {
                    return Err(arguments.unlike(1, "torch.Tensor or Parameter"));
                }
                call = Call { function, arguments: arguments.get(2)?, byte: call.byte };
            }
            Global::Rebuild(kind) => return arguments.view(kind),
            _ => return Err(Fault::at(call.byte, "expected a function that rebuilds a tensor")),
        }
    }
    Err(Fault::at(call.byte, format!("more than {MAX_WRAPPED} functions around a tensor")))
}

/// The storage that a persistent id names.
///
/// # Errors
/// An id that torch would not have written.
pub(super) fn storage<'a>(graph: &Graph<'a>, id: Value, byte: usize) -> Result<Storage<'a>, Fault> {
    // The last is torch's name for views of storages, unused since 0.4.
    let (kind, class, key, count) = match graph.elements(id) {
        Some([kind, class, key, _location, count]) => (kind, class, key, count),
        Some([kind, class, key, _location, count, Value::None]) => (kind, class, key, count),
        Some([_, _, _, _, _, _]) => return Err(Fault::at(byte, "a view of a storage, as torch before 0.4 wrote it")),
        _ => return Err(Fault::at(byte, "expected a storage's class, key, location and length in its id")),
    };
    match (kind, class, key, count) {
        (Value::Text(kind), Value::Global(Global::Storage(element)), Value::Text(key), Value::Int(count))
            if key.len() <= MAX_KEY && kind.len() <= MAX_KEY && graph.text(*kind) == "storage" =>
        {
            let count = u64::try_from(*count)
                .map_err(|_| Fault::at(byte, format!("expected a storage's length, found {count}")))?;
            Ok(Storage { key: graph.text(*key), element: *element, count })
        }
        _ => Err(Fault::at(byte, "expected a storage's class, key, location and length in its id")),
    }
}

/// The arguments of a call.
struct Arguments<'g, 'a> {
    graph: &'g Graph<'a>,
    values: &'g [Value],
    byte: usize,
}

impl<'a> Arguments<'_, 'a> {
    fn get(&self, index: usize) -> Result<Value, Fault> {
        let fewer = || Fault::at(self.byte, format!("expected more than {index} arguments"));
        self.values.get(index).copied().ok_or_else(fewer)
    }

    fn unlike(&self, index: usize, expected: &str) -> Fault {
        let found = self.values.get(index).map_or_else(|| "none".into(), |value| self.graph.describe(*value));
        Fault::at(self.byte, format!("expected {expected} as argument {}, found {found}", index + 1))
    }

    fn call(&self, index: usize) -> Result<Call, Fault> {
        match self.graph.node(self.get(index)?) {
            Some(Node::Call(call)) => Ok(*call),
            _ => Err(self.unlike(index, "a tensor")),
        }
    }

    fn count(&self, index: usize) -> Result<u64, Fault> {
        match self.get(index)? {
            Value::Int(count) => u64::try_from(count).map_err(|_| self.unlike(index, "a number of elements")),
            _ => Err(self.unlike(index, "a number of elements")),
        }
    }

    fn counts<T: TryFrom<i64>>(&self, index: usize) -> Result<Vec<T>, Fault> {
        let unlike = || self.unlike(index, "a tuple of numbers of elements");
        let values = self.graph.elements(self.get(index)?).ok_or_else(unlike)?;
        if values.len() > MAX_AXES {
            return Err(Fault::at(self.byte, format!("expected at most {MAX_AXES} axes, found {}", values.len())));
        }
        let count = |value: &Value| match value {
            Value::Int(count) => T::try_from(*count).ok(),
            _ => None,
        };
        values.iter().map(count).collect::<Option<_>>().ok_or_else(unlike)
    }

    fn view(&self, kind: Rebuild) -> Result<View<'a>, Fault> {
        let storage = match self.graph.node(self.get(0)?) {
            Some(Node::Persistent { id, byte }) => storage(self.graph, *id, *byte)?,
            _ => return Err(self.unlike(0, "a storage")),
        };
        let element = match (kind, self.values.get(6)) {
            (Rebuild::ViewOfBytes, Some(Value::Global(Global::DType(element)))) => *element,
            (Rebuild::ViewOfBytes, _) => return Err(self.unlike(6, "a dtype")),
            _ => storage.element,
        };
        let dtype = element.known().map_err(|what| {
            Fault::at(self.byte, format!("expected a tensor of a type that Goldline reads, found {what}"))
        })?;
        let metadata = match kind {
            Rebuild::View => self.values.get(6),
            Rebuild::ViewOfBytes => self.values.get(7),
            _ => None,
        };
        let [conjugate, negative] = self.flags(metadata)?;
        let (shape, strides): (Shape, Vec<u64>) = (self.counts(2)?, self.counts(3)?);
        if shape.len() != strides.len() {
            let text = format!("expected a stride for each of {} axes, found {}", shape.len(), strides.len());
            return Err(Fault::at(self.byte, text));
        }
        let negated = [negative, negative != conjugate];
        Ok(View { storage, dtype, offset: self.count(1)?, shape, strides, negated, byte: self.byte })
    }

    /// Whether the metadata say that a tensor is the conjugate, or the negative, of what is stored.
    fn flags(&self, metadata: Option<&Value>) -> Result<[bool; 2], Fault> {
        let mut flags = [false; 2];
        let items = match metadata.map(|value| (value, self.graph.node(*value))) {
            None | Some((Value::None, _)) => return Ok(flags),
            Some((_, Some(Node::Dict { from: None, items }))) if items.len() <= MAX_METADATA => items,
            _ => return Err(Fault::at(self.byte, "expected a dict of metadata")),
        };
        for (key, value) in items {
            let Value::Text(key) = key else { continue };
            if key.len() > MAX_KEY {
                continue;
            }
            match (self.graph.text(*key), value) {
                ("conj", Value::Bool(set)) => flags[0] = *set,
                ("neg", Value::Bool(set)) => flags[1] = *set,
                ("conj" | "neg", _) => return Err(Fault::at(self.byte, "expected a bool for a flag of a tensor")),
                // What a backend adds says how its memory was laid out, not what the tensor holds.
                _ => {}
            }
        }
        Ok(flags)
    }
}
