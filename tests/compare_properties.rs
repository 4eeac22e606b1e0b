//! Holds the metrics against a naive f64 loop over random shapes, dtypes and special values, and
//! against themselves for other numbers of threads.

use goldline::compare::{
    Class, Comparison, Metrics, Options, Side, SideStats, Slice, SpecialFilter, Tolerance, compare, differing, measure,
    special_map, unravel,
};
use goldline::tensor::{DType, Kind, Tensor};
use proptest::prelude::*;
use proptest::sample::select;

const FLOATS: [DType; 10] = [
    DType::F64,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F8E4M3,
    DType::F8E5M2,
    DType::F8E4M3Fnuz,
    DType::F8E5M2Fnuz,
    DType::F8E8M0,
    DType::F4,
];
const INTS: [DType; 8] = [DType::I64, DType::I32, DType::I16, DType::I8, DType::U64, DType::U32, DType::U16, DType::U8];

/// A position before it has dtypes: what to write on each side.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Value(f64),
    Lowest,
    Highest,
    Bits(u64),
}

/// All values of a dtype of 4 or 8 bits, by pattern.
fn patterns(dtype: DType) -> Vec<f64> {
    let (count, bytes) = match dtype {
        DType::F4 => (16, (0..8).map(|i| (2 * i) | (2 * i + 1) << 4).collect()),
        _ => (256, (0..=255).collect()),
    };
    Tensor::new(dtype, vec![count], bytes).unwrap().decode().unwrap()
}

/// The pattern whose value is `value`, or nearest to it; NaN where an infinity has no pattern.
fn nearest_pattern(dtype: DType, value: f64) -> u8 {
    let patterns = patterns(dtype);
    let same = |v: &f64| *v == value || (v.is_nan() && (value.is_nan() || value.is_infinite()));
    if let Some(at) = patterns.iter().position(same) {
        return at as u8;
    }
    let distance = |v: f64| if v.is_finite() { (v - value).abs() } else { f64::INFINITY };
    (0..patterns.len()).min_by(|&a, &b| distance(patterns[a]).total_cmp(&distance(patterns[b]))).unwrap() as u8
}

fn lowest(dtype: DType) -> f64 {
    match dtype.kind() {
        Kind::Int => -((dtype.bits() - 1) as f64).exp2(),
        _ => dtype.max_finite().map_or(0.0, |max| -max),
    }
}

fn encode(dtype: DType, wish: Wish) -> Vec<u8> {
    let value = match wish {
        Wish::Value(value) => value,
        Wish::Lowest => lowest(dtype),
        Wish::Highest => -lowest(dtype),
        // Any pattern, where its square stays well within f64.
        Wish::Bits(bits) if dtype != DType::F64 => {
            return bits.to_le_bytes()[..dtype.bits().div_ceil(8) as usize].to_vec();
        }
        Wish::Bits(bits) => (bits as f64).sqrt(),
    };
    match dtype {
        DType::F64 if value.abs() > 1e100 && value.is_finite() => 1e100f64.copysign(value).to_le_bytes().to_vec(),
        DType::F64 => value.to_le_bytes().to_vec(),
        DType::F32 | DType::C64 => (value as f32).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(value).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f64(value).to_le_bytes().to_vec(),
        DType::I64 => (value as i64).to_le_bytes().to_vec(),
        DType::I32 => (value as i32).to_le_bytes().to_vec(),
        DType::I16 => (value as i16).to_le_bytes().to_vec(),
        DType::I8 => (value as i8).to_le_bytes().to_vec(),
        DType::U64 => (value as u64).to_le_bytes().to_vec(),
        DType::U32 => (value as u32).to_le_bytes().to_vec(),
        DType::U16 => (value as u16).to_le_bytes().to_vec(),
        DType::U8 => vec![value as u8],
        DType::Bool => vec![u8::from(value > 0.0)],
        _ => vec![nearest_pattern(dtype, value)],
    }
}

fn build(dtype: DType, shape: &[usize], wishes: impl Iterator<Item = Wish>) -> Tensor {
    let mut bytes: Vec<u8> =
        wishes.flat_map(|wish| encode(if dtype == DType::C64 { DType::F32 } else { dtype }, wish)).collect();
    if dtype == DType::F4 {
        bytes = bytes.chunks(2).map(|pair| pair[0] & 0xf | pair[1] << 4).collect();
    }
    Tensor::new(dtype, shape.to_vec(), bytes).unwrap()
}

#[derive(Debug, Clone)]
struct Sample {
    golden: Tensor,
    candidate: Tensor,
    valid: Option<Vec<bool>>,
    tolerance: Option<Tolerance>,
}

fn dtypes() -> impl Strategy<Value = (DType, DType)> {
    prop_oneof![
        4 => (select(&FLOATS[..]), select(&FLOATS[..])),
        2 => select(&FLOATS[..]).prop_map(|dtype| (dtype, dtype)),
        2 => (select(&INTS[..]), select(&INTS[..])),
        1 => Just((DType::Bool, DType::Bool)),
        1 => Just((DType::C64, DType::C64)),
    ]
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        6 => (-4.0..4.0f64).prop_map(Wish::Value),
        2 => (-1e6..1e6f64).prop_map(Wish::Value),
        2 => select(vec![0.0, -0.0, 1.0, 65519.0, 65520.0, 9.007_199_254_740_993e15]).prop_map(Wish::Value),
        1 => select(vec![f64::NAN, f64::INFINITY, f64::NEG_INFINITY]).prop_map(Wish::Value),
        1 => select(vec![Wish::Lowest, Wish::Highest]),
        2 => any::<u64>().prop_map(Wish::Bits),
    ]
}

/// What stands on both sides of one position: often the same or nearly so.
fn position() -> impl Strategy<Value = (Wish, Wish)> {
    let near = |(golden, noise): (Wish, f64)| match golden {
        Wish::Value(value) => (golden, Wish::Value(value * (1.0 + noise))),
        Wish::Bits(bits) => (golden, Wish::Bits(bits ^ 1)),
        other => (other, other),
    };
    prop_oneof![
        2 => wish().prop_map(|golden| (golden, golden)),
        3 => (wish(), -0.1..0.1f64).prop_map(near),
        1 => (wish(), wish()),
    ]
}

fn sample() -> impl Strategy<Value = Sample> {
    let shape = proptest::collection::vec(0..5usize, 0..=4);
    let tolerance = proptest::option::of((0.0..0.1f64, 0.0..0.1f64).prop_map(|(abs, rel)| Tolerance { abs, rel }));
    (shape, dtypes(), tolerance, any::<bool>()).prop_flat_map(|(mut shape, (left, right), tolerance, masked)| {
        let odd = |shape: &[usize]| shape.iter().product::<usize>() % 2 == 1;
        if [left, right].contains(&DType::F4) && odd(&shape) {
            shape.push(2);
        }
        let elements: usize = shape.iter().product();
        let positions = proptest::collection::vec(position(), elements * left.components());
        let valid = proptest::collection::vec(any::<bool>(), elements);
        (positions, valid).prop_map(move |(positions, valid)| Sample {
            golden: build(left, &shape, positions.iter().map(|p| p.0)),
            candidate: build(right, &shape, positions.iter().map(|p| p.1)),
            valid: masked.then_some(valid),
            tolerance,
        })
    })
}

/// Whether a value stands for "masked out" in a tensor of `dtype`.
fn is_sentinel(dtype: DType, value: f64) -> bool {
    match dtype {
        DType::F64 => value == f64::MIN || value == f64::NEG_INFINITY,
        DType::F32 => value == f64::from(f32::MIN) || value == f64::NEG_INFINITY,
        DType::F16 => value == -65504.0 || value == f64::NEG_INFINITY,
        DType::BF16 => value == half::bf16::MIN.to_f64() || value == f64::NEG_INFINITY,
        _ => false,
    }
}

/// Integers read without a detour over f64.
fn integers(tensor: &Tensor) -> Vec<i128> {
    let width = tensor.dtype().bits() as usize / 8;
    let signed = tensor.dtype().name().starts_with("int");
    let read = |chunk: &[u8]| {
        let unsigned = chunk.iter().rev().fold(0i128, |value, &byte| value << 8 | i128::from(byte));
        let negative = signed && chunk[width - 1] >= 0x80;
        if negative { unsigned - (1 << (8 * width)) } else { unsigned }
    };
    tensor.bytes().chunks(width).map(read).collect()
}

/// Everything in one slow loop, written from the definitions.
#[derive(Debug, Default)]
struct Naive {
    invalid: u64,
    invalid_unequal: u64,
    judged: u64,
    sentinels: u64,
    equal: u64,
    first_unequal: Option<u64>,
    candidate_only: u64,
    golden_only: u64,
    shared_nan: u64,
    shared_inf: u64,
    beyond: u64,
    saturated: u64,
    /// Of judged elements: value index, golden, candidate, difference.
    kept: Vec<(usize, f64, f64, f64)>,
    golden: Vec<f64>,
    candidate: Vec<f64>,
}

fn naive(sample: &Sample) -> Naive {
    let (left, right) = (sample.golden.dtype(), sample.candidate.dtype());
    let (golden, candidate) = (sample.golden.decode().unwrap(), sample.candidate.decode().unwrap());
    let exact = (left.kind() == Kind::Int).then(|| (integers(&sample.golden), integers(&sample.candidate)));
    let lanes = left.components();
    let mut out = Naive::default();
    for (at, (&g, &c)) in golden.iter().zip(&candidate).enumerate() {
        let difference = exact.as_ref().map_or(c - g, |(g, c)| (c[at] - g[at]) as f64);
        let sentinel = is_sentinel(left, g) && is_sentinel(right, c);
        let equal = exact.as_ref().map_or(g == c, |(g, c)| g[at] == c[at]) || (g.is_nan() && c.is_nan()) || sentinel;
        if sample.valid.as_ref().is_some_and(|valid| !valid[at / lanes]) {
            out.invalid += 1;
            out.invalid_unequal += u64::from(!equal);
            continue;
        }
        out.equal += u64::from(equal);
        if !equal && out.first_unequal.is_none() {
            out.first_unequal = Some((at / lanes) as u64);
        }
        out.sentinels += u64::from(sentinel);
        if !sentinel || g.is_infinite() {
            out.golden.push(g);
        }
        if !sentinel || c.is_infinite() {
            out.candidate.push(c);
        }
        out.shared_nan += u64::from(g.is_nan() && c.is_nan());
        out.shared_inf += u64::from(g.is_infinite() && g == c);
        if sentinel {
            continue;
        }
        match (g.is_finite(), c.is_finite()) {
            (true, true) => {
                out.judged += 1;
                out.kept.push((at, g, c, difference));
                if let Some(tolerance) = sample.tolerance {
                    out.beyond += u64::from(difference.abs() > tolerance.abs + tolerance.rel * g.abs());
                }
            }
            (false, true) => out.golden_only += 1,
            (_, false) => out.candidate_only += u64::from(!equal),
        }
        if let Some(max) = right.max_finite().filter(|_| right != DType::F64) {
            // The first value beyond the largest, where its binade went on.
            let step = max * 2.0 * right.unit_roundoff().unwrap() / significand(max);
            let last_mantissa_is_odd = (max / step) % 2.0 == 1.0;
            let limit = max + step / 2.0;
            let beyond = g.abs() > limit || (g.abs() == limit && last_mantissa_is_odd);
            out.saturated += u64::from(c.abs() == max && beyond && (g < 0.0) == (c < 0.0));
        } else if right == DType::F64 {
            out.saturated += u64::from(c.abs() == f64::MAX && g.is_infinite() && (g < 0.0) == (c < 0.0));
        }
    }
    out
}

/// `value` scaled into 1..2.
fn significand(value: f64) -> f64 {
    let mut value = value.abs();
    while value >= 2.0 {
        value /= 2.0;
    }
    while value < 1.0 {
        value *= 2.0;
    }
    value
}

fn close(actual: f64, expected: f64, scale: f64) -> bool {
    actual == expected || (actual - expected).abs() <= 1e-12 * scale.abs().max(expected.abs())
}

fn check_side(stats: &SideStats, values: &[f64], dtype: DType) -> Result<(), TestCaseError> {
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let count = |test: &dyn Fn(f64) -> bool| values.iter().filter(|v| test(**v)).count() as u64;
    let or_zero = |v: f64| if v.is_finite() { v } else { 0.0 };
    prop_assert_eq!(stats.finite, finite.len() as u64);
    prop_assert_eq!(stats.nan, count(&f64::is_nan));
    prop_assert_eq!(stats.pos_inf, count(&|v| v == f64::INFINITY));
    prop_assert_eq!(stats.neg_inf, count(&|v| v == f64::NEG_INFINITY));
    prop_assert_eq!(stats.zeros, count(&|v| v == 0.0));
    prop_assert_eq!(stats.at_max, count(&|v| Some(v.abs()) == dtype.max_finite()));
    prop_assert_eq!(stats.min, or_zero(finite.iter().copied().fold(f64::INFINITY, f64::min)));
    prop_assert_eq!(stats.max, or_zero(finite.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
    prop_assert_eq!(stats.amax, finite.iter().fold(0.0, |a: f64, v| a.max(v.abs())));
    let nonzero = finite.iter().map(|v| v.abs()).filter(|v| *v > 0.0);
    prop_assert_eq!(stats.amin_nonzero, or_zero(nonzero.fold(f64::INFINITY, f64::min)));
    let squares: f64 = finite.iter().map(|v| v * v).sum();
    prop_assert!(close(stats.sum_sq, squares, squares));
    prop_assert!(close(stats.sum, finite.iter().sum(), finite.iter().map(|v| v.abs()).sum()));
    Ok(())
}

/// Position among the finite values of the coarser dtype after rounding to it; `None` beyond its range.
fn rank(dtype: DType, value: f64) -> Option<i64> {
    let ordered = |magnitude: u64| if value < 0.0 { -(magnitude as i64) } else { magnitude as i64 };
    match dtype {
        DType::F64 => Some(ordered(value.abs().to_bits())),
        DType::F32 | DType::C64 => {
            let rounded = value as f32;
            rounded.is_finite().then(|| ordered(rounded.abs().to_bits().into()))
        }
        DType::F16 | DType::BF16 => {
            // By way of f32 the result would be rounded twice; 2^-24 relative is the most that can matter.
            let exact = (f64::from(value as f32) - value).abs() == 0.0;
            let (bits, finite) = if dtype == DType::F16 {
                let rounded = half::f16::from_f32(value.abs() as f32);
                (rounded.to_bits(), rounded.is_finite())
            } else {
                let rounded = half::bf16::from_f32(value.abs() as f32);
                (rounded.to_bits(), rounded.is_finite())
            };
            (finite && exact).then(|| ordered(bits.into()))
        }
        _ => {
            let mut values: Vec<f64> = patterns(dtype).into_iter().filter(|v| v.is_finite()).collect();
            values.sort_by(f64::total_cmp);
            values.dedup_by(|a, b| a == b);
            let (first, last) = (*values.first()?, *values.last()?);
            let above = values.partition_point(|v| *v < value);
            if value < first || value > last {
                return None;
            }
            let zero = values.iter().position(|v| *v == 0.0)?;
            let (low, high) = (above.saturating_sub(1), above);
            let (to_low, to_high) = (value - values[low], values[high] - value);
            let nearer_low = to_low < to_high || (to_low == to_high && low.abs_diff(zero) % 2 == 0);
            let at = if values[high] == value || !nearer_low { high } else { low };
            Some(at as i64 - zero as i64)
        }
    }
}

fn check_slice(found: Option<Slice>, expected: &[(f64, f64)], looked_at: bool) -> Result<(), TestCaseError> {
    let Some(found) = found.filter(|_| looked_at) else {
        prop_assert!(found.is_none() && !looked_at, "expected a slice: {looked_at}, found {found:?}");
        return Ok(());
    };
    let mut norms: Vec<f64> = expected.iter().map(|slice| slice.1.sqrt()).collect();
    norms.sort_by(f64::total_cmp);
    let median = norms[(norms.len() - 1) / 2].midpoint(norms[norms.len() / 2]);
    let score = |error: f64, norm: f64| if error == 0.0 { 0.0 } else { error / norm.max(median) };
    let best = expected.iter().map(|slice| score(slice.0.sqrt(), slice.1.sqrt())).fold(0.0, f64::max);
    let (error, norm) = expected[found.index as usize];
    prop_assert_eq!(found.count, expected.len() as u64);
    prop_assert!(close(found.error, error.sqrt(), 0.0) && close(found.norm, norm.sqrt(), 0.0));
    prop_assert!(close(found.median_norm, median, 0.0));
    prop_assert!(close(score(found.error, found.norm), best, 0.0), "{found:?} is not the worst, which has {best}");
    Ok(())
}

fn measured(sample: &Sample) -> Metrics {
    let options = Options { valid: sample.valid.as_deref(), tolerance: sample.tolerance };
    match compare(&sample.golden, &sample.candidate, &options) {
        Comparison::Measured(metrics) => *metrics,
        other => panic!("expected metrics, found {other:?}"),
    }
}

fn check(sample: &Sample) -> Result<(), TestCaseError> {
    let (m, n) = (measured(sample), naive(sample));
    let (left, right) = (sample.golden.dtype(), sample.candidate.dtype());
    let (lanes, shape) = (left.components(), sample.golden.shape());

    prop_assert_eq!(m.elements as usize, sample.golden.len() * lanes);
    prop_assert_eq!((m.invalid, m.invalid_unequal), (n.invalid, n.invalid_unequal));
    prop_assert_eq!((m.judged, m.sentinels, m.equal), (n.judged, n.sentinels, n.equal));
    prop_assert_eq!(m.first_unequal, n.first_unequal);
    prop_assert_eq!((m.specials.candidate_only, m.specials.golden_only), (n.candidate_only, n.golden_only));
    prop_assert_eq!((m.specials.shared_nan, m.specials.shared_inf), (n.shared_nan, n.shared_inf));
    prop_assert_eq!(m.beyond, sample.tolerance.map(|_| n.beyond));
    prop_assert_eq!(m.saturated, n.saturated);
    prop_assert_eq!(m.equal_bits.is_some(), left == right);
    prop_assert!(m.equal_bits.is_none_or(|bits| bits <= m.equal));
    check_side(&m.golden, &n.golden, left)?;
    check_side(&m.candidate, &n.candidate, right)?;

    let sum = |term: &dyn Fn(f64, f64, f64) -> f64| n.kept.iter().map(|&(_, g, c, d)| term(g, c, d)).sum::<f64>();
    let max_abs = n.kept.iter().fold(0.0, |max: f64, kept| max.max(kept.3.abs()));
    let error_sq = sum(&|_, _, d| d * d);
    let (golden_sq, candidate_sq) = (sum(&|g, _, _| g * g), sum(&|_, c, _| c * c));
    prop_assert_eq!(m.max_abs, max_abs);
    let first_max = n.kept.iter().find(|kept| max_abs > 0.0 && kept.3.abs() == max_abs);
    prop_assert_eq!(m.max_abs_at, first_max.map_or(0, |kept| (kept.0 / lanes) as u64));
    prop_assert!(close(m.error_sq, error_sq, 0.0));
    prop_assert!(close(m.judged_golden_sq, golden_sq, 0.0) && close(m.judged_candidate_sq, candidate_sq, 0.0));
    prop_assert!(close(m.dot, sum(&|g, c, _| g * c), sum(&|g, c, _| (g * c).abs())));
    let judged = n.kept.len().max(1) as f64;
    prop_assert!(close(m.mean_error, sum(&|_, _, d| d) / judged, sum(&|_, _, d| d.abs()) / judged));
    let relative: Vec<f64> = n.kept.iter().filter(|k| k.1 != 0.0).map(|k| k.3.abs() / k.1.abs()).collect();
    prop_assert_eq!(m.max_rel, relative.iter().copied().fold(0.0, f64::max));
    prop_assert!(close(m.mean_rel, relative.iter().sum::<f64>() / relative.len().max(1) as f64, 0.0));
    if max_abs == 0.0 {
        prop_assert_eq!(m.rel_l2(), Some(0.0));
    } else if golden_sq > 1e-200 {
        let expected = (error_sq / golden_sq).sqrt();
        prop_assert!(m.rel_l2().is_some_and(|found| close(found, expected, 0.0)));
    }

    let coarser = if right.unit_roundoff() > left.unit_roundoff() { right } else { left };
    if left.unit_roundoff().is_none() {
        prop_assert_eq!(m.max_ulp, None);
    } else if left == right || left.unit_roundoff() != right.unit_roundoff() {
        let steps: Option<Vec<u64>> =
            n.kept.iter().map(|&(_, g, c, _)| Some(rank(coarser, g)?.abs_diff(rank(coarser, c)?))).collect();
        if let Some(steps) = steps {
            prop_assert_eq!(m.max_ulp, Some(steps.into_iter().max().unwrap_or(0)));
        }
    }

    let channels = shape.last().copied().unwrap_or(0);
    let rows = sample.golden.len().checked_div(channels).unwrap_or(0);
    let (mut by_channel, mut by_row) = (vec![(0.0, 0.0); channels], vec![(0.0, 0.0); rows]);
    for &(at, g, _, d) in n.kept.iter().filter(|_| channels > 0) {
        let element = at / lanes;
        let coordinates = unravel(element as u64, shape);
        let channel = *coordinates.last().unwrap() as usize;
        for slot in [&mut by_channel[channel], &mut by_row[element / channels]] {
            slot.0 += d * d;
            slot.1 += g * g;
        }
    }
    let differs = max_abs > 0.0 && shape.len() >= 2;
    check_slice(m.worst_channel, &by_channel, differs && channels >= 2)?;
    check_slice(m.worst_row, &by_row, differs && rows >= 2)?;
    prop_assert_eq!(m.worst_element.is_some(), max_abs > 0.0);
    if let Some(worst) = m.worst_element {
        let finite: Vec<f64> = n.golden.iter().copied().filter(|v| v.is_finite()).collect();
        let rms = (finite.iter().map(|v| v * v).sum::<f64>() / finite.len() as f64).sqrt();
        let score = |g: f64, d: f64| if d == 0.0 { 0.0 } else { d.abs() / g.abs().max(rms) };
        let best = n.kept.iter().map(|k| score(k.1, k.3)).fold(0.0, f64::max);
        prop_assert!(close(worst.score, best, 0.0), "{worst:?} is not the worst, which has {best}");
        let stands = |k: &&(usize, f64, f64, f64)| {
            (k.0 / lanes) as u64 == worst.index && k.1 == worst.golden && k.2 == worst.candidate
        };
        prop_assert!(n.kept.iter().any(|kept| stands(&kept)));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn metrics_agree_with_a_naive_loop(sample in sample()) {
        check(&sample)?;
    }

    #[test]
    fn a_tensor_agrees_with_itself(sample in sample()) {
        let m = measured(&Sample { candidate: sample.golden.clone(), ..sample.clone() });
        prop_assert_eq!((m.unequal(), m.max_abs, m.saturated, m.first_unequal), (0, 0.0, 0, None));
        prop_assert_eq!(m.equal_bits, Some(m.elements - m.invalid));
        prop_assert_eq!((m.rel_l2(), m.has_unshared_specials()), (Some(0.0), false));
        prop_assert_eq!(m.golden, m.candidate);
        prop_assert!(m.cosine().is_none_or(|cosine| cosine > 1.0 - 1e-12));
    }

    #[test]
    fn one_side_alone_agrees_with_a_naive_loop(sample in sample()) {
        check_side(&measure(&sample.golden), &sample.golden.decode().unwrap(), sample.golden.dtype())?;
    }

    #[test]
    fn maps_and_lists_agree_with_the_counts(sample in sample()) {
        let sample = Sample { valid: None, ..sample };
        let m = measured(&sample);
        let found = differing(&sample.golden, &sample.candidate, 3).unwrap();
        prop_assert_eq!(found.total, m.unequal());
        prop_assert_eq!(found.first.first().map(|at| *at as u64), m.first_unequal);
        prop_assert_eq!(found.first.len() as u64, found.total.min(3));
        let map = special_map(&sample.golden, &sample.candidate).unwrap();
        prop_assert_eq!(map.len(), sample.golden.len());
        if sample.golden.dtype() != DType::C64 {
            let any = SpecialFilter::Any;
            prop_assert_eq!(map.count_unshared(Side::Candidate, any), m.specials.candidate_only);
            let first = map.first_unshared(Side::Golden, any);
            prop_assert_eq!(first, map.unshared(Side::Golden, any).iter().position(|&flag| flag));
            for (at, value) in sample.candidate.decode().unwrap().into_iter().enumerate() {
                prop_assert_eq!(map.class(Side::Candidate, at), Class::of(value));
            }
        }
    }

    #[test]
    fn coordinates_lead_back_to_the_flat_index(shape in proptest::collection::vec(1..7usize, 0..5), seed in any::<u64>()) {
        let elements: usize = shape.iter().product();
        let flat = seed % elements as u64;
        let coordinates = unravel(flat, &shape);
        prop_assert!(coordinates.iter().zip(&shape).all(|(at, extent)| *at < *extent as u64));
        prop_assert_eq!(coordinates.iter().zip(&shape).fold(0, |sum, (at, extent)| sum * *extent as u64 + at), flat);
    }
}

/// A pair of many blocks with noise, specials and sentinels, from a fixed linear congruential sequence.
fn large(dtypes: (DType, DType), shape: &[usize]) -> Sample {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let values = shape.iter().product::<usize>() * dtypes.0.components();
    let pairs: Vec<(Wish, Wish)> = (0..values)
        .map(|_| {
            let (value, noise, dice) = (8.0 * draw() - 4.0, draw() - 0.5, draw());
            match dice {
                d if d < 0.001 => (Wish::Lowest, Wish::Lowest),
                d if d < 0.002 => (Wish::Value(value), Wish::Value(f64::NAN)),
                d if d < 0.003 => (Wish::Value(f64::INFINITY), Wish::Highest),
                _ => (Wish::Value(value), Wish::Value(value * (1.0 + 0.01 * noise))),
            }
        })
        .collect();
    Sample {
        golden: build(dtypes.0, shape, pairs.iter().map(|p| p.0)),
        candidate: build(dtypes.1, shape, pairs.iter().map(|p| p.1)),
        valid: Some((0..shape.iter().product()).map(|at: usize| !at.is_multiple_of(11)).collect()),
        tolerance: Some(Tolerance { abs: 1e-3, rel: 1e-3 }),
    }
}

#[test]
fn many_blocks_agree_with_a_naive_loop() {
    for (dtypes, shape) in [
        ((DType::F32, DType::BF16), &[3, 7, 9001][..]),
        ((DType::F64, DType::F16), &[3, 70_001][..]),
        ((DType::C64, DType::C64), &[2, 40_000][..]),
        ((DType::I64, DType::I32), &[200_000][..]),
    ] {
        check(&large(dtypes, shape)).unwrap_or_else(|error| panic!("{dtypes:?} {shape:?}: {error}"));
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let pool = |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let (one, four) = (pool(1), pool(4));
    for (dtypes, shape) in [
        ((DType::F32, DType::F32), &[37, 8192][..]),
        ((DType::BF16, DType::F16), &[400_000][..]),
        ((DType::F32, DType::F16), &[2, 100_003][..]),
        ((DType::C64, DType::C64), &[50, 2, 1501][..]),
        ((DType::U64, DType::I64), &[300, 1000][..]),
    ] {
        let sample = large(dtypes, shape);
        let all = || {
            let map = special_map(&sample.golden, &sample.candidate).unwrap();
            let list = differing(&sample.golden, &sample.candidate, 1000).unwrap();
            (measured(&sample), measure(&sample.golden), map, list)
        };
        let (a, b) = (one.install(all), four.install(all));
        // Floats print as the shortest text that reads back to the same bits.
        assert_eq!(format!("{:?}", (&a.0, &a.1)), format!("{:?}", (&b.0, &b.1)), "{dtypes:?} {shape:?}");
        assert!(a.2 == b.2 && a.3 == b.3, "{dtypes:?} {shape:?}");
        assert!(a.0.error_sq > 0.0, "the sample must exercise the sums");
    }
}
