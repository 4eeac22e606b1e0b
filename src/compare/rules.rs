//! The rules of comparison, each on a tensor small enough to work out by hand.

use approx::assert_relative_eq;

use super::{Comparison, Metrics, Options, SideStats, SpecialCounts, Tolerance, compare};
use crate::tensor::{DType, Tensor};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;
const F16_LOWEST: f32 = -65504.0;

fn tensor<const N: usize>(dtype: DType, shape: &[usize], values: impl IntoIterator<Item = [u8; N]>) -> Tensor {
    Tensor::new(dtype, shape.to_vec(), values.into_iter().flatten().collect()).unwrap()
}

fn f64s(values: &[f64]) -> Tensor {
    tensor(DType::F64, &[values.len()], values.iter().map(|v| v.to_le_bytes()))
}

fn f32s(values: &[f32]) -> Tensor {
    f32s_of(&[values.len()], values)
}

fn f32s_of(shape: &[usize], values: &[f32]) -> Tensor {
    tensor(DType::F32, shape, values.iter().map(|v| v.to_le_bytes()))
}

fn f16s(values: &[f32]) -> Tensor {
    tensor(DType::F16, &[values.len()], values.iter().map(|&v| half::f16::from_f32(v).to_le_bytes()))
}

fn measured_with(golden: &Tensor, candidate: &Tensor, options: &Options) -> Metrics {
    match compare(golden, candidate, options) {
        Comparison::Measured(metrics) => *metrics,
        other => panic!("expected metrics, found {other:?}"),
    }
}

fn measured(golden: &Tensor, candidate: &Tensor) -> Metrics {
    measured_with(golden, candidate, &Options::default())
}

fn mismatch(golden: &Tensor, candidate: &Tensor) -> String {
    match compare(golden, candidate, &Options::default()) {
        Comparison::Mismatch(reason) => reason,
        other => panic!("expected a mismatch, found {other:?}"),
    }
}

#[test]
fn error_metrics_of_four_floats() {
    // Errors 0, +1, -2, +2; squares 9; golden squares 0 + 4 + 16 + 16 = 36.
    let m = measured(&f32s(&[0.0, 2.0, 4.0, -4.0]), &f32s(&[-0.0, 3.0, 2.0, -2.0]));
    assert_eq!((m.elements, m.judged, m.equal, m.equal_bits, m.unequal()), (4, 4, 1, Some(0), 3));
    assert_eq!((m.max_abs, m.max_abs_at, m.first_unequal), (2.0, 2, Some(1)));
    assert_relative_eq!(m.max_rel, 0.5);
    assert_relative_eq!(m.mean_rel, 0.5);
    assert_relative_eq!(m.mean_error, 0.25);
    assert_relative_eq!(m.error_sq, 9.0);
    assert_relative_eq!(m.dot, 6.0 + 8.0 + 8.0);
    assert_relative_eq!(m.rel_l2().unwrap(), 0.5);
    assert_relative_eq!(m.cosine().unwrap(), 22.0 / (6.0 * 17f64.sqrt()));
    assert_relative_eq!(m.rms_error().unwrap(), 1.5);
    assert_relative_eq!(m.sqnr_db().unwrap(), 20.0 * 2f64.log10());
    assert_relative_eq!(m.agreeing_bits().unwrap(), 1.0);
    assert_eq!(m.equal_bits_share(), Some(0.0));
}

#[test]
fn shape_and_kind_must_agree() {
    let (a, b) = (f32s_of(&[2, 3], &[0.0; 6]), f32s_of(&[3, 2], &[0.0; 6]));
    assert_eq!(mismatch(&a, &b), "shape [2, 3] in the golden, [3, 2] in the candidate");
    let int = tensor(DType::I32, &[1], [[0; 4]]);
    let flag = tensor(DType::Bool, &[1], [[0; 1]]);
    assert_eq!(
        mismatch(&f32s(&[0.0]), &int),
        "floating point (float32) in the golden, integer (int32) in the candidate"
    );
    assert_eq!(mismatch(&flag, &int), "boolean (bool) in the golden, integer (int32) in the candidate");
    let complex = tensor(DType::C64, &[1], [[0; 8]]);
    assert!(mismatch(&complex, &f32s(&[0.0])).starts_with("complex (complex64) in the golden"));
}

#[test]
fn packed_six_bit_floats_compare_by_bytes() {
    let six = |dtype, bytes: [u8; 3]| Tensor::new(dtype, vec![4], bytes.to_vec()).unwrap();
    let golden = six(DType::F6E2M3, [1, 2, 3]);
    let opaque = |candidate| match compare(&golden, &candidate, &Options::default()) {
        Comparison::Opaque { equal } => equal,
        other => panic!("expected an opaque comparison, found {other:?}"),
    };
    assert!(opaque(golden.clone()));
    assert!(!opaque(six(DType::F6E2M3, [1, 2, 4])));
    assert!(mismatch(&golden, &six(DType::F6E3M2, [1, 2, 3])).contains("packing"));
    assert!(mismatch(&golden, &f32s(&[0.0; 4])).contains("packing"));
    assert_eq!(super::measure(&golden), SideStats::default());
}

#[test]
fn nothing_and_a_scalar() {
    let empty = measured(&f32s_of(&[3, 0, 2], &[]), &f32s_of(&[3, 0, 2], &[]));
    assert_eq!((empty.elements, empty.judged, empty.equal, empty.max_ulp), (0, 0, 0, Some(0)));
    assert_eq!(
        (empty.rel_l2(), empty.cosine(), empty.rms_error(), empty.equal_bits_share()),
        (Some(0.0), None, None, None)
    );
    assert_eq!((empty.golden, empty.candidate), (SideStats::default(), SideStats::default()));
    let huge = Tensor::new(DType::F32, vec![0, usize::MAX], vec![]).unwrap();
    assert_eq!(measured(&huge, &huge).elements, 0);
    let scalar = measured(&f32s_of(&[], &[2.0]), &f32s_of(&[], &[3.0]));
    assert_eq!((scalar.elements, scalar.max_abs, scalar.worst_channel, scalar.worst_row), (1, 1.0, None, None));
    let worst = scalar.worst_element.unwrap();
    assert_eq!((worst.index, worst.golden, worst.candidate, worst.score), (0, 2.0, 3.0, 0.5));
}

#[test]
fn integers_compare_exactly_in_any_width() {
    let big = 1i64 << 53;
    let golden = tensor(DType::I64, &[3], [big, -1, i64::MIN].map(i64::to_le_bytes));
    let candidate = tensor(DType::I64, &[3], [big + 1, -1, i64::MAX].map(i64::to_le_bytes));
    let m = measured(&golden, &candidate);
    assert_eq!((m.equal, m.equal_bits, m.first_unequal, m.max_abs_at), (1, Some(1), Some(0), 2));
    assert_eq!((m.max_abs, m.max_ulp, m.sentinels, m.saturated), (u64::MAX as f64, None, 0, 0));
    let unsigned = tensor(DType::U64, &[3], [big as u64, u64::MAX, 1 << 63].map(u64::to_le_bytes));
    let m = measured(&golden, &unsigned);
    assert_eq!((m.equal, m.equal_bits), (1, None));
    assert_eq!(m.max_abs, 18_446_744_073_709_551_616.0);
    let narrow = tensor(DType::I8, &[2], [-5i8, 7].map(i8::to_le_bytes));
    let wide = tensor(DType::I32, &[2], [-5i32, 9].map(i32::to_le_bytes));
    let m = measured(&narrow, &wide);
    assert_eq!((m.equal, m.max_abs, m.max_abs_at), (1, 2.0, 1));
    let flags = |values| tensor(DType::Bool, &[3], values);
    let m = measured(&flags([[0], [1], [1]]), &flags([[1], [2], [1]]));
    assert_eq!((m.equal, m.equal_bits, m.max_abs, m.max_ulp), (2, Some(1), 1.0, None));
}

#[test]
fn equality_is_of_values_and_bits_are_counted_apart() {
    let other_nan = f32::from_bits(0x7fc0_0001);
    let m = measured(&f32s(&[NAN, 0.0, INF, 1.0]), &f32s(&[other_nan, -0.0, INF, 1.0]));
    assert_eq!((m.equal, m.equal_bits, m.first_unequal, m.judged), (4, Some(2), None, 2));
    assert_eq!(m.specials, SpecialCounts { shared_nan: 1, shared_inf: 1, ..Default::default() });
    assert!(!m.has_unshared_specials());
    assert_eq!(measured(&f32s(&[1.0]), &f16s(&[1.0])).equal_bits, None);
}

#[test]
fn special_values_on_one_side_or_of_two_kinds() {
    let golden = f32s(&[1.0, 1.0, NAN, INF, INF, NAN, 5.0]);
    let candidate = f32s(&[NAN, INF, 1.0, 1.0, -INF, INF, 5.0]);
    let m = measured(&golden, &candidate);
    assert_eq!(m.specials, SpecialCounts { candidate_only: 4, golden_only: 2, shared_nan: 0, shared_inf: 0 });
    assert_eq!((m.judged, m.equal, m.max_abs, m.first_unequal), (1, 1, 0.0, Some(0)));
    assert_eq!((m.golden.nan, m.golden.pos_inf, m.golden.finite), (2, 2, 3));
    assert_eq!((m.candidate.nan, m.candidate.pos_inf, m.candidate.neg_inf), (1, 2, 1));
    // An element that is finite on one side alone must not dilute the metrics of the others.
    let m = measured(&f32s(&[1.0, 1e30]), &f32s(&[1.5, INF]));
    assert_eq!((m.rel_l2(), m.cosine()), (Some(0.5), Some(1.0)));
    assert_eq!(m.golden.amax, f64::from(1e30f32));
}

#[test]
fn sentinels_pair_across_dtypes() {
    let golden = f32s(&[f32::MIN, -INF, -INF, f32::MIN, 1.0]);
    let candidate = f16s(&[F16_LOWEST, -INF, F16_LOWEST, -INF, 1.0]);
    let m = measured(&golden, &candidate);
    assert_eq!((m.sentinels, m.judged, m.equal, m.saturated, m.max_abs), (4, 1, 5, 0, 0.0));
    assert_eq!(m.specials, SpecialCounts { shared_inf: 1, ..Default::default() });
    assert_eq!((m.golden.neg_inf, m.candidate.neg_inf, m.golden.at_max), (2, 2, 0));
    assert_eq!((m.golden.min, m.candidate.min), (1.0, 1.0));
}

#[test]
fn numbers_that_only_look_like_sentinels_are_judged() {
    // -65504 is f16's lowest value but an everyday number in f32.
    let m = measured(&f32s(&[F16_LOWEST]), &f16s(&[F16_LOWEST]));
    assert_eq!((m.sentinels, m.judged, m.equal), (0, 1, 1));
    // A sentinel on one side alone is an error like any other.
    let m = measured(&f32s(&[-1.0]), &f32s(&[f32::MIN]));
    assert_eq!((m.sentinels, m.judged, m.equal), (0, 1, 0));
    // In 4 and 8 bits the lowest value is common.
    let lowest = tensor(DType::F8E4M3, &[1], [[0xfe]]);
    assert_eq!(measured(&lowest, &lowest).sentinels, 0);
    let lowest = tensor(DType::I64, &[1], [i64::MIN.to_le_bytes()]);
    assert_eq!(measured(&lowest, &lowest).sentinels, 0);
}

#[test]
fn saturation_is_the_maximum_where_the_golden_is_beyond() {
    let top = 65504.0;
    // 65519 still rounds to 65504; 65520 does not.
    let golden = f32s(&[INF, 1e6, -1e6, 65519.0, 65520.0, top, -INF, INF, NAN]);
    let candidate = f16s(&[top, top, -top, top, top, top, top, -top, 0.0]);
    let m = measured(&golden, &candidate);
    assert_eq!(m.saturated, 4);
    assert_eq!(m.zero_for_nan, 1);
    assert_eq!(m.specials.golden_only, 4);
    let eight = tensor(DType::F8E4M3, &[3], [[0x7e], [0x7e], [0xfe]]);
    assert_eq!(measured(&f32s(&[500.0, 448.0, -INF]), &eight).saturated, 2);
}

#[test]
fn ulps_are_those_of_the_coarser_dtype() {
    let next = f32::from_bits(1.0f32.to_bits() + 3);
    assert_eq!(measured(&f32s(&[1.0, 2.0]), &f32s(&[next, 2.0])).max_ulp, Some(3));
    // 3 f32 steps above 1 round to 1 in f16.
    assert_eq!(measured(&f32s(&[next]), &f16s(&[1.0])).max_ulp, Some(0));
    assert_eq!(measured(&f32s(&[1.0]), &f16s(&[1.0 + 2.0 / 1024.0])).max_ulp, Some(2));
    // Across zero: one subnormal each side.
    let tiny = f32::from_bits(1);
    assert_eq!(measured(&f32s(&[tiny]), &f32s(&[-tiny])).max_ulp, Some(2));
}

#[test]
fn invalid_positions_are_counted_apart() {
    let golden = f32s(&[1.0, 2.0, 3.0, 4.0]);
    let candidate = f32s(&[1.0, NAN, 3.5, 4.0]);
    let options = Options { valid: Some(&[true, false, true, false]), ..Default::default() };
    let m = measured_with(&golden, &candidate, &options);
    assert_eq!((m.elements, m.invalid, m.invalid_unequal, m.judged, m.equal, m.equal_bits), (4, 2, 1, 2, 1, Some(1)));
    assert_eq!((m.max_abs, m.max_abs_at, m.first_unequal, m.unequal()), (0.5, 2, Some(2), 1));
    assert_eq!((m.candidate.nan, m.golden.max), (0, 3.0));
    assert!(!m.has_unshared_specials());
    let short = Options { valid: Some(&[true]), ..Default::default() };
    let Comparison::Mismatch(reason) = compare(&golden, &candidate, &short) else { panic!("a short mask was taken") };
    assert_eq!(reason, "expected a mask of 4 valid flags, found 1");
}

#[test]
fn tolerance_is_absolute_plus_relative() {
    let options = Options { tolerance: Some(Tolerance { abs: 0.5, rel: 0.25 }), ..Default::default() };
    let m = measured_with(&f32s(&[0.0, 0.0, 4.0, -4.0]), &f32s(&[0.5, 0.75, 5.5, -5.75]), &options);
    assert_eq!(m.beyond, Some(2));
    assert_eq!(measured(&f32s(&[0.0]), &f32s(&[1.0])).beyond, None);
}

#[test]
fn metrics_that_do_not_exist_are_none() {
    let m = measured(&f32s(&[0.0, 0.0]), &f32s(&[0.0, 1.0]));
    assert_eq!((m.rel_l2(), m.cosine(), m.sqnr_db(), m.max_rel), (None, None, None, 0.0));
    assert_eq!(m.worst_element.unwrap().score, f64::INFINITY);
    // Sums of squares beyond f64, above and below: no metric rather than a wrong one.
    for scale in [1e200, 1e-200] {
        let m = measured(&f64s(&[scale, scale]), &f64s(&[scale, 1.5 * scale]));
        assert_eq!((m.rel_l2(), m.cosine()), (None, None));
        assert_relative_eq!(m.max_rel, 0.5);
    }
    let m = measured(&f64s(&[f64::MAX]), &f64s(&[-1e308]));
    assert_eq!((m.max_abs, m.rel_l2(), m.rms_error()), (f64::INFINITY, None, None));
    // Near the largest f32 all is well.
    let m = measured(&f32s(&[3e38]), &f32s(&[1.5e38]));
    assert_relative_eq!(m.rel_l2().unwrap(), 0.5);
}

#[test]
fn complex_numbers_are_their_components() {
    let complex = |values: [f32; 4]| tensor(DType::C64, &[2], values.map(f32::to_le_bytes));
    let m = measured(&complex([1.0, 2.0, 3.0, 4.0]), &complex([1.0, 2.0, 3.0, 6.0]));
    assert_eq!((m.elements, m.equal, m.equal_bits, m.max_abs, m.max_abs_at), (4, 3, Some(3), 2.0, 1));
    assert_eq!((m.first_unequal, m.worst_element.unwrap().index), (Some(1), 1));
}

#[test]
fn four_bit_floats_start_at_the_low_nibble() {
    let four = |bytes: [u8; 2]| Tensor::new(DType::F4, vec![4], bytes.to_vec()).unwrap();
    let m = measured(&four([0x21, 0x43]), &four([0x21, 0x53]));
    assert_eq!((m.equal, m.equal_bits, m.max_abs_at, m.max_abs, m.max_ulp), (3, Some(3), 3, 1.0, Some(1)));
}

#[test]
fn the_worst_channel_is_not_the_one_behind_a_massive_neighbour() {
    // Channel 0 is massive with a small relative error, channel 1 is dead in the candidate.
    let golden = f32s_of(&[2, 3], &[1000.0, 1.0, 1.0, 1000.0, 1.0, 1.0]);
    let candidate = f32s_of(&[2, 3], &[1002.0, 0.0, 1.0, 1002.0, 0.0, 1.0]);
    let m = measured(&golden, &candidate);
    let channel = m.worst_channel.unwrap();
    assert_eq!((channel.index, channel.count), (1, 3));
    assert_relative_eq!(channel.error, 2f64.sqrt());
    assert_relative_eq!(channel.norm, 2f64.sqrt());
    assert_relative_eq!(channel.median_norm, 2f64.sqrt());
    assert!(m.rel_l2().unwrap() < 0.003);
}

#[test]
fn the_worst_row_counts_against_the_median_row() {
    // Row 0 is nearly zero: its large relative error is noise beside rows of norm 4 and 5.
    let golden = f32s_of(&[2, 2, 2], &[1e-3, 0.0, 4.0, 0.0, 0.0, 5.0, 3.0, 4.0]);
    let candidate = f32s_of(&[2, 2, 2], &[2e-3, 0.0, 4.0, 0.0, 1.0, 5.0, 3.0, 4.0]);
    let row = measured(&golden, &candidate).worst_row.unwrap();
    assert_eq!((row.index, row.count), (2, 4));
    assert_relative_eq!(row.error, 1.0);
    assert_relative_eq!(row.norm, 5.0);
    assert_relative_eq!(row.median_norm, 4.5);
}

#[test]
fn slices_need_two_axes_two_of_them_and_an_error() {
    let (golden, candidate) = ([1.0, 2.0, 3.0], [1.0, 2.0, 3.5]);
    let of = |shape: &[usize]| {
        let m = measured(&f32s_of(shape, &golden), &f32s_of(shape, &candidate));
        (m.worst_channel.is_some(), m.worst_row.is_some())
    };
    assert_eq!(of(&[3]), (false, false));
    assert_eq!(of(&[1, 3]), (true, false));
    assert_eq!(of(&[3, 1]), (false, true));
    let m = measured(&f32s_of(&[3, 1], &golden), &f32s_of(&[3, 1], &golden));
    assert_eq!((m.worst_channel, m.worst_row, m.worst_element), (None, None, None));
}

#[test]
fn the_worst_element_stands_against_its_value_or_the_rms() {
    // rms = 5. The errors weigh 1/5, 2/9.949... and 0.5/5.
    let golden = f32s(&[0.0, 99f32.sqrt(), 1.0, 0.0]);
    let m = measured(&golden, &f32s(&[1.0, 99f32.sqrt() + 2.0, 1.5, 0.0]));
    assert_relative_eq!(m.golden.rms(), 5.0, max_relative = 1e-6);
    let worst = m.worst_element.unwrap();
    assert_eq!(worst.index, 1);
    assert_relative_eq!(worst.score, 2.0 / 99f64.sqrt(), max_relative = 1e-6);
}

#[test]
fn rows_longer_than_a_block_add_up_across_blocks() {
    let (rows, row) = (3, 70_000);
    let golden = vec![1.0f32; rows * row];
    let mut candidate = golden.clone();
    for at in [row, row + 65_536, 2 * row - 1] {
        candidate[at] = 2.0;
    }
    let m = measured(&f32s_of(&[rows, row], &golden), &f32s_of(&[rows, row], &candidate));
    let worst = m.worst_row.unwrap();
    assert_eq!((worst.index, m.first_unequal, m.max_abs_at), (1, Some(row as u64), row as u64));
    assert_relative_eq!(worst.error, 3f64.sqrt());
    assert_relative_eq!(worst.norm, (row as f64).sqrt());
    assert_eq!((m.worst_channel.unwrap().index, m.worst_channel.unwrap().count), (0, row as u64));
}
