//! What the command line takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::tensor::DType;

const EXIT_STATUS: &str = "\
Exit status:
  0  as expected
  1  drift or NaN/Inf, or a case's `expect` was not met
  2  bad usage, or an input that cannot be read
  3  the runs cannot be compared (other inputs, other weights, an end that is missing)
With several cases the first of 2, 1, 3, 0 that occurs.";

/// Golden-test harness for the numerics of neural networks: proves that a model on a new device
/// computes what it computed on the old one, and when it does not, names the operator that broke it.
#[derive(Debug, Parser)]
#[command(name = "goldline", version, after_help = EXIT_STATUS, arg_required_else_help = true, subcommand_required = true)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) verb: Verb,
    #[command(flatten)]
    pub(super) global: Global,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub(super) struct Global {
    /// When to colour what is printed (NO_COLOR is kept)
    #[arg(long, global = true, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(super) color: When,
    /// Worker threads (default: all cores); the report does not depend on it
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) threads: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum Verb {
    Record(Record),
    Verify(Verify),
    Diff(Diff),
    Bisect(Bisect),
    Nan(Nan),
    Blacklist(Blacklist),
    Preflight(Preflight),
    Calibrate(Calibrate),
    Explain(Explain),
    Inspect(Inspect),
    Convert(Convert),
    Report(ReportFile),
    Init(Init),
    Schema(Schema),
    Completions(Completions),
}

/// How a comparison is made.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Comparing {
    /// When operators are recomputed in fp64 from their recorded inputs: where a layer stays within
    /// some seconds and 2 GB, always, or never
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub(super) replay: Replay,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Replay {
    Auto,
    Always,
    Never,
}

/// Making a run by the case's own command.
#[derive(Debug, Clone, Args)]
pub(super) struct Executing {
    /// Run the case's `command` first and take the run that it leaves in GOLDLINE_OUT. Without a shell,
    /// in the case file's directory, with GOLDLINE_OUT, GOLDLINE_CASE, GOLDLINE_SEED and
    /// GOLDLINE_INPUTS set
    #[arg(long)]
    pub(super) execute: bool,
    /// Where the command records [default: runs/NAME-1 (-2 …) beside the case file]
    #[arg(long, value_name = "DIR", requires = "execute")]
    pub(super) out: Option<PathBuf>,
    /// Stop the command after so many seconds
    #[arg(long, value_name = "SECONDS", requires = "execute", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("expected a number of seconds, found `{text}`"))?;
    let positive = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
    positive.ok_or_else(|| format!("expected a positive number of seconds, found `{text}`"))
}

/// A third run to hold both sides against.
#[derive(Debug, Clone, Args)]
pub(super) struct Third {
    /// A run of higher precision: what golden and candidate are both held against. A layer that is
    /// further from it than 1.5 times the golden drifts, one that is nearer never does
    #[arg(long, value_name = "RUN")]
    pub(super) truth: Option<PathBuf>,
    /// Limits of the dual-benchmark comparison instead: how much larger than the golden's the
    /// candidate's largest, mean and RMS error may be (L0 10/2/2, L1 5/1.5/1.5, L2 2/1.2/1.2)
    #[arg(long, value_enum, value_name = "LEVEL", requires = "truth", ignore_case = true)]
    pub(super) level: Option<DualLevel>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum DualLevel {
    #[value(name = "L0")]
    L0,
    #[value(name = "L1")]
    L1,
    #[value(name = "L2")]
    L2,
}

/// How a report is shown and where it goes.
#[derive(Debug, Clone, Args)]
pub(super) struct Output {
    /// Print the JSON report on stdout and nothing else (short for --report json=-)
    #[arg(long)]
    pub(super) json: bool,
    /// Write a report: json, html, junit, md or csv; `-` is stdout. May repeat
    #[arg(long = "report", value_name = "FORMAT=FILE")]
    pub(super) reports: Vec<String>,
    /// Show every layer, not those of interest alone
    #[arg(long)]
    pub(super) all: bool,
}

/// Approve a run as the case's golden
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline record cases/encode.yaml --run runs/gpu
  goldline record cases/encode.yaml --run runs/gpu-1 --run runs/gpu-2    keep the spread as noise
  goldline record cases/encode.yaml --run runs/gpu --update              replace, showing what changes
  goldline record cases/encode.yaml --execute                            run the case's command first")]
pub(super) struct Record {
    /// The case file
    pub(super) case: PathBuf,
    /// A run, or a tree of steps and ranks, to approve; several keep the spread between them as noise per layer
    #[arg(long = "run", value_name = "DIR", required_unless_present = "execute")]
    pub(super) runs: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) executing: Executing,
    /// Replace a golden that exists, and show what changes
    #[arg(long)]
    pub(super) update: bool,
    /// Record digests and leave the tensors where they are
    #[arg(long)]
    pub(super) in_place: bool,
    /// Approve a run that its recorder did not close
    #[arg(long)]
    pub(super) allow_incomplete: bool,
}

/// Compare runs with the goldens of their cases
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline verify cases                              every case below a directory
  goldline verify cases/encode.yaml --run runs/npu   this run
  goldline verify cases/encode.yaml --execute        the run that the case's command makes
  goldline verify cases --report junit=report.xml    for CI")]
pub(super) struct Verify {
    /// Case files, or directories of cases [default: cases]
    pub(super) paths: Vec<PathBuf>,
    /// The run to test, instead of the case's candidate (one case only)
    #[arg(long, value_name = "DIR", conflicts_with = "execute")]
    pub(super) run: Option<PathBuf>,
    #[command(flatten)]
    pub(super) executing: Executing,
    #[command(flatten)]
    pub(super) output: Output,
    /// Demand equal bits: name the first layer that is not bit-equal, and succeed only if there is none
    #[arg(long)]
    pub(super) bitwise: bool,
    #[command(flatten)]
    pub(super) third: Third,
    #[command(flatten)]
    pub(super) comparing: Comparing,
}

/// Compare any two runs, without a case
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline diff runs/gpu runs/npu
  goldline diff runs/gpu runs/npu --json | jq .origins
  goldline diff runs/gpu runs/npu --report html=diff.html --all
  goldline diff runs/gpu runs/npu --truth runs/cpu-fp64    who is nearer to the truth
  goldline diff runs/train runs/infer --bitwise            the first layer with other bits")]
pub(super) struct Diff {
    /// The run that is right
    pub(super) golden: PathBuf,
    /// The run under test
    pub(super) candidate: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
    /// Demand equal bits: name the first layer that is not bit-equal, and succeed only if there is none
    #[arg(long)]
    pub(super) bitwise: bool,
    #[command(flatten)]
    pub(super) third: Third,
    #[command(flatten)]
    pub(super) comparing: Comparing,
}

/// Two runs, or a case.
#[derive(Debug, Clone, Args)]
pub(super) struct Target {
    /// GOLDEN and CANDIDATE, or a CASE
    #[arg(required = true, num_args = 1..=2, value_names = ["GOLDEN|CASE", "CANDIDATE"])]
    pub(super) paths: Vec<PathBuf>,
    /// The run to test, instead of the case's candidate
    #[arg(long, value_name = "DIR")]
    pub(super) run: Option<PathBuf>,
}

/// Find the first drifting layer with few tensor loads
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline bisect runs/gpu runs/npu
  goldline bisect cases/encode.yaml --run runs/npu")]
pub(super) struct Bisect {
    #[command(flatten)]
    pub(super) target: Target,
    /// Print the search as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// List every probe
    #[arg(long)]
    pub(super) all: bool,
    /// Stop where the final tensors agree. An output that agrees does not prove that no layer drifts
    #[arg(long)]
    pub(super) trust_output: bool,
}

/// Show where each NaN/Inf was born and where it went
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline nan runs/npu                       what this run holds
  goldline nan runs/npu --golden runs/gpu     what it holds that the golden does not")]
pub(super) struct Nan {
    /// The run to look into
    pub(super) run: PathBuf,
    /// A run that is right
    #[arg(long, value_name = "RUN")]
    pub(super) golden: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(super) comparing: Comparing,
}

/// Which operators must stay in fp32: the evidence, or a file for the framework
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline blacklist runs/gpu runs/npu
  goldline blacklist runs/gpu runs/npu --emit torch -o keep_fp32.py
  goldline blacklist cases/encode.yaml --emit ascend-mixlist -o mixlist.json")]
pub(super) struct Blacklist {
    #[command(flatten)]
    pub(super) target: Target,
    /// Write the list in a framework's syntax: torch or ascend-mixlist
    #[arg(long, value_name = "FORMAT")]
    pub(super) emit: Option<String>,
    /// Where to write it [default: stdout]
    #[arg(short, long, value_name = "FILE", requires = "emit")]
    pub(super) output: Option<PathBuf>,
    /// Write a list by operator type even where it hits mostly other layers
    #[arg(long, requires = "emit")]
    pub(super) allow_collateral: bool,
    #[command(flatten)]
    pub(super) comparing: Comparing,
}

/// What a low-precision run will trip over, told from the fp32 run alone
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline preflight runs/gpu-fp32 --dtype float16
  goldline preflight runs/gpu-fp32 --dtype bfloat16 --json | jq .findings

Exit status 0 where nothing is flagged, 1 where something is.")]
pub(super) struct Preflight {
    /// The run in float32, or a golden
    pub(super) run: PathBuf,
    /// The dtype that it shall move to
    #[arg(long, value_enum, value_name = "DTYPE")]
    pub(super) dtype: LowPrecision,
    /// Print it as JSON, with the figures of every layer
    #[arg(long)]
    pub(super) json: bool,
    /// List every finding
    #[arg(long)]
    pub(super) all: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LowPrecision {
    #[value(alias = "fp16", alias = "half")]
    Float16,
    #[value(alias = "bf16")]
    Bfloat16,
}

impl LowPrecision {
    pub(super) fn of(self) -> DType {
        match self {
            Self::Float16 => DType::F16,
            Self::Bfloat16 => DType::BF16,
        }
    }
}

/// Measure how far baseline runs lie apart, and propose tolerances for the case file
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  goldline calibrate cases/encode.yaml --run runs/gpu-1 --run runs/gpu-2 --run runs/gpu-3")]
pub(super) struct Calibrate {
    /// The case file
    pub(super) case: PathBuf,
    /// A baseline run; at least two, of the same inputs on the same device
    #[arg(long = "run", value_name = "DIR", required = true)]
    pub(super) runs: Vec<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// List every layer, not those that spread alone
    #[arg(long)]
    pub(super) all: bool,
}

/// Tell the story of one layer
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  goldline explain runs/gpu runs/npu encoder.layer.1.attention.softmax")]
pub(super) struct Explain {
    /// The run that is right
    pub(super) golden: PathBuf,
    /// The run under test
    pub(super) candidate: PathBuf,
    /// Name of the layer, in either run; a suffix that only one layer has is enough
    pub(super) layer: String,
    #[command(flatten)]
    pub(super) third: Third,
    #[command(flatten)]
    pub(super) comparing: Comparing,
}

/// List a run: layers, dtypes, shapes, bytes, and what is odd
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  goldline inspect runs/npu
  goldline inspect runs/npu --json | jq .layers")]
pub(super) struct Inspect {
    /// The run
    pub(super) path: PathBuf,
    /// Print it as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// List every layer, not the first ones and the odd ones alone
    #[arg(long)]
    pub(super) all: bool,
}

/// Write a run in the native format
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  goldline convert runs/npu runs/npu-native")]
pub(super) struct Convert {
    /// The run to read
    pub(super) input: PathBuf,
    /// The directory to make; must not exist
    pub(super) output: PathBuf,
}

/// Show a JSON report again, or in another format
#[derive(Debug, Args)]
#[command(
    name = "report",
    after_help = "\
Example:
  goldline report diff.json --report html=diff.html"
)]
pub(super) struct ReportFile {
    /// A report that --json wrote; `-` reads stdin
    pub(super) input: PathBuf,
    #[command(flatten)]
    pub(super) output: Output,
}

/// Write a commented case file to start from
#[derive(Debug, Args)]
pub(super) struct Init {
    /// Name of the case
    pub(super) name: String,
    /// Where to write it [default: cases/NAME.yaml]
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// Print the JSON schema of case files
#[derive(Debug, Args)]
pub(super) struct Schema {}

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(super) shell: clap_complete::Shell,
}
