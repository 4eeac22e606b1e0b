//! Recording where a golden is already.

use goldline::golden::{Changes, Golden, RecordOptions, RecordOutcome};

use crate::fixture::{Model, Project, check_all, names, updating};

/// What recording `model` over the default golden would change.
fn refused(model: &Model) -> Changes {
    let project = Project::recorded();
    let before = std::fs::read(project.golden().join("golden.json")).unwrap();
    let run = project.run("b", model);
    let outcome = project.record(&[run], &RecordOptions::default()).unwrap();
    let RecordOutcome::Refused(changes) = outcome else { panic!("{outcome:?}") };
    assert_eq!(std::fs::read(project.golden().join("golden.json")).unwrap(), before);
    assert_eq!(names(&project.path("goldens")), ["g"]);
    assert!(!changes.is_empty());
    changes
}

#[test]
fn the_same_again_changes_nothing() {
    let project = Project::recorded();
    let before = std::fs::read(project.golden().join("golden.json")).unwrap();
    let again = project.path("runs/a");
    // Made again later, with other tensor ids, is still the same.
    let model = Model { created: "2026-02-02T00:00:00Z", ids: ["a", "b", "c", "d", "e"], ..Model::default() };
    let renumbered = project.run("b", &model);
    for run in [again, renumbered, project.golden()] {
        for options in [RecordOptions::default(), updating()] {
            let outcome = project.record(std::slice::from_ref(&run), &options).unwrap();
            assert_eq!(outcome, RecordOutcome::Unchanged, "{}", run.display());
        }
    }
    assert_eq!(std::fs::read(project.golden().join("golden.json")).unwrap(), before);
}

#[test]
fn other_values_are_told_with_their_size() {
    let changes = refused(&Model { y: vec![3.0, 4.5, 0.0, 0.0], ..Model::default() });
    // 0.5 of a norm of 5.
    assert_eq!(changes.lines(), ["tensor `fc:0`: 1 of 4 elements differ, rel_l2 1.000e-1, max_abs 5.000e-1"]);
    let changes = refused(&Model { y: vec![3.0, 4.5, f32::NAN, 0.0], ..Model::default() });
    let expected = "tensor `fc:0`: 2 of 4 elements differ, 1 of them by NaN or Inf, rel_l2 1.000e-1, max_abs 5.000e-1";
    assert_eq!(changes.lines(), [expected]);
    let changes = refused(&Model { y: vec![3.0, 4.0, f32::INFINITY, 0.0], ..Model::default() });
    assert_eq!(changes.lines(), ["tensor `fc:0`: 1 of 4 elements differ, 1 of them by NaN or Inf"]);
    let changes = refused(&Model { y: vec![3.0, 4.0, -0.0, 0.0], ..Model::default() });
    assert_eq!(changes.lines(), ["tensor `fc:0`: bit patterns differ, the values do not"]);
    let changes = refused(&Model { y: vec![3.0, 4.0], ..Model::default() });
    assert_eq!(changes.lines(), ["tensor `fc:0`: float32 [4] -> float32 [2]"]);
}

#[test]
fn other_metadata_and_operators_are_told() {
    let changes = refused(&Model { device: "npu", activation: "gelu", ..Model::default() });
    assert_eq!(changes.lines(), ["environment.device: gpu -> npu", "layer `act`: op: relu -> gelu"]);
}

#[test]
fn layers_that_come_and_go_and_move_are_told() {
    let project = Project::recorded();
    let run = project.run("b", &Model::default());
    let file = run.join("layers.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[4] = r#"{"name":"tail","op":"cumsum","inputs":["t2"],"outputs":["t4"]}"#;
    lines.swap(0, 1);
    lines[2] = r#"{"name":"fc","op":"linear","inputs":["t1","t0"],"outputs":["t2"],"attrs":{"bias":true}}"#;
    std::fs::write(&file, lines.join("\n")).unwrap();
    let outcome = project.record(&[run], &RecordOptions::default()).unwrap();
    let RecordOutcome::Refused(changes) = outcome else { panic!("{outcome:?}") };
    let expected = [
        "order of layers: `x` before `w` -> `w` before `x`",
        "layer `act` is removed",
        "layer `tail` is added",
        "layer `fc`: attrs.bias: null -> true",
        "layer `fc`: input 0: x:0 -> w:0",
        "layer `fc`: input 1: w:0 -> x:0",
    ];
    assert_eq!(changes.lines(), expected);
}

#[test]
fn an_update_replaces_and_tells_the_same() {
    let project = Project::recorded();
    let model = Model { y: vec![3.0, 4.5, 0.0, 0.0], ..Model::default() };
    let run = project.run("b", &model);
    let outcome = project.record(std::slice::from_ref(&run), &updating()).unwrap();
    let RecordOutcome::Replaced(recorded, changes) = outcome else { panic!("{outcome:?}") };
    assert_eq!(changes, refused(&model));
    assert_eq!((recorded.tensors, recorded.notes), (5, Vec::new()));
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(check_all(&golden).unwrap(), 5);
    assert_eq!(golden.info.recorded_from, [run.to_str().unwrap()]);
    assert_eq!(names(&project.path("goldens")), ["g"]);
    assert_eq!(project.record(&[run], &RecordOptions::default()).unwrap(), RecordOutcome::Unchanged);
}

#[test]
fn statistics_survive_recording_to_the_last_bit() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    // A value that a hasty parser of decimals reads one unit too far.
    let line = r#"{"tensor":"t4","dtype":"float32","shape":[4],"mean":0.30000000000000004,"l2":1.2345678901234567e-7}"#;
    std::fs::write(run.join("stats.jsonl"), format!("{line}\n")).unwrap();
    project.record(std::slice::from_ref(&run), &RecordOptions::default()).unwrap();
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(golden.info.metadata.len(), 3);
    assert_eq!(
        project.record(std::slice::from_ref(&run), &RecordOptions::default()).unwrap(),
        RecordOutcome::Unchanged
    );
    std::fs::write(run.join("stats.jsonl"), line.replace("0.30000000000000004", "0.3")).unwrap();
    let outcome = project.record(&[run], &RecordOptions::default()).unwrap();
    let RecordOutcome::Refused(changes) = outcome else { panic!("{outcome:?}") };
    assert_eq!(changes.lines(), ["tensor `act:0`: its statistics differ"]);
}
