//! From what was found to the report's model.

use std::collections::BTreeMap;

use super::model::{
    Birth, BlacklistEntry, LayerRow, Limit, Origin, OutputRow, Place, REPORT_SCHEMA, Remedy, Report, Side, Signature,
    Summary,
};
use crate::blacklist::Advice;
use crate::compare::{Metrics, SideStats};
use crate::diagnose::{Diagnosis, Site};
use crate::judge::{
    CaseVerdict, Judgement, Measured, Replayed, Verdict, differences, operator_differences, propagated, value_of,
};
use crate::pairing::TensorPair;
use crate::run::{LayerId, Run};

/// Grade of evidence of an entry that rests on the recorded data flow.
const GRADE_GRAPH: &str = "graph";

/// Everything that one report tells.
#[derive(Debug, Clone, Copy)]
pub struct Findings<'a> {
    /// The golden run.
    pub golden: &'a Run,
    /// The candidate run.
    pub candidate: &'a Run,
    /// Verdicts and measurements.
    pub judgement: &'a Judgement,
    /// Origins, roles and births.
    pub diagnosis: &'a Diagnosis,
    /// Remedies and blacklist.
    pub advice: &'a Advice,
}

/// Builds the report of one comparison. `case` is the case's name; the outcome is `expected` for a
/// pass and `unexpected` otherwise, until the caller knows better.
pub fn assemble(case: Option<&str>, findings: Findings<'_>) -> Report {
    let Findings { golden, candidate, judgement, diagnosis, advice } = findings;
    let layers = rows(findings);
    let passed = judgement.verdict == CaseVerdict::Pass;
    let mut notes = judgement.notes.clone();
    notes.extend(golden.warnings.iter().map(|warning| format!("golden: {warning}")));
    notes.extend(candidate.warnings.iter().map(|warning| format!("candidate: {warning}")));
    for (run, what) in [(golden, "golden"), (candidate, "candidate")] {
        if !run.meta.complete {
            notes.push(format!("the {what} was not closed by its recorder: it may end early"));
        }
    }
    Report {
        schema: REPORT_SCHEMA.into(),
        case: case.filter(|name| !name.is_empty()).map(str::to_string),
        step: candidate.meta.step.or(golden.meta.step),
        rank: candidate.meta.rank.or(golden.meta.rank),
        verdict: judgement.verdict.as_str().into(),
        why: judgement.why.clone(),
        outcome: if passed { "expected" } else { "unexpected" }.into(),
        outcome_why: None,
        golden: side(golden),
        candidate: side(candidate),
        differences: {
            let mut lines = differences(golden, candidate);
            lines.extend(operator_differences(golden, candidate, &judgement.pairing));
            lines
        },
        summary: summary(&layers, judgement),
        first_drift: diagnosis.first_drift.map(|site| place(findings, site)),
        origins: diagnosis.origins.iter().map(|origin| origin_row(findings, origin)).collect(),
        nonfinite_origins: diagnosis.births.iter().map(|birth| birth_row(findings, birth)).collect(),
        blacklist: advice
            .blacklist
            .iter()
            .map(|entry| BlacklistEntry {
                op: entry.op.clone(),
                layers: entry.layers.clone(),
                reason: entry.reason.as_str().into(),
                grade: GRADE_GRAPH.into(),
                score: entry.score,
                why: entry.why.clone(),
                total_of_op: entry.total_of_op,
                modules: entry.modules.clone(),
            })
            .collect(),
        remedies: advice
            .remedies
            .iter()
            .map(|remedy| Remedy {
                kind: remedy.kind.as_str().into(),
                layers: remedy.layers.clone(),
                why: remedy.why.clone(),
            })
            .collect(),
        signatures: diagnosis
            .signatures
            .iter()
            .map(|signature| Signature {
                layer: place(findings, signature.site).layer,
                kind: signature.kind.into(),
                explains: signature.explains,
                why: signature.why.clone(),
            })
            .collect(),
        notes,
        truth: judgement.truth.as_ref().map(|truth| super::truth::summarise(golden, truth)),
        bitwise: None,
        layers,
    }
}

fn side(run: &Run) -> Side {
    Side {
        path: run.path.to_string_lossy().into_owned(),
        environment: run.meta.environment.iter().cloned().collect(),
        compute: run.meta.compute.map(|dtype| dtype.name().to_string()),
    }
}

fn summary(layers: &[LayerRow], judgement: &Judgement) -> Summary {
    let (replayed, unmodelled) = judgement.replays.counts();
    let count = |verdict: &str| layers.iter().filter(|row| row.verdict == verdict).count() as u64;
    let extra = count("extra");
    let (missing, skipped) = (count("missing"), count("skipped"));
    let golden = layers.len() as u64 - extra;
    Summary {
        layers: golden,
        compared: golden - missing - skipped,
        pass: count("pass"),
        drift: count("drift"),
        nonfinite: count("nonfinite"),
        mismatch: count("mismatch"),
        missing,
        extra,
        skipped,
        replayed,
        unmodelled,
    }
}

/// The candidate's name of a golden layer, where it differs.
fn candidate_name(findings: Findings<'_>, id: LayerId) -> Option<String> {
    let partner = findings.judgement.pairing.partner(id)?;
    let name = findings.candidate.display_name(partner.layer);
    (name != findings.golden.display_name(id)).then_some(name)
}

pub(super) fn place(findings: Findings<'_>, site: Site) -> Place {
    let (golden, candidate) = (findings.golden, findings.candidate);
    match site {
        Site::Layer(id) => Place {
            layer: golden.display_name(id),
            candidate_layer: candidate_name(findings, id),
            op: golden.layer(id).op_name.clone(),
            pass: golden.layer(id).pass.to_string(),
            index: Some(u64::from(id.0)),
        },
        // A stretch without partner: named by the layer nearest to what reads it, the candidate's first.
        Site::Stretch { candidate: Some(id), .. } => Place {
            layer: candidate.display_name(id),
            candidate_layer: None,
            op: candidate.layer(id).op_name.clone(),
            pass: candidate.layer(id).pass.to_string(),
            index: None,
        },
        Site::Stretch { golden: id, before, .. } => {
            let id = id.unwrap_or(before);
            Place {
                layer: golden.display_name(id),
                candidate_layer: None,
                op: golden.layer(id).op_name.clone(),
                pass: golden.layer(id).pass.to_string(),
                index: None,
            }
        }
    }
}

fn origin_row(findings: Findings<'_>, origin: &crate::diagnose::Origin) -> Origin {
    let Place { layer, candidate_layer, op, pass, index } = place(findings, origin.site);
    Origin {
        layer,
        candidate_layer,
        op,
        pass,
        index,
        side: origin.side.as_str().into(),
        role: origin.role.as_str().into(),
        introduced: origin.introduced,
        propagated: origin.propagated,
        why: origin.why.clone(),
    }
}

fn birth_row(findings: Findings<'_>, birth: &crate::diagnose::Birth) -> Birth {
    let Place { layer, candidate_layer, op, pass, index } = place(findings, birth.site);
    let name = |id: LayerId| findings.golden.display_name(id);
    let tensor = match birth.site {
        Site::Stretch { candidate: Some(_), .. } => findings.candidate.tensor(birth.pair.1).name.clone(),
        _ => findings.golden.tensor(birth.pair.0).name.clone(),
    };
    Birth {
        layer,
        candidate_layer,
        op,
        pass,
        index,
        tensor,
        side: birth.side.as_str().into(),
        kind: birth.kind.as_str().into(),
        count: birth.count,
        first_index: birth.first_index.clone(),
        cause: birth.cause.as_str().into(),
        cause_layer: birth.cause_layer.map(name),
        first_nan_layer: birth.first_nan.map(name),
        ended: birth.ended.map(name),
        reached: birth.reached.iter().map(|&id| name(id)).collect(),
        why: birth.why.clone(),
    }
}

fn rows(findings: Findings<'_>) -> Vec<LayerRow> {
    let Findings { golden, candidate, judgement, diagnosis, .. } = findings;
    let mut rows = Vec::with_capacity(golden.layers.len());
    for layer in &golden.layers {
        let judged = judgement.layer(layer.id);
        rows.push(LayerRow {
            index: Some(u64::from(layer.id.0)),
            layer: golden.display_name(layer.id),
            candidate_layer: candidate_name(findings, layer.id),
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
            verdict: judged.verdict.as_str().into(),
            role: diagnosis.roles[layer.id.0 as usize].map(|role| role.as_str().to_string()),
            why: judged.why.clone(),
            paired_by: judgement.pairing.partner(layer.id).map(|partner| partner.by.as_str().to_string()),
            inputs: layer.inputs.iter().map(|&id| golden.tensor(id).name.clone()).collect(),
            outputs: judged.outputs.iter().map(|(slot, pair)| output_row(findings, layer.id, *slot, *pair)).collect(),
        });
    }
    for layer in candidate.layers.iter().filter(|layer| judgement.pairing.golden_of(layer.id).is_none()) {
        rows.push(LayerRow {
            index: None,
            layer: candidate.display_name(layer.id),
            candidate_layer: None,
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
            verdict: Verdict::Extra.as_str().into(),
            role: None,
            why: "no golden layer answers it".into(),
            paired_by: None,
            inputs: layer.inputs.iter().map(|&id| candidate.tensor(id).name.clone()).collect(),
            outputs: Vec::new(),
        });
    }
    rows
}

fn output_row(findings: Findings<'_>, id: LayerId, slot: usize, pair: TensorPair) -> OutputRow {
    let Findings { golden, candidate, judgement, .. } = findings;
    let of_slot = |replayed: Option<&Replayed>| match replayed {
        Some(Replayed::Done(outputs)) => outputs.get(slot).cloned().flatten(),
        _ => None,
    };
    let own = judgement.pairing.partner(id).and_then(|partner| of_slot(judgement.replays.candidate(partner.layer)));
    let theirs = of_slot(judgement.replays.golden(id));
    let inherited = own.as_ref().zip(theirs.as_ref()).and_then(|(own, theirs)| propagated(theirs, own));
    let judged = judgement.tensors.get(&pair);
    let dtype = |run: &Run, id| run.dtype_and_shape(id).map(|(dtype, _)| dtype.name().to_string());
    let metrics = judgement.measurements.get(pair).and_then(Measured::metrics);
    OutputRow {
        tensor: golden.tensor(pair.0).name.clone(),
        dtype: [dtype(golden, pair.0), dtype(candidate, pair.1)],
        shape: golden.dtype_and_shape(pair.0).map(|(_, shape)| shape.iter().map(|&extent| extent as u64).collect()),
        verdict: judged.map_or("skipped", |t| t.verdict.as_str()).into(),
        metrics: {
            let mut values = metrics.map(metric_values).unwrap_or_default();
            values.extend(judgement.truth.iter().flat_map(|truth| super::truth::metrics(truth, pair)));
            values
        },
        limits: judged
            .map(|t| {
                t.limits
                    .iter()
                    .map(|(name, limit)| ((*name).to_string(), Limit { value: limit.value, why: limit.why.clone() }))
                    .collect()
            })
            .unwrap_or_default(),
        introduced: own.and_then(|error| error.relative),
        propagated: inherited,
        detail: judged.map(|t| t.why.clone()).filter(|why| !why.is_empty()),
    }
}

/// Every metric by name; null where it does not exist.
fn metric_values(metrics: &Metrics) -> BTreeMap<String, Option<f64>> {
    let mut values = BTreeMap::new();
    const SCALARS: &[&str] = &[
        "rel_l2",
        "max_abs",
        "max_rel",
        "mean_rel",
        "cosine",
        "sqnr",
        "max_ulp",
        "unequal",
        "channel_rel_l2",
        "element",
        "mean_error",
        "agreeing_bits",
    ];
    for name in SCALARS {
        values.insert((*name).to_string(), value_of(metrics, name));
    }
    let count = |n: u64| Some(n as f64);
    values.insert("equal_bits".into(), metrics.equal_bits_share());
    values.insert("beyond".into(), metrics.beyond.map(|n| n as f64 / metrics.judged.max(1) as f64));
    values.insert("elements".into(), count(metrics.elements));
    values.insert("judged".into(), count(metrics.judged));
    values.insert("sentinels".into(), count(metrics.sentinels));
    values.insert("saturated".into(), count(metrics.saturated));
    values.insert("invalid".into(), count(metrics.invalid));
    let mut of_side = |prefix: &str, stats: &SideStats| {
        values.insert(format!("{prefix}_nan"), count(stats.nan));
        values.insert(format!("{prefix}_inf"), count(stats.pos_inf + stats.neg_inf));
        for (name, value) in [("min", stats.min), ("max", stats.max), ("amax", stats.amax), ("l2", stats.l2())] {
            values.insert(format!("{prefix}_{name}"), Some(value).filter(|v| v.is_finite()));
        }
    };
    of_side("golden", &metrics.golden);
    of_side("candidate", &metrics.candidate);
    values
}

/// The births of a run that is looked at alone, as the report tells births.
pub fn lone_births(run: &Run, births: &[crate::diagnose::LoneBirth]) -> Vec<Birth> {
    let name = |id: LayerId| run.display_name(id);
    let births = births.iter().map(|birth| {
        let layer = run.layer(birth.layer);
        let (cause, why) = if birth.placed {
            ("placed", format!("{} puts it there: a mask or a constant, not a computation", layer.op_name))
        } else {
            ("computed", format!("{} makes it from inputs that hold none at places that lead there; --golden tells whether it belongs there", layer.op_name))
        };
        let cut = "not followed further: births were followed to as many layers as are listed";
        let why = if birth.is_cut { format!("{why}; {cut}") } else { why };
        Birth {
            layer: name(birth.layer),
            candidate_layer: None,
            op: layer.op_name.clone(),
            pass: layer.pass.to_string(),
            index: Some(u64::from(birth.layer.0)),
            tensor: run.tensor(birth.tensor).name.clone(),
            side: "candidate".into(),
            kind: birth.kind.as_str().into(),
            count: birth.count,
            first_index: birth.first_index.clone(),
            cause: cause.into(),
            cause_layer: None,
            first_nan_layer: birth.first_nan.map(name),
            ended: birth.ended.map(name),
            reached: birth.reached.iter().map(|&id| name(id)).collect(),
            why,
        }
    });
    births.collect()
}

/// Holds the outcome against what the case expects.
pub fn settle_outcome(report: &mut Report, expected_verdict: &str, expected_origin: Option<&str>) {
    let mut named: Vec<&str> = Vec::new();
    for origin in &report.origins {
        named.push(&origin.layer);
        named.extend(origin.candidate_layer.as_deref());
    }
    for birth in &report.nonfinite_origins {
        named.push(&birth.layer);
        named.extend(birth.candidate_layer.as_deref());
        named.extend(birth.cause_layer.as_deref());
    }
    let found = match (report.verdict == expected_verdict, expected_origin) {
        (false, _) => Err(format!("expected {expected_verdict}, found {}", report.verdict)),
        (true, Some(origin)) if !named.contains(&origin) => Err(format!(
            "expected the origin {origin}, found {}",
            if named.is_empty() { "none".to_string() } else { named.join(", ") }
        )),
        (true, Some(origin)) => Ok(format!("{expected_verdict} with origin {origin}, as the case expects")),
        (true, None) => Ok(format!("{expected_verdict}, as the case expects")),
    };
    (report.outcome, report.outcome_why) = match found {
        Ok(why) => ("expected".into(), Some(why)),
        Err(why) => ("unexpected".into(), Some(why)),
    };
}
