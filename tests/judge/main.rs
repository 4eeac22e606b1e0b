//! What counts as a difference, over real run directories: each test fails without its rule.

#[path = "../support/mod.rs"]
mod support;

mod discrete;
mod left_out;
mod limits;
mod no_difference;
mod sources;

use support::{Recorder, Values};

/// `fc1 -> act -> fc2 -> out` with a residual add, in the recorder's dtype.
pub(crate) fn mlp(mut run: Recorder) -> Recorder {
    run.input("x", Values::noise(&[16, 32], 1));
    run.param("fc1.weight", Values::noise(&[32, 32], 2).map(|v| v / 6.0));
    run.param("fc2.weight", Values::noise(&[32, 32], 3).map(|v| v / 6.0));
    run.linear("fc1", "x");
    run.apply("act", "relu", "fc1", |v| v.max(0.0));
    run.linear("fc2", "act");
    run.add("out", "x", "fc2");
    run
}

#[test]
fn the_report_is_the_same_for_any_number_of_threads() {
    let golden = mlp(Recorder::f32()).open();
    let mut candidate = mlp(Recorder::f16());
    candidate.alter("fc1", |y| y.iter_mut().for_each(|v| *v *= 1.05));
    let candidate = candidate.open();
    let with_threads = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let case = goldline::case::Case::default_for_diff();
            let options = goldline::judge::Options::default();
            let report = goldline::pipeline::verify(&golden.run, &candidate.run, &case, &options).unwrap();
            let mut text = Vec::new();
            goldline::report::json::write(&report.into(), &mut text).unwrap();
            text
        })
    };
    let one = with_threads(1);
    assert!(!one.is_empty());
    assert!(one == with_threads(4));
}
