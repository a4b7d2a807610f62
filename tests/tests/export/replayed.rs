//! The content of the documents of replays.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::replays::{head, pcap, replay};
use twinprobe_tests::sample::{COUNTERS, window};
use twinprobe_tests::traffic::{Frame, FrameOptions, Protocol};
use twinprobe_tests::{Daemon, Topology, probes, scaled, timed};

use crate::replay::{START, frame};

/// Snapshots, sums, samples and events, in every format.
#[test]
fn a_replay_is_a_window_of_all_its_metrics() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let one = frame(0x0800, 60, 1);
    let capture = pcap((0..1000).map(|i| (START + i, &one[..])));
    let metrics = json!([
        window("total", "in_hash"),
        { "name": "sum", "map": "in_array", "snapshot": true },
        { "name": "live", "map": "in_percpu_array", "agg": "sum" },
        { "name": "hidden", "map": "in_lru_hash", "init": true, "export": false }
    ]);
    let mut config = json!({
        "name": "counters",
        "window": { "interval": "10s" },
        "labels": { "site": "a" },
        "ingress": {
            "hook": "xdp", "source": COUNTERS, "metrics": metrics,
            "defines": { "SECTION": "\"xdp\"", "CONTEXT": "xdp_md", "VERDICT": "0" }
        }
    });
    let document = replay(&daemon, &config, &[("capture", &capture)])
        .expect(200)
        .json();
    for metric in ["total", "sum", "live"] {
        let entries = document["ingress"][metric]["entries"]
            .as_array()
            .expect("entries");
        let sum: u64 = entries
            .iter()
            .filter_map(|entry| entry["value"].as_u64())
            .sum();
        assert_eq!(sum, 1000, "{metric}: {document}");
    }
    assert!(document["ingress"].get("hidden").is_none());
    assert_eq!(document["labels"], json!({ "site": "a" }));
    let again = replay(&daemon, &config, &[("capture", &capture)]).expect(200);
    assert_eq!(again.json(), document, "a replay gives the same each time");
    config["format"] = json!("xml");
    let xml = replay(&daemon, &config, &[("capture", &capture)]).expect(200);
    assert!(
        xml.text().contains("<replayed packets=\"1000\"/><ingress>"),
        "{}",
        xml.text()
    );
    config["ingress"]["sample"] = json!(10);
    config["format"] = json!("json");
    let sampled = replay(&daemon, &config, &[("capture", &capture)])
        .expect(200)
        .json();
    let (packets, left) = (
        &sampled["replayed"]["packets"],
        &sampled["replayed"]["not_sampled"],
    );
    let (packets, left) = (packets.as_u64().unwrap_or(0), left.as_u64().unwrap_or(0));
    assert_eq!(packets + left, 1000);
    assert!((50..200).contains(&packets), "{sampled}");
    assert_eq!(sampled["ingress"]["total"]["sample"], 10);
    Ok(())
}

/// Only the replay reads the ring, and it leaves no event in the ring.
#[test]
fn events_are_counted_and_none_finds_the_ring_full() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let one = frame(0x0800, 60, 1);
    let capture = pcap((0..500).map(|i| (START + i, &one[..])));
    for size in [4096, 1 << 20] {
        let config = json!({
            "name": "events",
            "ingress": {
                "hook": "tc", "source": EVENTS, "defines": { "SIZE": size.to_string() },
                "metrics": [{ "name": "events", "map": "ring" }, { "name": "failed", "map": ".bss:failed" }]
            }
        });
        let document = replay(&daemon, &config, &[("capture", &capture)])
            .expect(200)
            .json();
        assert_eq!(
            document["replayed"],
            json!({ "packets": 500, "events": 500 })
        );
        assert_eq!(
            document["ingress"]["failed"]["entries"][0]["value"], 0,
            "{document}"
        );
    }
    Ok(())
}

const EVENTS: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, SIZE);
} ring SEC(".maps");
__u64 failed;
SEC("tc") int tell(struct __sk_buff *skb)
{
	char event[400] = {};
	if (bpf_ringbuf_output(&ring, event, sizeof(event), 0))
		__sync_fetch_and_add(&failed, 1);
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

#[test]
fn a_ready_made_probe_counts_captures() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let frames: Vec<Vec<u8>> = [Protocol::Tcp, Protocol::Udp, Protocol::Icmp]
        .into_iter()
        .flat_map(|protocol| {
            [None, Some(7)].map(|vlan| {
                let options = FrameOptions {
                    protocol,
                    vlan,
                    length: 200,
                    ..FrameOptions::default()
                };
                Frame::build(&options).expect("a frame").bytes().to_vec()
            })
        })
        .collect();
    let capture = pcap(frames.iter().map(|frame| (START, &frame[..])));
    let config = probes::configuration("packet-counter", "mon0")?;
    let document = replay(&daemon, &config, &[("capture", &capture)])
        .expect(200)
        .json();
    let entries = document["ingress"]["ingress_protocols"]["entries"]
        .as_array()
        .expect("entries");
    let mut counted: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry["key"].as_str(),
                entry["value"]["packets"].as_u64(),
                entry["value"]["bytes"].as_u64(),
            )
        })
        .collect();
    counted.sort();
    let each = |name| (Some(name), Some(2), Some(400));
    assert_eq!(counted, [each("ICMP"), each("TCP"), each("UDP")]);
    // The command line shows the same document, and fails like other commands.
    let directory = tempfile::tempdir()?;
    let path = |name: &str| directory.path().join(name).display().to_string();
    std::fs::write(path("probe.json"), config.to_string())?;
    std::fs::write(path("a.pcap"), &capture)?;
    std::fs::write(path("b.pcap"), b"x")?;
    let run =
        |rest: &[&str]| daemon.client(&[&["replay", "-f", &path("probe.json")], rest].concat());
    let shown = run(&[&path("a.pcap"), "-o", "json"])?;
    let shown: Value = serde_json::from_slice(&shown.stdout)?;
    assert_eq!(
        (&shown["window"], &shown["replayed"]),
        (&document["window"], &document["replayed"])
    );
    let table = String::from_utf8(run(&[&path("a.pcap")])?.stdout)?;
    assert!(
        table.contains("ingress_protocols") && table.contains("400"),
        "{table}"
    );
    let sent = run(&["--egress-capture", &path("a.pcap"), "-o", "json"])?;
    let sent: Value = serde_json::from_slice(&sent.stdout)?;
    assert_eq!(sent["replayed"], json!({ "packets": 6 }));
    assert_eq!(sent["ingress"]["ingress_protocols"]["entries"], json!([]));
    for (arguments, status, says) in [
        (&[&*path("b.pcap")][..], 1, "neither pcap nor pcapng"),
        (&[&*path("none.pcap")], 1, "could not read"),
        (&[], 2, "CAPTURE"),
    ] {
        let output = run(arguments)?;
        let said = String::from_utf8(output.stderr)?;
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(says), "{said}");
    }
    Ok(())
}

/// Returns a capture of this many packets from 256 hosts.
fn large(packets: u64) -> Vec<u8> {
    let syn = Frame::default();
    let frames: Vec<Vec<u8>> = (0..=255)
        .map(|host| syn.from_source([198, 18, 0, host].into(), 1024 + u16::from(host) % 97))
        .collect();
    pcap((0..packets).map(|i| (START + 1000 * i, &frames[i as usize % 256][..])))
}

/// The capture is larger than any buffer on its way.
#[test]
fn a_large_capture_is_counted_to_the_packet() -> Result<()> {
    const PACKETS: u64 = 200_000;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = probes::configuration("packet-counter", "mon0")?;
    let document = replay(&daemon, &config, &[("capture", &large(PACKETS))])
        .expect(200)
        .json();
    let counted = &document["ingress"]["ingress_protocols"]["entries"][0]["value"]["packets"];
    assert_eq!(
        (counted, &document["replayed"]["packets"]),
        (&json!(PACKETS), &json!(PACKETS))
    );
    Ok(())
}

/// A million packets in a second.
#[timed("it measures packets per second")]
fn a_replay_is_fast() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let packets = if cfg!(debug_assertions) {
        20_000
    } else {
        scaled(1_000_000, 5_000_000)
    };
    let capture = large(packets);
    let config = probes::configuration("packet-counter", "mon0")?;
    let run = |capture: &[u8]| {
        let begun = std::time::Instant::now();
        let document = replay(&daemon, &config, &[("capture", capture)])
            .expect(200)
            .json();
        (begun.elapsed(), document)
    };
    // The time of compiling and loading does not grow with the capture.
    let (base, _) = run(&head(1));
    let (took, document) = run(&capture);
    let counted = &document["ingress"]["ingress_protocols"]["entries"][0]["value"]["packets"];
    assert_eq!(
        (counted, &document["replayed"]["packets"]),
        (&json!(packets), &json!(packets))
    );
    let rate = packets as f64 / took.saturating_sub(base).as_secs_f64();
    println!(
        "{packets} packets in {took:?}, {base:?} for none: {:.2} M packets/s",
        rate / 1e6
    );
    let least = if cfg!(debug_assertions) { 2e4 } else { 1e6 };
    assert!(rate > least, "{rate:.0} packets/s");
    Ok(())
}

const TURNS: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct turns { __u32 last; __u32 changes; };
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct turns);
} turns SEC(".maps");
SEC("tc") int see(struct __sk_buff *skb)
{
	__u32 zero = 0;
	struct turns *value = bpf_map_lookup_elem(&turns, &zero);
	if (value && value->last != DIRECTION) {
		value->last = DIRECTION;
		value->changes++;
	}
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
"#;

#[test]
fn directions_see_a_common_map_in_the_order_of_the_packets() -> Result<()> {
    const PACKETS: u64 = 200;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let direction = |number: &str, metrics: Value| json!({ "hook": "tc", "source": TURNS, "defines": { "DIRECTION": number }, "metrics": metrics });
    let config = json!({
        "name": "turns", "shared_maps": ["turns"],
        "ingress": direction("1", json!([{ "name": "turns", "map": "turns" }])),
        "egress": direction("2", json!([])),
    });
    let frame = frame(0x0800, 60, 1);
    let of = |odd: u64| pcap((0..PACKETS / 2).map(|i| (START + 10 * (2 * i + odd), &frame[..])));
    let captures = [("capture", &of(0)), ("egress-capture", &of(1))];
    let document = replay(
        &daemon,
        &config,
        &captures.map(|(name, capture)| (name, &capture[..])),
    )
    .expect(200);
    let document = document.json();
    assert_eq!(
        document["ingress"]["turns"]["entries"][0]["value"]["changes"], PACKETS,
        "{document}"
    );
    Ok(())
}

/// A reading removes the values from a queue: metrics of one queue show the same ones.
#[test]
fn metrics_of_one_queue_show_the_same() -> Result<()> {
    const SOURCE: &str = "BPF_QUEUE(lasts, u32, 64);\nBPF_STACK(own, u32, 64);\nint see(struct CTXTYPE *ctx) {\n\
        u32 last = load_byte(ctx, 59);\n lasts.push(&last, 0);\n own.push(&last, 0);\n return 0; }";
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let frames: Vec<Vec<u8>> = (0..6).map(|last| frame(0x0800, 60, last)).collect();
    let of = |odd: usize| {
        pcap(
            (0..3)
                .map(|i| 2 * i + odd)
                .map(|i| (START + i as u64, &frames[i][..])),
        )
    };
    let metrics = json!([{ "name": "a", "map": "lasts" }, { "name": "b", "map": "lasts" }, { "name": "c", "map": "own" },
        { "name": "d", "map": "own" }]);
    let config = json!({ "name": "queues", "shared_maps": ["lasts"],
        "ingress": { "source": SOURCE, "metrics": metrics }, "egress": { "source": SOURCE, "metrics": metrics } });
    let captures = [("capture", &of(0)[..]), ("egress-capture", &of(1)[..])];
    let document = replay(&daemon, &config, &captures).expect(200).json();
    let values = |direction: &str, metric: &str| -> Vec<u64> {
        let entries = document[direction][metric]["entries"]
            .as_array()
            .expect("entries");
        entries
            .iter()
            .map(|entry| entry["value"].as_u64().expect("a number"))
            .collect()
    };
    for metric in ["a", "b"] {
        assert_eq!(
            values("ingress", metric),
            [0, 1, 2, 3, 4, 5],
            "{metric}: {document}"
        );
        assert_eq!(
            values("egress", metric),
            [0, 1, 2, 3, 4, 5],
            "{metric}: {document}"
        );
    }
    for metric in ["c", "d"] {
        assert_eq!(values("ingress", metric), [4, 2, 0], "{metric}: {document}");
        assert_eq!(values("egress", metric), [5, 3, 1], "{metric}: {document}");
    }
    Ok(())
}
