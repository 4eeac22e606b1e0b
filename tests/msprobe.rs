//! Real msprobe dumps, cut down to a few calls, held against each other.

use std::path::{Path, PathBuf};

use goldline::case::Case;
use goldline::judge::Options;
use goldline::report::model::Report;
use goldline::run::Run;
use serde_json::{Value, json};

fn dump(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/msprobe").join(name)
}

fn verify(golden: &Path, candidate: &Path, case: &Case) -> Report {
    let open = |path: &Path| Run::open(path).unwrap_or_else(|error| panic!("{error}"));
    let (golden, candidate) = (open(golden), open(candidate));
    goldline::pipeline::verify(&golden, &candidate, case, &Options::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn origins(report: &Report) -> Vec<(String, String)> {
    report.origins.iter().map(|origin| (origin.layer.clone(), origin.role.clone())).collect()
}

#[test]
fn another_formula_is_found_where_it_stands_and_blames_no_precision() {
    let report = verify(&dump("golden"), &dump("fault/step0"), &Case::default_for_diff());
    assert_eq!(report.verdict, "drift");
    // What follows was cut out between the calls that are left, so that they cannot be told to follow from it.
    assert_eq!(report.first_drift.as_ref().map(|first| first.layer.as_str()), Some("Functional.gelu.1.forward"));
    assert_eq!(origins(&report)[0], ("Functional.gelu.1.forward".to_string(), "introduced".to_string()));
    assert!(origins(&report).iter().all(|(layer, _)| !layer.starts_with("Module.")), "the innermost is named");
    assert!(report.blacklist.is_empty());
    let replayed = |name: &str| {
        let row = report.layers.iter().find(|row| row.layer == name).unwrap_or_else(|| panic!("no {name}"));
        row.outputs.iter().all(|output| output.introduced.is_some())
    };
    for name in [
        "Torch.where.0.forward",
        "Functional.gelu.1.forward",
        "Functional.linear.18.forward",
        "Torch.tanh.0.forward",
        "Tensor.__truediv__.0.forward",
        "Tensor.__truediv__.0.backward",
        "Functional.gelu.1.backward",
    ] {
        assert!(replayed(name), "{name}");
    }
}

#[test]
fn tensors_compare_with_statistics() {
    let case = Case::default_for_diff();
    for (golden, candidate) in [("golden", "golden_statistics"), ("golden_statistics", "golden")] {
        let report = verify(&dump(golden), &dump(candidate), &case);
        assert_eq!(report.verdict, "pass", "{golden} against {candidate}");
        assert!(report.summary.compared >= 10, "{:?}", report.summary.compared);
    }
    let report = verify(&dump("fault"), &dump("golden_statistics"), &case);
    assert_eq!(report.verdict, "drift");
    assert_eq!(report.first_drift.map(|first| first.layer).as_deref(), Some("Functional.gelu.1.forward"));
}

/// A run of statistics: a linear layer within its module, and a product behind it.
fn statistics(framework: &str, names: [&str; 3], scale: f64) -> tempfile::TempDir {
    let tensor = |norm: f64| {
        json!({"type": "Tensor", "dtype": "torch.float32", "shape": [4, 4], "Max": norm, "Min": -norm, "Mean": 0.1,
            "Norm": norm})
    };
    let call = |inputs: &[f64], output: f64| {
        let inputs: Vec<Value> = inputs.iter().map(|&norm| tensor(norm)).collect();
        json!({"input_args": inputs, "input_kwargs": {}, "output": [tensor(output)]})
    };
    let [linear, module, product] = names;
    let mut around = call(&[1.0], 2.0);
    around["parameters"] = json!({"weight": tensor(3.0)});
    let text = format!(
        r#"{{"task": "statistics", "framework": "{framework}", "data": {{"{linear}": {}, "{module}": {around}, "{product}": {}}}}}"#,
        call(&[1.0, 3.0], 2.0),
        call(&[2.0, 2.0], 4.0 * scale)
    );
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("dump.json"), text).unwrap();
    dir
}

#[test]
fn pytorch_pairs_with_mindspore_through_the_cases_renames() {
    let torch = ["Functional.linear.0.forward", "Module.net.fc.Linear.forward.0", "Torch.matmul.0.forward"];
    let mindspore = ["MintFunctional.linear.0.forward", "Cell.net.fc.Dense.forward.0", "Mint.matmul.0.forward"];
    let golden = statistics("pytorch", torch, 1.0);
    let text = "schema: goldline.case/1\nname: tiny\ngolden: golden\nrename:\n  - {from: '^MintFunctional\\.', to: Functional.}\n  - {from: '^Mint\\.', to: Torch.}\n  - {from: '^Cell\\.(.*)\\.Dense\\.', to: 'Module.$1.Linear.'}\n";
    let case = Case::parse(text, "tiny.yaml").unwrap_or_else(|error| panic!("{error}"));
    for (scale, verdict) in [(1.0, "pass"), (1.5, "drift")] {
        let candidate = statistics("mindspore", mindspore, scale);
        let report = verify(golden.path(), candidate.path(), &case);
        let unpaired = (report.summary.missing, report.summary.extra);
        assert_eq!((report.verdict.as_str(), unpaired), (verdict, (0, 0)), "{scale}");
    }
}

#[test]
fn ranks_by_process_pair_by_order() {
    let places: Vec<_> = ["golden", "fault", "golden_statistics"]
        .iter()
        .map(|name| {
            let found = Run::discover(dump(name)).unwrap_or_else(|error| panic!("{error}"));
            found.into_iter().map(|(step, rank, _)| (step, rank)).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(places, vec![vec![(Some(0), Some(0))]; 3]);
}
