//! A file of safetensors.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::file("x.safetensors", bytes));
