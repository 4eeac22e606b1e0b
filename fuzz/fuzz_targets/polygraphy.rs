//! Results of Polygraphy.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| opened::file("x.json", bytes));
