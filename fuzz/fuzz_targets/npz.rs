//! An archive of numpy arrays.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::file("x.npz", bytes));
