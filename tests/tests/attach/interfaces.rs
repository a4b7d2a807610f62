//! Following of interfaces and namespaces that appear, disappear, are renamed and moved: probes
//! follow within a second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http;
use twinprobe_tests::sample::{counter_config, total, window, xdp_counter};
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, attachments, wait_for, wait_for_attachment};
use twinprobe_tests::{
    Bystanders, Daemon, DaemonOptions, Namespace, Stand, Topology, scaled, timed, veth_pair,
};

const PROBE: &str = "/v1/probes/p";

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

fn live(interface: &str) -> Value {
    let mut config = counter_config(interface, "XDP_PASS");
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    config
}

fn count(daemon: &Daemon, probe: &str) -> u64 {
    total(
        &daemon.json(&format!("/v1/probes/{probe}/metrics")),
        "ingress",
        "packets",
    )
}

fn remove_gen0(topology: &Topology) -> Result<()> {
    topology.generator().run("ip", &["link", "del", "gen0"])
}

fn create_gen0(topology: &Topology) -> Result<()> {
    veth_pair(topology.generator(), "gen0", topology.monitor(), "mon0")
}

/// Waits until the probe is attached to the interface with its present index. Returns the probe's
/// status.
fn back(daemon: &Daemon, namespace: &Namespace, probe: &str, interface: &str) -> Result<Value> {
    let index = namespace.interface_index(interface)?;
    wait_for(
        &format!("{probe} back at {interface}, index {index}"),
        PATIENCE,
        || {
            let status = daemon.json(&format!("/v1/probes/{probe}"));
            let found = attachments(&status, interface);
            let right = |attachment: &&Value| {
                attachment["state"] == "attached" && attachment["ifindex"] == index
            };
            ensure!(
                !found.is_empty() && found.iter().all(right),
                "{}",
                status["interfaces"]
            );
            Ok(status)
        },
    )
}

/// Waits until the probe's status names the interface that the probe waits for, with the reason.
fn pending(daemon: &Daemon, probe: &str, interface: &str) -> Result<()> {
    let status = wait_for_attachment(daemon, probe, interface, "pending", PATIENCE)?;
    for attachment in attachments(&status, interface) {
        let reason = attachment["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(interface), "{attachment} does not say why");
    }
    Ok(())
}

fn has_xdp(namespace: &Namespace, interface: &str) -> Result<bool> {
    Ok(namespace
        .output("ip", &["-d", "link", "show", "dev", interface])?
        .contains("prog/xdp"))
}

#[timed("a probe is back within a second of its interface: the daemon hears of it from the kernel")]
fn a_probe_is_back_at_once() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put(PROBE, &live("mon0")).expect(201);
    remove_gen0(&topology)?;
    pending(&daemon, "p", "mon0")?;
    create_gen0(&topology)?;
    let begun = Instant::now();
    back(&daemon, topology.monitor(), "p", "mon0")?;
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    Ok(())
}

/// An interface is deleted, under traffic, and created again, while readers read and another
/// interface counts on.
#[test]
fn probes_are_back_when_their_interface_returns() -> Result<()> {
    const BURST: u64 = 100_000;
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let tc = xdp_counter("0")
        .replace("xdp_md", "__sk_buff")
        .replace("SEC(\"xdp\")", "SEC(\"tc\")");
    let mut both = counter_config("mon0", "XDP_PASS");
    both["egress"] = json!({ "source": tc, "metrics": [window("out", "packets")] });
    let at_tc = json!({
        "interface": "mon0",
        "ingress": { "hook": "tc", "source": tc, "metrics": [window("packets", "packets")] }
    });
    daemon.put("/v1/probes/both", &both).expect(201);
    daemon.put("/v1/probes/tc", &at_tc).expect(201);
    let mut elsewhere = live("mon0");
    elsewhere
        .as_object_mut()
        .context("an object")?
        .remove("interface");
    elsewhere["interfaces"] = json!(["mon1", "mon0"]);
    daemon.put("/v1/probes/everywhere", &elsewhere).expect(201);
    let alone = live("mon1");
    daemon.put("/v1/probes/elsewhere", &alone).expect(201);
    let steady = Generator::new(topology.sink(), "sink0", GeneratorOptions::default())?;
    let steady = steady.spawn(Load {
        rate: Some(20_000),
        ..Load::default()
    });
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        // Reads continue meanwhile, without an error and without a smaller count than before.
        let reader = scope.spawn(|| -> Result<u64> {
            let (mut before, mut reads) = (0, 0);
            while !stop.load(Ordering::Acquire) {
                let path = "/v1/probes/everywhere/metrics";
                let answer = http::request(&daemon.address(), "GET", path, &[], b"")?;
                ensure!(answer.status == 200, "{answer:?}");
                let now = total(&answer.json(), "ingress", "packets");
                ensure!(now >= before, "{now} after {before}");
                (before, reads) = (now, reads + 1);
                thread::sleep(Duration::from_millis(1));
            }
            Ok(reads)
        });
        let rounds = || -> Result<()> {
            for round in 0..scaled(15, 200) {
                // The interface disappears while frames arrive. The test does not know how many
                // arrived before.
                let load = generator(&topology)?.spawn(Load {
                    count: Some(BURST),
                    ..Load::default()
                });
                remove_gen0(&topology)?;
                load.join()?;
                for probe in ["both", "tc"] {
                    let lost = count(&daemon, probe);
                    ensure!(lost <= BURST, "round {round}: {lost} of {BURST}");
                }
                create_gen0(&topology)?;
                for probe in ["both", "tc", "everywhere"] {
                    back(&daemon, topology.monitor(), probe, "mon0")
                        .with_context(|| format!("round {round}"))?;
                }
                generator(&topology)?.send(1000)?;
                let counted = (count(&daemon, "both"), count(&daemon, "tc"));
                ensure!(counted == (1000, 1000), "round {round}: {counted:?}");
            }
            Ok(())
        };
        let result = rounds();
        stop.store(true, Ordering::Release);
        let reads = reader
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        result?;
        ensure!(reads > 0, "nothing was read");
        Ok(())
    })?;
    let sent = steady.stop()?;
    assert_eq!(count(&daemon, "elsewhere"), sent);
    bystanders.finish()
}

/// A configuration means an interface by its name: a renamed interface is another one.
#[test]
fn a_renamed_interface_is_left_and_taken_back() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor();
    let daemon = Daemon::start(monitor)?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    daemon.put(PROBE, &live("mon0")).expect(201);
    let mut generator = generator(&topology)?;
    let rename = |from: &str, to: &str| -> Result<()> {
        monitor.run("ip", &["link", "set", "dev", from, "down"])?;
        monitor.run("ip", &["link", "set", "dev", from, "name", to])?;
        monitor.run("ip", &["link", "set", "dev", to, "up"])
    };
    let mut sent = 0;
    for _ in 0..3 {
        generator.send(100)?;
        sent += 100;
        rename("mon0", "other0")?;
        pending(&daemon, "p", "mon0")?;
        wait_for("left alone", PATIENCE, || {
            ensure!(
                !has_xdp(monitor, "other0")?,
                "a program is attached to other0"
            );
            Ok(())
        })?;
        assert_eq!(count(&daemon, "p"), sent);
        rename("other0", "mon0")?;
        back(&daemon, monitor, "p", "mon0")?;
        generator.send(100)?;
        sent += 100;
        assert_eq!(count(&daemon, "p"), sent);
    }
    // Another interface that takes over the name gets the probe.
    rename("mon0", "other0")?;
    veth_pair(topology.generator(), "gen1", monitor, "mon0")?;
    back(&daemon, monitor, "p", "mon0")?;
    Generator::new(topology.generator(), "gen1", GeneratorOptions::default())?.send(10)?;
    assert_eq!(count(&daemon, "p"), sent + 10);
    bystanders.finish()
}

#[test]
fn an_interface_that_was_moved_is_left_and_taken_back() -> Result<()> {
    let topology = Topology::new()?;
    let (monitor, sink) = (topology.monitor(), topology.sink());
    let daemon = Daemon::start(monitor)?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    daemon.put(PROBE, &live("mon0")).expect(201);
    let mut generator = generator(&topology)?;
    let moved = |from: &Namespace, to: &Namespace| -> Result<()> {
        let path = to.path().to_str().context("a path")?;
        from.run("ip", &["link", "set", "dev", "mon0", "netns", path])?;
        to.run("ip", &["link", "set", "dev", "mon0", "up"])
    };
    let mut sent = 0;
    for _ in 0..3 {
        generator.send(100)?;
        sent += 100;
        moved(monitor, sink)?;
        pending(&daemon, "p", "mon0")?;
        wait_for("left alone", PATIENCE, || {
            ensure!(
                !has_xdp(sink, "mon0")?,
                "a program is attached in another namespace"
            );
            Ok(())
        })?;
        moved(sink, monitor)?;
        back(&daemon, monitor, "p", "mon0")?;
        generator.send(100)?;
        sent += 100;
        assert_eq!(count(&daemon, "p"), sent);
    }
    bystanders.finish()
}

/// A probe with `wait_for_interface` is accepted before its interface exists and attached once it
/// does, through restarts as well; without the field it is refused.
#[test]
fn a_probe_waits_for_its_interface() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor();
    let mut daemon = Daemon::start(monitor)?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    remove_gen0(&topology)?;
    let refused = daemon.put(PROBE, &live("mon0"));
    assert!((400..500).contains(&refused.status), "{refused:?}");
    daemon.get(PROBE).expect(404);
    let mut config = live("mon0");
    config["wait_for_interface"] = json!(true);
    daemon.put(PROBE, &config).expect(201);
    pending(&daemon, "p", "mon0")?;
    // A mistake in the source is found without an interface.
    let mut bad = config.clone();
    bad["ingress"]["source"] = json!("int x");
    daemon.put(PROBE, &bad).expect(422);
    daemon.put(PROBE, &config).expect(200);
    assert_eq!(count(&daemon, "p"), 0);

    let mut sent = 0;
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        daemon = daemon.restart(signal, &DaemonOptions::default())?;
        pending(&daemon, "p", "mon0")?;
        create_gen0(&topology)?;
        back(&daemon, monitor, "p", "mon0")?;
        generator(&topology)?.send(100)?;
        sent += 100;
        assert_eq!(count(&daemon, "p"), sent);
        // The interface disappears and comes back while no daemon runs.
        let directories = daemon.kill()?;
        remove_gen0(&topology)?;
        create_gen0(&topology)?;
        daemon = Daemon::start_in(monitor, &DaemonOptions::default(), directories)?;
        back(&daemon, monitor, "p", "mon0")?;
        generator(&topology)?.send(100)?;
        sent += 100;
        assert_eq!(count(&daemon, "p"), sent);
        remove_gen0(&topology)?;
        pending(&daemon, "p", "mon0")?;
    }
    daemon.delete(PROBE).expect(204);
    create_gen0(&topology)?;
    daemon.put(PROBE, &config).expect(201);
    generator(&topology)?.send(10)?;
    assert_eq!(count(&daemon, "p"), 10);
    bystanders.finish()
}

/// A pattern selects present and future interfaces.
#[test]
fn patterns_follow_interfaces() -> Result<()> {
    let topology = Topology::new()?;
    let (monitor, peers) = (topology.monitor(), topology.generator());
    let daemon = Daemon::start(monitor)?;
    let bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let mut config = live("mon0");
    config
        .as_object_mut()
        .context("an object")?
        .remove("interface");
    config["interfaces"] = json!(["tap*"]);
    // No interface matches yet.
    daemon.put(PROBE, &config).expect(201);
    let mut sent = 0;
    let mut send = |n: u32| -> Result<()> {
        Generator::new(peers, &format!("peer{n}"), GeneratorOptions::default())?.send(10)?;
        sent += 10;
        ensure!(
            count(&daemon, "p") == sent,
            "{} of {sent}",
            count(&daemon, "p")
        );
        Ok(())
    };
    for n in 0..4 {
        veth_pair(peers, &format!("peer{n}"), monitor, &format!("tap{n}"))?;
        back(&daemon, monitor, "p", &format!("tap{n}"))?;
        send(n)?;
    }
    assert!(!has_xdp(monitor, "mon0")?, "mon0 does not match");
    peers.run("ip", &["link", "del", "peer1"])?;
    wait_for("tap1 forgotten", PATIENCE, || {
        let status = daemon.json(PROBE);
        let left = attachments(&status, "tap1");
        if left
            .iter()
            .any(|attachment| attachment["state"] == "attached")
        {
            bail!("{left:?}");
        }
        Ok(())
    })?;
    for n in [0, 2, 3] {
        send(n)?;
    }
    // A replacement finds all matching interfaces again, fewer of them with a narrower pattern.
    config["interfaces"] = json!(["tap[02]"]);
    daemon.put(PROBE, &config).expect(200);
    for n in [0, 2] {
        send(n)?;
    }
    assert!(!has_xdp(monitor, "tap3")?, "tap3 matches no more");
    bystanders.finish()
}

/// A probe can be in another namespace than the daemon's, even in one that does not exist yet.
#[test]
fn a_namespace_can_be_named() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy_at(&daemon, &topology, Stand::AT_MON0)?;
    let path = |namespace: &Namespace| {
        namespace
            .path()
            .to_str()
            .map(str::to_owned)
            .context("a path")
    };
    let mut config = live("sink0");
    config["netns"] = json!(path(topology.sink())?);
    daemon.put(PROBE, &config).expect(201);
    let mut daemon = daemon;
    let mut there = Generator::new(topology.monitor(), "mon1", GeneratorOptions::default())?;
    for sent in [100, 200, 300] {
        there.send(100)?;
        assert_eq!(count(&daemon, "p"), sent);
        back(&daemon, topology.sink(), "p", "sink0")?;
        daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
    }
    assert!(has_xdp(topology.sink(), "sink0")?);

    // The name contains a namespace of the topology, so that no other test uses it.
    let name = path(topology.sink())?
        .rsplit('/')
        .next()
        .map(|name| format!("{name}-late"));
    let name = name.context("a name")?;
    let mut late = live("late0");
    late["netns"] = json!(format!("/run/netns/{name}"));
    let refused = daemon.put("/v1/probes/late", &late);
    assert!((400..500).contains(&refused.status), "{refused:?}");
    late["wait_for_interface"] = json!(true);
    daemon.put("/v1/probes/late", &late).expect(201);
    wait_for_attachment(&daemon, "late", "late0", "pending", PATIENCE)?;
    let namespace = Namespace::create(&name)?;
    veth_pair(topology.generator(), "peer0", &namespace, "late0")?;
    back(&daemon, &namespace, "late", "late0")?;
    Generator::new(topology.generator(), "peer0", GeneratorOptions::default())?.send(10)?;
    assert_eq!(count(&daemon, "late"), 10);
    daemon.delete(PROBE).expect(204);
    assert!(!has_xdp(topology.sink(), "sink0")?);
    bystanders.finish()
}
