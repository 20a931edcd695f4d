#![no_main]
//! The fuzz target `run`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| ovir_fuzz::run(data));
