//! In which precision calls ran: what autocast lowered, as far as the dtypes of arguments and results tell.
//!
//! msprobe hooks above autocast, so that a product which ran in 16 bits is recorded with operands of 32. In go
//! the entries, out comes the dtype in which a call, or a module around such calls, computed.

use std::collections::{BTreeMap, HashMap};

use super::dump::{Dump, Entry};
use super::key;
use super::layers::arguments;
use super::node::{Node, Recorded};
use super::signatures::{Dialect, signatures};
use super::surroundings::Surroundings;
use crate::op::{Autocast, Class, Op};
use crate::run::{LayerKind, Pass};
use crate::tensor::DType;

/// Most modules around a call.
const DEEPEST: usize = 256;

/// What is known of the precision of a dump.
#[derive(Debug, Default)]
pub(super) struct Precision<'a> {
    /// The dtype in which forward calls of these keys computed, where that is coarser than what they read.
    lowered: HashMap<&'a str, DType>,
    /// The dtype that most products wrote.
    pub(super) compute: Option<DType>,
}

impl<'a> Precision<'a> {
    pub(super) fn of(dump: &'a Dump, around: &'a Surroundings, dialect: Dialect) -> Self {
        let mut found = Self::default();
        let mut counts: BTreeMap<&str, (usize, DType)> = BTreeMap::new();
        for entry in &dump.entries {
            let key = key::parse(&entry.key);
            if key.kind != LayerKind::Operator || key.pass != Pass::Forward {
                continue;
            }
            let function = signatures(dialect, key.family, key.name).first().map_or(key.name, |form| form.function);
            let op = Op::named(function);
            if op.class() != Class::Contraction || op.autocast() != Autocast::Lower {
                continue;
            }
            let Some(wrote) = first_float(entry.part(&["output"])) else { continue };
            counts.entry(wrote.name()).or_insert((0, wrote)).0 += 1;
            if finest_read(entry).is_some_and(|read| is_coarser(wrote, read)) {
                found.mark(&entry.key, wrote, around);
            }
        }
        found.compute = counts.into_values().max_by_key(|(count, _)| *count).map(|(_, dtype)| dtype);
        found
    }

    /// Marks a call and the modules around it.
    fn mark(&mut self, key: &'a str, dtype: DType, around: &'a Surroundings) {
        let mut at = Some(key);
        for _ in 0..DEEPEST {
            let Some(key) = at else { return };
            let known = self.lowered.entry(key).or_insert(dtype);
            if is_coarser(dtype, *known) {
                *known = dtype;
            }
            at = around.parent(key);
        }
    }

    /// The dtype in which the forward call of this key computed, where it is not what it read.
    pub(super) fn lowered(&self, forward: &str) -> Option<DType> {
        self.lowered.get(forward).copied()
    }

    /// Whether anything was lowered; `None` where no product was recorded.
    pub(super) fn autocast(&self) -> Option<bool> {
        self.compute.map(|_| !self.lowered.is_empty())
    }
}

fn float(tensor: &Recorded) -> Option<DType> {
    tensor.dtype.filter(|dtype| dtype.unit_roundoff().is_some())
}

fn first_float(node: Option<&Node>) -> Option<DType> {
    node?.tensors().into_iter().find_map(float)
}

fn finest_read(entry: &Entry) -> Option<DType> {
    let (args, kwargs) = arguments(entry);
    let read = [args, kwargs].into_iter().flatten().flat_map(Node::tensors).filter_map(float);
    read.reduce(|finest, dtype| if is_coarser(finest, dtype) { dtype } else { finest })
}

fn is_coarser(a: DType, b: DType) -> bool {
    a.unit_roundoff().zip(b.unit_roundoff()).is_some_and(|(a, b)| a > b)
}
