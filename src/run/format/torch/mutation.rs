//! Files of torch with bytes changed or cut off, and random sequences of opcodes: an error or tensors that
//! lie in the file, never a panic.

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use super::{listing, opcode as op, pickle};
use crate::run::format::{container, load};

const SAMPLES: &[&str] =
    &["bare.pt", "nested.pt", "complex_views.pt", "parameters.pt", "protocol_4.pt", "legacy_views.pt", "rezipped.pt"];

fn sample(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/torch").join(name);
    std::fs::read(path).unwrap()
}

/// Opens and loads; whatever opens lies within the file.
fn examine(path: &Path, length: u64) {
    let Ok(found) = container::tensors(path, 0) else { return };
    assert!(found.len() as u64 <= length, "{} tensors in {length} bytes", found.len());
    for found in found {
        let stored = &found.stored;
        let span = stored.layout.as_ref().map_or(stored.len, |layout| layout.span);
        assert!(stored.offset + span <= length, "{stored:?} in {length} bytes");
        // A repeated view may be long; whether it loads is tested elsewhere.
        if stored.len < 1 << 20
            && let Ok(tensor) = load::tensor(path, &found.name, stored)
        {
            assert_eq!(tensor.bytes().len() as u64, stored.len);
        }
    }
}

/// Opcodes that most change what follows, with short arguments.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    const BARE: &[u8] = &[
        op::MARK,
        op::POP,
        op::POP_MARK,
        op::DUP,
        op::NONE,
        op::NEWTRUE,
        op::EMPTY_LIST,
        op::LIST,
        op::APPEND,
        op::APPENDS,
        op::EMPTY_TUPLE,
        op::TUPLE,
        op::TUPLE1,
        op::TUPLE2,
        op::TUPLE3,
        op::EMPTY_DICT,
        op::DICT,
        op::SETITEM,
        op::SETITEMS,
        op::EMPTY_SET,
        op::ADDITEMS,
        op::FROZENSET,
        op::MEMOIZE,
        op::STACK_GLOBAL,
        op::REDUCE,
        op::NEWOBJ,
        op::BUILD,
        op::BINPERSID,
    ];
    const NAMES: &[&str] = &[
        "ctorch._utils\n_rebuild_tensor_v2\n",
        "ctorch._utils\n_rebuild_tensor_v3\n",
        "ctorch._utils\n_rebuild_parameter\n",
        "ctorch._tensor\n_rebuild_from_type_v2\n",
        "ctorch\nFloatStorage\n",
        "ctorch.storage\nUntypedStorage\n",
        "ctorch\nfloat16\n",
        "ctorch\nSize\n",
        "ctorch\nTensor\n",
        "ccollections\nOrderedDict\n",
        "c_codecs\nencode\n",
    ];
    const TEXTS: &[&[u8]] =
        &[b"X\x07\0\0\0storage", b"X\x01\0\0\x000", b"X\x03\0\0\0cpu", b"X\x04\0\0\0conj", b"U\x01\xff"];
    prop_oneof![
        prop::sample::select(BARE).prop_map(|code| vec![code]),
        prop::sample::select(NAMES).prop_map(|name| name.as_bytes().to_vec()),
        prop::sample::select(TEXTS).prop_map(<[u8]>::to_vec),
        (0u8..4).prop_map(|key| vec![op::BINPUT, key]),
        (0u8..4).prop_map(|key| vec![op::BINGET, key]),
        (0u8..5).prop_map(|number| vec![op::BININT1, number]),
        any::<i32>().prop_map(|number| [&[op::BININT], &number.to_le_bytes()[..]].concat()),
        // A storage, and a tensor that may leave it.
        Just(b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ".to_vec()),
        (0u8..6, 0u8..5, 0u8..5).prop_map(|(offset, extent, stride)| {
            let start = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ";
            [&start[..], &[b'K', offset, b'K', extent, 0x85, b'K', stride, 0x85, 0x89, b'}', b't', b'R']].concat()
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes(
        name in prop::sample::select(SAMPLES),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = sample(name);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.pt");
        std::fs::write(&path, &bytes).unwrap();
        examine(&path, bytes.len() as u64);
    }

    #[test]
    fn random_opcodes(fragments in prop::collection::vec(fragment(), 0..60)) {
        let bytes = [&b"\x80\x02"[..], &fragments.concat(), b"."].concat();
        if let Ok(graph) = pickle::read(&bytes) {
            let listed = listing::tensors(&graph).map_or(0, |listed| listed.len());
            prop_assert!(listed <= 2 * bytes.len() + 1000);
        }
    }

    #[test]
    fn random_bytes(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(graph) = pickle::read(&bytes) {
            prop_assert!(graph.end <= bytes.len());
            drop(listing::tensors(&graph));
        }
    }
}
