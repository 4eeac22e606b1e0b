//! What a pickle builds: values, and nodes that refer to each other by number.
//!
//! Nodes lie in one list instead of owning each other, since a pickle may tie them into cycles and nest
//! them as deep as it is long.

use std::ops::Range;

use super::globals::Global;

/// A value on the unpickler's stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// Text that stands in the pickle.
    Text(Text),
    /// What matters to no tensor: bytes, numbers beyond 64 bits, devices, numpy scalars.
    Other,
    Global(Global),
    Node(NodeId),
}

/// Where in the pickle a text stands; known to be UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Text {
    start: u32,
    end: u32,
}

impl Text {
    /// Length in bytes.
    pub(super) fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// Index of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeId(u32);

/// What values can refer to.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// A list or a set.
    List(Vec<Value>),
    Tuple(Vec<Value>),
    /// A dict of any class: what it was made from (a dict or a list of pairs), and what was set later.
    Dict {
        from: Option<Value>,
        items: Vec<(Value, Value)>,
    },
    /// A call of one of torch's functions, which `rebuild` reads.
    Call(Call),
    /// A persistent id: torch names storages so.
    Persistent {
        id: Value,
        byte: usize,
    },
}

/// A call that the pickle asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Call {
    pub(super) function: Global,
    /// Its arguments, a tuple.
    pub(super) arguments: Value,
    /// Where in the pickle it stands.
    pub(super) byte: usize,
}

/// All that a pickle built.
#[derive(Debug)]
pub(super) struct Graph<'a> {
    bytes: &'a [u8],
    nodes: Vec<Node>,
    /// What the pickle as a whole is.
    pub(super) root: Value,
    /// Number of opcodes that it took.
    pub(super) opcodes: usize,
    /// Length of the pickle.
    pub(super) end: usize,
}

impl<'a> Graph<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, nodes: Vec::new(), root: Value::None, opcodes: 0, end: 0 }
    }

    /// Adds a node; `None` where there are more than a 32-bit number counts.
    pub(super) fn add(&mut self, node: Node) -> Option<Value> {
        let id = NodeId(u32::try_from(self.nodes.len()).ok()?);
        self.nodes.push(node);
        Some(Value::Node(id))
    }

    /// The node that a value refers to.
    pub(super) fn node(&self, value: Value) -> Option<&Node> {
        match value {
            Value::Node(NodeId(id)) => self.nodes.get(id as usize),
            _ => None,
        }
    }

    /// The same, to be changed.
    pub(super) fn node_mut(&mut self, value: Value) -> Option<&mut Node> {
        match value {
            Value::Node(NodeId(id)) => self.nodes.get_mut(id as usize),
            _ => None,
        }
    }

    /// All nodes, in the order in which they were made.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The elements of a list or tuple.
    pub(super) fn elements(&self, value: Value) -> Option<&[Value]> {
        match self.node(value)? {
            Node::List(elements) | Node::Tuple(elements) => Some(elements),
            _ => None,
        }
    }

    /// The text in these bytes of the pickle; anything else where they are not UTF-8.
    pub(super) fn text_value(&self, range: Range<usize>) -> Value {
        let is_text = self.bytes.get(range.clone()).is_some_and(|bytes| std::str::from_utf8(bytes).is_ok());
        match (u32::try_from(range.start), u32::try_from(range.end)) {
            (Ok(start), Ok(end)) if is_text => Value::Text(Text { start, end }),
            _ => Value::Other,
        }
    }

    /// What a text says.
    pub(super) fn text(&self, text: Text) -> &'a str {
        let bytes = self.bytes.get(text.start as usize..text.end as usize).unwrap_or_default();
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// What a value is, in words.
    pub(super) fn describe(&self, value: Value) -> String {
        match value {
            Value::None => "None".into(),
            Value::Bool(_) => "a bool".into(),
            Value::Int(n) => n.to_string(),
            Value::Float(x) => x.to_string(),
            Value::Text(text) => format!("`{}`", self.text(text)),
            Value::Other => "a scalar".into(),
            Value::Global(global) => global.describe().into(),
            Value::Node(_) => match self.node(value) {
                Some(Node::List(_)) => "a list".into(),
                Some(Node::Tuple(_)) => "a tuple".into(),
                Some(Node::Dict { .. }) => "a dict".into(),
                Some(Node::Call(_)) => "a tensor".into(),
                Some(Node::Persistent { .. }) => "a storage".into(),
                None => "nothing".into(),
            },
        }
    }
}
