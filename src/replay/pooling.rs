//! Pooling over windows: maxima with their places, averages, and the adaptive forms of both.
//!
//! The recorded output shape must be the one that follows from kernel, stride and padding before
//! anything is computed; windows are clipped to the input, so that an absurd kernel costs no more than
//! the input has elements.

use super::answer::{answer, expect_shapes, only_tensor};
use super::lanes::array;
use super::{Call, Reference, References, Replay, Unmodelled};
use rayon::prelude::*;

/// More window elements than this in one call would take minutes.
const MOST_VISITS: u128 = 1 << 33;

/// The replay of a pooling.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "max_pool1d"
        | "max_pool2d"
        | "max_pool3d"
        | "max_pool1d_with_indices"
        | "max_pool2d_with_indices"
        | "max_pool3d_with_indices" => max_pool,
        "avg_pool1d" | "avg_pool2d" | "avg_pool3d" => avg_pool,
        "adaptive_avg_pool1d"
        | "adaptive_avg_pool2d"
        | "adaptive_avg_pool3d"
        | "_adaptive_avg_pool2d"
        | "_adaptive_avg_pool3d" => adaptive_avg_pool,
        "adaptive_max_pool1d" | "adaptive_max_pool2d" | "adaptive_max_pool3d" => adaptive_max_pool,
        _ => return None,
    })
}

/// What one output position covers along one axis: input positions `first`, `first + step`, …, in
/// all `count` of them inside the input, and the extent that an average divides by with padding.
#[derive(Debug, Clone, Copy)]
struct Window {
    first: usize,
    step: usize,
    count: usize,
    padded: usize,
}

/// A pooling as its call describes it.
struct Pooling {
    /// Samples times channels.
    planes: usize,
    /// Extents of a plane.
    spatial: Vec<usize>,
    /// The windows along each axis.
    windows: Vec<Vec<Window>>,
    /// The result's shape.
    shape: Vec<usize>,
}

/// `max_poolNd(self, kernel_size, stride, padding, dilation, ceil_mode)`, with the places (flat in the
/// plane) where they were recorded.
fn max_pool(call: &Call) -> Result<References, Unmodelled> {
    maxima(call, &Pooling::sliding(call, true)?)
}

/// `adaptive_max_poolNd(self, output_size)`.
fn adaptive_max_pool(call: &Call) -> Result<References, Unmodelled> {
    maxima(call, &Pooling::adaptive(call, dimensions(call), "output_size")?)
}

fn maxima(call: &Call, pooling: &Pooling) -> Result<References, Unmodelled> {
    expect_shapes(call, &[&pooling.shape, &pooling.shape])?;
    let (values, places) = pooling.each(call, |plane, places, _| {
        // torch takes the first of equals, but moves on to every NaN.
        let mut places = places.iter().copied();
        let first = places.next().map(|at| (plane[at], at));
        let best = places.fold(first, |best, at| match best {
            Some((value, _)) if plane[at] > value || plane[at].is_nan() => Some((plane[at], at)),
            best => best,
        });
        best.map_or((f64::NEG_INFINITY, 0.0), |(value, at)| (value, at as f64))
    })?;
    let places = Reference::discrete(array(&pooling.shape, places)?);
    answer(call, vec![Some(Reference::moved(array(&pooling.shape, values)?)), Some(places)])
}

/// `avg_poolNd(self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)`.
fn avg_pool(call: &Call) -> Result<References, Unmodelled> {
    let pooling = Pooling::sliding(call, false)?;
    let padding = call.flag("count_include_pad", true)?;
    let fixed = match call.attr("divisor_override")? {
        Some(_) => Some(call.integer("divisor_override", None)? as f64),
        None => None,
    };
    averages(call, &pooling, |count, padded| fixed.unwrap_or((if padding { padded } else { count }) as f64))
}

/// `adaptive_avg_poolNd(self, output_size)`.
fn adaptive_avg_pool(call: &Call) -> Result<References, Unmodelled> {
    averages(call, &Pooling::adaptive(call, dimensions(call), "output_size")?, |count, _| count as f64)
}

/// `interpolate` with mode `area`: the adaptive average to `size`.
pub(super) fn area(call: &Call) -> Result<References, Unmodelled> {
    let axes = only_tensor(call)?.value.ndim().saturating_sub(2);
    averages(call, &Pooling::adaptive(call, axes, "size")?, |count, _| count as f64)
}

/// Means, held against Σ|x|/divisor.
fn averages(
    call: &Call,
    pooling: &Pooling,
    divisor: impl Fn(usize, usize) -> f64 + Sync,
) -> Result<References, Unmodelled> {
    expect_shapes(call, &[&pooling.shape])?;
    let (value, scale) = pooling.each(call, |plane, places, padded| {
        let by = divisor(places.len(), padded);
        let (sum, size) = places.iter().fold((0.0, 0.0), |(sum, size), &at| (sum + plane[at], size + plane[at].abs()));
        (sum / by, size / by.abs())
    })?;
    let (squares, _) = pooling.each(call, |plane, places, padded| {
        let by = divisor(places.len(), padded);
        (places.iter().map(|&at| (plane[at] / by).powi(2)).sum(), 0.0)
    })?;
    let terms = pooling.windows.iter().map(|axis| axis.iter().map(|w| w.count).max().unwrap_or(0)).product();
    let form = |data| array(&pooling.shape, data);
    Ok(vec![Some(Reference::summed(form(value)?, form(scale)?, terms, form(squares)?))])
}

/// The number of spatial axes that a function's name says.
fn dimensions(call: &Call) -> usize {
    call.function().bytes().find(u8::is_ascii_digit).map_or(0, |digit| usize::from(digit - b'0'))
}

/// Elements of the first recorded output.
fn recorded_elements(call: &Call) -> usize {
    // Saturating: extents beside one of 0 may not multiply.
    call.outputs.first().map_or(0, |output| output.shape.iter().fold(1, |n: usize, &extent| n.saturating_mul(extent)))
}

/// An attribute of one positive (or, with `least` 0, non-negative) integer for each axis; one stands
/// for all, an empty list or none for `default`.
fn per_axis(call: &Call, name: &str, least: i64, default: &[usize]) -> Result<Vec<usize>, Unmodelled> {
    let given = call.integers(name)?.unwrap_or_default();
    let list: Vec<i64> = match given.as_slice() {
        [] => return Ok(default.to_vec()),
        [one] => vec![*one; default.len()],
        list => list.to_vec(),
    };
    // Extents beyond this cannot be those of a tensor, and keep sums of them within range.
    let fits = |v: &i64| (least..1 << 40).contains(v);
    if list.len() != default.len() || !list.iter().all(fits) {
        return Err(Unmodelled(format!("{name} {given:?} does not fit {} axes", default.len())));
    }
    Ok(list.into_iter().map(|v| v as usize).collect())
}

impl Pooling {
    /// Windows of a fixed kernel.
    fn sliding(call: &Call, dilates: bool) -> Result<Self, Unmodelled> {
        let n = dimensions(call);
        let kernel = per_axis(call, "kernel_size", 1, &vec![0; n])?;
        let stride = per_axis(call, "stride", 1, &kernel)?;
        let padding = per_axis(call, "padding", 0, &vec![0; n])?;
        let dilation = if dilates { per_axis(call, "dilation", 1, &vec![1; n])? } else { vec![1; n] };
        let ceil = call.flag("ceil_mode", false)?;
        Self::new(call, n, |axis, extent| {
            if kernel[axis] == 0 {
                return Err(Unmodelled(format!("kernel_size of {} was not recorded", call.function())));
            }
            let slide =
                Slide { kernel: kernel[axis], stride: stride[axis], pad: padding[axis], dilation: dilation[axis] };
            slide.over(extent, ceil, recorded_elements(call))
        })
    }

    /// Windows of as even extents as the output size allows: floor(i·in/out) up to ceil((i+1)·in/out).
    fn adaptive(call: &Call, n: usize, size: &str) -> Result<Self, Unmodelled> {
        // Without a default: null entries, which keep an extent, are no list of integers.
        let sizes = per_axis(call, size, 0, &vec![usize::MAX; n])?;
        let most = recorded_elements(call);
        Self::new(call, n, |axis, extent| {
            let out = sizes[axis];
            if out > most {
                return Err(Unmodelled(format!("output_size {out} does not fit the recorded {most} elements")));
            }
            let window = |i: usize| {
                let (first, end) = (i * extent / out, ((i + 1) * extent).div_ceil(out));
                Window { first, step: 1, count: end - first, padded: end - first }
            };
            Ok((0..out).map(window).collect())
        })
    }

    fn new(
        call: &Call,
        n: usize,
        windows: impl Fn(usize, usize) -> Result<Vec<Window>, Unmodelled>,
    ) -> Result<Self, Unmodelled> {
        let shape = only_tensor(call)?.value.shape();
        let lead = match shape.len().checked_sub(n) {
            Some(lead @ 1..=2) => lead,
            _ => return Err(Unmodelled(format!("shape {shape:?} does not have {n} spatial axes"))),
        };
        let (outer, spatial) = shape.split_at(lead);
        if shape.contains(&0) {
            return Err(Unmodelled(format!("shape {shape:?} holds no elements")));
        }
        let windows = spatial.iter().enumerate().map(|(axis, &extent)| windows(axis, extent));
        let windows = windows.collect::<Result<Vec<_>, _>>()?;
        let result = outer.iter().copied().chain(windows.iter().map(Vec::len)).collect();
        let planes = outer.iter().product();
        let visits = windows.iter().map(|axis| axis.iter().map(|w| w.count as u128).sum::<u128>()).product::<u128>();
        if visits.saturating_mul(planes as u128) > MOST_VISITS {
            return Err(Unmodelled(format!("windows of {} cover too many elements", call.function())));
        }
        Ok(Self { planes, spatial: spatial.to_vec(), windows, shape: result })
    }

    /// Two results for each window: `f(plane, places in the plane, extent with padding)`.
    fn each(
        &self,
        call: &Call,
        f: impl Fn(&[f64], &[usize], usize) -> (f64, f64) + Sync,
    ) -> Result<(Vec<f64>, Vec<f64>), Unmodelled> {
        let data: Vec<f64> = only_tensor(call)?.value.iter().copied().collect();
        let area: usize = self.spatial.iter().product();
        let windows: usize = self.windows.iter().map(Vec::len).product();
        let plane = |at: usize| {
            let plane = &data[at * area..(at + 1) * area];
            let mut places = Vec::new();
            let result = |window: usize| {
                let padded = self.places(window, &mut places);
                f(plane, &places, padded)
            };
            (0..windows).map(result).collect::<Vec<_>>()
        };
        let planes: Vec<Vec<(f64, f64)>> = (0..self.planes).into_par_iter().map(plane).collect();
        Ok(planes.into_iter().flatten().unzip())
    }

    /// Fills in the places in the plane that a window covers, in row-major order, and returns the
    /// extent that it has with padding.
    fn places(&self, window: usize, places: &mut Vec<usize>) -> usize {
        places.clear();
        places.push(0);
        let mut padded = 1usize;
        let mut rest = window;
        // The window's number along each axis, outermost first.
        let mut along = vec![0; self.windows.len()];
        for (slot, axis) in along.iter_mut().zip(&self.windows).rev() {
            *slot = rest % axis.len();
            rest /= axis.len();
        }
        for ((axis, at), extent) in self.windows.iter().zip(along).zip(&self.spatial) {
            let Window { first, step, count, padded: width } = axis[at];
            padded = padded.saturating_mul(width);
            *places =
                places.iter().flat_map(|base| (0..count).map(move |i| base * extent + first + i * step)).collect();
        }
        padded
    }
}

/// A kernel that slides along one axis.
struct Slide {
    kernel: usize,
    stride: usize,
    pad: usize,
    dilation: usize,
}

impl Slide {
    /// The windows over an input of `extent`; torch's number of them: with `ceil` a last one that
    /// starts inside the input or its left padding counts although it is not full.
    fn over(&self, extent: usize, ceil: bool, most: usize) -> Result<Vec<Window>, Unmodelled> {
        let Self { kernel, stride, pad, dilation } = *self;
        let reach = (kernel - 1).saturating_mul(dilation).saturating_add(1);
        let available = extent + 2 * pad;
        if pad.saturating_mul(2) > reach || reach > available {
            return Err(Unmodelled(format!(
                "a kernel that reaches {reach} with padding {pad} does not fit an extent of {extent}"
            )));
        }
        let spare = available - reach + if ceil { stride - 1 } else { 0 };
        let mut out = spare / stride + 1;
        if ceil && (out - 1) * stride >= extent + pad {
            out -= 1;
        }
        if out > most {
            return Err(Unmodelled(format!("{out} windows do not fit the recorded {most} elements")));
        }
        let window = |i: usize| {
            let start = i * stride;
            // Kernel positions k with 0 <= start + k·dilation - pad < extent.
            let skipped = pad.saturating_sub(start).div_ceil(dilation);
            let inside = (extent + pad).saturating_sub(start).div_ceil(dilation).min(kernel);
            let first = (start + skipped * dilation).saturating_sub(pad);
            let padded = (start + kernel).min(extent + 2 * pad).saturating_sub(start);
            Window { first, step: dilation, count: inside.saturating_sub(skipped), padded }
        };
        let windows: Vec<Window> = (0..out).map(window).collect();
        match windows.iter().find(|window| window.count == 0) {
            None => Ok(windows),
            Some(_) => Err(Unmodelled("a dilated window covers nothing but padding".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};
    use crate::tensor::DType;

    #[test]
    fn maxima_and_places_by_hand() {
        let attrs =
            json!({"kernel_size": [2, 2], "stride": [], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": false});
        let plane = [1.0, 2.0, 9.0, 3.0, 3.0, -1.0, 0.0, 8.0];
        let call = Staged::new("max_pool2d_with_indices", attrs)
            .input("self", &[1, 1, 2, 4], &plane)
            .output(&[1, 1, 1, 2])
            .writes(DType::I64, &[1, 1, 1, 2]);
        assert_eq!((call.values(0), call.values(1)), (vec![3.0, 9.0], vec![4.0, 2.0]));
        assert_eq!(call.reference(0).exactness, Exactness::Exact);
        assert_eq!(call.reference(1).exactness, Exactness::Discrete);
        // With padding the window begins outside, with dilation it skips every other place.
        let attrs = json!({"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 2});
        let call = Staged::new("max_pool1d", attrs).input("self", &[1, 4], &[4.0, -3.0, 2.0, 1.0]).output(&[1, 4]);
        assert_eq!(call.values(0), [-3.0, 4.0, 1.0, 2.0]);
    }

    #[test]
    fn averages_count_padding_or_not() {
        let run = |attrs: serde_json::Value, n: usize| {
            let call = Staged::new("avg_pool1d", attrs).input("self", &[1, 1, 3], &[2.0, 4.0, 6.0]).output(&[1, 1, n]);
            (call.values(0), call.reference(0).scale.into_raw_vec_and_offset().0)
        };
        let padded = |count| json!({"kernel_size": [2], "stride": [2], "padding": [1], "count_include_pad": count});
        assert_close(&run(padded(true), 2).0, &[1.0, 5.0]);
        assert_close(&run(padded(false), 2).0, &[2.0, 5.0]);
        // The last window of ceil mode runs over the end, which no padding covers.
        let ceil = json!({"kernel_size": [2], "stride": [2], "ceil_mode": true});
        assert_close(&run(ceil, 2).0, &[3.0, 6.0]);
        let fixed = json!({"kernel_size": [3], "divisor_override": -2});
        assert_close(&run(fixed.clone(), 1).0, &[-6.0]);
        assert_close(&run(fixed, 1).1, &[6.0]);
    }

    #[test]
    fn adaptive_windows_overlap() {
        let run = |function, shape: &[usize]| {
            Staged::new(function, json!({"output_size": [2]})).input("self", &[1, 3], &[1.0, 2.0, 6.0]).output(shape)
        };
        assert_close(&run("adaptive_avg_pool1d", &[1, 2]).values(0), &[1.5, 4.0]);
        let max = run("adaptive_max_pool1d", &[1, 2]).output(&[1, 2]);
        assert_eq!((max.values(0), max.values(1)), (vec![2.0, 6.0], vec![1.0, 2.0]));
    }

    #[test]
    fn hostile_attributes_are_refused() {
        let huge = i64::MAX;
        for attrs in [
            json!(null),
            json!({}),
            json!({"kernel_size": 0}),
            json!({"kernel_size": [2, 2]}),
            json!({"kernel_size": 4}),
            json!({"kernel_size": huge, "padding": huge}),
            json!({"kernel_size": 1i64 << 39, "padding": 1i64 << 38, "stride": 1}),
            json!({"kernel_size": 2, "stride": -1}),
            json!({"kernel_size": 2, "stride": 0}),
            json!({"kernel_size": 2, "padding": 2}),
            json!({"kernel_size": 2, "dilation": huge}),
            json!({"kernel_size": 2, "stride": 2}),
        ] {
            let call = Staged::new("max_pool1d", attrs.clone()).input("self", &[1, 1, 3], &[1.0; 3]).output(&[1, 1, 7]);
            assert!(!call.refusal().is_empty(), "{attrs}");
        }
        for size in [json!(huge), json!([1, 1]), json!([null]), json!(-1)] {
            let call =
                Staged::new("adaptive_avg_pool1d", json!({"output_size": size})).input("self", &[1, 3], &[1.0; 3]);
            assert!(!call.output(&[1, 2]).refusal().is_empty(), "{size}");
        }
        let flat = Staged::new("max_pool2d", json!({"kernel_size": 1})).input("self", &[3], &[1.0; 3]).output(&[3]);
        assert!(flat.refusal().contains("2 spatial axes"));
    }

    #[test]
    fn nan_wins_a_window() {
        let call = Staged::new("max_pool1d", json!({"kernel_size": 3}))
            .input("self", &[1, 3], &[f64::NAN, 1.0, f64::NEG_INFINITY])
            .output(&[1, 1]);
        assert!(call.values(0)[0].is_nan());
    }

    proptest! {
        /// Against a loop over every kernel position of two axes.
        #[test]
        fn agrees_with_plain_loops(
            (h, w) in (3usize..7, 3usize..7), (kh, kw) in (1usize..4, 1usize..4), (sh, sw) in (1usize..4, 1usize..4),
            (ph, pw) in (0usize..2, 0usize..2), (dh, dw) in (1usize..3, 1usize..3), ceil in any::<bool>(),
            data in proptest::collection::vec(-9.0..9.0f64, 72),
        ) {
            let reach = [(kh - 1) * dh + 1, (kw - 1) * dw + 1];
            prop_assume!(2 * ph <= kh && 2 * pw <= kw && reach[0] <= h + 2 * ph && reach[1] <= w + 2 * pw);
            let extent = |n: usize, p: usize, r: usize, s: usize| {
                let starts = (0..).map(|i| i * s).take_while(|start| {
                    if ceil { start < &(n + p) && *start < n + 2 * p - r + s } else { start + r <= n + 2 * p }
                });
                starts.count()
            };
            let (oh, ow) = (extent(h, ph, reach[0], sh), extent(w, pw, reach[1], sw));
            let (mut max, mut place, mut mean) = (Vec::new(), Vec::new(), Vec::new());
            let mut covered = true;
            for plane in data[..2 * h * w].chunks(h * w) {
                for (i, j) in (0..oh).flat_map(|i| (0..ow).map(move |j| (i, j))) {
                    let (mut best, mut at, mut sum, mut count) = (f64::NEG_INFINITY, 0, 0.0, 0);
                    for (a, b) in (0..kh).flat_map(|a| (0..kw).map(move |b| (a, b))) {
                        let (y, x) = (i * sh + a * dh, j * sw + b * dw);
                        if y < ph || x < pw || y - ph >= h || x - pw >= w {
                            continue;
                        }
                        let v = plane[(y - ph) * w + x - pw];
                        sum += v;
                        count += 1;
                        if v > best {
                            (best, at) = (v, (y - ph) * w + x - pw);
                        }
                    }
                    covered &= count > 0;
                    max.push(best);
                    place.push(at as f64);
                    mean.push(sum / f64::from(count));
                }
            }
            prop_assume!(covered);
            let attrs = json!({
                "kernel_size": [kh, kw], "stride": [sh, sw], "padding": [ph, pw], "dilation": [dh, dw],
                "ceil_mode": ceil, "count_include_pad": false,
            });
            let staged = |function| Staged::new(function, attrs.clone()).input("self", &[1, 2, h, w], &data[..2 * h * w]).output(&[1, 2, oh, ow]);
            let pooled = staged("max_pool2d").output(&[1, 2, oh, ow]);
            prop_assert_eq!(pooled.values(0), max);
            prop_assert_eq!(pooled.values(1), place);
            if dh == 1 && dw == 1 {
                assert_close(&staged("avg_pool2d").values(0), &mean);
            }
        }
    }
}
