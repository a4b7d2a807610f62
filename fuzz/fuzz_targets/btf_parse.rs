#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| twinprobe_fuzz::bodies::btf_parse(input));
