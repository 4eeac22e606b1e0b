//! `.npy` files: a magic string, a version, a header that is a Python dict in text, then the elements.
//!
//! In go the first bytes, out come dtype, shape and order. The header is read by a parser that knows
//! these three keys and the literals they take and evaluates nothing. Layout after numpy's
//! `numpy/lib/format.py`; how bfloat16 and the 8-bit floats are spelled after what ml_dtypes writes.

use std::path::Path;

use super::container::Found;
use crate::error::{Error, Result};
use crate::run::{Encoding, Layout, Stored};
use crate::tensor::{DType, DataFile, Shape, element_count};

/// First bytes of every `.npy` file.
pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Bytes before the header's length: the magic string and the version.
const PREFIX: usize = 8;

/// Longest header that is read. numpy itself reads none above 10 000 bytes; only structured dtypes, which
/// are refused anyway, are longer than a few hundred.
const MAX_HEADER: usize = 1 << 16;

/// Bytes from which [`Header::parse`] can tell everything of any array it accepts.
const HEAD: u64 = (PREFIX + 4 + MAX_HEADER) as u64;

/// Bytes that hold the whole header of nearly every array: numpy pads it to 128.
const USUAL_HEAD: u64 = 256;

/// Most axes of an array (numpy's own limit).
const MAX_AXES: usize = 64;

/// What stands before the elements.
#[derive(Debug, PartialEq)]
pub(super) struct Header {
    dtype: DType,
    shape: Shape,
    fortran_order: bool,
    big_endian: bool,
    /// Bytes before the first element.
    pub(super) len: u64,
    /// Bytes of elements.
    pub(super) data: u64,
}

/// What is wrong with a header, and at which of its bytes.
#[derive(Debug, PartialEq)]
pub(super) struct Trouble {
    pub(super) byte: u64,
    pub(super) text: String,
}

impl Trouble {
    fn at(byte: usize, text: impl Into<String>) -> Self {
        Self { byte: byte as u64, text: text.into() }
    }
}

impl Header {
    /// Reads the header of the array of which `first(n)` gives the first `n` bytes, or all if there are
    /// fewer.
    ///
    /// # Errors
    /// What `first` refuses, and in the second place: no `.npy` array, an unknown version, a header that is
    /// no plain dict of `descr`, `fortran_order` and `shape`, a dtype that is no tensor's, a shape that
    /// memory cannot hold.
    pub(super) fn read<E>(first: impl Fn(u64) -> Result<Vec<u8>, E>) -> Result<Result<Self, Trouble>, E> {
        match Self::parse(&first(USUAL_HEAD)?) {
            Ok(header) => Ok(Ok(header)),
            Err(_) => Ok(Self::parse(&first(HEAD)?)),
        }
    }

    fn parse(head: &[u8]) -> Result<Self, Trouble> {
        if !head.starts_with(MAGIC) {
            let found = super::recognise::content(head).unwrap_or("something else");
            return Err(Trouble::at(0, format!("expected a numpy array, found {found}")));
        }
        let cut = || Trouble::at(head.len(), "the numpy array ends within its header");
        let major = *head.get(MAGIC.len()).ok_or_else(cut)?;
        let width = match major {
            1 => 2,
            2 | 3 => 4,
            _ => {
                let text = format!("expected version 1, 2 or 3 of the .npy format, found {major}");
                return Err(Trouble::at(MAGIC.len(), text));
            }
        };
        let digits = head.get(PREFIX..PREFIX + width).ok_or_else(cut)?;
        let len = digits.iter().rev().fold(0usize, |value, byte| (value << 8) | usize::from(*byte));
        if len > MAX_HEADER {
            let text = format!("expected a header of at most {MAX_HEADER} bytes, found a length of {len}");
            return Err(Trouble::at(PREFIX, text));
        }
        let start = PREFIX + width;
        let text = head.get(start..start + len).ok_or_else(|| {
            let rest = head.len() - start;
            Trouble::at(
                PREFIX,
                format!("expected a header within the {rest} bytes that follow, found a length of {len}"),
            )
        })?;
        let raw = Dict { text, at: 0, start }.parse()?;
        let shape = raw.shape;
        let data = element_count(&shape).and_then(|n| raw.dtype.byte_len(n)).and_then(|n| u64::try_from(n).ok());
        let data = data.filter(|&n| n <= isize::MAX as u64).ok_or_else(|| {
            Trouble::at(start, format!("expected a shape that memory can hold, found {} {shape:?}", raw.dtype))
        })?;
        Ok(Self {
            dtype: raw.dtype,
            shape,
            fortran_order: raw.fortran_order,
            big_endian: raw.big_endian,
            len: (start + len) as u64,
            data,
        })
    }

    /// Where the elements lie, if the array lies in file number `file` at `offset`, in `span` bytes that are
    /// encoded as said. `summed`: the file has a checksum over header and elements, so that both are read.
    pub(super) fn stored(self, file: usize, offset: u64, span: u64, encoding: Encoding, summed: bool) -> Stored {
        let strides = (self.fortran_order && self.shape.len() > 1).then(|| column_major(&self.shape));
        let big_endian = self.big_endian && self.dtype.bits() > 8;
        let plain = encoding == Encoding::Plain && !summed;
        if plain && strides.is_none() && !big_endian {
            return Stored::dense(self.dtype, self.shape, file, offset + self.len, self.data);
        }
        // Where nothing is to be unpacked, the header is stepped over in the file.
        let (offset, span, skip) = if plain { (offset + self.len, self.data, 0) } else { (offset, span, self.len) };
        let layout = Some(Box::new(Layout { span, encoding, skip, strides, big_endian, negated: [false; 2] }));
        Stored { dtype: self.dtype, shape: self.shape, file, offset, len: self.data, crc32: None, layout }
    }
}

/// Distance in elements from one index of an axis to the next, the first axis running fastest.
fn column_major(shape: &[usize]) -> Vec<u64> {
    let step = |next: &mut u64, &extent: &usize| {
        let stride = *next;
        *next = next.saturating_mul(extent as u64);
        Some(stride)
    };
    shape.iter().scan(1u64, step).collect()
}

/// The array in the file at `path`, to be known as file number `file` of the run.
///
/// # Errors
/// What [`Header::parse`] refuses; a file that does not end where its array ends.
pub(super) fn array(path: &Path, file: usize) -> Result<Found> {
    let data = DataFile::open(path)?;
    let header = Header::read(|len| data.read(0, data.len().min(len)))?
        .map_err(|trouble| Error::at(path, trouble.text).byte(trouble.byte))?;
    let end = header.len.saturating_add(header.data);
    if end != data.len() {
        let (len, dtype, shape) = (data.len(), header.dtype, &header.shape);
        let text =
            format_args!("expected the array ({dtype} {shape:?}) to end at byte {end}, the file has {len} bytes");
        return Err(Error::at(path, text).byte(len.min(end)));
    }
    Ok(Found { name: String::new(), stored: header.stored(file, 0, end, Encoding::Plain, false), crc32: None })
}

/// What the dict says.
struct Raw {
    dtype: DType,
    big_endian: bool,
    fortran_order: bool,
    shape: Shape,
}

/// A reader of the dict's text; `start` is where the text stands in the array.
struct Dict<'a> {
    text: &'a [u8],
    at: usize,
    start: usize,
}

impl Dict<'_> {
    fn parse(mut self) -> Result<Raw, Trouble> {
        let (mut dtype, mut fortran_order, mut shape) = (None, None, None);
        self.expect(b'{')?;
        while !self.accept(b'}') {
            let place = self.place();
            let key = self.string()?;
            self.expect(b':')?;
            let repeated = match key.as_str() {
                "descr" => dtype.replace(self.dtype()?).is_some(),
                "fortran_order" => fortran_order.replace(self.boolean()?).is_some(),
                "shape" => shape.replace(self.shape()?).is_some(),
                _ => return Err(Trouble::at(place, format!("expected no other key in the header, found `{key}`"))),
            };
            if repeated {
                return Err(Trouble::at(place, format!("`{key}` stands twice in the header")));
            }
            if !self.accept(b',') {
                self.expect(b'}')?;
                break;
            }
        }
        self.skip_space();
        if self.at < self.text.len() {
            return Err(self.unexpected("the header's end"));
        }
        let missing = |key: &str| Trouble::at(self.start, format!("the header lacks `{key}`"));
        let (dtype, big_endian) = dtype.ok_or_else(|| missing("descr"))?;
        Ok(Raw {
            dtype,
            big_endian,
            fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
            shape: shape.ok_or_else(|| missing("shape"))?,
        })
    }

    fn place(&self) -> usize {
        self.start + self.at
    }

    fn skip_space(&mut self) {
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.text.iter().skip(self.at).take_while(|byte| blank(byte)).count();
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Trouble> {
        if self.accept(byte) { Ok(()) } else { Err(self.unexpected(&format!("`{}`", char::from(byte)))) }
    }

    fn unexpected(&self, expected: &str) -> Trouble {
        const SHOWN: usize = 24;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let shown = String::from_utf8_lossy(rest.get(..SHOWN.min(rest.len())).unwrap_or_default());
        let found = if rest.is_empty() { "nothing".to_string() } else { format!("`{}`", shown.trim_end()) };
        Trouble::at(self.place(), format!("expected {expected} in the header, found {found}"))
    }

    /// A string without escapes: none of the spellings that mean a tensor has any.
    fn string(&mut self) -> Result<String, Trouble> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.unexpected("a string")),
        };
        let rest = self.text.get(self.at + 1..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == quote || byte == b'\\');
        match end.and_then(|end| rest.get(..=end)) {
            Some([content @ .., last]) if *last == quote => {
                self.at += content.len() + 2;
                Ok(String::from_utf8_lossy(content).into_owned())
            }
            _ => Err(self.unexpected("a string without escapes")),
        }
    }

    fn word(&mut self) -> &[u8] {
        self.skip_space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        rest.get(..len).unwrap_or_default()
    }

    fn boolean(&mut self) -> Result<bool, Trouble> {
        let value = match self.word() {
            b"True" => true,
            b"False" => false,
            _ => return Err(self.unexpected("True or False")),
        };
        self.at += if value { 4 } else { 5 };
        Ok(value)
    }

    fn shape(&mut self) -> Result<Shape, Trouble> {
        self.expect(b'(')?;
        let mut shape = Shape::new();
        while !self.accept(b')') {
            if shape.len() == MAX_AXES {
                return Err(self.unexpected(&format!("at most {MAX_AXES} axes")));
            }
            let word = self.word();
            // Python 2 marked long integers.
            let digits = word.strip_suffix(b"L").unwrap_or(word);
            let extent = std::str::from_utf8(digits).ok().filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
            let (extent, len) = (extent.and_then(|digits| digits.parse().ok()), word.len());
            shape.push(extent.ok_or_else(|| self.unexpected("an extent that memory can hold"))?);
            self.at += len;
            if !self.accept(b',') {
                // `(3)` is a number in Python, yet no other shape can be meant.
                self.expect(b')')?;
                break;
            }
        }
        Ok(shape)
    }

    /// Element type, and whether it is big-endian.
    fn dtype(&mut self) -> Result<(DType, bool), Trouble> {
        let at = self.peek().map(|_| self.place()).unwrap_or(self.start);
        if self.peek() == Some(b'[') {
            return Err(Trouble::at(at, "expected a tensor, found a structured array (a list of named fields)"));
        }
        let descr = self.string()?;
        dtype_of(&descr).map_err(|text| Trouble::at(at, text))
    }
}

/// What a type string (`<f4`) means: element type, and whether it is big-endian.
fn dtype_of(descr: &str) -> Result<(DType, bool), String> {
    // Extension types by name, as writers other than numpy have them.
    if let Some(dtype) = DType::parse(descr).filter(|dtype| dtype.bits() >= 8) {
        return Ok((dtype, false));
    }
    let (order, kind) = match descr.chars().next() {
        Some(first) if !first.is_ascii_alphanumeric() => (first, descr.get(first.len_utf8()..).unwrap_or_default()),
        _ => (' ', descr),
    };
    let dtype = match kind {
        "f8" => DType::F64,
        "f4" => DType::F32,
        "f2" => DType::F16,
        // ml_dtypes: bfloat16 as raw bytes, float8_e5m2 as a float of one byte.
        "V2" => DType::BF16,
        "f1" => DType::F8E5M2,
        "c8" => DType::C64,
        "i8" => DType::I64,
        "i4" => DType::I32,
        "i2" => DType::I16,
        "i1" => DType::I8,
        "u8" => DType::U64,
        "u4" => DType::U32,
        "u2" => DType::U16,
        "u1" => DType::U8,
        "b1" => DType::Bool,
        _ => return Err(format!("expected a tensor, found {}", foreign(kind, descr))),
    };
    let ordered = matches!(order, '<' | '>') || (order == '|' && (dtype.bits() == 8 || dtype == DType::BF16));
    if !ordered {
        return Err(format!("expected `<` or `>` for the byte order of `{kind}`, found the dtype `{descr}`"));
    }
    Ok((dtype, order == '>'))
}

/// What a type string that is no tensor's stands for.
fn foreign(kind: &str, descr: &str) -> String {
    match kind.chars().next() {
        Some('O') => "Python objects, which are never unpickled".into(),
        Some('U' | 'S' | 'a') => format!("text (dtype `{descr}`)"),
        Some('M' | 'm') => format!("dates (dtype `{descr}`)"),
        Some('V') if kind == "V1" => format!(
            "elements of one byte without a name (dtype `{descr}`): ml_dtypes writes float8_e4m3fn, int4 and others alike; save float32 or uint8"
        ),
        Some('V') => format!("raw bytes (dtype `{descr}`)"),
        Some('c' | 'f') => format!("the unsupported dtype `{descr}`: save complex64 or float64"),
        _ => format!("the unknown dtype `{descr}`"),
    }
}
