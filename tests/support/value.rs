//! Numbers with a shape, rounded to a dtype.

use goldline::tensor::DType;

/// What one tensor holds; every number is one that the dtype can hold.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Values {
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) numbers: Vec<f64>,
}

impl Values {
    /// fp32.
    pub(crate) fn new(shape: &[usize], numbers: impl IntoIterator<Item = f64>) -> Self {
        Self::of(DType::F32, shape, numbers)
    }

    pub(crate) fn of(dtype: DType, shape: &[usize], numbers: impl IntoIterator<Item = f64>) -> Self {
        let numbers: Vec<f64> = numbers.into_iter().map(|number| round(dtype, number)).collect();
        assert_eq!(numbers.len(), shape.iter().product::<usize>(), "as many numbers as {shape:?} holds");
        Self { dtype, shape: shape.to_vec(), numbers }
    }

    pub(crate) fn i64(shape: &[usize], numbers: impl IntoIterator<Item = i64>) -> Self {
        Self::of(DType::I64, shape, numbers.into_iter().map(|number| number as f64))
    }

    pub(crate) fn full(shape: &[usize], number: f64) -> Self {
        Self::new(shape, vec![number; shape.iter().product()])
    }

    /// Pseudo-random numbers of mean 0 and deviation 1, the same for the same seed.
    pub(crate) fn noise(shape: &[usize], seed: u64) -> Self {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        // The sum of twelve uniform numbers has deviation 1 and is near enough to normal.
        let numbers = (0..shape.iter().product()).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect();
        Self { dtype: DType::F64, shape: shape.to_vec(), numbers }.to(DType::F32)
    }

    /// The same numbers, rounded to another dtype.
    pub(crate) fn to(mut self, dtype: DType) -> Self {
        self.dtype = dtype;
        self.numbers.iter_mut().for_each(|number| *number = round(dtype, *number));
        self
    }

    /// Changes every number.
    pub(crate) fn map(mut self, change: impl Fn(f64) -> f64) -> Self {
        self.numbers.iter_mut().for_each(|number| *number = round(self.dtype, change(*number)));
        self
    }

    /// Puts `number` at a flat position.
    pub(crate) fn set(mut self, at: usize, number: f64) -> Self {
        self.numbers[at] = round(self.dtype, number);
        self
    }

    pub(crate) fn width(&self) -> usize {
        *self.shape.last().expect("at least one axis")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let numbers = self.numbers.iter();
        match self.dtype {
            DType::F64 => numbers.flat_map(|v| v.to_le_bytes()).collect(),
            DType::F32 => numbers.flat_map(|v| (*v as f32).to_le_bytes()).collect(),
            DType::F16 => numbers.flat_map(|v| half::f16::from_f64(*v).to_le_bytes()).collect(),
            DType::BF16 => numbers.flat_map(|v| half::bf16::from_f64(*v).to_le_bytes()).collect(),
            DType::I64 => numbers.flat_map(|v| (*v as i64).to_le_bytes()).collect(),
            DType::I8 => numbers.flat_map(|v| (*v as i8).to_le_bytes()).collect(),
            DType::Bool => numbers.map(|v| u8::from(*v != 0.0)).collect(),
            other => panic!("tests do not write {other}"),
        }
    }
}

fn round(dtype: DType, number: f64) -> f64 {
    match dtype {
        DType::F32 => f64::from(number as f32),
        DType::F16 => half::f16::from_f64(number).to_f64(),
        DType::BF16 => half::bf16::from_f64(number).to_f64(),
        DType::F64 | DType::I64 | DType::I8 | DType::Bool => number,
        other => panic!("tests do not write {other}"),
    }
}
