//! Recording a first golden, and what is refused.

use goldline::golden::{Golden, RecordOptions, RecordOutcome};

use crate::fixture::{Model, Project, check_all, names, refusal, updating};

#[test]
fn what_was_recorded_opens_and_checks() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    assert!(!Golden::is_golden(project.golden()));
    let before = jiff::Timestamp::now();
    let outcome = project.record(std::slice::from_ref(&run), &RecordOptions::default()).unwrap();
    let RecordOutcome::Created(recorded) = outcome else { panic!("{outcome:?}") };
    assert_eq!((recorded.tensors, recorded.bytes), (5, 4 * 4 * 4 + 4));
    assert_eq!(recorded.notes, Vec::<String>::new());
    assert!(Golden::is_golden(project.golden()));
    assert_eq!(names(&project.path("goldens")), ["g"]);

    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(check_all(&golden).unwrap(), 5);
    assert_eq!(golden.run.layers.len(), 5);
    let info = &golden.info;
    assert_eq!((info.case.as_str(), info.seed, info.runs), ("small", Some(7), 1));
    assert_eq!(info.tool_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(info.recorded_from, [run.to_str().unwrap()]);
    assert_eq!(info.environment.get("flags.allow_tf32").map(String::as_str), Some("false"));
    assert!(info.recorded_at >= before);
    assert!(info.noise.is_empty() && golden.noise("fc", 0).is_none());
}

#[test]
fn golden_json_holds_digests_of_the_bytes_that_lie_there() {
    let project = Project::recorded();
    let bytes = std::fs::read(project.golden().join("golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(json["schema"], "goldline.golden/1");
    for name in ["run.json", "layers.jsonl"] {
        let file = std::fs::read(project.golden().join(name)).unwrap();
        assert_eq!(json["metadata"][name], format!("blake3:{}", blake3::hash(&file)));
    }
    assert_eq!(json["metadata"].as_object().unwrap().len(), 2);
    let mask = blake3::hash(&[1, 0, 1, 1]);
    let expected = serde_json::json!({"dtype": "bool", "shape": [4], "digest": format!("blake3:{mask}")});
    assert_eq!(json["tensors"]["t3"], expected);
    assert_eq!(json["tensors"].as_object().unwrap().len(), 5);
    assert!(json["recorded_at"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    assert_eq!(json["in_place"], false);
}

#[test]
fn an_incomplete_run_needs_to_be_allowed() {
    let project = Project::new();
    let run = project.run("a", &Model { complete: false, ..Model::default() });
    let error = refusal(project.record(std::slice::from_ref(&run), &RecordOptions::default()));
    assert!(error.contains("runs/a") && error.contains("not complete"), "{error}");
    assert!(!project.path("goldens").exists());
    let options = RecordOptions { allow_incomplete: true, ..RecordOptions::default() };
    assert!(matches!(project.record(&[run], &options), Ok(RecordOutcome::Created(_))));
}

#[test]
fn another_seed_is_refused_with_both_and_none_is_noted() {
    let project = Project::new();
    let run = project.run("a", &Model { seed: 8, ..Model::default() });
    let error = refusal(project.record(std::slice::from_ref(&run), &RecordOptions::default()));
    assert!(error.contains("seed 7") && error.contains("seed 8"), "{error}");
    let manifest = std::fs::read_to_string(run.join("run.json")).unwrap().replace("\"seed\":8,", "");
    std::fs::write(run.join("run.json"), manifest).unwrap();
    let outcome = project.record(&[run], &RecordOptions::default()).unwrap();
    let RecordOutcome::Created(recorded) = outcome else { panic!("{outcome:?}") };
    assert!(recorded.notes[0].contains("no seed to hold against the case's 7"), "{:?}", recorded.notes);
    assert_eq!(Golden::open(project.golden()).unwrap().info.seed, Some(7));
}

#[test]
fn no_run_and_no_such_run_are_errors() {
    let project = Project::new();
    assert!(refusal(project.record(&[], &RecordOptions::default())).contains("at least one run"));
    let error = refusal(project.record(&[project.path("none")], &RecordOptions::default()));
    assert!(error.contains("none") && error.contains("no such file"), "{error}");
}

#[test]
fn what_is_no_golden_is_never_replaced() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    std::fs::create_dir_all(project.golden()).unwrap();
    std::fs::write(project.golden().join("thesis.tex"), "").unwrap();
    let error = refusal(project.record(std::slice::from_ref(&run), &updating()));
    assert!(error.contains("a directory without golden.json: move it away"), "{error}");
    assert_eq!(names(&project.golden()), ["thesis.tex"]);

    std::fs::remove_file(project.golden().join("thesis.tex")).unwrap();
    let outcome = project.record(&[run], &RecordOptions::default()).unwrap();
    assert!(matches!(outcome, RecordOutcome::Created(_)), "an empty directory is free: {outcome:?}");

    std::fs::write(project.golden().join("notes.md"), "").unwrap();
    let other = project.run("b", &Model { z: vec![9.0; 4], ..Model::default() });
    let error = refusal(project.record(&[other], &updating()));
    assert!(error.contains("notes.md") && error.contains("move it away"), "{error}");
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
}

#[test]
fn a_plain_run_is_no_golden() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    let error = refusal(Golden::open(&run));
    assert!(error.contains("found a run") && error.contains("`goldline record`"), "{error}");
    assert!(refusal(Golden::open(project.path("none"))).contains("no such file"));
}

#[test]
fn hostile_tensor_names_are_kept_and_shown_harmless() {
    let project = Project::new();
    let names = ["../../x", "t1", "a\u{1b}[31mb", "t3", "t4"];
    // In JSON a control character is an escape.
    let written = ["../../x", "t1", "a\\u001b[31mb", "t3", "t4"];
    let run = project.run("a", &Model { ids: names, ..Model::default() });
    let layers = std::fs::read_to_string(run.join("layers.jsonl")).unwrap().replace(names[2], written[2]);
    std::fs::write(run.join("layers.jsonl"), layers).unwrap();
    project.record(&[run], &RecordOptions::default()).unwrap();
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(check_all(&golden).unwrap(), 5);
    let at = golden.run.tensors.iter().position(|t| t.name == names[2]).unwrap();
    let wrong = goldline::tensor::Tensor::new(goldline::tensor::DType::U8, vec![1], vec![0]).unwrap();
    let error = refusal(golden.check_tensor(goldline::run::TensorId(at as u32), &wrong));
    assert!(error.contains("a\\u{1b}[31mb") && !error.contains('\u{1b}'), "{error}");
}
