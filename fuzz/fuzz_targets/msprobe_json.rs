//! A dump of msprobe: its three JSON files and a tensor.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::directory(
    &["dump.json", "construct.json", "stack.json", "dump_tensor_data/x.pt"],
    bytes
));
