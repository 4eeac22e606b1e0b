//! Bad files: each gives one clear line, none a panic or an allocation that the file cannot justify.

mod mutation;
mod recording;

use recording::{Recording, load_all, safetensors, two_tensors};

/// The error's line, with this as the tensor file.
#[track_caller]
fn refusal_of_tensors(content: impl AsRef<[u8]>) -> String {
    let run = Recording::sound();
    run.write("tensors.safetensors", content);
    run.refusal()
}

#[test]
fn the_sound_recording_is_sound() {
    let run = Recording::sound().open().unwrap();
    assert!(run.warnings.is_empty());
}

#[test]
fn files_that_are_something_else_are_named() {
    let refusal = |content: &str| refusal_of_tensors(content);
    let expected = "tensors.safetensors: expected a safetensors file, found";
    assert_eq!(refusal(""), format!("{expected} an empty file"));
    assert_eq!(refusal("abc"), format!("{expected} a file of less than 8 bytes"));
    assert_eq!(refusal("<!DOCTYPE html><html><body>404</body></html>"), format!("{expected} an HTML page"));
    assert!(refusal("PK\x03\x04\0\0\0\0\0\0\0\0\0\0").starts_with(&format!("{expected} a zip archive")));
    assert!(refusal("version https://git-lfs.github.com/spec/v1\noid").contains("Git LFS pointer"));
    assert_eq!(refusal(&"\0".repeat(64)), format!("{expected} nothing but zero bytes"));
}

#[test]
fn header_lengths_beyond_the_file_are_refused_before_anything_is_read() {
    for length in [u64::MAX, 1 << 63, 1 << 40, 100_000_001, 9] {
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(b"{      }");
        let text = refusal_of_tensors(bytes);
        let expected = format!(
            "tensors.safetensors: byte 0: expected a header within the file's 16 bytes, found a header length of {length}"
        );
        assert_eq!(text, expected);
    }
}

#[test]
fn a_header_longer_than_the_format_allows_is_refused_though_the_file_is_as_long() {
    let run = Recording::sound();
    run.write("tensors.safetensors", 100_000_001u64.to_le_bytes());
    // Sparse: the length takes no room on the disk.
    std::fs::OpenOptions::new()
        .write(true)
        .open(run.file("tensors.safetensors"))
        .unwrap()
        .set_len(200_000_000)
        .unwrap();
    assert!(run.refusal().ends_with("expected a header of 1 to 100000000 bytes, found a header length of 100000001"));
}

#[test]
fn a_truncated_file_says_which_tensor_is_cut_and_where() {
    let whole = two_tensors();
    let text = refusal_of_tensors(&whole[..whole.len() - 3]);
    let (end, cut) = (whole.len(), whole.len() - 3);
    let expected = format!(
        "tensors.safetensors: byte {cut}: expected tensor `y` up to byte {end}, the file ends at byte {cut}: it is truncated"
    );
    assert_eq!(text, expected);
    let mut longer = whole.clone();
    longer.push(0);
    let text = refusal_of_tensors(longer);
    assert!(text.contains(&format!("at byte {end}, found {} bytes", end + 1)), "{text}");
    for cut in 0..whole.len() {
        refusal_of_tensors(&whole[..cut]);
    }
}

/// The refusal of one file with this header and 16 bytes of data, after file and byte.
#[track_caller]
fn of_header(header: &str) -> String {
    let text = refusal_of_tensors(safetensors(header, &[0; 16]));
    let rest = text.strip_prefix("tensors.safetensors: byte ").expect("file and byte");
    rest.split_once(": ").unwrap().1.to_string()
}

#[test]
fn extents_that_lie_are_refused() {
    let one = |dtype: &str, shape: &str, begin: u64, end: u64| {
        of_header(&format!(r#"{{"a":{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{begin},{end}]}}}}"#))
    };
    assert_eq!(one("F32", "[3]", 0, 16), "expected 12 bytes for tensor `a` (F32 [3]), found 16");
    assert_eq!(one("F32", "[4]", 16, 0), "tensor `a` ends before it begins: data_offsets [16, 0]");
    assert_eq!(one("F32", "[2]", 8, 16), "8 bytes before tensor `a` belong to no tensor");
    assert_eq!(one("F9", "[4]", 0, 16), "tensor `a` has the unknown dtype `F9`");
    let overflow = "has no whole number of bytes that fits memory";
    assert!(one("U8", "[4294967296,4294967296,16]", 0, 16).ends_with(overflow));
    assert!(one("F64", "[18446744073709551615]", 0, 16).ends_with(overflow));
    assert!(one("F4", "[31]", 0, 16).ends_with(overflow));
    assert!(one("F32", "[4]", 0, u64::MAX).starts_with("expected 16 bytes for tensor `a`"));
    assert!(one("F32", "[-4]", 0, 16).starts_with("the header is no list of tensors: invalid value"));
    assert!(one("F32", "[1.5]", 0, 16).starts_with("the header is no list of tensors: invalid type"));
    // Whole and consistent, but for the file: nothing of this size is there.
    assert!(one("U8", "[1099511627776]", 0, 1 << 40).ends_with("it is truncated"));
}

#[test]
fn tensors_that_overlap_or_repeat_are_refused() {
    let two = |a: (&str, u64, u64), b: (&str, u64, u64)| {
        let entry = |(name, begin, end): (&str, u64, u64)| {
            format!(r#""{name}":{{"dtype":"U8","shape":[{}],"data_offsets":[{begin},{end}]}}"#, end - begin)
        };
        of_header(&format!("{{{},{}}}", entry(a), entry(b)))
    };
    assert_eq!(two(("a", 0, 10), ("b", 8, 16)), "tensor `b` overlaps tensor `a`");
    assert_eq!(two(("a", 0, 7), ("b", 8, 16)), "1 bytes before tensor `b` belong to no tensor");
    assert_eq!(two(("a", 0, 16), ("a", 0, 16)), "tensor `a` is listed twice");
}

#[test]
fn a_header_that_is_no_json_says_where() {
    let text = refusal_of_tensors(safetensors("{\"a\":\n  oops}", &[]));
    assert!(
        text.starts_with("tensors.safetensors: byte 16: the header is no list of tensors: expected value"),
        "{text}"
    );
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    refusal_of_tensors(safetensors(&deep, &[]));
    refusal_of_tensors(safetensors("[]", &[]));
    refusal_of_tensors(b"\x04\0\0\0\0\0\0\0\"\xff\xfe\"");
}

#[test]
fn names_cannot_write_to_the_terminal_or_lead_elsewhere() {
    let header = r#"{"\u001b[2J../../etc/passwd\n\u202e":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}}"#;
    let text = of_header(header);
    assert!(text.contains("`\\u{1b}[2J../../etc/passwd\\u{a}\\u{202e}`"), "{text}");

    let run = Recording::sound();
    for name in ["../tensors.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""] {
        run.write("tensors.safetensors.index.json", format!(r#"{{"weight_map":{{"x":"{name}"}}}}"#));
        let expected = format!("expected the name of a file beside the index, found `{name}`");
        assert!(run.refusal().ends_with(&expected), "{}", run.refusal());
    }
}

#[test]
fn a_file_that_shrinks_between_open_and_load_is_an_error() {
    let recording = Recording::sound();
    let run = recording.open().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(recording.file("tensors.safetensors")).unwrap();
    file.set_len(20).unwrap();
    let error = load_all(&run).unwrap_err().to_string();
    assert!(error.contains("tensor `x`, the file now ends at byte 20: it has changed since it was opened"), "{error}");
    recording.remove("tensors.safetensors");
    assert!(load_all(&run).unwrap_err().message().contains("no such file"));
}

#[test]
fn shapes_in_statistics_are_no_larger_than_memory() {
    let run = Recording::sound();
    run.write("stats.jsonl", r#"{"tensor":"y","dtype":"float32","shape":[18446744073709551615,2]}"#);
    let expected =
        "stats.jsonl: line 1: expected a shape that memory can hold for tensor `y`, found [18446744073709551615, 2]";
    assert_eq!(run.refusal(), expected);
}

#[test]
fn deep_nesting_and_endless_lines_are_refused() {
    let run = Recording::sound();
    let deep = "{\"a\":".repeat(10_000);
    run.write("layers.jsonl", format!("{{\"name\":\"x\",\"op\":\"y\",\"outputs\":[],\"attrs\":{deep}\n"));
    assert!(run.refusal().starts_with("layers.jsonl: line 1: recursion limit exceeded"), "{}", run.refusal());
    run.write("run.json", deep);
    assert!(run.refusal().starts_with("run.json: line 1: "), "{}", run.refusal());

    let run = Recording::sound();
    run.write("layers.jsonl", vec![b' '; (16 << 20) + 1]);
    let expected = "layers.jsonl: line 1: expected a line of at most 16777216 bytes, found a longer one";
    assert_eq!(run.refusal(), expected);
}

#[cfg(unix)]
#[test]
fn pipes_and_directories_in_place_of_files_never_block() {
    for name in ["run.json", "layers.jsonl", "tensors.safetensors", "stats.jsonl", "tensors.safetensors.index.json"] {
        let run = Recording::sound();
        let _ = std::fs::remove_file(run.file(name));
        let made = std::process::Command::new("mkfifo").arg(run.file(name)).status().unwrap();
        assert!(made.success());
        assert_eq!(run.refusal(), format!("{name}: expected a regular file, found a named pipe"));
        // A link to one is followed, and refused alike.
        std::fs::rename(run.file(name), run.file("pipe")).unwrap();
        std::os::unix::fs::symlink("pipe", run.file(name)).unwrap();
        assert_eq!(run.refusal(), format!("{name}: expected a regular file, found a named pipe"));
        run.remove(name);
        std::fs::create_dir(run.file(name)).unwrap();
        assert_eq!(run.refusal(), format!("{name}: expected a regular file, found a directory"));
    }
}

#[cfg(unix)]
#[test]
fn a_directory_without_permission_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let run = Recording::sound();
    let mode = |mode| std::fs::set_permissions(run.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    for closed in [0o000, 0o100] {
        mode(closed);
        // The superuser may read it all the same: then there is nothing to see here.
        let refused = std::fs::read_dir(run.path()).is_err();
        let text = refused.then(|| run.refusal());
        mode(0o700);
        if let Some(text) = text {
            assert_eq!(text, "RUN: cannot list the directory: permission denied");
        }
    }
}
