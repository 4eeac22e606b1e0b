//! Members of a zip archive: where each lies in the file, without unpacking any.
//!
//! In goes a path, out come the members in the directory's order. What later code relies on: each
//! range lies within the file, no two overlap, no name occurs twice, and a member is stored or deflated
//! and not encrypted. Sizes in the directory are claims: whoever unpacks one bounds it by what he needs.

use std::collections::HashMap;
use std::io::BufReader;
use std::path::Path;

use zip::{CompressionMethod, ZipArchive};

use crate::error::{Error, Result};
use crate::tensor::DataFile;

/// A member of a zip archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Its path in the archive, as written.
    pub(super) name: String,
    /// Offset in the file of its first byte.
    pub(super) offset: u64,
    /// Bytes it takes in the file.
    pub(super) span: u64,
    /// Bytes once unpacked, as the directory says.
    pub(super) len: u64,
    /// Whether these bytes are a deflate stream; else they are the content itself.
    pub(super) deflated: bool,
    /// CRC-32 of the unpacked bytes, as the directory says.
    pub(super) crc32: u32,
}

/// The members of the zip archive at `path`; directories are left out.
///
/// # Errors
/// No zip archive, or a damaged one; members that overlap or share a name; encryption, or a compression
/// other than deflate.
pub(super) fn members(path: &Path) -> Result<Vec<Member>> {
    let file = DataFile::open(path)?;
    let len = file.len();
    let damaged = |e: zip::result::ZipError| Error::at(path, format_args!("damaged zip archive: {e}"));
    let mut archive = ZipArchive::new(BufReader::new(file.into_file())).map_err(damaged)?;
    let mut members = Vec::with_capacity(archive.len());
    for index in 0..archive.len() {
        let entry = archive.by_index_raw(index).map_err(damaged)?;
        let name = entry.name().map_err(damaged)?.into_owned();
        let refused = |text: String| Error::at(path, format_args!("member `{name}`: {text}"));
        if entry.is_dir() {
            continue;
        }
        if entry.encrypted() {
            return Err(refused("expected no encryption, found an encrypted member".into()));
        }
        let deflated = match entry.compression() {
            CompressionMethod::Stored => false,
            CompressionMethod::Deflated => true,
            other => return Err(refused(format!("expected stored or deflated content, found {other}"))),
        };
        let (span, unpacked) = (entry.compressed_size(), entry.size());
        let offset = entry.data_start().ok_or_else(|| refused("has no content".into()))?;
        if offset.checked_add(span).is_none_or(|end| end > len) {
            return Err(refused(format!("expected {span} bytes, the file ends at byte {len}")));
        }
        if !deflated && span != unpacked {
            return Err(refused(format!("stored, yet {span} bytes are said to become {unpacked}")));
        }
        members.push(Member { name: name.clone(), offset, span, len: unpacked, deflated, crc32: entry.crc32() });
    }
    distinct(path, &members)?;
    Ok(members)
}

/// Refuses members that overlap or share a name: which of them is meant is then a matter of taste, and
/// overlapping ones unpack to far more than the file holds.
fn distinct(path: &Path, members: &[Member]) -> Result<()> {
    let mut seen = HashMap::with_capacity(members.len());
    for member in members {
        if seen.insert(member.name.as_str(), ()).is_some() {
            return Err(Error::at(path, format_args!("member `{}` occurs twice", member.name)).byte(member.offset));
        }
    }
    let mut by_place: Vec<&Member> = members.iter().filter(|member| member.span > 0).collect();
    by_place.sort_by_key(|member| member.offset);
    for pair in by_place.windows(2) {
        if let [one, next] = pair
            && one.offset + one.span > next.offset
        {
            let text = format_args!("member `{}` overlaps member `{}`", next.name, one.name);
            return Err(Error::at(path, text).byte(next.offset));
        }
    }
    Ok(())
}
