//! Runs that ranks hold in parts, joined again: the same bits as the run that was cut.

mod support;

use std::path::PathBuf;

use goldline::case::Case;
use goldline::judge::agreement::{disagreements, disagreements_in_copies};
use goldline::run::join::{Member, Part, ShardRule};
use goldline::run::{Run, TensorId};
use goldline::tensor::DType;
use proptest::prelude::*;
use serde_json::json;
use support::parallel::shard;
use support::{Recorded, Recorder, Values};

fn rules(keys: &str) -> Vec<ShardRule> {
    let text = format!("schema: goldline.case/1\nname: tiny\ngolden: golden\n{keys}\n");
    Case::parse(&text, "tiny.yaml").unwrap_or_else(|error| panic!("{error}")).shards
}

fn joined(ranks: &[Recorded], rules: &[ShardRule]) -> goldline::Result<Run> {
    let member = |(rank, recorded): (u64, &Recorded)| Member {
        rank,
        part: Box::new(Run::open(recorded.path()).expect("it opened before")),
    };
    Run::join(PathBuf::from("tree"), (0..).zip(ranks).map(member).collect(), rules)
}

/// How the ranks of a test hold a tensor.
#[derive(Debug, Clone, Copy)]
enum Cut {
    Rows,
    Columns,
    Terms,
    Copies,
}

impl Cut {
    /// The part of `whole` that `rank` holds. Terms are powers of two beside zeros, so that their sum is exact.
    fn part(self, whole: &Values, rank: usize, ranks: usize) -> Values {
        match self {
            Self::Rows => shard(whole, 0, rank, ranks),
            Self::Columns => shard(whole, 1, rank, ranks),
            Self::Copies => whole.clone(),
            Self::Terms => {
                let numbers = whole.numbers.iter().enumerate().map(|(at, v)| if at % ranks == rank { *v } else { 0.0 });
                Values::of(whole.dtype, &whole.shape, numbers.collect::<Vec<_>>())
            }
        }
    }

    fn rule(self, layer: &str, negative: bool) -> Option<String> {
        let dim = |dim: i64| if negative { dim - 2 } else { dim };
        match self {
            Self::Rows => Some(format!("- {{match: {layer}, dim: {}}}\n", dim(0))),
            Self::Columns => Some(format!("- {{match: '{layer}:0', dim: {}, how: concat}}\n", dim(1))),
            Self::Terms => Some(format!("- {{match: {layer}, how: sum}}\n")),
            Self::Copies => None,
        }
    }
}

fn cut() -> impl Strategy<Value = Cut> {
    prop_oneof![Just(Cut::Rows), Just(Cut::Columns), Just(Cut::Terms), Just(Cut::Copies)]
}

fn dtype() -> impl Strategy<Value = DType> {
    prop_oneof![Just(DType::F64), Just(DType::F32), Just(DType::F16), Just(DType::BF16)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_run_that_was_cut_is_the_run_again(
        ranks in 2usize..5,
        tensors in prop::collection::vec((cut(), dtype(), 1usize..3, 1usize..3, any::<bool>()), 1..6),
        seed in 0u64..1000,
    ) {
        let mut whole = Recorder::f32();
        let mut parts = vec![Recorder::f32(); ranks];
        let mut keys = String::from("shards:\n- {match: nothing, how: replica}\n");
        for (at, &(cut, dtype, rows, columns, negative)) in tensors.iter().enumerate() {
            let values = Values::noise(&[rows * ranks, columns * ranks], seed + at as u64).to(dtype);
            let name = format!("t{at}");
            let before = at.checked_sub(1).map(|at| format!("t{at}"));
            let inputs: Vec<&str> = before.iter().map(String::as_str).collect();
            for (rank, part) in parts.iter_mut().enumerate() {
                part.layer(&name, "gelu", &inputs).gives(cut.part(&values, rank, ranks));
            }
            whole.layer(&name, "gelu", &inputs).gives(values);
            keys.extend(cut.rule(&name, negative));
        }
        let (whole, parts) = (whole.open(), parts.iter().map(Recorder::open).collect::<Vec<_>>());
        let joined = joined(&parts, &rules(&keys)).unwrap();
        prop_assert_eq!(&joined.layers, &whole.run.layers);
        for (info, id) in whole.run.tensors.iter().zip(0u32..) {
            let id = TensorId(id);
            prop_assert_eq!(&joined.tensor(id).name, &info.name);
            prop_assert_eq!((joined.dtype_and_shape(id), &joined.tensor(id).consumers), (whole.run.dtype_and_shape(id), &info.consumers));
            prop_assert_eq!(joined.load(id).unwrap(), whole.run.load(id).unwrap());
        }
        prop_assert!(joined.warnings.is_empty(), "{:?}", joined.warnings);
    }
}

#[test]
fn layers_that_only_some_ranks_have_keep_their_place() {
    let values = || Values::noise(&[2, 2], 1);
    let record = |layers: &[&str]| {
        let mut run = Recorder::f32();
        layers.iter().for_each(|layer| run.layer(layer, "gelu", &[]).gives(values()));
        run.open()
    };
    let ranks = [record(&["b", "d"]), record(&["a", "b", "c", "d", "e"]), record(&["c", "x"])];
    let run = joined(&ranks, &rules("shards: [{match: c, dim: 0}]")).unwrap();
    let names: Vec<&str> = run.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c", "x", "d", "e"]);
    assert!(run.tensors.iter().filter(|info| info.stored.is_some()).count() == 5, "a whole with a hole is not stored");
    assert_eq!(run.warnings, ["1 tensors of which a rank holds no part, and so none is whole, `c:0` first"]);
}

#[test]
fn arguments_that_count_elements_are_not_known_of_a_joined_layer() {
    let record = |attrs: serde_json::Value| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[2, 4], 1));
        run.layer("y", "view", &["x"]).with("attrs", attrs).gives(Values::noise(&[4, 2], 2));
        run.open()
    };
    let of = |attrs: serde_json::Value, keys: &str| {
        let ranks = [record(attrs.clone()), record(attrs)];
        joined(&ranks, &rules(keys)).unwrap().layers[1].attrs.is_some()
    };
    let keys = "shards: [{match: y, dim: 0}]";
    assert!(!of(json!({"size": [4, 2]}), keys));
    assert!(of(json!({"dim": -1, "eps": 1e-5, "flag": true}), keys));
    assert!(of(json!({"size": [4, 2]}), "shards: [{match: y, how: replica}]"), "a copy is no shard");
}

#[test]
fn the_last_rule_that_matches_wins_and_parts_must_fit() {
    let record = |columns: usize| {
        let mut run = Recorder::f32();
        run.param("a.weight", Values::noise(&[2, columns], columns as u64));
        run.open()
    };
    let ranks = [record(2), record(3)];
    let run = joined(&ranks, &rules("shards: [{match: '*', dim: 0}, {match: '*.weight', dim: 1}]")).unwrap();
    assert_eq!(run.dtype_and_shape(TensorId(0)), Some((DType::F32, &[2, 5][..])));
    let error = joined(&ranks, &rules("shards: [{match: '*.weight', dim: 1}, {match: 'a*', dim: 0}]")).unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("tree: `shards`, match `a*`, how concat: tensor `a.weight:0`: expected parts of one"),
        "{text}"
    );
}

#[test]
fn copies_that_differ_are_told_once_for_each_set_of_ranks() {
    let record = |apart: bool| {
        let mut run = Recorder::f32();
        for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
            run.param(name, Values::noise(&[8], at as u64 + u64::from(apart && at > 0) * 100));
        }
        run.layer("y", "gelu", &["a"]).gives(Values::noise(&[8], u64::from(apart)));
        run.open()
    };
    let ranks = [record(false), record(true), record(false)];
    let found = disagreements_in_copies(&joined(&ranks, &rules("shards: [{match: none, dim: 0}]")).unwrap()).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].layer.as_str(), &found[0].ranks[..], found[0].more), ("b", &[1][..], 1));
    assert!(found[0].why.contains("no entry of the case's `shards`"), "{}", found[0].why);
    // What a rule calls a replica is held to it, whatever wrote it.
    let run = joined(&ranks, &rules("shards: [{match: y, how: replica}, {match: '[abc]', dim: 0}]")).unwrap();
    let found = disagreements_in_copies(&run).unwrap();
    assert_eq!((found[0].layer.as_str(), &found[0].ranks[..]), ("y", &[1][..]));
}

/// One rank: a parameter, its gradient and what an optimizer makes of it, each off by `noise` in part.
fn trained(noise: f64) -> Recorded {
    let mut run = Recorder::f32();
    let off = |seed: u64| {
        let noise_at = move |at: usize| if at == 3 { 1.0 + noise } else { 1.0 };
        let values = Values::noise(&[16], seed);
        let numbers: Vec<f64> = values.numbers.iter().enumerate().map(|(at, v)| v * noise_at(at)).collect();
        Values::new(&[16], numbers)
    };
    run.param("w", Values::noise(&[16], 1));
    run.layer("act", "gelu", &["w"]).gives(off(2));
    run.layer("act", "gelu_backward", &["act"]).with("pass", "backward").gives(off(3));
    run.layer("w.grad", "linear_backward", &["w"]).with("pass", "backward").gives(off(4));
    run.layer("w", "adam", &["w", "w.grad"]).with("pass", "optimizer").gives(Values::noise(&[16], 5));
    run.open()
}

#[test]
fn gradients_may_lie_apart_as_far_as_the_goldens_do() {
    let find = |golden: [f64; 2], candidate: [f64; 2]| {
        let (golden, candidate) = (golden.map(trained), candidate.map(trained));
        fn parts(ranks: &[Recorded; 2]) -> Vec<(u64, &dyn Part)> {
            (0..).zip(ranks).map(|(rank, recorded)| (rank, &recorded.run as &dyn Part)).collect()
        }
        let case = Case::default_for_diff();
        let found = disagreements(&parts(&golden), &parts(&candidate), &case).unwrap();
        found.into_iter().map(|found| found.layer).collect::<Vec<_>>()
    };
    assert_eq!(find([0.0, 0.0], [0.0, 0.0]), [""; 0]);
    // The activation of the forward pass is no concern of other ranks.
    assert_eq!(find([0.0, 0.0], [0.0, 1e-6]), ["act"]);
    assert_eq!(find([0.0, 1e-6], [0.0, 2e-6]), [""; 0]);
    assert_eq!(find([0.0, 1e-6], [0.0, 1e-5]), ["act"]);
    // Ranks of other data are no copies.
    assert_eq!(find([0.0, 9.0], [0.0, 99.0]), [""; 0]);
}
