//! Hostile files: one clear line each, nothing executed, nothing read outside, nothing allocated that the
//! file cannot hold.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::data;
use super::write::{Member, Place, npy, npy_of, npz, zip};

/// The refusal of an array with this header, after file and byte.
#[track_caller]
fn of_header(header: &str) -> String {
    let place = Place::new();
    place.write("a.npy", npy_of(header, &[0; 24]));
    let text = place.refusal("a.npy");
    let rest = text.strip_prefix("a.npy: byte ").unwrap_or_else(|| panic!("{text}"));
    rest.split_once(": ").unwrap().1.to_string()
}

fn header(descr: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}")
}

#[test]
fn what_is_no_tensor_is_refused_by_name() {
    for (file, found) in [
        ("objects", "Python objects, which are never unpickled"),
        ("structured", "a structured array"),
        ("text", "text (dtype `<U2`)"),
        ("bytes", "text (dtype `|S2`)"),
        ("dates", "dates (dtype `<M8[D]`)"),
        ("complex128", "the unsupported dtype `<c16`"),
        ("float8_e4m3fn", "elements of one byte without a name (dtype `<V1`)"),
    ] {
        let error = goldline::run::Run::open(data(&format!("numpy/refused/{file}.npy"))).unwrap_err();
        assert!(error.message().starts_with(&format!("expected a tensor, found {found}")), "{file}: {error}");
    }
    let error = goldline::run::Run::open(data("numpy/refused/two_arrays.npy")).unwrap_err();
    assert!(error.message().ends_with("to end at byte 152, the file has 304 bytes"), "{error}");
}

#[test]
fn headers_are_read_and_never_evaluated() {
    assert_eq!(
        of_header("__import__('os').system('touch pwned')"),
        "expected `{` in the header, found `__import__('os').system(`"
    );
    assert_eq!(
        of_header(&header("'<f4'", "(__import__('os').getpid(),)")),
        "expected an extent that memory can hold in the header, found `__import__('os').getpid(`"
    );
    assert!(
        of_header("{'descr': '<f4', 'fortran_order': exit(), 'shape': (6,)}").starts_with("expected True or False")
    );
    assert!(of_header(&header("'<f4'.upper()", "(6,)")).starts_with("expected `}` in the header, found `.upper()"));
    assert!(of_header(&header("'\\x3cf4'", "(6,)")).starts_with("expected a string without escapes"));
    assert!(of_header("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'x': 1}").ends_with("found `x`"));
    assert!(of_header("{'descr': '<f4', 'descr': '<f8', 'fortran_order': False}").starts_with("`descr` stands twice"));
    assert_eq!(of_header("{'descr': '<f4', 'shape': (6,)}"), "the header lacks `fortran_order`");
    assert!(of_header(&format!("{} garbage", header("'<f4'", "(6,)"))).starts_with("expected the header's end"));
    assert!(of_header(&"{".repeat(60_000)).starts_with("expected a string"));
}

#[test]
fn byte_orders_and_dtypes_that_are_none() {
    for descr in ["'!f4'", "'f4'", "'|f4'", "'=f4'", "'|i8'"] {
        let text = of_header(&header(descr, "(6,)"));
        assert!(text.starts_with("expected `<` or `>` for the byte order"), "{descr}: {text}");
    }
    for descr in ["''", "'<'", "'<f3'", "'<x4'", "'é'", "'<f4 '", "'<V7'"] {
        let text = of_header(&header(descr, "(6,)"));
        assert!(text.starts_with("expected"), "{descr}: {text}");
    }
    assert!(of_header(&header("[('a', '<f4')]", "(6,)")).contains("structured"));
}

#[test]
fn shapes_and_lengths_that_lie() {
    let beyond = |shape: &str| of_header(&header("'<f4'", shape));
    for shape in ["(4294967296, 4294967296)", "(9223372036854775807,)", "(2305843009213693952,)"] {
        assert!(beyond(shape).starts_with("expected a shape that memory can hold"), "{shape}");
    }
    assert!(beyond("(99999999999999999999,)").starts_with("expected an extent that memory can hold"));
    assert!(beyond("(-6,)").starts_with("expected an extent"));
    assert!(beyond("(1099511627776,)").contains("the file has"));
    assert!(beyond("(7,)").contains("to end at byte"));
    assert!(beyond("(5,)").contains("to end at byte"));
    assert!(beyond(&format!("({})", "1,".repeat(65))).starts_with("expected at most 64 axes"));

    let place = Place::new();
    let mut long = npy(&[1.0]);
    long[8..10].copy_from_slice(&[0xff, 0xff]);
    place.write("a.npy", &long);
    assert!(place.refusal("a.npy").starts_with("a.npy: byte 8: expected a header within the "));
    let mut second = b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec();
    second.extend([b' '; 64]);
    place.write("a.npy", &second);
    assert!(place.refusal("a.npy").contains("expected a header of at most 65536 bytes, found a length of 4294967295"));
    second[6] = 9;
    place.write("a.npy", &second);
    assert!(place.refusal("a.npy").contains("expected version 1, 2 or 3 of the .npy format, found 9"));
    for cut in 0..long.len() {
        place.write("a.npy", &npy(&[1.0])[..cut]);
        place.refusal("a.npy");
    }
}

#[test]
fn archives_that_lie_about_their_members() {
    let place = Place::new();
    let refusal = |bytes: Vec<u8>| {
        place.write("a.npz", bytes);
        place.refusal("a.npz")
    };
    let array = npy(&[1.0; 64]);
    // A bomb: a gigabyte of zeros by the directory, in some bytes.
    let bomb = Member { len: 1 << 30, ..Member::deflated("x.npy", &array) };
    assert!(refusal(npz(&[bomb])).contains("bytes of deflate cannot become 1073741824"));
    // One that could be as long, but is not.
    let header = npy_of(&header("'|u1'", "(50000,)"), &[]);
    let claims = Member { len: header.len() as u32 + 50_000, ..Member::deflated("x.npy", &header) };
    let text = refusal(npz(&[Member { raw: [claims.raw.clone(), vec![0; 200]].concat(), ..claims }]));
    assert!(text.contains("tensor `x`: expected 50000 bytes, found 0"), "{text}");
    let short = Member { len: array.len() as u32 - 4, ..Member::deflated("x.npy", &array) };
    assert!(refusal(npz(&[short])).contains("member `x.npy`: expected"));
    let lying = Member { len: 4000, ..Member::stored("x.npy", &array) };
    assert!(refusal(npz(&[lying])).contains("stored, yet"));
    let twice = || Member::stored("x.npy", &array);
    assert!(refusal(zip(&[twice(), Member::stored("y.npy", &array)], |_, _| 0)).contains("overlaps member"));
    assert!(refusal(npz(&[Member::stored("x", &array), twice()])).contains("two members are the array `x`"));
    assert!(refusal(npz(&[Member { method: 12, ..twice() }])).contains("expected stored or deflated content"));
    assert!(refusal(npz(&[Member::stored("x.npy", b"<html></html>")])).contains("found an HTML page"));
    assert!(refusal(b"PK\x03\x04".to_vec()).contains("damaged zip archive"));
    let garbage = Member { raw: vec![0xff; 300], len: 300, ..Member::deflated("x.npy", &array) };
    assert!(refusal(npz(&[garbage])).contains("member `x.npy`"));
}

#[test]
fn names_of_members_are_names_and_no_paths() {
    let place = Place::new();
    let array = npy(&[1.0]);
    place.write("a.npz", npz(&[Member::stored("../../etc/passwd.npy", &array), Member::stored("/abs", &array)]));
    let run = goldline::run::Run::open(place.path("a.npz")).unwrap();
    let names: Vec<&str> = run.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["../../etc/passwd", "/abs"]);
    super::write::load_all(&run).unwrap();
}

/// RunResults with this text as the array of `x`.
fn results(array: &str) -> String {
    format!(r#"{{"lst": [["r", [{{"outputs": {{"x": {{"values": {{"array": "{array}"}}}}}}}}]]]}}"#)
}

#[test]
fn run_results_that_are_damaged() {
    let place = Place::new();
    let refusal = |text: String| {
        place.write("a.json", text);
        place.refusal("a.json")
    };
    let sound = STANDARD.encode(npy(&[1.0, 2.0]));
    place.write("a.json", results(&sound));
    super::write::load_all(&goldline::run::Run::open(place.path("a.json")).unwrap()).unwrap();
    assert!(refusal(results("%%%%")).contains("output `x`: damaged base64 text"));
    assert!(refusal(results(&sound[..sound.len() - 4])).contains("expected the base64 text of"));
    assert!(refusal(results("")).contains("output `x`"));
    assert!(refusal(results(&STANDARD.encode("PK\x03\x04"))).contains("found a zip archive"));
    assert!(refusal(results(&sound.replacen('A', "\\u0041", 1))).contains("output `x`"));
    let broken = format!("{}%{}", &sound[..sound.len() - 8], &sound[sound.len() - 7..]);
    assert!(refusal(results(&broken)).contains("damaged base64 text"));
    assert!(refusal(r#"{"lst": [["r", []]]}"#.into()).contains("expected an iteration of a runner, found none"));
    assert!(refusal(r#"{"lst": []}"#.into()).contains("expected an iteration of a runner, found none"));
    assert!(refusal(r#"{"lst": [7]}"#.into()).contains("expected a runner's name"));
    assert!(refusal(r#"{"lst": {"a": 1}}"#.into()).contains("with a list `lst`"));
    assert!(refusal(r#"{"lst": [["r", [{}]]]}"#.into()).contains("an iteration with `outputs`"));
    assert!(refusal(format!(r#"{{"lst": {}"#, "[".repeat(1 << 20))).contains("recursion limit"));
    assert!(refusal(format!(r#"{{"lst": [{}"#, "0,".repeat(1 << 21))).contains("expected at most 1048576 values"));
    assert!(refusal(r#"{"lst": [["r"#.into()).contains("unexpected end"));
    let text = "{\"values\": {\"array\": \"\"}}";
    let twice = format!(r#"{{"lst": [["r", [{{"outputs": {{"x": {text}, "x": {text}}}}}]]]}}"#)
        .replace("\"\"", &format!("\"{sound}\""));
    assert!(refusal(twice).contains("two tensors are called `x`"));
}

/// A debug tree of one module that wrote this.
fn tree(output: &str) -> String {
    format!(r#"{{"module_path": "M", "children": [{{"module_path": "M.a", "outputs": {output}}}]}}"#)
}

#[test]
fn debug_trees_that_lead_elsewhere() {
    let place = Place::new();
    const TREE: &str = "d/M_debug_tree_FULL_TENSORS.json";
    let mut outside = safetensors(&[1.0, 2.0]);
    place.write("secret.safetensors", &outside);
    let refusal = |text: String| {
        place.write(TREE, text);
        place.refusal("d")
    };
    let value = |file: &str| format!(r#"{{"shape": "torch.Size([2])", "dtype": "torch.float32", "value": "{file}"}}"#);
    for file in ["../secret.safetensors", "./../secret.safetensors", "/etc/passwd", "a/b.safetensors", "..", ""] {
        assert!(refusal(tree(&value(file))).contains("expected the name of a file beside the tree"), "{file}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(place.path("secret.safetensors"), place.path("d/link.safetensors")).unwrap();
        assert!(refusal(tree(&value("./link.safetensors"))).contains("a link that leads out of it"));
    }
    place.write("d/a.safetensors", &outside);
    let other = r#"{"shape": "torch.Size([3])", "dtype": "torch.float32", "value": "./a.safetensors"}"#;
    assert!(refusal(tree(other)).contains("expected float32 [3] as the tree says, found float32 [2]"));
    let no_shape = r#"{"shape": "torch.Size([-2])", "dtype": "torch.float32", "value": "./a.safetensors"}"#;
    assert!(refusal(tree(no_shape)).contains("expected a shape such as"));
    assert!(refusal(r#"{"module_path": "M", "children": ["#.repeat(200)).contains("recursion limit"));
    assert!(refusal("[]".into()).contains("expected a JSON object"));
    assert!(refusal(tree(&"[".repeat(200))).contains("recursion limit"));
    outside.truncate(20);
    place.write("d/a.safetensors", outside);
    assert!(refusal(tree(&value("./a.safetensors"))).starts_with("d/a.safetensors: "));
}

#[test]
fn a_file_that_a_later_call_wrote_belongs_to_that_call() {
    let place = Place::new();
    let value = r#"{"shape": "torch.Size([2])", "dtype": "torch.float32", "value": "./a.safetensors"}"#;
    let call = format!(r#"{{"module_path": "M.a", "outputs": {value}}}"#);
    place.write("M_debug_tree_FULL_TENSORS.json", format!(r#"{{"module_path": "M", "children": [{call}, {call}]}}"#));
    place.write("a.safetensors", safetensors(&[1.0, 2.0]));
    let run = goldline::run::Run::open(place.path("M_debug_tree_FULL_TENSORS.json")).unwrap();
    let stored: Vec<bool> = run.layers.iter().map(|l| run.tensor(l.outputs[0]).stored.is_some()).collect();
    assert_eq!(stored, [false, true]);
    assert!(run.warnings.iter().any(|w| w.contains("what earlier calls wrote is lost")), "{:?}", run.warnings);
}

fn safetensors(values: &[f32]) -> Vec<u8> {
    let header =
        format!(r#"{{"data":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}}"#, values.len(), values.len() * 4);
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

#[test]
fn files_that_claim_to_hold_tensors_must() {
    let place = Place::new();
    place.write("d/a.npy", npy(&[1.0]));
    place.write("d/b.npy", "<!DOCTYPE html>");
    let text = place.refusal("d");
    assert!(text.starts_with("d/b.npy: expected a file of tensors") && text.ends_with("found an HTML page"), "{text}");
    place.write("d/b.npy", "");
    assert!(place.refusal("d").ends_with("found an empty file"));
}

#[cfg(unix)]
#[test]
fn links_out_of_a_directory_are_not_followed() {
    let place = Place::new();
    place.write("secret.npy", npy(&[1.0]));
    place.write("d/a.npy", npy(&[2.0]));
    std::os::unix::fs::symlink(place.path("secret.npy"), place.path("d/b.npy")).unwrap();
    std::os::unix::fs::symlink(place.path("d"), place.path("d/loop")).unwrap();
    std::os::unix::fs::symlink("a.npy", place.path("d/c.npy")).unwrap();
    let run = goldline::run::Run::open(place.path("d")).unwrap();
    let names: Vec<&str> = run.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["a", "c"]);
    assert!(run.warnings.iter().any(|w| w.starts_with("2 links that lead out")), "{:?}", run.warnings);
}

#[test]
fn directories_of_runs_are_not_taken_for_tensors() {
    let place = Place::new();
    place.write("tree/rank0/a.npy", npy(&[1.0]));
    place.write("project/goldens/x/run.json", "{}");
    place.write("project/goldens/x/tensors.safetensors", safetensors(&[1.0]));
    place.write("project/b.npy", npy(&[1.0]));
    place.write("lost/tensors.safetensors", safetensors(&[1.0]));
    for name in ["tree", "project", "lost"] {
        assert!(place.refusal(name).starts_with(&format!("{name}: expected a run directory")), "{name}");
    }
    let mut deep = String::from("deep");
    for _ in 0..20 {
        deep.push_str("/x");
    }
    place.write(&format!("{deep}/a.npy"), npy(&[1.0]));
    assert!(place.refusal("deep").contains("expected at most 16 levels"));
}

#[test]
fn tables_of_a_snapshot_that_lie() {
    let place = Place::new();
    place.write("s/golden/1.npy", npy(&[1.0]));
    place.write("s/golden/2.npy", npy(&[2.0]));
    place.write("s/error_analysis.txt", "[Conv] a 1 | 0\n[Relu] gone 1 | 0\n[\n[]\n[Conv] a 1 | 0\n\u{0}\u{ff}");
    place.write("s/map_name_to_file.txt", "a ../../../etc/passwd/1.npy\nonly_a_name\n");
    let run = goldline::run::Run::open(place.path("s/golden")).unwrap();
    let names: Vec<&str> = run.layers.iter().map(|layer| layer.name.as_str()).collect();
    assert_eq!(names, ["a", "2"]);
    assert!(run.warnings.iter().any(|w| w.contains("of 3 layers of the snapshot's tables have no file here")));
}
