//! The scene of the tests of sums: probes that count every packet in maps whose windows are added
//! up.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::window;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::{Daemon, Topology};

pub const SOURCE: &str = include_str!("../../bpf/sums.bpf.c");
/// The maps and the variable that count each packet.
pub const MAPS: [&str; 5] = ["flows", "prefixes", "one", "each_cpu", ".bss:seen"];
pub const PROBES: [&str; 3] = ["/v1/probes/a", "/v1/probes/b", "/v1/probes/c"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    Live,
    Window,
    Sum,
}

pub fn name(map: &str) -> &str {
    map.trim_start_matches(".bss:")
}

pub fn metric(map: &str, reading: Reading) -> Value {
    let mut metric = match reading {
        Reading::Live => json!({ "name": name(map), "map": map }),
        Reading::Window => window(name(map), map),
        Reading::Sum => json!({ "name": name(map), "map": map, "snapshot": true }),
    };
    if map == "each_cpu" {
        metric["agg"] = json!("sum");
    }
    metric
}

pub fn config(reading: Reading, defines: &[(&str, &str)]) -> Value {
    let metrics: Vec<Value> = MAPS.iter().map(|map| metric(map, reading)).collect();
    let mut config =
        json!({ "interface": "mon0", "ingress": { "source": SOURCE, "metrics": metrics } });
    for (name, value) in defines {
        config["ingress"]["defines"][*name] = json!(value);
    }
    config
}

/// Returns the count of a metric, whether its values are numbers or structs.
#[track_caller]
pub fn count(document: &Value, metric: &str) -> u64 {
    let entries = document["ingress"][metric]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("no {metric} in {document}"));
    let number = |entry: &Value| {
        let value = entry["value"].get("packets").unwrap_or(&entry["value"]);
        value.as_u64().unwrap_or_else(|| panic!("{entry}"))
    };
    entries.iter().map(number).sum()
}

/// Returns the count of all metrics, which must agree.
#[track_caller]
pub fn counted(document: &Value) -> u64 {
    let counts = MAPS.map(|map| count(document, name(map)));
    assert_eq!(counts, [counts[0]; MAPS.len()], "{MAPS:?}");
    counts[0]
}

pub fn read(daemon: &Daemon, probe: &str) -> Value {
    daemon.json(&format!("{probe}/metrics"))
}

pub fn generator(topology: &Topology, addresses: u32) -> Result<Generator> {
    let spread = Spread {
        addresses,
        ports: 1,
        ..Spread::default()
    };
    Generator::new(
        topology.generator(),
        "gen0",
        GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        },
    )
}
