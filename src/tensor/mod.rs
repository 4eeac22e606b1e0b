//! Tensors as they lie on disk: dtype, shape and little-endian bytes, decoded to f64 on demand.
//!
//! In goes what a format reader found in a file; out comes a [`Tensor`] whose byte length is known
//! to fit its dtype and shape. Nothing here knows about layers or runs.

mod dtype;
mod file;
mod small_float;

pub use dtype::{DType, Kind};
pub use file::{DataFile, describe_kind};

/// Extents of a tensor, outermost axis first; empty for a 0-d tensor (one element).
pub type Shape = Vec<usize>;

/// Number of elements of `shape`, or `None` where the product overflows.
pub fn element_count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))
}

/// One tensor in memory: row-major, little-endian, as recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    dtype: DType,
    shape: Shape,
    bytes: Vec<u8>,
}

impl Tensor {
    /// Takes `bytes` as a tensor of `dtype` and `shape`.
    ///
    /// # Errors
    /// A message that names both lengths, where `bytes` does not hold exactly the elements of `shape`.
    pub fn new(dtype: DType, shape: Shape, bytes: Vec<u8>) -> Result<Self, String> {
        let expected = element_count(&shape).and_then(|n| dtype.byte_len(n));
        if expected != Some(bytes.len()) {
            return Err(format!(
                "expected {} bytes for {dtype} {shape:?}, found {}",
                expected.map_or_else(|| "a whole number of".to_string(), |n| n.to_string()),
                bytes.len()
            ));
        }
        Ok(Self { dtype, shape, bytes })
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The extents, outermost axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The recorded bytes, little-endian.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of elements (complex numbers count once).
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True where one extent is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All elements as f64, row-major; a complex element gives two values (real, imaginary).
    /// Exact for every dtype but 64-bit integers beyond 2^53. `None` for dtypes whose packing is not
    /// defined by the format (see [`DType::decodes`]).
    pub fn decode(&self) -> Option<Vec<f64>> {
        self.dtype.decodes().then(|| {
            let mut out = vec![0.0; self.len() * self.dtype.components()];
            self.dtype.decode_into(&self.bytes, 0, &mut out);
            out
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_length_must_fit_dtype_and_shape() {
        assert!(Tensor::new(DType::F32, vec![2, 3], vec![0; 24]).is_ok());
        let error = Tensor::new(DType::F32, vec![2, 3], vec![0; 23]).unwrap_err();
        assert_eq!(error, "expected 24 bytes for float32 [2, 3], found 23");
        assert!(Tensor::new(DType::U8, vec![usize::MAX, 2], vec![]).is_err(), "the product overflows");
        assert!(Tensor::new(DType::F64, vec![usize::MAX], vec![]).is_err(), "the length overflows");
        assert!(Tensor::new(DType::F4, vec![3], vec![0; 2]).is_err(), "half a byte");
        assert!(Tensor::new(DType::F4, vec![4], vec![0; 2]).is_ok());
        assert!(Tensor::new(DType::F6E2M3, vec![4], vec![0; 3]).is_ok());
    }

    #[test]
    fn a_0_d_tensor_has_one_element_and_an_empty_one_none() {
        let scalar = Tensor::new(DType::F32, vec![], 2f32.to_le_bytes().to_vec()).unwrap();
        assert_eq!((scalar.len(), scalar.is_empty(), scalar.decode()), (1, false, Some(vec![2.0])));
        let empty = Tensor::new(DType::F32, vec![3, 0], vec![]).unwrap();
        assert_eq!((empty.len(), empty.is_empty(), empty.decode()), (0, true, Some(vec![])));
    }

    #[test]
    fn complex_elements_give_two_values_and_packed_6_bit_floats_none() {
        let complex = Tensor::new(DType::C64, vec![1], [1f32.to_le_bytes(), 2f32.to_le_bytes()].concat()).unwrap();
        assert_eq!((complex.len(), complex.decode()), (1, Some(vec![1.0, 2.0])));
        assert_eq!(Tensor::new(DType::F6E3M2, vec![4], vec![0; 3]).unwrap().decode(), None);
    }
}
