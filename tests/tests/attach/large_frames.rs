//! Frames of several buffers: every probe sees them whole, whether its program knows of such frames or not.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::sample::{counter_config, total, window};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Stand, Topology};

const LENGTH: usize = 8000;

/// A program for frames of several buffers that counts packets and all of their bytes.
const FRAGS: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define COUNTER(NAME) struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); \
	__type(value, __u64); } NAME SEC(".maps")
COUNTER(packets);
COUNTER(bytes);
COUNTER(tails);

static void add(void *map, __u64 amount)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(map, &key);

	if (value)
		__sync_fetch_and_add(value, amount);
}

SEC("xdp.frags") int count_frags(struct xdp_md *ctx)
{
	__u64 length = bpf_xdp_get_buff_len(ctx);
	__u8 last = 0;

	add(&packets, 1);
	add(&bytes, length);
	/* The last byte is in the last buffer. */
	if (length > 60 && !bpf_xdp_load_bytes(ctx, 7999, &last, 1) && last == 0xa5)
		add(&tails, 1);
	return XDP_PASS;
}
char LICENSE[] SEC("license") = "GPL";
"#;

fn frags_config() -> Value {
    let metrics = ["packets", "bytes", "tails"].map(|map| window(map, map));
    json!({ "interface": "mon0", "ingress": { "source": FRAGS, "metrics": metrics } })
}

/// Returns a frame of this length that no network stack answers.
fn frame(length: usize) -> Vec<u8> {
    let mut frame = vec![0xa5; length];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5]);
    frame
}

fn large(topology: &Topology) -> Result<()> {
    for (namespace, interface) in [(topology.generator(), "gen0"), (topology.monitor(), "mon0")] {
        namespace.run("ip", &["link", "set", "dev", interface, "mtu", "9000"])?;
    }
    Ok(())
}

/// Two probes in both orders, observing and enforcing.
#[test]
fn probes_with_and_without_frags_see_every_frame() -> Result<()> {
    for (first, second) in [("ordinary", "frags"), ("frags", "ordinary")] {
        let topology = Topology::new()?;
        large(&topology)?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        let behind = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
        let config = |name: &str| {
            if name == "frags" { frags_config() } else { counter_config("mon0", "XDP_PASS") }
        };
        for name in [first, second] {
            daemon.put(&format!("/v1/probes/{name}"), &config(name)).expect(201);
            let mode = daemon.json(&format!("/v1/probes/{name}"))["interfaces"][0]["mode"].clone();
            assert_eq!(mode, "native", "{name} after {first}");
        }
        let mut passed = (0, 0);
        for verdict in ["observe", "enforce", "observe"] {
            for name in [first, second] {
                let mut config = config(name);
                config["ingress"]["verdict"] = json!(verdict);
                daemon.put(&format!("/v1/probes/{name}"), &config).expect(200);
            }
            send_frames(topology.generator(), "gen0", &frame(LENGTH), 1000)?;
            send_frames(topology.generator(), "gen0", &frame(60), 100)?;
            passed = (passed.0 + 1100, passed.1 + 1000 * LENGTH as u64 + 6000);
            let read = |name: &str| daemon.json(&format!("/v1/probes/{name}/metrics"));
            let (ordinary, frags) = (read("ordinary"), read("frags"));
            assert_eq!(total(&ordinary, "ingress", "packets"), 1100, "{first} first, {verdict}");
            let sum = |metric: &str| total(&frags, "ingress", metric);
            assert_eq!(sum("packets"), 1100, "{first} first, {verdict}");
            assert_eq!(sum("bytes"), 1000 * LENGTH as u64 + 6000, "{first} first, {verdict}");
            assert_eq!(sum("tails"), 1000, "{first} first, {verdict}");
            assert_eq!(
                (behind.packets()?, behind.bytes()?),
                passed,
                "frames were cut, {first} first, {verdict}"
            );
        }
        bystanders.finish()?;
    }
    Ok(())
}

/// A probe is replaced by one that knows of frames of several buffers, and back, and keeps its counts; after a restart
/// as well.
#[test]
fn a_probe_changes_over_with_its_content() -> Result<()> {
    let topology = Topology::new()?;
    large(&topology)?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let ordinary = counter_config("mon0", "XDP_PASS");
    daemon.put("/v1/probes/p", &ordinary).expect(201);
    daemon.put("/v1/probes/beside", &ordinary).expect(201);
    let mut sent = 0;
    for round in 0..6 {
        send_frames(topology.generator(), "gen0", &frame(LENGTH), 100)?;
        sent += 100;
        let config = if round % 2 == 0 { frags_config() } else { ordinary.clone() };
        daemon.put("/v1/probes/p", &config).expect(200);
        if round == 3 {
            daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        }
    }
    for probe in ["p", "beside"] {
        let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
        assert_eq!(total(&document, "ingress", "packets"), sent, "{probe}");
    }
    bystanders.finish()
}

/// An interface without native support for such frames can use the generic mode.
#[test]
fn the_generic_mode_takes_large_frames() -> Result<()> {
    let topology = Topology::new()?;
    large(&topology)?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_at(&daemon, &topology, Stand { mode: "generic", ..Stand::BESIDE })?;
    let behind = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
    for (name, mut config) in [("ordinary", counter_config("mon0", "XDP_PASS")), ("frags", frags_config())] {
        config["ingress"]["mode"] = json!("generic");
        daemon.put(&format!("/v1/probes/{name}"), &config).expect(201);
    }
    send_frames(topology.generator(), "gen0", &frame(LENGTH), 100)?;
    for name in ["ordinary", "frags"] {
        let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
        assert_eq!(total(&document, "ingress", "packets"), 100, "{name}");
    }
    assert_eq!(behind.packets()?, 100);
    bystanders.finish()
}
