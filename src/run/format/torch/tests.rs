//! Files of real torch (`tests/data/make_torch.py` wrote them) read back to equal bits, and what is no file
//! of tensors is refused by name.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::run::format::container::{self, Found};
use crate::run::format::load;

fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch").join(name)
}

/// Name, dtype, shape and SHA-256 of a tensor's bytes.
type Expected = (String, String, Vec<usize>, String);

fn expected() -> BTreeMap<String, Vec<Expected>> {
    serde_json::from_str(&std::fs::read_to_string(data("expected.json")).unwrap()).unwrap()
}

fn loaded(name: &str, found: &Found) -> Expected {
    let tensor = load::tensor(&data(name), &found.name, &found.stored).unwrap();
    let digest: String = Sha256::digest(tensor.bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    (found.name.clone(), tensor.dtype().name().into(), tensor.shape().to_vec(), digest)
}

fn open(name: &str) -> Vec<Found> {
    container::tensors(&data(name), 0).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn every_file_of_torch_reads_back_to_equal_bits() {
    let expected = expected();
    assert!(expected.len() > 20, "a part of the files is gone");
    for (name, tensors) in expected {
        let read: Vec<Expected> = open(&name).iter().map(|found| loaded(&name, found)).collect();
        assert_eq!(read, tensors, "{name}");
    }
}

#[test]
fn a_checksum_is_given_only_for_a_whole_storage() {
    let bare = &open("bare.pt")[0];
    let bytes = load::tensor(&data("bare.pt"), "", &bare.stored).unwrap();
    assert_eq!(bare.crc32, Some(crc32fast::hash(bytes.bytes())));
    assert!(bare.stored.layout.is_none(), "a plain tensor lies dense");
    let with_checksum: Vec<String> =
        open("views.pt").into_iter().filter(|found| found.crc32.is_some()).map(|found| found.name).collect();
    assert_eq!(with_checksum, ["base"]);
    assert!(open("legacy.pt")[0].crc32.is_none());
    assert!(open("no_checksums.pt").iter().all(|found| found.crc32.is_none()), "0 is written for all");
}

#[test]
fn whatever_is_no_dense_tensor_is_refused_by_name() {
    let reason = |name: &str| container::tensors(&data(name), 0).unwrap_err().to_string();
    for (name, what) in [
        ("quantised.pt", "a quantised tensor (`torch._utils._rebuild_qtensor`)"),
        ("sparse.pt", "a sparse tensor (`torch._utils._rebuild_sparse_tensor`)"),
        ("sparse_csr.pt", "a sparse tensor (`torch._utils._rebuild_sparse_tensor`)"),
        ("meta.pt", "a tensor without data (device `meta`) (`torch._utils._rebuild_meta_tensor_no_storage`)"),
        ("numpy.pt", "a numpy array (`numpy._core.multiarray._reconstruct`)"),
        ("complex128.pt", "complex128"),
        ("module.pt", "`torch.nn.modules.linear.Linear`: nothing of it was executed"),
    ] {
        let reason = reason(name);
        assert!(reason.contains(&format!("found {what}")), "{reason}");
        assert!(reason.contains("data.pkl`: expected "), "{reason}");
    }
}

#[test]
fn the_byte_is_that_of_the_file() {
    let error: Error = container::tensors(&data("numpy.pt"), 0).unwrap_err();
    let Some(crate::error::Place::Byte(byte)) = error.place() else { panic!("{error}") };
    let bytes = std::fs::read(data("numpy.pt")).unwrap();
    assert!(bytes[byte as usize..].starts_with(b"cnumpy._core.multiarray\n_reconstruct\n"), "{error}");
}
