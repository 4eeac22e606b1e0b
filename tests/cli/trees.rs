//! Several steps and ranks: a tree of runs is a suite.

use goldline::run::Run;
use serde_json::{Value, json};

use crate::project::{Fault, Project, model};
use crate::support::parallel::{SHARDS, sharded, whole};
use crate::support::{Recorder, Values};

fn tree(project: &Project, name: &str, places: &[(&str, Fault)]) {
    for (place, fault) in places {
        project.run(&format!("{name}/{place}"), &model(*fault));
    }
}

#[test]
fn trees_pair_by_step_and_rank() {
    let project = Project::empty();
    tree(&project, "a", &[("step0/rank0", Fault::None), ("step0/rank1", Fault::None), ("step10/rank0", Fault::None)]);
    tree(&project, "b", &[("step10/rank0", Fault::Inf), ("step0/rank0", Fault::None), ("step0/rank1", Fault::Drift)]);
    let said = project.goldline(&["diff", "a", "b", "--json"]);
    let suite = said.json();
    assert_eq!((said.status, suite["schema"].as_str()), (1, Some("goldline.suite/1")));
    let found: Vec<(Option<u64>, Option<u64>, &str)> = suite["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| (case["step"].as_u64(), case["rank"].as_u64(), case["verdict"].as_str().unwrap()))
        .collect();
    let expected = [(Some(0), Some(0), "pass"), (Some(0), Some(1), "drift"), (Some(10), Some(0), "nonfinite")];
    assert_eq!(found, expected);
    assert_eq!(suite["verdict"], "nonfinite");
    let screen = project.goldline(&["diff", "a", "b"]).out;
    assert!(screen.contains("step 0") && screen.contains("rank 1"), "{screen}");
}

#[test]
fn a_step_that_one_side_lacks_is_an_error_beside_the_others() {
    let project = Project::empty();
    tree(&project, "a", &[("rank0", Fault::None), ("rank1", Fault::None)]);
    tree(&project, "b", &[("rank0", Fault::None), ("rank2", Fault::None)]);
    let said = project.goldline(&["diff", "a", "b", "--json"]);
    assert_eq!(said.status, 2);
    let cases = said.json()["cases"].as_array().unwrap().clone();
    let errors: Vec<&str> = cases.iter().filter_map(|case| case["error"].as_str()).collect();
    assert_eq!(errors.len(), 2, "{cases:?}");
    let suite = said.json();
    assert_eq!(suite["unpaired"][0], json!({"case": null, "step": null, "rank": 1, "in": "golden"}));
    assert_eq!((&suite["unpaired"][1]["rank"], &suite["unpaired"][1]["in"]), (&json!(2), &json!("candidate")));
    assert_eq!(suite["totals"]["unpaired"], 2);
    assert!(errors[0].starts_with("only in the golden") && errors[1].starts_with("only in the candidate"));
    assert_eq!(cases[0]["verdict"], "pass");
}

#[test]
fn one_bad_rank_hides_no_other() {
    let project = Project::empty();
    tree(&project, "a", &[("rank0", Fault::None), ("rank1", Fault::None)]);
    tree(&project, "b", &[("rank0", Fault::Drift), ("rank1", Fault::None)]);
    project.write("b/rank1/tensors.safetensors", "<html>");
    let said = project.goldline(&["diff", "a", "b", "--json"]);
    assert_eq!(said.status, 2);
    let suite = said.json();
    assert_eq!(suite["cases"][0]["verdict"], "drift");
    assert!(suite["cases"][1]["error"].as_str().unwrap().contains("b/rank1/tensors.safetensors"), "{suite}");
    assert_eq!(project.goldline(&["inspect", "a"]).status, 2, "a tree is no run");
}

#[test]
fn the_earliest_layer_over_the_ranks_of_the_first_step_comes_first() {
    let project = Project::empty();
    let late = || {
        let mut run = model(Fault::None);
        run.alter("out", |numbers| numbers.iter_mut().for_each(|v| *v *= 1.1));
        run
    };
    tree(&project, "a", &[("step0/rank0", Fault::None), ("step1/rank0", Fault::None), ("step1/rank1", Fault::None)]);
    tree(&project, "b", &[("step0/rank0", Fault::None), ("step1/rank1", Fault::Drift)]);
    project.run("b/step1/rank0", &late());
    let suite = project.goldline(&["diff", "a", "b", "--json"]).json();
    let first = &suite["first_drift"];
    assert_eq!((&first["step"], &first["rank"], &first["layer"]), (&json!(1), &json!(1), &json!("fc")), "{first}");
    assert!(suite["first"].as_str().unwrap().ends_with("step 1 rank 1"), "{}", suite["first"]);
    let screen = project.goldline(&["diff", "a", "b"]).out;
    assert!(screen.contains("step 1 rank 1, at fc (linear)"), "{screen}");
}

#[test]
fn one_run_answers_the_only_run_of_a_tree() {
    let project = Project::empty();
    project.run("a", &model(Fault::None));
    tree(&project, "b", &[("step3/rank1", Fault::None)]);
    let report = project.goldline(&["diff", "a", "b", "--json"]).json();
    assert_eq!((&report["verdict"], &report["step"], &report["rank"]), (&json!("pass"), &json!(3), &json!(1)));
    // Ranks without a step are those of the only step.
    tree(&project, "c", &[("rank0", Fault::None), ("rank1", Fault::None)]);
    tree(&project, "d", &[("step7/rank0", Fault::None), ("step7/rank1", Fault::None)]);
    let said = project.goldline(&["diff", "c", "d", "--json"]);
    assert_eq!((said.status, &said.json()["cases"][1]["step"]), (0, &json!(7)));
}

/// Ranks whose all_reduce and parameter are the same, but for a bit on those listed.
fn replicas(project: &Project, name: &str, ranks: u64, apart: &[u64]) {
    for rank in 0..ranks {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[4, 8], rank + 10));
        run.param("norm.weight", Values::noise(&[8], 5));
        run.mul("scaled", "x", "norm.weight");
        let sum = Values::noise(&[4, 8], 6).set(0, 1.0);
        run.op("sum", "all_reduce", &["scaled"], sum);
        if apart.contains(&rank) {
            run.alter("sum", |numbers| numbers[0] = 1.0 + f64::from(f32::EPSILON));
        }
        run.softmax("out", "sum");
        project.run(&format!("{name}/step2/rank{rank}"), &run);
    }
}

#[test]
fn a_result_of_a_collective_that_one_rank_holds_otherwise_fails_the_suite() {
    let project = Project::empty();
    replicas(&project, "a", 4, &[]);
    replicas(&project, "b", 4, &[2]);
    let said = project.goldline(&["diff", "a", "b", "--json"]);
    let suite = said.json();
    assert!(suite["cases"].as_array().unwrap().iter().all(|case| case["verdict"] == "pass"), "{suite}");
    assert_eq!((said.status, &suite["verdict"]), (1, &json!("drift")));
    let found = suite["disagreements"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let expected =
        json!({"step": 2, "in": "candidate", "layer": "sum", "op": "all_reduce", "tensor": "sum:0", "ranks": [2]});
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&found[0][key], value, "{key}");
    }
    let why = found[0]["why"].as_str().unwrap();
    assert!(why.starts_with("rank 2 holds other values than ranks 0, 1, 3 (rel_l2 "), "{why}");
    assert_eq!((&suite["first"], &suite["first_drift"]), (&json!("step 2 rank 2"), &Value::Null));
    let reports = ["html=r.html", "md=r.md", "junit=r.xml"].map(|report| ["--report", report]).concat();
    let screen = project.goldline(&[&["diff", "a", "b"], reports.as_slice()].concat()).out;
    for text in [screen, project.read("r.html"), project.read("r.md"), project.read("r.xml")] {
        assert!(text.contains("rank 2 holds other values"), "{text}");
    }
    project.write("suite.json", said.out);
    let again = project.goldline(&["report", "suite.json", "--json"]);
    assert_eq!(again.json(), suite, "a suite that is read again is the same");
}

#[test]
fn ranks_that_differ_in_the_golden_need_not_agree() {
    let project = Project::empty();
    replicas(&project, "a", 2, &[1]);
    // As far apart as the golden's, and the other way round.
    replicas(&project, "b", 2, &[0]);
    assert_eq!(project.goldline(&["diff", "a", "b"]).status, 0);
    // Ranks 0 and 1 share a shard in the golden, ranks 2 and 3 another.
    replicas(&project, "c", 4, &[2, 3]);
    replicas(&project, "d", 4, &[2]);
    let suite = project.goldline(&["diff", "c", "d", "--json"]).json();
    assert_eq!(suite["disagreements"][0]["ranks"], json!([3]), "{}", suite["disagreements"]);
}

fn tensor_parallel(project: &Project, name: &str, ranks: usize) {
    for rank in 0..ranks {
        project.run(&format!("{name}/rank{rank}"), &sharded(rank, ranks));
    }
}

fn case(project: &Project, keys: &str) {
    project.write("case.yaml", format!("schema: goldline.case/1\nname: tp\ngolden: approved\n{keys}"));
}

#[test]
fn shards_join_to_compare_with_one_device() {
    let project = Project::empty();
    project.run("one", &whole());
    tensor_parallel(&project, "four", 4);
    case(&project, SHARDS);
    assert_eq!(project.goldline(&["record", "case.yaml", "--run", "one"]).status, 0);
    let said = project.goldline(&["verify", "case.yaml", "--run", "four", "--json"]);
    let report = said.json();
    assert_eq!((said.status, &report["verdict"]), (0, &json!("pass")), "{}{}", report["why"], said.err);
    let compared = |name: &str| {
        let row = report["layers"].as_array().unwrap().iter().find(|row| row["layer"] == name).unwrap();
        (row["verdict"].clone(), row["outputs"][0]["shape"].clone(), row["outputs"][0]["introduced"].is_number())
    };
    assert_eq!(compared("up"), (json!("pass"), json!([4, 16]), true), "a joined linear layer is replayed");
    assert_eq!(compared("down"), (json!("pass"), json!([4, 8]), true));
    assert_eq!(compared("up.grad").1, json!([16, 8]));
    assert_eq!(report["summary"]["missing"], 0);
}

#[test]
fn a_fault_on_one_rank_is_found_through_the_join_from_both_sides() {
    let project = Project::empty();
    project.run("one", &whole());
    tensor_parallel(&project, "two", 2);
    let mut broken = sharded(1, 2);
    broken.alter("up", |numbers| numbers.iter_mut().for_each(|v| *v *= 1.01));
    project.run("two/rank1", &broken);
    case(&project, SHARDS);
    project.goldline(&["record", "case.yaml", "--run", "one"]);
    let said = project.goldline(&["verify", "case.yaml", "--run", "two", "--json"]);
    assert_eq!((said.status, &said.json()["origins"][0]["layer"]), (1, &json!("up")), "{}", said.out);
    // The tree as golden, one device as candidate.
    tensor_parallel(&project, "two", 2);
    let recorded = project.goldline(&["record", "case.yaml", "--run", "two"]);
    assert_eq!(recorded.status, 2, "the golden of one run is not replaced by a tree: {}", recorded.err);
    std::fs::remove_dir_all(project.path("approved")).unwrap();
    assert_eq!(project.goldline(&["record", "case.yaml", "--run", "two"]).status, 0);
    let said = project.goldline(&["verify", "case.yaml", "--run", "one", "--json"]);
    assert_eq!((said.status, &said.json()["verdict"]), (0, &json!("pass")), "{}", said.err);
    let file = project.path("approved/rank1/tensors.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let said = project.goldline(&["verify", "case.yaml", "--run", "one"]);
    assert!(said.refusal().contains("is not as it was recorded"), "digests hold for shards, too: {}", said.err);
}

#[test]
fn without_shards_a_part_is_a_mismatch_that_says_how_to_join() {
    let project = Project::empty();
    project.run("one", &whole());
    tensor_parallel(&project, "two", 2);
    let said = project.goldline(&["diff", "one", "two/rank0", "--json"]);
    let report = said.json();
    let row = report["layers"].as_array().unwrap().iter().find(|row| row["layer"] == "up.weight").unwrap().clone();
    assert_eq!(row["verdict"], "mismatch", "{row}");
    let why = row["why"].as_str().unwrap();
    assert!(why.contains("dim 0 is 2 times as long") && why.contains("`shards`"), "{why}");
    let said = project.goldline(&["diff", "one", "two"]);
    assert!(said.out.contains("`shards` of a case joins ranks"), "{}", said.out);
}

#[test]
fn ranks_that_are_missing_or_disagree_in_a_join_are_told() {
    let project = Project::empty();
    project.run("one", &whole());
    tensor_parallel(&project, "two", 2);
    case(&project, SHARDS);
    project.goldline(&["record", "case.yaml", "--run", "one"]);
    let mut other = sharded(1, 2);
    other.alter("sum", |numbers| numbers[3] *= 1.0 + 2.0 * f64::from(f32::EPSILON));
    project.run("two/rank1", &other);
    let said = project.goldline(&["verify", "case.yaml", "--run", "two", "--json"]);
    let suite = said.json();
    assert_eq!((said.status, &suite["cases"][0]["verdict"]), (1, &json!("pass")), "{}", said.err);
    let found = &suite["disagreements"][0];
    assert_eq!((&found["layer"], &found["ranks"], &found["case"]), (&json!("sum"), &json!([1]), &json!("tp")));
    std::fs::remove_dir_all(project.path("two/rank1")).unwrap();
    tensor_parallel(&project, "four", 4);
    std::fs::remove_dir_all(project.path("four/rank3")).unwrap();
    let said = project.goldline(&["verify", "case.yaml", "--run", "four"]);
    let line = said.refusal();
    assert!(line.contains("joins all 4 ranks, found 3 and no rank 3"), "{line}");
    // A step that lacks a rank which others have hides none of them.
    for (step, ranks) in [(0, 2), (1, 1), (2, 2)] {
        (0..ranks).for_each(|rank| project.run(&format!("steps/step{step}/rank{rank}"), &sharded(rank, 2)));
        project.run(&format!("ones/step{step}"), &whole());
    }
    case(&project, &format!("{SHARDS}candidate: steps\n"));
    std::fs::remove_dir_all(project.path("approved")).unwrap();
    project.goldline(&["record", "case.yaml", "--run", "ones"]);
    let suite = project.goldline(&["verify", "case.yaml", "--json"]).json();
    let said: Vec<&Value> = suite["cases"].as_array().unwrap().iter().map(|case| &case["verdict"]).collect();
    assert_eq!(said, [&json!("pass"), &Value::Null, &json!("pass")], "{suite}");
    assert!(suite["cases"][1]["error"].as_str().unwrap().contains("joins rank 1, found no such rank"), "{suite}");
    std::fs::remove_dir_all(project.path("approved")).unwrap();
    project.goldline(&["record", "case.yaml", "--run", "one"]);
    case(&project, "shards: [{match: 'up*', dim: 2}]\n");
    tensor_parallel(&project, "four", 4);
    let said = project.goldline(&["verify", "case.yaml", "--run", "four"]);
    let line = said.refusal();
    assert!(line.contains("`shards`, match `up*`, how concat: tensor `up.weight:0`: there is no dim 2"), "{line}");
}

#[test]
fn groups_of_ranks_join_apart_and_pair_in_order() {
    let project = Project::empty();
    for (rank, replica) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
        project.run(&format!("four/step0/rank{rank}"), &sharded(rank - 2 * replica, 2));
        project.run(&format!("two/step0/rank{replica}"), &whole());
    }
    let keys = SHARDS.replace('}', ", group: [0, 1]}")
        + SHARDS.trim_start_matches("shards:\n").replace('}', ", group: [2, 3]}").as_str();
    case(&project, &keys);
    let said = project.goldline(&["record", "case.yaml", "--run", "two"]);
    assert_eq!(said.status, 0, "{}", said.err);
    let suite = project.goldline(&["verify", "case.yaml", "--run", "four", "--json"]).json();
    let cases = suite["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2, "{suite}");
    assert!(cases.iter().all(|case| case["verdict"] == "pass"), "{}", suite["first"]);
}

#[test]
fn a_tree_is_recorded_as_a_tree_of_goldens() {
    let project = Project::empty();
    tree(&project, "a", &[("step0/rank0", Fault::None), ("step0/rank1", Fault::None)]);
    tree(&project, "b", &[("step0/rank0", Fault::None), ("step0/rank1", Fault::Drift)]);
    case(&project, "");
    let said = project.goldline(&["record", "case.yaml", "--run", "a"]);
    assert!(said.status == 0 && said.out.contains("recorded"), "{}", said.err);
    assert!(project.path("approved/step0/rank1/golden.json").is_file());
    assert_eq!(project.goldline(&["record", "case.yaml", "--run", "a"]).out, "approved: nothing changes\n");
    let refused = project.goldline(&["record", "case.yaml", "--run", "b"]);
    assert!(refused.status == 2 && refused.err.contains("step0/rank1: tensor `fc:0`"), "{}", refused.err);
    assert_eq!(project.goldline(&["verify", "case.yaml", "--run", "b"]).status, 1);
    project.write("approved/step0/notes.txt", "mine");
    let refused = project.goldline(&["record", "case.yaml", "--run", "b", "--update"]);
    assert!(refused.refusal().contains("approved/step0/notes.txt: expected only goldens"), "{}", refused.err);
    std::fs::remove_file(project.path("approved/step0/notes.txt")).unwrap();
    assert_eq!(project.goldline(&["record", "case.yaml", "--run", "b", "--update"]).status, 0);
    assert_eq!(project.goldline(&["verify", "case.yaml", "--run", "b"]).status, 0);
    assert_eq!(Run::discover(project.path("approved")).unwrap().len(), 2);
    assert!(project.list(".").iter().all(|name| !name.starts_with('.')), "{:?}", project.list("."));
    let refused = project.goldline(&["record", "case.yaml", "--run", "a", "--in-place", "--update"]);
    assert!(refused.refusal().contains("cannot be recorded in place"), "{}", refused.err);
    let others = project.goldline(&["record", "case.yaml", "--run", "a", "--run", "a/step0", "--update"]);
    assert!(others.refusal().contains("the same steps and ranks"), "{}", others.err);
}
