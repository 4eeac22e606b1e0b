//! Several runs of one case: what they agree on is the golden's noise.

use goldline::golden::{Golden, Noise, RecordOptions, RecordOutcome, spread};
use goldline::run::Run;

use crate::fixture::{Model, Project, refusal};

#[test]
fn the_largest_spread_against_the_first_run_is_kept() {
    let project = Project::new();
    let first = project.run("a", &Model::default());
    let second = project.run("b", &Model { y: vec![3.0, 4.5, 0.0, 0.0], ..Model::default() });
    let third =
        project.run("c", &Model { y: vec![3.0, 3.75, 0.0, 0.0], z: vec![3.0, 4.25, 0.0, 0.0], ..Model::default() });
    let runs = [first, second, third];
    let outcome = project.record(&runs, &RecordOptions::default()).unwrap();
    let RecordOutcome::Created(recorded) = outcome else { panic!("{outcome:?}") };
    assert!(recorded.notes.is_empty(), "{:?}", recorded.notes);
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!((golden.info.runs, golden.info.recorded_from.len()), (3, 3));
    // Against a norm of 5: at most 0.5 and 0.25.
    assert_eq!(golden.noise("fc", 0), Some(Noise { rel_l2: Some(0.1), max_abs: 0.5 }));
    assert_eq!(golden.noise("act", 0), Some(Noise { rel_l2: Some(0.05), max_abs: 0.25 }));
    assert_eq!(golden.noise("draw", 0), Some(Noise { rel_l2: Some(0.0), max_abs: 0.0 }));
    for (layer, slot) in [("x", 0), ("w", 0), ("fc", 1), ("none", 0)] {
        assert_eq!(golden.noise(layer, slot), None, "{layer}:{slot}");
    }
    assert_eq!(project.record(&runs, &RecordOptions::default()).unwrap(), RecordOutcome::Unchanged);
    let outcome = project.record(&runs[..1], &RecordOptions::default()).unwrap();
    let RecordOutcome::Refused(changes) = outcome else { panic!("{outcome:?}") };
    let expected = ["approved runs: 3 -> 1", "noise: known of 3 outputs -> known of 0 outputs, 3 differ"];
    assert_eq!(changes.lines(), expected);
}

#[test]
fn an_all_zero_output_has_no_relative_noise() {
    let project = Project::new();
    let first = project.run("a", &Model { z: vec![0.0; 4], ..Model::default() });
    let second = project.run("b", &Model { z: vec![0.0, 0.5, 0.0, 0.0], ..Model::default() });
    project.record(&[first, second], &RecordOptions::default()).unwrap();
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(golden.noise("act", 0), Some(Noise { rel_l2: None, max_abs: 0.5 }));
}

#[test]
fn nan_in_one_run_alone_is_noted() {
    let project = Project::new();
    let first = project.run("a", &Model::default());
    let second = project.run("b", &Model { z: vec![3.0, f32::NAN, 0.0, 0.0], ..Model::default() });
    let outcome = project.record(&[first, second], &RecordOptions::default()).unwrap();
    let RecordOutcome::Created(recorded) = outcome else { panic!("{outcome:?}") };
    assert!(recorded.notes[0].contains("output 0 of `act` has NaN or Inf where"), "{:?}", recorded.notes);
    assert_eq!(Golden::open(project.golden()).unwrap().noise("act", 0).unwrap().max_abs, 0.0);
}

#[test]
fn runs_that_are_no_repetitions_are_refused_by_name() {
    let project = Project::new();
    let first = project.run("a", &Model::default());
    let cases = [
        (Model { x: vec![1.0, -2.0, 3.0, 4.0], ..Model::default() }, "`x` was given another tensor"),
        (Model { x: vec![1.0, -2.0, f32::NAN, -4.0], ..Model::default() }, "`x` was given another tensor"),
        (Model { mask: vec![1, 1, 1, 1], ..Model::default() }, "`draw` drew other values"),
        (Model { z: vec![0.0; 5], ..Model::default() }, "output 0 of `act`: shape [4] in the first run, [5] here"),
    ];
    for (model, expected) in cases {
        let second = project.run("b", &model);
        let error = refusal(project.record(&[first.clone(), second], &RecordOptions::default()));
        assert!(error.contains(expected) && error.contains("runs/b"), "{error}");
        assert!(!project.golden().exists());
    }
    let twice = project.path("runs/../runs/a");
    let error = refusal(project.record(&[first, twice], &RecordOptions::default()));
    assert!(error.contains("given twice"), "{error}");
}

#[test]
fn the_spread_counts_what_it_could_not_measure_and_the_work_done() {
    let project = Project::new();
    let first = project.run("a", &Model::default());
    let second = project.run("b", &Model::default());
    let text = std::fs::read_to_string(second.join("layers.jsonl")).unwrap();
    let without: Vec<&str> = text.lines().take(4).collect();
    std::fs::write(second.join("layers.jsonl"), without.join("\n")).unwrap();
    let runs = [Run::open(first).unwrap(), Run::open(second).unwrap()];
    let calls = std::sync::Mutex::new(Vec::new());
    let found = spread(&runs, &|name| name.to_string(), &|done, all| calls.lock().unwrap().push((done, all))).unwrap();
    let outputs: Vec<_> = found.layers.iter().map(|entry| (entry.layer.0, entry.slot)).collect();
    assert_eq!(outputs, [(2, 0), (3, 0)]);
    assert_eq!(found.notes.len(), 1);
    assert!(found.notes[0].ends_with("1 layers of the first run have no partner"), "{:?}", found.notes);
    let mut calls = calls.into_inner().unwrap();
    calls.sort_unstable();
    assert_eq!(calls, [(1, 4), (2, 4), (3, 4), (4, 4)]);
    assert!(spread(&[], &|name| name.to_string(), &|_, _| {}).unwrap().layers.is_empty());
}
