//! Which output of a layer, and which of its metrics, decided the verdict.
//!
//! A layer may have many outputs and an output many metrics; a table has room for one. The one
//! shown is the one furthest out, so that a row never shows a harmless number beside `drift`.

use super::model::{LayerRow, Limit, OutputRow};

/// A metric held against its limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decisive<'a> {
    /// Name of the metric.
    pub metric: &'a str,
    /// Its value.
    pub value: f64,
    /// What it was held against.
    pub limit: &'a Limit,
    /// How many times over the limit: above 1 is out.
    pub excess: f64,
}

/// Whether more is better for this metric, so that its limit must not be fallen below.
pub fn is_floor(metric: &str) -> bool {
    metric.contains("cosine") || metric.starts_with("sqnr") || metric.starts_with("equal") || metric == "agreeing_bits"
}

/// How many times `value` exceeds `limit`: above 1 is out, 1 is just in. A cosine is measured by
/// its distance from 1. `None` where either is not finite.
pub fn excess(metric: &str, value: f64, limit: f64) -> Option<f64> {
    if !value.is_finite() || !limit.is_finite() {
        return None;
    }
    let (error, allowed) = if metric.contains("cosine") {
        (1.0 - value, 1.0 - limit)
    } else if is_floor(metric) {
        (limit, value)
    } else {
        (value.abs(), limit)
    };
    if error <= allowed && (allowed <= 0.0 || error <= 0.0) {
        return Some(if error < allowed { 0.0 } else { 1.0 });
    }
    Some(if allowed > 0.0 { error / allowed } else { f64::INFINITY })
}

/// The metric of an output that is furthest over its limit, or nearest to it.
pub fn deciding_metric(output: &OutputRow) -> Option<Decisive<'_>> {
    let mut worst: Option<Decisive<'_>> = None;
    for (metric, limit) in &output.limits {
        let Some(value) = output.metrics.get(metric).copied().flatten() else { continue };
        let Some(excess) = excess(metric, value, limit.value) else { continue };
        if worst.is_none_or(|w| excess > w.excess) {
            worst = Some(Decisive { metric, value, limit, excess });
        }
    }
    worst
}

/// The output that decided a layer's verdict: the worst verdict, then the furthest over its limit,
/// then the largest rel_l2, then the first.
pub fn deciding_output(row: &LayerRow) -> Option<&OutputRow> {
    let key = |output: &OutputRow| {
        let over = deciding_metric(output).map_or(-1.0, |decisive| decisive.excess);
        let rel_l2 = output.metrics.get("rel_l2").copied().flatten().filter(|x| x.is_finite()).unwrap_or(-1.0);
        (severity(&output.verdict), over, rel_l2)
    };
    let mut worst: Option<(&OutputRow, (u8, f64, f64))> = None;
    for output in &row.outputs {
        let key = key(output);
        if worst.is_none_or(|(_, best)| key > best) {
            worst = Some((output, key));
        }
    }
    worst.map(|(output, _)| output)
}

/// Order of layer verdicts, worst highest.
pub fn severity(verdict: &str) -> u8 {
    match verdict {
        "nonfinite" => 6,
        "mismatch" => 5,
        "drift" => 4,
        "missing" => 3,
        "extra" => 2,
        "skipped" => 1,
        _ => 0,
    }
}

/// Whether a layer's verdict says that it is out.
pub fn is_out(verdict: &str) -> bool {
    matches!(verdict, "drift" | "nonfinite" | "mismatch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn output(tensor: &str, verdict: &str, metrics: &[(&str, f64, f64)]) -> OutputRow {
        OutputRow {
            tensor: tensor.into(),
            dtype: [None, None],
            shape: None,
            verdict: verdict.into(),
            metrics: metrics.iter().map(|&(name, value, _)| (name.to_owned(), Some(value))).collect(),
            limits: metrics
                .iter()
                .map(|&(name, _, value)| (name.to_owned(), Limit { value, why: String::new() }))
                .collect::<BTreeMap<_, _>>(),
            introduced: None,
            propagated: None,
            detail: None,
        }
    }

    #[test]
    fn the_metric_furthest_over_its_limit_decides() {
        let out = output("t", "drift", &[("rel_l2", 1e-4, 1e-3), ("cosine", 0.9, 0.99), ("max_abs", 2.0, 1.0)]);
        let decisive = deciding_metric(&out).unwrap();
        assert_eq!(decisive.metric, "cosine");
        assert!((decisive.excess - 10.0).abs() < 1e-9);
    }

    #[test]
    fn a_limit_of_zero_is_kept_by_zero_alone() {
        assert_eq!(excess("max_abs", 0.0, 0.0), Some(1.0));
        assert_eq!(excess("max_abs", 1e-9, 0.0), Some(f64::INFINITY));
        assert_eq!(excess("max_abs", f64::NAN, 1.0), None);
        assert_eq!(excess("cosine", 1.0, 0.9999), Some(0.0));
        assert_eq!(excess("sqnr_db", 20.0, 40.0), Some(2.0));
    }

    #[test]
    fn the_worst_output_stands_for_its_layer() {
        let row = LayerRow {
            index: Some(0),
            layer: "a".into(),
            candidate_layer: None,
            op: "op".into(),
            pass: "forward".into(),
            verdict: "drift".into(),
            role: None,
            why: String::new(),
            paired_by: None,
            inputs: vec![],
            outputs: vec![
                output("first", "pass", &[("rel_l2", 0.9, 1.0)]),
                output("second", "drift", &[("rel_l2", 2e-5, 1e-5)]),
                output("third", "drift", &[("rel_l2", 9e-5, 1e-5)]),
            ],
        };
        assert_eq!(deciding_output(&row).unwrap().tensor, "third");
    }
}
