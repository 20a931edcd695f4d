#![no_main]
//! The fuzz target `xml`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| ovir_fuzz::xml(data));
