//! Runs whose data flow no network has: every verb ends, with a status and without a panic.

use goldline::tensor::DType;

use crate::project::Project;
use crate::support::{Recorder, Values};

/// Every verb on this run, against itself and against a sound one.
#[track_caller]
fn every_verb_ends(run: &Recorder) {
    let project = Project::with_runs();
    project.run("odd", run);
    for arguments in [
        &["diff", "golden", "odd"][..],
        &["diff", "odd", "golden"],
        &["diff", "odd", "odd", "--all"],
        &["diff", "odd", "odd", "--report", "html=-"],
        &["bisect", "odd", "odd"],
        &["bisect", "golden", "odd"],
        &["nan", "odd"],
        &["nan", "odd", "--golden", "golden"],
        &["blacklist", "odd", "odd", "--emit", "torch"],
        &["explain", "odd", "odd", "z"],
        &["inspect", "odd", "--all"],
        &["convert", "odd", "copy"],
    ] {
        let said = project.goldline(arguments);
        assert!((0..4).contains(&said.status), "{arguments:?}: {}", said.err);
        assert!(!said.err.contains("panicked"), "{arguments:?}: {}", said.err);
    }
    project.goldline(&["diff", "odd", "odd", "--json"]).json();
    let copied = project.goldline(&["diff", "odd", "copy"]);
    assert_eq!(copied.status, project.goldline(&["diff", "odd", "odd"]).status, "a copy is the same run");
}

fn pair() -> Values {
    Values::new(&[2], [1.0, f64::NAN])
}

#[test]
fn a_layer_that_reads_its_own_output() {
    let mut run = Recorder::f32();
    run.input("x", pair());
    run.layer("y", "relu", &["x", "y"]).gives(pair());
    run.layer("z", "relu", &["y"]).gives(pair());
    every_verb_ends(&run);
}

#[test]
fn two_layers_that_read_each_other() {
    for op in ["relu", "to", "view", "unheard_of"] {
        let mut run = Recorder::f32();
        run.input("x", pair());
        run.layer("y", op, &["z"]).gives(pair());
        run.layer("z", op, &["y"]).gives(pair());
        every_verb_ends(&run);
    }
}

#[test]
fn in_place_layers_and_layers_that_list_a_tensor_twice() {
    let mut run = Recorder::f32();
    run.input("x", pair());
    run.layer("y", "relu_", &["x", "x"]).hands_on(&["x", "x"]);
    run.layer("z", "relu_", &["x"]).hands_on(&["x"]);
    every_verb_ends(&run);
}

#[test]
fn layers_without_outputs_or_inputs() {
    let mut run = Recorder::f32();
    run.input("x", pair());
    run.layer("y", "relu", &["x", "gone"]).hands_on(&[]);
    run.layer("z", "linear", &[]).hands_on(&[]);
    every_verb_ends(&run);
}

#[test]
fn tensors_of_no_element_of_one_and_of_many_axes() {
    for shape in [vec![0], vec![], vec![3, 0, 2], vec![1; 80], vec![0, 1 << 40, 1 << 40]] {
        let count = usize::from(!shape.contains(&0));
        let values = || Values::of(DType::F32, &shape, vec![f64::INFINITY; count]);
        let mut run = Recorder::f32();
        run.input("x", values());
        for (name, op, from) in
            [("a", "linear", "x"), ("b", "softmax", "a"), ("c", "layer_norm", "b"), ("z", "cat", "c")]
        {
            run.layer(name, op, &[from, from]).gives(values());
        }
        every_verb_ends(&run);
    }
}

#[test]
fn attributes_that_lie() {
    for attrs in [
        serde_json::json!({"dim": i64::MIN, "dims": [i64::MAX, -1], "keepdim": "yes"}),
        serde_json::json!({"dim": 1e308, "kernel_size": [0, 0], "stride": 0, "padding": u64::MAX}),
        serde_json::json!({"dim": [], "size": [u64::MAX, u64::MAX], "eps": -1, "normalized_shape": [0]}),
    ] {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[2, 3, 4, 4], 1));
        let ops = [
            "softmax",
            "sum",
            "max_pool2d",
            "conv2d",
            "layer_norm",
            "view",
            "transpose",
            "index_select",
            "interpolate",
        ];
        for op in ops {
            run.layer(op, op, &["x", "x", "x"]).with("attrs", attrs.clone()).gives(Values::noise(&[2, 3, 4, 4], 2));
        }
        run.layer("z", "einsum", &["x", "x"]).with("attrs", attrs).gives(Values::noise(&[1], 2));
        every_verb_ends(&run);
    }
}
