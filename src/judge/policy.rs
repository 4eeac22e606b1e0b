//! Differences of environment and precision policy between two runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::op::Class;
use crate::pairing::Pairing;
use crate::run::{Layer, Run};
use crate::tensor::{DType, Kind};

/// Lines about operator types that are told one by one, of each kind; the rest is counted.
const MOST_LINES: usize = 8;

/// Differences of environment, precision policy and seed between two runs, each one line: what to
/// look at before any operator is blamed.
pub fn differences(golden: &Run, candidate: &Run) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = |what: &str, a: Option<String>, b: Option<String>| {
        if a != b {
            let text = |v: Option<String>| v.unwrap_or_else(|| "not recorded".into());
            lines.push(format!("{what}: {} / {}", text(a), text(b)));
        }
    };
    let (g, c) = (&golden.meta, &candidate.meta);
    line("seed", g.seed.map(|v| v.to_string()), c.seed.map(|v| v.to_string()));
    line("precision.compute", g.compute.map(|v| v.to_string()), c.compute.map(|v| v.to_string()));
    line("precision.autocast", g.autocast.map(|v| v.to_string()), c.autocast.map(|v| v.to_string()));
    line("step", g.step.map(|v| v.to_string()), c.step.map(|v| v.to_string()));
    let environment = |run: &Run| run.meta.environment.iter().cloned().collect::<BTreeMap<String, String>>();
    let (a, b) = (environment(golden), environment(candidate));
    let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    for key in keys {
        line(key, a.get(key).cloned(), b.get(key).cloned());
    }
    lines
}

/// Where the two sides' precision policies differ by operator: which ran in another dtype, which the
/// recorders kept in fp32 on one side alone, which fell back to another device. One line for each
/// operator type, those with most layers first.
pub fn operator_differences(golden: &Run, candidate: &Run, pairing: &Pairing) -> Vec<String> {
    let mut lines: Vec<String> = kept_in_fp32(golden, candidate).into_iter().collect();
    let mut dtypes: BTreeMap<(&str, DType, DType), u64> = BTreeMap::new();
    for layer in &golden.layers {
        let Some(partner) = pairing.partner(layer.id) else { continue };
        let answer = candidate.layer(partner.layer);
        if let (Some(a), Some(b)) = (computed_in(golden, layer), computed_in(candidate, answer))
            && a != b
        {
            *dtypes.entry((&layer.op_name, a, b)).or_default() += 1;
        }
    }
    let of_dtype = dtypes.into_iter().map(|((op, a, b), layers)| {
        (layers, format!("{op}: {a} in the golden, {b} in the candidate ({})", counted(layers)))
    });
    lines.extend(most_first(of_dtype.collect(), "in dtype"));
    for (run, which) in [(golden, "golden"), (candidate, "candidate")] {
        lines.extend(most_first(fallbacks(run, which), "on another device"));
    }
    lines
}

fn counted(layers: u64) -> String {
    format!("{layers} layer{}", if layers == 1 { "" } else { "s" })
}

/// The lines with most layers first, ties by text; beyond a handful only their number.
fn most_first(mut lines: Vec<(u64, String)>, what: &str) -> Vec<String> {
    lines.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let hidden = lines.len().saturating_sub(MOST_LINES);
    // One line more is no longer than saying that one is hidden.
    let hidden = if hidden > 1 { hidden } else { 0 };
    lines.truncate(lines.len() - hidden);
    let mut lines: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    if hidden > 0 {
        lines.push(format!("{hidden} more operator types differ {what}"));
    }
    lines
}

/// The dtype that an operator computed in: as recorded, else that of its first floating-point output.
/// `None` for what computes nothing: a source, a mover, a cast or a factory has the dtype it is given.
fn computed_in(run: &Run, layer: &Layer) -> Option<DType> {
    let computes = !matches!(
        layer.op.class(),
        Class::Source | Class::Uninitialised | Class::Factory | Class::Mover | Class::Cast | Class::Quantizer
    );
    if !computes {
        return None;
    }
    layer.compute.or_else(|| {
        let dtypes = layer.outputs.iter().filter_map(|&output| run.dtype_and_shape(output)).map(|(dtype, _)| dtype);
        dtypes.into_iter().find(|dtype| dtype.kind() == Kind::Float)
    })
}

/// Operators that only one recorder says autocast kept in fp32.
fn kept_in_fp32(golden: &Run, candidate: &Run) -> Option<String> {
    let set = |run: &Run| run.meta.fp32_ops.iter().cloned().collect::<BTreeSet<String>>();
    let (a, b) = (set(golden), set(candidate));
    // A run without autocast has no such list, and lacks nothing.
    if a.is_empty() || b.is_empty() || a == b {
        return None;
    }
    let only = |a: &BTreeSet<String>, b: &BTreeSet<String>| {
        let names: Vec<&str> = a.difference(b).map(String::as_str).collect();
        match names.len() {
            0 => "none".to_string(),
            n if n > MOST_LINES => format!("{} and {} more", names[..MOST_LINES].join(", "), n - MOST_LINES),
            _ => names.join(", "),
        }
    };
    Some(format!("precision.fp32_ops: only in the golden {}; only in the candidate {}", only(&a, &b), only(&b, &a)))
}

/// `npu` of `npu:0`.
fn device_type(device: &str) -> &str {
    device.split(':').next().unwrap_or(device)
}

/// Operator types that ran elsewhere than the run.
fn fallbacks(run: &Run, which: &str) -> Vec<(u64, String)> {
    let placed = || run.layers.iter().filter(|layer| !layer.op.is_source());
    let mut devices: BTreeMap<&str, u64> = BTreeMap::new();
    for device in placed().filter_map(|layer| layer.device.as_deref()) {
        *devices.entry(device_type(device)).or_default() += 1;
    }
    // The environment may name a product instead of a device; then where most layers ran is home.
    let declared = run.meta.environment.iter().find(|(key, _)| key == "device").map(|(_, device)| device_type(device));
    let most = devices.iter().max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.cmp(a.0))).map(|(device, _)| *device);
    let Some(home) = declared.filter(|device| devices.contains_key(device)).or(most) else { return Vec::new() };
    let mut elsewhere: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for layer in placed() {
        if let Some(device) = layer.device.as_deref().map(device_type).filter(|device| *device != home) {
            *elsewhere.entry((&layer.op_name, device)).or_default() += 1;
        }
    }
    let line = |((op, device), layers): ((&str, &str), u64)| {
        (layers, format!("{op}: on {device} in the {which}, whose device is {home} ({})", counted(layers)))
    };
    elsewhere.into_iter().map(line).collect()
}
