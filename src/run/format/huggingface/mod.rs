//! Debug trees of Hugging Face's `model_addition_debugger` (transformers).
//!
//! In goes `CLASS_debug_tree_FULL_TENSORS.json`, `CLASS_debug_tree_SUMMARY.json` or the directory with
//! them, out comes a run of the modules that hold no others, in call order. Tensors lie one to a
//! safetensors file beside the tree (`use_repr=False`); where the tree holds printed values instead, their
//! shapes and statistics remain. Invariant: a tensor is attributed to the call that wrote its file last,
//! for a second call of a module writes over the files of the first.
//!
//! Format after `src/transformers/model_debugging_utils.py` of transformers 5.

mod link;
mod tree;

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use super::{Format, container, json, natural, recognise, shards};
use crate::error::{Error, Result};
use crate::run::assemble::Parts;
use crate::run::{Run, RunMeta, Stored};
use crate::tensor::DataFile;
use tree::{Call, Slot, Tree};

pub(super) const FORMAT: Format = Format { recognises, open };

const FULL: &str = "_debug_tree_FULL_TENSORS.json";
const SUMMARY: &str = "_debug_tree_SUMMARY.json";

/// Longest tree. A module takes a kilobyte or two, printed values included.
const MAX_TREE: u64 = 64 << 20;

/// Bytes from which a tree of another name is recognised.
const HEAD: u64 = 64;

fn recognises(path: &Path) -> bool {
    if path.is_dir() {
        return trees(path).is_ok_and(|trees| !trees.is_empty());
    }
    let named = |ending| path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(ending));
    if named(FULL) || named(SUMMARY) {
        return true;
    }
    let head = DataFile::open(path).and_then(|file| file.read(0, file.len().min(HEAD)));
    head.is_ok_and(|head| {
        recognise::content(&head) == Some("a JSON object") && head.windows(13).any(|part| part == b"\"module_path\"")
    })
}

/// Names of the trees in a directory: the full ones, or else the summaries.
fn trees(directory: &Path) -> Result<BTreeSet<String>> {
    let cannot = |e: std::io::Error| Error::io(directory, "list the directory", &e);
    let mut found: [BTreeSet<String>; 2] = Default::default();
    for entry in std::fs::read_dir(directory).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name().to_string_lossy().into_owned();
        for (names, ending) in found.iter_mut().zip([FULL, SUMMARY]) {
            if name.ends_with(ending) {
                names.insert(name.clone());
            }
        }
    }
    let [full, summaries] = found;
    Ok(if full.is_empty() { summaries } else { full })
}

fn open(path: &Path) -> Result<Run> {
    let (tree_file, directory) = if path.is_dir() {
        let trees = trees(path)?;
        let mut names = trees.iter();
        let (Some(name), None) = (names.next(), names.next()) else {
            let all = trees.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            return Err(Error::at(path, format_args!("expected one debug tree, found {all}: name one of them")));
        };
        (path.join(name), path.to_path_buf())
    } else {
        (path.to_path_buf(), path.parent().map(Path::to_path_buf).unwrap_or_default())
    };
    let directory = if directory.as_os_str().is_empty() { PathBuf::from(".") } else { directory };
    let bytes = json::read_small(&tree_file, MAX_TREE)?;
    let Tree { class, mut calls, mut named } = tree::read(&tree_file, &bytes)?;
    let mut warnings = Vec::new();
    let mut beside = Beside::open(&directory)?;
    if let Some(outputs) = beside.final_outputs(&class, &named) {
        named.extend(outputs.slots().filter_map(|slot| slot.file.clone()));
        calls.push(outputs);
    }
    warnings.extend(beside.unnamed(&named));
    let stored = beside.read(&tree_file, &mut calls, &mut warnings)?;
    let linked = link::link(&calls, &stored, &beside.files, &mut warnings)?;
    Parts {
        path: path.to_path_buf(),
        meta: RunMeta {
            format: "transformers debug tree".into(),
            name: Some(class),
            complete: true,
            ..RunMeta::default()
        },
        layers_file: tree_file,
        layers: linked.layers,
        files: beside.files,
        stored: linked.stored,
        stats: linked.stats,
        warnings,
    }
    .assemble()
}

/// The files beside a tree.
struct Beside {
    directory: PathBuf,
    real: PathBuf,
    names: BTreeSet<String>,
    files: Vec<PathBuf>,
}

impl Beside {
    fn open(directory: &Path) -> Result<Self> {
        let real = directory.canonicalize().map_err(|e| Error::io(directory, "open", &e))?;
        let cannot = |e: std::io::Error| Error::io(directory, "list the directory", &e);
        let mut names = BTreeSet::new();
        for entry in std::fs::read_dir(directory).map_err(cannot)? {
            let name = entry.map_err(cannot)?.file_name().into_string();
            names.extend(name.ok().filter(|name| name.ends_with(".safetensors")));
        }
        Ok(Self { directory: directory.to_path_buf(), real, names, files: Vec::new() })
    }

    /// The model's own outputs: the debugger writes their files, and takes them out of the tree again.
    fn final_outputs(&self, class: &str, named: &BTreeSet<String>) -> Option<Call> {
        let prefix = format!("{class}_outputs");
        let mut names: Vec<&String> = self.names.iter().filter(|name| !named.contains(*name)).collect();
        names.retain(|name| name.strip_prefix(&prefix).is_some_and(|rest| rest.starts_with(['_', '.'])));
        names.sort_by(|a, b| natural::compare(a, b));
        let slot = |name: &&String| {
            let key = name.strip_prefix(&prefix).and_then(|rest| rest.strip_suffix(".safetensors")).unwrap_or("");
            Slot { key: key.trim_start_matches('_').into(), file: Some((*name).clone()), ..Slot::default() }
        };
        let outputs: Vec<Slot> = names.iter().map(slot).collect();
        (!outputs.is_empty()).then(|| Call { name: class.into(), is_whole: true, outputs, ..Call::default() })
    }

    /// The remark on files that the tree does not name: layers that the debugger left out of it.
    fn unnamed(&self, named: &BTreeSet<String>) -> Option<String> {
        let mut unnamed = self.names.difference(named);
        let first = unnamed.next()?;
        let count = unnamed.count() + 1;
        let why = "that the tree does not name, left out: do_prune_layers=False keeps all layers in it";
        Some(format!("{count} files, `{first}` first, {why}"))
    }

    /// Where the tensors of `calls` lie, by file name. Files that are missing, or that a later call wrote
    /// over, are struck from the calls and said in `warnings`.
    fn read(&mut self, tree: &Path, calls: &mut [Call], warnings: &mut Vec<String>) -> Result<HashMap<String, Stored>> {
        let mut last: HashMap<String, u64> = HashMap::new();
        for slot in calls.iter().flat_map(Call::slots) {
            if let Some(file) = &slot.file {
                let time = last.entry(file.clone()).or_default();
                *time = slot.time.max(*time);
            }
        }
        let mut stored = HashMap::new();
        let (mut missing, mut overwritten): (BTreeSet<String>, BTreeSet<String>) = Default::default();
        for slot in calls.iter_mut().flat_map(Call::slots_mut) {
            let Some(name) = slot.file.clone() else { continue };
            if last.get(&name) != Some(&slot.time) {
                overwritten.insert(name);
                slot.file = None;
                continue;
            }
            if !shards::is_plain(&name) {
                let text = format_args!("expected the name of a file beside the tree, found `{name}`");
                return Err(Error::at(tree, text));
            }
            if !self.names.contains(&name) {
                missing.insert(name);
                slot.file = None;
                continue;
            }
            let place = self.tensor(&name, slot)?;
            stored.insert(name, place);
        }
        let mut say = |names: &BTreeSet<String>, what: &str| {
            warnings.extend(names.first().map(|first| format!("{} {what}, `{first}` first", names.len())));
        };
        say(&missing, "files of the tree are missing");
        say(&overwritten, "files were written by several calls of a module: what earlier calls wrote is lost");
        Ok(stored)
    }

    /// The one tensor of a file, which is what the tree says of it.
    fn tensor(&mut self, name: &str, slot: &Slot) -> Result<Stored> {
        let path = self.directory.join(name);
        if !path.canonicalize().is_ok_and(|real| real.starts_with(&self.real)) {
            return Err(Error::at(&path, "expected a file of the dump, found a link that leads out of it"));
        }
        let mut tensors = container::tensors(&path, self.files.len())?;
        let (Some(found), true) = (tensors.pop(), tensors.is_empty()) else {
            return Err(Error::at(&path, format_args!("expected one tensor, found {}", tensors.len().max(1) - 1)));
        };
        let stored = found.stored;
        let shape_differs = slot.shape.as_ref().is_some_and(|shape| *shape != stored.shape);
        if shape_differs || slot.dtype.is_some_and(|dtype| dtype != stored.dtype) {
            let expected = |text: Option<String>| text.unwrap_or_default();
            let text = format!(
                "expected {} {} as the tree says, found {} {:?}",
                expected(slot.dtype.map(|dtype| dtype.to_string())),
                expected(slot.shape.as_ref().map(|shape| format!("{shape:?}"))),
                stored.dtype,
                stored.shape
            );
            return Err(Error::at(&path, text));
        }
        self.files.push(path);
        Ok(stored)
    }
}
