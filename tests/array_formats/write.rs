//! Writes small files as numpy and zip writers do, and as they never would.

use std::io::Write;
use std::path::{Path, PathBuf};

use goldline::run::Run;

/// A directory in which a test writes.
pub(crate) struct Place(tempfile::TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The one line with which `name` is refused, when it is opened or when its tensors are loaded; without
    /// the directory.
    #[track_caller]
    pub(crate) fn refusal(&self, name: &str) -> String {
        let path = self.path(name);
        let error = match Run::open(&path) {
            Err(error) => error,
            Ok(run) => load_all(&run).expect_err("an error"),
        };
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        let directory = format!("{}/", self.0.path().display());
        text.replace(&directory, "")
    }
}

/// Loads every tensor of a run.
pub(crate) fn load_all(run: &Run) -> goldline::error::Result<()> {
    for id in 0..run.tensors.len() {
        run.load(goldline::run::TensorId(id as u32))?;
    }
    Ok(())
}

/// A `.npy` array with this dict as its header.
pub(crate) fn npy_of(header: &str, elements: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements);
    bytes
}

/// A float32 vector.
pub(crate) fn npy(values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let elements: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    npy_of(&header, &elements)
}

/// A float16 vector.
pub(crate) fn npy_f16(values: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f2', 'fortran_order': False, 'shape': ({},), }}", values.len());
    let elements: Vec<u8> = values.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect();
    npy_of(&header, &elements)
}

/// A member of a zip archive, with what the directory says of it.
pub(crate) struct Member {
    pub(crate) name: String,
    /// Bytes as they lie in the file.
    pub(crate) raw: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) len: u32,
    pub(crate) crc: u32,
}

impl Member {
    pub(crate) fn stored(name: &str, content: &[u8]) -> Self {
        let crc = crc32fast::hash(content);
        Self { name: name.into(), raw: content.to_vec(), method: 0, len: content.len() as u32, crc }
    }

    pub(crate) fn deflated(name: &str, content: &[u8]) -> Self {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(content).unwrap();
        let raw = encoder.finish().unwrap();
        Self { raw, method: 8, ..Self::stored(name, content) }
    }
}

/// A zip archive. `offset_of` gives where the directory says that member `n` begins, its real place given.
pub(crate) fn zip(members: &[Member], offset_of: impl Fn(usize, u32) -> u32) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (at, member) in members.iter().enumerate() {
        let offset = offset_of(at, file.len() as u32);
        let mut common = Vec::new();
        common.extend(20u16.to_le_bytes());
        common.extend(0u16.to_le_bytes());
        common.extend(member.method.to_le_bytes());
        common.extend([0; 4]);
        common.extend(member.crc.to_le_bytes());
        common.extend((member.raw.len() as u32).to_le_bytes());
        common.extend(member.len.to_le_bytes());
        common.extend((member.name.len() as u16).to_le_bytes());
        common.extend(0u16.to_le_bytes());
        file.extend(b"PK\x03\x04");
        file.extend(&common);
        file.extend(member.name.as_bytes());
        file.extend(&member.raw);
        directory.extend(b"PK\x01\x02");
        directory.extend(20u16.to_le_bytes());
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(member.name.as_bytes());
    }
    let start = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06");
    file.extend([0; 4]);
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((members.len() as u16).to_le_bytes());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(start.to_le_bytes());
    file.extend([0; 2]);
    file
}

/// A sound archive of these members.
pub(crate) fn npz(members: &[Member]) -> Vec<u8> {
    zip(members, |_, offset| offset)
}

/// Runs the command line in `directory`.
pub(crate) fn goldline(directory: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = assert_cmd::Command::cargo_bin("goldline").unwrap();
    let output = command.current_dir(directory).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}
