//! The numbers that a table shows of a layer, the same for every renderer.

use super::decisive::{deciding_metric, deciding_output};
use super::figure::{figure, metric_figure};
use super::model::LayerRow;

/// Numbers of a layer's deciding output, ready to print but not yet escaped. Empty where the layer
/// was not measured, `—` where a metric does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowFigures {
    /// Relative L2 error.
    pub rel_l2: String,
    /// The limit of rel_l2; where another metric is further out, that metric's name and limit.
    pub limit: String,
    /// Where that limit comes from.
    pub limit_why: String,
    /// Largest absolute difference.
    pub max_abs: String,
    /// Cosine similarity.
    pub cosine: String,
}

impl RowFigures {
    /// Reads them out of a row.
    pub fn of(row: &LayerRow) -> Self {
        let Some(output) = deciding_output(row) else { return Self::default() };
        let metric = |name: &str| output.metrics.get(name).map(|v| metric_figure(name, *v)).unwrap_or_default();
        let other = deciding_metric(output)
            .filter(|d| d.metric != "rel_l2" && (d.excess > 1.0 || !output.limits.contains_key("rel_l2")));
        let (limit, limit_why) = match (other, output.limits.get("rel_l2")) {
            (Some(d), _) => {
                (format!("{} {}", d.metric, metric_figure(d.metric, Some(d.limit.value))), d.limit.why.clone())
            }
            (None, Some(limit)) => (figure(Some(limit.value)), limit.why.clone()),
            (None, None) => Default::default(),
        };
        Self { rel_l2: metric("rel_l2"), limit, limit_why, max_abs: metric("max_abs"), cosine: metric("cosine") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::example;

    #[test]
    fn the_limit_shown_is_the_one_that_was_exceeded() {
        let mut row = example::row(0, "a", "add", &[], "drift", 1e-6);
        assert_eq!(RowFigures::of(&row).limit, "3.1e-6");
        if let Some(output) = row.outputs.first_mut() {
            output.metrics.insert("max_abs".into(), Some(2.0));
        }
        assert_eq!(RowFigures::of(&row).limit, "max_abs 0.5");
        row.outputs.clear();
        assert_eq!(RowFigures::of(&row), RowFigures::default());
    }
}
