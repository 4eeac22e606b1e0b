//! Tolerances that the spread between baseline runs asks for.
//!
//! In go a case and several runs of it, out comes the spread of every output beside the limit that `auto`
//! gives it, and an entry for the case file where the spread asks for more. An entry never tightens:
//! runs that agree to the bit say nothing of how another correct device differs from them.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use serde::Serialize;

use super::record::expect_distinct;
use super::{LayerSpread, spread};
use crate::case::{Case, ToleranceTable};
use crate::error::{Error, Result};
use crate::judge::threshold::{NOISE, ROUNDING, TOTAL};
use crate::judge::{self, ReplayMode};
use crate::pairing;
use crate::run::Run;

/// Schema identifier of the JSON document.
pub const CALIBRATION_SCHEMA: &str = "goldline.calibration/1";

/// Proposals of one operator are told as one entry where the largest is at most this many times the
/// smallest: a limit of the operator then loosens none of its layers by more.
const ALIKE: f64 = 4.0;

/// What the spread asks for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Calibration {
    /// Always [`CALIBRATION_SCHEMA`].
    pub schema: &'static str,
    /// Name of the case.
    pub case: String,
    /// The runs, the first being the one that the others are held against.
    pub runs: Vec<String>,
    /// A proposed limit is this many times the spread.
    pub factor: f64,
    /// Every output that was measured, in execution order.
    pub layers: Vec<Row>,
    /// Proposed entries of `tolerance.op`: operator, metric, limit.
    pub op: BTreeMap<String, BTreeMap<&'static str, f64>>,
    /// Proposed entries of `tolerance.layer`: layer as a pattern, metric, limit.
    pub layer: BTreeMap<String, BTreeMap<&'static str, f64>>,
    /// The entries as YAML, ready to paste; empty where `auto` covers the spread.
    pub yaml: String,
    /// What could not be measured, and how far the proposal holds.
    pub notes: Vec<String>,
}

/// One output.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Position of the layer in execution order.
    pub index: u32,
    /// Layer.
    pub layer: String,
    /// Operator as recorded.
    pub op: String,
    /// Pass.
    pub pass: String,
    /// Output slot.
    pub slot: usize,
    /// Largest rel_l2 of a run against the first; null where the output is all zero.
    pub rel_l2: Option<f64>,
    /// Largest absolute difference.
    pub max_abs: f64,
    /// The metric that is limited: rel_l2, or max_abs where that does not exist.
    pub metric: &'static str,
    /// Its limit under `auto`; null for integers and what was not judged.
    pub auto: Option<f64>,
    /// The limit that is proposed; null where `auto` is enough.
    pub proposed: Option<f64>,
}

/// Measures the spread of `paths` and proposes tolerances for `case`.
///
/// # Errors
/// Fewer than two runs, a run given twice, runs that do not repeat each other, or what cannot be read.
pub fn calibrate(case: &Case, paths: &[PathBuf], on_progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Calibration> {
    if paths.len() < 2 {
        return Err(Error::new(format_args!(
            "expected at least two --run, found {}: a spread is between runs",
            paths.len()
        )));
    }
    expect_distinct(paths)?;
    let runs: Vec<Run> = paths.iter().map(Run::open).collect::<Result<_>>()?;
    let rename = |name: &str| case.rename.iter().fold(name.to_string(), |name, rule| rule.apply(&name).into_owned());
    let found = spread(&runs, &rename, on_progress)?;
    let mut notes = found.notes.clone();
    let [first, second, ..] = runs.as_slice() else { return Err(Error::new("expected at least two runs")) };
    let limits = automatic(case, first, second, &rename)?;

    let mut layers = Vec::with_capacity(found.layers.len());
    for entry in &found.layers {
        layers.push(row(case, first, entry, &limits));
    }
    let (op, layer) = entries(&layers);
    let precision = case.precision.or(first.meta.compute).map_or("the baseline's dtypes", |dtype| dtype.name());
    if layers.iter().any(|row| row.proposed.is_some()) {
        notes.push(format!(
            "an explicit limit replaces auto: these hold for candidates in {precision}; for a coarser candidate set `precision` in the case and calibrate again, or record the golden from these runs, which widens auto instead"
        ));
    }
    if runs.len() < 3 {
        notes.push("two runs give one difference per layer: three or more tell the spread better".to_string());
    }
    Ok(Calibration {
        schema: CALIBRATION_SCHEMA,
        case: case.name.clone(),
        runs: paths.iter().map(|path| path.display().to_string()).collect(),
        factor: NOISE,
        yaml: yaml(&op, &layer, runs.len()),
        layers,
        op,
        layer,
        notes,
    })
}

type Limits = BTreeMap<(u32, usize), BTreeMap<&'static str, f64>>;

/// The limits that `auto` gives the first run's outputs, under the case's precision.
fn automatic(case: &Case, first: &Run, second: &Run, rename: &dyn Fn(&str) -> String) -> Result<Limits> {
    let mut auto = case.clone();
    auto.tolerance = ToleranceTable::default();
    let options = judge::Options { replay: ReplayMode::Never, ..judge::Options::default() };
    let pairing = pairing::pair(first, second, rename)?;
    let judgement = judge::judge(first, second, pairing, &auto, &options)?;
    let mut limits = Limits::new();
    for layer in &judgement.layers {
        for (slot, pair) in &layer.outputs {
            let Some(tensor) = judgement.tensors.get(pair) else { continue };
            let values = tensor.limits.iter().map(|(name, limit)| (*name, limit.value)).collect();
            limits.insert((layer.layer.0, *slot), values);
        }
    }
    Ok(limits)
}

fn row(case: &Case, first: &Run, entry: &LayerSpread, limits: &Limits) -> Row {
    let layer = first.layer(entry.layer);
    let name = first.display_name(entry.layer);
    let (metric, value) = match entry.noise.rel_l2 {
        Some(relative) => ("rel_l2", relative),
        None => ("max_abs", entry.noise.max_abs),
    };
    let auto = limits.get(&(entry.layer.0, entry.slot)).and_then(|limits| limits.get(metric)).copied();
    // The runs may be finer than what the candidate computes in: one rounding there is allowed anyway.
    let floor = case.precision.and_then(|dtype| dtype.unit_roundoff()).filter(|_| metric == "rel_l2");
    let auto = auto.map(|auto| auto.max(TOTAL * ROUNDING * floor.unwrap_or(0.0)));
    let wanted = NOISE * value;
    let judged = case.layers.decides(&name).is_none();
    // Integers are compared exactly; a limit would not mean what it says.
    let is_float = layer
        .outputs
        .get(entry.slot)
        .and_then(|&id| first.dtype_and_shape(id))
        .is_some_and(|(dtype, _)| dtype.unit_roundoff().is_some());
    let asks = judged && is_float && wanted.is_finite() && value > 0.0 && auto.is_none_or(|auto| wanted > auto);
    Row {
        index: layer.id.0,
        layer: name,
        op: layer.op_name.clone(),
        pass: layer.pass.to_string(),
        slot: entry.slot,
        rel_l2: entry.noise.rel_l2,
        max_abs: entry.noise.max_abs,
        metric,
        auto: auto.filter(|_| is_float),
        proposed: asks.then(|| rounded_up(wanted)),
    }
}

/// Two significant digits, never below `value`.
fn rounded_up(value: f64) -> f64 {
    let exponent = value.log10().floor() - 1.0;
    let digits = (value / 10f64.powf(exponent) - 1e-9).ceil();
    // Through text, so that 0.0031 is not 0.0031000000000000003.
    format!("{digits}e{exponent}").parse().unwrap_or(value)
}

type Entries = BTreeMap<String, BTreeMap<&'static str, f64>>;

/// Proposals by operator, where every layer of it asks for about the same, and by layer.
fn entries(rows: &[Row]) -> (Entries, Entries) {
    let mut by_op: BTreeMap<(&str, &'static str), Vec<&Row>> = BTreeMap::new();
    for row in rows {
        by_op.entry((row.op.as_str(), row.metric)).or_default().push(row);
    }
    let (mut op, mut layer) = (Entries::new(), Entries::new());
    for ((name, metric), rows) in by_op {
        let proposed: Vec<f64> = rows.iter().filter_map(|row| row.proposed).collect();
        let (least, most) =
            proposed.iter().fold((f64::INFINITY, 0.0f64), |(least, most), v| (least.min(*v), most.max(*v)));
        let distinct: HashSet<&str> = rows.iter().map(|row| row.layer.as_str()).collect();
        if proposed.len() == rows.len() && distinct.len() > 1 && most <= ALIKE * least {
            op.entry(name.to_string()).or_default().insert(metric, most);
            continue;
        }
        for row in rows {
            let Some(limit) = row.proposed else { continue };
            let known = layer.entry(pattern(&row.layer)).or_default().entry(metric).or_insert(limit);
            *known = known.max(limit);
        }
    }
    (op, layer)
}

/// A glob that matches this name and no other.
fn pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | '!') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// The entries as the case file takes them. A JSON string is a YAML string.
fn yaml(op: &Entries, layer: &Entries, runs: usize) -> String {
    if op.is_empty() && layer.is_empty() {
        return String::new();
    }
    let mut text =
        format!("# {NOISE} times the spread of {runs} baseline runs, where that is beyond auto\ntolerance:\n");
    for (head, entries) in [("op", op), ("layer", layer)] {
        if entries.is_empty() {
            continue;
        }
        let _ = writeln!(text, "  {head}:");
        for (name, limits) in entries {
            let limits: Vec<String> = limits.iter().map(|(metric, limit)| format!("{metric}: {limit:e}")).collect();
            let _ = writeln!(text, "    {}: {{{}}}", serde_json::Value::from(name.as_str()), limits.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(layer: &str, op: &str, proposed: Option<f64>) -> Row {
        Row {
            index: 0,
            layer: layer.into(),
            op: op.into(),
            pass: "forward".into(),
            slot: 0,
            rel_l2: proposed,
            max_abs: 0.0,
            metric: "rel_l2",
            auto: Some(1e-6),
            proposed,
        }
    }

    #[test]
    fn limits_are_rounded_up_to_two_digits() {
        for (value, rounded) in [(0.003_01, 0.0031), (3e-5, 3e-5), (0.999, 1.0), (12.1, 13.0), (9.91e-10, 1e-9)] {
            assert_eq!(rounded_up(value), rounded, "{value}");
        }
    }

    #[test]
    fn an_operator_stands_for_its_layers_only_where_all_of_them_ask_for_the_same() {
        let alike = [row("a", "softmax", Some(1e-3)), row("b", "softmax", Some(2e-3))];
        let (op, layer) = entries(&alike);
        assert_eq!((op["softmax"]["rel_l2"], layer.len()), (2e-3, 0));
        let apart = [row("a", "softmax", Some(1e-3)), row("b", "softmax", Some(9e-3))];
        let (op, layer) = entries(&apart);
        assert_eq!((op.len(), layer["a"]["rel_l2"], layer["b"]["rel_l2"]), (0, 1e-3, 9e-3));
        let one_of_two = [row("a", "softmax", Some(1e-3)), row("b", "softmax", None)];
        let (op, layer) = entries(&one_of_two);
        assert_eq!((op.len(), layer.len()), (0, 1));
    }

    #[test]
    fn the_yaml_is_one_that_a_case_takes_back_and_its_patterns_match_the_name_alone() {
        let rows = [row("h[0].attn*", "linear", Some(1e-3)), row("h0.attn1", "linear", None)];
        let (op, layer) = entries(&rows);
        let text = format!("schema: goldline.case/1\nname: tiny\ngolden: golden\n{}", yaml(&op, &layer, 2));
        let case = Case::parse(&text, "tiny.yaml").unwrap_or_else(|error| panic!("{error}"));
        let limit = |name| case.tolerance.limits(name, "linear", crate::tensor::DType::F32).rel_l2.map(|l| l.value);
        assert_eq!((limit("h[0].attn*"), limit("h0.attn1"), limit("h[0].attnX")), (Some(1e-3), None, None));
    }
}
