//! Files that no torch wrote: each gives one clear line, in time and memory that its length bounds.

use std::io::Write;

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::error::Result;
use crate::run::format::container::{self, Found};
use crate::run::format::load;
use crate::tensor::Tensor;

/// Pickle opcodes with their arguments, put together by hand.
mod write {
    pub(super) fn text(text: &str) -> Vec<u8> {
        [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
    }

    pub(super) fn int(number: i64) -> Vec<u8> {
        [&[0x8a, 8], &number.to_le_bytes()[..]].concat()
    }

    pub(super) fn name(name: &str) -> Vec<u8> {
        let (module, name) = name.rsplit_once('.').unwrap();
        format!("c{module}\n{name}\n").into_bytes()
    }

    pub(super) fn tuple(parts: &[Vec<u8>]) -> Vec<u8> {
        [b"(", &parts.concat()[..], b"t"].concat()
    }

    pub(super) fn ints(numbers: &[i64]) -> Vec<u8> {
        tuple(&numbers.iter().map(|number| int(*number)).collect::<Vec<_>>())
    }

    pub(super) fn call(function: &str, arguments: &[Vec<u8>]) -> Vec<u8> {
        [name(function), tuple(arguments), b"R".to_vec()].concat()
    }

    pub(super) fn storage(key: &str, class: &str, count: i64) -> Vec<u8> {
        let id = [text("storage"), name(class), text(key), text("cpu"), int(count)];
        [tuple(&id), b"Q".to_vec()].concat()
    }

    pub(super) fn view(storage: Vec<u8>, offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
        let arguments = [storage, int(offset), ints(shape), ints(strides), b"\x89".to_vec(), b"}".to_vec()];
        call("torch._utils._rebuild_tensor_v2", &arguments)
    }

    /// A tensor over the four floats of storage `0`.
    pub(super) fn four(offset: i64, shape: &[i64], strides: &[i64]) -> Vec<u8> {
        view(storage("0", "torch.FloatStorage", 4), offset, shape, strides)
    }
}

use write::{call, four, int, ints, name, storage, text, tuple, view};

const FOUR: [u8; 16] = [0, 0, 128, 63, 0, 0, 0, 64, 0, 0, 64, 64, 0, 0, 128, 64];

/// The file of these members.
fn archive(members: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in members {
        writer.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        writer.write_all(content).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn open_bytes(bytes: &[u8]) -> Result<Vec<(Found, Option<Tensor>)>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.pt");
    std::fs::write(&path, bytes).unwrap();
    let found = container::tensors(&path, 0)?;
    Ok(found
        .into_iter()
        .map(|found| {
            let tensor = load::tensor(&path, &found.name, &found.stored).ok();
            (found, tensor)
        })
        .collect())
}

/// An archive that holds what these opcodes make, and the four floats 1, 2, 3, 4 as storage `0`.
fn open(opcodes: &[u8]) -> Result<Vec<(Found, Option<Tensor>)>> {
    let pickle = [b"\x80\x02", opcodes, b"."].concat();
    open_bytes(&archive(&[("x/data.pkl", &pickle), ("x/data/0", &FOUR)], CompressionMethod::Stored))
}

#[track_caller]
fn values(opcodes: &[u8]) -> Vec<f64> {
    let opened = open(opcodes).unwrap_or_else(|error| panic!("{error}"));
    opened.into_iter().flat_map(|(_, tensor)| tensor.unwrap().decode().unwrap()).collect()
}

/// What the error says after file, byte and member.
#[track_caller]
fn refusal(opcodes: &[u8]) -> String {
    let error = open(opcodes).map(|found| found.len()).expect_err("is refused");
    assert!(error.place().is_some(), "{error}");
    let message = error.message().to_string();
    message.split_once(": ").map_or(message.clone(), |(_, rest)| rest.to_string())
}

#[test]
fn the_means_of_these_tests_make_sound_files() {
    assert_eq!(values(&four(0, &[2, 2], &[2, 1])), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values(&four(1, &[3], &[1])), [2.0, 3.0, 4.0]);
    assert_eq!(values(&storage("0", "torch.FloatStorage", 4)), [1.0, 2.0, 3.0, 4.0], "a bare storage");
}

#[test]
fn names_that_execute_something_are_refused_called_or_not() {
    for evil in ["os.system", "posix.system", "__builtin__.eval", "builtins.exec", "torch.storage._load_from_bytes"] {
        let expected = format!("found `{evil}`: nothing of it was executed");
        assert!(refusal(&call(evil, &[text("touch /tmp/x")])).contains(&expected));
        assert!(refusal(&[name(evil), b"0N".to_vec()].concat()).contains(&expected), "mentioned and dropped");
        let (module, last) = evil.rsplit_once('.').unwrap();
        assert!(refusal(&[text(module), text(last), vec![0x93]].concat()).contains(&expected), "named on the stack");
        let hook = [b"}".to_vec(), text("key"), call(evil, &[text("x")]), b"s".to_vec()].concat();
        assert!(refusal(&hook).contains(&expected));
    }
    let function = call(
        "torch._utils._rebuild_from_type_v2",
        &[name("torch.Tensor"), name("torch.Tensor"), tuple(&[]), b"}".to_vec()],
    );
    assert_eq!(refusal(&function), "expected a function that rebuilds a tensor as argument 1, found a class");
}

#[test]
fn containers_in_themselves_and_deep_ones_end() {
    let expected = "containers nested more than 100 deep, or within themselves";
    assert!(refusal(b"]q\0h\0a").starts_with(expected), "a list in itself");
    assert!(refusal(b"}q\0K\x01h\0s").starts_with(expected), "a dict in itself");
    assert!(refusal(&[b"]".repeat(1_000_000), b"a".repeat(999_999)].concat()).starts_with(expected));
    let tuples = [b"N".to_vec(), b"\x85".repeat(1_000_000)].concat();
    assert!(refusal(&tuples).starts_with(expected));
    let ninety = [four(0, &[1], &[1]), b"\x85".repeat(90)].concat();
    assert_eq!(values(&ninety), [1.0]);
}

#[test]
fn lists_that_double_through_the_memo_end() {
    for inner in [four(0, &[1], &[1]), b"]".to_vec(), b"N".to_vec()] {
        let mut opcodes = [inner, b"q\0".to_vec()].concat();
        for level in 1..=60u8 {
            opcodes.extend([b'h', level - 1, b'h', level - 1, 0x86, b'q', level]);
        }
        assert!(refusal(&opcodes).contains("containers that repeat each other too often"));
    }
}

#[test]
fn shared_tensors_are_no_bomb() {
    let shared = [b"(".to_vec(), four(0, &[1], &[1]), b"q\0".to_vec(), b"h\0".repeat(1000), b"t".to_vec()].concat();
    assert_eq!(values(&shared).len(), 1001);
}

#[test]
fn long_names_are_not_repeated_without_end() {
    let key = text(&"k".repeat(1 << 20));
    let items = [b"}(".to_vec(), key, b"(".to_vec(), four(0, &[1], &[1]), b"q\0".to_vec()].concat();
    let opcodes = [items, b"h\0".repeat(1000), b"tu".to_vec()].concat();
    assert!(refusal(&opcodes).contains("containers that repeat each other too often"));
}

#[test]
fn opcodes_are_counted() {
    let opcodes = [b"(".to_vec(), b"N".repeat(5 << 20), b"t".to_vec()].concat();
    assert!(refusal(&opcodes).starts_with("more than 4194304 opcodes"));
}

#[test]
fn lengths_beyond_the_pickle_are_refused() {
    for opcodes in [
        b"X\xff\xff\xff\xff".to_vec(),
        [&[0x8d], &u64::MAX.to_le_bytes()[..]].concat(),
        [&[0x8e], &(u64::MAX >> 1).to_le_bytes()[..]].concat(),
        b"\x8b\xff\xff\xff\x7f".to_vec(),
        b"cos".to_vec(),
        b"I12".to_vec(),
        b"K".to_vec(),
    ] {
        assert!(refusal(&opcodes).starts_with("the pickle ends early"), "{opcodes:?}");
    }
}

#[test]
fn opcodes_that_find_nothing_on_the_stack_are_refused() {
    for opcodes in [
        "",
        "0",
        "00",
        "2",
        "q\0",
        "a",
        "Na",
        "NNa",
        "s",
        "}Ns",
        "e",
        "]e",
        "u",
        "t",
        "d",
        "R",
        "NR",
        "NNR",
        "b",
        "]Nb",
        "Q",
        "(.",
        "1",
        "(K\x01(0s",
        "\u{10}",
    ] {
        refusal(opcodes.as_bytes());
    }
    assert_eq!(refusal(b"h\x07"), "the memo has no entry 7");
    assert_eq!(refusal(b"(NNNd"), "expected as many values as keys, found one key more");
    assert_eq!(refusal(b"NNNs"), "expected a dict to set items of, found None");
    assert_eq!(refusal(b"P1\n"), "expected an opcode that torch.save writes, found 0x50");
    assert_eq!(refusal(b"\x80\x09"), "expected pickle protocol 1 to 5, found 9");
}

#[test]
fn views_beyond_their_storage_are_refused() {
    let beyond = "of storage `0` on, which has 16 bytes";
    for (offset, shape, strides) in [
        (1, &[4][..], &[1][..]),
        (4, &[1], &[1]),
        (0, &[5], &[1]),
        (0, &[2, 2], &[3, 1]),
        (0, &[2], &[4]),
        (1 << 40, &[1], &[1]),
    ] {
        let said = refusal(&four(offset, shape, strides));
        assert!(said.contains(beyond), "{said}");
    }
    for (offset, shape, strides) in [
        (0, &[i64::MAX, i64::MAX][..], &[1, 1][..]),
        (0, &[i64::MAX], &[0]),
        (0, &[3, 3], &[i64::MAX, i64::MAX]),
        (i64::MAX, &[1], &[1]),
    ] {
        let said = refusal(&four(offset, shape, strides));
        assert!(said.contains("is beyond memory"), "{said}");
    }
    assert!(refusal(&four(-1, &[1], &[1])).contains("expected a number of elements as argument 2, found -1"));
    assert!(refusal(&four(0, &[-1], &[1])).contains("expected a tuple of numbers of elements as argument 3"));
    assert!(refusal(&four(0, &[1], &[-1])).contains("expected a tuple of numbers of elements as argument 4"));
    assert_eq!(refusal(&four(0, &[1, 1], &[1])), "expected a stride for each of 2 axes, found 1");
    assert_eq!(refusal(&four(0, &[1; 65], &[1; 65])), "expected at most 64 axes, found 65");
    assert_eq!(values(&four(7, &[0, 3], &[3, 1])).len(), 0, "a view of nothing may stand anywhere");
}

#[test]
fn a_few_bytes_do_not_become_any_amount_of_memory() {
    let said = refusal(&four(0, &[1 << 30], &[0]));
    assert!(said.ends_with("4 stored bytes are repeated to 4294967296, expected at most 1073741824"), "{said}");
    assert_eq!(values(&four(3, &[2, 3], &[0, 0])), [4.0; 6]);
}

#[test]
fn storages_that_are_not_there_or_too_short_are_refused() {
    let said = refusal(&view(storage("1", "torch.FloatStorage", 4), 0, &[4], &[1]));
    assert_eq!(said, "the tensor: expected its storage as member `x/data/1`, found none");
    let said = refusal(&view(storage("../../../etc/passwd", "torch.FloatStorage", 4), 0, &[4], &[1]));
    assert!(said.ends_with("expected its storage as member `x/data/../../../etc/passwd`, found none"), "{said}");
    let said = refusal(&view(storage("0", "torch.FloatStorage", 5), 0, &[4], &[1]));
    assert_eq!(said, "the tensor: expected 5 elements in storage `0`, found 16 bytes");
    refusal(&view(storage("0", "torch.DoubleStorage", i64::MAX), 0, &[1], &[1]));
    let said = refusal(&view(storage("0", "torch.DoubleStorage", -1), 0, &[1], &[1]));
    assert_eq!(said, "expected a storage's length, found -1");
    let said = refusal(&view(storage("0", "torch.ComplexDoubleStorage", 1), 0, &[1], &[1]));
    assert!(said.ends_with("found complex128"), "{said}");
    let said = refusal(&view(storage("0", "torch.QInt8Storage", 16), 0, &[1], &[1]));
    assert!(said.ends_with("found a quantised type"), "{said}");
    let odd = [tuple(&[text("storage"), int(1)]), b"Q".to_vec()].concat();
    refusal(&view(odd, 0, &[1], &[1]));
    refusal(&view(b"N".to_vec(), 0, &[1], &[1]));
}

#[test]
fn calls_with_other_arguments_are_refused() {
    assert_eq!(refusal(&call("torch._utils._rebuild_tensor_v2", &[])), "expected more than 0 arguments");
    let untyped = storage("0", "torch.storage.UntypedStorage", 16);
    let bytes = |rest: &[Vec<u8>]| {
        let start = [untyped.clone(), int(0), ints(&[8]), ints(&[1]), b"\x89".to_vec(), b"}".to_vec()];
        call("torch._utils._rebuild_tensor_v3", &[&start[..], rest].concat())
    };
    assert_eq!(values(&bytes(&[name("torch.uint16")]))[..2], [0.0, 16256.0]);
    assert_eq!(refusal(&bytes(&[])), "expected a dtype as argument 7, found none");
    assert!(refusal(&bytes(&[name("torch.uint64")])).contains("which has 16 bytes"));
    let said = refusal(&view(untyped, 0, &[1], &[1]));
    assert!(said.ends_with("found bytes without a dtype"), "{said}");
    let mut wrapped = four(0, &[1], &[1]);
    for _ in 0..9 {
        wrapped = call("torch._utils._rebuild_parameter", &[wrapped, b"\x88".to_vec(), b"}".to_vec()]);
    }
    assert_eq!(refusal(&wrapped), "more than 8 functions around a tensor");
    let of = |inner: &[u8]| [name("collections.OrderedDict"), tuple(&[inner.to_vec()]), b"R".to_vec()].concat();
    assert_eq!(refusal(&of(b"](K\x01K\x02K\x03ta")), "expected pairs to make the dict `` of");
    let pair = [b"]".to_vec(), tuple(&[text("a"), four(0, &[1], &[1])]), b"a".to_vec()].concat();
    assert_eq!(open(&of(&pair)).unwrap()[0].0.name, "a");
}

#[test]
fn tensors_that_were_moved_from_a_device_are_read() {
    let id = [text("storage"), name("torch.npu.HalfStorage"), text("0"), text("npu:3"), int(8)];
    let half = [tuple(&id), b"Q".to_vec()].concat();
    for function in ["torch_npu.utils.storage._rebuild_npu_tensor", "torch_npu.utils._device._rebuild_npu_tensor"] {
        let format = call("torch_npu.npu._format.Format", &[int(2)]);
        let hooks = call("collections.OrderedDict", &[]);
        let rest = [int(1), ints(&[2]), ints(&[1]), b"\x89".to_vec(), hooks, format];
        let tensor = call(function, &[std::slice::from_ref(&half), &rest[..]].concat());
        assert_eq!(values(&tensor), [1.875, 0.0]);
    }
}

#[test]
fn flags_of_numbers_that_are_not_complex_negate_them() {
    let flagged = |flags: &[u8]| {
        let start = [storage("0", "torch.FloatStorage", 4), int(0), ints(&[4]), ints(&[1])];
        let rest = [b"\x89".to_vec(), b"}".to_vec(), flags.to_vec()];
        call("torch._utils._rebuild_tensor_v2", &[&start[..], &rest[..]].concat())
    };
    let set = |key: &str| [b"}".to_vec(), text(key), b"\x88s".to_vec()].concat();
    assert_eq!(values(&flagged(&set("neg"))), [-1.0, -2.0, -3.0, -4.0]);
    assert_eq!(values(&flagged(&set("conj"))), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(values(&flagged(b"N")), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(refusal(&flagged(b"K\x01")), "expected a dict of metadata");
    assert_eq!(
        refusal(&flagged(&[b"}".to_vec(), text("neg"), b"Ns".to_vec()].concat())),
        "expected a bool for a flag of a tensor"
    );
}

#[test]
fn two_tensors_of_one_name_are_refused() {
    let inner = [b"}".to_vec(), text("b"), four(0, &[1], &[1]), b"s".to_vec()].concat();
    let both = [b"}".to_vec(), text("a.b"), four(0, &[1], &[1]), b"s".to_vec(), text("a"), inner, b"s".to_vec()];
    assert_eq!(refusal(&both.concat()), "two tensors are named `a.b`: rename one of their keys");
}

#[test]
fn archives_that_are_not_as_torch_writes_them_are_refused() {
    let pickle = [b"\x80\x02".to_vec(), four(0, &[4], &[1]), b".".to_vec()].concat();
    let refusal =
        |members: &[(&str, &[u8])], method| open_bytes(&archive(members, method)).unwrap_err().message().to_string();
    let stored = CompressionMethod::Stored;
    let twice = refusal(&[("x/data.pkl", &pickle), ("y/data.pkl", &pickle), ("x/data/0", &FOUR)], stored);
    assert_eq!(twice, "expected one member `data.pkl`, found 2");
    let order = refusal(&[("x/data.pkl", &pickle), ("x/byteorder", b"middle"), ("x/data/0", &FOUR)], stored);
    assert_eq!(order, "member `x/byteorder`: expected `little` or `big`, found `middle`");
    let order = refusal(&[("x/data.pkl", &pickle), ("x/byteorder", &[b'x'; 99]), ("x/data/0", &FOUR)], stored);
    assert_eq!(order, "member `x/byteorder`: expected at most 16 bytes, found 99");
    let bomb = vec![b'N'; (64 << 20) + 1];
    let bomb = refusal(&[("x/data.pkl", &bomb)], CompressionMethod::Deflated);
    assert_eq!(bomb, "member `x/data.pkl`: expected at most 67108864 bytes, found 67108865");
}

#[test]
fn a_compressed_storage_is_unpacked_only_as_far_as_its_tensor_reaches() {
    let long = [&FOUR[..], &vec![0; 100 << 20]].concat();
    let pickle = [b"\x80\x02".to_vec(), four(1, &[2], &[2]), b".".to_vec()].concat();
    let bytes = archive(&[("x/data.pkl", &pickle), ("x/data/0", &long)], CompressionMethod::Deflated);
    let opened = open_bytes(&bytes).unwrap();
    assert_eq!(opened[0].1.as_ref().unwrap().decode().unwrap(), [2.0, 4.0]);
    assert!(opened[0].0.crc32.is_none(), "the checksum is that of more than the tensor");
}

#[test]
fn the_old_form_is_held_against_the_length_of_the_file() {
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/torch/legacy.pt")).unwrap();
    let refusal = |bytes: &[u8]| open_bytes(bytes).unwrap_err().to_string();
    let count = bytes.len() - 24 - 8;
    for cut in 16..bytes.len() {
        let said = refusal(&bytes[..cut]);
        assert!(said.contains("ends early") || said.contains("the file ends at byte"), "{said}");
    }
    let mut lying = bytes.clone();
    lying[count..count + 8].fill(0xff);
    assert!(refusal(&lying).ends_with(&format!(
        "byte {count}: storage `{}`: expected 18446744073709551615 elements of 4 bytes, the file ends at byte {}",
        key_of(&bytes),
        bytes.len()
    )));
    let mut version = bytes.clone();
    let at = bytes.windows(4).position(|window| window == b"M\xe9\x03.").unwrap();
    version[at + 1] = 0;
    assert!(refusal(&version).contains("expected version 1001 of torch's format, found 768"));
}

/// The key of the one storage of a file in the old form: a number in text.
fn key_of(bytes: &[u8]) -> String {
    let at = bytes.windows(8).position(|window| window == b"storage\x71").unwrap();
    let text = bytes[at..].iter().position(|byte| byte.is_ascii_digit()).unwrap();
    bytes[at + text..].iter().take_while(|byte| byte.is_ascii_digit()).map(|byte| char::from(*byte)).collect()
}
