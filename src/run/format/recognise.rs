//! What a file or directory that is no run looks like, in words, so that the error can say what was
//! found instead.

use std::path::Path;

use crate::error::{Error, Result};
use crate::tensor::{DataFile, describe_kind};

/// Bytes from which content is recognised.
const HEAD: u64 = 512;

/// What the content that starts with `head` looks like, where it is something well known.
pub(super) fn content(head: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"PK\x03\x04", "a zip archive (torch.save and .npz write these)"),
        (b"PK\x05\x06", "an empty zip archive"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\xfd7zXZ\0", "an xz archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"\x93NUMPY", "a numpy array"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
        (b"GGUF", "a GGUF model"),
        (b"\x80\x02", "a Python pickle"),
        (b"\x80\x03", "a Python pickle"),
        (b"\x80\x04", "a Python pickle"),
        (b"\x80\x05", "a Python pickle"),
        (b"version https://git-lfs", "a Git LFS pointer (the data itself was not fetched)"),
        (b"\x7fELF", "a program"),
    ];
    if head.is_empty() {
        return Some("an empty file");
    }
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    let text = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).trim_ascii_start();
    let starts = |tag: &[u8]| text.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
    if starts(b"<!doctype html") || starts(b"<html") || starts(b"<head") {
        return Some("an HTML page");
    }
    if starts(b"<?xml") {
        return Some("an XML document");
    }
    if head.iter().all(|b| *b == 0) {
        return Some("nothing but zero bytes");
    }
    // A safetensors file: eight bytes of header length, then the header's brace.
    if head.get(8) == Some(&b'{') && head.get(6..8) == Some(&[0, 0]) {
        return Some("a safetensors file");
    }
    match text.first() {
        Some(b'{') => Some("a JSON object"),
        Some(b'[') => Some("a JSON array"),
        _ => None,
    }
}

/// The error for a path that no format recognises.
pub(super) fn refusal(path: &Path) -> Error {
    const EXPECTED: &str = "expected a run directory (run.json, layers.jsonl, tensors.safetensors), an msprobe dump, \
        a file of tensors (.npy, .npz, .pt, .safetensors) or a directory of such files, a Hugging Face debug tree, \
        Polygraphy RunResults or a run of an RKNN snapshot";
    match found(path) {
        Ok(what) => Error::at(path, format_args!("{EXPECTED}, found {what}")),
        Err(error) => error,
    }
}

fn found(path: &Path) -> Result<String> {
    let kind = std::fs::metadata(path).map_err(|e| Error::io(path, "open", &e))?;
    if kind.is_dir() {
        return directory(path);
    }
    if !kind.is_file() {
        return Ok(describe_kind(&kind).into());
    }
    let file = DataFile::open(path)?;
    let head = file.read(0, file.len().min(HEAD))?;
    Ok(content(&head).unwrap_or("a file of unknown format").into())
}

fn directory(path: &Path) -> Result<String> {
    const SHOWN: usize = 3;
    let cannot = |e: std::io::Error| Error::io(path, "list the directory", &e);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path).map_err(cannot)? {
        names.push(entry.map_err(cannot)?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    if names.is_empty() {
        return Ok("an empty directory".into());
    }
    let steps = |name: &String| name.starts_with("step") || name.starts_with("rank");
    if names.iter().all(steps) {
        return Ok(format!("several runs below it ({} …): name one of them", names[0]));
    }
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    let more = if names.len() > SHOWN { " …" } else { "" };
    Ok(format!("a directory with {}{more}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_named_by_what_it_holds() {
        assert_eq!(content(b""), Some("an empty file"));
        assert_eq!(content(b"\n <!DOCTYPE HTML><title>404"), Some("an HTML page"));
        assert_eq!(content(b"PK\x03\x04rest"), Some("a zip archive (torch.save and .npz write these)"));
        assert_eq!(content(b"\x40\0\0\0\0\0\0\0{\"a\":"), Some("a safetensors file"));
        assert_eq!(content(b"{\"a\":1}"), Some("a JSON object"));
        assert_eq!(content(b"hello"), None);
    }
}
