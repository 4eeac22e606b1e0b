//! Explicit limits: which entry of `tolerance` holds for a tensor.

use std::sync::Arc;

use globset::GlobMatcher;

use crate::op::Op;
use crate::tensor::DType;

/// A metric for which a case may give a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Largest |candidate - golden|.
    MaxAbs,
    /// Largest |candidate - golden| / |golden|.
    MaxRel,
    /// Mean of |candidate - golden| / |golden|.
    MeanRel,
    /// ‖candidate - golden‖ / ‖golden‖.
    RelL2,
    /// Cosine similarity; its limit is a minimum.
    Cosine,
    /// Signal to quantisation noise in dB; its limit is a minimum.
    Sqnr,
    /// Largest distance in units in the last place.
    MaxUlp,
}

impl Metric {
    /// Every metric, in the order of the case file's reference.
    pub const ALL: [Self; 7] =
        [Self::MaxAbs, Self::MaxRel, Self::MeanRel, Self::RelL2, Self::Cosine, Self::Sqnr, Self::MaxUlp];

    /// The names, in the order of [`Metric::ALL`].
    pub const NAMES: [&'static str; 7] = ["max_abs", "max_rel", "mean_rel", "rel_l2", "cosine", "sqnr", "max_ulp"];

    /// Name in case files.
    pub fn name(self) -> &'static str {
        match self {
            Self::MaxAbs => "max_abs",
            Self::MaxRel => "max_rel",
            Self::MeanRel => "mean_rel",
            Self::RelL2 => "rel_l2",
            Self::Cosine => "cosine",
            Self::Sqnr => "sqnr",
            Self::MaxUlp => "max_ulp",
        }
    }

    /// The metric with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Whether the limit is the least allowed value (cosine, sqnr) and not the largest.
    pub fn is_minimum(self) -> bool {
        matches!(self, Self::Cosine | Self::Sqnr)
    }
}

/// A limit that a case gives, and where it says so.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplicitLimit {
    /// The limit, finite: a maximum, or a minimum where [`Metric::is_minimum`] says so.
    pub value: f64,
    /// The entry it comes from, as reports print it: `tolerance.op.softmax`.
    pub source: Arc<str>,
}

/// The explicit limits of one tensor; `None` leaves the metric to `auto`.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "each is the limit for the metric of its name, see `Metric`")]
pub struct ExplicitLimits {
    pub max_abs: Option<ExplicitLimit>,
    pub max_rel: Option<ExplicitLimit>,
    pub mean_rel: Option<ExplicitLimit>,
    pub rel_l2: Option<ExplicitLimit>,
    pub cosine: Option<ExplicitLimit>,
    pub sqnr: Option<ExplicitLimit>,
    pub max_ulp: Option<ExplicitLimit>,
}

impl ExplicitLimits {
    /// The limit for `metric`.
    pub fn get(&self, metric: Metric) -> Option<&ExplicitLimit> {
        match metric {
            Metric::MaxAbs => self.max_abs.as_ref(),
            Metric::MaxRel => self.max_rel.as_ref(),
            Metric::MeanRel => self.mean_rel.as_ref(),
            Metric::RelL2 => self.rel_l2.as_ref(),
            Metric::Cosine => self.cosine.as_ref(),
            Metric::Sqnr => self.sqnr.as_ref(),
            Metric::MaxUlp => self.max_ulp.as_ref(),
        }
    }

    /// Every limit that is given, in the order of [`Metric::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Metric, &ExplicitLimit)> {
        Metric::ALL.into_iter().filter_map(|metric| self.get(metric).map(|limit| (metric, limit)))
    }

    /// Whether everything is left to `auto`.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn set(&mut self, metric: Metric, limit: ExplicitLimit) {
        let slot = match metric {
            Metric::MaxAbs => &mut self.max_abs,
            Metric::MaxRel => &mut self.max_rel,
            Metric::MeanRel => &mut self.mean_rel,
            Metric::RelL2 => &mut self.rel_l2,
            Metric::Cosine => &mut self.cosine,
            Metric::Sqnr => &mut self.sqnr,
            Metric::MaxUlp => &mut self.max_ulp,
        };
        *slot = Some(limit);
    }
}

/// The limits of one entry of the table.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) source: Arc<str>,
    pub(super) limits: Vec<(Metric, f64)>,
}

/// `tolerance` of a case. For each metric the most specific entry that gives it wins: layer before
/// op before dtype before default; of several matching layer patterns, the last in the file.
#[derive(Debug, Clone, Default)]
pub struct ToleranceTable {
    pub(super) default: Option<Entry>,
    pub(super) dtype: Vec<(DType, Entry)>,
    pub(super) op: Vec<(OpKey, Entry)>,
    pub(super) layer: Vec<(GlobMatcher, Entry)>,
}

/// The key of an op entry: a known operator, in whatever spelling, or a name taken literally.
#[derive(Debug, Clone)]
pub(super) struct OpKey {
    pub(super) name: String,
    pub(super) op: Op,
}

impl OpKey {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_string(), op: Op::named(name) }
    }

    /// Whether both mean the same operator.
    pub(super) fn matches(&self, other: &Self) -> bool {
        self.name == other.name || (self.op != Op::UNKNOWN && self.op == other.op)
    }
}

impl ToleranceTable {
    /// The explicit limits for an output of the golden's layer `layer` (name as recorded) with
    /// operator `op` (any spelling) and the candidate's element type `dtype`.
    pub fn limits(&self, layer: &str, op: &str, dtype: DType) -> ExplicitLimits {
        let op = OpKey::new(op);
        let dtypes = self.dtype.iter().filter(|(key, _)| *key == dtype).map(|(_, entry)| entry);
        let ops = self.op.iter().filter(|(key, _)| key.matches(&op)).map(|(_, entry)| entry);
        let layers = self.layer.iter().filter(|(glob, _)| glob.is_match(layer)).map(|(_, entry)| entry);
        let mut limits = ExplicitLimits::default();
        // From the least to the most specific, so that the later one replaces the earlier.
        for entry in self.default.iter().chain(dtypes).chain(ops).chain(layers) {
            for &(metric, value) in &entry.limits {
                limits.set(metric, ExplicitLimit { value, source: Arc::clone(&entry.source) });
            }
        }
        limits
    }

    /// Whether the case leaves every limit to `auto`.
    pub fn is_auto(&self) -> bool {
        self.default.is_none() && self.dtype.is_empty() && self.op.is_empty() && self.layer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_variants_agree() {
        for (metric, name) in Metric::ALL.into_iter().zip(Metric::NAMES) {
            assert_eq!(metric.name(), name);
            assert_eq!(Metric::parse(name), Some(metric));
        }
    }

    #[test]
    fn what_is_set_is_what_is_got() {
        for metric in Metric::ALL {
            let mut limits = ExplicitLimits::default();
            assert!(limits.is_empty());
            limits.set(metric, ExplicitLimit { value: 0.5, source: "tolerance.default".into() });
            assert_eq!(limits.iter().map(|(m, l)| (m, l.value)).collect::<Vec<_>>(), [(metric, 0.5)]);
        }
    }
}
