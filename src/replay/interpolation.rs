//! Resizing of the spatial axes: nearest, linear (of one to three axes) and bicubic.
//!
//! Nearest moves bits; the others weigh up to four input positions along each axis. Output extents are
//! those that were recorded, held against the sizes or factors that the call states.

use rayon::prelude::*;

use super::answer::{expect_shapes, only_tensor};
use super::lanes::array;
use super::{Call, Operand, Reference, References, Replay, Unmodelled, pooling};

/// ULP of a weighted mean of at most 64 positions: coordinates, weights, products and additions.
const LINEAR_ULP: f64 = 4.0;

/// Coefficient of the cubic kernel, as torch has it (Keys 1981 with a = -3/4).
const CUBIC: f64 = -0.75;

/// The replay of a resizing.
pub(super) fn family(function: &str) -> Option<Replay> {
    Some(match function {
        "upsample_nearest1d" | "upsample_nearest2d" | "upsample_nearest3d" => |call| resize(call, Mode::Nearest),
        "_upsample_nearest_exact1d" | "_upsample_nearest_exact2d" | "_upsample_nearest_exact3d" => {
            |call| resize(call, Mode::NearestExact)
        }
        "upsample_linear1d" | "upsample_bilinear2d" | "upsample_trilinear3d" => |call| resize(call, Mode::Linear),
        "upsample_bicubic2d" => |call| resize(call, Mode::Cubic),
        "interpolate" => interpolate,
        _ => return None,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Nearest,
    NearestExact,
    Linear,
    Cubic,
}

/// `interpolate(input, size, scale_factor, mode, align_corners, recompute_scale_factor, antialias)`.
fn interpolate(call: &Call) -> Result<References, Unmodelled> {
    if call.flag("antialias", false)? {
        return Err(Unmodelled("interpolation with antialiasing is not modelled".into()));
    }
    let mode = match call.text("mode")?.unwrap_or("nearest") {
        "nearest" => Mode::Nearest,
        "nearest-exact" => Mode::NearestExact,
        "linear" | "bilinear" | "trilinear" => Mode::Linear,
        "bicubic" => Mode::Cubic,
        "area" => return pooling::area(call),
        other => return Err(Unmodelled(format!("interpolation mode {other:?} is not modelled"))),
    };
    resize(call, mode)
}

/// An input position along one axis that goes into an output position.
#[derive(Debug, Clone, Copy)]
struct Tap {
    at: usize,
    weight: f64,
    /// Derivative of the weight by the coordinate.
    slope: f64,
}

/// What an output position takes along one axis.
#[derive(Debug, Clone)]
struct Taps {
    taps: Vec<Tap>,
    /// What the coordinate's rounding error is proportional to.
    coordinate: f64,
}

fn resize(call: &Call, mode: Mode) -> Result<References, Unmodelled> {
    let input = only_tensor(call)?;
    let (outer, spatial) = spatial(call, input)?;
    let align = call.flag("align_corners", false)?;
    let sizes = Sizes::of(call, spatial.len())?;
    let extents = sizes.extents(spatial)?;
    let shape: Vec<usize> = outer.iter().copied().chain(extents.iter().copied()).collect();
    expect_shapes(call, &[&shape])?;
    if shape.contains(&0) || input.value.is_empty() {
        return Err(Unmodelled(format!("resizing {:?} to {shape:?} leaves nothing", input.value.shape())));
    }
    let taps: Vec<Vec<Taps>> = spatial
        .iter()
        .zip(&extents)
        .enumerate()
        .map(|(axis, (&from, &to))| {
            let factor = sizes.factors.as_ref().and_then(|factors| factors.get(axis).copied());
            let axis = Axis { from, to, factor, align };
            (0..to).map(|i| Taps { taps: taps(mode, axis, i), coordinate: axis.step() * (i as f64 + 0.5) }).collect()
        })
        .collect();
    let data: Vec<f64> = input.value.iter().copied().collect();
    let (value, scale) = weigh(&data, spatial, &taps);
    let value = array(&shape, value)?;
    if matches!(mode, Mode::Nearest | Mode::NearestExact) {
        return Ok(vec![Some(Reference::moved(value))]);
    }
    Ok(vec![Some(Reference::function(value, array(&shape, scale)?, LINEAR_ULP))])
}

/// Leading axes (samples and channels) and spatial ones; a digit in the name says how many.
fn spatial<'c>(call: &Call, input: &'c Operand) -> Result<(&'c [usize], &'c [usize]), Unmodelled> {
    let shape = input.value.shape();
    let stated = call.function().bytes().rev().find(u8::is_ascii_digit).map(|digit| usize::from(digit - b'0'));
    match shape.len() {
        rank @ 3..=5 if stated.is_none_or(|n| n == rank - 2) => Ok(shape.split_at(2)),
        _ => Err(Unmodelled(format!("shape {shape:?} does not fit {}", call.function()))),
    }
}

/// What a call says of the result's extents.
struct Sizes {
    stated: Option<Vec<i64>>,
    /// Scale factors that the coordinates follow, output over input.
    factors: Option<Vec<f64>>,
    /// Factors that gave the extents alone.
    recomputed: Option<Vec<f64>>,
}

impl Sizes {
    fn of(call: &Call, axes: usize) -> Result<Self, Unmodelled> {
        let size = if call.function() == "interpolate" { "size" } else { "output_size" };
        let stated = match call.integers(size)? {
            Some(one) if one.len() == 1 => Some(vec![one[0]; axes]),
            other => other,
        };
        let mut factors = None;
        for name in ["scale_factors", "scale_factor"] {
            if factors.is_none() {
                factors = numbers(call, name, axes)?;
            }
        }
        let separate: &[&str] = match axes {
            1 => &["scales"],
            2 => &["scales_h", "scales_w"],
            _ => &["scales_d", "scales_h", "scales_w"],
        };
        if factors.is_none() && call.function() != "interpolate" {
            let each = separate.iter().map(|name| match call.attr(name)? {
                Some(_) => call.number(name, None).map(Some),
                None => Ok(None),
            });
            let each = each.collect::<Result<Vec<_>, _>>()?;
            // A factor that is not given is that of the extents.
            if each.iter().any(Option::is_some) {
                factors = Some(each.into_iter().map(|factor| factor.unwrap_or(f64::NAN)).collect());
            }
        }
        if stated.is_none() && factors.is_none() {
            return Err(Unmodelled(format!("{} states neither size nor factor", call.function())));
        }
        let recompute =
            call.function() == "interpolate" && (stated.is_some() || call.flag("recompute_scale_factor", false)?);
        let (factors, recomputed) = if recompute { (None, factors) } else { (factors, None) };
        Ok(Self { stated, factors, recomputed })
    }

    /// The result's extents: as stated, else floor(extent·factor).
    fn extents(&self, spatial: &[usize]) -> Result<Vec<usize>, Unmodelled> {
        let wrong = || Unmodelled(format!("sizes do not fit the {} spatial axes", spatial.len()));
        if let Some(stated) = &self.stated {
            let extents: Option<Vec<usize>> = stated.iter().map(|&extent| usize::try_from(extent).ok()).collect();
            return extents.filter(|extents| extents.len() == spatial.len()).ok_or_else(wrong);
        }
        let factors = self.factors.as_ref().or(self.recomputed.as_ref()).ok_or_else(wrong)?;
        let extent = |(&extent, &factor): (&usize, &f64)| {
            let scaled = (extent as f64 * factor).floor();
            if (1.0..1e15).contains(&scaled) { Ok(scaled as usize) } else { Err(wrong()) }
        };
        spatial.iter().zip(factors).map(extent).collect()
    }
}

/// A number for each axis; one stands for all.
fn numbers(call: &Call, name: &str, axes: usize) -> Result<Option<Vec<f64>>, Unmodelled> {
    let Some(value) = call.attr(name)? else { return Ok(None) };
    let list: Option<Vec<f64>> = match value.as_array() {
        Some(list) => list.iter().map(serde_json::Value::as_f64).collect(),
        None => value.as_f64().map(|one| vec![one]),
    };
    match list {
        Some(list) if list.len() == 1 => Ok(Some(vec![list[0]; axes])),
        Some(list) if list.len() == axes => Ok(Some(list)),
        _ => Err(Unmodelled(format!("attribute {name} of {} does not fit {axes} axes", call.function()))),
    }
}

/// One axis of a resizing.
#[derive(Clone, Copy)]
struct Axis {
    from: usize,
    to: usize,
    factor: Option<f64>,
    align: bool,
}

impl Axis {
    /// Input positions for each output position.
    fn step(self) -> f64 {
        match self.factor {
            _ if self.align => {
                if self.to > 1 {
                    (self.from - 1) as f64 / (self.to - 1) as f64
                } else {
                    0.0
                }
            }
            Some(factor) if factor > 0.0 => 1.0 / factor,
            _ => self.from as f64 / self.to as f64,
        }
    }

    /// Where output position `i` lies in the input.
    fn coordinate(self, i: usize) -> f64 {
        if self.align { self.step() * i as f64 } else { self.step() * (i as f64 + 0.5) - 0.5 }
    }
}

/// What output position `i` takes along one axis.
fn taps(mode: Mode, axis: Axis, i: usize) -> Vec<Tap> {
    let last = axis.from - 1;
    let whole = |at: usize| vec![Tap { at, weight: 1.0, slope: 0.0 }];
    match mode {
        // torch computes these places in fp32; so must whoever wants the same ones.
        Mode::Nearest if axis.to == axis.from => whole(i.min(last)),
        Mode::Nearest if axis.to == 2 * axis.from => whole((i / 2).min(last)),
        Mode::Nearest => whole(((i as f32 * axis.step() as f32).floor() as usize).min(last)),
        Mode::NearestExact => whole((((i as f32 + 0.5) * axis.step() as f32).floor() as usize).min(last)),
        Mode::Linear if axis.to == axis.from => whole(i),
        Mode::Linear => {
            let x = axis.coordinate(i).max(0.0);
            let low = (x.floor() as usize).min(last);
            let high = (low + 1).min(last);
            let share = (x - low as f64).min(1.0);
            vec![Tap { at: low, weight: 1.0 - share, slope: -1.0 }, Tap { at: high, weight: share, slope: 1.0 }]
        }
        Mode::Cubic => {
            let x = axis.coordinate(i);
            let t = x - x.floor();
            let at = |offset: f64| (x.floor() + offset).clamp(0.0, last as f64) as usize;
            let tap = |offset: f64| {
                let (weight, slope) = cubic((t - offset).abs());
                Tap { at: at(offset), weight, slope: slope * (t - offset).signum() }
            };
            [-1.0, 0.0, 1.0, 2.0].map(tap).to_vec()
        }
    }
}

/// The cubic kernel and its derivative at distance `d`.
fn cubic(d: f64) -> (f64, f64) {
    let a = CUBIC;
    if d <= 1.0 {
        (((a + 2.0) * d - (a + 3.0)) * d * d + 1.0, (3.0 * (a + 2.0) * d - 2.0 * (a + 3.0)) * d)
    } else {
        (((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a, (3.0 * a * d - 10.0 * a) * d + 8.0 * a)
    }
}

/// Weighted sums over the product of the axes' taps, and what they are held against: Σ|w·x|, and for
/// each axis what a rounding of its coordinate moves, coordinate·|Σ x·∂w|.
fn weigh(data: &[f64], spatial: &[usize], taps: &[Vec<Taps>]) -> (Vec<f64>, Vec<f64>) {
    let area: usize = spatial.iter().product();
    let size: usize = taps.iter().map(Vec::len).product();
    let planes = data.par_chunks_exact(area).map(|plane| {
        let (mut visits, mut next) = (Vec::new(), Vec::new());
        (0..size)
            .map(|position| at_position(plane, spatial, taps, position, &mut visits, &mut next))
            .collect::<Vec<_>>()
    });
    planes.collect::<Vec<_>>().into_iter().flatten().unzip()
}

/// A place in the plane, its weight, and the weight's derivatives by the coordinates.
type Visit = (usize, f64, [f64; 3]);

fn at_position(
    plane: &[f64],
    spatial: &[usize],
    taps: &[Vec<Taps>],
    position: usize,
    visits: &mut Vec<Visit>,
    next: &mut Vec<Visit>,
) -> (f64, f64) {
    visits.clear();
    visits.push((0, 1.0, [0.0; 3]));
    let mut coordinates = [0.0; 3];
    let mut stride: usize = taps.iter().map(Vec::len).product();
    let mut rest = position;
    for (number, (axis, extent)) in taps.iter().zip(spatial).enumerate() {
        stride /= axis.len();
        let chosen = &axis[rest / stride];
        rest %= stride;
        coordinates[number] = chosen.coordinate;
        next.clear();
        for &(base, weight, slopes) in visits.iter() {
            next.extend(chosen.taps.iter().map(|tap| {
                let mut slopes = slopes.map(|slope| slope * tap.weight);
                slopes[number] = weight * tap.slope;
                (base * extent + tap.at, weight * tap.weight, slopes)
            }));
        }
        std::mem::swap(visits, next);
    }
    let (mut value, mut scale, mut moved) = (0.0, 0.0, [0.0; 3]);
    for &(place, weight, slopes) in visits.iter() {
        let x = plane[place];
        value += weight * x;
        scale += (weight * x).abs();
        for (moved, slope) in moved.iter_mut().zip(slopes) {
            *moved += slope * x;
        }
    }
    let moved = moved.iter().zip(coordinates).map(|(moved, coordinate)| moved.abs() * coordinate).sum::<f64>();
    (value, scale + moved)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::replay::Exactness;
    use crate::replay::staged::{Staged, assert_close};

    fn line(function: &str, attrs: serde_json::Value, x: &[f64], to: usize) -> Vec<f64> {
        Staged::new(function, attrs).input("self", &[1, 1, x.len()], x).output(&[1, 1, to]).values(0)
    }

    #[test]
    fn nearest_by_hand() {
        let x = [1.0, 2.0, 3.0];
        assert_eq!(line("upsample_nearest1d", json!({"output_size": [6]}), &x, 6), [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        assert_eq!(line("upsample_nearest1d", json!({"output_size": [4]}), &x, 4), [1.0, 1.0, 2.0, 3.0]);
        assert_eq!(line("upsample_nearest1d", json!({"output_size": [2]}), &x, 2), [1.0, 2.0]);
        assert_eq!(line("_upsample_nearest_exact1d", json!({"output_size": [2]}), &x, 2), [1.0, 3.0]);
        // floor(3·1.7) = 5 places, each 1/1.7 apart.
        let scaled = json!({"scale_factor": 1.7, "mode": "nearest"});
        assert_eq!(line("interpolate", scaled, &x, 5), [1.0, 1.0, 2.0, 2.0, 3.0]);
        let call = Staged::new("upsample_nearest2d", json!({"scale_factors": [2.0, 1.0], "output_size": null}))
            .input("input", &[1, 1, 1, 2], &[5.0, f64::NAN])
            .output(&[1, 1, 2, 2]);
        assert_close(&call.values(0), &[5.0, f64::NAN, 5.0, f64::NAN]);
        assert_eq!(call.reference(0).exactness, Exactness::Exact);
    }

    #[test]
    fn linear_by_hand() {
        let x = [0.0, 4.0];
        let plain = json!({"output_size": [4], "align_corners": false});
        assert_close(&line("upsample_linear1d", plain, &x, 4), &[0.0, 1.0, 3.0, 4.0]);
        let aligned = json!({"output_size": [5], "align_corners": true});
        assert_close(&line("upsample_linear1d", aligned, &x, 5), &[0.0, 1.0, 2.0, 3.0, 4.0]);
        let square = Staged::new("upsample_bilinear2d", json!({"output_size": [3, 3], "align_corners": true}))
            .input("self", &[1, 1, 2, 2], &[0.0, 2.0, 4.0, 6.0])
            .output(&[1, 1, 3, 3]);
        assert_close(&square.values(0), &[0.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0, 5.0, 6.0]);
        // Factors that do not divide: coordinates follow the factor, not the extents.
        let factor = json!({"scale_factor": 1.6, "mode": "linear", "align_corners": false});
        let found = line("interpolate", factor.clone(), &x, 3);
        assert_close(&found, &[0.0, 4.0 * (1.5 / 1.6 - 0.5), 4.0]);
        let mut recomputed = factor;
        recomputed["recompute_scale_factor"] = json!(true);
        assert_close(&line("interpolate", recomputed, &x, 3), &[0.0, 2.0, 4.0]);
    }

    #[test]
    fn area_is_an_adaptive_average() {
        assert_close(&line("interpolate", json!({"size": [2], "mode": "area"}), &[1.0, 2.0, 6.0], 2), &[1.5, 4.0]);
    }

    #[test]
    fn the_coordinate_counts_where_the_input_is_steep() {
        let scale = |x: &[f64]| {
            let attrs = json!({"output_size": [7], "align_corners": false});
            let call = Staged::new("upsample_linear1d", attrs).input("self", &[1, 1, 4], x).output(&[1, 1, 7]);
            call.reference(0).scale.into_raw_vec_and_offset().0
        };
        assert_close(&scale(&[2.0; 4]), &[2.0; 7]);
        assert!(scale(&[2.0, -2.0, 2.0, -2.0])[3] > 4.0);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for attrs in [
            json!(null),
            json!({}),
            json!({"output_size": [5, 5]}),
            json!({"output_size": [-1]}),
            json!({"output_size": [0]}),
            json!({"output_size": [i64::MAX]}),
            json!({"scale_factors": [1e300]}),
            json!({"scale_factors": [-1.0]}),
            json!({"scale_factors": ["x"]}),
            json!({"output_size": [7]}),
        ] {
            let call = Staged::new("upsample_nearest1d", attrs.clone()).input("self", &[1, 1, 3], &[1.0; 3]);
            assert!(!call.output(&[1, 1, 4]).refusal().is_empty(), "{attrs}");
        }
        let wrong = Staged::new("upsample_nearest2d", json!({"output_size": [1]})).input("self", &[1, 1, 3], &[1.0; 3]);
        assert!(wrong.output(&[1, 1, 1]).refusal().contains("does not fit upsample_nearest2d"));
        for attrs in [json!({"size": 2, "mode": "magic"}), json!({"size": 2, "antialias": true})] {
            let call = Staged::new("interpolate", attrs).input("input", &[1, 1, 3], &[1.0; 3]).output(&[1, 1, 2]);
            assert!(call.refusal().contains("not modelled"));
        }
    }

    proptest! {
        /// Linear keeps a straight line straight; cubic is the sum over the kernel as Keys writes it.
        #[test]
        fn straight_lines_follow_the_definition(from in 6usize..12, to in 6usize..24, a in -2.0..2.0f64, b in -5.0..5.0f64, align in any::<bool>()) {
            let row: Vec<f64> = (0..from).map(|i| a * i as f64 + b).collect();
            let coordinate = |i: usize| if align {
                i as f64 * (from - 1) as f64 / (to - 1) as f64
            } else {
                (i as f64 + 0.5) * from as f64 / to as f64 - 0.5
            };
            let attrs = json!({"output_size": [to], "align_corners": align});
            let linear = line("upsample_linear1d", attrs, &row, to);
            for (i, found) in linear.iter().enumerate() {
                let x = coordinate(i).clamp(0.0, (from - 1) as f64);
                prop_assert!((found - (a * x + b)).abs() < 1e-9, "{i}: {found}");
            }
            let columns: Vec<f64> = row.iter().flat_map(|v| [*v; 3]).collect();
            let cubic = Staged::new("upsample_bicubic2d", json!({"output_size": [to, 3], "align_corners": align}))
                .input("self", &[1, 1, from, 3], &columns)
                .output(&[1, 1, to, 3])
                .values(0);
            for (i, found) in cubic.chunks(3).enumerate() {
                let x = coordinate(i);
                if x < 1.0 || x > (from - 3) as f64 {
                    continue;
                }
                let t = x - x.floor();
                let w = |d: f64| {
                    let (d, k) = (d.abs(), -0.75);
                    if d <= 1.0 { (k + 2.0) * d.powi(3) - (k + 3.0) * d.powi(2) + 1.0 }
                    else if d < 2.0 { k * (d.powi(3) - 5.0 * d.powi(2) + 8.0 * d - 4.0) } else { 0.0 }
                };
                let expected: f64 = (0..4).map(|k| w(t + 1.0 - k as f64) * row[x.floor() as usize + k - 1]).sum();
                prop_assert!(found.iter().all(|f| (f - expected).abs() < 1e-9), "{i}: {found:?} against {expected}");
            }
        }
    }
}
