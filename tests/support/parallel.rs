//! A two-layer perceptron, whole and as tensor-parallel ranks compute it.

use goldline::tensor::DType;
use serde_json::json;

use super::compute::product;
use super::{Recorder, Values};

/// The rows or columns of a matrix that a rank holds; `axis` is 0 or 1.
pub(crate) fn shard(whole: &Values, axis: usize, rank: usize, ranks: usize) -> Values {
    let (rows, columns) = (whole.shape[0], whole.shape[1]);
    let part = whole.shape[axis] / ranks;
    let held = |at: usize| at / part == rank;
    let index = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    let kept = index.filter(|&(row, column)| held(if axis == 0 { row } else { column }));
    let numbers: Vec<f64> = kept.map(|(row, column)| whole.numbers[row * columns + column]).collect();
    let shape = if axis == 0 { [part, columns] } else { [rows, part] };
    Values::of(whole.dtype, &shape, numbers)
}

struct Weights {
    x: Values,
    up: Values,
    down: Values,
}

fn weights() -> Weights {
    Weights { x: Values::noise(&[4, 8], 1), up: Values::noise(&[16, 8], 2), down: Values::noise(&[8, 16], 3) }
}

/// On one device: input, linear, relu, linear, softmax, and the gradient of the first weight.
pub(crate) fn whole() -> Recorder {
    let Weights { x, up, down } = weights();
    let mut run = Recorder::f32();
    run.input("x", x);
    run.param("up.weight", up.clone());
    run.param("down.weight", down);
    run.linear("up", "x");
    run.apply("act", "relu", "up", |v| v.max(0.0));
    run.linear("down", "act");
    run.softmax("out", "down");
    run.layer("up.grad", "linear_backward", &["out"]).with("pass", "backward").gives(up.map(|v| v * 0.5));
    run
}

/// The same on rank `rank` of `ranks`: rows of `up`, columns of `down`, whose partial results an
/// all_reduce sums.
pub(crate) fn sharded(rank: usize, ranks: usize) -> Recorder {
    let Weights { x, up, down } = weights();
    let mut run = Recorder::f32().meta("world_size", json!(ranks)).meta("rank", json!(rank));
    run.input("x", x.clone());
    run.param("up.weight", shard(&up, 0, rank, ranks));
    run.param("down.weight", shard(&down, 1, rank, ranks));
    run.linear("up", "x");
    run.apply("act", "relu", "up", |v| v.max(0.0));
    run.linear("down", "act");
    let act = product(&x, &up).to(DType::F32).map(|v| v.max(0.0));
    let partial = |rank| product(&shard(&act, 1, rank, ranks), &shard(&down, 1, rank, ranks)).to(DType::F32).numbers;
    let mut sum = vec![0.0; 32];
    for partial in (0..ranks).map(partial) {
        sum.iter_mut().zip(partial).for_each(|(sum, term)| *sum += term);
    }
    run.op("sum", "all_reduce", &["down"], Values::of(DType::F64, &[4, 8], sum));
    run.softmax("out", "sum");
    run.layer("up.grad", "linear_backward", &["out"])
        .with("pass", "backward")
        .gives(shard(&up, 0, rank, ranks).map(|v| v * 0.5));
    run
}

/// The entries of a case that make [`sharded`] whole.
pub(crate) const SHARDS: &str = "shards:
- {match: 'up*', dim: 0}
- {match: up, dim: -1}
- {match: act, dim: -1}
- {match: down.weight, dim: 1}
- {match: down, how: sum}
";
