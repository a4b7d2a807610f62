//! Probes with programs and maps for each interface: each row names its interface, and no packet is
//! lost or counted for another one, even if the daemon, the interfaces or the configuration change.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinprobe_tests::sample::total;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, attachments, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, KernelObjects, Namespace, Topology, veth_pair};

const PROBE: &str = "/v1/probes/p";
/// Counts packets by their length, in all, and in a variable.
const SOURCE: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct frame { __u32 bytes; };
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct frame);
	__type(value, __u64);
} lengths SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} packets SEC(".maps");
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 64);
	__type(value, __u32);
} first SEC(".maps");
__u64 seen;
SEC("xdp") int count(struct xdp_md *ctx)
{
	struct frame frame = { ctx->data_end - ctx->data };
	__u64 one = 1, *value = bpf_map_lookup_elem(&lengths, &frame);
	__u32 zero = 0, length = frame.bytes;

	if (value)
		__sync_fetch_and_add(value, 1);
	else if (bpf_map_update_elem(&lengths, &frame, &one, BPF_NOEXIST)) {
		value = bpf_map_lookup_elem(&lengths, &frame);
		if (value)
			__sync_fetch_and_add(value, 1);
	}
	value = bpf_map_lookup_elem(&packets, &zero);
	if (value)
		(*value)++;
	if (__sync_fetch_and_add(&seen, 1) == 0)
		bpf_map_push_elem(&first, &length, 0);
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;

/// Sums by length, windows of all packets, a live variable, and a queue.
fn config(per_interface: bool, interfaces: &[&str]) -> Value {
    json!({
        "interfaces": interfaces,
        "per_interface": per_interface,
        "ingress": { "verdict": "enforce", "source": SOURCE, "metrics": [
            { "name": "lengths", "map": "lengths", "snapshot": true },
            { "name": "packets", "map": "packets", "snapshot": true, "init": true, "agg": "sum" },
            { "name": "seen", "map": ".bss:seen" },
            { "name": "first", "map": "first", "snapshot": true, "init": true }
        ] }
    })
}

fn generators(topology: &Topology) -> Result<[Generator; 2]> {
    let of = |namespace: &Namespace, interface| {
        Generator::new(namespace, interface, GeneratorOptions::default())
    };
    Ok([
        of(topology.generator(), "gen0")?,
        of(topology.sink(), "sink0")?,
    ])
}

/// Returns the sum of a metric's rows for an interface.
fn of_interface(document: &Value, metric: &str, interface: &str) -> u64 {
    let entries = document["ingress"][metric]["entries"]
        .as_array()
        .into_iter()
        .flatten();
    let own = entries.filter(|entry| entry["key"]["interface"] == interface);
    own.map(|entry| entry["value"].as_u64().expect("a number"))
        .sum()
}

fn both(document: &Value, metric: &str) -> (u64, u64) {
    (
        of_interface(document, metric, "mon0"),
        of_interface(document, metric, "mon1"),
    )
}

#[test]
fn each_row_names_its_interface_in_every_format() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(PROBE, &config(true, &["mon0", "mon1"]))
        .expect(201);
    let [mut left, mut right] = generators(&topology)?;
    left.send(1000)?;
    right.send(300)?;
    let peeked = daemon.json(&format!("{PROBE}/metrics?peek=true"));
    let document = daemon.json(&format!("{PROBE}/metrics"));
    for metric in ["lengths", "packets", "seen"] {
        assert_eq!(both(&document, metric), (1000, 300), "{document}");
        assert_eq!(both(&peeked, metric), (1000, 300), "{peeked}");
    }
    let entries = document["ingress"]["first"]["entries"]
        .as_array()
        .context("a queue")?;
    let mut of: Vec<&str> = entries
        .iter()
        .filter_map(|entry| entry["value"]["interface"].as_str())
        .collect();
    of.sort_unstable();
    assert_eq!(of, ["mon0", "mon1"], "{document}");
    let fields: Vec<&String> = document["ingress"]["lengths"]["entries"][0]["key"]
        .as_object()
        .context("a key")?
        .keys()
        .collect();
    assert_eq!(fields, ["interface", "bytes"]);
    // The other formats and the retained window have the same numbers.
    left.send(7)?;
    let window = daemon.json(&format!("{PROBE}/metrics"));
    assert_eq!(
        (both(&window, "lengths"), both(&window, "packets")),
        ((1007, 300), (7, 0))
    );
    let path = format!("{PROBE}/windows/{}", window["window"]["seq"]);
    let text = |format: &str| {
        String::from_utf8(
            daemon
                .get(&format!("{path}?format={format}"))
                .expect(200)
                .body,
        )
        .expect("text")
    };
    assert!(
        text("xml").contains("<interface>mon0</interface>"),
        "{}",
        text("xml")
    );
    let samples = text("openmetrics");
    let has = |line: &str| samples.lines().any(|found| found.starts_with(line));
    assert!(has("packets_total{") || has("packets{"), "{samples}");
    for (interface, number) in [("mon0", "7"), ("mon1", "0")] {
        let is_it = |line: &&str| {
            line.starts_with("packets") && line.contains(&format!("interface=\"{interface}\""))
        };
        let line = samples
            .lines()
            .find(is_it)
            .with_context(|| samples.clone())?;
        assert!(line.split(' ').any(|word| word == number), "{line}");
        assert_eq!(line.matches("interface=").count(), 1, "{line}");
    }
    let table = daemon.client(&[
        "windows",
        "p",
        "--get",
        &window["window"]["seq"].to_string(),
    ])?;
    let table = String::from_utf8(table.stdout)?;
    assert!(
        table.contains("key.interface") && table.contains("mon1"),
        "{table}"
    );
    Ok(())
}

#[test]
fn counts_go_on_after_a_kill_and_when_links_are_made_again() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(PROBE, &config(true, &["mon0", "mon1"]))
        .expect(201);
    let [mut left, mut right] = generators(&topology)?;
    left.send(100)?;
    right.send(10)?;
    let directories = daemon.directories();
    let objects = KernelObjects::pinned(directories.bpffs())?;
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    daemon.get("/readyz").expect(200);
    assert_eq!(
        KernelObjects::pinned(directories.bpffs())?.differences(&objects),
        []
    );
    left.send(1)?;
    let document = daemon.json(&format!("{PROBE}/metrics"));
    assert_eq!(
        (both(&document, "lengths"), both(&document, "packets")),
        ((101, 10), (101, 10))
    );
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    // The link disappears and comes again: it is the interface of the same name.
    topology.generator().run("ip", &["link", "del", "gen0"])?;
    veth_pair(topology.generator(), "gen0", topology.monitor(), "mon0")?;
    let index = topology.monitor().interface_index("mon0")?;
    wait_for("mon0 is attached again", PATIENCE, || {
        let status = daemon.json(PROBE);
        let found = attachments(&status, "mon0");
        let right = |attachment: &&Value| {
            attachment["state"] == "attached" && attachment["ifindex"] == index
        };
        anyhow::ensure!(
            !found.is_empty() && found.iter().all(right),
            "{}",
            status["interfaces"]
        );
        Ok(())
    })?;
    let [mut left, _] = generators(&topology)?;
    left.send(1000)?;
    right.send(1)?;
    let document = daemon.json(&format!("{PROBE}/metrics"));
    assert_eq!(
        (both(&document, "lengths"), both(&document, "packets")),
        ((1101, 11), (1000, 1))
    );
    daemon.delete(PROBE).expect(204);
    assert_eq!(
        KernelObjects::pinned(directories.bpffs())?
            .counts()
            .iter()
            .find(|(kind, _)| *kind == "link"),
        Some(&("link", 0))
    );
    Ok(())
}

/// Counts from before the metric named interfaces have no name. The change loses no packet under
/// load.
#[test]
fn replacements_carry_counts_from_and_to_rows_that_name_interfaces() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(PROBE, &config(false, &["mon0", "mon1"]))
        .expect(201);
    let [left, mut right] = generators(&topology)?;
    right.send(300)?;
    let load = left.spawn(Load {
        rate: Some(20_000),
        ..Load::default()
    });
    wait_for("packets come", PATIENCE, || {
        anyhow::ensure!(load.sent() > 1000, "{}", load.sent());
        Ok(())
    })?;
    daemon
        .put(PROBE, &config(true, &["mon0", "mon1"]))
        .expect(200);
    let after = load.sent();
    wait_for("packets come", PATIENCE, || {
        anyhow::ensure!(load.sent() > after + 1000, "{}", load.sent());
        Ok(())
    })?;
    right.send(7)?;
    daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    // The sum of an interface that is no longer in the configuration remains.
    daemon.put(PROBE, &config(true, &["mon0"])).expect(200);
    let sent = load.stop()?;
    let document = daemon.json(&format!("{PROBE}/metrics"));
    let named = ["", "mon0", "mon1"].map(|interface| of_interface(&document, "lengths", interface));
    assert_eq!(named.iter().sum::<u64>(), sent + 307, "{named:?}");
    assert!(
        named[0] > 1300 && named[1] > 1000 && named[2] == 7,
        "{named:?} of {sent}"
    );
    daemon
        .put(PROBE, &config(false, &["mon0", "mon1"]))
        .expect(200);
    right.send(5)?;
    let document = daemon.json(&format!("{PROBE}/metrics"));
    assert_eq!(
        total(&document, "ingress", "lengths"),
        sent + 312,
        "{document}"
    );
    let keys = document["ingress"]["lengths"]["entries"]
        .as_array()
        .context("entries")?;
    assert!(
        keys.iter()
            .all(|entry| entry["key"].get("interface").is_none()),
        "{document}"
    );
    assert_eq!(total(&document, "ingress", "packets"), 5);
    Ok(())
}

/// A sum of rows that name interfaces does not go into the maps of the interfaces, and the answer
/// says so.
#[test]
fn a_sum_that_becomes_live_is_left_with_a_warning() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon
        .put(PROBE, &config(true, &["mon0", "mon1"]))
        .expect(201);
    let [mut left, mut right] = generators(&topology)?;
    left.send(20)?;
    right.send(30)?;
    assert_eq!(
        both(&daemon.json(&format!("{PROBE}/metrics")), "lengths"),
        (20, 30)
    );
    left.send(3)?;
    let mut live = config(true, &["mon0", "mon1"]);
    live["ingress"]["metrics"][0]["snapshot"] = json!(false);
    let answer = daemon.put(PROBE, &live).expect(200).json();
    let warnings = answer["warnings"].to_string();
    assert!(
        warnings.contains("metric lengths continues with the counts of the open window alone"),
        "{answer}"
    );
    assert_eq!(
        both(&daemon.json(&format!("{PROBE}/metrics")), "lengths"),
        (3, 0)
    );
    // A metric that stays a sum needs no warning.
    daemon.delete(PROBE).expect(204);
    daemon
        .put(PROBE, &config(true, &["mon0", "mon1"]))
        .expect(201);
    let answer = daemon
        .put(PROBE, &config(true, &["mon0"]))
        .expect(200)
        .json();
    assert!(
        !answer["warnings"]
            .to_string()
            .contains("continues with the counts"),
        "{answer}"
    );
    Ok(())
}

#[test]
fn each_interface_takes_its_share_and_has_to_be_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bytes = |per_interface| {
        let report = daemon
            .post("/v1/validate", &config(per_interface, &["mon0", "mon1"]))
            .expect(200)
            .json();
        report["cost"]["map_bytes"].as_u64().expect("a number")
    };
    assert_eq!(bytes(true), 2 * bytes(false));
    let refused = daemon
        .put(PROBE, &config(true, &["mon0", "ve*"]))
        .expect(422)
        .json();
    let finding = &refused["errors"][0];
    assert_eq!(finding["field"], "per_interface", "{refused}");
    let message = finding["message"].as_str().context("a message")?;
    assert!(
        message.contains("\"ve*\" is a pattern") && message.contains("wait_for_interface"),
        "{message}"
    );
    daemon.get(PROBE).expect(404);
    Ok(())
}

/// Returns the number of the sample whose labels begin and end like this.
fn sample(page: &str, name: &str, labels: &str) -> Result<f64> {
    let is_it = |line: &&str| line.starts_with(&format!("{name}{{")) && line.contains(labels);
    let line = page
        .lines()
        .find(is_it)
        .with_context(|| format!("no {name} with {labels}:\n{page}"))?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

#[test]
fn each_interface_has_a_histogram_with_its_sum() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut config = twinprobe_tests::probes::configuration("packet-sizes", "mon0")?;
    let fields = config.as_object_mut().context("a configuration")?;
    for field in ["interface", "egress", "name"] {
        fields.remove(field);
    }
    config["interfaces"] = json!(["mon0", "mon1"]);
    config["per_interface"] = json!(true);
    daemon.put(PROBE, &config).expect(201);
    let [mut left, mut right] = generators(&topology)?;
    left.send(100)?;
    right.send(30)?;
    let page = daemon
        .get(&format!("{PROBE}/metrics?format=openmetrics"))
        .expect(200)
        .text()
        .to_string();
    let kind = page
        .lines()
        .find(|line| line.starts_with("# TYPE net_packet_size_bytes "));
    assert_eq!(
        kind,
        Some("# TYPE net_packet_size_bytes histogram"),
        "{page}"
    );
    let mut lengths = Vec::new();
    for (interface, packets) in [("mon0", 100.0), ("mon1", 30.0)] {
        let of = format!("interface=\"{interface}\"");
        let all = sample(
            &page,
            "net_packet_size_bytes_bucket",
            &format!("{of},le=\"+Inf\""),
        )?;
        let count = sample(&page, "net_packet_size_bytes_count", &of)?;
        lengths.push(sample(&page, "net_packet_size_bytes_sum", &of)? / packets);
        assert_eq!((all, count), (packets, packets), "{page}");
    }
    assert!(
        lengths[0] > 0.0 && lengths[0] == lengths[1],
        "{lengths:?}\n{page}"
    );
    // The document of the same window has the percentiles of each interface, and of both together.
    let document = daemon
        .get(&format!("{PROBE}/metrics?top=1"))
        .expect(200)
        .json();
    let sizes = &document["ingress"]["packet_size_bytes"];
    let bound = &sizes["p95"];
    assert!(
        sizes["histogram"] == true && sizes["count"] == 130 && bound.as_f64() >= Some(lengths[0]),
        "{sizes}"
    );
    for (interface, packets) in [("mon0", 100), ("mon1", 30)] {
        let own = &sizes["by_interface"][interface];
        assert_eq!(
            (&own["count"], &own["p95"], &own["ranges"][0]["count"]),
            (&json!(packets), bound, &json!(packets)),
            "{sizes}"
        );
    }
    let xml = daemon
        .get(&format!("{PROBE}/metrics?format=xml"))
        .expect(200)
        .text()
        .to_string();
    assert!(
        xml.contains("<distribution interface=\"mon1\" count=\"30\""),
        "{xml}"
    );
    Ok(())
}
