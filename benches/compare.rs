//! Throughput of the comparison over 16 Mi elements: bytes of both sides per second.

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use goldline::compare::{Options, compare, measure, special_map};
use goldline::tensor::{DType, Tensor};

fn main() {
    divan::main();
}

const ROWS: usize = 4096;
const CHANNELS: usize = 4096;

/// A tensor with values in -1..1; `noise` bends each by up to that share.
fn tensor(dtype: DType, noise: f32) -> Tensor {
    let value = |at: usize| {
        let wave = (at as f32 * 0.618_034).fract() * 2.0 - 1.0;
        wave * (1.0 + noise * (at as f32 * 0.414_214).fract())
    };
    let values = (0..ROWS * CHANNELS).map(value);
    let bytes = match dtype {
        DType::BF16 => values.flat_map(|v| half::bf16::from_f32(v).to_le_bytes()).collect(),
        _ => values.flat_map(f32::to_le_bytes).collect(),
    };
    Tensor::new(dtype, vec![ROWS, CHANNELS], bytes).expect("the bytes fit the shape")
}

fn both(golden: &Tensor, candidate: &Tensor) -> BytesCount {
    BytesCount::new(golden.bytes().len() + candidate.bytes().len())
}

/// Differing tensors: the metrics and the search for places.
#[divan::bench(args = [DType::BF16, DType::F32], sample_count = 10)]
fn differing_pair(bencher: Bencher, dtype: DType) {
    let (golden, candidate) = (tensor(dtype, 0.0), tensor(dtype, 0.05));
    let options = Options::default();
    bencher.counter(both(&golden, &candidate)).bench(|| compare(black_box(&golden), black_box(&candidate), &options));
}

/// Equal tensors: the metrics alone.
#[divan::bench(args = [DType::BF16, DType::F32], sample_count = 10)]
fn equal_pair(bencher: Bencher, dtype: DType) {
    let golden = tensor(dtype, 0.0);
    let options = Options::default();
    bencher.counter(both(&golden, &golden)).bench(|| compare(black_box(&golden), black_box(&golden), &options));
}

/// The map of special values.
#[divan::bench(args = [DType::BF16, DType::F32], sample_count = 10)]
fn map_of_specials(bencher: Bencher, dtype: DType) {
    let golden = tensor(dtype, 0.0);
    bencher.counter(both(&golden, &golden)).bench(|| special_map(black_box(&golden), black_box(&golden)));
}

/// One side alone.
#[divan::bench(args = [DType::BF16, DType::F32], sample_count = 10)]
fn one_side(bencher: Bencher, dtype: DType) {
    let golden = tensor(dtype, 0.0);
    bencher.counter(BytesCount::new(golden.bytes().len())).bench(|| measure(black_box(&golden)));
}
