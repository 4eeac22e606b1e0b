//! Runs with very many layers: what grows with the square of their number would not end here.
//!
//! No time is asserted. Each run is one on which a walk or a search that starts anew at each layer
//! takes hours instead of seconds; the limit of the command ends a test that fails.

use std::fmt::Write;

use crate::project::Project;

const LAYERS: usize = 20_000;

/// Writes a run of layers `(name, op, inputs, value)`; layer k makes the tensor `t{k}` of one float32.
fn write(project: &Project, name: &str, layer: impl Fn(usize) -> (String, &'static str, Vec<usize>, f32)) {
    let (mut lines, mut header, mut data) = (String::new(), String::from("{"), Vec::new());
    for k in 0..LAYERS {
        let (layer, op, inputs, value) = layer(k);
        let inputs: Vec<String> = inputs.iter().map(|input| format!("\"t{input}\"")).collect();
        let inputs = inputs.join(",");
        writeln!(lines, r#"{{"name":"{layer}","op":"{op}","inputs":[{inputs}],"outputs":["t{k}"]}}"#).unwrap();
        let comma = if k == 0 { "" } else { "," };
        let (begin, end) = (4 * k, 4 * k + 4);
        write!(header, r#"{comma}"t{k}":{{"dtype":"F32","shape":[1],"data_offsets":[{begin},{end}]}}"#).unwrap();
        data.extend(value.to_le_bytes());
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    project.write(&format!("{name}/run.json"), r#"{"format":"goldline.run/1","complete":true}"#);
    project.write(&format!("{name}/layers.jsonl"), lines);
    project.write(&format!("{name}/tensors.safetensors"), file);
}

#[track_caller]
fn ends(project: &Project) {
    for verb in ["diff", "bisect", "blacklist"] {
        let said = project.goldline(&[verb, "a", "b"]);
        assert!((0..4).contains(&said.status), "{verb}: {}", said.err);
    }
}

/// Gives every layer one float32 more, which is NaN where the first is not.
fn add_births(project: &Project, name: &str) {
    let mut header = String::from("{");
    let mut data = Vec::new();
    for k in 0..LAYERS {
        let comma = if k == 0 { "" } else { "," };
        let (begin, end) = (8 * k, 8 * k + 8);
        write!(header, r#"{comma}"t{k}":{{"dtype":"F32","shape":[2],"data_offsets":[{begin},{end}]}}"#).unwrap();
        let (first, second) = if k % 2 == 0 { (value(k), f32::NAN) } else { (f32::NAN, value(k)) };
        data.extend([first, second].iter().flat_map(|v| v.to_le_bytes()));
    }
    header.push('}');
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(data);
    project.write(&format!("{name}/tensors.safetensors"), file);
}

/// The number that layer k holds: none equals its neighbours'.
fn value(k: usize) -> f32 {
    1.0 + (k % 1000) as f32
}

fn chain(k: usize) -> Vec<usize> {
    k.checked_sub(1).into_iter().collect()
}

fn op(k: usize, other: &'static str) -> &'static str {
    if k == 0 { "input" } else { other }
}

#[test]
fn a_chain_of_one_name() {
    let project = Project::empty();
    for name in ["a", "b"] {
        write(&project, name, |k| ("block".into(), op(k, "relu"), chain(k), value(k)));
    }
    ends(&project);
}

#[test]
fn a_chain_of_one_name_that_one_side_ran_once_more() {
    let project = Project::empty();
    write(&project, "a", |k| ("block".into(), op(k, "relu"), chain(k), value(k)));
    write(&project, "b", |k| (if k == 1 { "other" } else { "block" }.into(), op(k, "relu"), chain(k), value(k)));
    ends(&project);
}

#[test]
fn a_chain_that_nothing_pairs() {
    let project = Project::empty();
    write(&project, "a", |k| (format!("a{k}"), op(k, "relu"), chain(k), value(k)));
    write(&project, "b", |k| (format!("b{k}"), op(k, "gelu"), chain(k), value(k)));
    ends(&project);
}

#[test]
fn half_a_chain_without_partner_that_all_others_read() {
    let project = Project::empty();
    for (name, offset) in [("a", 0.0), ("b", 0.5)] {
        write(&project, name, |k| match k {
            0 => ("x".into(), "input", vec![], 1.0),
            k if k < LAYERS / 2 => (format!("{name}{k}"), "to", chain(k), value(k) + offset),
            k => (format!("r{k}"), "relu", vec![LAYERS / 2 - 1], value(k) + offset),
        });
    }
    ends(&project);
}

#[test]
fn every_second_layer_has_no_partner_and_every_fourth_drifts() {
    let project = Project::empty();
    for (name, offset) in [("a", 0.0), ("b", 0.5)] {
        write(&project, name, |k| {
            let layer = if k % 2 == 0 { format!("l{k}") } else { format!("{name}{k}") };
            (layer, op(k, "relu"), chain(k), value(k) + if k % 4 == 2 { offset } else { 0.0 })
        });
    }
    ends(&project);
}

#[test]
fn every_third_layer_makes_a_nan() {
    let project = Project::empty();
    write(&project, "a", |k| (format!("l{k}"), op(k, "relu"), chain(k), value(k)));
    write(&project, "b", |k| (format!("l{k}"), op(k, "relu"), chain(k), if k % 3 == 2 { f32::NAN } else { value(k) }));
    ends(&project);
    assert_eq!(project.goldline(&["nan", "b"]).status, 1);
}

#[test]
fn one_tensor_that_all_layers_read() {
    let project = Project::empty();
    for name in ["a", "b"] {
        write(&project, name, |k| {
            let inputs = if k == 0 { vec![] } else { vec![0, k - 1] };
            (format!("l{k}"), op(k, "add"), inputs, value(k) + if name == "b" && k > 9 { 0.5 } else { 0.0 })
        });
    }
    ends(&project);
}

#[test]
fn one_layer_that_reads_all_tensors() {
    let project = Project::empty();
    for name in ["a", "b"] {
        write(&project, name, |k| {
            let inputs = if k + 1 == LAYERS { (0..k).collect() } else { vec![] };
            (format!("l{k}"), if k + 1 == LAYERS { "cat" } else { "input" }, inputs, value(k))
        });
    }
    ends(&project);
}

#[test]
fn every_layer_makes_a_nan_that_reaches_all_later_ones() {
    let project = Project::empty();
    write(&project, "a", |k| (format!("l{k}"), op(k, "relu"), chain(k), value(k)));
    add_births(&project, "a");
    let said = project.goldline(&["nan", "a"]);
    assert_eq!(said.status, 1);
    // Nothing is left out in silence.
    assert!(said.out.lines().next().is_some_and(|line| line.starts_with("nan  l0 ")), "{}", &said.out[..300]);
    assert!(said.out.contains("not followed further"));
}
