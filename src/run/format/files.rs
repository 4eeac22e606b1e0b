//! One file of tensors as a run: `.npy`, `.npz` (tpu-mlir's among them), `.pt`, `.safetensors`.
//!
//! Execution order is the file's own, except in safetensors, whose writers sort by dtype and name.

use std::path::Path;

use super::flat::{self, Entry};
use super::{Format, container, natural};
use crate::error::Result;
use crate::run::Run;

pub(super) const FORMAT: Format = Format { recognises, open };

/// Name of the only tensor of a file that gives it none. The same for every file: the file's own name
/// would keep `a.npy` and `b.npy` from being compared.
const ONLY: &str = "tensor";

fn recognises(path: &Path) -> bool {
    path.is_file() && (container::claims(path) || container::kind_of(path).is_some())
}

fn open(path: &Path) -> Result<Run> {
    let kind = container::kind_of(path);
    let mut tensors = container::tensors(path, 0)?;
    let mut warnings = Vec::new();
    if kind.is_some_and(|kind| !kind.keeps_order()) && tensors.len() > 1 {
        tensors.sort_by(|a, b| natural::compare(&a.name, &b.name));
        warnings.push(flat::BY_NAME.into());
    }
    if tensors.is_empty() {
        warnings.push("the file holds no tensor".into());
    }
    let name = |name: String| if name.is_empty() { ONLY.to_string() } else { name };
    let entries = tensors.into_iter().map(|t| Entry { name: name(t.name), op_name: None, stored: t.stored }).collect();
    let format = kind.map_or("file of tensors", container::Kind::name);
    flat::run(path, format, vec![path.to_path_buf()], entries, warnings)
}
