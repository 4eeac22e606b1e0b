//! Where the bytes of a stored tensor lie, and how.
//!
//! A format reader says it once, from headers alone; loading is then the same for every format. Most
//! tensors lie dense in their file. What does not (compressed members, views into a shared storage,
//! big-endian or column-major arrays, text) says so in a [`Layout`].

use crate::tensor::{DType, Shape};

/// Most bytes of a tensor that is longer than what it repeats (`expand`): a few stored bytes must not
/// become any amount of memory. An attention mask of 32 heads and 4096 positions in bfloat16 has these.
pub(in crate::run) const MAX_REPEATED: u64 = 1 << 30;

/// Where the bytes of a stored tensor lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Element type.
    pub dtype: DType,
    /// Extents.
    pub shape: Shape,
    /// Index into [`Run::files`](super::Run::files).
    pub file: usize,
    /// Offset in that file: of the first byte, or of the first byte of `layout.span`.
    pub offset: u64,
    /// Length in bytes once loaded: row-major, little-endian, without gaps.
    pub len: u64,
    /// CRC-32 of the bytes once decoded, in the file's own order and with what `layout` skips, where the
    /// file gives it; what is loaded is held against it.
    pub crc32: Option<u32>,
    /// How the bytes lie, where they are not simply these `len` bytes at `offset`.
    pub layout: Option<Box<Layout>>,
}

/// How the bytes of a tensor lie that is not simply row-major, little-endian and without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of the file, from [`Stored::offset`] on, that hold it.
    pub span: u64,
    /// How these bytes are to be decoded.
    pub encoding: Encoding,
    /// Decoded bytes before the tensor's first element (a header inside a compressed member).
    pub skip: u64,
    /// Distance in elements from one index of an axis to the next, one per axis; `None` for row-major.
    pub strides: Option<Vec<u64>>,
    /// Whether the elements are big-endian.
    pub big_endian: bool,
    /// Whether the real parts (of real numbers: the numbers) and the imaginary parts lie there with the
    /// other sign, as in a conjugate that was never computed.
    pub negated: [bool; 2],
}

/// How bytes of a file become bytes of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    Plain,
    /// A raw deflate stream, as in zip archives.
    Deflate,
    /// Base64 text (RFC 4648, padded).
    Base64,
}

impl Stored {
    /// A tensor that lies dense at `offset`.
    pub fn dense(dtype: DType, shape: Shape, file: usize, offset: u64, len: u64) -> Self {
        Self { dtype, shape, file, offset, len, crc32: None, layout: None }
    }
}
