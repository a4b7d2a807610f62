//! The bodies of the fuzz targets on mutated seeds.

use std::time::Duration;

use twinprobe_fuzz::{bodies, runner};

const SEEDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds");

#[test]
fn btf_parse() {
    run("btf_parse", bodies::btf_parse);
}

#[test]
fn decode() {
    run("decode", bodies::decode);
}

fn run(name: &str, body: fn(&[u8])) {
    runner::run(name, Duration::from_secs(3), &runner::files(SEEDS), body);
    runner::assert_little_memory();
}
