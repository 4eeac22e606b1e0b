//! Finds the case files below a directory.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::MAX_BYTES;
use super::document::{self, Value};
use crate::error::{Error, Result};

/// Directories below the one that is searched: no tree of cases is deeper, a cycle of mounts is.
const MAX_DEPTH: usize = 32;

/// What a file must hold somewhere to be worth parsing.
const MARK: &str = "goldline.case/";

/// Every case file below `dir`, sorted by path.
pub(super) fn find(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    descend(dir, 0, &mut found)?;
    found.sort();
    Ok(found)
}

fn descend(dir: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::at(dir, format_args!("directories are nested more than {MAX_DEPTH} deep")));
    }
    let listing = fs::read_dir(dir).map_err(|error| Error::io(dir, "list the directory", &error))?;
    for entry in listing {
        let entry = entry.map_err(|error| Error::io(dir, "list the directory", &error))?;
        let path = entry.path();
        let kind = entry.file_type().map_err(|error| Error::io(&path, "look at the entry", &error))?;
        if kind.is_dir() {
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !hidden {
                descend(&path, depth + 1, found)?;
            }
        } else if has_yaml_extension(&path) && path.is_file() && says_case(&path)? {
            found.push(path);
        }
    }
    Ok(())
}

fn has_yaml_extension(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn says_case(path: &Path) -> Result<bool> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| Error::io(path, "open the file", &error))?;
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| Error::io(path, "read the file", &error))?;
    Ok(is_case(&String::from_utf8_lossy(&bytes)))
}

/// Whether `text` says that it is a case, of whatever version: another version is refused by name
/// when it is loaded, and not left out in silence. A file that is no valid YAML counts if one of
/// its lines says so, so that its mistake is shown.
fn is_case(text: &str) -> bool {
    if !text.contains(MARK) {
        return false;
    }
    match document::parse(text) {
        Ok(root) => match root.value {
            Value::Map(entries) => entries.iter().any(|(key, value)| {
                matches!((&key.value, &value.value),
                    (Value::Text(key), Value::Text(value)) if key == "schema" && value.starts_with(MARK))
            }),
            _ => false,
        },
        Err(_) => text.lines().any(line_says_case),
    }
}

fn line_says_case(line: &str) -> bool {
    let quotes = ['"', '\'', ' ', '\t'];
    let value = line.trim_start_matches('\u{feff}').strip_prefix("schema").and_then(|rest| {
        let rest = rest.trim_start();
        rest.strip_prefix(':')
    });
    value.is_some_and(|value| value.trim_start_matches(quotes).starts_with(MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_known_by_its_schema_alone() {
        assert!(is_case("name: x\nschema: goldline.case/1\n"));
        assert!(is_case("{\"schema\": \"goldline.case/1\"}"));
        assert!(is_case("schema: goldline.case/2\n"), "refused by name, not ignored");
        assert!(is_case("schema: 'goldline.case/1'\nname: [\n"), "broken, but says so");
        assert!(!is_case("schema: goldline.run/1\n"));
        assert!(!is_case("# schema: goldline.case/1\nname: x\n"));
        assert!(!is_case("nested:\n  schema: goldline.case/1\n"));
        assert!(!is_case(""));
    }
}
