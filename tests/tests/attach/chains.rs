//! Chains: up to 16 probes at a hook run in the order of their priorities, and none disturbs
//! another.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use twinprobe_tests::random::Random;
use twinprobe_tests::sample::{counter_config, total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Daemon, DaemonOptions, Topology, scaled};

/// A program that records its rank: it reads the last byte of the frame, which begins as 0, and
/// increments the byte.
const RANK: &str = r#"
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 1); __type(key, __u32); __type(value, __u64); }
	rank SEC(".maps");

SEC(SECTION) int take_rank(struct CONTEXT *ctx)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&rank, &key);
	__u8 byte = 0;

	if (!value || LOAD(ctx, 59, &byte, 1))
		return 0;
	*value = byte;
	byte++;
	STORE(ctx, 59, &byte, 1 FLAGS);
	return VERDICT;
}
char LICENSE[] SEC("license") = "GPL";
"#;

const HOOKS: [&str; 2] = ["xdp", "tc"];

fn rank_config(hook: &str, priority: i64) -> Value {
    let defines = if hook == "xdp" {
        json!({ "SECTION": "\"xdp\"", "CONTEXT": "xdp_md", "VERDICT": "XDP_PASS", "FLAGS": "",
            "LOAD": "bpf_xdp_load_bytes", "STORE": "bpf_xdp_store_bytes" })
    } else {
        json!({ "SECTION": "\"tc\"", "CONTEXT": "__sk_buff", "VERDICT": "-1", "FLAGS": ", 0",
            "LOAD": "bpf_skb_load_bytes", "STORE": "bpf_skb_store_bytes" })
    };
    json!({
        "interface": "mon0",
        "priority": priority,
        "ingress": {
            "hook": hook, "verdict": "enforce", "source": RANK, "defines": defines, "metrics": [{ "name": "rank", "map": "rank" }]
        }
    })
}

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Sends a packet. Returns the probes in the order in which they saw it.
fn order(daemon: &Daemon, generator: &mut Generator, names: &[String]) -> Result<Vec<String>> {
    generator.send(1)?;
    let mut ranks: Vec<(u64, String)> = names
        .iter()
        .map(|name| {
            let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
            (total(&document, "ingress", "rank"), name.clone())
        })
        .collect();
    ranks.sort();
    let expected: Vec<u64> = (0..names.len() as u64).collect();
    assert_eq!(
        ranks.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
        expected,
        "{ranks:?}"
    );
    Ok(ranks.into_iter().map(|(_, name)| name).collect())
}

#[test]
fn sixteen_probes_run_in_the_order_of_their_priorities() -> Result<()> {
    let mut random = Random::new();
    for hook in HOOKS {
        let topology = Topology::new()?;
        let mut daemon = Daemon::start(topology.monitor())?;
        let mut generator = generator(&topology)?;
        let put = |daemon: &Daemon, name: &str, priority: i64| {
            daemon
                .put(&format!("/v1/probes/{name}"), &rank_config(hook, priority))
                .status
        };
        // The names are in the order in which the probes must run; the probes are deployed in
        // random order.
        let priorities: Vec<i64> = (-8..8).map(|n| n * 10).collect();
        let mut names: Vec<String> = priorities
            .iter()
            .map(|priority| format!("at{priority}").replace('-', "m"))
            .collect();
        let mut waiting: Vec<usize> = (0..names.len()).collect();
        while !waiting.is_empty() {
            let next = waiting.swap_remove(random.below(waiting.len() as u64) as usize);
            assert_eq!(put(&daemon, &names[next], priorities[next]), 201);
        }
        assert_eq!(order(&daemon, &mut generator, &names)?, names, "{hook}");
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            daemon = daemon.restart(signal, &DaemonOptions::default())?;
            assert_eq!(
                order(&daemon, &mut generator, &names)?,
                names,
                "{hook}, after signal {signal}"
            );
        }

        // A full chain refuses the next probe and changes nothing.
        let refused = daemon
            .put("/v1/probes/one-more", &rank_config(hook, 0))
            .expect(409)
            .json();
        assert!(
            refused["detail"]
                .as_str()
                .is_some_and(|detail| detail.contains("16")),
            "{refused}"
        );
        assert_eq!(order(&daemon, &mut generator, &names)?, names, "{hook}");
        // Another interface has a chain of its own.
        let mut elsewhere = rank_config(hook, 0);
        elsewhere["interface"] = json!("mon1");
        daemon.put("/v1/probes/elsewhere", &elsewhere).expect(201);
        daemon.delete("/v1/probes/elsewhere").expect(204);

        // A new priority moves the probe: from the middle to the end, to the front, and back.
        let moved = names.remove(7);
        for (priority, place) in [(1000, 15), (-1000, 0), (-10, 7)] {
            assert_eq!(put(&daemon, &moved, priority), 200);
            let mut expected = names.clone();
            expected.insert(place, moved.clone());
            assert_eq!(
                order(&daemon, &mut generator, &expected)?,
                expected,
                "{hook}, priority {priority}"
            );
        }
        // Probes of equal priority run in the order of their creation, even after a replacement.
        daemon.delete(&format!("/v1/probes/{moved}")).expect(204);
        assert_eq!(put(&daemon, "equal", 10), 201);
        let behind = names
            .iter()
            .position(|name| name == "at10")
            .context("at10 is there")?
            + 1;
        names.insert(behind, "equal".to_owned());
        assert_eq!(order(&daemon, &mut generator, &names)?, names, "{hook}");
        assert_eq!(put(&daemon, "at10", 10), 200);
        assert_eq!(order(&daemon, &mut generator, &names)?, names, "{hook}");
    }
    Ok(())
}

/// A chain ends at the first probe that decides to drop; the probes before it count everything.
#[test]
fn a_verdict_holds_from_its_priority_on() -> Result<()> {
    for hook in HOOKS {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut generator = generator(&topology)?;
        let config = |priority: i64| {
            let drop = if hook == "xdp" { "XDP_DROP" } else { "2" };
            let mut config = counter(hook, drop);
            config["priority"] = json!(priority);
            config
        };
        for (name, priority) in [("last", 3), ("first", 1), ("middle", 2)] {
            daemon
                .put(&format!("/v1/probes/{name}"), &config(priority))
                .expect(201);
        }
        let mut expected = [0; 3];
        for (decides, sees) in [
            ("none", [1, 1, 1]),
            ("middle", [1, 1, 0]),
            ("first", [1, 0, 0]),
            ("last", [1, 1, 1]),
        ] {
            for (name, priority) in [("first", 1), ("middle", 2), ("last", 3)] {
                let mut config = config(priority);
                let verdict = if name == decides {
                    "enforce"
                } else {
                    "observe"
                };
                config["ingress"]["verdict"] = json!(verdict);
                daemon
                    .put(&format!("/v1/probes/{name}"), &config)
                    .expect(200);
            }
            generator.send(100)?;
            let counts = ["first", "middle", "last"].map(|name| count(&daemon, name));
            for (expected, sees) in expected.iter_mut().zip(sees) {
                *expected += 100 * sees;
            }
            assert_eq!(counts, expected, "{hook}: {decides} decides");
        }
    }
    Ok(())
}

/// Returns the configuration of a probe that counts packets and is read live.
fn counter(hook: &str, verdict: &str) -> Value {
    let mut config = counter_config("mon0", verdict);
    config["ingress"]["hook"] = json!(hook);
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    if hook == "tc" {
        let source = xdp_counter(verdict)
            .replace("xdp_md", "__sk_buff")
            .replace("SEC(\"xdp\")", "SEC(\"tc\")");
        config["ingress"]["source"] = json!(source);
    }
    config
}

fn count(daemon: &Daemon, name: &str) -> u64 {
    total(
        &daemon.json(&format!("/v1/probes/{name}/metrics")),
        "ingress",
        "packets",
    )
}

/// Probes are created, removed and moved before, between and after others, which count every packet
/// of a full load.
#[test]
fn coming_and_going_disturbs_nobody() -> Result<()> {
    let mut random = Random::new();
    for hook in HOOKS {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let steady: Vec<String> = (0..4).map(|n| format!("steady{n}")).collect();
        for (n, name) in steady.iter().enumerate() {
            let mut config = counter(hook, if hook == "xdp" { "XDP_PASS" } else { "0" });
            config["priority"] = json!(n * 10);
            daemon
                .put(&format!("/v1/probes/{name}"), &config)
                .expect(201);
        }
        // The last probe drops packets, so that the stack does not limit the rate.
        let mut last = counter(hook, if hook == "xdp" { "XDP_DROP" } else { "2" });
        (last["priority"], last["ingress"]["verdict"]) = (json!(1000), json!("enforce"));
        daemon.put("/v1/probes/last", &last).expect(201);
        let load = generator(&topology)?.spawn(Load::default());
        let mut guests: Vec<String> = Vec::new();
        let rounds = scaled(40, 500);
        for round in 0..rounds {
            let mut guest = counter(hook, if hook == "xdp" { "XDP_PASS" } else { "0" });
            guest["priority"] = json!(random.below(60) as i64 - 10);
            if !guests.is_empty() && random.below(3) == 0 {
                let name = guests.swap_remove(random.below(guests.len() as u64) as usize);
                daemon.delete(&format!("/v1/probes/{name}")).expect(204);
            } else if guests.len() == 11 || (!guests.is_empty() && random.below(3) == 0) {
                let name = &guests[random.below(guests.len() as u64) as usize];
                daemon
                    .put(&format!("/v1/probes/{name}"), &guest)
                    .expect(200);
            } else {
                let name = format!("guest{round}");
                daemon
                    .put(&format!("/v1/probes/{name}"), &guest)
                    .expect(201);
                guests.push(name);
            }
        }
        let sent = load.stop()?;
        for name in steady.iter().map(String::as_str).chain(["last"]) {
            assert_eq!(
                count(&daemon, name),
                sent,
                "{name} at {hook} after {rounds} rounds"
            );
        }
        let listed = daemon.json("/v1/probes");
        let listed = listed["probes"].as_array().context("probes")?;
        assert_eq!(listed.len(), guests.len() + 5);
    }
    Ok(())
}
