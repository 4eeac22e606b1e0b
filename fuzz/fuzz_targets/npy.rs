//! A numpy array.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::file("x.npy", bytes));
