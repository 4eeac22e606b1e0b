//! Sources: inputs and parameters must be the same tensor, or no operator can be blamed.

use super::Verdict;
use super::limit::TensorJudgement;
use super::measure::{Measured, coarser};
use crate::compare::{Comparison, Metrics};
use crate::tensor::Kind;

/// Judges a pair of sources: equal after rounding to the coarser of the two dtypes. `drift` here
/// means that the runs were given different tensors.
pub(super) fn judge(measured: &Measured) -> TensorJudgement {
    match measured {
        Measured::Tensors(Comparison::Measured(metrics)) => judge_metrics(metrics),
        Measured::Tensors(Comparison::Mismatch(why)) => TensorJudgement::new(Verdict::Mismatch, why.clone()),
        Measured::Tensors(Comparison::Opaque { equal }) => {
            let (verdict, why) =
                if *equal { (Verdict::Pass, "the bytes are equal") } else { (Verdict::Drift, "the bytes differ") };
            TensorJudgement::new(verdict, why)
        }
        Measured::Statistics { golden, candidate } => {
            // Without the values only equal digests prove equality, and only of equal dtypes.
            let digests =
                golden.digest.as_ref().zip(candidate.digest.as_ref()).filter(|_| golden.dtype == candidate.dtype);
            match digests {
                Some((a, b)) if a == b => TensorJudgement::new(Verdict::Pass, "the recorded digests are equal"),
                Some(_) => TensorJudgement::new(Verdict::Drift, "the recorded digests differ"),
                None => TensorJudgement::new(Verdict::Skipped, "not stored: statistics cannot prove a source equal"),
            }
        }
        Measured::NotStored(why) => TensorJudgement::new(Verdict::Skipped, why.clone()),
    }
}

fn judge_metrics(metrics: &Metrics) -> TensorJudgement {
    if metrics.has_unshared_specials() {
        let specials = metrics.specials;
        let why = format!(
            "NaN or Inf on one side only: {} elements in the candidate, {} in the golden",
            specials.candidate_only, specials.golden_only
        );
        return TensorJudgement::new(Verdict::Nonfinite, why);
    }
    let is_float = matches!(metrics.golden_dtype.kind(), Kind::Float | Kind::Complex);
    let agrees = if is_float && metrics.golden_dtype != metrics.candidate_dtype {
        // Distance counts in the coarser dtype, after rounding both to it.
        metrics.max_ulp == Some(0) || metrics.unequal() == 0
    } else {
        metrics.unequal() == 0
    };
    if agrees {
        let why = match (metrics.golden_dtype, metrics.candidate_dtype) {
            (a, b) if a == b => "the same tensor in both runs".to_string(),
            (a, b) => format!("the same tensor after rounding to {}", coarser(a, b)),
        };
        return TensorJudgement::new(Verdict::Pass, why);
    }
    let unequal = metrics.unequal();
    let why = format!(
        "the runs were given different tensors: {unequal} of {} elements differ, by up to {}",
        metrics.elements,
        super::limit::figure(metrics.max_abs)
    );
    TensorJudgement::new(Verdict::Drift, why)
}
