//! Goldens whose tensors stay in the run.

use goldline::golden::{Golden, RecordOptions, RecordOutcome};

use crate::fixture::{Model, Project, check_all, names, refusal};

fn in_place() -> RecordOptions<'static> {
    RecordOptions { in_place: true, ..RecordOptions::default() }
}

#[test]
fn the_tensors_stay_and_are_read_from_the_run() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    project.record(std::slice::from_ref(&run), &in_place()).unwrap();
    assert_eq!(names(&project.golden()), ["golden.json", "layers.jsonl", "run.json"]);
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!(golden.info.source.as_deref(), Some("../../runs/a"));
    assert_eq!(check_all(&golden).unwrap(), 5);
    assert!(golden.run.warnings.is_empty(), "{:?}", golden.run.warnings);
    assert_eq!(project.record(&[run], &in_place()).unwrap(), RecordOutcome::Unchanged);
}

#[test]
fn the_tree_can_be_moved_as_a_whole() {
    let project = Project::new();
    let run = project.run("below/a", &Model::default());
    project.record(&[run], &in_place()).unwrap();
    let moved = tempfile::tempdir().unwrap();
    for name in ["goldens", "runs"] {
        std::fs::rename(project.path(name), moved.path().join(name)).unwrap();
    }
    assert_eq!(check_all(&Golden::open(moved.path().join("goldens/g")).unwrap()).unwrap(), 5);
}

#[test]
fn a_changed_tensor_and_a_lost_run_are_noticed() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    project.record(&[run], &in_place()).unwrap();
    let run = project.run("a", &Model { z: vec![1.0; 4], ..Model::default() });
    let error = refusal(check_all(&Golden::open(project.golden()).unwrap()));
    assert!(error.contains("runs/a/tensors.safetensors: byte "), "{error}");
    assert!(error.contains("tensor `t4` is not as it was recorded"), "{error}");

    // What the layers are is known from the golden, whatever the run says now.
    project.run("a", &Model { activation: "gelu", ..Model::default() });
    let golden = Golden::open(project.golden()).unwrap();
    assert_eq!((golden.run.layers[4].op_name.as_str(), check_all(&golden).unwrap()), ("relu", 5));

    project.run("a", &Model { ids: ["t0", "t1", "t2", "t3", "other"], ..Model::default() });
    assert!(refusal(Golden::open(project.golden())).contains("tensor `other` was added"));
    std::fs::remove_dir_all(run).unwrap();
    let error = refusal(Golden::open(project.golden()));
    assert!(error.contains("golden.json: `source`: expected the directory of the run"), "{error}");
}

#[test]
fn tensors_without_a_layer_are_kept_too() {
    let project = Project::new();
    let run = project.run("a", &Model::default());
    let text = std::fs::read_to_string(run.join("layers.jsonl")).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.contains("draw")).collect();
    std::fs::write(run.join("layers.jsonl"), without.join("\n")).unwrap();
    project.record(&[run], &in_place()).unwrap();
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
}

#[test]
fn a_run_inside_the_golden_cannot_stay_there() {
    let project = Project::recorded();
    let error = refusal(project.record(&[project.golden()], &in_place()));
    assert!(error.contains("lies in the golden that would be replaced"), "{error}");
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
}

#[test]
fn switching_to_in_place_is_a_change() {
    let project = Project::recorded();
    let outcome = project.record(&[project.path("runs/a")], &in_place()).unwrap();
    let RecordOutcome::Refused(changes) = outcome else { panic!("{outcome:?}") };
    assert_eq!(changes.lines(), ["tensors in place: not recorded -> ../../runs/a"]);
}
