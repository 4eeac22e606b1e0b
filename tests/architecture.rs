//! The pipeline has one direction: a module imports only what stands left of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Left to right. `error` may be imported by all.
const PIPELINE: &[&str] = &[
    "op",
    "tensor",
    "run",
    "case",
    "pairing",
    "compare",
    "replay",
    "judge",
    "diagnose",
    "blacklist",
    "preflight",
    "golden",
    "execute",
    "bisect",
    "report",
    "pipeline",
    "cli",
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Modules that a source file names behind `crate::`.
fn imports(text: &str) -> Vec<&str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split("crate::").skip(1))
        .flat_map(|rest| match rest.strip_prefix('{') {
            // `use crate::{Error, run::Run}`.
            Some(list) => list
                .split('}')
                .next()
                .unwrap_or("")
                .split(',')
                .map(|item| item.trim().split("::").next().unwrap_or(""))
                .collect::<Vec<_>>(),
            None => vec![rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("")],
        })
        .collect()
}

fn rank(module: &str) -> Option<usize> {
    PIPELINE.iter().position(|name| *name == module)
}

#[test]
fn imports_never_point_back_up_the_pipeline() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let (mut checked, mut wrong) = (0, Vec::new());
    for file in files {
        let relative = file.strip_prefix(&root).unwrap().to_path_buf();
        let first = relative.iter().next().unwrap().to_string_lossy().replace(".rs", "");
        let Some(own) = rank(&first) else {
            assert!(["lib", "main", "error"].contains(&first.as_str()), "src/{first} stands nowhere in the pipeline");
            continue;
        };
        let text = fs::read_to_string(&file).unwrap();
        for module in imports(&text) {
            if let Some(other) = rank(module) {
                checked += 1;
                if other > own {
                    wrong.push(format!("{} imports crate::{module}", relative.display()));
                }
            }
        }
    }
    assert!(checked > 100, "only {checked} imports were seen: the test no longer reads the sources");
    assert!(wrong.is_empty(), "imports that point back up the pipeline:\n{}", wrong.join("\n"));
}

#[test]
fn the_reader_of_imports_sees_what_it_must() {
    let text =
        "use crate::run::Run;\nuse crate::{Error, report::model};\n// crate::cli::main\nlet x = crate::judge::judge();";
    let seen: Vec<&str> = imports(text).into_iter().filter(|name| !name.is_empty()).collect();
    assert_eq!(seen, ["run", "Error", "report", "judge"]);
}
