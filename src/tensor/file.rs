//! Reading of tensor bytes: positioned reads from files that may change while they are read.
//!
//! Bytes are copied into a fresh buffer and never mapped: a mapped file that shrinks kills the
//! process, whereas a read that ends early is an ordinary error.

use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// A regular file opened for positioned reads, with the length it had when it was opened.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl DataFile {
    /// Opens the regular file at `path` (symbolic links are followed).
    ///
    /// # Errors
    /// No such file, no permission, or something that is no regular file: a pipe or a device could
    /// block for ever or never end.
    pub fn open(path: &Path) -> Result<Self> {
        // Asked before the file is opened, for opening a pipe would already block.
        let found = std::fs::metadata(path).map_err(|e| Error::io(path, "open", &e))?;
        expect_regular(path, &found)?;
        let file = File::open(path).map_err(|e| Error::io(path, "open", &e))?;
        let opened = file.metadata().map_err(|e| Error::io(path, "open", &e))?;
        expect_regular(path, &opened)?;
        Ok(Self { path: path.to_path_buf(), file, len: opened.len() })
    }

    /// Length in bytes when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a file of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The underlying file, positioned at its start.
    pub fn into_file(self) -> File {
        self.file
    }

    /// Reads `len` bytes from byte `offset` on into a fresh buffer. Nothing is allocated before the
    /// range is known to lie within the file.
    ///
    /// # Errors
    /// A range beyond the end, a file that has shrunk since it was opened, no memory.
    pub fn read(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside {
            return Err(Error::at(
                &self.path,
                format_args!("expected {len} bytes, the file ends at byte {}", self.len),
            )
            .byte(offset));
        }
        let no_memory = || Error::at(&self.path, format_args!("no memory for {len} bytes")).byte(offset);
        let size = usize::try_from(len).map_err(|_| no_memory())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| no_memory())?;
        bytes.resize(size, 0);
        read_exact_at(&self.file, &mut bytes, offset)
            .map_err(|e| Error::io(&self.path, &format!("read {len} bytes"), &e).byte(offset))?;
        Ok(bytes)
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn read_exact_at(mut file: &File, bytes: &mut [u8], offset: u64) -> std::io::Result<()> {
    use std::io::{Read, Seek, SeekFrom};
    file.seek(SeekFrom::Start(offset))?;
    file.read_exact(bytes)
}

fn expect_regular(path: &Path, found: &Metadata) -> Result<()> {
    if found.is_file() {
        return Ok(());
    }
    Err(Error::at(path, format_args!("expected a regular file, found {}", describe_kind(found))))
}

/// What a path leads to, in words (`a directory`, `a named pipe`).
pub fn describe_kind(found: &Metadata) -> &'static str {
    let kind = found.file_type();
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() {
        "a directory"
    } else if kind.is_file() {
        "a file"
    } else {
        "something that is neither file nor directory"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_beyond_the_end_is_refused_before_anything_is_allocated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = DataFile::open(&path).unwrap();
        assert_eq!(file.read(3, 4).unwrap(), b"3456");
        assert_eq!(file.read(10, 0).unwrap(), b"");
        for (offset, len) in [(3, 8), (11, 0), (0, u64::MAX), (u64::MAX, 1)] {
            let error = file.read(offset, len).unwrap_err();
            assert!(error.message().ends_with("the file ends at byte 10"), "{error}");
        }
    }

    #[test]
    fn a_file_that_shrank_after_it_was_opened_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        std::fs::write(&path, b"0123456789").unwrap();
        let file = DataFile::open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4).unwrap();
        let error = file.read(2, 6).unwrap_err().to_string();
        assert!(error.contains("byte 2") && error.contains("shrunk"), "{error}");
    }

    #[test]
    fn a_directory_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let error = DataFile::open(dir.path()).unwrap_err();
        assert_eq!(error.message(), "expected a regular file, found a directory");
    }
}
