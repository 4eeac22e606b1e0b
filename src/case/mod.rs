//! The YAML a user writes becomes a validated [`Case`].
//!
//! In goes the text of a case file (`goldline.case/1`), out comes a [`Case`] in which every path is
//! resolved against the file, every glob and regular expression is compiled and every limit is
//! finite; or one error that shows the line, the column and what is allowed there. The invariant:
//! whoever holds a [`Case`] need not check it again, except that the golden may not be there yet
//! (see [`Case::require_golden`]).

mod discover;
mod document;
mod filter;
mod frame;
mod raw;
mod rename;
mod schema;
mod shards;
mod template;
mod tolerance;
mod validate;

use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use filter::LayerFilter;
pub use rename::Rename;
pub use schema::json_schema;
pub use template::template;
pub use tolerance::{ExplicitLimit, ExplicitLimits, Metric, ToleranceTable};

use crate::error::{Error, Result};
use crate::run::join::ShardRule;
use crate::tensor::DType;
use crate::tensor::describe_kind;
use frame::{Mistake, Source};

/// The value of `schema` in the case files that this version reads.
pub const CASE_SCHEMA: &str = raw::SCHEMA;

/// Largest case file, in bytes; what is larger is no file that a person wrote.
const MAX_BYTES: u64 = 1 << 20;

/// What is tested: seed, inputs, golden, tolerances, which layers.
#[derive(Debug, Clone)]
pub struct Case {
    /// The file; empty where there is none ([`Case::default_for_diff`]).
    pub path: PathBuf,
    /// Short name; empty where there is no file.
    pub name: String,
    /// Seed that a run must have been made with.
    pub seed: Option<i64>,
    /// Inputs of the model (a safetensors file that is there); `None`: the golden's recorded ones.
    pub inputs: Option<PathBuf>,
    /// The approved run; need not be there yet.
    pub golden: PathBuf,
    /// The run that `verify` takes when none is given; need not be there yet.
    pub candidate: Option<PathBuf>,
    /// Program and arguments that make a run; at least the program.
    pub command: Option<Vec<String>>,
    /// A known defect that must be found.
    pub expect: Option<Expect>,
    /// The candidate's compute dtype; `None` reads it from the run.
    pub precision: Option<DType>,
    /// Which layers are judged.
    pub layers: LayerFilter,
    /// Rules that rewrite layer names before pairing, in order.
    pub rename: Vec<Rename>,
    /// Which positions count.
    pub valid: Option<Valid>,
    /// How tensors of several ranks are one; of several rules that match a tensor the last wins.
    pub shards: Vec<ShardRule>,
    /// Explicit limits.
    pub tolerance: ToleranceTable,
    /// Where in the file what stands, for errors that are found later.
    places: Option<Arc<Places>>,
}

/// What `verify` must find for the case to succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// The case's verdict.
    pub verdict: ExpectVerdict,
    /// Name of the layer that must be the origin (or the birth of the NaN/Inf), as reports print it.
    pub origin: Option<String>,
}

/// A verdict of a case that can be expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names are the report's verdicts")]
pub enum ExpectVerdict {
    Pass,
    Drift,
    Nonfinite,
    Incomparable,
}

impl ExpectVerdict {
    const ALL: [Self; 4] = [Self::Pass, Self::Drift, Self::Nonfinite, Self::Incomparable];
    const NAMES: [&'static str; 4] = ["pass", "drift", "nonfinite", "incomparable"];

    /// Name in case files and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drift => "drift",
            Self::Nonfinite => "nonfinite",
            Self::Incomparable => "incomparable",
        }
    }

    /// The verdict with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.name() == name)
    }
}

/// Which positions of the tensors count; others are compared but never judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Valid {
    /// Name of the recorded tensor that is nonzero where positions count.
    pub mask: String,
}

/// Bytes of what is looked at after loading.
#[derive(Debug)]
struct Places {
    source: Source,
    golden: Range<usize>,
    name: Range<usize>,
    candidate: Option<Range<usize>>,
}

impl Case {
    /// Reads and validates the case file at `path`. The error is a source frame for everything that
    /// is wrong inside the file, one line where the file cannot be read.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let cannot = |error| Error::io(path, "open the case file", &error);
        // Asked before the file is opened, for opening a pipe would wait for its writer.
        let found = std::fs::metadata(path).map_err(cannot)?;
        if !found.is_file() {
            return Err(Error::at(path, format_args!("expected a case file, found {}", describe_kind(&found))));
        }
        let file = File::open(path).map_err(cannot)?;
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| Error::io(path, "read the case file", &error))?;
        Self::parse_bytes(&bytes, path)
    }

    /// Validates `text` as if it stood in the file `path`, which need not be there: relative paths
    /// in it are taken from that file's directory.
    pub fn parse(text: &str, path: impl AsRef<Path>) -> Result<Self> {
        Self::parse_bytes(text.as_bytes(), path.as_ref())
    }

    fn parse_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_BYTES {
            let mistake = Mistake::new(&(0..0), format!("the file is larger than {} KiB", MAX_BYTES >> 10))
                .help("a case is a short text; tensors belong into the files that it names");
            let start = bytes.get(..80).unwrap_or_default();
            return Err(Source::new(path, String::from_utf8_lossy(start)).error(&mistake));
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => validate::case(Source::new(path, text.strip_prefix('\u{feff}').unwrap_or(text))),
            Err(error) => {
                let at = error.valid_up_to();
                let mistake = Mistake::new(&(at..at + 1), "the file is not UTF-8 text")
                    .label(format!("byte {at} belongs to no character"))
                    .help("save the file as UTF-8");
                // Up to the bad byte the lossy text is the file's own, so the place holds in it.
                Err(Source::new(path, String::from_utf8_lossy(bytes)).error(&mistake))
            }
        }
    }

    /// Every case file below `dir` (`*.yaml`, `*.yml` that say `schema: goldline.case/…`), sorted by
    /// path. Other YAML files, hidden directories and links to directories are passed over.
    pub fn find(dir: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
        discover::find(dir.as_ref())
    }

    /// The case that `diff` judges by, with no file: everything `auto`, every layer judged.
    pub fn default_for_diff() -> Self {
        Self {
            path: PathBuf::new(),
            name: String::new(),
            seed: None,
            inputs: None,
            golden: PathBuf::new(),
            candidate: None,
            command: None,
            expect: None,
            precision: None,
            layers: LayerFilter::default(),
            rename: Vec::new(),
            valid: None,
            shards: Vec::new(),
            tolerance: ToleranceTable::default(),
            places: None,
        }
    }

    /// The golden's path if something is there, else a frame that says how to record one.
    pub fn require_golden(&self) -> Result<&Path> {
        let trouble = match self.golden.try_exists() {
            Ok(true) => return Ok(&self.golden),
            Ok(false) => "the golden has not been recorded yet".to_string(),
            Err(error) => format!("the golden cannot be reached: {error}"),
        };
        let label = format!("nothing at {}", document::quote(&self.golden.to_string_lossy()));
        let help = format!("approve a run as the golden: goldline record {} --run DIR", self.path.display());
        Err(self.frame(|places| &places.golden, &trouble, &label, &help))
    }

    /// The candidate's path if something is there, else a frame that says how to name a run.
    pub fn require_candidate(&self) -> Result<&Path> {
        let help = "name the run to test with --run DIR, or add `candidate:` to the case";
        let Some(path) = self.candidate.as_deref() else {
            return Err(self.frame(|places| &places.name, "the case names no candidate", "in this case", help));
        };
        let trouble = match path.try_exists() {
            Ok(true) => return Ok(path),
            Ok(false) => "no such file or directory".to_string(),
            Err(error) => error.to_string(),
        };
        let label = format!("looked for {}", document::quote(&path.to_string_lossy()));
        let title = format!("`candidate` is not there: {trouble}");
        let help = "paths are relative to the case file; --run DIR names another run";
        Err(self.frame(|places| places.candidate.as_ref().unwrap_or(&places.name), &title, &label, help))
    }

    fn frame(&self, place: impl Fn(&Places) -> &Range<usize>, title: &str, label: &str, help: &str) -> Error {
        match &self.places {
            Some(places) => places.source.error(&Mistake::new(place(places), title).label(label).help(help)),
            None => Error::new(title),
        }
    }
}
