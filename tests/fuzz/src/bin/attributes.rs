#![no_main]
//! The fuzz target `attributes`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| ovir_fuzz::attributes(data));
