//! The report `goldline.report/1`: what every renderer takes and `--json` prints.
//!
//! Every number is finite or null. Within `/1` keys are only added.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

/// Schema identifier of one case's report.
pub const REPORT_SCHEMA: &str = "goldline.report/1";
/// Schema identifier of several cases' report.
pub const SUITE_SCHEMA: &str = "goldline.suite/1";

/// One case: verdict, where, why, what to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Always [`REPORT_SCHEMA`].
    pub schema: String,
    /// Case name; null for `diff`.
    pub case: Option<String>,
    /// Step, where the run tells.
    pub step: Option<u64>,
    /// Rank, where the run tells.
    pub rank: Option<u64>,
    /// `pass`, `drift`, `nonfinite` or `incomparable`.
    pub verdict: String,
    /// One sentence a person can check.
    #[serde(default)]
    pub why: String,
    /// `expected` or `unexpected`.
    pub outcome: String,
    /// Why the outcome is what it is, where an `expect` was given.
    pub outcome_why: Option<String>,
    /// The golden run.
    pub golden: Side,
    /// The candidate run.
    pub candidate: Side,
    /// Differences of environment, precision policy and seed, before any operator is blamed.
    #[serde(default)]
    pub differences: Vec<String>,
    /// Counts.
    pub summary: Summary,
    /// First layer in execution order that is out.
    pub first_drift: Option<Place>,
    /// Layers that are out although what came into them is in.
    pub origins: Vec<Origin>,
    /// Births of NaN and infinities.
    pub nonfinite_origins: Vec<Birth>,
    /// Operators that evidence says must run in fp32.
    pub blacklist: Vec<BlacklistEntry>,
    /// What to do, most fitting first.
    #[serde(default)]
    pub remedies: Vec<Remedy>,
    /// Explanations of the difference, each with the share it explains.
    #[serde(default)]
    pub signatures: Vec<Signature>,
    /// Remarks: index ties, warnings of the readers, suspected aliasing.
    #[serde(default)]
    pub notes: Vec<String>,
    /// What a third run of higher precision says, where one was given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub truth: Option<Truth>,
    /// Bit equality, where it was asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bitwise: Option<Bitwise>,
    /// Every layer of the golden, then those only in the candidate.
    pub layers: Vec<LayerRow>,
}

/// What a third run says of the two others. rho is the candidate's error against it over the
/// golden's; each layer's stands in its metrics.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Truth {
    /// Path of the third run.
    pub path: String,
    /// `L0`, `L1` or `L2` where the dual-benchmark limits apply; null where rho is limited.
    pub level: Option<String>,
    /// Why it says nothing, where it does not.
    pub unusable: Option<String>,
    /// Layers with a rho.
    pub layers: u64,
    /// Of those, the ones where the candidate is nearer to the truth.
    pub better: u64,
    /// Of those, the ones beyond the limit.
    pub beyond: u64,
    /// Layers that drift from the golden and pass, because the candidate is nearer to the truth.
    pub relieved: u64,
    /// The largest rho.
    pub largest: Option<f64>,
    /// The layer that has it.
    pub largest_layer: Option<String>,
    /// Floating-point outputs without rho, by reason.
    pub without: BTreeMap<String, u64>,
    /// One sentence a person can check.
    pub why: String,
}

/// Bit equality of two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bitwise {
    /// Whether everything that was compared is bit-equal, sources included.
    pub equal: bool,
    /// Sources that are not: look at them first.
    #[serde(default)]
    pub sources: Vec<String>,
    /// The first layer in execution order that is not, sources left out.
    pub first: Option<Place>,
    /// Coordinates of the first element that differs in it, where known.
    #[serde(default)]
    pub first_index: Option<Vec<u64>>,
    /// What differs in it.
    #[serde(default)]
    pub why: String,
    /// Layers that were compared, sources left out.
    pub compared: u64,
    /// Of those, the ones that are not bit-equal.
    pub unequal: u64,
    /// Golden layers of which nothing could be compared, sources left out.
    pub not_compared: u64,
    /// By operator type, in the order of the names.
    #[serde(default)]
    pub ops: Vec<BitwiseOp>,
}

/// Bit equality of one operator type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BitwiseOp {
    /// Operator as the golden recorded it.
    pub op: String,
    /// Layers that were compared.
    pub layers: u64,
    /// Of those, the ones that are not bit-equal.
    pub unequal: u64,
    /// Elements that were compared.
    pub elements: u64,
    /// Share of them with equal bits; null where none was read.
    pub equal_bits: Option<f64>,
    /// Largest distance in units in the last place; null for integers and truth values.
    pub max_ulp: Option<u64>,
}

/// One of the two runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Side {
    /// Path as given.
    pub path: String,
    /// `environment` of `run.json`, flattened.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Declared compute dtype.
    pub compute: Option<String>,
}

/// Counts over the layers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "each counts the layers with the verdict of its name")]
pub struct Summary {
    pub layers: u64,
    pub compared: u64,
    pub pass: u64,
    pub drift: u64,
    pub nonfinite: u64,
    pub mismatch: u64,
    pub missing: u64,
    pub extra: u64,
    pub skipped: u64,
    pub replayed: u64,
    pub unmodelled: u64,
}

/// A layer, named so that a person finds it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Place {
    /// The golden's name (a candidate-only stretch: the candidate's).
    pub layer: String,
    /// The candidate's name where it differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate_layer: Option<String>,
    /// Operator as the golden recorded it.
    pub op: String,
    /// `forward`, `backward` or `optimizer`.
    pub pass: String,
    /// Position in the golden's execution order; null for a stretch without partner.
    pub index: Option<u64>,
}

/// A layer that introduced or amplified an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// See [`Place`].
    pub layer: String,
    /// The candidate's name where it differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate_layer: Option<String>,
    /// Operator as the golden recorded it.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// Position in the golden's execution order.
    pub index: Option<u64>,
    /// `candidate`, `golden` or `both`.
    #[serde(rename = "in")]
    pub side: String,
    /// `introduced`, `amplified`, `source`, `accumulated`.
    pub role: String,
    /// rel_l2 this layer made itself, where known.
    pub introduced: Option<f64>,
    /// rel_l2 that came with its inputs, where known.
    pub propagated: Option<f64>,
    /// The evidence.
    pub why: String,
}

/// The birth of a NaN or infinity.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Birth {
    /// The layer whose output first holds it.
    pub layer: String,
    /// The candidate's name where it differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate_layer: Option<String>,
    /// Operator.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// Position in the golden's execution order.
    pub index: Option<u64>,
    /// Id of the tensor.
    pub tensor: String,
    /// `candidate`, `golden` or `both`.
    #[serde(rename = "in")]
    pub side: String,
    /// `nan` or `inf`.
    pub kind: String,
    /// How many elements.
    pub count: u64,
    /// Coordinates of the first.
    pub first_index: Vec<u64>,
    /// `overflow`, `internal_overflow`, `underflow`, `invalid`, `source`, `shared`, `defect` …
    pub cause: String,
    /// An earlier producer whose underflow led there.
    pub cause_layer: Option<String>,
    /// First layer downstream that holds a NaN.
    pub first_nan_layer: Option<String>,
    /// Where the last special value vanished; null where it reaches the end.
    pub ended: Option<String>,
    /// Layers it reached.
    pub reached: Vec<String>,
    /// The evidence.
    pub why: String,
}

/// An operator that must run in fp32.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlacklistEntry {
    /// Operator as the golden recorded it.
    pub op: String,
    /// Layers of that operator which need it.
    pub layers: Vec<String>,
    /// `range`, `underflow`, `conditioning`.
    pub reason: String,
    /// Grade of evidence: `rerun`, `replay`, `graph`, `prior`.
    pub grade: String,
    /// 0 to 1: how strongly the numbers speak.
    #[serde(default, deserialize_with = "null_is_nan")]
    pub score: f64,
    /// The numbers.
    pub why: String,
    /// Layers of this operator in the run, those listed included: what a list by type would also hit.
    #[serde(default)]
    pub total_of_op: u64,
    /// Enclosing modules of `layers`, where recorded.
    #[serde(default)]
    pub modules: Vec<String>,
}

/// Something to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Remedy {
    /// `align_sources`, `align_environment`, `fix_defect`, `bf16`, `keep_fp32`, `loss_scale`, `eps`, `fp32_state` …
    pub kind: String,
    /// Layers it concerns.
    pub layers: Vec<String>,
    /// Why, and how.
    pub why: String,
}

/// What kind of difference it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    /// Layer.
    pub layer: String,
    /// `scale`, `offset`, `saturation` …
    pub kind: String,
    /// Share of the error's energy that it explains.
    #[serde(default, deserialize_with = "null_is_nan")]
    pub explains: f64,
    /// What it means.
    pub why: String,
}

/// One layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LayerRow {
    /// Position in the golden's execution order; null for layers only in the candidate.
    pub index: Option<u64>,
    /// Name.
    pub layer: String,
    /// The candidate's name where it differs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub candidate_layer: Option<String>,
    /// Operator as recorded.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// `pass`, `drift`, `nonfinite`, `mismatch`, `missing`, `extra`, `skipped`.
    pub verdict: String,
    /// `introduced`, `propagated`, `amplified`, `absorbed`, `accumulated`; null where it is in.
    pub role: Option<String>,
    /// Why this verdict.
    #[serde(default)]
    pub why: String,
    /// How it was paired: `name`, `wrapper`, `rename`, `alignment`, `slots`; null where it was not.
    pub paired_by: Option<String>,
    /// Names of the tensors it read.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// Its outputs.
    pub outputs: Vec<OutputRow>,
}

/// One output tensor of a layer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputRow {
    /// Id of the golden tensor (extra layers: the candidate's).
    pub tensor: String,
    /// Golden and candidate dtype.
    #[serde(default)]
    pub dtype: [Option<String>; 2],
    /// Extents.
    pub shape: Option<Vec<u64>>,
    /// Verdict of this tensor.
    #[serde(default)]
    pub verdict: String,
    /// Metric name to value; null where a metric does not exist.
    #[serde(default)]
    pub metrics: BTreeMap<String, Option<f64>>,
    /// Metric name to the limit it was held against, with the reason for that limit.
    #[serde(default)]
    pub limits: BTreeMap<String, Limit>,
    /// rel_l2 introduced here, where known.
    pub introduced: Option<f64>,
    /// rel_l2 that came with the inputs, where known.
    pub propagated: Option<f64>,
    /// Anything else worth saying.
    pub detail: Option<String>,
}

/// A limit and where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// The value not to be exceeded (for cosine: not to be fallen below).
    #[serde(default = "nan", deserialize_with = "null_is_nan")]
    pub value: f64,
    /// Its reason.
    pub why: String,
}

/// A number that was not finite is written as null; read back it is NaN, which every renderer shows as absent.
fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}

fn nan() -> f64 {
    f64::NAN
}

/// Several cases.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Suite {
    /// Always [`SUITE_SCHEMA`].
    pub schema: String,
    /// Worst verdict of the cases.
    pub verdict: String,
    /// Number of cases by outcome.
    pub totals: BTreeMap<String, u64>,
    /// First case that is not as expected; of a case's steps and ranks the one whose layer, in execution
    /// order, is the earliest that is out.
    pub first: Option<String>,
    /// The layer that is out there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_drift: Option<SuitePlace>,
    /// Tensors that ranks should hold alike and do not.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub disagreements: Vec<Disagreement>,
    /// Steps and ranks that only one side has; each is an entry of `cases` with its error, too.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub unpaired: Vec<Unpaired>,
    /// The cases in order.
    pub cases: Vec<SuiteEntry>,
}

/// A layer of one step and rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuitePlace {
    /// Case name; null for `diff`.
    pub case: Option<String>,
    /// Step, where the runs tell.
    pub step: Option<u64>,
    /// Rank, where the runs tell.
    pub rank: Option<u64>,
    /// See [`Place`].
    pub layer: String,
    /// Operator as the golden recorded it.
    pub op: String,
    /// `forward`, `backward` or `optimizer`.
    pub pass: String,
    /// Position in the golden's execution order.
    pub index: Option<u64>,
}

/// A tensor that ranks should hold alike and do not.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Disagreement {
    /// Case name; null for `diff`.
    pub case: Option<String>,
    /// Step, where the runs tell.
    pub step: Option<u64>,
    /// `candidate` or `golden`.
    #[serde(rename = "in")]
    pub side: String,
    /// The layer that wrote it.
    pub layer: String,
    /// Operator as recorded.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// Id of the tensor.
    pub tensor: String,
    /// Ranks that stand apart, ascending.
    pub ranks: Vec<u64>,
    /// Later tensors of the step in which just these ranks stand apart.
    pub more: u64,
    /// The evidence.
    pub why: String,
}

/// A step or rank without a partner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unpaired {
    /// Case name; null for `diff`.
    pub case: Option<String>,
    /// Step, where the tree tells.
    pub step: Option<u64>,
    /// Rank, where the tree tells.
    pub rank: Option<u64>,
    /// `golden` or `candidate`: the side that has it.
    #[serde(rename = "in")]
    pub side: String,
}

/// One case of a suite: its report, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SuiteEntry {
    /// It was verified.
    Report(Box<Report>),
    /// It could not be.
    Failed {
        /// Case name or path.
        case: String,
        /// One line.
        error: String,
    },
}
