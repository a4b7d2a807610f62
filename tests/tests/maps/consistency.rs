//! Consistency: two maps that the program updates together agree in every window, because of the
//! grace period.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::{total, window};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled};

/// A program that counts in one map, works (10,000 steps are tens of microseconds) and counts in
/// the other: a reader that does not wait for the program finds different counts.
const PAIR: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define MAP(NAME)                                                                                  \
	struct {                                                                                   \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                  \
		__uint(max_entries, 1);                                                            \
		__type(key, __u32);                                                                \
		__type(value, __u64);                                                              \
	} NAME SEC(".maps")
MAP(first);
MAP(second);

static long work(__u32 index, void *context)
{
	return 0;
}

SEC("xdp") int count_twice(struct xdp_md *ctx)
{
	__u32 key = 0;
	__u64 *a = bpf_map_lookup_elem(&first, &key), *b = bpf_map_lookup_elem(&second, &key);

	if (!a || !b)
		return XDP_DROP;
	__sync_fetch_and_add(a, 1);
	bpf_loop(STEPS, work, 0, 0);
	__sync_fetch_and_add(b, 1);
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// Reads windows under load until one is torn. Returns the number of windows before it, `None` if
/// no window is torn.
fn torn_windows(options: &DaemonOptions, windows: u64, steps: u32) -> Result<Option<u64>> {
    let topology = Topology::new()?;
    let daemon = Daemon::start_with(topology.monitor(), options)?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let config = json!({
        "interface": "mon0",
        "ingress": {
            "verdict": "enforce",
            "source": PAIR,
            "defines": { "STEPS": steps.to_string() },
            // The test reads the maps in another order than the program writes them.
            "metrics": [window("second", "second"), window("first", "first")]
        }
    });
    daemon.put("/v1/probes/pair", &config).expect(201);
    let cpu = GeneratorOptions {
        cpu: Some(0),
        ..GeneratorOptions::default()
    };
    let load = Generator::new(topology.generator(), "gen0", cpu)?.spawn(Load::default());
    let mut sums = (0, 0);
    for window in 0..windows {
        let (first, second) = counts(&daemon.json("/v1/probes/pair/metrics"));
        if first != second {
            load.stop()?;
            bystanders.finish()?;
            return Ok(Some(window));
        }
        sums = (sums.0 + first, sums.1 + second);
    }
    let sent = load.stop()?;
    let (first, second) = counts(&daemon.json("/v1/probes/pair/metrics"));
    sums = (sums.0 + first, sums.1 + second);
    assert!(
        sums.0 > windows,
        "too little load to show anything: {sums:?}"
    );
    assert_eq!(sums, (sent, sent));
    bystanders.finish()?;
    Ok(None)
}

fn counts(document: &Value) -> (u64, u64) {
    (
        total(document, "ingress", "first"),
        total(document, "ingress", "second"),
    )
}

#[test]
fn two_maps_agree_in_every_window() -> Result<()> {
    for method in ["sweep", "membarrier", "map-in-map"] {
        let options = DaemonOptions::default()
            .argument("--quiesce")
            .argument(method);
        let torn = torn_windows(&options, scaled(60, 6_000), 10_000)?;
        assert_eq!(torn, None, "with {method}");
    }
    Ok(())
}

/// The test above fails without the grace period: the test can fail.
#[test]
fn without_the_grace_period_windows_are_torn() -> Result<()> {
    if std::thread::available_parallelism()?.get() < 2 {
        return Ok(());
    }
    let options = DaemonOptions::default()
        .argument("--quiesce")
        .argument("none");
    // The program works longer than it takes to create the window's file, which comes before the
    // maps are read.
    let torn = torn_windows(&options, 600, 300_000)?;
    assert!(
        torn.is_some(),
        "no window of 600 was torn: the test shows nothing"
    );
    Ok(())
}
