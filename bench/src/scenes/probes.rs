//! Probes that several experiments deploy.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::{probes, sample};

/// The most maps that a program uses; the kernel's limit is 64 (`MAX_USED_MAPS`).
const USED_MAPS: usize = 60;

/// Returns the configuration of a probe of the library without its name, for a PUT under any name.
pub fn nameless(probe: &str, interface: &str) -> Result<Value> {
    let mut config = probes::configuration(probe, interface)?;
    if let Some(config) = config.as_object_mut() {
        config.remove("name");
    }
    Ok(config)
}

/// Returns a probe with this number of maps, each a metric. The program updates at most
/// [`USED_MAPS`].
pub fn many_maps(maps: usize, interface: &str) -> Value {
    let mut source = String::from(
        "#include <linux/bpf.h>\n\
         #include <bpf/bpf_helpers.h>\n\
         #define MAP(NAME) struct { __uint(type, BPF_MAP_TYPE_HASH); __uint(max_entries, 256); \\\n\
         \t__type(key, __u32); __type(value, __u64); } NAME SEC(\".maps\")\n\
         #define COUNT(NAME) do { __u64 *value = bpf_map_lookup_elem(&NAME, &key); \\\n\
         \tif (value) __sync_fetch_and_add(value, 1); } while (0)\n",
    );
    let mut body = String::new();
    for map in 0..maps {
        // Writing to a String can't fail.
        let _ = writeln!(source, "MAP(map{map});");
        if map < USED_MAPS {
            let _ = writeln!(body, "\tCOUNT(map{map});");
        }
    }
    let _ = write!(
        source,
        "SEC(\"xdp\") int count(struct xdp_md *ctx)\n{{\n\t__u32 key = ctx->rx_queue_index;\n{body}\treturn XDP_PASS;\n}}\n\
         char LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    let metrics: Vec<Value> = (0..maps)
        .map(|map| sample::window(&format!("metric{map}"), &format!("map{map}")))
        .collect();
    json!({ "interface": interface, "ingress": { "source": source, "metrics": metrics } })
}

/// Returns a copy of the configuration in which the metrics have a snapshot, or none.
pub fn with_snapshot(config: &Value, snapshot: bool) -> Value {
    let mut document = config.clone();
    for direction in ["ingress", "egress"] {
        let metrics = document
            .get_mut(direction)
            .and_then(|d| d.get_mut("metrics"))
            .and_then(Value::as_array_mut);
        for metric in metrics.into_iter().flatten() {
            metric["snapshot"] = snapshot.into();
        }
    }
    document
}

/// Returns the configuration with new sources, so that no cache of compiled objects helps.
pub fn unique(config: &Value) -> Value {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let mut document = config.clone();
    for direction in ["ingress", "egress"] {
        if let Some(Value::String(source)) = document
            .get_mut(direction)
            .and_then(|d| d.get_mut("source"))
        {
            let n = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let _ = write!(source, "\n// {n}\n");
        }
    }
    document
}
