//! Exactness: no packet is lost, counted twice or counted in the wrong window, at any hook and with
//! any map.

use anyhow::Result;
use serde_json::{Value, json};
use twinprobe_tests::sample::{COUNTER_MAPS, COUNTERS, total, window};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Topology, scaled};

/// The least number of windows of a case.
const WINDOWS: u64 = 10;

/// Returns the least number of packets per case.
fn packets() -> u64 {
    scaled(1_000_000, 100_000_000)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    Xdp,
    TcIngress,
    TcEgress,
}

impl Hook {
    fn direction(self) -> &'static str {
        if self == Self::TcEgress {
            "egress"
        } else {
            "ingress"
        }
    }

    fn interface(self) -> &'static str {
        if self == Self::TcEgress {
            "mon1"
        } else {
            "mon0"
        }
    }
}

/// Returns a configuration with [`COUNTERS`] at `hook`, which drops packets so that the stack does
/// not limit the rate.
fn config(hook: Hook, snapshot: bool) -> Value {
    let (name, section, context, verdict) = match hook {
        Hook::Xdp => ("xdp", "xdp", "xdp_md", "XDP_DROP"),
        Hook::TcIngress => ("tc", "tc", "__sk_buff", "2 /* TC_ACT_SHOT */"),
        Hook::TcEgress => ("tc", "tc", "__sk_buff", "0 /* TC_ACT_OK */"),
    };
    let metrics: Vec<Value> = COUNTER_MAPS
        .iter()
        .map(|(map, percpu)| {
            let mut metric = window(map, map);
            metric["init"] = json!(snapshot);
            metric["snapshot"] = json!(snapshot);
            if *percpu {
                metric["agg"] = json!("sum");
            }
            metric
        })
        .collect();
    let direction = json!({
        "hook": name,
        "verdict": "enforce",
        "source": COUNTERS,
        "defines": { "SECTION": format!("\"{section}\""), "CONTEXT": context, "VERDICT": verdict },
        "metrics": metrics
    });
    let mut config = json!({ "interface": hook.interface() });
    config[hook.direction()] = direction;
    config
}

/// Reads windows while packets arrive. Every map's windows must add up to the packets that were
/// sent, and within each window all maps must agree.
fn sum_of_windows(hook: Hook, options: &DaemonOptions) -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start_with(topology.monitor(), options)?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let _forward = (hook == Hook::TcEgress)
        .then(|| topology.forward_to_egress())
        .transpose()?;
    daemon
        .put("/v1/probes/counters", &config(hook, true))
        .expect(201);

    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let mut load = Some(generator.spawn(Load::default()));
    let (mut sums, mut sent) = ([0; COUNTER_MAPS.len()], 0);
    let mut windows = 0;
    while load.is_some() {
        // The last window comes after the last packet.
        if let Some(load) = load.take_if(|load| windows >= WINDOWS && load.sent() >= packets()) {
            sent = load.stop()?;
        }
        let document = daemon.json("/v1/probes/counters/metrics");
        windows += 1;
        assert_eq!(
            document["window"]["seq"], windows,
            "windows are numbered without gaps"
        );
        let counts = COUNTER_MAPS.map(|(map, _)| total(&document, hook.direction(), map));
        assert_eq!(
            counts,
            [counts[0]; COUNTER_MAPS.len()],
            "maps disagree in window {windows}"
        );
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count;
        }
    }
    assert_eq!(sums, [sent; COUNTER_MAPS.len()], "after {windows} windows");
    bystanders.finish()
}

#[test]
fn xdp_ingress_counts_every_packet_once() -> Result<()> {
    sum_of_windows(Hook::Xdp, &DaemonOptions::default())
}

#[test]
fn tc_ingress_counts_every_packet_once() -> Result<()> {
    sum_of_windows(Hook::TcIngress, &DaemonOptions::default())
}

#[test]
fn tc_egress_counts_every_packet_once() -> Result<()> {
    sum_of_windows(Hook::TcEgress, &DaemonOptions::default())
}

#[test]
fn clsact_and_membarrier_count_every_packet_once() -> Result<()> {
    let options = DaemonOptions::default()
        .argument("--tc-attach")
        .argument("clsact")
        .argument("--quiesce")
        .argument("membarrier");
    sum_of_windows(Hook::TcIngress, &options)
}

/// Without a snapshot there are no twins, and counts grow: the last reading has all packets.
#[test]
fn live_readings_grow_to_the_whole() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/counters", &config(Hook::Xdp, false))
        .expect(201);
    assert_eq!(
        daemon.json("/v1/probes/counters")["programs"]["ingress"]["twins"],
        false
    );
    let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let load = generator.spawn(Load {
        count: Some(1_000_000),
        ..Load::default()
    });
    let mut before = 0;
    while !load.is_finished() {
        let document = daemon.json("/v1/probes/counters/metrics");
        assert!(
            document.get("window").is_none(),
            "a live reading is not a window: {document}"
        );
        let now = total(&document, "ingress", "in_percpu_array");
        assert!(now >= before, "{now} < {before}");
        before = now;
    }
    load.join()?;
    let document = daemon.json("/v1/probes/counters/metrics");
    for (map, _) in COUNTER_MAPS {
        assert_eq!(total(&document, "ingress", map), 1_000_000, "{map}");
    }
    bystanders.finish()
}

/// Metrics with `snapshot` and without `init` are consistent and cumulative.
#[test]
fn cumulative_snapshots_add_windows_up() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    let mut config = config(Hook::Xdp, true);
    for metric in config["ingress"]["metrics"]
        .as_array_mut()
        .expect("metrics")
    {
        metric["init"] = json!(false);
    }
    daemon.put("/v1/probes/counters", &config).expect(201);
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    for round in 1..=5 {
        generator.send(10_000)?;
        let document = daemon.json("/v1/probes/counters/metrics");
        for (map, _) in COUNTER_MAPS {
            assert_eq!(
                total(&document, "ingress", map),
                round * 10_000,
                "{map} in round {round}"
            );
        }
    }
    bystanders.finish()
}
