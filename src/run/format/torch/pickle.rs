//! The restricted unpickler: opcodes in, a graph of plain values out.
//!
//! It calls nothing. A call that the pickle asks for becomes a node that says so, and its name must be one
//! of `globals`. Each opcode does work in proportion to the bytes it takes or to the values it takes off
//! the stack, hence time and memory are bounded by the length of the pickle, whatever the memo repeats.

use std::collections::HashMap;
use std::ops::Range;

use super::Fault;
use super::globals::{self, Global};
use super::opcode as op;
use super::value::{Call, Graph, Node, Value};

/// Longest pickle that is read. One of `torch.save` takes some 200 bytes for a tensor, for the elements
/// lie outside it: this is room for 300,000 tensors.
pub(super) const MAX_BYTES: u64 = 64 << 20;

/// Most opcodes that are followed. A tensor takes some 30: this is room for 130,000 tensors, and keeps what
/// a hostile pickle of one-byte opcodes can build below half a gigabyte.
const MAX_OPCODES: usize = 4 << 20;

/// Reads the pickle at the start of `bytes`.
///
/// # Errors
/// What is damaged, too long, or more than tensors in plain containers.
pub(super) fn read(bytes: &[u8]) -> Result<Graph<'_>, Fault> {
    let mut machine = Machine {
        bytes,
        at: 0,
        opcode: 0,
        graph: Graph::new(bytes),
        stack: Vec::new(),
        marks: Vec::new(),
        memo: HashMap::new(),
    };
    while !machine.step()? {}
    machine.graph.end = machine.at;
    Ok(machine.graph)
}

struct Machine<'a> {
    bytes: &'a [u8],
    /// The next byte.
    at: usize,
    /// Where the present opcode stands.
    opcode: usize,
    graph: Graph<'a>,
    stack: Vec<Value>,
    /// Heights of the stack at which a mark lies.
    marks: Vec<usize>,
    memo: HashMap<u32, Value>,
}

impl<'a> Machine<'a> {
    fn fault(&self, text: impl Into<String>) -> Fault {
        Fault::at(self.opcode, text)
    }

    /// Follows one opcode; true after the last.
    fn step(&mut self) -> Result<bool, Fault> {
        self.opcode = self.at;
        let [code] = self.take()?;
        self.graph.opcodes += 1;
        if self.graph.opcodes > MAX_OPCODES {
            return Err(self.fault(format!("more than {MAX_OPCODES} opcodes, too many for a file of tensors")));
        }
        match code {
            op::STOP => {
                self.graph.root = self.pop()?;
                return Ok(true);
            }
            op::PROTO => self.protocol()?,
            op::FRAME => drop(self.take::<8>()?),
            op::MARK => self.marks.push(self.stack.len()),
            op::POP => self.discard()?,
            op::POP_MARK => drop(self.pop_to_mark()?),
            op::DUP => {
                let top = self.top()?;
                self.stack.push(top);
            }
            op::BINGET | op::LONG_BINGET => self.recall(code == op::BINGET)?,
            op::BINPUT | op::LONG_BINPUT => {
                let key = self.memo_key(code == op::BINPUT)?;
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            op::MEMOIZE => {
                let key = u32::try_from(self.memo.len()).map_err(|_| self.fault("the memo is full"))?;
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            op::GLOBAL => {
                let (module, name) = (self.line()?, self.line()?);
                self.name(module, name)?;
            }
            op::STACK_GLOBAL => self.name_from_stack()?,
            op::REDUCE | op::NEWOBJ => self.call()?,
            op::BUILD => self.state()?,
            op::BINPERSID => {
                let id = self.pop()?;
                self.push_node(Node::Persistent { id, byte: self.opcode })?;
            }
            _ if self.scalar(code)? || self.container(code)? => {}
            other => {
                return Err(self.fault(format!("expected an opcode that torch.save writes, found {other:#04x}")));
            }
        }
        Ok(false)
    }

    fn protocol(&mut self) -> Result<(), Fault> {
        let [version] = self.take()?;
        if !(1..=5).contains(&version) {
            return Err(self.fault(format!("expected pickle protocol 1 to 5, found {version}")));
        }
        Ok(())
    }

    /// Scalars; false for another opcode.
    fn scalar(&mut self, code: u8) -> Result<bool, Fault> {
        let value = match code {
            op::NONE => Value::None,
            op::NEWTRUE => Value::Bool(true),
            op::NEWFALSE => Value::Bool(false),
            op::INT | op::LONG => number(self.line()?),
            op::BININT => Value::Int(i32::from_le_bytes(self.take()?).into()),
            op::BININT1 => Value::Int(u8::from_le_bytes(self.take()?).into()),
            op::BININT2 => Value::Int(u16::from_le_bytes(self.take()?).into()),
            op::LONG1 | op::LONG4 => {
                let range = self.counted(if code == op::LONG1 { 1 } else { 4 })?;
                long(self.bytes.get(range).unwrap_or_default())
            }
            op::BINFLOAT => Value::Float(f64::from_be_bytes(self.take()?)),
            op::BINUNICODE | op::BINSTRING => self.text(4)?,
            op::SHORT_BINUNICODE | op::SHORT_BINSTRING => self.text(1)?,
            op::BINUNICODE8 => self.text(8)?,
            op::BINBYTES => self.other(4)?,
            op::SHORT_BINBYTES => self.other(1)?,
            op::BINBYTES8 | op::BYTEARRAY8 => self.other(8)?,
            _ => return Ok(false),
        };
        self.stack.push(value);
        Ok(true)
    }

    /// Containers; false for another opcode.
    fn container(&mut self, code: u8) -> Result<bool, Fault> {
        match code {
            op::EMPTY_LIST | op::EMPTY_SET => self.push_node(Node::List(Vec::new()))?,
            op::EMPTY_TUPLE => self.push_node(Node::Tuple(Vec::new()))?,
            op::EMPTY_DICT => self.push_node(Node::Dict { from: None, items: Vec::new() })?,
            op::LIST => {
                let elements = self.pop_to_mark()?;
                self.push_node(Node::List(elements))?;
            }
            op::TUPLE | op::FROZENSET => {
                let elements = self.pop_to_mark()?;
                self.push_node(Node::Tuple(elements))?;
            }
            op::TUPLE1 | op::TUPLE2 | op::TUPLE3 => {
                let count = usize::from(code - op::TUPLE1) + 1;
                let elements = self.pop_last(count)?;
                self.push_node(Node::Tuple(elements))?;
            }
            op::DICT => {
                let items = self.pop_to_mark()?;
                self.push_node(Node::Dict { from: None, items: Vec::new() })?;
                self.set_items(items)?;
            }
            op::APPEND => {
                let element = self.pop_last(1)?;
                self.append(element)?;
            }
            op::APPENDS | op::ADDITEMS => {
                let elements = self.pop_to_mark()?;
                self.append(elements)?;
            }
            op::SETITEM => {
                let item = self.pop_last(2)?;
                self.set_items(item)?;
            }
            op::SETITEMS => {
                let items = self.pop_to_mark()?;
                self.set_items(items)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn append(&mut self, elements: Vec<Value>) -> Result<(), Fault> {
        let target = self.top()?;
        match self.graph.node_mut(target) {
            Some(Node::List(list)) => list.extend(elements),
            _ => return Err(self.fault(format!("expected a list to append to, found {}", self.graph.describe(target)))),
        }
        Ok(())
    }

    fn set_items(&mut self, flat: Vec<Value>) -> Result<(), Fault> {
        let target = self.top()?;
        let (pairs, odd) = flat.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(self.fault("expected as many values as keys, found one key more"));
        }
        match self.graph.node_mut(target) {
            Some(Node::Dict { items, .. }) => items.extend(pairs.iter().map(|[key, value]| (*key, *value))),
            _ => {
                return Err(
                    self.fault(format!("expected a dict to set items of, found {}", self.graph.describe(target)))
                );
            }
        }
        Ok(())
    }

    fn name(&mut self, module: &str, name: &str) -> Result<(), Fault> {
        let global = globals::lookup(module, name).map_err(|text| self.fault(text))?;
        self.stack.push(Value::Global(global));
        Ok(())
    }

    fn name_from_stack(&mut self) -> Result<(), Fault> {
        let (name, module) = (self.pop()?, self.pop()?);
        match (module, name) {
            (Value::Text(module), Value::Text(name)) => self.name(self.graph.text(module), self.graph.text(name)),
            _ => Err(self.fault("expected module and name of an object as text")),
        }
    }

    /// A call becomes the value that it would give as far as tensors need it.
    fn call(&mut self) -> Result<(), Fault> {
        let (arguments, function) = (self.pop()?, self.pop()?);
        if !matches!(self.graph.node(arguments), Some(Node::Tuple(_))) {
            let found = self.graph.describe(arguments);
            return Err(self.fault(format!("expected a tuple of arguments, found {found}")));
        }
        let first = self.graph.elements(arguments).and_then(<[Value]>::first).copied();
        match function {
            Value::Global(Global::Dict) => self.push_node(Node::Dict { from: first, items: Vec::new() }),
            Value::Global(Global::Sequence) => match first {
                Some(elements) if self.graph.elements(elements).is_some() => {
                    self.stack.push(elements);
                    Ok(())
                }
                None => self.push_node(Node::List(Vec::new())),
                Some(other) => {
                    let found = self.graph.describe(other);
                    Err(self.fault(format!("expected the elements of a sequence, found {found}")))
                }
            },
            Value::Global(Global::Scalar) => {
                self.stack.push(Value::Other);
                Ok(())
            }
            Value::Global(global @ Global::Rebuild(_)) => {
                self.push_node(Node::Call(Call { function: global, arguments, byte: self.opcode }))
            }
            other => {
                let found = self.graph.describe(other);
                Err(self.fault(format!("expected a function that rebuilds a tensor, found {found}")))
            }
        }
    }

    /// Attributes that an object gets are no data: `_metadata` of a state dict, the byte order of a
    /// numpy dtype.
    fn state(&mut self) -> Result<(), Fault> {
        self.pop()?;
        let target = self.top()?;
        match (target, self.graph.node(target)) {
            (Value::Other, _) | (_, Some(Node::Dict { .. })) => Ok(()),
            (other, _) => {
                let found = self.graph.describe(other);
                Err(self.fault(format!("expected a dict to set attributes of, found {found}")))
            }
        }
    }

    fn memo_key(&mut self, short: bool) -> Result<u32, Fault> {
        Ok(if short { self.take::<1>()?[0].into() } else { u32::from_le_bytes(self.take()?) })
    }

    fn recall(&mut self, short: bool) -> Result<(), Fault> {
        let key = self.memo_key(short)?;
        let value = self.memo.get(&key).copied();
        self.stack.push(value.ok_or_else(|| self.fault(format!("the memo has no entry {key}")))?);
        Ok(())
    }

    fn push_node(&mut self, node: Node) -> Result<(), Fault> {
        let value = self.graph.add(node).ok_or_else(|| self.fault("too many objects"))?;
        self.stack.push(value);
        Ok(())
    }

    /// Height of the stack above the last mark.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Value, Fault> {
        match self.stack.last() {
            Some(value) if self.stack.len() > self.floor() => Ok(*value),
            _ => Err(self.fault("expected a value on the stack, found none")),
        }
    }

    fn pop(&mut self) -> Result<Value, Fault> {
        let value = self.top()?;
        self.stack.pop();
        Ok(value)
    }

    /// Drops the topmost value, or the mark where it lies on top.
    fn discard(&mut self) -> Result<(), Fault> {
        if self.marks.last() == Some(&self.stack.len()) {
            self.marks.pop();
            return Ok(());
        }
        self.pop().map(drop)
    }

    fn pop_last(&mut self, count: usize) -> Result<Vec<Value>, Fault> {
        match self.stack.len().checked_sub(count) {
            Some(start) if start >= self.floor() => Ok(self.stack.split_off(start)),
            _ => Err(self.fault(format!("expected {count} values on the stack, found fewer"))),
        }
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Value>, Fault> {
        let mark = self.marks.pop().ok_or_else(|| self.fault("expected a mark on the stack, found none"))?;
        Ok(self.stack.split_off(mark.min(self.stack.len())))
    }

    fn short(&self) -> Fault {
        let text = format!("the pickle ends early, after {} bytes", self.bytes.len());
        Fault { short: true, ..self.fault(text) }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let chunk = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk::<N>()).copied();
        let chunk = chunk.ok_or_else(|| self.short())?;
        self.at += N;
        Ok(chunk)
    }

    /// A line without its end.
    fn line(&mut self) -> Result<&'a str, Fault> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or_else(|| self.short())?;
        self.at += length + 1;
        let line = rest.get(..length).unwrap_or_default();
        std::str::from_utf8(line).map_err(|_| self.fault("expected a line of text, found bytes that are not UTF-8"))
    }

    /// The range of bytes whose length the next `width` bytes give.
    fn counted(&mut self, width: usize) -> Result<Range<usize>, Fault> {
        let length = match width {
            1 => u64::from(u8::from_le_bytes(self.take()?)),
            4 => u64::from(u32::from_le_bytes(self.take()?)),
            _ => u64::from_le_bytes(self.take()?),
        };
        let end = usize::try_from(length).ok().and_then(|length| self.at.checked_add(length));
        let end = end.filter(|end| *end <= self.bytes.len()).ok_or_else(|| self.short())?;
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn text(&mut self, width: usize) -> Result<Value, Fault> {
        let range = self.counted(width)?;
        Ok(self.graph.text_value(range))
    }

    fn other(&mut self, width: usize) -> Result<Value, Fault> {
        self.counted(width)?;
        Ok(Value::Other)
    }
}

/// A number in text: `00` and `01` are the bools of protocol 1, a long ends in `L`.
fn number(line: &str) -> Value {
    match line {
        "00" => Value::Bool(false),
        "01" => Value::Bool(true),
        _ => line.strip_suffix('L').unwrap_or(line).parse().map_or(Value::Other, Value::Int),
    }
}

/// A little-endian number in two's complement, of no bytes for zero.
fn long(bytes: &[u8]) -> Value {
    let mut wide = [if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 }; 8];
    match wide.get_mut(..bytes.len()) {
        Some(start) => start.copy_from_slice(bytes),
        None => return Value::Other,
    }
    Value::Int(i64::from_le_bytes(wide))
}
