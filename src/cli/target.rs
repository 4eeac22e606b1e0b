//! What is compared with what: two paths, or a case and a run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::args::{Comparing, DualLevel, Executing, Replay, Third};
use super::progress::Progress;
use crate::case::Case;
use crate::error::{Error, Result};
use crate::execute;
use crate::golden::{Golden, recover};
use crate::judge::{self, ReplayMode};
use crate::pipeline::{self, Analysis};
use crate::report::model::{Report, SuiteEntry};
use crate::run::{LayerId, Run, TensorId};
use crate::tensor::Tensor;

/// The run that is right: approved with digests, or any run.
pub(super) enum Baseline {
    Approved(Box<Golden>),
    Plain(Box<Run>),
}

impl Baseline {
    /// Opens a golden as such, with its digests checked, and anything else as a run.
    pub(super) fn open(path: &Path) -> Result<Self> {
        if Golden::is_golden(path) {
            return Golden::open(path).map(|golden| Self::Approved(Box::new(golden)));
        }
        Run::open(path).map(|run| Self::Plain(Box::new(run)))
    }

    pub(super) fn run(&self) -> &Run {
        match self {
            Self::Approved(golden) => &golden.run,
            Self::Plain(run) => run,
        }
    }

    /// How far the approved runs of a golden lie apart at an output, as rel_l2; `None` for any other run.
    pub(super) fn noise(&self, layer: LayerId, slot: usize) -> Option<f64> {
        match self {
            Self::Approved(golden) => golden.noise(&golden.run.display_name(layer), slot)?.rel_l2,
            Self::Plain(_) => None,
        }
    }

    pub(super) fn check(&self, id: TensorId, tensor: &Tensor) -> Result<()> {
        match self {
            Self::Approved(golden) => golden.check_tensor(id, tensor),
            Self::Plain(_) => Ok(()),
        }
    }
}

/// How two runs are held against each other, as the command line says.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    pub(super) comparing: Comparing,
    pub(super) third: Option<&'a Third>,
    pub(super) bitwise: bool,
}

impl From<Comparing> for How<'_> {
    fn from(comparing: Comparing) -> Self {
        Self { comparing, third: None, bitwise: false }
    }
}

impl How<'_> {
    fn level(self) -> Option<judge::Level> {
        self.third?.level.map(|level| match level {
            DualLevel::L0 => judge::Level::L0,
            DualLevel::L1 => judge::Level::L1,
            DualLevel::L2 => judge::Level::L2,
        })
    }

    /// Where the third run is, or the tree of its steps and ranks.
    fn truth(&self) -> Option<&Path> {
        self.third?.truth.as_deref()
    }
}

/// Compares two opened runs under a case; the third run is one run as well.
pub(super) fn compare(baseline: &Baseline, candidate: &Run, case: &Case, how: How<'_>) -> Result<Report> {
    let truth = how.truth().map(Baseline::open).transpose()?;
    compare_with(baseline, candidate, truth.as_ref(), case, how)
}

fn compare_with(
    baseline: &Baseline,
    candidate: &Run,
    truth: Option<&Baseline>,
    case: &Case,
    how: How<'_>,
) -> Result<Report> {
    let check = |id: TensorId, tensor: &Tensor| truth.map_or(Ok(()), |truth| truth.check(id, tensor));
    let third = truth.map(|truth| judge::Truth { run: truth.run(), on_tensor: &check, level: how.level() });
    with_options(baseline, case, how.comparing, third, |options| {
        let verify = if how.bitwise { pipeline::verify_bitwise } else { pipeline::verify };
        verify(baseline.run(), candidate, case, options)
    })
}

/// Like [`compare`], with what every stage found.
pub(super) fn analyse(pair: &Pair, how: Comparing) -> Result<Analysis> {
    let Pair { baseline, candidate, case } = pair;
    with_options(baseline, case, how, None, |options| pipeline::analyse(baseline.run(), candidate, case, options))
}

fn with_options<T>(
    baseline: &Baseline,
    case: &Case,
    how: Comparing,
    truth: Option<judge::Truth<'_>>,
    work: impl FnOnce(&judge::Options<'_>) -> Result<T>,
) -> Result<T> {
    let progress = Progress::new(if case.name.is_empty() { "compare" } else { &case.name });
    work(&judge::Options {
        on_golden: &|id, tensor| baseline.check(id, tensor),
        on_progress: &|done, all| progress.show(done, all),
        noise: &|layer, slot| baseline.noise(layer, slot),
        replay: match how.replay {
            Replay::Auto => ReplayMode::Auto,
            Replay::Always => ReplayMode::Always,
            Replay::Never => ReplayMode::Never,
        },
        truth,
    })
}

/// The run that the case's command makes.
pub(super) fn executed(case: &Case, how: &Executing) -> Result<PathBuf> {
    let options = execute::Options { out: how.out.clone(), time_limit: how.timeout, more: Vec::new() };
    execute::execute(case, &options)
}

/// Where a run stands in a tree; both `None` for a run that stands alone.
type StepAndRank = (Option<u64>, Option<u64>);

/// Compares two paths: runs, or trees of steps and ranks, which pair by step and rank.
/// A third run pairs with them likewise.
pub(super) fn compare_paths(golden: &Path, candidate: &Path, case: &Case, how: How<'_>) -> Result<Vec<SuiteEntry>> {
    let located = |path: &Path| -> Result<BTreeMap<StepAndRank, PathBuf>> {
        if Golden::is_golden(path) {
            return Ok(BTreeMap::from([((None, None), path.to_path_buf())]));
        }
        Ok(Run::discover(path)?.into_iter().map(|(step, rank, path)| ((step, rank), path)).collect())
    };
    let (left, right) = (located(golden)?, located(candidate)?);
    let truths = how.truth().map(located).transpose()?;
    let truth_at = |place: StepAndRank| -> Result<Option<Baseline>> {
        let Some(truths) = &truths else { return Ok(None) };
        let path = match (truths.get(&place), only(truths).as_slice()) {
            (Some(path), _) => path,
            // Runs that stand alone answer each other wherever they stood.
            (None, [(_, path)]) if left.len() == 1 => path,
            _ => return Err(Error::new("the truth has no such step or rank")),
        };
        Baseline::open(path).map(Some)
    };
    if let ([(place, golden)], [(_, candidate)]) = (only(&left).as_slice(), only(&right).as_slice()) {
        let truth = truth_at(*place)?;
        let report = compare_with(&Baseline::open(golden)?, &Run::open(candidate)?, truth.as_ref(), case, how)?;
        return Ok(vec![SuiteEntry::Report(Box::new(report))]);
    }
    let places: std::collections::BTreeSet<_> = left.keys().chain(right.keys()).copied().collect();
    let mut entries = Vec::new();
    for place in places {
        let name = place_name(&case.name, place);
        entries.push(match (left.get(&place), right.get(&place)) {
            (Some(golden), Some(candidate)) => {
                let compared = Baseline::open(golden).and_then(|golden| {
                    compare_with(&golden, &Run::open(candidate)?, truth_at(place)?.as_ref(), case, how)
                });
                match compared {
                    Ok(mut report) => {
                        (report.step, report.rank) = (report.step.or(place.0), report.rank.or(place.1));
                        SuiteEntry::Report(Box::new(report))
                    }
                    Err(error) => SuiteEntry::Failed { case: name, error: error.to_string() },
                }
            }
            (Some(_), None) => SuiteEntry::Failed {
                case: name,
                error: "only in the golden: the candidate has no such step or rank".into(),
            },
            _ => SuiteEntry::Failed {
                case: name,
                error: "only in the candidate: the golden has no such step or rank".into(),
            },
        });
    }
    Ok(entries)
}

fn only<K: Copy>(runs: &BTreeMap<K, PathBuf>) -> Vec<(K, &PathBuf)> {
    runs.iter().map(|(key, path)| (*key, path)).collect()
}

fn place_name(case: &str, (step, rank): StepAndRank) -> String {
    let parts = [
        Some(case.to_string()).filter(|c| !c.is_empty()),
        step.map(|s| format!("step {s}")),
        rank.map(|r| format!("rank {r}")),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// Two runs and the case under which they are compared.
pub(super) struct Pair {
    pub(super) baseline: Baseline,
    pub(super) candidate: Run,
    pub(super) case: Case,
}

/// Opens GOLDEN and CANDIDATE, or a CASE with its candidate or `run`.
pub(super) fn open(paths: &[PathBuf], run: Option<&Path>) -> Result<Pair> {
    match paths {
        [golden, candidate] => {
            if run.is_some() {
                return Err(Error::new(
                    "--run goes with a case; with GOLDEN and CANDIDATE the candidate is named already",
                ));
            }
            Ok(Pair {
                baseline: Baseline::open(golden)?,
                candidate: Run::open(candidate)?,
                case: Case::default_for_diff(),
            })
        }
        [path] if path.is_dir() => {
            Err(Error::at(path, "expected GOLDEN and CANDIDATE, or a case file, found one directory"))
        }
        [path] => {
            let case = Case::load(path)?;
            recover(&case.golden)?;
            let baseline = Baseline::Approved(Box::new(Golden::open(case.require_golden()?)?));
            let candidate = Run::open(match run {
                Some(run) => run,
                None => case.require_candidate()?,
            })?;
            Ok(Pair { baseline, candidate, case })
        }
        _ => Err(Error::new("expected GOLDEN and CANDIDATE, or a case file")),
    }
}
