//! Holds what was measured of a tensor pair against its limits.

use std::collections::BTreeMap;

use super::budget::Budget;
use super::measure::{Measured, coarser};
use super::threshold::{CHANNEL, ELEMENT, NOISE, ROUNDING, SUBNORMAL_FLOOR, TOTAL};
use super::{Verdict, statistics};
use crate::case::{ExplicitLimits, Metric};
use crate::compare::{Comparison, Metrics};
use crate::tensor::Kind;

/// A limit, and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct Limit {
    /// What the metric must keep.
    pub value: f64,
    /// The reason, in words.
    pub why: String,
}

/// The judgement of one tensor pair.
#[derive(Debug, Clone)]
pub struct TensorJudgement {
    /// `pass`, `drift`, `nonfinite`, `mismatch` or `skipped`.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Limits by metric name.
    pub limits: BTreeMap<&'static str, Limit>,
    /// rel_l2 divided by the budget: how many times the expected error it is; `None` where no
    /// budget applies.
    pub excess: Option<f64>,
    /// Indices that chose the other of two nearly tied values.
    pub near_ties: u64,
}

impl TensorJudgement {
    pub(super) fn new(verdict: Verdict, why: impl Into<String>) -> Self {
        Self { verdict, why: why.into(), limits: BTreeMap::new(), excess: None, near_ties: 0 }
    }
}

/// The error that is expected of a tensor pair.
pub(super) struct Expected {
    /// Budgets of golden and candidate.
    pub(super) budget: (Budget, Budget),
    /// rel_l2 between approved runs of the golden, where known.
    pub(super) noise: Option<f64>,
}

impl Expected {
    /// `relative`, or what the spread of the golden's runs makes of it where that is more. The spread
    /// enters as the expected error at which the limit of rel_l2 is [`NOISE`] times the spread; channels and
    /// elements scale with it.
    pub(super) fn widened(&self, relative: f64) -> (f64, Option<f64>) {
        match self.noise.filter(|noise| noise.is_finite() && NOISE * noise > TOTAL * relative) {
            Some(noise) => (NOISE * noise / TOTAL, Some(noise)),
            None => (relative, None),
        }
    }
}

/// Judges a floating-point, integer or boolean pair by `auto` limits, each replaced where `explicit`
/// has one. Indices, sources and quantizers have rules of their own, which stand before this.
pub(super) fn judge(measured: &Measured, expected: &Expected, explicit: &ExplicitLimits) -> TensorJudgement {
    match measured {
        Measured::NotStored(why) => TensorJudgement::new(Verdict::Skipped, why.clone()),
        Measured::Statistics { golden, candidate } => statistics::judge(golden, candidate, expected),
        Measured::Tensors(Comparison::Mismatch(why)) => TensorJudgement::new(Verdict::Mismatch, why.clone()),
        Measured::Tensors(Comparison::Opaque { equal: true }) => {
            TensorJudgement::new(Verdict::Pass, "the bytes are equal")
        }
        Measured::Tensors(Comparison::Opaque { equal: false }) => TensorJudgement::new(
            Verdict::Mismatch,
            "the bytes differ, and this dtype's packing is not defined, so values cannot be compared",
        ),
        Measured::Tensors(Comparison::Measured(metrics)) => judge_metrics(metrics, expected, explicit),
    }
}

fn judge_metrics(metrics: &Metrics, expected: &Expected, explicit: &ExplicitLimits) -> TensorJudgement {
    let is_float = matches!(metrics.golden_dtype.kind(), Kind::Float | Kind::Complex);
    let mut judgement = if is_float { automatic(metrics, expected) } else { exact(metrics) };
    for (metric, limit) in explicit.iter() {
        judgement.limits.insert(metric.name(), Limit { value: limit.value, why: limit.source.to_string() });
        // The finer automatic limits stand for rel_l2: an explicit one replaces them with it.
        if metric == Metric::RelL2 {
            judgement.limits.remove("channel_rel_l2");
            judgement.limits.remove("element");
        }
    }
    // A limit on what does not exist for these values (ULP of integers, rel_l2 of zeros) replaces nothing.
    if !is_float && explicit.iter().any(|(metric, _)| value_of(metrics, metric.name()).is_some()) {
        judgement.limits.remove("unequal");
    }
    if metrics.has_unshared_specials() {
        judgement.verdict = Verdict::Nonfinite;
        judgement.why = specials_in_words(metrics);
        return judgement;
    }
    let broken = judgement.limits.iter().filter_map(|(&name, limit)| {
        let value = value_of(metrics, name)?;
        let is_minimum = matches!(name, "cosine" | "sqnr");
        let broken = if is_minimum { value < limit.value } else { value > limit.value };
        broken.then_some((name, value, limit))
    });
    // rel_l2 first where it is broken: it is what a reader knows.
    let worst = broken.min_by_key(|(name, ..)| (*name != "rel_l2", *name));
    (judgement.verdict, judgement.why) = match worst {
        Some((name, value, limit)) => {
            let relation = if matches!(name, "cosine" | "sqnr") { "below" } else { "above" };
            (Verdict::Drift, format!("{name} {} is {relation} {} ({})", figure(value), figure(limit.value), limit.why))
        }
        None if metrics.judged == 0 && metrics.elements > 0 => {
            (Verdict::Pass, "no finite element to judge; special values agree".into())
        }
        None if metrics.unequal() == 0 => (Verdict::Pass, "all values are equal".into()),
        None => (Verdict::Pass, within(metrics, &judgement.limits)),
    };
    judgement
}

fn within(metrics: &Metrics, limits: &BTreeMap<&'static str, Limit>) -> String {
    match (metrics.rel_l2(), limits.get("rel_l2")) {
        (Some(value), Some(limit)) => {
            format!("rel_l2 {} is within {} ({})", figure(value), figure(limit.value), limit.why)
        }
        _ => "all metrics are within their limits".into(),
    }
}

/// Limits that follow from the error budgets of both sides.
fn automatic(metrics: &Metrics, known: &Expected) -> TensorJudgement {
    let (golden, candidate) = known.budget;
    let mut judgement = TensorJudgement::new(Verdict::Pass, "");
    let dtype = coarser(metrics.golden_dtype, metrics.candidate_dtype);
    if !(metrics.judged_golden_sq.is_finite() && metrics.error_sq.is_finite()) {
        return beyond_squares(metrics, known);
    }
    let norm = metrics.judged_golden_sq.sqrt();
    let floor = SUBNORMAL_FLOOR * dtype.smallest_subnormal().unwrap_or(0.0) * (metrics.judged as f64).sqrt();
    // One rounding to the coarser dtype is legitimate whatever the recorded flow says.
    let rounding = ROUNDING * dtype.unit_roundoff().unwrap_or(0.0);
    // A norm that holds elements which are not judged here says nothing about those that are.
    let whole = !metrics.has_unshared_specials();
    let absolute = |budget: Budget| budget.absolute.filter(|_| whole).unwrap_or(budget.relative * norm);
    let expected = absolute(golden).hypot(absolute(candidate)).hypot(rounding * norm) + floor;
    let (expected, noise) = if norm > 0.0 && whole {
        let (relative, noise) = known.widened(expected / norm);
        (relative * norm, noise)
    } else {
        (expected, None)
    };
    let error = metrics.error_sq.sqrt();
    judgement.excess = (expected > 0.0).then_some(error / expected);
    let depth = golden.depth.max(candidate.depth);
    let reason = |factor: f64| {
        if let Some(noise) = noise {
            let times = NOISE * factor / TOTAL;
            return format!("{times} times the noise, rel_l2 {} between the golden's approved runs", figure(noise));
        }
        let u = golden.roundoff.max(candidate.roundoff).max(dtype.unit_roundoff().unwrap_or(0.0));
        if golden.assumed || candidate.assumed {
            let u = figure(u);
            return format!(
                "{factor} times the error that {depth} roundings with u = {u} leave, assumed since no operator was recorded"
            );
        }
        format!("{factor} times the error that {depth} roundings with u = {} leave", figure(u))
    };
    if norm > 0.0 && (error / norm).is_finite() {
        let relative = expected / norm;
        judgement.limits.insert("rel_l2", Limit { value: TOTAL * relative, why: reason(TOTAL) });
        if metrics.worst_channel.is_some() {
            judgement.limits.insert("channel_rel_l2", Limit { value: CHANNEL * relative, why: reason(CHANNEL) });
        }
        if metrics.worst_element.is_some() {
            judgement.limits.insert("element", Limit { value: ELEMENT * relative, why: reason(ELEMENT) });
        }
    } else {
        // Nothing relative exists: hold the largest error against the magnitude that was summed.
        let per_element = expected / (metrics.judged.max(1) as f64).sqrt();
        judgement.limits.insert(
            "max_abs",
            Limit {
                value: ELEMENT * per_element,
                why: format!("the golden is all zero: {ELEMENT} times the rounding of what was summed"),
            },
        );
    }
    judgement
}

/// Limits where squares leave the range of f64 (values from about 1e154 on), so that no norm exists:
/// the largest difference is held against the golden's largest magnitude.
fn beyond_squares(metrics: &Metrics, known: &Expected) -> TensorJudgement {
    let (golden, candidate) = known.budget;
    let mut judgement = TensorJudgement::new(Verdict::Pass, "");
    let roundoff = coarser(metrics.golden_dtype, metrics.candidate_dtype).unit_roundoff().unwrap_or(0.0);
    let relative = golden.relative.hypot(candidate.relative).hypot(ROUNDING * roundoff);
    // A difference that overflows is beyond every limit that f64 can hold.
    let why = format!("squares overflow: {ELEMENT} times the relative error budget of the largest magnitude");
    let value = (ELEMENT * relative * metrics.golden.amax).min(f64::MAX / 2.0);
    judgement.excess = Some(metrics.max_abs.min(f64::MAX) / value.max(f64::MIN_POSITIVE));
    judgement.limits.insert("max_abs", Limit { value, why });
    judgement
}

/// Integers and booleans are compared exactly.
fn exact(metrics: &Metrics) -> TensorJudgement {
    let mut judgement = TensorJudgement::new(Verdict::Pass, "");
    let why = format!("{} values are compared exactly", metrics.golden_dtype);
    judgement.limits.insert("unequal", Limit { value: 0.0, why });
    judgement.excess = Some(if metrics.unequal() == 0 { 0.0 } else { f64::MAX });
    judgement
}

/// The value of a metric by the name that limits and reports use; `None` where it does not exist.
pub fn value_of(metrics: &Metrics, name: &str) -> Option<f64> {
    let value = match name {
        "rel_l2" => metrics.rel_l2()?,
        "max_abs" => metrics.max_abs,
        "max_rel" => metrics.max_rel,
        "mean_rel" => metrics.mean_rel,
        "cosine" => metrics.cosine()?,
        "sqnr" => metrics.sqnr_db()?,
        "max_ulp" => metrics.max_ulp? as f64,
        "unequal" => metrics.unequal() as f64,
        "channel_rel_l2" => {
            let channel = metrics.worst_channel?;
            channel.error / channel.norm.max(channel.median_norm)
        }
        "element" => metrics.worst_element?.score,
        "mean_error" => metrics.mean_error,
        "agreeing_bits" => metrics.agreeing_bits()?,
        _ => return None,
    };
    // The difference of two values of opposite sign may overflow: that is the largest there is.
    let value = if name == "max_abs" { value.min(f64::MAX) } else { value };
    value.is_finite().then_some(value)
}

fn specials_in_words(metrics: &Metrics) -> String {
    let side =
        |stats: &crate::compare::SideStats| format!("{} NaN and {} Inf", stats.nan, stats.pos_inf + stats.neg_inf);
    format!(
        "{} in the candidate, {} in the golden ({} and {} elements not shared)",
        side(&metrics.candidate),
        side(&metrics.golden),
        metrics.specials.candidate_only,
        metrics.specials.golden_only
    )
}

/// Three significant digits, as texts print numbers.
pub fn figure(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 {
        "0".into()
    } else if (0.001..10_000.0).contains(&magnitude) {
        let digits = (2 - magnitude.log10().floor() as i32).clamp(0, 5) as usize;
        let text = format!("{value:.digits$}");
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
    } else {
        format!("{value:.2e}")
    }
}
