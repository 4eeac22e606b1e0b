//! Goldens that were changed behind Goldline's back.

use std::path::Path;

use goldline::golden::{Golden, RecordOutcome};

use crate::fixture::{Model, Project, check_all, refusal, updating};

/// Flips a bit of the last byte, which belongs to a tensor.
fn flip_last_byte(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_in_a_tensor_is_found_when_it_is_read() {
    let project = Project::recorded();
    let file = project.golden().join("tensors.safetensors");
    flip_last_byte(&file);
    let golden = Golden::open(project.golden()).unwrap();
    let error = refusal(check_all(&golden));
    let (place, text) = error.split_once(": byte ").unwrap();
    assert_eq!(place, file.to_str().unwrap());
    // The mask is the narrowest tensor and therefore the last.
    assert!(text.contains("tensor `t3` is not as it was recorded: expected blake3:"), "{error}");
    assert!(text.contains(&format!("found blake3:{}", blake3::hash(&[1, 0, 1, 0]))), "{error}");
}

#[test]
fn a_damaged_golden_is_told_and_repaired_by_an_update() {
    let project = Project::recorded();
    flip_last_byte(&project.golden().join("tensors.safetensors"));
    let run = project.path("runs/a");
    let refused = project.record(std::slice::from_ref(&run), &Default::default()).unwrap();
    let RecordOutcome::Refused(changes) = refused else { panic!("{refused:?}") };
    let lines = changes.lines();
    assert!(lines.len() == 1 && lines[0].starts_with("tensor `draw:0`: the old one is damaged"), "{lines:?}");
    assert!(matches!(project.record(std::slice::from_ref(&run), &updating()).unwrap(), RecordOutcome::Replaced(..)));
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);

    std::fs::write(project.golden().join("golden.json"), "torn").unwrap();
    let refused = project.record(std::slice::from_ref(&run), &Default::default()).unwrap();
    let RecordOutcome::Refused(changes) = refused else { panic!("{refused:?}") };
    assert!(changes.lines()[0].starts_with("the old golden cannot be read"), "{:?}", changes.lines());
    assert!(matches!(project.record(&[run], &updating()).unwrap(), RecordOutcome::Replaced(..)));
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
}

#[test]
fn edited_metadata_is_found_before_it_is_used() {
    for name in ["layers.jsonl", "run.json"] {
        let project = Project::recorded();
        let file = project.golden().join(name);
        let before = std::fs::read(&file).unwrap();
        let after = String::from_utf8(before.clone()).unwrap().replace("relu", "gelu").replace("gpu", "npu");
        assert_ne!(before, after.as_bytes());
        std::fs::write(&file, &after).unwrap();
        let expected = format!(
            "{}: the golden is not as it was recorded: expected blake3:{}, found blake3:{}",
            file.display(),
            blake3::hash(&before),
            blake3::hash(after.as_bytes())
        );
        assert_eq!(refusal(Golden::open(project.golden())), expected);
        std::fs::remove_file(&file).unwrap();
        assert!(refusal(Golden::open(project.golden())).contains(name));
    }
}

#[test]
fn files_and_tensors_that_came_or_went_are_found() {
    let project = Project::recorded();
    let stats = project.golden().join("stats.jsonl");
    std::fs::write(&stats, "").unwrap();
    let error = refusal(Golden::open(project.golden()));
    assert!(error.contains("stats.jsonl: expected no such file"), "{error}");
    std::fs::remove_file(stats).unwrap();

    let tensors = project.golden().join("tensors.safetensors");
    let other = project.run("b", &Model { ids: ["t0", "t1", "t2", "t3", "extra"], ..Model::default() });
    std::fs::copy(other.join("tensors.safetensors"), &tensors).unwrap();
    let error = refusal(Golden::open(project.golden()));
    assert!(error.contains("tensor `extra` was added since the golden was recorded"), "{error}");

    let other = project.run("b", &Model { z: vec![0.0; 5], ..Model::default() });
    std::fs::copy(other.join("tensors.safetensors"), &tensors).unwrap();
    let error = refusal(Golden::open(project.golden()));
    assert!(error.contains("tensor `t4`: expected float32 [4] as recorded, found float32 [5]"), "{error}");

    std::fs::remove_file(&tensors).unwrap();
    let error = refusal(Golden::open(project.golden()));
    assert!(error.contains("golden.json: tensor `t0` is listed, found no such tensor"), "{error}");
}

#[test]
fn golden_json_may_hold_anything() {
    let project = Project::recorded();
    let file = project.golden().join("golden.json");
    let sound = std::fs::read_to_string(&file).unwrap();
    let case = |from: &str, to: &str| {
        assert!(sound.contains(from), "{from}");
        sound.replacen(from, to, 1)
    };
    let hostile = [
        (String::new(), "line 1: expected a JSON object, found an empty file"),
        ("<html>".into(), "line 1: expected a JSON object, found something else"),
        ("[]".into(), "line 1: expected a JSON object"),
        ("{}".into(), "line 1: missing field `schema`"),
        (sound.get(..40).unwrap().into(), "unexpected end while parsing"),
        (
            case("goldline.golden/1", "goldline.golden/2"),
            "expected schema `goldline.golden/1`, found `goldline.golden/2`",
        ),
        (case("\"runs\": 1", "\"runs\": -1"), "expected u32"),
        (case("\"runs\": 1", "\"runs\": 0"), "expected `runs` of at least 1"),
        (case("\"seed\": 7", "\"seed\": \"7\""), "invalid type: string \"7\", expected i64"),
        (case("blake3:", "md5:"), "expected a digest"),
        (case("float32", "float33"), "`float33` is no known dtype"),
        (case("\"run.json\"", "\"../run.json\""), "found `../run.json`"),
        (case("\"run.json\"", "\"stats.jsonl\""), "expected a digest of `run.json`"),
        (case("\"in_place\": false", "\"in_place\": true"), "found `in_place` alone"),
        (case("\"recorded_at\": \"2", "\"recorded_at\": \"x2"), "expected a time (RFC 3339)"),
    ];
    for (text, expected) in hostile {
        std::fs::write(&file, text).unwrap();
        let error = refusal(Golden::open(project.golden()));
        assert!(error.contains(expected) && error.contains("golden.json"), "{expected}: {error}");
    }
    let source = "\"in_place\": true, \"source\": \"../../none\"";
    std::fs::write(&file, case("\"in_place\": false", source)).unwrap();
    assert!(refusal(Golden::open(project.golden())).contains("../../none`, found nothing"));
    let source = "\"in_place\": true, \"source\": \"golden.json\"";
    std::fs::write(&file, case("\"in_place\": false", source)).unwrap();
    assert!(refusal(Golden::open(project.golden())).contains("found a file"));
    // A key that a later version added is no error.
    std::fs::write(&file, case("\"runs\": 1", "\"runs\": 1, \"later\": {}")).unwrap();
    assert_eq!(check_all(&Golden::open(project.golden()).unwrap()).unwrap(), 5);
}

#[test]
fn a_golden_json_beyond_any_use_is_not_read() {
    let project = Project::recorded();
    let file = project.golden().join("golden.json");
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len((64 << 20) + 1).unwrap();
    let error = refusal(Golden::open(project.golden()));
    assert!(error.contains("expected at most 67108864 bytes, found 67108865"), "{error}");
}
