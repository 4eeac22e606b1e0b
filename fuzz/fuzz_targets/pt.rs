//! A file of `torch.save`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::file("x.pt", bytes));
