//! Recording, replacing, tampering, and what an interruption leaves.

use crate::project::{Fault, Project, model};

#[test]
fn a_golden_is_replaced_only_on_demand_and_the_changes_are_shown() {
    let project = Project::with_cases(&["same"]);
    let unchanged = project.goldline(&["record", "cases/same.yaml", "--run", "golden"]);
    assert_eq!(unchanged.status, 0);
    assert!(unchanged.out.contains("nothing changes"), "{}", unchanged.out);
    let digest = project.read("approved/golden.json");
    let refused = project.goldline(&["record", "cases/same.yaml", "--run", "drift"]);
    assert_eq!((refused.status, refused.out.as_str()), (2, ""));
    assert!(refused.err.contains("--update"), "{}", refused.err);
    assert!(refused.err.contains("fc:0"), "the changes are listed: {}", refused.err);
    assert_eq!(project.read("approved/golden.json"), digest);
    let replaced = project.goldline(&["record", "cases/same.yaml", "--run", "drift", "--update"]);
    assert_eq!(replaced.status, 0, "{}", replaced.err);
    assert!(replaced.out.contains("replaced") && replaced.out.contains("fc:0"), "{}", replaced.out);
    assert_ne!(project.read("approved/golden.json"), digest);
    assert_eq!(project.goldline(&["verify", "cases/same.yaml", "--run", "drift"]).status, 0);
    assert!(project.list(".").iter().all(|name| !name.starts_with('.')), "{:?}", project.list("."));
}

#[test]
fn a_digest_that_does_not_hold_is_2_and_names_the_tensor() {
    let project = Project::with_cases(&["same", "drift"]);
    let file = project.path("approved/tensors.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let said = project.goldline(&["verify", "cases/same.yaml"]);
    let line = said.refusal();
    assert!(line.starts_with("cases/../approved/tensors.safetensors: byte "), "{line}");
    assert!(line.contains("tensor `out:0` is not as it was recorded: expected blake3:"), "{line}");
    assert_eq!(project.goldline(&["verify", "cases"]).status, 2);
    for verb in ["diff", "bisect"] {
        let said = project.goldline(&[verb, "approved", "same"]);
        assert!(said.refusal().contains("tensor `out:0` is not as it was recorded"), "{verb}: {}", said.err);
    }
}

#[test]
fn metadata_that_was_changed_is_refused_before_any_tensor() {
    let project = Project::with_cases(&["same"]);
    let layers = project.read("approved/layers.jsonl");
    project.write("approved/layers.jsonl", layers.replace("relu", "gelu"));
    let said = project.goldline(&["verify", "cases/same.yaml"]);
    assert!(said.refusal().contains("layers.jsonl"), "{}", said.err);
}

#[test]
fn verify_recovers_a_swap_that_was_interrupted() {
    let project = Project::with_cases(&["same"]);
    // Where directories cannot be exchanged in one step, the old one stands aside for a moment.
    std::fs::rename(project.path("approved"), project.path(".approved.old")).unwrap();
    let said = project.goldline(&["verify", "cases/same.yaml"]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(project.path("approved/golden.json").is_file());
}

#[test]
fn several_runs_leave_their_spread_as_noise() {
    let project = Project::with_runs();
    project.case("same", "");
    let mut other = model(Fault::None);
    other.alter("out", |numbers| numbers[0] *= 1.0 + 1e-6);
    project.run("again", &other);
    let said = project.goldline(&["record", "cases/same.yaml", "--run", "golden", "--run", "again"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(project.read("approved/golden.json").contains("noise"));
    assert_eq!(project.goldline(&["verify", "cases/same.yaml"]).status, 0);
}

#[test]
fn an_incomplete_run_is_approved_only_on_demand() {
    let project = Project::with_runs();
    project.case("same", "");
    project.run("open", &model(Fault::None).meta("complete", false.into()));
    let refused = project.goldline(&["record", "cases/same.yaml", "--run", "open"]);
    assert!(refused.refusal().starts_with("open: "), "{}", refused.err);
    assert!(!project.path("approved").exists());
    let allowed = project.goldline(&["record", "cases/same.yaml", "--run", "open", "--allow-incomplete"]);
    assert_eq!(allowed.status, 0, "{}", allowed.err);
}

#[test]
fn recording_in_place_copies_no_tensor() {
    let project = Project::with_runs();
    project.case("same", "");
    let said = project.goldline(&["record", "cases/same.yaml", "--run", "golden", "--in-place"]);
    assert_eq!(said.status, 0, "{}", said.err);
    assert!(project.list("approved").iter().all(|name| !name.ends_with(".safetensors")));
    assert_eq!(project.goldline(&["verify", "cases/same.yaml"]).status, 0);
}

#[test]
fn a_case_without_golden_says_how_to_record_one() {
    let project = Project::with_runs();
    project.case("same", "");
    let said = project.goldline(&["verify", "cases/same.yaml"]);
    assert_eq!((said.status, said.out.as_str()), (2, ""));
    assert!(said.err.contains("record"), "{}", said.err);
    std::fs::rename(project.path("golden"), project.path("approved")).unwrap();
    let said = project.goldline(&["verify", "cases/same.yaml"]);
    assert!(said.refusal().contains("record"), "a run is no golden: {}", said.err);
}
