//! Where NaN and infinities stand, element by element: what the search for births asks.

use crate::tensor::{DType, Tensor};

use super::blocks::Blocks;
use super::pair::Marks;

/// What one element is. A complex element is NaN if a component is, else infinite if a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// A finite number.
    Finite,
    /// Not a number, any payload.
    Nan,
    /// Positive infinity.
    PosInf,
    /// Negative infinity.
    NegInf,
}

/// One side of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// The approved run.
    Golden,
    /// The run under test.
    Candidate,
}

/// Which special values a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialFilter {
    /// NaN and both infinities.
    Any,
    /// NaN alone.
    Nan,
    /// Both infinities.
    Inf,
}

impl Class {
    /// The class of one value.
    pub fn of(value: f64) -> Self {
        if value.is_nan() {
            Self::Nan
        } else if value == f64::INFINITY {
            Self::PosInf
        } else if value == f64::NEG_INFINITY {
            Self::NegInf
        } else {
            Self::Finite
        }
    }

    fn of_components(components: &[f64]) -> Self {
        let classes = || components.iter().map(|&value| Self::of(value));
        let infinite = || classes().find(|class| *class != Self::Finite);
        classes().find(|class| *class == Self::Nan).or_else(infinite).unwrap_or(Self::Finite)
    }

    fn code(self) -> u8 {
        match self {
            Self::Finite => 0,
            Self::Nan => 1,
            Self::PosInf => 2,
            Self::NegInf => 3,
        }
    }

    fn from_code(code: u8) -> Self {
        match code & 3 {
            0 => Self::Finite,
            1 => Self::Nan,
            2 => Self::PosInf,
            _ => Self::NegInf,
        }
    }
}

impl SpecialFilter {
    /// Whether it lets `class` through; a finite number never.
    pub fn admits(self, class: Class) -> bool {
        match self {
            Self::Any => class != Class::Finite,
            Self::Nan => class == Class::Nan,
            Self::Inf => matches!(class, Class::PosInf | Class::NegInf),
        }
    }
}

const SENTINEL: u8 = 1 << 4;

/// The class of each element on both sides: one byte an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecialMap {
    /// Golden's class in bits 0-1, the candidate's in bits 2-3, a shared mask sentinel in bit 4.
    codes: Vec<u8>,
}

/// Classes of both sides. `None` where the shapes differ or a side cannot be decoded.
pub fn special_map(golden: &Tensor, candidate: &Tensor) -> Option<SpecialMap> {
    let (left, right) = (golden.dtype(), candidate.dtype());
    let comparable = golden.shape() == candidate.shape() && left.decodes() && right.decodes();
    comparable.then(|| {
        let (golden_marks, candidate_marks) = (Marks::of(left), Marks::of(right));
        let blocks = Blocks::new(golden.len(), 1, 0);
        let parts = blocks.map(|ranges| {
            let mut codes = Vec::new();
            let (mut a, mut b) = (Vec::new(), Vec::new());
            for range in ranges {
                decode(golden, range.start, range.len(), &mut a);
                decode(candidate, range.start, range.len(), &mut b);
                codes.extend(a.chunks(left.components()).zip(b.chunks(right.components())).map(|(a, b)| {
                    let sentinel = matches!((a, b), ([a], [b])
                        if golden_marks.may_be_sentinel(*a) && candidate_marks.may_be_sentinel(*b));
                    let classes = Class::of_components(a).code() | Class::of_components(b).code() << 2;
                    if sentinel { classes | SENTINEL } else { classes }
                }));
            }
            codes
        });
        SpecialMap { codes: parts.concat() }
    })
}

/// Classes of a candidate that has no golden, which counts as finite everywhere. `None` where it
/// cannot be decoded.
pub fn special_map_alone(candidate: &Tensor) -> Option<SpecialMap> {
    candidate.dtype().decodes().then(|| {
        let components = candidate.dtype().components();
        let parts = Blocks::new(candidate.len(), 1, 0).map(|ranges| {
            let (mut codes, mut values) = (Vec::new(), Vec::new());
            for range in ranges {
                decode(candidate, range.start, range.len(), &mut values);
                codes.extend(values.chunks(components).map(|value| Class::of_components(value).code() << 2));
            }
            codes
        });
        SpecialMap { codes: parts.concat() }
    })
}

/// Decodes `count` elements from element `start` on.
fn decode(tensor: &Tensor, start: usize, count: usize, out: &mut Vec<f64>) {
    let dtype: DType = tensor.dtype();
    out.resize(count * dtype.components(), 0.0);
    dtype.decode_into(tensor.bytes(), start * dtype.components(), out);
}

impl SpecialMap {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.codes.len()
    }

    /// True where there is no element.
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Class of the element at flat index `at` (finite beyond the end).
    pub fn class(&self, side: Side, at: usize) -> Class {
        side.class(self.codes.get(at).copied().unwrap_or(0))
    }

    /// One flag for each element: special on `side`, let through by `filter`, and neither of the same
    /// class on the other side nor a shared mask sentinel.
    pub fn unshared(&self, side: Side, filter: SpecialFilter) -> Vec<bool> {
        self.codes.iter().map(|&code| is_unshared(code, side, filter)).collect()
    }

    /// Number of such elements.
    pub fn count_unshared(&self, side: Side, filter: SpecialFilter) -> u64 {
        self.codes.iter().filter(|&&code| is_unshared(code, side, filter)).count() as u64
    }

    /// Flat index of the first such element.
    pub fn first_unshared(&self, side: Side, filter: SpecialFilter) -> Option<usize> {
        self.codes.iter().position(|&code| is_unshared(code, side, filter))
    }

    /// One flag for each element: let through by `filter` and of the same class on both sides (shared
    /// mask sentinels are left out: they are no trouble).
    pub fn shared(&self, filter: SpecialFilter) -> Vec<bool> {
        self.codes.iter().map(|&code| is_shared(code, filter)).collect()
    }

    /// Number of such elements.
    pub fn count_shared(&self, filter: SpecialFilter) -> u64 {
        self.codes.iter().filter(|&&code| is_shared(code, filter)).count() as u64
    }

    /// Flat index of the first such element.
    pub fn first_shared(&self, filter: SpecialFilter) -> Option<usize> {
        self.codes.iter().position(|&code| is_shared(code, filter))
    }
}

impl Side {
    fn class(self, code: u8) -> Class {
        Class::from_code(if self == Self::Golden { code } else { code >> 2 })
    }

    fn other(self) -> Self {
        if self == Self::Golden { Self::Candidate } else { Self::Golden }
    }
}

fn is_unshared(code: u8, side: Side, filter: SpecialFilter) -> bool {
    let class = side.class(code);
    filter.admits(class) && class != side.other().class(code) && code & SENTINEL == 0
}

fn is_shared(code: u8, filter: SpecialFilter) -> bool {
    let class = Side::Golden.class(code);
    filter.admits(class) && class == Side::Candidate.class(code) && code & SENTINEL == 0
}

/// Coordinates of the element at row-major index `flat`; empty for a 0-d tensor, zeros where an
/// extent is zero.
pub fn unravel(flat: u64, shape: &[usize]) -> Vec<u64> {
    let mut rest = flat;
    let mut coordinates: Vec<u64> = shape
        .iter()
        .rev()
        .map(|&extent| {
            let extent = (extent as u64).max(1);
            let coordinate = rest % extent;
            rest /= extent;
            coordinate
        })
        .collect();
    coordinates.reverse();
    coordinates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f32s(values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Tensor::new(DType::F32, vec![values.len()], bytes).unwrap()
    }

    fn f16s(values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect();
        Tensor::new(DType::F16, vec![values.len()], bytes).unwrap()
    }

    const INF: f32 = f32::INFINITY;
    const NAN: f32 = f32::NAN;

    #[test]
    fn each_relation_of_two_classes() {
        let golden = f32s(&[1.0, NAN, INF, 1.0, INF, f32::MIN, NAN, -INF]);
        let candidate = f16s(&[1.0, NAN, INF, NAN, -INF, -INF, 1.0, -INF]);
        let map = special_map(&golden, &candidate).unwrap();
        let (any, t, f) = (SpecialFilter::Any, true, false);
        assert_eq!(map.unshared(Side::Candidate, any), [f, f, f, t, t, f, f, f]);
        assert_eq!(map.unshared(Side::Golden, any), [f, f, f, f, t, f, t, f]);
        assert_eq!(map.shared(any), [f, t, t, f, f, f, f, f]);
        assert_eq!(map.count_unshared(Side::Candidate, SpecialFilter::Inf), 1);
        assert_eq!(map.first_unshared(Side::Candidate, SpecialFilter::Inf), Some(4));
        assert_eq!(map.first_unshared(Side::Candidate, SpecialFilter::Nan), Some(3));
        assert_eq!(map.first_unshared(Side::Golden, SpecialFilter::Nan), Some(6));
        assert_eq!((map.count_shared(SpecialFilter::Inf), map.first_shared(SpecialFilter::Inf)), (1, Some(2)));
        assert_eq!(map.class(Side::Candidate, 4), Class::NegInf);
        assert_eq!(map.class(Side::Golden, 99), Class::Finite);
    }

    #[test]
    fn complex_elements_count_once() {
        let bytes = |values: [f32; 6]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let golden = Tensor::new(DType::C64, vec![3], bytes([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])).unwrap();
        let candidate = Tensor::new(DType::C64, vec![3], bytes([1.0, 2.0, INF, NAN, 5.0, -INF])).unwrap();
        let map = special_map(&golden, &candidate).unwrap();
        assert_eq!(map.len(), 3);
        assert_eq!(map.unshared(Side::Candidate, SpecialFilter::Any), [false, true, true]);
        assert_eq!(map.class(Side::Candidate, 1), Class::Nan);
    }

    #[test]
    fn shapes_that_differ_have_no_map_and_one_side_alone_has() {
        assert!(special_map(&f32s(&[1.0]), &f32s(&[1.0, 2.0])).is_none());
        let map = special_map_alone(&f32s(&[1.0, -INF])).unwrap();
        assert_eq!(map.unshared(Side::Candidate, SpecialFilter::Any), [false, true]);
        assert!(special_map_alone(&f32s(&[])).unwrap().is_empty());
    }

    #[test]
    fn coordinates_of_flat_indices() {
        assert_eq!(unravel(0, &[]), Vec::<u64>::new());
        assert_eq!(unravel(7, &[2, 3, 2]), [1, 0, 1]);
        assert_eq!(unravel(11, &[2, 3, 2]), [1, 2, 1]);
        assert_eq!(unravel(0, &[0, 3]), [0, 0]);
    }
}
