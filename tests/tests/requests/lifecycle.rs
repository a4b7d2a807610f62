//! The life of probes: they are created, read, replaced, enforce, and are deleted without a trace.

use anyhow::Result;
use serde_json::json;
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, Topology, scaled};

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

#[test]
fn a_probe_is_created_listed_read_replaced_and_deleted() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let config = counter_config("mon0", "XDP_PASS");
    let created = daemon.put("/v1/probes/p", &config).expect(201);
    assert_eq!(created.header("location"), Some("/v1/probes/p"));
    let status = daemon.json("/v1/probes/p");
    assert_eq!(status, created.json());
    assert_eq!(
        (&status["state"], &status["config"]),
        (&json!("running"), &config)
    );
    assert_eq!(status["interfaces"][0]["mode"], "native");
    assert_eq!(
        status["programs"]["ingress"],
        json!({ "entry": "count", "twins": true })
    );
    let listed = daemon.json("/v1/probes");
    let expected = ["bystander-tc", "bystander-xdp", "p"].map(|name| {
        let mut status = daemon.json(&format!("/v1/probes/{name}"));
        status["config"]["ingress"]
            .as_object_mut()
            .expect("an object")
            .remove("source");
        status
    });
    assert_eq!(listed, json!({ "probes": expected }));

    generator(&topology)?.send(10)?;
    let document = daemon.json("/v1/probes/p/metrics");
    assert_eq!(total(&document, "ingress", "packets"), 10);
    assert_eq!(document["probe"], "p");
    assert_eq!(document["interfaces"], json!(["mon0"]));
    assert_eq!(document["egress"], json!({}));
    let metric = &document["ingress"]["packets"];
    assert_eq!(
        (&metric["map"], &metric["type"]),
        (&json!("packets"), &json!("array"))
    );
    let xml = daemon
        .request(
            "GET",
            "/v1/probes/p/metrics",
            &[("accept", "application/xml")],
            b"",
        )
        .expect(200);
    assert_eq!(xml.header("content-type"), Some("application/xml"));
    assert!(xml.text().contains("<window seq=\"2\""), "{}", xml.text());

    daemon.put("/v1/probes/p", &config).expect(200);
    assert_eq!(
        total(&daemon.json("/v1/probes/p/metrics"), "ingress", "packets"),
        0
    );
    assert_eq!(daemon.delete("/v1/probes/p").expect(204).body, b"");
    daemon.get("/v1/probes/p").expect(404);
    bystanders.finish()
}

#[test]
fn windows_follow_each_other_without_a_gap() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let read = || daemon.json("/v1/probes/p/metrics")["window"].clone();
    let (first, second) = (read(), read());
    assert_eq!((&first["seq"], &second["seq"]), (&json!(1), &json!(2)));
    assert_eq!(first["end"], second["start"]);
    assert!(first["start"].as_str() < first["end"].as_str());
    assert!(first["quiesce_us"].is_u64());
    bystanders.finish()
}

#[test]
fn a_map_that_no_metric_names_can_not_be_read() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let secret = "struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); \
                  __type(value, __u64); } secret SEC(\".maps\");\n";
    let mut config = counter_config("mon0", "XDP_PASS");
    config["ingress"]["source"] = json!(
        xdp_counter("bpf_map_lookup_elem(&secret, &key) ? XDP_PASS : XDP_DROP").replacen(
            "SEC(\"xdp\")",
            &format!("{secret}SEC(\"xdp\")"),
            1
        )
    );
    config["ingress"]["metrics"] = json!([window("packets", "packets"),]);
    daemon.put("/v1/probes/p", &config).expect(201);
    let document = daemon.json("/v1/probes/p/metrics");
    let names: Vec<&String> = document["ingress"]
        .as_object()
        .expect("an object")
        .keys()
        .collect();
    assert_eq!(names, ["packets"]);
    for path in [
        "/v1/probes/p/metrics/secret",
        "/v1/probes/p/maps/secret",
        "/v1/probes/p/secret",
    ] {
        daemon.get(path).expect(404);
    }
    assert!(
        !daemon
            .get("/v1/probes/p/metrics?metric=secret")
            .text()
            .contains("secret")
    );
    bystanders.finish()
}

/// A metric with `export: false` and `init` is reset with the others and appears nowhere.
#[test]
fn a_hidden_metric_is_reset_and_not_shown() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut config = counter_config("mon0", "XDP_PASS");
    for snapshot in [true, false] {
        config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets", "init": true, "snapshot": snapshot, "export": false }]);
        daemon.put("/v1/probes/p", &config);
        generator(&topology)?.send(10)?;
        assert_eq!(daemon.json("/v1/probes/p/metrics")["ingress"], json!({}));
        generator(&topology)?.send(5)?;
        assert_eq!(daemon.json("/v1/probes/p/metrics")["ingress"], json!({}));
    }
    bystanders.finish()
}

/// Values of QUEUE and STACK are given in the map's order, without keys, each once.
#[test]
fn queues_and_stacks_are_popped() -> Result<()> {
    let source = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#define FIFO(NAME, TYPE) struct { __uint(type, TYPE); __uint(max_entries, 1000); __type(value, __u64); } NAME SEC(".maps")
FIFO(queue, BPF_MAP_TYPE_QUEUE);
FIFO(stack, BPF_MAP_TYPE_STACK);
static __u64 serial;
SEC("xdp") int number(struct xdp_md *ctx)
{
	__u64 n = __sync_fetch_and_add(&serial, 1);
	bpf_map_push_elem(&queue, &n, 0);
	bpf_map_push_elem(&stack, &n, 0);
	return XDP_DROP;
}
char LICENSE[] SEC("license") = "GPL";
"#;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let metrics = [window("queue", "queue"), window("stack", "stack")];
    daemon
        .put(
            "/v1/probes/p",
            &json!({ "interface": "mon0", "ingress": { "source": source, "metrics": metrics } }),
        )
        .expect(201);
    let mut generator = generator(&topology)?;
    // The serial number is in `.bss`, which twins share, so it continues in the second window.
    for window in 0..3_u64 {
        generator.send(100)?;
        let document = daemon.json("/v1/probes/p/metrics");
        let values = |metric: &str| -> Vec<u64> {
            let entries = document["ingress"][metric]["entries"]
                .as_array()
                .expect("entries");
            assert!(
                entries.iter().all(|entry| entry.get("key").is_none()),
                "{entries:?}"
            );
            entries
                .iter()
                .filter_map(|entry| entry["value"].as_u64())
                .collect()
        };
        let expected: Vec<u64> = (window * 100..(window + 1) * 100).collect();
        assert_eq!(values("queue"), expected);
        assert_eq!(
            values("stack").into_iter().rev().collect::<Vec<_>>(),
            expected
        );
    }
    bystanders.finish()
}

#[test]
fn observe_passes_and_enforce_drops() -> Result<()> {
    for hook in ["xdp", "tc"] {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        let source = if hook == "xdp" {
            xdp_counter("XDP_DROP")
        } else {
            xdp_counter("2 /* TC_ACT_SHOT */")
                .replace("xdp_md", "__sk_buff")
                .replace("SEC(\"xdp\")", "SEC(\"tc\")")
        };
        // This counter comes after the probe and sees the packets that the probe lets pass.
        let behind = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
        let mut generator = generator(&topology)?;
        let mut passed = 0;
        for (verdict, passes) in [("observe", true), ("enforce", false), ("observe", true)] {
            let config = json!({
                "interface": "mon0",
                "ingress": {
                    "hook": hook, "verdict": verdict, "source": source, "metrics": [window("packets", "packets")]
                }
            });
            daemon.put("/v1/probes/p", &config);
            generator.send(1000)?;
            passed += if passes { 1000 } else { 0 };
            assert_eq!(behind.packets()?, passed, "{hook} {verdict}");
            let document = daemon.json("/v1/probes/p/metrics");
            assert_eq!(
                total(&document, "ingress", "packets"),
                1000,
                "{hook} {verdict}"
            );
        }
        bystanders.finish()?;
    }
    Ok(())
}

/// Two probes on one interface have their own windows, and neither's creation or removal affects
/// the other.
#[test]
fn a_second_probe_leaves_the_first_undisturbed() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let config = counter_config("mon0", "XDP_DROP");
    daemon.put("/v1/probes/first", &config).expect(201);
    let load = generator(&topology)?.spawn(Load::default());
    let rounds = scaled(20, 500);
    let mut sum = 0;
    for _ in 0..rounds {
        daemon.put("/v1/probes/second", &config).expect(201);
        sum += total(
            &daemon.json("/v1/probes/first/metrics"),
            "ingress",
            "packets",
        );
        daemon.json("/v1/probes/second/metrics");
        daemon.delete("/v1/probes/second").expect(204);
    }
    let sent = load.stop()?;
    sum += total(
        &daemon.json("/v1/probes/first/metrics"),
        "ingress",
        "packets",
    );
    assert_eq!(sum, sent, "after {rounds} rounds");
    bystanders.finish()
}

/// An enforcing probe after an observing one on the same hook sees and drops the packets that the
/// first has counted.
#[test]
fn probes_run_in_the_order_in_which_they_came() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut enforcing = counter_config("mon0", "XDP_DROP");
    enforcing["ingress"]["verdict"] = json!("enforce");
    daemon
        .put("/v1/probes/a", &counter_config("mon0", "XDP_DROP"))
        .expect(201);
    daemon.put("/v1/probes/b", &enforcing).expect(201);
    daemon
        .put("/v1/probes/c", &counter_config("mon0", "XDP_DROP"))
        .expect(201);
    // A replacement keeps the place in the chain.
    daemon
        .put("/v1/probes/a", &counter_config("mon0", "XDP_DROP"))
        .expect(200);
    generator(&topology)?.send(1000)?;
    let count = |name: &str| {
        total(
            &daemon.json(&format!("/v1/probes/{name}/metrics")),
            "ingress",
            "packets",
        )
    };
    assert_eq!((count("a"), count("b"), count("c")), (1000, 1000, 0));
    Ok(())
}

#[test]
fn one_probe_counts_several_interfaces_and_both_directions_in_one_window() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let _forward = topology.forward_to_egress()?;
    let tc = xdp_counter("0")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    let config = json!({
        "interfaces": ["mon0", "mon1"],
        "ingress": { "hook": "tc", "source": tc, "metrics": [window("in", "packets")] },
        "egress": { "source": tc, "metrics": [window("out", "packets")] }
    });
    daemon.put("/v1/probes/p", &config).expect(201);
    assert_eq!(
        daemon.json("/v1/probes/p")["interfaces"]
            .as_array()
            .map(Vec::len),
        Some(4)
    );
    generator(&topology)?.send(1000)?;
    let document = daemon.json("/v1/probes/p/metrics");
    assert_eq!(total(&document, "ingress", "in"), 1000);
    assert_eq!(total(&document, "egress", "out"), 1000);
    bystanders.finish()
}

/// A chain takes 16 probes; the answer to the 17th says why it is refused.
#[test]
fn a_full_chain_refuses_the_next_probe() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let config = counter_config("mon0", "XDP_DROP");
    for n in 0..16 {
        daemon.put(&format!("/v1/probes/p{n}"), &config).expect(201);
    }
    let refused = daemon.put("/v1/probes/p16", &config).expect(409).json();
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|text| text.contains("16 probes") && text.contains("`--hook tc`")),
        "{refused}"
    );
    daemon.put("/v1/probes/p3", &config).expect(200);
    generator(&topology)?.send(100)?;
    for n in 0..16 {
        let document = daemon.json(&format!("/v1/probes/p{n}/metrics"));
        assert_eq!(total(&document, "ingress", "packets"), 100, "probe {n}");
    }
    Ok(())
}

/// A foreign XDP program stays, and the answer says what to do; TC works beside it.
#[test]
fn a_foreign_xdp_program_is_left_alone() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let foreign = Counter::attach(topology.monitor(), "mon0", Place::XdpPass)?;
    let refused = daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(409)
        .json();
    assert!(
        refused["detail"]
            .as_str()
            .is_some_and(|text| text.contains("mon0")),
        "{refused}"
    );
    daemon.get("/v1/probes/p").expect(404);
    generator(&topology)?.send(100)?;
    assert_eq!(foreign.packets()?, 100);
    bystanders.finish()
}
