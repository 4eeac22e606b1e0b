//! Each format goes through `inspect`, `convert` and `diff`, mixed with what it was converted to.

use super::data;
use super::write::{Place, goldline};

const RUNS: &[(&str, &str)] = &[
    ("numpy/float32.npy", "npy"),
    ("numpy/big_fortran.npy", "npy"),
    ("numpy/bfloat16.npy", "npy"),
    ("numpy/stored.npz", "npz"),
    ("numpy/deflated.npz", "npz"),
    ("numpy/tpu_mlir.npz", "npz"),
    ("safetensors/checkpoint.safetensors", "safetensors"),
    ("safetensors/mixed", "directory of files of tensors"),
    ("transformers/float32", "transformers debug tree"),
    ("transformers/float32/BertModel_debug_tree_FULL_TENSORS.json", "transformers debug tree"),
    ("polygraphy/one.json", "Polygraphy RunResults"),
    ("polygraphy/several.json", "Polygraphy RunResults"),
    ("rknn/snapshot/golden", "RKNN accuracy analysis"),
    ("rknn/snapshot/simulator/npy", "RKNN accuracy analysis"),
];

#[test]
fn inspect_says_what_it_found() {
    for (path, format) in RUNS {
        let (status, out, error) = goldline(&data(""), &["inspect", path, "--json"]);
        assert_eq!((status, error.as_str()), (0, ""), "{path}");
        let found: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert_eq!(found["facts"]["format"], *format, "{path}");
        assert!(found["stored"].as_u64().unwrap() > 0, "{path}");
        assert_eq!(found["unknown_operators"].as_array().unwrap().len(), 0, "{path}");
    }
}

#[test]
fn convert_writes_a_native_run_that_is_equal() {
    for (path, _) in RUNS {
        let place = Place::new();
        let out = place.path("native");
        let out = out.to_str().unwrap();
        let (status, _, error) = goldline(&data(""), &["convert", path, out]);
        assert_eq!(status, 0, "{path}: {error}");
        assert!(place.path("native/run.json").is_file());
        for order in [[*path, out], [out, *path]] {
            let (status, said, error) = goldline(&data(""), &["diff", order[0], order[1], "--bitwise", "--json"]);
            assert_eq!(status, 0, "{path}: {said}{error}");
            let report: serde_json::Value = serde_json::from_str(&said).unwrap();
            assert_eq!(report["verdict"], "pass", "{path}");
            assert_eq!(report["summary"]["missing"], 0, "{path}");
        }
    }
}

#[test]
fn a_tree_of_printed_values_still_compares() {
    let (status, out, _) = goldline(&data("transformers"), &["diff", "float16", "printed", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((status, report["verdict"].as_str()), (0, Some("pass")), "{out}");
}

#[test]
fn what_is_none_of_these_is_refused_with_what_was_found() {
    let place = Place::new();
    let directory = place.write("a/b.json", "{\"hello\": 1}").parent().unwrap().to_path_buf();
    for path in [".", "b.json"] {
        let (status, _, error) = goldline(&directory, &["inspect", path]);
        assert_eq!(status, 2);
        for read in ["run.json", "msprobe", ".npy", ".npz", ".pt", ".safetensors", "Hugging Face", "Polygraphy", "RKNN"]
        {
            assert!(error.contains(read), "{read}: {error}");
        }
    }
    let (_, _, error) = goldline(&directory, &["inspect", "b.json"]);
    assert!(error.trim_end().ends_with("found a JSON object"), "{error}");
}
