//! Judges a tensor by recorded statistics alone: one that was not stored on one side or both.
//!
//! In go the statistics of both sides and the error that is expected, out comes a verdict by what both sides
//! know: digests, NaN and infinities, norm, extremes, mean. Limits follow from the expected error, and for the
//! mean from the number of elements. A permutation cannot be seen, and the verdict says on what it rests.

use super::Verdict;
use super::limit::{Expected, Limit, TensorJudgement, figure};
use super::threshold::{ELEMENT, ROUNDING, TOTAL};
use crate::run::RecordedStats;
use crate::tensor::{DType, element_count};

/// Judges a pair of which statistics alone are known on one side at least.
pub(super) fn judge(golden: &RecordedStats, candidate: &RecordedStats, expected: &Expected) -> TensorJudgement {
    if golden.shape.is_some() && candidate.shape.is_some() && golden.shape != candidate.shape {
        return TensorJudgement::new(
            Verdict::Mismatch,
            format!("shape {:?} in the golden, {:?} in the candidate", golden.shape, candidate.shape),
        );
    }
    if let (Some(a), Some(b)) = (golden.dtype, candidate.dtype)
        && a.kind() != b.kind()
    {
        return TensorJudgement::new(Verdict::Mismatch, format!("{a} in the golden, {b} in the candidate"));
    }
    let digests = same_algorithm(golden, candidate);
    if digests == Some(true) {
        return TensorJudgement::new(Verdict::Pass, "the recorded digests are equal");
    }
    if let Some(why) = other_specials(golden, candidate) {
        return TensorJudgement::new(Verdict::Nonfinite, why);
    }
    let exact = |stats: &RecordedStats| stats.dtype.is_some_and(|dtype| dtype.unit_roundoff().is_none());
    if exact(golden) && exact(candidate) {
        return exactly(golden, candidate, digests);
    }
    approximately(golden, candidate, expected, digests)
}

/// Whether the digests are equal; `None` where there are none of one algorithm and dtype.
fn same_algorithm(golden: &RecordedStats, candidate: &RecordedStats) -> Option<bool> {
    let (a, b) = (golden.digest.as_deref()?, candidate.digest.as_deref()?);
    let algorithm = |digest: &str| digest.split(':').next().map(str::to_string);
    (algorithm(a) == algorithm(b) && golden.dtype == candidate.dtype).then_some(a == b)
}

/// NaN or infinities that one side has and the other has not, in words.
fn other_specials(golden: &RecordedStats, candidate: &RecordedStats) -> Option<String> {
    let counted = !golden.specials_uncounted && !candidate.specials_uncounted;
    // Where one side says only that there are some, that is compared.
    let count = |stats: &RecordedStats, count: Option<u64>| match count {
        Some(n) => Some(if counted { n } else { n.min(1) }),
        None if stats.specials_uncounted => None,
        None => Some(0),
    };
    let differs = |a: Option<u64>, b: Option<u64>| a.zip(b).is_some_and(|(a, b)| a != b);
    let nan = (count(golden, golden.nan), count(candidate, candidate.nan));
    let inf = (count(golden, golden.inf), count(candidate, candidate.inf));
    if !differs(nan.0, nan.1) && !differs(inf.0, inf.1) {
        return None;
    }
    let said = |stats: &RecordedStats, count: Option<u64>| match count {
        Some(0) => "no".to_string(),
        Some(_) if stats.specials_uncounted => "some".to_string(),
        Some(n) => n.to_string(),
        None => "perhaps some".to_string(),
    };
    Some(format!(
        "{} NaN and {} Inf in the candidate, {} and {} in the golden (statistics)",
        said(candidate, candidate.nan.or(count(candidate, None))),
        said(candidate, candidate.inf.or(count(candidate, None))),
        said(golden, golden.nan.or(count(golden, None))),
        said(golden, golden.inf.or(count(golden, None)))
    ))
}

/// Integers and booleans: what is known must be equal.
fn exactly(golden: &RecordedStats, candidate: &RecordedStats, digests: Option<bool>) -> TensorJudgement {
    if digests == Some(false) {
        return TensorJudgement::new(Verdict::Drift, "the recorded digests differ");
    }
    let extremes = |stats: &RecordedStats| stats.min.zip(stats.max);
    match (extremes(golden), extremes(candidate)) {
        (Some(a), Some(b)) if a == b => {
            TensorJudgement::new(Verdict::Pass, format!("statistics alone: both reach from {} to {}", a.0, a.1))
        }
        (Some(a), Some(b)) => TensorJudgement::new(
            Verdict::Drift,
            format!("from {} to {} against {} to {} (statistics)", b.0, b.1, a.0, a.1),
        ),
        _ => TensorJudgement::new(Verdict::Skipped, "not stored, and the statistics hold no extremes"),
    }
}

/// Whether its smallest value is the one that masks are made of: it differs by design between dtypes, and
/// norm and mean say nothing beside it.
fn is_masked(stats: &RecordedStats) -> bool {
    let lowest = stats.dtype.and_then(DType::max_finite).map(|max| -max);
    stats.min.is_some() && stats.min == lowest
}

fn approximately(
    golden: &RecordedStats,
    candidate: &RecordedStats,
    expected: &Expected,
    digests: Option<bool>,
) -> TensorJudgement {
    let u = [golden.dtype, candidate.dtype].into_iter().flatten().filter_map(DType::unit_roundoff).fold(0.0, f64::max);
    let (own, other) = expected.budget;
    let (relative, _) = expected.widened(own.relative.hypot(other.relative).hypot(ROUNDING * u));
    let masked = is_masked(golden) || is_masked(candidate);
    let norms = golden.l2.zip(candidate.l2).filter(|_| !masked);
    let known = |f: fn(&RecordedStats) -> Option<f64>| f(golden).zip(f(candidate));
    let largest =
        [golden.max, golden.min.filter(|_| !masked)].into_iter().flatten().fold(0.0f64, |a, v| a.max(v.abs()));
    let extreme = ELEMENT * relative * largest;
    let count = golden.shape.as_deref().and_then(element_count).map(|n| n as f64);
    // The mean of n errors whose squares add up to E² is at most E/√n.
    let mean = norms.zip(count).map(|((a, _), n)| TOTAL * relative * a / n.max(1.0).sqrt());
    let checks = [
        ("norm", norms, norms.map(|(a, _)| TOTAL * relative * a)),
        ("max", known(|s| s.max), Some(extreme)),
        ("min", known(|s| s.min).filter(|_| !masked), Some(extreme)),
        ("mean", known(|s| s.mean).filter(|_| !masked), mean),
    ];
    let held: Vec<(&str, (f64, f64), f64)> =
        checks.into_iter().filter_map(|(name, values, limit)| Some((name, values?, limit?))).collect();
    if held.is_empty() {
        let why = match digests {
            Some(false) => "not stored: the recorded digests differ, and nothing says how far apart the values are",
            _ => "not stored, and the statistics hold no norm",
        };
        return TensorJudgement::new(Verdict::Skipped, why);
    }
    let words = |(name, (a, b), _): &(&str, (f64, f64), f64)| format!("{name} {} against {}", figure(*b), figure(*a));
    let broken: Vec<String> = held.iter().filter(|(_, (a, b), limit)| (a - b).abs() > *limit).map(words).collect();
    let mut judgement = if broken.is_empty() {
        let names: Vec<&str> = held.iter().map(|(name, ..)| *name).collect();
        TensorJudgement::new(Verdict::Pass, format!("statistics alone: {} agree", names.join(", ")))
    } else {
        TensorJudgement::new(Verdict::Drift, format!("{} (statistics)", broken.join(", ")))
    };
    if let Some((a, _)) = norms {
        let why = format!("{TOTAL} times the expected error, statistics alone");
        judgement.limits.insert("l2", Limit { value: TOTAL * relative * a, why });
    }
    judgement
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Budget;

    fn stats(min: f64, max: f64, l2: f64) -> RecordedStats {
        RecordedStats {
            dtype: Some(DType::F32),
            shape: Some(vec![100]),
            min: Some(min),
            max: Some(max),
            mean: Some(0.0),
            l2: Some(l2),
            nan: Some(0),
            inf: Some(0),
            ..RecordedStats::default()
        }
    }

    fn verdict(golden: &RecordedStats, candidate: &RecordedStats) -> (Verdict, String) {
        let budget = Budget { relative: 1e-3, ..Budget::default() };
        let found = judge(golden, candidate, &Expected { budget: (budget, budget), noise: None });
        (found.verdict, found.why)
    }

    #[test]
    fn norm_extremes_and_mean_are_held_each() {
        let golden = stats(-1.0, 2.0, 10.0);
        assert_eq!(verdict(&golden, &golden).0, Verdict::Pass);
        assert_eq!(verdict(&golden, &stats(-1.0, 2.0, 10.05)).0, Verdict::Pass);
        assert_eq!(verdict(&golden, &stats(-1.0, 2.0, 10.1)).0, Verdict::Drift);
        let (found, why) = verdict(&golden, &stats(-1.5, 2.0, 10.0));
        assert_eq!((found, why.as_str()), (Verdict::Drift, "min -1.5 against -1 (statistics)"));
        let moved = RecordedStats { mean: Some(0.01), ..golden.clone() };
        assert_eq!(verdict(&golden, &moved).0, Verdict::Drift);
        let normless = RecordedStats { l2: None, mean: None, ..golden.clone() };
        assert_eq!(verdict(&golden, &normless), (Verdict::Pass, "statistics alone: max, min agree".into()));
        let nothing = RecordedStats { min: None, max: None, ..normless };
        assert_eq!(verdict(&golden, &nothing).0, Verdict::Skipped);
        let other = RecordedStats { shape: Some(vec![10, 10]), ..golden.clone() };
        assert_eq!(verdict(&golden, &other).0, Verdict::Mismatch);
    }

    #[test]
    fn a_masks_sentinel_is_no_difference() {
        let f32_mask = RecordedStats { l2: None, mean: None, ..stats(f64::from(f32::MIN), 0.0, 0.0) };
        let f16_mask = RecordedStats { dtype: Some(DType::F16), ..stats(-65504.0, 0.0, 4e5) };
        assert_eq!(verdict(&f32_mask, &f16_mask), (Verdict::Pass, "statistics alone: max agree".into()));
    }

    #[test]
    fn special_values_count_where_they_were_counted() {
        let golden = stats(-1.0, 2.0, 10.0);
        let some = RecordedStats { nan: Some(1), inf: None, specials_uncounted: true, max: None, ..golden.clone() };
        let counted = RecordedStats { nan: Some(63), inf: Some(2), ..golden.clone() };
        let (found, why) = verdict(&golden, &some);
        assert_eq!(found, Verdict::Nonfinite);
        assert_eq!(why, "some NaN and perhaps some Inf in the candidate, no and no in the golden (statistics)");
        assert_eq!(verdict(&some, &counted).0, Verdict::Pass, "NaN in both, however many");
        assert_eq!(verdict(&golden, &counted).0, Verdict::Nonfinite);
        assert_eq!(verdict(&counted, &RecordedStats { nan: Some(62), ..counted.clone() }).0, Verdict::Nonfinite);
    }

    #[test]
    fn digests_prove_equality_and_for_integers_difference() {
        let with = |digest: &str, dtype| RecordedStats {
            dtype: Some(dtype),
            shape: Some(vec![100]),
            digest: Some(digest.into()),
            ..RecordedStats::default()
        };
        let pass = |a: &str, b: &str, dtype| verdict(&with(a, dtype), &with(b, dtype)).0;
        assert_eq!(pass("crc32:1", "crc32:1", DType::F32), Verdict::Pass);
        assert_eq!(pass("crc32:1", "crc32:2", DType::F32), Verdict::Skipped);
        assert_eq!(pass("crc32:1", "crc32:2", DType::I64), Verdict::Drift);
        assert_eq!(pass("crc32:1", "md5:1", DType::I64), Verdict::Skipped);
        let ids = |max| RecordedStats { dtype: Some(DType::I64), l2: None, ..stats(0.0, max, 0.0) };
        assert_eq!(verdict(&ids(5.0), &ids(5.0)).0, Verdict::Pass);
        assert_eq!(verdict(&ids(5.0), &ids(6.0)).0, Verdict::Drift);
    }
}
