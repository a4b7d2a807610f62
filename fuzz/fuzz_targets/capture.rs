#![no_main]

#[path = "../capture.rs"]
mod capture;

libfuzzer_sys::fuzz_target!(|input: &[u8]| capture::capture(input));
