//! Digests of files and tensors.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tensor::{DataFile, Tensor};

/// A BLAKE3 digest, written `blake3:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(blake3::Hash);

/// The only algorithm that this version writes and reads.
const ALGORITHM: &str = "blake3:";

impl Digest {
    /// The digest of `bytes`.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(blake3::hash(bytes))
    }

    /// The digest of a tensor's little-endian bytes, without dtype and shape.
    pub fn of_tensor(tensor: &Tensor) -> Self {
        Self::of_bytes(tensor.bytes())
    }

    /// The digest of a file's bytes as they lie there.
    ///
    /// # Errors
    /// A path that leads to no regular file, or to one that cannot be read.
    pub fn of_file(path: &Path) -> Result<Self> {
        let mut hasher = blake3::Hasher::new();
        let file = DataFile::open(path)?.into_file();
        hasher.update_reader(file).map_err(|e| Error::io(path, "read", &e))?;
        Ok(Self(hasher.finalize()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{ALGORITHM}{}", self.0.to_hex())
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let hex = text.strip_prefix(ALGORITHM).filter(|hex| !hex.bytes().any(|b| b.is_ascii_uppercase()));
        hex.and_then(|hex| blake3::Hash::from_hex(hex).ok())
            .map(Self)
            .ok_or_else(|| format!("expected a digest, `{ALGORITHM}` and 64 hexadecimal digits, found `{text}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_written_and_read_alike() {
        // The digest of no bytes, from the test vectors that come with the BLAKE3 specification.
        let text = "blake3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Digest::of_bytes(b"").to_string(), text);
        assert_eq!(Digest::try_from(text.to_string()), Ok(Digest::of_bytes(b"")));
        for bad in ["", "af13", "sha256:00", "blake3:", "blake3:af13", &text.to_uppercase(), &format!("{text}0")] {
            assert!(Digest::try_from(bad.to_string()).unwrap_err().contains("expected a digest"), "{bad}");
        }
    }

    #[test]
    fn a_file_has_the_digest_of_its_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        assert_eq!(Digest::of_file(&path).unwrap(), Digest::of_bytes(&vec![7; 100_000]));
        assert!(Digest::of_file(dir.path()).unwrap_err().message().contains("found a directory"));
    }
}
