//! Sums beyond 64 bits: over windows, over CPUs, over a restart and a replacement, in every format
//! and in merged documents.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::netns::pin_to_cpu;
use twinprobe_tests::sample::window;
use twinprobe_tests::traffic::PacketSocket;
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

/// The numbers that each packet adds: 2^63 + 5, and as a signed number -(2^63 - 1).
const UP: i128 = (1 << 63) + 5;
const DOWN: i128 = -((1 << 63) - 1);

const SOURCE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct numbers {
	__u64 up;
	__s64 down;
	__u64 up_max;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ENTRIES);
	__type(key, __u32);
	__type(value, struct numbers);
} numbers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} all SEC(".maps"), one SEC(".maps");

SEC("xdp") int add(struct xdp_md *ctx)
{
	struct numbers first = { 9223372036854775813ULL, -9223372036854775807LL, 9223372036854775813ULL };
	__u32 key = 0;
	__u64 *sum = bpf_map_lookup_elem(&all, &key);

	if (sum)
		*sum += first.up;
	sum = bpf_map_lookup_elem(&one, &key);
	if (sum)
		*sum += first.up;
	/* A second packet in a window would not fit. */
	bpf_map_update_elem(&numbers, &key, &first, BPF_NOEXIST);
	return XDP_PASS;
}

char LICENSE[] SEC("license") = "GPL";
"#;

fn config(entries: &str) -> Value {
    let sum = |name: &str, map: &str| json!({ "name": name, "map": map, "snapshot": true });
    let over_cpus = |mut metric: Value| {
        metric["agg"] = "sum".into();
        metric
    };
    json!({
        "interface": "mon0",
        "window": { "retain": 10 },
        "ingress": { "source": SOURCE, "defines": { "ENTRIES": entries }, "metrics": [
            sum("numbers", "numbers"), over_cpus(sum("all", "all")), over_cpus(window("one", "one")),
        ] }
    })
}

struct Scene {
    topology: Topology,
    /// The CPUs that packets are sent on: two, if the machine has them.
    cpus: i128,
    windows: i128,
}

impl Scene {
    fn send(&self) -> Result<()> {
        for cpu in 0..self.cpus as usize {
            self.topology.generator().enter(|| {
                pin_to_cpu(cpu)?;
                PacketSocket::open("gen0")?.send(&[2; 64]).context("send")
            })??;
        }
        Ok(())
    }

    /// Sends, closes a window, and compares all of its documents.
    fn window(&mut self, daemon: &Daemon) -> Result<()> {
        self.send()?;
        self.windows += 1;
        let (n, cpus) = (self.windows, self.cpus);
        let document = daemon.get("/v1/probes/p/metrics").expect(200);
        for expected in [
            format!(
                r#""value":{{"up":{},"down":{},"up_max":{UP}}}"#,
                n * UP,
                n * DOWN
            ),
            format!(r#""entries":[{{"key":0,"value":{}}}]"#, n * cpus * UP),
            format!(r#""entries":[{{"key":0,"value":{}}}]"#, cpus * UP),
        ] {
            ensure!(
                document.text().contains(&expected),
                "no {expected} in {}",
                document.text()
            );
        }
        let stored = format!("/v1/probes/p/windows/{n}");
        let xml = daemon.get(&format!("{stored}?format=xml")).expect(200);
        for expected in [
            format!("<up>{}</up>", n * UP),
            format!("<down>{}</down>", n * DOWN),
        ] {
            ensure!(
                xml.text().contains(&expected),
                "no {expected} in {}",
                xml.text()
            );
        }
        let samples = daemon
            .get(&format!("{stored}?format=openmetrics"))
            .expect(200);
        for expected in [n * UP, n * DOWN, n * cpus * UP, cpus * UP] {
            ensure!(
                samples.text().contains(&format!(" {expected}\n")),
                "no {expected} in {}",
                samples.text()
            );
        }
        Ok(())
    }
}

#[test]
fn sums_go_on_where_64_bits_end() -> Result<()> {
    let topology = Topology::new()?;
    let cpus = std::thread::available_parallelism()?.get().min(2) as i128;
    let mut scene = Scene {
        topology,
        cpus,
        windows: 0,
    };
    let mut daemon = Daemon::start(scene.topology.monitor())?;
    daemon.put("/v1/probes/p", &config("4")).expect(201);
    scene.window(&daemon)?;
    scene.window(&daemon)?;
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    scene.window(&daemon)?;
    daemon.put("/v1/probes/p", &config("5")).expect(200);
    scene.window(&daemon)?;

    // The client adds up documents (here only one), and shows numbers as they are.
    scene.send()?;
    let merged = daemon.client(&["metrics", "p", "--merge", "-o", "json"])?;
    let yaml = daemon.client(&["windows", "p", "--get", "5", "-o", "yaml"])?;
    for output in [&merged, &yaml] {
        let text = String::from_utf8_lossy(&output.stdout);
        let expected = [5 * UP, 5 * DOWN, 5 * cpus * UP, cpus * UP];
        for expected in expected {
            ensure!(
                text.contains(&format!(": {expected}")),
                "no {expected} in {text} {output:?}"
            );
        }
    }
    Ok(())
}
