//! The hooks and the macros of the sources in `bpf/`.

use serde_json::{Value, json};

/// Returns the hooks and macros that tests use for a source of `bpf/`.
///
/// # Panics
///
/// If the source is unknown here.
pub fn variants(name: &str) -> Vec<(&'static str, Value)> {
    let at = |hook| match hook {
        "xdp" => json!({ "SECTION": "\"xdp\"", "CONTEXT": "xdp_md" }),
        _ => json!({ "SECTION": "\"tc\"", "CONTEXT": "__sk_buff" }),
    };
    let with = |hook: &'static str, more: Value| {
        let mut defines = at(hook);
        for (name, value) in more.as_object().into_iter().flatten() {
            defines[name] = value.clone();
        }
        (hook, defines)
    };
    let each = |more: Value| vec![with("xdp", more.clone()), with("tc", more)];
    let xdp = |more: Value| vec![with("xdp", more)];
    match name {
        "bystander.bpf.c" => each(json!({ "TYPE": "BPF_MAP_TYPE_HASH", "PASS": "0" })),
        "bytes.bpf.c" => xdp(json!({})),
        "counter.bpf.c" => xdp(json!({ "FLOWS": "64" })),
        "counters.bpf.c" => each(json!({ "VERDICT": "0" })),
        "echo.bpf.c" => vec![
            with("xdp", json!({ "INGRESS": "1" })),
            with("tc", json!({})),
        ],
        "egress.bpf.c" => vec![with("tc", json!({ "IFINDEX": "1" }))],
        "events.bpf.c" => {
            let more = json!({ "TAIL": "7", "OTHERS": "1", "DISCARD": "3" });
            vec![with("xdp", more), with("xdp", json!({ "PERF": "1" }))]
        }
        "export.bpf.c" => vec![
            with("xdp", json!({ "ENTRIES": "10", "FLOWS": "1" })),
            with("xdp", json!({ "ENTRIES": "10" })),
        ],
        "generator.bpf.c" => xdp(
            json!({ "IFINDEX": "1", "TEMPLATE": "0", "ADDRESS": "26", "BASE_ADDRESS": "1", "ADDRESSES": "2", "PORTS": "2" }),
        ),
        "layouts.bpf.c" => (0..4)
            .flat_map(|layout| {
                each(json!({ "LAYOUT": layout.to_string(), "VERDICT": "0", "PASS": "0" }))
            })
            .collect(),
        "model.bpf.c" => {
            let maps = [
                "array",
                "hash",
                "percpu_array",
                "percpu_hash",
                "trie",
                "global",
                "nested",
                "queue",
            ];
            let mut defines = json!({ "PASS": "0", "DROP": "1", "TYPE_hash": "BPF_MAP_TYPE_LRU_HASH", "VARIANT": "0" });
            for map in maps {
                for (name, value) in [("ON", "1"), ("ENTRIES", "256"), ("LAYOUT", "2")] {
                    defines[format!("{name}_{map}")] = json!(value);
                }
            }
            each(defines)
        }
        "disks.bpf.c" | "neighbour.bpf.c" => xdp(json!({})),
        "subject.bpf.c" => vec![
            with("xdp", json!({ "FORM": "1" })),
            with("xdp", json!({ "FORM": "2" })),
            with("tc", json!({ "FORM": "3", "TC": "1" })),
        ],
        "witness.bpf.c" => vec![with("tc", json!({}))],
        "header.bpf.c" | "losses.bpf.c" | "meanings.bpf.c" => each(json!({})),
        "replay.bpf.c" => vec![with("xdp", json!({})), with("tc", json!({ "TC": "1" }))],
        "shared.bpf.c" => each(json!({ "FIELD": "in", "VERDICT": "0" })),
        "stack.bpf.c" => {
            vec![
                with("xdp", json!({ "BYTES": "1" })),
                with("tc", json!({ "TC": "1" })),
            ]
        }
        "inner.bpf.c" => xdp(json!({ "OUTER": "BPF_MAP_TYPE_ARRAY_OF_MAPS" })),
        "init.bpf.c" | "maps.bpf.c" | "sums.bpf.c" | "windows.bpf.c" => {
            xdp(json!({ "VERDICT": "XDP_PASS" }))
        }
        _ => panic!("{name}: which macros does it need?"),
    }
}
