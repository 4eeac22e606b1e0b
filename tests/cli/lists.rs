//! The verb blacklist and what it writes for frameworks.

use serde_json::Value;

use crate::project::Project;
use crate::support::compute::product;
use crate::support::{Recorder, Values};

/// One element of a linear layer is beyond what fp16 holds.
fn overflow(mut run: Recorder) -> Recorder {
    run.input("x", Values::noise(&[4, 8], 1));
    run.param("fc.weight", Values::noise(&[8, 8], 2).set(0, 9e4).set(9, 20.0));
    let y = product(run.value("x"), run.value("fc.weight")).to(run.dtype);
    run.layer("fc", "linear", &["x", "fc.weight"]).with("module", "fc").gives(y);
    run.apply("act", "relu", "fc", |v| v.max(0.0));
    run
}

fn project() -> Project {
    let project = Project::empty();
    project.run("gpu", &overflow(Recorder::f32()));
    project.run("npu", &overflow(Recorder::f16()));
    project
}

#[test]
fn the_evidence_names_operators_and_layers() {
    let said = project().goldline(&["blacklist", "gpu", "npu"]);
    assert_eq!((said.status, said.err.as_str()), (0, ""));
    assert!(said.out.contains("linear") && said.out.contains("fc") && said.out.contains("range"), "{}", said.out);
}

#[test]
fn lists_for_frameworks_go_to_stdout_or_a_file() {
    let project = project();
    let torch = project.goldline(&["blacklist", "gpu", "npu", "--emit", "torch"]);
    assert_eq!(torch.status, 0, "{}", torch.err);
    assert!(torch.out.contains("\"fc\""), "{}", torch.out);
    let said = project.goldline(&["blacklist", "gpu", "npu", "--emit", "torch", "-o", "keep.py"]);
    assert_eq!((said.status, said.out.as_str()), (0, ""));
    assert_eq!(project.read("keep.py"), torch.out);
    let mixlist = ["blacklist", "gpu", "npu", "--emit", "ascend-mixlist", "--allow-collateral", "-o", "mix.json"];
    assert_eq!(project.goldline(&mixlist).status, 0);
    let list: Value = serde_json::from_str(&project.read("mix.json")).unwrap();
    assert!(list["black-list"]["to-add"].as_array().is_some_and(|ops| !ops.is_empty()), "{list}");
}

#[test]
fn a_defect_leaves_the_list_empty() {
    let project = Project::with_runs();
    let torch = project.goldline(&["blacklist", "golden", "drift", "--emit", "torch"]);
    assert_eq!(torch.status, 0, "{}", torch.err);
    assert!(!torch.out.contains("\"fc\":"), "{}", torch.out);
    let options = project.goldline(&["blacklist", "golden", "drift", "-o", "x"]);
    assert_eq!((options.status, options.out.as_str()), (2, ""), "-o needs --emit");
    assert!(!project.path("x").exists());
}
