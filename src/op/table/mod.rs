//! The rows of the registry, one file per family. Adding an operator is one row there; a spelling is matched without
//! case, underscores, framework prefix, overload and version suffix (see `spelling.rs`).

mod choices;
mod given;
mod movers;
mod pointwise;
mod sums;
mod training;

use std::sync::LazyLock;

use super::Autocast::{Follows, Fp32, Lower};
use super::Conditioning::{AbsoluteArgument, Discrete};
use super::{Autocast, Class, Conditioning, IndexInto, Reach, Row};

pub(crate) const UNKNOWN_ROW: Row = row("unknown", &[], Class::Unknown);

/// A row with what its class implies; the methods below state what differs.
const fn row(name: &'static str, spellings: &'static [&'static str], class: Class) -> Row {
    let reach = match class {
        Class::Elementwise
        | Class::Additive
        | Class::Multiplicative
        | Class::Cast
        | Class::Logic
        | Class::Quantizer => Reach::Elementwise,
        Class::Norm | Class::Softmax => Reach::Row,
        Class::Contraction => Reach::Contraction,
        _ => Reach::Anywhere,
    };
    let conditioning = match class {
        Class::Softmax => AbsoluteArgument,
        Class::Selection => Discrete,
        _ => Conditioning::Benign,
    };
    let autocast = match class {
        Class::Contraction => Lower,
        Class::Norm | Class::Softmax => Fp32,
        _ => Follows,
    };
    Row {
        name,
        spellings,
        class,
        reach,
        conditioning,
        index_output: None,
        auxiliary_from: None,
        auxiliary_private: false,
        autocast,
        cann: None,
    }
}

impl Row {
    const fn reach(mut self, reach: Reach) -> Self {
        self.reach = reach;
        self
    }
    const fn absolute(mut self) -> Self {
        self.conditioning = AbsoluteArgument;
        self
    }
    const fn index(mut self, slot: usize, into: IndexInto) -> Self {
        self.index_output = Some((slot, into));
        self
    }
    const fn saved_from(mut self, slot: usize) -> Self {
        self.auxiliary_from = Some(slot);
        self
    }
    const fn private_from(mut self, slot: usize) -> Self {
        self.auxiliary_from = Some(slot);
        self.auxiliary_private = true;
        self
    }
    const fn autocast(mut self, policy: Autocast) -> Self {
        self.autocast = policy;
        self
    }
    const fn cann(mut self, name: &'static str) -> Self {
        self.cann = Some(name);
        self
    }
}

const fn source(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Source)
}
const fn factory(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Factory)
}
const fn random(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Random)
}
const fn mover(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Mover)
}
const fn elementwise(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Elementwise)
}
const fn reduction(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Reduction)
}
const fn logic(name: &'static str, spellings: &'static [&'static str]) -> Row {
    row(name, spellings, Class::Logic)
}

static ROWS: LazyLock<Vec<&'static Row>> = LazyLock::new(|| {
    [given::ROWS, movers::ROWS, sums::ROWS, pointwise::ROWS, choices::ROWS, training::ROWS]
        .into_iter()
        .flatten()
        .collect()
});

/// Every row, in the order of the families.
pub(crate) fn rows() -> &'static [&'static Row] {
    &ROWS
}
