//! Adoption: a daemon that follows one that stopped, was killed or was older adopts the running
//! probes as they are.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::layouts::{Layout, Reading, field, packets};
use twinprobe_tests::sample::{counter_config, total, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, KernelObjects, Topology, binary, scaled};

const SIGNALS: [i32; 2] = [libc::SIGTERM, libc::SIGKILL];

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

fn tc_attach(method: &str) -> DaemonOptions {
    DaemonOptions::default()
        .argument("--tc-attach")
        .argument(method)
}

/// Deploys probes at both hooks, in both directions, with and without twins, enforcing and
/// observing.
fn deploy_some(daemon: &Daemon) {
    let tc = xdp_counter("0")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    let mut live = counter_config("mon0", "XDP_PASS");
    live["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    let mut enforcing = counter_config("mon0", "XDP_PASS");
    enforcing["ingress"]["verdict"] = json!("enforce");
    let mut both = counter_config("mon0", "XDP_PASS");
    both["egress"] =
        json!({ "source": tc, "metrics": [{ "name": "out", "map": "packets", "snapshot": true }] });
    let at_tc = json!({
        "interfaces": ["mon0", "mon1"],
        "ingress": { "hook": "tc", "source": tc, "metrics": [{ "name": "in", "map": "packets" }] }
    });
    for (name, config) in [
        ("live", live),
        ("enforcing", enforcing),
        ("both", both),
        ("tc", at_tc),
    ] {
        daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(201);
    }
}

/// The next daemon has the same programs, maps and links, by id, the same status including the time
/// of creation, and nothing else.
#[test]
fn what_runs_is_adopted_as_it_is() -> Result<()> {
    let topology = Topology::new()?;
    for method in ["auto", "clsact"] {
        let options = tc_attach(method);
        let baseline = KernelObjects::now()?;
        let mut daemon = Daemon::start_with(topology.monitor(), &options)?;
        let bystanders = Bystanders::deploy(&daemon, &topology)?;
        deploy_some(&daemon);
        let directories = daemon.directories();
        let (objects, status) = (
            KernelObjects::pinned(directories.bpffs())?,
            daemon.json("/v1/probes"),
        );
        for (kind, count) in objects.counts() {
            assert!(
                count > 0,
                "no {kind} is pinned below {}",
                directories.bpffs().display()
            );
        }
        for signal in SIGNALS.into_iter().cycle().take(4) {
            daemon = daemon.restart(signal, &options)?;
            daemon.get("/readyz").expect(200);
            assert_eq!(
                daemon.json("/v1/probes"),
                status,
                "{method}, after signal {signal}"
            );
            let differences = KernelObjects::pinned(directories.bpffs())?.differences(&objects);
            assert_eq!(differences, [], "{method}, after signal {signal}");
            baseline.wait_for_only(directories.bpffs(), daemon.pid())?;
        }
        // Adopted probes can be read, replaced and deleted as before.
        for probe in status["probes"].as_array().context("probes")? {
            let path = format!("/v1/probes/{}", probe["name"].as_str().context("a name")?);
            if path.contains("bystander") {
                continue;
            }
            daemon.get(&format!("{path}/metrics")).expect(200);
            let mut config = daemon.json(&path)["config"].clone();
            config["format"] = json!("xml");
            daemon.put(&path, &config).expect(200);
            daemon.delete(&path).expect(204);
        }
        bystanders.finish_and_delete(&daemon)?;
        let left = KernelObjects::pinned(directories.bpffs())?.counts();
        let links = left.iter().find(|(kind, _)| *kind == "link");
        assert_eq!(links, Some(&("link", 0)), "{left:?}");
        daemon.terminate()?;
    }
    Ok(())
}

/// Restarts under load cost no packet in any kind of reading.
#[test]
fn counters_go_on_through_restarts_under_load() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    // Only the last probe drops packets, because a chain ends at the first probe that drops.
    let probes = [Reading::Live, Reading::Window, Reading::Cumulative].map(|reading| {
        let mut config = Layout::new(reading).config();
        config["ingress"]["verdict"] = json!("observe");
        (reading, format!("/v1/probes/{reading:?}"), config)
    });
    for (_, path, config) in &probes {
        daemon.put(path, config).expect(201);
    }
    daemon.put("/v1/probes/sink", &sink()).expect(201);
    let load = generator(&topology)?.spawn(Load::default());
    let mut counted = [0; 3];
    let mut seqs = [0; 3];
    let mut read = |daemon: &Daemon, arrived: u64, last: bool| -> [u64; 3] {
        for (i, (reading, path, _)) in probes.iter().enumerate() {
            let document = daemon.json(&format!("{path}/metrics"));
            let live = *reading == Reading::Live && !last;
            let read = if live {
                field(&document, "in_array", "/packets")
            } else {
                packets(&document)
            };
            let now = if *reading == Reading::Window {
                counted[i]
            } else {
                0
            } + read;
            assert!(now >= counted[i], "{reading:?}: {now} after {}", counted[i]);
            assert!(
                now >= arrived,
                "{reading:?}: {now} of {arrived} that had arrived"
            );
            counted[i] = now;
            if *reading != Reading::Live {
                let seq = document["window"]["seq"]
                    .as_u64()
                    .expect("windows have numbers");
                assert_eq!(
                    seq,
                    seqs[i] + 1,
                    "{reading:?}: windows are numbered without gaps"
                );
                seqs[i] = seq;
            }
        }
        counted
    };
    let rounds = scaled(6, 200);
    for round in 0..rounds {
        read(&daemon, load.arrived(), false);
        daemon = daemon.restart(SIGNALS[(round % 2) as usize], &DaemonOptions::default())?;
        // Some restarts follow each other without a reading, so that counts survive several.
        if round % 3 != 0 {
            read(&daemon, load.arrived(), false);
        }
    }
    let sent = load.stop()?;
    assert_eq!(
        read(&daemon, sent, true),
        [sent; 3],
        "after {rounds} restarts"
    );
    bystanders.finish()
}

/// Returns a probe that drops packets, so that the stack does not limit the rate.
fn sink() -> Value {
    let mut sink = counter_config("mon0", "XDP_DROP");
    sink["ingress"]["verdict"] = json!("enforce");
    sink["priority"] = json!(1000);
    sink
}

/// An upgrade: another binary adopts the same state and pins.
#[test]
fn a_newer_binary_adopts_what_the_older_one_left() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    deploy_some(&daemon);
    let directories = daemon.directories();
    let (objects, status) = (
        KernelObjects::pinned(directories.bpffs())?,
        daemon.json("/v1/probes"),
    );
    let newer = directories.temporary().join("newer");
    fs::copy(binary()?, &newer)?;
    let options = DaemonOptions {
        binary: Some(newer),
        ..DaemonOptions::default()
    };
    let mut generator = generator(&topology)?;
    for (round, signal) in SIGNALS.into_iter().enumerate() {
        generator.send(100)?;
        daemon = daemon.restart(signal, &options)?;
        assert_eq!(daemon.json("/v1/probes"), status, "after signal {signal}");
        let differences = KernelObjects::pinned(directories.bpffs())?.differences(&objects);
        assert_eq!(differences, [], "after signal {signal}");
        let document = daemon.json("/v1/probes/live/metrics");
        assert_eq!(
            total(&document, "ingress", "packets"),
            100 * (round as u64 + 1)
        );
    }
    bystanders.finish()
}

/// A daemon with `--detach-on-exit` also removes probes of an earlier daemon; the configurations
/// stay.
#[test]
fn detach_on_exit_removes_what_was_adopted() -> Result<()> {
    for method in ["clsact", "auto"] {
        let topology = Topology::new()?;
        let baseline = KernelObjects::now()?;
        let detaching = tc_attach(method).argument("--detach-on-exit");
        let mut daemon = Daemon::start_with(topology.monitor(), &tc_attach(method))?;
        let mut bystanders = Bystanders::deploy(&daemon, &topology)?;
        deploy_some(&daemon);
        let status = daemon.json("/v1/probes");
        let names = |status: &Value| -> Vec<Value> {
            status["probes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|probe| probe["name"].clone())
                .collect()
        };
        for _ in 0..2 {
            daemon = daemon.restart(libc::SIGKILL, &detaching)?;
            assert_eq!(names(&daemon.json("/v1/probes")), names(&status));
            let (exit, directories) = daemon.terminate()?;
            ensure!(exit.success(), "{exit}");
            let link = topology
                .monitor()
                .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
            assert!(!link.contains("prog/xdp"), "{method}: {link}");
            for direction in ["ingress", "egress"] {
                let show = ["filter", "show", "dev", "mon0", direction];
                assert_eq!(
                    topology.monitor().output("tc", &show)?,
                    "",
                    "{method}, {direction}"
                );
            }
            // No daemon runs, so that only pins could hold objects.
            baseline.wait_for_only(directories.bpffs(), std::process::id())?;
            let pinned = KernelObjects::pinned(directories.bpffs())?.counts();
            assert_eq!(pinned, KernelObjects::default().counts(), "{method}");
            daemon = Daemon::start_in(topology.monitor(), &tc_attach(method), directories)?;
            bystanders.detached()?;
            generator(&topology)?.send(100)?;
            let document = daemon.json("/v1/probes/live/metrics");
            assert_eq!(total(&document, "ingress", "packets"), 100);
            bystanders.check()?;
        }
    }
    Ok(())
}

/// Once a daemon has announced that it listens, it ends properly: `--detach-on-exit` applies from
/// then on.
#[test]
fn a_daemon_that_has_just_started_ends_in_order() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon
        .put("/v1/probes/p", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    let mut directories = daemon.kill()?;
    let detaching = DaemonOptions::default().argument("--detach-on-exit");
    for round in 0..scaled(4, 100) {
        let daemon = Daemon::start_in(topology.monitor(), &detaching, directories)?;
        let (exit, left) = daemon.terminate()?;
        ensure!(exit.success(), "round {round}: {exit}");
        let link = topology
            .monitor()
            .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
        ensure!(!link.contains("prog/xdp"), "round {round}: {link}");
        directories = left;
    }
    let _daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    bystanders.detached()?;
    bystanders.finish()
}
