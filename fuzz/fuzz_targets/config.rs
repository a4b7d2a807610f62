#![no_main]

#[path = "../config.rs"]
mod config;

libfuzzer_sys::fuzz_target!(|input: &[u8]| config::config(input));
