//! Replacements without a gap: the probe continues counting and keeps its counts.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::layouts::{Layout, Reading, field, packets};
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Bystanders, Daemon, Topology, scaled};

const PROBE: &str = "/v1/probes/p";
const METRICS: &str = "/v1/probes/p/metrics";

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Replaces a probe `rounds` times under full load, by two programs in turn that use the same maps.
/// The counts never fall, never miss a packet that had arrived, and end at the number of packets
/// sent.
fn replaced_under_load(reading: Reading, hook: &'static str, rounds: u64) -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut layout = Layout {
        hook,
        ..Layout::new(reading)
    };
    daemon.put(PROBE, &layout.config()).expect(201);
    let load = generator(&topology)?.spawn(Load::default());
    let (mut counted, mut seq) = (0, 0);
    let mut read = |arrived: u64, last: bool| {
        let document = daemon.json(METRICS);
        // Live maps are read one after the other.
        let live = reading == Reading::Live && !last;
        let read = if live {
            field(&document, "in_array", "/packets")
        } else {
            packets(&document)
        };
        let now = if reading == Reading::Window {
            counted
        } else {
            0
        } + read;
        assert!(now >= counted, "{reading:?}: {now} after {counted}");
        assert!(
            now >= arrived,
            "{reading:?}: {now} of {arrived} that had arrived"
        );
        counted = now;
        if reading != Reading::Live {
            let number = document["window"]["seq"]
                .as_u64()
                .expect("windows have numbers");
            assert!(number > seq, "window {number} after {seq}");
            seq = number;
        }
        now
    };
    for round in 1..=rounds {
        layout.variant = (round % 2) as u32;
        daemon.put(PROBE, &layout.config()).expect(200);
        // A replacement takes less time than the generator pauses.
        wait_for("packets after the replacement", PATIENCE, || {
            let (arrived, least) = (load.arrived(), round * 1000);
            ensure!(arrived > least, "{arrived} of {least} packets");
            Ok(())
        })?;
        // Some replacements follow each other without a reading in between.
        if round % 3 != 0 {
            read(load.arrived(), false);
        }
    }
    let sent = load.stop()?;
    assert_eq!(
        read(sent, true),
        sent,
        "{reading:?} at {hook} after {rounds} replacements"
    );
    bystanders.finish()
}

#[test]
fn live_counters_survive_replacements_under_load() -> Result<()> {
    replaced_under_load(Reading::Live, "xdp", scaled(60, 1000))
}

#[test]
fn windows_survive_replacements_under_load() -> Result<()> {
    replaced_under_load(Reading::Window, "xdp", scaled(40, 1000))
}

#[test]
fn cumulative_counters_survive_replacements_under_load() -> Result<()> {
    replaced_under_load(Reading::Cumulative, "xdp", scaled(40, 1000))
}

#[test]
fn counters_at_tc_survive_replacements_under_load() -> Result<()> {
    for reading in Reading::ALL {
        replaced_under_load(reading, "tc", scaled(10, 300))?;
    }
    Ok(())
}

/// Counts begin anew with `reset`, for all metrics or for one, and have all packets since the
/// switch.
#[test]
fn a_reset_begins_anew() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut generator = generator(&topology)?;
    for reading in Reading::ALL {
        let layout = Layout::new(reading);
        daemon.put(PROBE, &layout.config()).expect(201);
        generator.send(1000)?;
        let mut config = Layout {
            variant: 1,
            ..layout
        }
        .config();
        config["on_replace"] = json!("reset");
        daemon.put(PROBE, &config).expect(200);
        generator.send(10)?;
        assert_eq!(packets(&daemon.json(METRICS)), 10, "{reading:?}");

        // Every metric but the first is reset.
        config["ingress"]["metrics"][0]["on_replace"] = json!("carry");
        daemon.put(PROBE, &config).expect(200);
        generator.send(1)?;
        let document = daemon.json(METRICS);
        let count = |map| field(&document, map, "/packets");
        let carried = if reading == Reading::Window { 1 } else { 11 };
        assert_eq!(
            (count("in_array"), count("in_hash")),
            (carried, 1),
            "{reading:?}"
        );
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// A direction is added and removed while the other one continues counting.
#[test]
fn directions_are_added_and_removed() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let _forward = topology.forward_to_egress()?;
    let tc = xdp_counter("0")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    let live = |name: &str| json!({ "name": name, "map": "packets" });
    let one = json!({
        "interfaces": ["mon0", "mon1"],
        "ingress": { "hook": "tc", "source": tc, "metrics": [live("in")] }
    });
    let mut both = one.clone();
    both["egress"] = json!({ "source": tc, "metrics": [live("out")] });
    let mut generator = generator(&topology)?;
    let (mut sent, mut read) = (0, |config: &Value, status: u16| {
        daemon.put(PROBE, config).expect(status);
        generator.send(1000)?;
        Ok::<_, anyhow::Error>(daemon.json(METRICS))
    });
    for round in 0..3 {
        let document = read(&one, if round == 0 { 201 } else { 200 })?;
        sent += 1000;
        assert_eq!(total(&document, "ingress", "in"), sent, "round {round}");
        assert_eq!(document["egress"], json!({}));
        let document = read(&both, 200)?;
        sent += 1000;
        assert_eq!(total(&document, "ingress", "in"), sent, "round {round}");
        assert_eq!(
            total(&document, "egress", "out"),
            1000,
            "a direction that is new begins anew"
        );
    }
    bystanders.finish()
}

/// Interfaces are added and removed while the counts at another one stay exact.
#[test]
fn interfaces_are_added_and_removed() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let config = |interfaces: &[&str]| {
        let mut config = Layout::new(Reading::Live).config();
        config
            .as_object_mut()
            .expect("an object")
            .remove("interface");
        config["interfaces"] = json!(interfaces);
        config
    };
    daemon.put(PROBE, &config(&["mon0"])).expect(201);
    let load = generator(&topology)?.spawn(Load::default());
    let mut other = Generator::new(topology.sink(), "sink0", GeneratorOptions::default())?;
    let mut at_mon1 = 0;
    for _ in 0..scaled(8, 100) {
        daemon.put(PROBE, &config(&["mon0", "mon1"])).expect(200);
        let attached = daemon.json(PROBE)["interfaces"].clone();
        assert_eq!(attached.as_array().map(Vec::len), Some(2), "{attached}");
        other.send(100)?;
        at_mon1 += 100;
        daemon.put(PROBE, &config(&["mon0"])).expect(200);
        let attached = daemon.json(PROBE)["interfaces"].clone();
        assert_eq!(attached.as_array().map(Vec::len), Some(1), "{attached}");
    }
    let sent = load.stop()?;
    assert_eq!(packets(&daemon.json(METRICS)), sent + at_mon1);
    // One replacement moves the probe from one interface to the other.
    daemon.put(PROBE, &config(&["mon1"])).expect(200);
    generator(&topology)?.send(100)?;
    other.send(100)?;
    assert_eq!(packets(&daemon.json(METRICS)), sent + at_mon1 + 100);
    bystanders.finish()
}

/// A configuration that can't be deployed changes nothing: status, place in the chain, counters,
/// the open window.
#[test]
fn a_replacement_that_fails_changes_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    for reading in Reading::ALL {
        let good = Layout::new(reading).config();
        daemon.put(PROBE, &good).expect(201);
        let before = daemon.json(PROBE);
        let load = generator(&topology)?.spawn(Load::default());
        let failing = [
            ("does not compile", "VERDICT", "no_such_thing"),
            (
                "is refused by the verifier",
                "VERDICT",
                "*(int *)bpf_map_lookup_elem(&in_array, &key)",
            ),
            ("has no such map", "SECTION", "\"xdp\""),
        ];
        for (why, define, value) in failing.iter().cycle().take(scaled(6, 100) as usize) {
            let mut bad = Layout {
                variant: 1,
                ..Layout::new(reading)
            }
            .config();
            bad["ingress"]["defines"][define] = json!(value);
            if *why == "has no such map" {
                bad["ingress"]["metrics"][1]["map"] = json!("nowhere");
            }
            daemon.put(PROBE, &bad).expect(422);
            assert_eq!(daemon.json(PROBE), before, "after a replacement that {why}");
        }
        let mut bad = good.clone();
        bad["interface"] = json!("nosuch0");
        let refused = daemon.put(PROBE, &bad);
        assert!((400..500).contains(&refused.status), "{refused:?}");
        assert_eq!(
            daemon.json(PROBE),
            before,
            "after a replacement at no interface"
        );
        let sent = load.stop()?;
        assert_eq!(packets(&daemon.json(METRICS)), sent, "{reading:?}");
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// Another owner's program blocks a replacement at one interface: at the other interfaces no packet
/// reaches the programs of the failed replacement.
#[test]
fn a_replacement_that_fails_at_another_interface_changes_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let _foreign = Counter::attach(topology.monitor(), "mon1", Place::XdpPass)?;
    for reading in Reading::ALL {
        let good = Layout::new(reading).config();
        daemon.put(PROBE, &good).expect(201);
        let before = daemon.json(PROBE);
        let load = generator(&topology)?.spawn(Load::default());
        for layout in [0, 1, 2].into_iter().cycle().take(scaled(6, 100) as usize) {
            // Some maps are common to both configurations, others are not.
            let mut bad = Layout {
                layout,
                variant: 1,
                ..Layout::new(reading)
            }
            .config();
            bad.as_object_mut().expect("an object").remove("interface");
            bad["interfaces"] = json!(["mon0", "mon1"]);
            daemon.put(PROBE, &bad).expect(409);
            assert_eq!(
                daemon.json(PROBE),
                before,
                "after a replacement that is in another's way"
            );
        }
        let sent = load.stop()?;
        assert_eq!(packets(&daemon.json(METRICS)), sent, "{reading:?}");
        daemon.delete(PROBE).expect(204);
    }
    bystanders.finish()
}

/// The metric of a map may change its name, and a live metric may become a window: the map's
/// content stays.
#[test]
fn content_goes_with_the_map_not_with_the_metric() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut generator = generator(&topology)?;
    let mut config = counter_config("mon0", "XDP_DROP");
    config["ingress"]["metrics"] = json!([{ "name": "before", "map": "packets" }]);
    daemon.put(PROBE, &config).expect(201);
    generator.send(100)?;
    config["ingress"]["metrics"] = json!([{ "name": "after", "map": "packets" }]);
    daemon.put(PROBE, &config).expect(200);
    generator.send(10)?;
    assert_eq!(total(&daemon.json(METRICS), "ingress", "after"), 110);
    config["ingress"]["metrics"] = json!([window("windows", "packets")]);
    daemon.put(PROBE, &config).expect(200);
    generator.send(1)?;
    assert_eq!(total(&daemon.json(METRICS), "ingress", "windows"), 111);
    generator.send(5)?;
    assert_eq!(total(&daemon.json(METRICS), "ingress", "windows"), 5);
    // A window that becomes live begins with the counts of the open window.
    generator.send(7)?;
    config["ingress"]["metrics"] = json!([{ "name": "after", "map": "packets" }]);
    daemon.put(PROBE, &config).expect(200);
    generator.send(1)?;
    assert_eq!(total(&daemon.json(METRICS), "ingress", "after"), 8);
    bystanders.finish()
}
