//! `layers.jsonl`: one layer a line, in execution order.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::json::Lines;
use crate::error::{Error, Result};
use crate::run::assemble::RecordedLayer;
use crate::run::{Attrs, LayerKind, Pass};
use crate::tensor::DType;

#[derive(Deserialize)]
struct LayerLine {
    name: String,
    op: String,
    outputs: Vec<String>,
    #[serde(default)]
    kind: Kind,
    #[serde(default)]
    pass: PassName,
    call: Option<u32>,
    #[serde(default)]
    inputs: Vec<String>,
    input_names: Option<Vec<String>>,
    attrs: Option<Attrs>,
    schema: Option<String>,
    module: Option<String>,
    source: Option<String>,
    compute: Option<String>,
    accumulate: Option<String>,
    device: Option<String>,
    grad_of: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Kind {
    #[default]
    Operator,
    Module,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum PassName {
    #[default]
    Forward,
    Backward,
    Optimizer,
}

/// Reads all layers; what can be worked around goes to `warnings`.
pub(super) fn read(path: &Path, warnings: &mut Vec<String>) -> Result<Vec<RecordedLayer>> {
    let mut lines = Lines::open(path)?;
    let mut layers = Vec::new();
    let mut unknown = UnknownDTypes::default();
    let mut torn = false;
    while let Some(line) = lines.next_line()? {
        let Some(parsed) = lines.parse::<LayerLine>(&line)? else {
            warnings.push(format!("layers.jsonl: line {} is torn (the run did not end well): left out", line.number));
            torn = true;
            break;
        };
        if let Some(names) = &parsed.input_names
            && names.len() != parsed.inputs.len()
        {
            let text =
                format!("expected as many input_names as inputs ({}), found {}", parsed.inputs.len(), names.len());
            return Err(Error::at(path, text).line(line.number));
        }
        layers.push(parsed.into_recorded(line.number, &mut unknown));
    }
    if layers.is_empty() {
        let found = if torn { "only a torn one" } else { "none" };
        return Err(Error::at(path, format_args!("expected at least one layer, found {found}")));
    }
    unknown.report(warnings);
    Ok(layers)
}

impl LayerLine {
    fn into_recorded(self, line: u64, unknown: &mut UnknownDTypes) -> RecordedLayer {
        RecordedLayer {
            line,
            name: self.name,
            op_name: self.op,
            kind: match self.kind {
                Kind::Operator => LayerKind::Operator,
                Kind::Module => LayerKind::Module,
            },
            pass: match self.pass {
                PassName::Forward => Pass::Forward,
                PassName::Backward => Pass::Backward,
                PassName::Optimizer => Pass::Optimizer,
            },
            call: self.call,
            inputs: self.inputs,
            input_names: self.input_names,
            outputs: self.outputs,
            attrs: self.attrs,
            schema: self.schema,
            module: self.module,
            source: self.source,
            compute: unknown.parse("compute", line, self.compute),
            accumulate: unknown.parse("accumulate", line, self.accumulate),
            device: self.device,
            grad_of: self.grad_of,
        }
    }
}

/// Spellings of dtypes that are not known, with the first line and how many lines use them: one
/// warning each, not one per layer.
#[derive(Default)]
struct UnknownDTypes(BTreeMap<(&'static str, String), (u64, u64)>);

impl UnknownDTypes {
    fn parse(&mut self, key: &'static str, line: u64, spelling: Option<String>) -> Option<DType> {
        let spelling = spelling?;
        let known = DType::parse(&spelling);
        if known.is_none() {
            self.0.entry((key, spelling)).or_insert((line, 0)).1 += 1;
        }
        known
    }

    fn report(self, warnings: &mut Vec<String>) {
        for ((key, spelling), (line, layers)) in self.0 {
            warnings.push(format!(
                "layers.jsonl: line {line}: {key} `{spelling}` is no known dtype ({layers} layers say so)"
            ));
        }
    }
}
