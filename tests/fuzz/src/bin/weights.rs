#![no_main]
//! The fuzz target `weights`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| ovir_fuzz::weights(data));
