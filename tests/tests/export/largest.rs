//! The largest entries of a reading, and the others as one: over HTTP, in every format, and on the
//! command line.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Spread};
use twinprobe_tests::{Daemon, Topology};

const PROBE: &str = "/v1/probes/p";
/// Counts packets and the largest length per source port of UDP.
const SOURCE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
struct counters { __u64 packets; __u32 longest; };
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u16);
	__type(value, struct counters);
} ports SEC(".maps");
SEC("xdp") int count(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct counters new = {}, *counters;
	__u16 port;

	if (data + 38 > end)
		return XDP_DROP;
	port = bpf_ntohs(*(__u16 *)(data + 34));
	bpf_map_update_elem(&ports, &port, &new, BPF_NOEXIST);
	counters = bpf_map_lookup_elem(&ports, &port);
	if (!counters)
		return XDP_DROP;
	__sync_fetch_and_add(&counters->packets, 1);
	if (port > counters->longest)
		counters->longest = port;
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// Sends 5 packets of port 2000, 3 of port 2001 and one of each of 8 others, and returns the
/// daemon.
fn counted(topology: &Topology) -> Result<Daemon> {
    let daemon = Daemon::start(topology.monitor())?;
    let metric =
        json!({ "name": "ports", "map": "ports", "snapshot": true, "merge": { "longest": "max" } });
    let config = json!({
        "interface": "mon0",
        "ingress": { "verdict": "enforce", "source": SOURCE, "metrics": [metric] }
    });
    daemon.put(PROBE, &config).expect(201);
    for (base_port, ports, packets) in [(2000, 1, 5), (2001, 1, 3), (3000, 8, 8)] {
        let spread = Spread {
            base_port,
            ports,
            ..Spread::single()
        };
        let options = GeneratorOptions {
            spread,
            ..GeneratorOptions::default()
        };
        Generator::new(topology.generator(), "gen0", options)?.send(packets)?;
    }
    Ok(daemon)
}

fn keys(document: &Value) -> Vec<u64> {
    let entries = document["ingress"]["ports"]["entries"]
        .as_array()
        .into_iter()
        .flatten();
    entries.filter_map(|entry| entry["key"].as_u64()).collect()
}

#[test]
fn the_largest_entries_come_first_and_totals_stay_exact() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = counted(&topology)?;
    let peeked = daemon.json(&format!("{PROBE}/metrics?peek=true&top=1"));
    assert_eq!(keys(&peeked), [2000]);
    assert_eq!(
        peeked["ingress"]["ports"]["others"]["value"]["packets"], 11,
        "{peeked}"
    );
    let document = daemon.json(&format!("{PROBE}/metrics?top=2"));
    assert_eq!(keys(&document), [2000, 2001]);
    let others = json!({ "entries": 8, "value": { "packets": 8, "longest": 3007 } });
    assert_eq!(document["ingress"]["ports"]["others"], others);
    assert_eq!(document["ingress"]["ports"]["entries_used"], 10);
    let window = format!("{PROBE}/windows/{}", document["window"]["seq"]);
    let by_port = daemon.json(&format!("{window}?top=1&by=longest"));
    assert_eq!(keys(&by_port), [3007]);
    let others = json!({ "entries": 9, "value": { "packets": 15, "longest": 3006 } });
    assert_eq!(by_port["ingress"]["ports"]["others"], others);
    let all = daemon.json(&format!("{window}?top=10"));
    assert_eq!(keys(&all).len(), 10);
    assert_eq!(all["ingress"]["ports"].get("others"), None);
    let text = |format: &str| {
        let answer = daemon
            .get(&format!("{window}?top=2&format={format}"))
            .expect(200);
        String::from_utf8(answer.body).expect("text")
    };
    let xml = text("xml");
    let others = "<others entries=\"8\"><value><packets>8</packets><longest>3007</longest></value></others><entry>";
    assert!(xml.contains(others), "{xml}");
    let page = text("openmetrics");
    let packets = page
        .lines()
        .filter(|line| line.starts_with("ports_packets"));
    let packets: Vec<&str> = packets.collect();
    assert_eq!(packets.len(), 3, "{page}");
    assert!(
        packets
            .iter()
            .any(|line| line.contains("key=\"other\"") && line.contains(" 8")),
        "{page}"
    );
    Ok(())
}

#[test]
fn the_command_line_shows_what_the_others_come_to() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = counted(&topology)?;
    let output = |arguments: &[&str]| -> Result<String> {
        let output = daemon.client(arguments)?;
        anyhow::ensure!(output.status.success(), "{output:?}");
        Ok(String::from_utf8(output.stdout)?)
    };
    let table = output(&["metrics", "p", "--peek", "--top", "2"])?;
    assert!(
        table.contains("and 8 more: packets 8, longest 3007"),
        "{table}"
    );
    let table = output(&["metrics", "p", "--top", "1", "--by", "longest"])?;
    assert!(
        table.contains("and 9 more: packets 15, longest 3006"),
        "{table}"
    );
    let document: Value = serde_json::from_str(&output(&[
        "windows", "p", "--get", "1", "--top", "1", "-o", "json",
    ])?)?;
    assert_eq!(keys(&document), [2000]);
    Ok(())
}

#[test]
fn what_is_not_possible_is_refused_before_anything_is_read() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = counted(&topology)?;
    for (query, expected) in [
        ("top=0", "top=0 is not a number of entries; use 1 to 10000"),
        ("by=packets", "it needs top"),
        ("top=many", "top"),
        ("peek=true&top=1&by=bytes", "packets"),
    ] {
        let problem = daemon
            .get(&format!("{PROBE}/metrics?{query}"))
            .expect(400)
            .json();
        let detail = problem["detail"].as_str().context("a detail")?;
        assert!(detail.contains(expected), "{query}: {detail}");
    }
    let document = daemon.json(&format!("{PROBE}/metrics"));
    assert_eq!(
        (document["window"]["seq"].as_u64(), keys(&document).len()),
        (Some(1), 10)
    );
    Ok(())
}
