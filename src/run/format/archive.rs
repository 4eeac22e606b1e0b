//! Members of a zip archive: where each lies in the file, without unpacking any.
//!
//! In goes a path, out come the members in the directory's order. What later code relies on: each
//! range lies within the file, no two overlap, no name occurs twice, and a member is stored or deflated
//! and not encrypted. Sizes in the directory are claims: whoever unpacks one bounds it by what he needs.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom};
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

/// Bytes that one byte of a deflate stream can become at most (two bits for 258 bytes, RFC 1951).
const DEFLATE_AT_MOST: u64 = 1032;

/// The members of the zip archive `file`; directories are left out.
///
/// # Errors
/// No zip archive, or a damaged one; members that overlap or share a name; encryption, or a compression
/// other than deflate.
pub(super) fn members(file: &DataFile) -> Result<Vec<Member>> {
    let (path, len) = (file.path(), file.len());
    let damaged = |e: zip::result::ZipError| Error::at(path, format_args!("damaged zip archive: {e}"));
    let mut archive = ZipArchive::new(Window::new(file)?).map_err(damaged)?;
    if archive.has_duplicate_names() {
        return Err(Error::at(path, "expected each member once, found two members of one name"));
    }
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
        if deflated && unpacked / DEFLATE_AT_MOST > span {
            return Err(refused(format!("{span} bytes of deflate cannot become {unpacked}")));
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
    // Names that differ in the archive may be spelled alike in Unicode.
    let mut seen = HashSet::with_capacity(members.len());
    for member in members {
        if !seen.insert(member.name.as_str()) {
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

/// Bytes at the end of a file that hold the directory of most archives, and all of a small one.
const TAIL: u64 = 8 << 10;

/// Bytes read at once elsewhere.
const BLOCK: u64 = 4 << 10;

/// Reads an archive by its directory: the end of the file is read once, the headers of members elsewhere
/// a block at a time. A dump has thousands of small archives, which then cost one read each.
struct Window<'a> {
    file: &'a DataFile,
    at: u64,
    tail: Vec<u8>,
    block: Vec<u8>,
    block_at: u64,
}

impl<'a> Window<'a> {
    fn new(file: &'a DataFile) -> Result<Self> {
        let length = file.len().min(TAIL);
        let tail = file.read(file.len() - length, length)?;
        Ok(Self { file, at: 0, tail, block: Vec::new(), block_at: 0 })
    }

    /// The bytes at hand from the present place on; none at the end of the file.
    fn ahead(&mut self) -> io::Result<&[u8]> {
        let tail_at = self.file.len() - self.tail.len() as u64;
        if self.at >= tail_at {
            return Ok(rest(&self.tail, self.at - tail_at));
        }
        if self.at < self.block_at || self.at >= self.block_at + self.block.len() as u64 {
            let length = BLOCK.min(self.file.len() - self.at);
            self.block = self.file.read(self.at, length).map_err(io::Error::other)?;
            self.block_at = self.at;
        }
        Ok(rest(&self.block, self.at - self.block_at))
    }
}

fn rest(bytes: &[u8], from: u64) -> &[u8] {
    usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default()
}

impl Read for Window<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.ahead()?.read(out)?;
        self.at += count as u64;
        Ok(count)
    }
}

impl Seek for Window<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(distance) => self.file.len().checked_add_signed(distance),
            SeekFrom::Current(distance) => self.at.checked_add_signed(distance),
        };
        self.at = place.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// A member as it is written, whatever is true of it.
    #[derive(Clone)]
    struct Raw {
        name: &'static str,
        method: u16,
        flags: u16,
        content: Vec<u8>,
        len: u32,
        /// Where the directory says that it lies; `None` for the truth.
        header: Option<u32>,
    }

    fn raw(name: &'static str, content: &[u8]) -> Raw {
        Raw { name, method: 0, flags: 0, content: content.to_vec(), len: content.len() as u32, header: None }
    }

    /// An archive of these members, byte for byte as the format has them (PKWARE's APPNOTE, 4.3).
    fn archive(raws: &[Raw]) -> Vec<u8> {
        let (mut bytes, mut directory) = (Vec::new(), Vec::new());
        for raw in raws {
            let header = raw.header.unwrap_or(bytes.len() as u32);
            let mut common = Vec::new();
            for field in [20, raw.flags, raw.method, 0, 0x21] {
                common.extend(field.to_le_bytes());
            }
            for field in [crc32fast::hash(&raw.content), raw.content.len() as u32, raw.len] {
                common.extend(field.to_le_bytes());
            }
            common.extend((raw.name.len() as u16).to_le_bytes());
            common.extend([0, 0]);
            bytes.extend(b"PK\x03\x04");
            bytes.extend(&common);
            bytes.extend(raw.name.as_bytes());
            bytes.extend(&raw.content);
            directory.extend(b"PK\x01\x02\x14\0");
            directory.extend(&common);
            directory.extend([0; 10]);
            directory.extend(header.to_le_bytes());
            directory.extend(raw.name.as_bytes());
        }
        let (count, at) = (raws.len() as u16, bytes.len() as u32);
        bytes.extend(&directory);
        bytes.extend(b"PK\x05\x06\0\0\0\0");
        bytes.extend([count.to_le_bytes(), count.to_le_bytes()].concat());
        bytes.extend((directory.len() as u32).to_le_bytes());
        bytes.extend(at.to_le_bytes());
        bytes.extend([0, 0]);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<Member>> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.zip");
        std::fs::write(&path, bytes).unwrap();
        members(&DataFile::open(&path).unwrap())
    }

    #[track_caller]
    fn refusal(bytes: &[u8]) -> String {
        read(bytes).unwrap_err().message().to_string()
    }

    #[test]
    fn members_lie_where_the_archive_says() {
        let bytes = archive(&[raw("a/one", b"first"), raw("a/none", b""), raw("two", b"second")]);
        let members = read(&bytes).unwrap();
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        assert_eq!(names, ["a/one", "a/none", "two"]);
        for (member, content) in members.iter().zip([&b"first"[..], b"", b"second"]) {
            assert_eq!(&bytes[member.offset as usize..][..member.span as usize], content);
            assert_eq!((member.len, member.crc32), (content.len() as u64, crc32fast::hash(content)));
        }
        assert_eq!(read(&archive(&[])).unwrap(), []);
        assert_eq!(read(&archive(&[raw("folder/", b"")])).unwrap(), [], "a folder is no member");
    }

    #[test]
    fn an_archive_that_is_longer_than_what_is_read_at_once_is_read_alike() {
        let large = vec![7; 3 * TAIL as usize];
        let bytes = archive(&[raw("x", b"first"), raw("large", &large), raw("y", b"last")]);
        let places: Vec<(u64, u64)> = read(&bytes).unwrap().iter().map(|m| (m.offset, m.span)).collect();
        let last = 31 + 5 + 35 + large.len() as u64 + 31;
        assert_eq!(places, [(31, 5), (71, large.len() as u64), (last, 4)]);
    }

    #[test]
    fn an_archive_in_the_64_bit_form_is_read() {
        let mut writer = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        let options = zip::write::SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        writer.start_file("x", options.large_file(true)).unwrap();
        writer.write_all(b"content").unwrap();
        let bytes = writer.finish().unwrap().into_inner();
        let members = read(&bytes).unwrap();
        assert_eq!(&bytes[members[0].offset as usize..][..members[0].span as usize], b"content");
    }

    #[test]
    fn names_that_occur_twice_are_refused() {
        let text = refusal(&archive(&[raw("x", b"one"), raw("x", b"two")]));
        assert_eq!(text, "expected each member once, found two members of one name");
    }

    #[test]
    fn members_that_overlap_are_refused() {
        let text = refusal(&archive(&[raw("x", b"content"), Raw { header: Some(0), ..raw("y", b"content") }]));
        assert_eq!(text, "member `y` overlaps member `x`");
    }

    #[test]
    fn what_cannot_be_unpacked_is_refused() {
        let encrypted = Raw { flags: 1, ..raw("x", b"content") };
        assert_eq!(refusal(&archive(&[encrypted])), "member `x`: expected no encryption, found an encrypted member");
        let bzip2 = Raw { method: 12, ..raw("x", b"content") };
        assert!(refusal(&archive(&[bzip2])).starts_with("member `x`: expected stored or deflated content, found"));
        let lying = Raw { len: 1 << 30, ..raw("x", b"content") };
        assert_eq!(refusal(&archive(&[lying])), "member `x`: stored, yet 7 bytes are said to become 1073741824");
    }

    #[test]
    fn damaged_archives_are_refused() {
        let whole = archive(&[raw("x", b"content"), raw("y", b"more")]);
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut]).is_err(), "cut at {cut}");
        }
        let beyond = Raw { header: Some(1 << 20), ..raw("x", b"content") };
        assert!(refusal(&archive(&[beyond])).starts_with("damaged zip archive"));
    }
}
