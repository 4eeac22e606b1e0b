//! A native run: its metadata, layers, statistics and tensors.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::directory(
    &["run.json", "layers.jsonl", "stats.jsonl", "tensors.safetensors"],
    bytes
));
