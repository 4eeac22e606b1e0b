//! `run.json`: what is known of the run as a whole.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::json;
use crate::error::{Error, Result};
use crate::run::RunMeta;
use crate::tensor::DType;

/// The format this reader knows and the writer writes.
pub(super) const FORMAT: &str = "goldline.run/1";

/// Largest `run.json` that is read; a recorder's environment takes some kilobytes.
const MAX_LEN: u64 = 16 << 20;

/// Read first: a later version may give every other key another meaning.
#[derive(Deserialize)]
struct Version {
    format: String,
}

#[derive(Deserialize)]
struct Manifest {
    name: Option<String>,
    created: Option<String>,
    seed: Option<i128>,
    step: Option<u64>,
    rank: Option<u64>,
    world_size: Option<u64>,
    inputs_digest: Option<String>,
    precision: Option<Precision>,
    environment: Option<Map<String, Value>>,
    complete: Option<bool>,
}

#[derive(Deserialize, Default)]
struct Precision {
    compute: Option<String>,
    autocast: Option<bool>,
    fp32_ops: Option<Vec<String>>,
}

/// Reads `run.json`; what can be worked around goes to `warnings`.
pub(super) fn read(path: &Path, warnings: &mut Vec<String>) -> Result<RunMeta> {
    let bytes = json::read_small(path, MAX_LEN)?;
    let Version { format } = json::parse(path, &bytes)?;
    if format != FORMAT {
        return Err(Error::at(path, format_args!("expected format `{FORMAT}`, found `{format}`")));
    }
    let manifest: Manifest = json::parse(path, &bytes)?;
    let precision = manifest.precision.unwrap_or_default();
    let compute = precision.compute.and_then(|spelling| {
        let known = DType::parse(&spelling);
        if known.is_none() {
            warnings.push(format!("run.json: precision.compute `{spelling}` is no known dtype"));
        }
        known
    });
    let mut environment = BTreeMap::new();
    for (key, value) in manifest.environment.unwrap_or_default() {
        flatten(key, value, &mut environment);
    }
    Ok(RunMeta {
        format,
        name: manifest.name,
        created: manifest.created,
        seed: manifest.seed.map(|seed| fit_seed(path, seed)).transpose()?,
        step: manifest.step,
        rank: manifest.rank,
        world_size: manifest.world_size,
        inputs_digest: manifest.inputs_digest,
        compute,
        autocast: precision.autocast,
        fp32_ops: precision.fp32_ops.unwrap_or_default(),
        environment: environment.into_iter().collect(),
        complete: manifest.complete.unwrap_or(false),
    })
}

/// Seeds of 64 bits, signed or unsigned: torch's generators take a negative seed for the unsigned
/// one with the same bits, so the two spellings are one seed.
fn fit_seed(path: &Path, seed: i128) -> Result<i64> {
    let unsigned = |_| u64::try_from(seed).map(u64::cast_signed);
    i64::try_from(seed)
        .or_else(unsigned)
        .map_err(|_| Error::at(path, format_args!("expected a seed of at most 64 bits, found {seed}")))
}

/// Nested objects become dotted keys; every other value becomes the text of it.
fn flatten(key: String, value: Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(inner) => {
            for (name, value) in inner {
                flatten(format!("{key}.{name}"), value, out);
            }
        }
        Value::String(text) => {
            out.insert(key, text);
        }
        other => {
            out.insert(key, other.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Result<RunMeta>, Vec<String>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        std::fs::write(&path, text).unwrap();
        let mut warnings = Vec::new();
        (read(&path, &mut warnings), warnings)
    }

    fn refusal(text: &str) -> String {
        let error = parse(text).0.unwrap_err().to_string();
        error.split_once("run.json: ").unwrap().1.to_string()
    }

    #[test]
    fn only_the_format_is_required() {
        let (meta, warnings) = parse("\u{feff}{\"format\":\"goldline.run/1\",\"unknown\":{}}");
        assert_eq!(meta.unwrap(), RunMeta { format: FORMAT.into(), ..RunMeta::default() });
        assert!(warnings.is_empty());
    }

    #[test]
    fn environment_is_flattened_and_sorted() {
        let (meta, _) = parse(
            r#"{"format":"goldline.run/1","environment":{"flags":{"tf32":true,"n":[1,"a"]},"device":"npu","x":null}}"#,
        );
        let pairs = meta.unwrap().environment;
        let text: Vec<String> = pairs.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(text, ["device=npu", "flags.n=[1,\"a\"]", "flags.tf32=true", "x=null"]);
    }

    #[test]
    fn other_versions_and_wrong_types_are_refused_by_name_and_line() {
        assert_eq!(
            refusal("{\"format\":\"goldline.run/2\",\"seed\":[]}"),
            "expected format `goldline.run/1`, found `goldline.run/2`"
        );
        assert_eq!(refusal("{}"), "line 1: missing field `format` (column 2)");
        let wrong = refusal("{\"format\":\"goldline.run/1\",\n\"step\":\"one\"}");
        assert_eq!(wrong, "line 2: invalid type: string \"one\", expected u64 (column 12)");
        assert_eq!(refusal("<html></html>"), "line 1: expected a JSON object, found an HTML page");
        assert_eq!(refusal(""), "line 1: expected a JSON object, found an empty file");
    }

    #[test]
    fn seeds_take_all_64_bits() {
        let seed = |text: &str| parse(&format!("{{\"format\":\"goldline.run/1\",\"seed\":{text}}}")).0;
        assert_eq!(seed("-1").unwrap().seed, Some(-1));
        assert_eq!(seed("18446744073709551615").unwrap().seed, Some(-1));
        assert!(seed("18446744073709551616").is_err());
        assert!(seed("1.5").is_err());
    }

    #[test]
    fn an_unknown_compute_dtype_is_a_warning() {
        let (meta, warnings) = parse(r#"{"format":"goldline.run/1","precision":{"compute":"posit8"}}"#);
        assert_eq!(meta.unwrap().compute, None);
        assert_eq!(warnings, ["run.json: precision.compute `posit8` is no known dtype"]);
    }
}
