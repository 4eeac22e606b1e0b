//! What kind of difference is it? Each explanation on a pair that it explains, none on plain noise.

mod support;

use goldline::report::model::Report;
use goldline::tensor::DType;
use serde_json::json;
use support::{Recorder, Values, verify};

const ROWS: usize = 16;
const WIDTH: usize = 32;

fn kinds(report: &Report) -> Vec<&str> {
    report.signatures.iter().map(|signature| signature.kind.as_str()).collect()
}

/// The first explanation is `kind`, explains 0.9 to 1, and stands at the origin.
fn assert_first(report: &Report, kind: &str) {
    let first = report
        .signatures
        .first()
        .unwrap_or_else(|| panic!("{kind}: no signature: {} {:?} {:?}", report.verdict, report.why, report.origins));
    assert_eq!(first.kind, kind, "{:?}", report.signatures);
    assert!((0.9..=1.0).contains(&first.explains), "{first:?}");
    assert_eq!(first.layer, report.origins[0].layer);
}

/// `tanh` of noise, where the candidate's output was changed afterwards.
fn changed(change: impl FnOnce(&mut Vec<f64>)) -> Report {
    let mut golden = Recorder::f32();
    golden.input("x", Values::noise(&[ROWS, WIDTH], 1));
    golden.apply("y", "tanh", "x", f64::tanh);
    let mut candidate = golden.clone();
    candidate.alter("y", change);
    verify(&golden, &candidate)
}

/// Moves elements: `from(row, column)` says what a place holds.
fn moved(from: impl Fn(usize, usize) -> usize) -> Report {
    changed(|y| *y = (0..y.len()).map(|at| y[from(at / WIDTH, at % WIDTH)]).collect())
}

fn noise(seed: u64) -> Vec<f64> {
    Values::noise(&[ROWS, WIDTH], seed).numbers
}

#[test]
fn plain_noise_has_no_explanation() {
    for (seed, size) in [(7, 1e-3), (8, 1e-1), (9, 1.0)] {
        let report = changed(|y| y.iter_mut().zip(noise(seed)).for_each(|(y, n)| *y += size * n));
        assert_eq!(report.verdict, "drift");
        assert!(report.signatures.is_empty(), "{:?}", report.signatures);
    }
}

#[test]
fn equal_runs_have_none() {
    assert!(changed(|_| ()).signatures.is_empty());
}

#[test]
fn one_factor_and_one_constant() {
    let report = changed(|y| y.iter_mut().for_each(|v| *v *= 0.5));
    assert_first(&report, "scale");
    assert!(report.signatures[0].why.contains("0.5 times") && report.signatures[0].why.contains("2^-1"));
    let report = changed(|y| y.iter_mut().for_each(|v| *v /= (WIDTH as f64).sqrt()));
    assert!(report.signatures[0].why.contains("1/sqrt(32)"), "{:?}", report.signatures);
    assert_first(&changed(|y| y.iter_mut().for_each(|v| *v += 0.01)), "offset");
}

#[test]
fn the_right_values_at_other_places() {
    assert_first(&moved(|row, column| row * WIDTH + (column + WIDTH - 1) % WIDTH), "permutation");
    assert_first(&moved(|row, column| row * WIDTH + (column + WIDTH / 2) % WIDTH), "permutation");
    assert_first(&moved(|row, column| ((row + 1) % ROWS) * WIDTH + column), "permutation");
    // Written as if it were [32, 16].
    let transposed = changed(|y| *y = (0..y.len()).map(|at| y[at % ROWS * WIDTH + at / ROWS]).collect());
    assert_first(&transposed, "permutation");
    assert!(transposed.signatures[0].why.contains("axes 0 and 1 are transposed"), "{:?}", transposed.signatures);
    // Rows in an order that no rule makes.
    let order = [3, 1, 2, 0, 4, 5, 9, 7, 8, 6, 10, 11, 15, 13, 12, 14];
    assert_first(&moved(|row, column| order[row] * WIDTH + column), "permutation");
}

#[test]
fn what_was_not_written() {
    let tail = changed(|y| y.iter_mut().enumerate().filter(|(at, _)| at % WIDTH >= 28).for_each(|(_, v)| *v = 0.0));
    assert_first(&tail, "unwritten");
    assert!(tail.signatures[0].why.contains("the tail [:, 28:32] is zero"), "{:?}", tail.signatures);
    let tile = changed(|y| (4..8).for_each(|row| y[row * WIDTH + 8..row * WIDTH + 16].fill(0.0)));
    assert!(tile.signatures[0].why.contains("the tile [4:8, 8:16] is zero"), "{:?}", tile.signatures);
    assert_first(&changed(|y| y[500..].fill(0.0)), "unwritten");
    assert_first(&changed(|y| y.copy_within(8 * WIDTH..12 * WIDTH, 12 * WIDTH)), "unwritten");
}

#[test]
fn dropout_and_saturation() {
    let dropped = |y: &mut Vec<f64>| {
        y.iter_mut().zip(noise(5)).for_each(|(y, n)| *y = if n < -0.67 { 0.0 } else { *y / 0.75 });
    };
    assert_first(&changed(dropped), "dropout");
    // Zeros among values that are not scaled are no dropout.
    let flushed = changed(|y| y.iter_mut().zip(noise(5)).filter(|(_, n)| *n < -0.67).for_each(|(y, _)| *y = 0.0));
    assert!(!kinds(&flushed).contains(&"dropout"), "{:?}", flushed.signatures);
    assert_first(&changed(|y| y.iter_mut().for_each(|v| *v = v.min(0.5))), "saturation");
    assert_first(&changed(|y| y.iter_mut().for_each(|v| *v = v.clamp(-0.6, 0.5))), "saturation");
}

#[test]
fn where_it_stands() {
    let channel = |y: &mut Vec<f64>| {
        y.iter_mut().zip(noise(6)).enumerate().filter(|(at, _)| at % WIDTH == 5).for_each(|(_, (y, n))| *y += 0.1 * n);
    };
    assert_first(&changed(channel), "channel");
    let row = |y: &mut Vec<f64>| {
        y[3 * WIDTH..4 * WIDTH].iter_mut().zip(noise(6)).for_each(|(y, n)| *y += 0.1 * n);
    };
    assert_first(&changed(row), "row");
    let onset = |y: &mut Vec<f64>| {
        y[6 * WIDTH..].iter_mut().zip(noise(6)).for_each(|(y, n)| *y += 0.1 * n);
    };
    assert_first(&changed(onset), "onset");
}

#[test]
fn one_element() {
    let exponent = changed(|y| y[77] *= 8.0);
    assert_first(&exponent, "bitflip");
    assert!(exponent.signatures[0].why.contains("[2, 13]"), "{:?}", exponent.signatures);
    assert_first(&changed(|y| y[77] = -y[77]), "bitflip");
    assert_first(&changed(|y| y[77] *= 1.37), "element");
}

#[test]
fn less_precision_than_was_recorded() {
    let bf16 = |v: f64| half::bf16::from_f64(v).to_f64();
    assert_first(&changed(|y| y.iter_mut().for_each(|v| *v = bf16(*v))), "reduced_mantissa");
    let build = |reduced: bool| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[ROWS, WIDTH], 1));
        run.param("w", Values::noise(&[WIDTH, WIDTH], 2));
        let operand =
            |name: &str| if reduced { run.value(name).clone().to(DType::BF16) } else { run.value(name).clone() };
        let product = support::compute::product(&operand("x"), &operand("w"));
        let layer = run.layer("y", "linear", &["x", "w"]).with("input_names", json!(["input", "weight"]));
        layer.with("attrs", json!({})).gives(product.to(DType::F32));
        run
    };
    let report = verify(&build(false), &build(true));
    assert_first(&report, "reduced_mantissa");
    assert!(report.signatures[0].why.contains("bfloat16"), "{:?}", report.signatures);
}

/// One layer of `x` with attributes.
fn called(op: &str, attrs: serde_json::Value, x: Values, y: Values) -> Recorder {
    let mut run = Recorder::f32();
    run.input("x", x);
    run.layer("y", op, &["x"]).with("input_names", json!(["input"])).with("attrs", attrs).gives(y.to(DType::F32));
    run
}

#[test]
fn another_eps() {
    let x = Values::noise(&[ROWS, WIDTH], 1).map(|v| v * 0.01);
    let norm = |eps: f64| {
        support::compute::by_row(&x, |row| {
            let n = row.len() as f64;
            let mean = row.iter().sum::<f64>() / n;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
            row.iter().map(|v| (v - mean) / (variance + eps).sqrt()).collect()
        })
    };
    let attrs = json!({"normalized_shape": [WIDTH], "eps": 1e-5});
    let run = |eps| called("layer_norm", attrs.clone(), x.clone(), norm(eps));
    let report = verify(&run(1e-5), &run(1e-6));
    assert_first(&report, "eps");
    assert!(report.signatures[0].why.contains("1e-6 instead of 1e-5"), "{:?}", report.signatures);
}

#[test]
fn the_other_gelu() {
    let x = Values::noise(&[ROWS, WIDTH], 1);
    let tanh = |v: f64| 0.5 * v * (1.0 + (0.797_884_560_802_865_4 * (v + 0.044715 * v.powi(3))).tanh());
    let exact = |v: f64| 0.5 * v * (1.0 + libm::erf(v / std::f64::consts::SQRT_2));
    let run = |y: Values| {
        let mut run = Recorder::f32();
        run.input("x", x.clone());
        let layer = run.layer("y", "gelu", &["x"]).with("input_names", json!(["self"]));
        layer.with("attrs", json!({"approximate": "none"})).gives(y);
        run
    };
    let report = verify(&run(x.clone().map(exact)), &run(x.clone().map(tanh)));
    assert_first(&report, "gelu_tanh");
}

#[test]
fn statistics_of_the_batch() {
    let (n, c) = (64, 4);
    let x = Values::noise(&[n, c], 1).map(|v| 2.0 * v + 1.0);
    let train = {
        let column = |c0: usize| x.numbers.iter().skip(c0).step_by(c);
        let stats: Vec<(f64, f64)> = (0..c)
            .map(|i| {
                let mean = column(i).sum::<f64>() / n as f64;
                (mean, column(i).map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64)
            })
            .collect();
        let numbers =
            x.numbers.iter().enumerate().map(|(at, v)| (v - stats[at % c].0) / (stats[at % c].1 + 1e-5).sqrt());
        Values::new(&[n, c], numbers)
    };
    let eval = x.clone().map(|v| v / (1.0f64 + 1e-5).sqrt());
    let run = |y: Values| {
        let mut run = Recorder::f32();
        run.input("x", x.clone());
        run.param("mean", Values::full(&[c], 0.0));
        run.param("var", Values::full(&[c], 1.0));
        let layer = run.layer("y", "batch_norm", &["x", "mean", "var"]);
        let layer = layer.with("input_names", json!(["input", "running_mean", "running_var"]));
        layer.with("attrs", json!({"training": false, "momentum": 0.1, "eps": 1e-5})).gives(y);
        run
    };
    assert_first(&verify(&run(eval), &run(train)), "train_mode");
}

#[test]
fn the_complement_of_the_mask() {
    let x = Values::noise(&[ROWS, WIDTH], 1);
    let mask = Values::of(DType::Bool, &[ROWS, WIDTH], noise(2).into_iter().map(|v| f64::from(u8::from(v > 0.3))));
    let run = |filled: f64| {
        let mut run = Recorder::f32();
        run.input("x", x.clone());
        run.input("mask", mask.clone());
        let numbers = x.numbers.iter().zip(&mask.numbers).map(|(v, m)| if *m == filled { -1.0 } else { *v });
        let y = Values::new(&[ROWS, WIDTH], numbers);
        let layer = run.layer("y", "masked_fill", &["x", "mask"]).with("input_names", json!(["self", "mask"]));
        layer.with("attrs", json!({"value": -1.0})).gives(y);
        run
    };
    assert_first(&verify(&run(1.0), &run(0.0)), "mask_polarity");
}

#[test]
fn a_cast_that_cuts_off() {
    let x = Values::noise(&[ROWS, WIDTH], 1);
    let run = |y: Values| {
        let mut run = Recorder::f32();
        run.input("x", x.clone());
        run.layer("y", "_to_copy", &["x"]).with("input_names", json!(["self"])).with("attrs", json!({})).gives(y);
        run
    };
    let cut = |v: f64| f64::from(f32::from_bits((v as f32).to_bits() & 0xffff_0000));
    let report = verify(&run(x.clone().to(DType::BF16)), &run(x.clone().map(cut).to(DType::BF16)));
    assert_first(&report, "rounding");
}

#[test]
fn recorded_after_an_operator_in_place() {
    let build = |aliased: bool, factor: f64| {
        let mut run = Recorder::f32();
        run.input("x", Values::noise(&[ROWS, WIDTH], 1));
        run.apply("y", "tanh", "x", f64::tanh);
        run.apply("z", "relu", "y", |v| factor * v.max(0.0));
        if aliased {
            run.alter("y", |y| y.iter_mut().for_each(|v| *v = v.max(0.0)));
        }
        run
    };
    assert_first(&verify(&build(false, 1.5), &build(true, 1.0)), "aliasing");
}
