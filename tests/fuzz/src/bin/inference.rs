#![no_main]
//! The fuzz target `inference`.

libfuzzer_sys::fuzz_target!(|data: &[u8]| ovir_fuzz::inference(data));
