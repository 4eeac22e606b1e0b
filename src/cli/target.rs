//! What is compared with what: two paths, or a case and a run.

use std::path::{Path, PathBuf};

use super::args::{Comparing, DualLevel, Executing, Replay, Third};
use super::progress::Progress;
use crate::case::Case;
use crate::error::{Error, Result};
use crate::execute;
use crate::golden::{Golden, recover};
use crate::judge::{self, ReplayMode};
use crate::pipeline::{self, Analysis};
use crate::report::model::Report;
use crate::run::join::Part;
use crate::run::{LayerId, Run, TensorId};
use crate::tensor::Tensor;

/// The run that is right: approved with digests, or any run.
#[derive(Debug)]
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

    /// Gives the run the step and rank at which it stands in a tree, where it does not tell them.
    pub(super) fn stands_at(&mut self, (step, rank): (Option<u64>, Option<u64>)) {
        let meta = match self {
            Self::Approved(golden) => &mut golden.run.meta,
            Self::Plain(run) => &mut run.meta,
        };
        (meta.step, meta.rank) = (meta.step.or(step), meta.rank.or(rank));
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

/// A rank of a joined golden: its tensors are checked as they are read.
impl Part for Baseline {
    fn run(&self) -> &Run {
        Self::run(self)
    }

    fn load(&self, id: TensorId) -> Result<Option<Tensor>> {
        let tensor = Self::run(self).load(id)?;
        if let Some(tensor) = &tensor {
            self.check(id, tensor)?;
        }
        Ok(tensor)
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
    pub(super) fn truth(&self) -> Option<&Path> {
        self.third?.truth.as_deref()
    }
}

/// Compares two opened runs under a case; the third run is one run as well.
pub(super) fn compare(baseline: &Baseline, candidate: &Run, case: &Case, how: How<'_>) -> Result<Report> {
    let truth = how.truth().map(Baseline::open).transpose()?;
    compare_with(baseline, candidate, truth.as_ref(), case, how)
}

/// [`compare`] with the third run opened.
pub(super) fn compare_with(
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
    let options = execute::Options { out: how.out.clone(), time_limit: how.timeout };
    execute::execute(case, &options)
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
