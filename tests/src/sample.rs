//! Probes that tests push: small sources, and the configurations around them.

use serde_json::{Value, json};

/// An eBPF source with every map type that can count, each updated once per packet. Compiles for
/// XDP and TC (`SECTION`, `CONTEXT`, `VERDICT` are macros).
pub const COUNTERS: &str = include_str!("../bpf/counters.bpf.c");

/// The maps of [`COUNTERS`], and whether each is PERCPU.
pub const COUNTER_MAPS: [(&str, bool); 5] = [
    ("in_array", false),
    ("in_hash", false),
    ("in_lru_hash", false),
    ("in_percpu_array", true),
    ("in_percpu_hash", true),
];

/// Returns an XDP program that counts packets in `packets`, an ARRAY of one `__u64`, and returns
/// `verdict`.
pub fn xdp_counter(verdict: &str) -> String {
    format!(
        "#include <linux/bpf.h>\n\
         #include <bpf/bpf_helpers.h>\n\
         struct {{\n\
         \t__uint(type, BPF_MAP_TYPE_ARRAY);\n\
         \t__uint(max_entries, 1);\n\
         \t__type(key, __u32);\n\
         \t__type(value, __u64);\n\
         }} packets SEC(\".maps\");\n\
         SEC(\"xdp\") int count(struct xdp_md *ctx)\n\
         {{\n\
         \t__u32 key = 0;\n\
         \t__u64 *value = bpf_map_lookup_elem(&packets, &key);\n\
         \tif (value)\n\
         \t\t__sync_fetch_and_add(value, 1);\n\
         \treturn {verdict};\n\
         }}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    )
}

/// Returns the configuration of an XDP probe, whose section is in its source or the macro
/// `SECTION`, for packets of several buffers.
pub fn with_frags(mut config: Value) -> Value {
    let ingress = &mut config["ingress"];
    if let Some(section) = ingress.pointer_mut("/defines/SECTION") {
        *section = json!("\"xdp.frags\"");
    }
    let source = ingress["source"]
        .as_str()
        .map(|text| text.replace("SEC(\"xdp\")", "SEC(\"xdp.frags\")"));
    ingress["source"] = json!(source);
    config
}

/// Returns a metric with windows: `snapshot` and `init`.
pub fn window(name: &str, map: &str) -> Value {
    json!({ "name": name, "map": map, "help": "a test's", "snapshot": true, "init": true })
}

/// Returns a configuration with [`xdp_counter`] at `interface` and its map as the metric `packets`.
pub fn counter_config(interface: &str, verdict: &str) -> Value {
    json!({
        "interface": interface,
        "ingress": { "source": xdp_counter(verdict), "metrics": [window("packets", "packets")] }
    })
}

/// Returns the sum of a metric's values, over entries and, without `agg`, CPUs.
///
/// # Panics
/// Panics if the metric is not in the document or has other than integer values.
pub fn total(document: &Value, direction: &str, metric: &str) -> u64 {
    let entries = document[direction][metric]["entries"].as_array();
    let entries = entries.unwrap_or_else(|| panic!("no {direction}.{metric} in {document}"));
    entries.iter().map(|entry| sum(&entry["value"])).sum()
}

fn sum(value: &Value) -> u64 {
    match value {
        Value::Array(values) => values.iter().map(sum).sum(),
        value => value
            .as_u64()
            .unwrap_or_else(|| panic!("{value} is not a counter")),
    }
}
