//! Random bytes, and random changes to a sound run: an error or a run that loads, never a panic.

use proptest::prelude::*;

use crate::recording::{Recording, load_all, two_tensors};

const FILES: &[&str] =
    &["run.json", "layers.jsonl", "tensors.safetensors", "stats.jsonl", "tensors.safetensors.index.json"];

fn complete() -> Recording {
    let run = Recording::sound();
    run.write("stats.jsonl", "{\"tensor\":\"x\",\"dtype\":\"float32\",\"shape\":[2],\"min\":-1,\"nan\":0}\n");
    run.write(
        "tensors.safetensors.index.json",
        r#"{"weight_map":{"x":"tensors.safetensors","y":"tensors.safetensors"}}"#,
    );
    run
}

/// Opens and loads; what opens must load, and no more than its files hold.
fn examine(run: &Recording) {
    let Ok(opened) = run.open() else { return };
    let on_disk: u64 = FILES.iter().filter_map(|name| std::fs::metadata(run.file(name)).ok()).map(|m| m.len()).sum();
    let stored: u64 = opened.tensors.iter().filter_map(|t| t.stored.as_ref()).map(|s| s.len).sum();
    assert!(stored <= on_disk, "{stored} bytes of tensors in {on_disk} bytes of files");
    load_all(&opened).expect("what was accepted when the run was opened loads");
    opened.terminal_layers().iter().for_each(|layer| drop(opened.ancestors(*layer)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes(file in 0..FILES.len(), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let run = complete();
        run.write(FILES[file], bytes);
        examine(&run);
    }

    #[test]
    fn changed_bytes(
        file in 0..FILES.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let run = complete();
        let mut bytes = std::fs::read(run.file(FILES[file])).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        run.write(FILES[file], bytes);
        examine(&run);
    }

    /// Numbers in headers are what attackers change.
    #[test]
    fn changed_numbers(shape in prop::collection::vec(any::<u64>(), 0..4), offsets: (u64, u64), length: Option<u64>) {
        let header = format!(
            r#"{{"x":{{"dtype":"F32","shape":{shape:?},"data_offsets":[{},{}]}}}}"#, offsets.0, offsets.1
        );
        let mut bytes = length.unwrap_or(header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.bytes());
        bytes.extend([0; 32]);
        let run = Recording::sound();
        run.write("tensors.safetensors", bytes);
        examine(&run);
    }

    /// What the safetensors crate takes, this reader takes, and the reverse, as long as no name repeats.
    #[test]
    fn agrees_with_the_reference_reader(
        changes in prop::collection::vec((any::<prop::sample::Index>(), b'0'..=b'9'), 0..3),
        extra in 0usize..2,
    ) {
        let mut bytes = two_tensors();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.extend(vec![0; extra]);
        let run = Recording::sound();
        run.write("tensors.safetensors", &bytes);
        let reference = safetensors::SafeTensors::deserialize(&bytes);
        prop_assert_eq!(run.open().is_ok(), reference.is_ok(), "{:?} / {:?}", run.open().map(|r| r.tensors), reference.map(|t| t.len()));
    }
}
