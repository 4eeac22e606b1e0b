//! Random bytes, and changes to sound files: an error or a run that loads or says why not, never a panic.

use std::sync::LazyLock;

use goldline::run::Run;
use proptest::prelude::*;

use super::data;
use super::write::{Member, Place, load_all, npy, npz};

/// Sound files by the name under which they are opened.
static SOUND: LazyLock<Vec<(&str, Vec<u8>)>> = LazyLock::new(|| {
    let read = |path: &str| std::fs::read(data(path)).unwrap();
    vec![
        ("a.npy", read("numpy/big_fortran.npy")),
        ("a.npy", read("numpy/version3.npy")),
        ("a.npz", npz(&[Member::stored("x.npy", &npy(&[1.0, 2.0])), Member::deflated("y.npy", &npy(&[0.5; 40]))])),
        ("a.json", read("polygraphy/one.json")),
        ("M_debug_tree_FULL_TENSORS.json", read("transformers/float32/BertModel_debug_tree_SUMMARY.json")),
        ("s/error_analysis.txt", read("rknn/snapshot/error_analysis.txt")),
        ("s/map_name_to_file.txt", read("rknn/snapshot/map_name_to_file.txt")),
    ]
});

/// Opens and loads; no more than what a file of this size can unpack to is ever held.
fn examine(name: &str, bytes: &[u8]) {
    let place = Place::new();
    let mut path = place.write(name, bytes);
    if name.starts_with("s/") {
        path = place.write("s/golden/npy/505.npy", npy(&[1.0])).parent().unwrap().to_path_buf();
    }
    let Ok(run) = Run::open(path) else { return };
    for stored in run.tensors.iter().filter_map(|tensor| tensor.stored.as_ref()) {
        // A snapshot has a small array beside its table.
        let held = bytes.len() as u64 + 200;
        assert!(stored.len <= 1100 * held, "{} bytes of files of {held}", stored.len);
    }
    let _ = load_all(&run);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(file in 0..SOUND.len(), bytes in prop::collection::vec(any::<u8>(), 0..200), keep in 0usize..64) {
        let (name, sound) = &SOUND[file];
        let head = &sound[..keep.min(sound.len())];
        examine(name, &[head, &bytes].concat());
    }

    #[test]
    fn changed_bytes(
        file in 0..SOUND.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (name, sound) = &SOUND[file];
        let mut bytes = sound.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        examine(name, &bytes);
    }

    /// What the header says of dtype, order and shape is what attackers change.
    #[test]
    fn changed_headers(
        descr in "[<>|=!]?[a-zA-Z?][0-9]{0,3}",
        fortran: bool,
        shape in prop::collection::vec(prop_oneof![0u64..6, any::<u64>()], 0..5),
        len in 0usize..200,
    ) {
        let order = if fortran { "True" } else { "False" };
        let shape: String = shape.iter().map(|extent| format!("{extent},")).collect();
        let header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
        examine("a.npy", &super::write::npy_of(&header, &vec![1; len]));
    }
}
