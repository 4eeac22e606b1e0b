//! The tensors of a pickle and their names: its containers, walked in their own order.
//!
//! A name is the path through the containers: keys of dicts and indices of lists, joined by `.`; it is
//! empty for a bare tensor. Scalars, texts and the like are passed over.

use std::collections::HashSet;

use super::Fault;
use super::globals::Element;
use super::rebuild::{self, View};
use super::value::{Graph, Node, Value};
use crate::tensor::DType;

/// Deepest nesting of containers. What people save nests some ten deep; one that contains itself has no end.
const MAX_DEPTH: usize = 100;

/// Most bytes of names and shapes that are listed, for containers may be shared: a list that holds one list
/// twice, and this one another, lists a tensor in a few bytes a million times.
const MAX_LISTED: usize = 64 << 20;

/// A tensor and its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed<'a> {
    pub(super) name: String,
    pub(super) view: View<'a>,
}

impl Listed<'_> {
    /// The tensor as an error names it.
    pub(super) fn title(&self) -> String {
        if self.name.is_empty() { "the tensor".into() } else { format!("tensor `{}`", self.name) }
    }
}

/// All tensors below the pickle's root.
///
/// # Errors
/// Containers nested too deep, or that repeat without end; names that occur twice; what `rebuild` refuses.
pub(super) fn tensors<'a>(graph: &Graph<'a>) -> Result<Vec<Listed<'a>>, Fault> {
    let mut walk = Walk {
        graph,
        listed: Vec::new(),
        names: HashSet::new(),
        path: String::new(),
        // Every element took an opcode of its own, unless containers are shared.
        visits: 2 * graph.opcodes + 1000,
        bytes: MAX_LISTED,
    };
    walk.value(graph.root, 0)?;
    Ok(walk.listed)
}

struct Walk<'g, 'a> {
    graph: &'g Graph<'a>,
    listed: Vec<Listed<'a>>,
    names: HashSet<String>,
    path: String,
    /// Values that may still be visited.
    visits: usize,
    /// Bytes of names and shapes that may still be written.
    bytes: usize,
}

impl<'a> Walk<'_, 'a> {
    fn fault(&self, text: impl Into<String>) -> Fault {
        Fault::at(self.graph.end.saturating_sub(1), text)
    }

    fn value(&mut self, value: Value, depth: usize) -> Result<(), Fault> {
        self.visits = self.visits.checked_sub(1).ok_or_else(|| self.fault(self.repeats()))?;
        let graph = self.graph;
        let Some(node) = graph.node(value) else { return Ok(()) };
        if depth > MAX_DEPTH {
            let text =
                format!("containers nested more than {MAX_DEPTH} deep, or within themselves, at `{}`", self.path);
            return Err(self.fault(text));
        }
        match node {
            Node::List(elements) | Node::Tuple(elements) => {
                for (index, element) in elements.iter().enumerate() {
                    self.entry(Value::Int(index as i64), *element, depth)?;
                }
                Ok(())
            }
            Node::Dict { from, items } => {
                match from.and_then(|from| graph.node(from)) {
                    Some(Node::Dict { from: None, items }) => self.items(items, depth)?,
                    Some(Node::List(pairs) | Node::Tuple(pairs)) => self.pairs(pairs, depth)?,
                    Some(_) => return Err(self.fault(format!("expected pairs to make the dict `{}` of", self.path))),
                    None => {}
                }
                self.items(items, depth)
            }
            Node::Call(call) => {
                let view = rebuild::view(graph, *call)?;
                self.list(view)
            }
            Node::Persistent { id, byte } => {
                let storage = rebuild::storage(graph, *id, *byte)?;
                let dtype = match storage.element {
                    Element::Bytes => DType::U8,
                    element => element.known().map_err(|what| Fault::at(*byte, format!("a storage of {what}")))?,
                };
                let count = usize::try_from(storage.count).map_err(|_| Fault::at(*byte, "a storage beyond memory"))?;
                let (shape, strides) = (vec![count], vec![1]);
                self.list(View { storage, dtype, offset: 0, shape, strides, negated: [false; 2], byte: *byte })
            }
        }
    }

    fn items(&mut self, items: &[(Value, Value)], depth: usize) -> Result<(), Fault> {
        items.iter().try_for_each(|(key, value)| self.entry(*key, *value, depth))
    }

    fn pairs(&mut self, pairs: &[Value], depth: usize) -> Result<(), Fault> {
        pairs.iter().try_for_each(|pair| match self.graph.elements(*pair) {
            Some([key, value]) => self.entry(*key, *value, depth),
            _ => Err(self.fault(format!("expected pairs to make the dict `{}` of", self.path))),
        })
    }

    /// What a container holds under a key.
    fn entry(&mut self, key: Value, value: Value, depth: usize) -> Result<(), Fault> {
        if !matches!(value, Value::Node(_)) {
            self.visits = self.visits.checked_sub(1).ok_or_else(|| self.fault(self.repeats()))?;
            return Ok(());
        }
        let before = self.path.len();
        if depth > 0 {
            self.path.push('.');
        }
        self.push_key(key)?;
        self.spend(self.path.len() - before)?;
        self.value(value, depth + 1)?;
        self.path.truncate(before);
        Ok(())
    }

    fn push_key(&mut self, key: Value) -> Result<(), Fault> {
        let graph = self.graph;
        match key {
            Value::Text(text) => self.path.push_str(graph.text(text)),
            Value::Int(number) => self.path.push_str(&number.to_string()),
            Value::Float(number) => self.path.push_str(&number.to_string()),
            Value::Bool(set) => self.path.push_str(if set { "True" } else { "False" }),
            Value::None => self.path.push_str("None"),
            Value::Node(_) if matches!(graph.node(key), Some(Node::Tuple(_))) => self.push_tuple(key)?,
            other => {
                let found = graph.describe(other);
                return Err(
                    self.fault(format!("expected a key that is text or a number, found {found} in `{}`", self.path))
                );
            }
        }
        Ok(())
    }

    /// A tuple of scalars, as Python writes one.
    fn push_tuple(&mut self, key: Value) -> Result<(), Fault> {
        const LONGEST: usize = 16;
        let elements = self.graph.elements(key).unwrap_or_default();
        let nested = |value: &Value| matches!(value, Value::Node(_));
        if elements.len() > LONGEST || elements.iter().any(nested) {
            return Err(self.fault(format!("expected a key of a few scalars, found a longer tuple in `{}`", self.path)));
        }
        self.path.push('(');
        for (index, element) in elements.iter().enumerate() {
            if index > 0 {
                self.path.push_str(", ");
            }
            let quoted = matches!(element, Value::Text(_));
            self.path.push_str(if quoted { "'" } else { "" });
            self.push_key(*element)?;
            self.path.push_str(if quoted { "'" } else { "" });
        }
        self.path.push(')');
        Ok(())
    }

    fn list(&mut self, view: View<'a>) -> Result<(), Fault> {
        self.spend(2 * self.path.len() + 16 * view.shape.len())?;
        if !self.names.insert(self.path.clone()) {
            return Err(Fault::at(
                view.byte,
                format!("two tensors are named `{}`: rename one of their keys", self.path),
            ));
        }
        self.listed.push(Listed { name: self.path.clone(), view });
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<(), Fault> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| self.fault(self.repeats()))?;
        Ok(())
    }

    fn repeats(&self) -> String {
        format!("containers that repeat each other too often, at `{}`", self.path)
    }
}
