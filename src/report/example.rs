//! Reports made by hand for the tests of the renderers: a pass, a drift, a nonfinite, a suite.

use std::collections::BTreeMap;

use super::Document;
use super::model::{
    Birth, BlacklistEntry, Disagreement, LayerRow, Limit, Origin, OutputRow, Place, REPORT_SCHEMA, Remedy, Report,
    SUITE_SCHEMA, Side, Signature, Suite, SuiteEntry, SuitePlace, Summary, Unpaired,
};

/// Every example, for tests that hold for all.
pub(crate) fn documents() -> Vec<Document> {
    vec![pass().into(), drift().into(), nonfinite().into(), suite().into()]
}

fn side(path: &str, device: &str, compute: &str) -> Side {
    let environment = [("device", device), ("framework", "torch 2.9")];
    Side {
        path: path.into(),
        environment: environment.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        compute: Some(compute.into()),
    }
}

fn report(case: &str, verdict: &str, why: &str) -> Report {
    Report {
        schema: REPORT_SCHEMA.into(),
        case: Some(case.into()),
        step: None,
        rank: None,
        verdict: verdict.into(),
        why: why.into(),
        outcome: if verdict == "pass" { "expected" } else { "unexpected" }.into(),
        outcome_why: None,
        golden: side(&format!("goldens/{case}"), "cuda:0", "float32"),
        candidate: side("runs/npu", "npu:0", "bfloat16"),
        differences: vec![],
        summary: Summary::default(),
        first_drift: None,
        origins: vec![],
        nonfinite_origins: vec![],
        blacklist: vec![],
        remedies: vec![],
        signatures: vec![],
        notes: vec![],
        truth: None,
        bitwise: None,
        layers: vec![],
    }
}

/// A layer's row with one output of shape [2, 8].
pub(crate) fn row(index: u64, layer: &str, op: &str, inputs: &[&str], verdict: &str, rel_l2: f64) -> LayerRow {
    let limits = [("rel_l2", 3.1e-6, "2.4 times 0.42 u of bfloat16"), ("max_abs", 0.5, "set by the case")];
    LayerRow {
        index: Some(index),
        layer: layer.into(),
        candidate_layer: None,
        op: op.into(),
        pass: "forward".into(),
        verdict: verdict.into(),
        role: None,
        why: match verdict {
            "pass" => "within limits".into(),
            _ => format!("rel_l2 {rel_l2:.2e} is beyond the limit"),
        },
        paired_by: Some("name".into()),
        inputs: inputs.iter().map(|input| (*input).to_owned()).collect(),
        outputs: vec![OutputRow {
            tensor: format!("{layer}:0"),
            dtype: [Some("float32".into()), Some("bfloat16".into())],
            shape: Some(vec![2, 8]),
            verdict: verdict.into(),
            metrics: BTreeMap::from([
                ("rel_l2".to_owned(), Some(rel_l2)),
                ("max_abs".to_owned(), Some(rel_l2 * 3.0)),
                ("cosine".to_owned(), Some(1.0 - rel_l2 * rel_l2 / 2.0)),
                ("max_ulp".to_owned(), None),
            ]),
            limits: limits.map(|(name, value, why)| (name.to_owned(), Limit { value, why: why.to_owned() })).into(),
            introduced: Some(rel_l2 / 2.0),
            propagated: Some(rel_l2 / 4.0),
            detail: None,
        }],
    }
}

/// A layer that was not compared.
fn left_out(index: Option<u64>, layer: &str, op: &str, verdict: &str, why: &str) -> LayerRow {
    LayerRow {
        index,
        layer: layer.into(),
        candidate_layer: None,
        op: op.into(),
        pass: "forward".into(),
        verdict: verdict.into(),
        role: None,
        why: why.into(),
        paired_by: None,
        inputs: vec![],
        outputs: vec![],
    }
}

fn summarise(report: &mut Report) {
    let count = |verdict: &str| report.layers.iter().filter(|row| row.verdict == verdict).count() as u64;
    let layers = report.layers.iter().filter(|row| row.index.is_some()).count() as u64;
    report.summary = Summary {
        layers,
        compared: layers - count("skipped") - count("missing"),
        pass: count("pass"),
        drift: count("drift"),
        nonfinite: count("nonfinite"),
        mismatch: count("mismatch"),
        missing: count("missing"),
        extra: count("extra"),
        skipped: count("skipped"),
        replayed: layers / 2,
        unmodelled: 1,
    };
}

/// All in; one layer skipped, two only in the candidate, notes.
pub(crate) fn pass() -> Report {
    let mut report = report("minilm-encode", "pass", "every terminal tensor was compared and is within its limits");
    report.differences = vec!["allow_hf32: false / true".into()];
    report.notes = vec!["router.topk: 2 indices differ where the golden's values tie exactly".into()];
    report.layers = vec![
        row(0, "embed", "embedding", &["ids"], "pass", 0.0),
        row(1, "encoder.0.dense", "linear", &["embed:0", "w"], "pass", 1.2e-6),
        left_out(Some(2), "encoder.0.dropout", "dropout", "skipped", "excluded by the case"),
        row(3, "encoder.0.gelu", "gelu", &["encoder.0.dense:0"], "pass", 2.25e-6),
        left_out(None, "encoder.0.cast", "cast", "extra", "inserted cast"),
        left_out(None, "encoder.1.cast", "cast", "extra", "inserted cast"),
    ];
    summarise(&mut report);
    report
}

/// A defect in one linear, passed on downstream and absorbed at the end.
pub(crate) fn drift() -> Report {
    let origin = "encoder.layer.1.output.dense.linear";
    let why = "rel_l2 9.99e-3 against a limit of 3.1e-6, while everything it read agrees";
    let mut report = report("minilm-encode", "drift", "one layer introduces an error that those after it pass on");
    report.layers.push(row(0, "embed", "embedding", &["ids"], "pass", 0.0));
    for index in 1..20 {
        let name = format!("encoder.layer.0.block.{index}");
        let input = if index == 1 { "embed:0".to_owned() } else { format!("encoder.layer.0.block.{}:0", index - 1) };
        report.layers.push(row(index, &name, "add", &[&input], "pass", 1.1e-6));
    }
    let mut bad = row(20, origin, "linear", &["encoder.layer.0.block.19:0", "w"], "drift", 9.99e-3);
    bad.role = Some("introduced".into());
    bad.why = why.into();
    bad.candidate_layer = Some("module.encoder.layer.1.output.dense.linear".into());
    report.layers.push(bad);
    for index in 21..40 {
        let before = if index == 21 { origin.to_owned() } else { format!("encoder.layer.1.after.{}", index - 1) };
        let name = format!("encoder.layer.1.after.{index}");
        let mut row = row(index, &name, "add", &[&format!("{before}:0")], "drift", 4.5e-3);
        row.role = Some("propagated".into());
        row.why = "what its inputs brought explains it".into();
        report.layers.push(row);
    }
    let mut grad = row(40, origin, "linear_backward", &["encoder.layer.1.after.39:0"], "pass", 2e-6);
    grad.pass = "backward".into();
    grad.role = Some("absorbed".into());
    report.layers.push(grad);
    report.layers.push(left_out(Some(41), "tail.empty", "empty", "skipped", "a factory: its values mean nothing"));
    report.first_drift = Some(Place {
        layer: origin.into(),
        candidate_layer: Some("module.encoder.layer.1.output.dense.linear".into()),
        op: "linear".into(),
        pass: "forward".into(),
        index: Some(20),
    });
    report.origins = vec![Origin {
        layer: origin.into(),
        candidate_layer: Some("module.encoder.layer.1.output.dense.linear".into()),
        op: "linear".into(),
        pass: "forward".into(),
        index: Some(20),
        side: "candidate".into(),
        role: "introduced".into(),
        introduced: Some(9.99e-3),
        propagated: Some(1.1e-6),
        why: why.into(),
    }];
    report.remedies = vec![Remedy {
        kind: "fix_defect".into(),
        layers: vec![origin.into()],
        why: "the error is 29 000 times what the dtype costs: a defect or another formula, not precision".into(),
    }];
    report.signatures = vec![Signature {
        layer: origin.into(),
        kind: "scale".into(),
        explains: 0.997,
        why: "the output is the golden's times 1.01".into(),
    }];
    summarise(&mut report);
    report
}

/// An overflow in `ln.pow` that vanishes in `ln.rsqrt` without a NaN.
pub(crate) fn nonfinite() -> Report {
    let mut report =
        report("ln-overflow", "nonfinite", "ln.pow overflows float16; its row of the output is silently zero");
    report.candidate.compute = Some("float16".into());
    report.layers = vec![
        row(0, "x", "input", &[], "pass", 0.0),
        row(1, "ln.pow", "pow", &["x:0"], "nonfinite", 2e-4),
        row(2, "ln.mean", "mean", &["ln.pow:0"], "nonfinite", 2e-4),
        row(3, "ln.add", "add", &["ln.mean:0"], "nonfinite", 2e-4),
        row(4, "ln.rsqrt", "rsqrt", &["ln.add:0"], "drift", 0.35),
        row(5, "ln.mul", "mul", &["x:0", "ln.rsqrt:0"], "drift", 0.35),
    ];
    for (at, role) in [(1, "introduced"), (2, "propagated"), (3, "propagated"), (4, "propagated"), (5, "propagated")] {
        if let Some(row) = report.layers.get_mut(at) {
            row.role = Some(role.into());
            for output in &mut row.outputs {
                if at < 4 {
                    output.detail = Some("63 Inf in the candidate where the golden is finite".into());
                    output.metrics.insert("rel_l2".into(), None);
                }
            }
        }
    }
    report.first_drift = Some(Place {
        layer: "ln.pow".into(),
        candidate_layer: None,
        op: "pow".into(),
        pass: "forward".into(),
        index: Some(1),
    });
    let why = "the golden reaches 1.2e5 where float16 ends at 65504; its inputs are finite and agree";
    report.origins = vec![Origin {
        layer: "ln.pow".into(),
        candidate_layer: None,
        op: "pow".into(),
        pass: "forward".into(),
        index: Some(1),
        side: "candidate".into(),
        role: "introduced".into(),
        introduced: None,
        propagated: Some(0.0),
        why: why.into(),
    }];
    report.nonfinite_origins = vec![Birth {
        layer: "ln.pow".into(),
        candidate_layer: None,
        op: "pow".into(),
        pass: "forward".into(),
        index: Some(1),
        tensor: "ln.pow:0".into(),
        side: "candidate".into(),
        kind: "inf".into(),
        count: 63,
        first_index: vec![2, 2],
        cause: "overflow".into(),
        cause_layer: None,
        first_nan_layer: None,
        ended: Some("ln.rsqrt".into()),
        reached: vec!["ln.mean".into(), "ln.add".into()],
        why: why.into(),
    }];
    report.blacklist = ["pow", "mean", "add", "rsqrt"]
        .map(|op| BlacklistEntry {
            op: op.into(),
            layers: vec![format!("ln.{op}")],
            reason: "range".into(),
            grade: "graph".into(),
            score: 0.98,
            why: format!("{op} holds values beyond 65504 or reads them"),
            total_of_op: if op == "add" { 193 } else { 1 },
            modules: vec!["ln".into()],
        })
        .into();
    report.remedies = vec![
        Remedy { kind: "bf16".into(), layers: vec!["ln.pow".into()], why: "the values fit bfloat16's range".into() },
        Remedy {
            kind: "keep_fp32".into(),
            layers: ["ln.pow", "ln.mean", "ln.add", "ln.rsqrt"].map(str::to_owned).into(),
            why: "from where the values leave float16's range to where they fit again".into(),
        },
    ];
    summarise(&mut report);
    report
}

/// A pass, a known defect found, an unexpected drift, and a case that could not be verified.
pub(crate) fn suite() -> Suite {
    let mut known = nonfinite();
    known.outcome = "expected".into();
    known.outcome_why = Some("nonfinite at ln.pow, as the case expects".into());
    let cases = vec![
        SuiteEntry::Report(Box::new(pass())),
        SuiteEntry::Report(Box::new(known)),
        SuiteEntry::Report(Box::new(Report { step: Some(3), rank: Some(1), ..drift() })),
        SuiteEntry::Failed {
            case: "cases/torn".into(),
            error: "goldens/torn/layers.jsonl: line 3: expected an object, found end of file".into(),
        },
    ];
    Suite {
        schema: SUITE_SCHEMA.into(),
        verdict: "nonfinite".into(),
        totals: BTreeMap::from([("error".into(), 1), ("expected".into(), 2), ("unexpected".into(), 1)]),
        first: Some("minilm-encode".into()),
        first_drift: Some(SuitePlace {
            case: Some("minilm-encode".into()),
            step: Some(3),
            rank: Some(1),
            layer: "encoder.0.ln".into(),
            op: "layer_norm".into(),
            pass: "forward".into(),
            index: Some(4),
        }),
        disagreements: vec![Disagreement {
            case: Some("minilm-encode".into()),
            step: Some(3),
            side: "candidate".into(),
            layer: "encoder.0.ln.weight".into(),
            op: "param".into(),
            pass: "forward".into(),
            tensor: "encoder.0.ln.weight:0".into(),
            ranks: vec![2],
            more: 5,
            why: "rank 2 holds other values than ranks 0, 1, 3 (rel_l2 1.2e-3): these ranks of the golden hold the \
                  same bits; 5 more tensors likewise"
                .into(),
        }],
        unpaired: vec![Unpaired {
            case: Some("minilm-encode".into()),
            step: Some(4),
            rank: Some(0),
            side: "golden".into(),
        }],
        cases,
    }
}
