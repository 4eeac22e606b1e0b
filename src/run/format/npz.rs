//! `.npz` files: zip archives of `.npy` arrays, stored or deflated.
//!
//! In goes an archive, out come its arrays in the archive's order. Of a deflated member only so much is
//! unpacked as its header takes; what the directory says of its length must agree with that header.

use std::collections::HashSet;
use std::io::Read;
use std::path::Path;

use super::archive::Member;
use super::container::Found;
use super::npy::Header;
use crate::error::{Error, Result};
use crate::run::Encoding;
use crate::tensor::DataFile;

/// The arrays of the archive `data` with these members, to be known as file number `file` of the run.
///
/// # Errors
/// What [`Header::read`] refuses; a member that is no array, or not as long as its header says.
pub(super) fn arrays(data: &DataFile, members: &[Member], file: usize) -> Result<Vec<Found>> {
    let path = data.path();
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    for member in members {
        let name = name_of(&member.name).to_string();
        if !seen.insert(name.clone()) {
            let text = format_args!("two members are the array `{name}`");
            return Err(Error::at(path, text).byte(member.offset));
        }
        found.push(array(path, data, file, member, name)?);
    }
    Ok(found)
}

/// The array's name, as numpy gives it back.
fn name_of(member: &str) -> &str {
    member.strip_suffix(".npy").filter(|name| !name.is_empty()).unwrap_or(member)
}

fn array(path: &Path, data: &DataFile, file: usize, member: &Member, name: String) -> Result<Found> {
    let refused = |text: &str| Error::at(path, format_args!("member `{}`: {text}", member.name)).byte(member.offset);
    let header = Header::read(|len| first(data, member, len))?.map_err(|trouble| refused(&trouble.text))?;
    let expected = header.len.saturating_add(header.data);
    if expected != member.len {
        return Err(refused(&format!("expected {expected} bytes by its header, found {}", member.len)));
    }
    // The sum covers header and elements: equal sums of equal dtype, shape and order are equal elements.
    // A sum of zero is one that the writer left out.
    let crc32 = Some(member.crc32).filter(|&crc32| crc32 != 0);
    let encoding = if member.deflated { Encoding::Deflate } else { Encoding::Plain };
    let stored = header.stored(file, member.offset, member.span, encoding, crc32.is_some());
    Ok(Found { name, stored, crc32 })
}

/// The first `len` bytes of a member, unpacked; fewer where there are no more.
fn first(data: &DataFile, member: &Member, len: u64) -> Result<Vec<u8>> {
    // A deflate stream may be longer than what it holds, by five bytes a block.
    let raw = data.read(member.offset, member.span.min(len.saturating_mul(2)))?;
    if !member.deflated {
        return Ok(raw);
    }
    let mut unpacked = Vec::new();
    // A stream that is cut or damaged gives what stands before; the header's parser says what is missing.
    let _ = flate2::read::DeflateDecoder::new(raw.as_slice()).take(len).read_to_end(&mut unpacked);
    Ok(unpacked)
}
