//! Tests that must pass on every kernel, old ones too: `make test-kernels` runs them on several.
//! They need nothing that came after Linux 5.10.

use std::collections::BTreeMap;

use crate::scene::{ADDRESSES, send_and_count};
use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::event_scene::LINES;
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::sample::{COUNTER_MAPS, COUNTERS, counter_config, total, window};
use twinprobe_tests::stream::Stream;
use twinprobe_tests::{Daemon, DaemonOptions, Response, Topology};

const PACKETS: u64 = 3_000;
/// An eBPF source with map types beyond those of [`COUNTERS`], with maps in maps and with
/// variables.
const MAPS: &str = include_str!("../../bpf/maps.bpf.c");

/// Returns a configuration with [`COUNTERS`] at one hook, observing.
pub fn counters(interface: &str, direction: &str, hook: &str, mode: Option<&str>) -> Value {
    let context = if hook == "xdp" { "xdp_md" } else { "__sk_buff" };
    let metrics: Vec<Value> = COUNTER_MAPS
        .iter()
        .map(|(map, percpu)| {
            let mut metric = window(map, map);
            if *percpu {
                metric["agg"] = json!("sum");
            }
            metric
        })
        .collect();
    let mut config = json!({ "interface": interface });
    config[direction] = json!({
        "hook": hook,
        "source": COUNTERS,
        "defines": { "SECTION": format!("\"{hook}\""), "CONTEXT": context, "VERDICT": "0" },
        "metrics": metrics
    });
    if let Some(mode) = mode {
        config[direction]["mode"] = json!(mode);
    }
    config
}

/// Checks that every packet is in exactly one window, in every map, and that the maps of a window
/// agree.
fn windows_add_up(daemon: &Daemon, topology: &Topology, direction: &str) -> Result<()> {
    let mut read = || {
        let document = daemon.json("/v1/probes/counters/metrics");
        let counts = COUNTER_MAPS.map(|(map, _)| total(&document, direction, map));
        assert_eq!(
            counts,
            [counts[0]; COUNTER_MAPS.len()],
            "{}",
            document["window"]
        );
        counts[0]
    };
    let (namespace, interface) = match direction {
        "egress" => (topology.monitor(), "mon1"),
        _ => (topology.generator(), "gen0"),
    };
    let windows = send_and_count(namespace, interface, PACKETS, &mut read)?;
    assert!(windows > 3, "only {windows} windows");
    assert_eq!(read(), 0, "more than were sent");
    Ok(())
}

/// Deploys the counters, checks how they were attached, and counts.
fn count_at(
    interface: &str,
    direction: &str,
    hook: &str,
    mode: Option<&str>,
    attached: &str,
) -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let attached = match (attached, &daemon.json("/v1/capabilities")["kernel"]["tcx"]) {
        ("tc", Value::Bool(true)) => "tcx",
        ("tc", _) => "clsact",
        (attached, _) => attached,
    };
    let status = daemon
        .put(
            "/v1/probes/counters",
            &counters(interface, direction, hook, mode),
        )
        .expect(201)
        .json();
    assert_eq!(status["interfaces"][0]["mode"], attached, "{status}");
    assert_eq!(status["programs"][direction]["twins"], true, "{status}");
    windows_add_up(&daemon, &topology, direction)
}

#[test]
fn native_xdp() -> Result<()> {
    count_at("mon0", "ingress", "xdp", Some("native"), "native")
}

#[test]
fn generic_xdp() -> Result<()> {
    count_at("mon0", "ingress", "xdp", Some("generic"), "generic")
}

#[test]
fn tc_ingress() -> Result<()> {
    count_at("mon0", "ingress", "tc", None, "tc")
}

#[test]
fn tc_egress() -> Result<()> {
    count_at("mon1", "egress", "tc", None, "tc")
}

/// The daemon attaches by clsact even if the kernel has TCX, and waits by membarrier even if there
/// is a faster method.
#[test]
fn clsact_and_membarrier() -> Result<()> {
    let topology = Topology::new()?;
    let options = ["--tc-attach", "clsact", "--quiesce", "membarrier"]
        .into_iter()
        .fold(DaemonOptions::default(), DaemonOptions::argument);
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let status = daemon
        .put(
            "/v1/probes/counters",
            &counters("mon0", "ingress", "tc", None),
        )
        .expect(201)
        .json();
    assert_eq!(status["interfaces"][0]["mode"], "clsact", "{status}");
    windows_add_up(&daemon, &topology, "ingress")
}

/// Every method to wait for a grace period works: these kernels have all, since none is PREEMPT_RT
/// or nohz_full.
#[test]
fn every_way_to_quiesce() -> Result<()> {
    let topology = Topology::new()?;
    let found = Daemon::start(topology.monitor())?.json("/v1/capabilities");
    let methods = found["kernel"]["quiesce_methods"]
        .as_array()
        .expect("a list");
    let names: Vec<&str> = methods
        .iter()
        .map(|method| method["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(names, ["sweep", "membarrier", "map-in-map"]);
    for method in methods {
        assert_eq!(method["available"], true, "{method}");
        let options = DaemonOptions::default();
        let options = options
            .argument("--quiesce")
            .argument(method["name"].as_str().expect("a name"));
        let daemon = Daemon::start_with(topology.monitor(), &options)?;
        assert_eq!(
            daemon.json("/v1/capabilities")["kernel"]["quiesce"],
            method["name"]
        );
        daemon
            .put(
                "/v1/probes/counters",
                &counters("mon0", "ingress", "xdp", None),
            )
            .expect(201);
        windows_add_up(&daemon, &topology, "ingress")?;
    }
    Ok(())
}

/// The next daemon adopts the probes of a daemon that was killed.
#[test]
fn a_daemon_that_was_killed() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(
            "/v1/probes/counters",
            &counters("mon0", "ingress", "tc", None),
        )
        .expect(201);
    let directories = daemon.kill()?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    windows_add_up(&daemon, &topology, "ingress")
}

/// The link gets a new dispatcher while packets come: a probe joins, is replaced, and is removed.
#[test]
fn a_chain_that_changes_under_traffic() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(
            "/v1/probes/counters",
            &counters("mon0", "ingress", "xdp", None),
        )
        .expect(201);
    let neighbour = counter_config("mon0", "XDP_DROP");
    let (mut round, mut seen_by_neighbour) = (0, 0);
    let read = || {
        round += 1;
        match round {
            2 => drop(daemon.put("/v1/probes/neighbour", &neighbour).expect(201)),
            5 => drop(daemon.put("/v1/probes/neighbour", &neighbour).expect(200)),
            8 => {
                seen_by_neighbour = total(
                    &daemon.json("/v1/probes/neighbour/metrics"),
                    "ingress",
                    "packets",
                );
                drop(daemon.delete("/v1/probes/neighbour").expect(204));
            }
            _ => {}
        }
        total(
            &daemon.json("/v1/probes/counters/metrics"),
            "ingress",
            "in_array",
        )
    };
    let windows = send_and_count(topology.generator(), "gen0", PACKETS, read)?;
    assert!(windows > 8, "only {windows} windows");
    assert!(seen_by_neighbour > 0, "the neighbour was not called");
    Ok(())
}

/// LRU_PERCPU_HASH, LPM_TRIE, maps in maps and variables are read by the best strategy and by the
/// iterative one.
#[test]
fn further_map_types() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let names = [
        "in_lru_percpu_hash",
        "in_lpm_trie",
        "odd_keys",
        "by_parity",
        "per_cpu_by_parity",
        ".bss:packets",
    ];
    for strategy in ["auto", "iterative"] {
        let metrics = names.map(|map| {
            let mut metric = window(map.trim_start_matches(".bss:"), map);
            if map != ".bss:packets" {
                metric["strategy"] = json!(strategy);
            }
            if map.contains("per") {
                metric["agg"] = json!("sum");
            }
            metric
        });
        let config =
            json!({ "interface": "mon0", "ingress": { "source": MAPS, "metrics": metrics } });
        let response = daemon.put("/v1/probes/maps", &config);
        assert!([200, 201].contains(&response.status), "{}", response.text());
        let mut by_address = BTreeMap::new();
        let read = || {
            let document = daemon.json("/v1/probes/maps/metrics");
            let counts =
                names.map(|name| sum(&document["ingress"][name.trim_start_matches(".bss:")]));
            assert_eq!(counts, [counts[0]; 6], "{document}");
            for entry in document["ingress"]["in_lpm_trie"]["entries"]
                .as_array()
                .expect("entries")
            {
                *by_address.entry(entry["key"].to_string()).or_insert(0) += sum(&entry["value"]);
            }
            counts[0]
        };
        send_and_count(topology.generator(), "gen0", PACKETS, read)?;
        assert_eq!(by_address.len() as u64, ADDRESSES);
        assert!(
            by_address
                .values()
                .all(|count| *count == PACKETS / ADDRESSES),
            "{by_address:?}"
        );
    }
    Ok(())
}

/// Returns the sum of all numbers in a metric's values, in inner maps too.
fn sum(value: &Value) -> u64 {
    match value {
        Value::Array(values) => values.iter().map(sum).sum(),
        Value::Object(fields) => match (fields.get("entries"), fields.get("value")) {
            (Some(entries), _) => sum(entries),
            (None, Some(value)) => sum(value),
            (None, None) => fields.values().map(sum).sum(),
        },
        value => value
            .as_u64()
            .unwrap_or_else(|| panic!("{value} is not a number")),
    }
}

/// QUEUE and STACK give each value once.
#[test]
fn queues_and_stacks() -> Result<()> {
    const SOURCE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define FIFO(NAME, TYPE) struct { __uint(type, TYPE); __uint(max_entries, 4096); __type(value, __u32); } NAME SEC(".maps")
FIFO(queue, BPF_MAP_TYPE_QUEUE);
FIFO(stack, BPF_MAP_TYPE_STACK);
SEC("tc") int push(struct __sk_buff *skb)
{
	__u32 length = skb->len;

	bpf_map_push_elem(&queue, &length, BPF_ANY);
	bpf_map_push_elem(&stack, &length, BPF_ANY);
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let metrics = [window("queue", "queue"), window("stack", "stack")];
    let config = json!({ "interface": "mon0", "ingress": { "hook": "tc", "source": SOURCE, "metrics": metrics } });
    daemon.put("/v1/probes/fifos", &config).expect(201);
    let read = || {
        let document = daemon.json("/v1/probes/fifos/metrics");
        let [queue, stack] = ["queue", "stack"].map(|name| {
            document["ingress"][name]["entries"]
                .as_array()
                .expect("entries")
                .len() as u64
        });
        assert_eq!(queue, stack, "{}", document["window"]);
        queue
    };
    send_and_count(topology.generator(), "gen0", PACKETS, read)?;
    Ok(())
}

/// RINGBUF and PERF_EVENT_ARRAY give each event once, in order. Each CPU has a perf buffer of its
/// own, so that one CPU sends and receives.
#[test]
fn events() -> Result<()> {
    const SOURCE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct event { __u64 serial; };
struct event *unused __attribute__((unused));
struct {
#ifdef PERF
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
#else
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
#endif
} ring SEC(".maps");
__u64 serial;
SEC("xdp") int report(struct xdp_md *ctx)
{
	struct event event = { serial++ };

#ifdef PERF
	bpf_perf_event_output(ctx, &ring, BPF_F_CURRENT_CPU, &event, sizeof(event));
#else
	bpf_ringbuf_output(&ring, &event, sizeof(event), 0);
#endif
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    // The sending thread inherits the CPU.
    pin_to_cpu(0)?;
    for (name, defines) in [("ringbuf", json!({})), ("perf", json!({ "PERF": "1" }))] {
        let metric = json!({ "name": "ring", "map": "ring", "type": "struct event" });
        let ingress = json!({ "source": SOURCE, "defines": defines, "metrics": [metric] });
        let path = format!("/v1/probes/{name}");
        daemon
            .put(&path, &json!({ "interface": "mon0", "ingress": ingress }))
            .expect(201);
        let mut stream = Stream::open(&daemon, &format!("{path}/events"), LINES)?;
        let mut next = 0;
        let read = || {
            let line = stream.json().expect("an event");
            assert_eq!(line["event"]["serial"], next, "{line}");
            next += 1;
            1
        };
        send_and_count(topology.generator(), "gen0", 500, read)?;
        daemon.delete(&path).expect(204);
    }
    Ok(())
}

/// Capabilities and errors name the features that the kernel lacks. `TWINPROBE_EXPECT` has the
/// expected capabilities (`make test-kernels`): `tcx=false,hash=iterative`.
#[test]
fn what_is_there_and_what_is_missing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let found = daemon.json("/v1/capabilities");
    println!("{found:#}");
    let expected = std::env::var("TWINPROBE_EXPECT").unwrap_or_default();
    for (name, value) in expected
        .split(',')
        .filter_map(|feature| feature.split_once('='))
    {
        let map = found["maps"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|map| map["type"] == name);
        let feature = || {
            found["kernel"]
                .get(name)
                .unwrap_or(&found["compiler"][name])
        };
        let is = map.map_or_else(feature, |map| &map["strategy"]);
        assert_eq!(
            is.as_str().map_or_else(|| is.to_string(), str::to_owned),
            value,
            "{name}"
        );
    }
    drop(daemon);

    let options = DaemonOptions::default()
        .argument("--tc-attach")
        .argument("tcx");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    let response = daemon.put(
        "/v1/probes/counters",
        &counters("mon0", "ingress", "tc", None),
    );
    if found["kernel"]["tcx"] == true {
        response.expect(201);
    } else {
        let problem = response.expect(422).json();
        assert!(
            problem["errors"][0]["message"]
                .as_str()
                .is_some_and(|text| text.contains("TCX")),
            "{problem}"
        );
    }
    // The first helper function does not exist, the second one needs Linux 6.1; the last statement
    // needs Linux 5.12.
    let source = "#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n__u64 word;\n\
        static long (*from_the_future)(void) = (void *)9999, (*ktime_get_tai_ns)(void) = (void *)208;\n\
        SEC(\"xdp\") int f(struct xdp_md *ctx) { return STATEMENT; }\n\
        char LICENSE[] SEC(\"license\") = \"GPL\";\n";
    let put = |statement| {
        let ingress =
            json!({ "source": source, "defines": { "STATEMENT": statement }, "metrics": [] });
        daemon.put(
            "/v1/probes/other",
            &json!({ "interface": "mon0", "ingress": ingress }),
        )
    };
    let message = |response: Response| {
        let problem = response.expect(422).json();
        problem["errors"][0]["message"]
            .as_str()
            .expect("text")
            .to_owned()
    };
    let text = message(put("from_the_future()"));
    assert!(
        text.contains("the helper function 9999 is not allowed"),
        "{text}"
    );
    let response = put("ktime_get_tai_ns()");
    if response.status == 422 {
        let text = message(response);
        assert!(
            text.contains("#208") && text.contains("this kernel does not have"),
            "{text}"
        );
    }
    let response = put("__sync_fetch_and_add(&word, 1)");
    if response.status == 422 {
        let text = message(response);
        assert!(
            text.contains("this kernel has no atomic operations that give back a value"),
            "{text}"
        );
    }
    Ok(())
}
