//! Goldens whose tensors stay in the run that they were recorded from.
//!
//! Such a golden holds the metadata alone; where the tensors lie now is looked up by their names in
//! the source, so that the source may be rewritten in other shards but not changed.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};

use crate::error::{Error, Result};
use crate::run::{Run, Stored, TensorId, TensorInfo};

/// The run without its tensors: what is copied into the golden.
pub(super) fn without_tensors(run: &Run) -> Run {
    let tensors = run.tensors.iter().map(|info| TensorInfo { stored: None, ..info.clone() }).collect();
    Run {
        path: run.path.clone(),
        meta: run.meta.clone(),
        layers: run.layers.clone(),
        tensors,
        files: Vec::new(),
        warnings: Vec::new(),
        joined: None,
    }
}

/// Gives the golden's metadata run the places of the tensors in `source`.
///
/// # Errors
/// More tensors than can be numbered.
pub(super) fn with_tensors_of(mut golden: Run, source: Run) -> Result<Run> {
    let known: HashMap<String, usize> =
        golden.tensors.iter().enumerate().map(|(at, info)| (info.name.clone(), at)).collect();
    let mut strangers: Vec<(String, Stored)> = Vec::new();
    for info in source.tensors {
        let Some(stored) = info.stored else { continue };
        match known.get(&info.name).and_then(|at| golden.tensors.get_mut(*at)) {
            Some(tensor) => tensor.stored = Some(stored),
            None => strangers.push((info.name, stored)),
        }
    }
    // In the order in which a run that holds them itself would number them.
    strangers.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, stored) in strangers {
        let stored = Some(stored);
        golden.tensors.push(TensorInfo { name, stored, stats: None, producer: None, consumers: Vec::new() });
    }
    u32::try_from(golden.tensors.len()).map_err(|_| Error::at(&source.path, "more tensors than can be numbered"))?;
    golden.files = source.files;
    golden.warnings = source.warnings;
    Ok(golden)
}

/// How `golden.json` names the run at `source`: relative to the golden where both lie below the
/// directory that the case file and the golden share, so that the tree can be moved as a whole; else
/// absolute.
///
/// # Errors
/// A path that cannot be resolved or is no text.
pub(super) fn source_path(golden: &Path, case_file: &Path, source: &Path) -> Result<String> {
    let golden = resolved(golden)?;
    let source = source.canonicalize().map_err(|e| Error::io(source, "open", &e))?;
    let case_dir = match case_file.parent() {
        Some(dir) if !case_file.as_os_str().is_empty() => resolved(dir)?,
        _ => golden.clone(),
    };
    let shared = |a: &Path, b: &Path| a.components().zip(b.components()).take_while(|(x, y)| x == y).count();
    let depth = shared(&case_dir, &golden).min(golden.components().count().saturating_sub(1));
    // A tree that is the whole file system is not moved.
    let is_tree = golden.components().take(depth).any(|part| matches!(part, Component::Normal(_)));
    let common = shared(&golden, &source);
    let path = if is_tree && common >= depth {
        let mut relative: PathBuf = golden.components().skip(common).map(|_| Component::ParentDir).collect();
        relative.extend(source.components().skip(common));
        relative
    } else {
        source.clone()
    };
    let text = path.to_str().filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| Error::at(&source, "expected a path that is text and not the golden itself"))?;
    Ok(if std::path::MAIN_SEPARATOR == '/' { text.to_string() } else { text.replace(std::path::MAIN_SEPARATOR, "/") })
}

/// Absolute and without links as far as it is there.
fn resolved(path: &Path) -> Result<PathBuf> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    if let Ok(real) = path.canonicalize() {
        return Ok(real);
    }
    let absolute = std::path::absolute(path).map_err(|e| Error::io(path, "resolve the path", &e))?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok(resolved(parent)?.join(name)),
        _ => Ok(absolute),
    }
}

/// The directory of the run that holds the tensors.
///
/// # Errors
/// Nothing there, or no directory.
pub(super) fn source_directory(golden: &Path, golden_file: &Path, source: &str) -> Result<PathBuf> {
    let directory = golden.join(source);
    if directory.is_dir() {
        return Ok(directory);
    }
    let found = std::fs::metadata(&directory).map_or("nothing", |found| crate::tensor::describe_kind(&found));
    let text = format!(
        "`source`: expected the directory of the run that holds the tensors at `{}`, found {found}",
        directory.display()
    );
    Err(Error::at(golden_file, text))
}

/// Names of stored tensors with their ids.
pub(super) fn stored(run: &Run) -> impl Iterator<Item = (TensorId, &TensorInfo, &Stored)> {
    (0u32..).map(TensorId).zip(&run.tensors).filter_map(|(id, info)| Some((id, info, info.stored.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_in_the_tree_is_relative_and_one_outside_absolute() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for below in ["project/cases/a", "project/goldens", "project/runs/r", "other/r"] {
            std::fs::create_dir_all(root.join(below)).unwrap();
        }
        let case = root.join("project/cases/a/case.yaml");
        let golden = root.join("project/cases/a/../../goldens/a");
        let of = |source: &str| source_path(&golden, &case, &root.join(source)).unwrap();
        assert_eq!(of("project/runs/r"), "../../runs/r");
        assert_eq!(of("other/r"), root.join("other/r").to_str().unwrap());
        // Without a case file the golden's own directory is the tree.
        let of = |source: &str| source_path(&golden, Path::new(""), &root.join(source)).unwrap();
        assert_eq!(of("project/runs/r"), root.join("project/runs/r").to_str().unwrap());
        std::fs::create_dir_all(root.join("project/goldens/r")).unwrap();
        assert_eq!(of("project/goldens/r"), "../r");
    }
}
