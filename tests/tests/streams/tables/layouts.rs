//! Probes whose layouts change.

use serde_json::{Value, json};

use crate::scene::{COLLECTOR, Node};

/// The members of the values of a metric, one layout after the other: the second has another
/// member, the third another type.
pub const MEMBERS: [&str; 3] = [
    "__u64 packets;",
    "__u64 packets; __u32 flags;",
    "__s64 packets;",
];

/// Closes a window. Returns its document.
pub fn close(node: &Node, probe: &str) -> Value {
    node.daemon()
        .request("POST", &format!("/v1/probes/{probe}/windows"), &[], b"")
        .expect(201)
        .json()
}

/// The configuration of a probe that counts packets under a key with a zero byte and a backslash.
pub fn counting(member: &str) -> Value {
    let source = format!(
        "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n\
         struct name {{ char name[8]; }};\nstruct counts {{ {member} }};\n\
         struct {{ __uint(type, BPF_MAP_TYPE_HASH); __type(key, struct name); __type(value, struct counts); \
         __uint(max_entries, 8); }} counts SEC(\".maps\");\n\
         SEC(\"xdp.frags\") int count(struct xdp_md *ctx) {{ struct name key = {{ {{ 'a', 0, 'b', '\\\\', '\\t' }} }};\n\
         struct counts none = {{}}; bpf_map_update_elem(&counts, &key, &none, BPF_NOEXIST);\n\
         struct counts *c = bpf_map_lookup_elem(&counts, &key); \
         if (c) __sync_fetch_and_add(&c->packets, 1); return XDP_PASS; }}\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n"
    );
    json!({ "interface": "mon0", "window": { "collectors": [COLLECTOR], "retain": 100 },
            "ingress": { "source": source, "metrics": [{ "name": "counts", "map": "counts", "snapshot": true, "init": true }] } })
}
