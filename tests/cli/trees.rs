//! Several steps and ranks: a tree of runs is a suite.

use crate::project::{Fault, Project, model};

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
