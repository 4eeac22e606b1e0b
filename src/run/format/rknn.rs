//! Snapshots of RKNN's accuracy analysis: `golden/` and `simulator/` (or `runtime/`) hold a `.npy` per layer.
//!
//! In goes one of these directories, out comes a run of its layers. `error_analysis.txt` beside it lists
//! them in execution order with their operators, `map_name_to_file.txt` says in which file each lies.
//! Where these do not fit the files, the files stand in natural name order.
//!
//! The toolkit is closed and the format not described. What is read here is what its users show of its
//! output: a table line `[Conv] name  cos | euc …`, a table of names and files, `DIR/npy/FILE.npy` or
//! `DIR/FILE.npy`. Other files of a snapshot are left out.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::container::Found;
use super::flat::{self, Entry};
use super::{Format, container, directory, json};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::run::Run;

pub(super) const FORMAT: Format = Format { recognises, open };

/// The table of layers with their errors.
const TABLE: &str = "error_analysis.txt";

/// The table of layers with their files.
const MAP: &str = "map_name_to_file.txt";

/// Longest table: a layer takes some 200 bytes.
const MAX_TABLE: u64 = 16 << 20;

fn recognises(path: &Path) -> bool {
    path.is_dir() && (is_snapshot(path) || snapshot_of(path).is_some())
}

fn is_snapshot(path: &Path) -> bool {
    path.join(TABLE).is_file() || path.join(MAP).is_file()
}

/// The snapshot that a directory of tensors belongs to: the one above it, or above that (`golden/npy`).
fn snapshot_of(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    real.ancestors().skip(1).take(2).find(|above| is_snapshot(above)).map(Path::to_path_buf)
}

fn open(path: &Path) -> Result<Run> {
    let Some(snapshot) = snapshot_of(path).filter(|_| !is_snapshot(path)) else {
        let text = "expected one run of an RKNN snapshot, found all: name its `golden`, `simulator` or `runtime`";
        return Err(Error::at(path, text));
    };
    let listed = directory::list(path)?;
    let mut warnings = listed.warnings();
    let mut files: Vec<PathBuf> = Vec::new();
    let mut found = Vec::new();
    for (name, file) in listed.files {
        for tensor in container::tensors(&file, files.len())? {
            found.push((name.clone(), tensor));
        }
        files.push(file);
    }
    // By the file's name without directory and ending, which is what the tables give.
    let places: HashMap<String, usize> =
        (0..).zip(&found).map(|(at, (file, _))| (stem(file).to_string(), at)).collect();
    let mut found: Vec<_> = found.into_iter().map(Some).collect();
    let mut entries = Vec::new();
    let layers = layers(&snapshot)?;
    for layer in &layers {
        let taken = places.get(&layer.file).and_then(|&at| found.get_mut(at)?.take());
        let entry = |(_, t): (String, Found)| Entry {
            name: layer.name.clone(),
            op_name: layer.op_name.clone(),
            stored: t.stored,
        };
        entries.extend(taken.map(entry));
    }
    let missing = layers.len() - entries.len();
    if missing > 0 {
        warnings.push(format!("{missing} of {} layers of the snapshot's tables have no file here", layers.len()));
    }
    let tabled = entries.len();
    entries.extend(found.into_iter().flatten().map(|(file, t)| {
        let name = if t.name.is_empty() { stem(&file).to_string() } else { format!("{}.{}", stem(&file), t.name) };
        Entry { name, op_name: None, stored: t.stored }
    }));
    if entries.len() > tabled {
        let text = format!("{} files that the snapshot's tables do not name stand last", entries.len() - tabled);
        warnings.push(format!("{text}: {}", flat::BY_NAME));
    }
    flat::run(path, "RKNN accuracy analysis", files, entries, warnings)
}

/// A layer of the snapshot's tables.
struct Layer {
    name: String,
    op_name: Option<String>,
    /// Name of its file without directory and ending.
    file: String,
}

/// The layers in the order of the tables.
fn layers(snapshot: &Path) -> Result<Vec<Layer>> {
    let mapped = map(&lines(&snapshot.join(MAP))?);
    let files: HashMap<&str, &str> = mapped.iter().map(|(name, file)| (name.as_str(), file.as_str())).collect();
    let tabled: Vec<Layer> = lines(&snapshot.join(TABLE))?.iter().filter_map(|line| row(line, &files)).collect();
    if !tabled.is_empty() {
        return Ok(tabled);
    }
    Ok(mapped.into_iter().map(|(name, file)| Layer { name, op_name: None, file }).collect())
}

/// The lines of a table; none where there is no such file, or a link that leads out of the snapshot.
fn lines(path: &Path) -> Result<Vec<String>> {
    if !path.parent().is_some_and(|snapshot| directory::leads_to_file_below(path, snapshot)) {
        return Ok(Vec::new());
    }
    let text = json::read_small(path, MAX_TABLE)?;
    Ok(String::from_utf8_lossy(&text).lines().map(str::to_string).collect())
}

/// Names of layers and of their files: the first and the last column, below a heading.
fn map(lines: &[String]) -> Vec<(String, String)> {
    let columns = |line: &String| {
        let mut words = line.split_whitespace();
        let (first, last) = (words.next()?, words.next_back()?);
        let is_heading = first == "layer_name" || first.starts_with(['#', '-']);
        (!is_heading).then(|| (first.to_string(), stem(last).to_string()))
    };
    lines.iter().filter_map(columns).collect()
}

/// A line `[Conv] name  1.00000 | 0.0  …`.
fn row(line: &str, files: &HashMap<&str, &str>) -> Option<Layer> {
    let (op_name, rest) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    let name = rest.split_whitespace().next()?;
    // The quantised run's input is quantised, so that it differs as any layer does: taken for a source it
    // would make every comparison void.
    let op_name = (!Op::named(op_name).is_source()).then(|| op_name.to_string());
    let file = files.get(name).copied().unwrap_or(name);
    Some(Layer { name: name.to_string(), op_name, file: file.to_string() })
}

/// `npy/505.npy` -> `505`.
fn stem(file: &str) -> &str {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    name.strip_suffix(".npy").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_as_the_toolkit_prints_them() {
        let text = ["layer_name     file_name", "------------------", "/FC/Gemm_conv  505.npy", "output  506", ""];
        let mapped = map(&text.map(str::to_string));
        assert_eq!(mapped, [("/FC/Gemm_conv".into(), "505".into()), ("output".into(), "506".into())]);
        let files = HashMap::from([("/FC/Gemm_conv", "505")]);
        let layer = row("[Conv] /FC/Gemm_conv      1.00000 | 0.0034    1.00000 | 0.0   ", &files).unwrap();
        assert_eq!(
            (layer.name.as_str(), layer.op_name.as_deref(), layer.file.as_str()),
            ("/FC/Gemm_conv", Some("Conv"), "505")
        );
        assert_eq!(row("[Input] input   1.0 | 0.0", &files).unwrap().op_name, None);
        assert!(row("layer_name   simulator_error", &files).is_none());
    }
}
