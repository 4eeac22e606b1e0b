//! Which layer answers which, over real run directories.

mod support;

use support::found::{origin, origins, paired_by, row, verdict_of};
use support::{Recorder, Values, verify, verify_case};

/// `fc1 -> act -> fc2`, each linear with its weight.
fn mlp(mut run: Recorder) -> Recorder {
    run.input("x", Values::noise(&[6, 16], 1));
    run.param("model.fc1.weight", Values::noise(&[16, 16], 2));
    run.param("model.fc2.weight", Values::noise(&[8, 16], 3));
    run.linear("model.fc1", "x");
    run.apply("model.act", "relu", "model.fc1", |v| v.max(0.0));
    run.linear("model.fc2", "model.act");
    run
}

#[test]
fn equal_names_pair() {
    let report = verify(&mlp(Recorder::f32()), &mlp(Recorder::f32()));
    assert_eq!(report.verdict, "pass", "{}", report.why);
    assert!(report.layers.iter().all(|row| row.paired_by.as_deref() == Some("name")));
}

#[test]
fn rename_rules_apply_to_the_candidate() {
    let renamed = mlp(Recorder::f32()).rename(|name| name.replace("model.", "net.trunk."));
    let keys = "rename: [{from: '^net\\.trunk\\.', to: 'model.'}]";
    let report = verify_case(&mlp(Recorder::f32()), &renamed, keys);
    assert_eq!(report.verdict, "pass", "{}", report.why);
    assert_eq!(paired_by(&report, "model.fc1"), Some("rename"));
    assert_eq!(row(&report, "model.fc1").candidate_layer.as_deref(), Some("net.trunk.fc1"));
    assert_eq!(paired_by(&report, "x"), Some("name"));
}

#[test]
fn wrappers_do_not_matter() {
    for wrapper in ["module.", "_orig_mod.", "_orig_mod.module.", "_fsdp_wrapped_module.", "_forward_module."] {
        let wrapped =
            mlp(Recorder::f32()).rename(|name| if name == "x" { name.into() } else { format!("{wrapper}{name}") });
        let report = verify(&mlp(Recorder::f32()), &wrapped);
        assert_eq!(report.verdict, "pass", "{wrapper}: {}", report.why);
        assert_eq!(paired_by(&report, "model.fc2"), Some("wrapper"), "{wrapper}");
    }
    // Inside the name, as FSDP and checkpointing put them, and on the golden's side.
    let inside = mlp(Recorder::f32())
        .rename(|name| name.replace("model.fc1", "model._fsdp_wrapped_module.fc1._checkpoint_wrapped_module"));
    let report = verify(&inside, &mlp(Recorder::f32()));
    assert_eq!(report.verdict, "pass", "{}", report.why);
}

/// Three calls of one block on its own output.
fn repeated(calls: usize) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[4, 8], 1));
    run.param("block.weight", Values::noise(&[8, 8], 2).map(|v| v / 3.0));
    let mut at = "x".to_string();
    for call in 0..calls {
        let result = support::compute::product(run.value(&at), run.value("block.weight"));
        run.op("block", "linear", &[&at, "block.weight"], result);
        at = if call == 0 { "block".into() } else { format!("block#{call}:0") };
    }
    let result = run.value(&at).clone().map(|v| v.max(0.0));
    run.op("out", "relu", &[&at], result);
    run
}

#[test]
fn a_recomputed_call_does_not_shift_the_others() {
    let golden = repeated(3);
    // The candidate ran the second call twice (activation checkpointing).
    let mut candidate = Recorder::f32();
    candidate.input("x", Values::noise(&[4, 8], 1));
    candidate.param("block.weight", Values::noise(&[8, 8], 2).map(|v| v / 3.0));
    let product = |run: &Recorder, at: &str| support::compute::product(run.value(at), run.value("block.weight"));
    let result = product(&candidate, "x");
    candidate.op("block", "linear", &["x", "block.weight"], result);
    let result = product(&candidate, "block");
    candidate.op("block", "linear", &["block", "block.weight"], result.clone());
    candidate.op("block", "linear", &["block", "block.weight"], result);
    let result = product(&candidate, "block#2:0");
    candidate.op("block", "linear", &["block#2:0", "block.weight"], result);
    let result = candidate.value("block#3:0").clone().map(|v| v.max(0.0));
    candidate.op("out", "relu", &["block#3:0"], result);

    let report = verify(&golden, &candidate);
    assert_eq!(report.verdict, "pass", "{}", support::found::summary(&report));
    assert_eq!((report.summary.missing, report.summary.extra), (0, 1));
    assert_eq!(row(&report, "block#2").candidate_layer.as_deref(), Some("block#3"));
}

/// A chain whose casts are numbered in the order in which they ran.
fn with_casts(extra: bool) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[4, 8], 1));
    run.input("y", Values::noise(&[4, 3], 2));
    let mut number = 0;
    let mut cast = |run: &mut Recorder, from: &str| {
        let name = format!("cast#{number}");
        number += 1;
        let values = run.value(from).clone();
        run.op(&name, "cast", &[from], values);
        name
    };
    if extra {
        let first = cast(&mut run, "x");
        run.apply("abs", "abs", &first, f64::abs);
    } else {
        run.apply("abs", "abs", "x", f64::abs);
    }
    let a = cast(&mut run, "abs");
    run.apply("exp", "exp", &a, |v| (v / 4.0).exp());
    let b = cast(&mut run, "y");
    run.apply("tanh", "tanh", &b, f64::tanh);
    run
}

#[test]
fn an_inserted_cast_does_not_shift_numbered_names() {
    let report = verify(&with_casts(false), &with_casts(true));
    assert_eq!(report.verdict, "pass", "{}", support::found::summary(&report));
    assert_eq!(row(&report, "cast#0").candidate_layer.as_deref(), Some("cast#1"));
    assert_eq!(row(&report, "cast#1").candidate_layer.as_deref(), Some("cast#2"));
    assert_eq!((report.summary.missing, report.summary.extra), (0, 1));
}

/// `norm -> qkv -> out`; the candidate may run norm and qkv as one operator.
fn fusable(fused: bool, fault: f64) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", Values::noise(&[4, 8], 1));
    run.param("qkv.weight", Values::noise(&[8, 8], 2));
    run.param("out.weight", Values::noise(&[8, 8], 3));
    if fused {
        let mut apart = run.clone();
        apart.layer_norm("norm", "x");
        apart.linear("qkv", "norm");
        let result = apart.value("qkv").clone().map(|v| v * (1.0 + fault));
        run.op("norm_linear", "npu_norm_linear", &["x", "qkv.weight"], result);
        run.linear("out", "norm_linear");
    } else {
        run.layer_norm("norm", "x");
        run.linear("qkv", "norm");
        run.linear("out", "qkv");
    }
    run
}

#[test]
fn a_fused_stretch_is_bridged_at_its_ends() {
    let report = verify(&fusable(false, 0.0), &fusable(true, 0.0));
    assert_eq!(report.verdict, "pass", "{}", support::found::summary(&report));
    assert_eq!((verdict_of(&report, "norm"), verdict_of(&report, "qkv")), ("missing", "missing"));
    assert_eq!(verdict_of(&report, "norm_linear"), "extra");
}

#[test]
fn a_fault_in_a_fused_stretch_is_named_after_the_candidates_operator() {
    let report = verify(&fusable(false, 0.0), &fusable(true, 0.01));
    assert_eq!(report.verdict, "drift", "{}", report.why);
    let origin = origin(&report);
    assert_eq!((origin.layer.as_str(), origin.index), ("norm_linear", None));
    assert!(origin.why.contains("stands for qkv"), "{}", origin.why);
}

#[test]
fn unnamed_layers_pair_by_the_slots_of_a_paired_layer() {
    let build = |names: [&str; 2]| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[4, 8], 1));
        run.apply(names[0], "exp", "x", |v| (v / 4.0).exp());
        run.apply(names[1], "tanh", names[0], f64::tanh);
        run.apply("out", "abs", names[1], f64::abs);
        run
    };
    let report = verify(&build(["exp_1", "tanh_1"]), &build(["n7", "n9"]));
    assert_eq!(report.verdict, "pass", "{}", report.why);
    for layer in ["exp_1", "tanh_1"] {
        let by = paired_by(&report, layer);
        assert!(matches!(by, Some("slots" | "alignment")), "{layer}: {by:?}");
    }
}

#[test]
fn shape_and_position_alone_pair_nothing() {
    let build = |name: &str, x: &str, seed: u64| {
        let mut run = Recorder::f32();
        run.input(x, Values::noise(&[4, 8], seed));
        run.apply(name, "tanh", x, f64::tanh);
        run
    };
    let report = verify(&build("left", "a", 1), &build("right", "b", 2));
    assert_eq!(report.verdict, "incomparable", "{}", report.why);
    assert_eq!((verdict_of(&report, "left"), verdict_of(&report, "right")), ("missing", "extra"));
    assert_eq!(paired_by(&report, "a"), None);
}

#[test]
fn sources_of_other_names_pair_by_content() {
    let build = |x: &str, w: &str| {
        let mut run = Recorder::f32();
        run.input(x, Values::noise(&[4, 8], 1));
        run.param(w, Values::noise(&[8], 2));
        run.mul("scaled", x, w);
        run
    };
    let report = verify(&build("tokens", "gain"), &build("input_0", "p.1"));
    assert_eq!(report.verdict, "pass", "{}", report.why);
    assert_eq!((paired_by(&report, "tokens"), paired_by(&report, "gain")), (Some("content"), Some("content")));
    assert_eq!(row(&report, "gain").candidate_layer.as_deref(), Some("p.1"));
}

#[test]
fn swapped_parameters_of_one_shape_are_seen() {
    let build = |first: u64, second: u64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[4, 8], 1));
        run.param("a.weight", Values::noise(&[8, 8], first));
        run.param("b.weight", Values::noise(&[8, 8], second));
        run.linear("a", "x");
        run.linear("b", "a");
        run
    };
    let report = verify(&build(2, 3), &build(3, 2));
    assert_eq!(report.verdict, "incomparable");
    assert_eq!(origins(&report), ["a.weight", "b.weight"]);
}

#[test]
fn counters_that_tracers_append_answer_each_other_by_data_flow() {
    // Tracers number the layers of one operator: one `view` more on one side shifts all that follow.
    let build = |fused: bool| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[4, 8], 1));
        let mut count = 0;
        let mut view = |run: &mut Recorder, of: &str| {
            let name = if count == 0 { "m.view".to_string() } else { format!("m.view_{count}") };
            count += 1;
            let values = run.value(of).clone();
            run.layer(&name, "view", &[of]).gives(values);
            name
        };
        run.apply("m.a", "tanh", "x", f64::tanh);
        let one = if fused { "m.a".into() } else { view(&mut run, "m.a") };
        run.apply("m.b", "sin", &one, f64::sin);
        let two = view(&mut run, "m.b");
        run.apply("m.c", "cos", &two, f64::cos);
        let three = view(&mut run, "m.c");
        run.apply("m.d", "tanh", &three, f64::tanh);
        run
    };
    let report = verify(&build(false), &build(true));
    assert_eq!(report.verdict, "pass", "{}", report.why);
    assert_eq!(row(&report, "m.view_1").candidate_layer.as_deref(), Some("m.view"));
    assert_eq!(row(&report, "m.view_2").candidate_layer.as_deref(), Some("m.view_1"));
    assert_eq!(verdict_of(&report, "m.view"), "missing");
    let mut faulty = build(true);
    faulty.alter("m.c", |c| c[3] += 0.1);
    let wrong = faulty.value("m.c").numbers[3];
    faulty.alter("m.view_1", |v| v[3] = wrong);
    faulty.alter("m.d", |v| v[3] = wrong.tanh());
    assert_eq!(origin(&verify(&build(false), &faulty)).layer, "m.c");
}
