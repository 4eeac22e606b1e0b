//! The JSON schema of the case file, for editors.
//!
//! The types here only describe the file; [`super::raw`] reads it. A test holds their keys equal.

use std::collections::BTreeMap;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};
use serde_json::Value;

/// What Goldline tests: seed, inputs, golden, tolerances, which layers. Paths are relative to the
/// file.
#[derive(JsonSchema)]
#[schemars(title = "Goldline case file", deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct CaseFile {
    /// Version of the case file.
    #[schemars(extend("const" = super::CASE_SCHEMA))]
    schema: String,
    /// Short name that reports print.
    #[schemars(length(min = 1, max = 200))]
    name: String,
    /// Seed that the runs are made with; a run with another seed is reported.
    seed: Option<i64>,
    /// Inputs of the model, a safetensors file. Without it, the inputs recorded in the golden are
    /// what counts.
    #[schemars(length(min = 1))]
    inputs: Option<String>,
    /// The approved run. `goldline record` makes it, nothing else changes it.
    #[schemars(length(min = 1))]
    golden: String,
    /// The run that `goldline verify` takes when --run is not given.
    #[schemars(length(min = 1))]
    candidate: Option<String>,
    /// How to make a run: program and arguments.
    #[schemars(length(min = 1))]
    command: Option<Vec<Word>>,
    /// A known defect: `verify` succeeds when just this is found.
    expect: Option<Expect>,
    /// The dtype that the candidate computes in; `auto` reads it from the run.
    #[schemars(extend("default" = "auto", "examples" = ["auto", "float32", "float16", "bfloat16"]))]
    precision: Option<String>,
    /// Which layers are judged, by name.
    layers: Option<Layers>,
    /// Rules that rewrite layer names before they are paired, applied in order.
    rename: Option<Vec<Rename>>,
    /// Which positions count; others are compared but never judged.
    valid: Option<Valid>,
    /// How tensors of which each rank holds a part are one, so that runs on different numbers of ranks
    /// compare. Of several entries that match a tensor the last wins; what none matches is the same on
    /// every rank.
    shards: Option<Vec<Shard>>,
    /// Limits. The most specific entry wins: layer, op, dtype, default; an explicit limit replaces
    /// `auto` for its metric alone.
    tolerance: Option<Tolerance>,
}

/// One argument; a number or a truth value is passed on as it is written.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the file and is never made")]
enum Word {
    Text(String),
    Number(f64),
    Truth(bool),
}

/// What `verify` must find for the case to succeed.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Expect {
    /// The case's verdict.
    #[schemars(extend("enum" = super::ExpectVerdict::NAMES))]
    verdict: String,
    /// Name of the layer that must be the origin, as reports print it.
    #[schemars(length(min = 1))]
    origin: Option<String>,
}

/// A layer is judged if a pattern of `include` matches its name and none of `exclude` does. `*`
/// stands for any characters, dots included; `?` for one.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Layers {
    /// Patterns of which one must match.
    #[schemars(length(min = 1), extend("default" = ["**"]))]
    include: Option<Vec<String>>,
    /// Patterns of which none may match.
    exclude: Option<Vec<String>>,
}

/// What matches `from` becomes `to`.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Rename {
    /// Regular expression, in the syntax of Rust's regex crate.
    #[schemars(length(min = 1))]
    from: String,
    /// What takes its place; `$1` is the first group, `$$` a dollar.
    to: String,
}

/// Which positions of the tensors count.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Valid {
    /// Name of the recorded tensor that is nonzero where positions count.
    #[schemars(length(min = 1))]
    mask: String,
}

/// One or more tensors of which each rank of a group holds a part.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Shard {
    /// Pattern for the name of a tensor, or of the layer that wrote it.
    #[schemars(length(min = 1), rename = "match")]
    pattern: String,
    /// The dim along which the parts lie; negative ones count from the end. With `how: concat` alone.
    dim: Option<i64>,
    /// The ranks that hold the parts, in their order.
    #[schemars(extend("default" = "all"))]
    group: Option<Group>,
    /// `concat`: stretches along `dim`; `sum`: terms; `replica`: the same on every rank.
    #[schemars(extend("default" = "concat", "enum" = super::shards::HOWS))]
    how: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the file and is never made")]
enum Group {
    All(#[schemars(extend("const" = "all"))] String),
    Ranks(#[schemars(length(min = 2))] Vec<u64>),
}

/// Explicit limits by layer, operator and dtype.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Tolerance {
    /// `auto`: limits derived from dtype, operator and reduction length. Metrics given here replace
    /// `auto` everywhere.
    default: Option<Default>,
    /// By element type of the candidate's tensor, such as `bfloat16`.
    dtype: Option<BTreeMap<String, Limits>>,
    /// By operator, in any spelling that the registry knows, such as `softmax`.
    op: Option<BTreeMap<String, Limits>>,
    /// By pattern for the layer's name; of several that match, the last wins.
    layer: Option<BTreeMap<String, Limits>>,
}

#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "describes the file and is never made")]
enum Default {
    Auto(#[schemars(extend("const" = "auto"))] String),
    Limits(Limits),
}

/// Limits by metric.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "describes the file and is never made")]
struct Limits {
    /// Largest |candidate - golden|.
    #[schemars(range(min = 0))]
    max_abs: Option<f64>,
    /// Largest |candidate - golden| / |golden|.
    #[schemars(range(min = 0))]
    max_rel: Option<f64>,
    /// Mean of |candidate - golden| / |golden|.
    #[schemars(range(min = 0))]
    mean_rel: Option<f64>,
    /// ‖candidate - golden‖ / ‖golden‖.
    #[schemars(range(min = 0))]
    rel_l2: Option<f64>,
    /// Least cosine similarity.
    #[schemars(range(min = -1, max = 1))]
    cosine: Option<f64>,
    /// Least signal to quantisation noise, in dB.
    #[schemars(range(min = 0))]
    sqnr: Option<f64>,
    /// Largest distance in units in the last place.
    max_ulp: Option<u64>,
}

/// The JSON schema of a case file (`goldline.case/1`), pretty-printed, with a newline at the end.
pub fn json_schema() -> String {
    let generator = SchemaSettings::draft2020_12().with_transform(NoNull).into_generator();
    let schema = generator.into_root_schema_for::<CaseFile>();
    format!("{:#}\n", schema.to_value())
}

/// Takes `null` out: a key may be absent, but a key without a value is a mistake.
#[derive(Debug, Clone)]
struct NoNull;

impl Transform for NoNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        let Some(object) = schema.as_object_mut() else { return };
        if let Some(Value::Array(types)) = object.get_mut("type") {
            types.retain(|kind| kind != "null");
            if let [only] = types.as_slice() {
                let only = only.clone();
                object.insert("type".into(), only);
            }
        }
        if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
            choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
            if let [Value::Object(only)] = choices.as_slice() {
                let only = only.clone();
                object.remove("anyOf");
                for (key, value) in only {
                    object.entry(key).or_insert(value);
                }
            }
        }
        // Doc comments are wrapped for the source, descriptions are not.
        if let Some(Value::String(text)) = object.get_mut("description") {
            *text = text.replace('\n', " ");
        }
        // Names of Rust's number types are no JSON schema formats.
        object.remove("format");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::Metric;
    use crate::case::raw::keys;

    fn object<'a>(root: &'a Value, name: Option<&str>) -> &'a Value {
        match name {
            Some(name) => &root["$defs"][name],
            None => root,
        }
    }

    /// What the reader takes and what the schema allows are the same keys, everywhere.
    #[test]
    fn describes_the_keys_that_are_read() {
        let root: Value = serde_json::from_str(&json_schema()).unwrap();
        let all: [(Option<&str>, &[&str]); 8] = [
            (None, keys::CASE),
            (Some("Expect"), keys::EXPECT),
            (Some("Layers"), keys::LAYERS),
            (Some("Rename"), keys::RENAME),
            (Some("Valid"), keys::VALID),
            (Some("Shard"), keys::SHARD),
            (Some("Tolerance"), keys::TOLERANCE),
            (Some("Limits"), &Metric::NAMES),
        ];
        for (name, keys) in all {
            let object = object(&root, name);
            let mut described: Vec<&str> =
                object["properties"].as_object().unwrap().keys().map(String::as_str).collect();
            let mut read = keys.to_vec();
            described.sort_unstable();
            read.sort_unstable();
            assert_eq!(described, read, "{name:?}");
            assert_eq!(object["additionalProperties"], false, "{name:?}");
        }
        assert_eq!(root["required"], serde_json::json!(["schema", "name", "golden"]));
        assert!(!json_schema().contains("null"));
    }

    #[test]
    fn the_checked_in_schema_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/case/case.schema.json");
        let checked_in = std::fs::read_to_string(path).unwrap_or_default();
        if checked_in == json_schema() {
            return;
        }
        // A refresh fails too, so that a run with the variable set never passes for a check.
        if std::env::var_os("UPDATE_SCHEMA").is_some_and(|value| value == "1") {
            std::fs::write(path, json_schema()).unwrap();
            panic!("src/case/case.schema.json has been refreshed: look at the change and commit it");
        }
        panic!(
            "src/case/case.schema.json is not what the code generates; refresh it with \
             `UPDATE_SCHEMA=1 cargo test --lib case::schema` and commit it"
        );
    }
}
