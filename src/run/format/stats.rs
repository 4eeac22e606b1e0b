//! `stats.jsonl`: statistics of tensors that were not stored, or not stored whole.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::json::Lines;
use crate::error::{Error, Result};
use crate::run::{RecordedStats, ViewOf};
use crate::tensor::{DType, element_count};

#[derive(Deserialize)]
struct StatsLine {
    tensor: String,
    dtype: Option<String>,
    shape: Option<Vec<usize>>,
    #[serde(default)]
    min: Statistic,
    #[serde(default)]
    max: Statistic,
    #[serde(default)]
    mean: Statistic,
    #[serde(default)]
    l2: Statistic,
    nan: Option<u64>,
    inf: Option<u64>,
    #[serde(default)]
    specials_uncounted: bool,
    digest: Option<String>,
    alias_of: Option<String>,
    view_of: Option<ViewOf>,
    slice: Option<Value>,
    samples: Option<Value>,
}

/// A statistic over the finite values. One that is itself not finite (the strings `nan`, `inf`,
/// `-inf`) says nothing about them and counts as not recorded; `nan` and `inf` hold the counts.
#[derive(Default)]
struct Statistic(Option<f64>);

impl<'de> Deserialize<'de> for Statistic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Statistic;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, null, or one of the strings `nan`, `inf`, `-inf`")
            }
            fn visit_f64<E>(self, value: f64) -> Result<Statistic, E> {
                Ok(Statistic(Some(value)))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Statistic, E> {
                Ok(Statistic(Some(value as f64)))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Statistic, E> {
                Ok(Statistic(Some(value as f64)))
            }
            fn visit_unit<E>(self) -> Result<Statistic, E> {
                Ok(Statistic(None))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Statistic, E> {
                match value {
                    "nan" | "inf" | "-inf" => Ok(Statistic(None)),
                    _ => Err(E::invalid_value(de::Unexpected::Str(value), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads all statistics, each tensor once.
pub(super) fn read(path: &Path, warnings: &mut Vec<String>) -> Result<Vec<(String, RecordedStats)>> {
    let mut lines = Lines::open(path)?;
    let mut seen: HashMap<String, u64> = HashMap::new();
    let mut all = Vec::new();
    while let Some(line) = lines.next_line()? {
        let Some(parsed) = lines.parse::<StatsLine>(&line)? else {
            warnings.push(format!("stats.jsonl: line {} is torn (the run did not end well): left out", line.number));
            break;
        };
        if let Some(earlier) = seen.insert(parsed.tensor.clone(), line.number) {
            let text = format!(
                "tensor `{}` already has statistics in line {earlier}: expected each tensor once",
                parsed.tensor
            );
            return Err(Error::at(path, text).line(line.number));
        }
        if let Some(shape) = &parsed.shape
            && element_count(shape).is_none()
        {
            let text = format!("expected a shape that memory can hold for tensor `{}`, found {shape:?}", parsed.tensor);
            return Err(Error::at(path, text).line(line.number));
        }
        all.push(parsed.into_recorded());
    }
    Ok(all)
}

impl StatsLine {
    fn into_recorded(self) -> (String, RecordedStats) {
        let recorded = RecordedStats {
            dtype: self.dtype.as_deref().and_then(DType::parse),
            shape: self.shape,
            min: self.min.0,
            max: self.max.0,
            mean: self.mean.0,
            l2: self.l2.0,
            nan: self.nan,
            inf: self.inf,
            specials_uncounted: self.specials_uncounted,
            digest: self.digest,
            alias_of: self.alias_of,
            view_of: self.view_of,
            slice: self.slice,
            samples: self.samples,
        };
        (self.tensor, recorded)
    }
}
