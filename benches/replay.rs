//! Replay of contractions: products per second (each also brings the sum of the squares of its terms).

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use goldline::replay::{Call, Operand, OutputSpec, replay};
use goldline::run::Attrs;
use goldline::tensor::DType;
use ndarray::{ArrayD, IxDyn};

fn main() {
    divan::main();
}

/// Floating-point operations of one multiply-add.
const FLOP: usize = 2;

fn operand(name: &str, shape: &[usize]) -> Operand {
    let count: usize = shape.iter().product();
    let values = (0..count).map(|at| (at as f64 * 0.618_034).fract() * 2.0 - 1.0).collect();
    let value = ArrayD::from_shape_vec(IxDyn(shape), values).expect("as many values as the shape has");
    Operand { name: Some(name.into()), dtype: DType::BF16, value: value.into_shared() }
}

/// `linear` of `tokens` rows; items are floating-point operations, so that Gitem/s reads as GFLOP/s.
/// 4096 to 11008 is the widest layer of a 7B model.
#[divan::bench(args = [(64, 1024, 1024), (512, 4096, 11008)], sample_count = 3)]
fn linear(bencher: Bencher, (tokens, depth, width): (usize, usize, usize)) {
    let attrs = Attrs::new();
    let call = Call {
        function: "linear".into(),
        attrs: Some(&attrs),
        inputs: vec![operand("input", &[tokens, depth]), operand("weight", &[width, depth])],
        outputs: vec![OutputSpec { dtype: DType::BF16, shape: vec![tokens, width] }],
    };
    bencher
        .counter(ItemsCount::new(FLOP * tokens * depth * width))
        .bench(|| replay(black_box(&call)).expect("linear is modelled"));
}
