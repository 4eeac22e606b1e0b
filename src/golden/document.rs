//! `golden.json`: what was approved, when, from what.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Digest;
use crate::error::{Error, Result};
use crate::run::Pass;
use crate::tensor::{DType, DataFile, Shape};

/// The value of `schema` that this version reads and writes.
pub const GOLDEN_SCHEMA: &str = "goldline.golden/1";

/// Name of the file in a golden's directory.
pub const GOLDEN_FILE: &str = "golden.json";

/// Metadata files of a run whose digests a golden keeps; the first two are always there.
pub(super) const METADATA: [&str; 3] = ["run.json", "layers.jsonl", "stats.jsonl"];

/// Largest `golden.json`: some 200,000 tensors.
const MAX_LEN: u64 = 64 << 20;

/// The content of `golden.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GoldenInfo {
    /// Schema, always [`GOLDEN_SCHEMA`].
    schema: String,
    /// Version of Goldline that recorded it.
    pub tool_version: String,
    /// When it was recorded (RFC 3339).
    #[serde(serialize_with = "rfc3339", deserialize_with = "known_time")]
    pub recorded_at: jiff::Timestamp,
    /// Name of the case.
    pub case: String,
    /// Seed that the run was made with, else the case's.
    #[serde(default)]
    pub seed: Option<i64>,
    /// The recording environment, dotted keys (`flags.allow_tf32`).
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// The runs it was approved from, as their paths were given; the first is the one that is stored.
    pub recorded_from: Vec<String>,
    /// Number of runs it was approved from.
    pub runs: u32,
    /// Whether the tensors lie in `source` instead of in the golden.
    #[serde(default)]
    pub in_place: bool,
    /// Directory of the run that holds the tensors, where `in_place`; relative to the golden, or
    /// absolute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Digests of the metadata files by their names.
    pub metadata: BTreeMap<String, Digest>,
    /// Every stored tensor by its name.
    pub tensors: BTreeMap<String, TensorRecord>,
    /// Spread of the layers' outputs over the runs; empty for a single run.
    #[serde(default)]
    pub noise: Vec<NoiseRecord>,
}

/// What a golden knows of a stored tensor without reading it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TensorRecord {
    /// Element type.
    #[serde(serialize_with = "dtype_name", deserialize_with = "known_dtype")]
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// Digest of the little-endian bytes.
    pub digest: Digest,
}

/// How far the approved runs lie apart at one layer output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NoiseRecord {
    /// The layer as reports print it.
    pub layer: String,
    /// The pass it belongs to.
    #[serde(serialize_with = "pass_name", deserialize_with = "known_pass")]
    pub pass: Pass,
    /// Output slot.
    pub slot: usize,
    /// Largest relative error in the Euclidean norm, where it exists.
    #[serde(default)]
    pub rel_l2: Option<f64>,
    /// Largest |difference|.
    pub max_abs: f64,
}

/// The largest differences of any further run from the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Largest relative error in the Euclidean norm; `None` where it does not exist (an all-zero
    /// output of the first run that is not zero in another).
    pub rel_l2: Option<f64>,
    /// Largest |difference|.
    pub max_abs: f64,
}

fn rfc3339<S: Serializer>(time: &jiff::Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

fn known_time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<jiff::Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| de::Error::custom(format_args!("expected a time (RFC 3339), found `{text}`")))
}

fn dtype_name<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

fn known_dtype<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DType, D::Error> {
    let spelling = String::deserialize(deserializer)?;
    DType::parse(&spelling).ok_or_else(|| de::Error::custom(format_args!("`{spelling}` is no known dtype")))
}

fn pass_name<S: Serializer>(pass: &Pass, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(pass)
}

fn known_pass<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Pass, D::Error> {
    let name = String::deserialize(deserializer)?;
    let known = [Pass::Forward, Pass::Backward, Pass::Optimizer].into_iter().find(|pass| pass.to_string() == name);
    known.ok_or_else(|| {
        de::Error::custom(format_args!("expected pass `forward`, `backward` or `optimizer`, found `{name}`"))
    })
}

/// Read first: a later version may give every other key another meaning.
#[derive(Deserialize)]
struct Version {
    schema: String,
}

impl GoldenInfo {
    /// A golden that is recorded now.
    pub(super) fn new(case: String) -> Self {
        Self {
            schema: GOLDEN_SCHEMA.into(),
            tool_version: env!("CARGO_PKG_VERSION").into(),
            recorded_at: jiff::Timestamp::now(),
            case,
            seed: None,
            environment: BTreeMap::new(),
            recorded_from: Vec::new(),
            runs: 1,
            in_place: false,
            source: None,
            metadata: BTreeMap::new(),
            tensors: BTreeMap::new(),
            noise: Vec::new(),
        }
    }

    /// Reads `golden.json`, which may hold anything.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let file = DataFile::open(path)?;
        if file.len() > MAX_LEN {
            let text = format!("expected at most {MAX_LEN} bytes, found {}", file.len());
            return Err(Error::at(path, text).byte(MAX_LEN));
        }
        let bytes = file.read(0, file.len())?;
        let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        // Asked first, for serde takes an array for a struct, field by field.
        if text.trim_ascii_start().first() != Some(&b'{') {
            let found = if text.trim_ascii().is_empty() { "an empty file" } else { "something else" };
            return Err(Error::at(path, format_args!("expected a JSON object, found {found}")).line(1));
        }
        let Version { schema } = parse(path, text)?;
        if schema != GOLDEN_SCHEMA {
            return Err(Error::at(path, format_args!("expected schema `{GOLDEN_SCHEMA}`, found `{schema}`")));
        }
        let info: Self = parse(path, text)?;
        info.validate().map_err(|text| Error::at(path, text))?;
        Ok(info)
    }

    /// What the types alone do not hold.
    fn validate(&self) -> Result<(), String> {
        if let Some(stranger) = self.metadata.keys().find(|name| !METADATA.contains(&name.as_str())) {
            return Err(format!("`metadata`: expected digests of {}, found `{stranger}`", METADATA.join(", ")));
        }
        if let Some(missing) = METADATA.iter().take(2).find(|name| !self.metadata.contains_key(**name)) {
            return Err(format!("`metadata`: expected a digest of `{missing}`, found none"));
        }
        if self.in_place != self.source.is_some() {
            let found = if self.in_place { "`in_place` alone" } else { "`source` alone" };
            return Err(format!("expected `in_place: true` and `source` together, found {found}"));
        }
        if self.runs == 0 {
            return Err("expected `runs` of at least 1, found 0".into());
        }
        Ok(())
    }

    /// The bytes of `golden.json`.
    ///
    /// # Errors
    /// More than can be read again.
    pub(super) fn to_bytes(&self, path: &Path) -> Result<Vec<u8>> {
        let mut bytes =
            serde_json::to_vec_pretty(self).map_err(|e| Error::at(path, format_args!("cannot write: {e}")))?;
        bytes.push(b'\n');
        if bytes.len() as u64 > MAX_LEN {
            let text =
                format!("{} tensors need {} bytes, at most {MAX_LEN} can be read", self.tensors.len(), bytes.len());
            return Err(Error::at(path, text));
        }
        Ok(bytes)
    }
}

fn parse<'de, T: Deserialize<'de>>(path: &Path, text: &'de [u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|e| {
        let place = format!(" at line {} column {}", e.line(), e.column());
        let message = e.to_string();
        let message = message.strip_suffix(&place).unwrap_or(&message);
        let message =
            message.strip_prefix("EOF").map_or_else(|| message.into(), |rest| format!("unexpected end{rest}"));
        Error::at(path, format_args!("{message} (column {})", e.column())).line(e.line() as u64)
    })
}
