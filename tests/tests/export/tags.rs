//! Warnings about tags that change nothing.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::{Daemon, Topology};

const SOURCE: &str = r#"#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define TAG(name) __attribute__((btf_decl_tag(name)))
typedef __u32 address TAG("ipv4");
struct key {
    address from;
    __u32 to TAG("ipv5");
    __u64 wide TAG("ipv4");
    __u8 mac[6] TAG("mac");
};
struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, struct key); __type(value, __u64); __uint(max_entries, 8); }
    flows SEC(".maps") TAG("histogram");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64); __uint(max_entries, 8); }
    sizes SEC(".maps") TAG("histogram");
SEC("xdp") int see(struct xdp_md *ctx) { return XDP_PASS; }
"#;

#[test]
fn tags_that_change_nothing_are_warned_of() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = json!({ "interface": "mon0", "ingress": { "source": SOURCE,
        "metrics": [{ "name": "flows", "map": "flows" }, { "name": "sizes", "map": "sizes" }] } });
    let validated = daemon.post("/v1/validate", &config).expect(200).json();
    let deployed = daemon.put("/v1/probes/p", &config).expect(201).json();
    assert_eq!(validated["warnings"], deployed["warnings"]);
    let warnings: Vec<(&Value, &str)> = deployed["warnings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|warning| (&warning["line"], warning["message"].as_str().unwrap()))
        .collect();
    let expected = [
        (
            json!(7),
            "btf_decl_tag(\"ipv5\") on field to of struct key is unknown",
        ),
        (
            Value::Null,
            "btf_decl_tag(\"ipv4\") does not fit key.wide of map flows, which is shown without it; it is for four bytes",
        ),
        (
            Value::Null,
            "btf_decl_tag(\"histogram\") does not fit value of map flows",
        ),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for ((line, message), (expected_line, begin)) in warnings.into_iter().zip(expected) {
        assert!(
            *line == expected_line && message.starts_with(begin),
            "{line} {message}"
        );
    }
    Ok(())
}
