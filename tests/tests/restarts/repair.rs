//! Repair at the start: pins and state may be damaged, incomplete, of other owners or missing. The
//! daemon repairs its own and starts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, KernelObjects, Store, Topology, scaled};

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// Returns a live counter, whose readings have all packets since the deployment.
fn live(interface: &str) -> Value {
    let mut config = counter_config(interface, "XDP_PASS");
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    config
}

fn count(daemon: &Daemon, probe: &str) -> u64 {
    let document = daemon.json(&format!("/v1/probes/{probe}/metrics"));
    total(&document, "ingress", "packets")
}

/// Returns every file below `directory`, in a stable order.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut out = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))? {
        let path = entry?.path();
        // Symbolic links are not pins: they record the owner and the place of a dispatcher.
        if path.is_dir() {
            out.extend(files(&path)?);
        } else if !path.is_symlink() {
            out.push(path);
        }
    }
    out.sort();
    Ok(out)
}

/// Probes without pins, as after a reboot, are deployed again.
#[test]
fn probes_are_deployed_again_when_their_pins_are_gone() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let daemon = Daemon::start(topology.monitor())?;
    let mut bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/live", &live("mon0")).expect(201);
    let mut window = counter_config("mon0", "XDP_PASS");
    window["priority"] = json!(7);
    daemon.put("/v1/probes/window", &window).expect(201);
    let config = daemon.json("/v1/probes/window")["config"].clone();
    let mut generator = generator(&topology)?;
    generator.send(1000)?;
    let directories = daemon.kill()?;
    let before = KernelObjects::pinned(directories.bpffs())?;
    fs::remove_dir_all(directories.bpffs())?;
    generator.send(100)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    daemon.get("/readyz").expect(200);
    bystanders.begin_anew()?;
    generator.send(10)?;
    assert_eq!(daemon.json("/v1/probes/window")["state"], "running");
    assert_eq!(daemon.json("/v1/probes/window")["config"], config);
    assert_eq!((count(&daemon, "live"), count(&daemon, "window")), (10, 10));
    let after = KernelObjects::pinned(daemon.directories().bpffs())?;
    assert_eq!(after.counts(), before.counts(), "as much as there was");
    bystanders.finish()?;
    baseline.wait_for_only(daemon.directories().bpffs(), daemon.pid())
}

/// A probe whose configuration can't be read is listed as failed, with its attachments; the other
/// probe is not affected.
#[test]
fn damaged_state_costs_only_its_own_probe() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/good", &live("mon0")).expect(201);
    daemon.delete("/v1/probes/none");
    let mut generator = generator(&topology)?;
    let mut sent = 0;
    for damage in ["garbage", "", "{\"interface\": \"mon0\"", "{}"] {
        daemon.put("/v1/probes/bad", &live("mon0")).expect(201);
        let both = KernelObjects::pinned(daemon.directories().bpffs())?;
        generator.send(100)?;
        sent += 100;
        let directories = daemon.kill()?;
        Store::open(&directories)?.set_all_records("bad", damage)?;
        generator.send(100)?;
        daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        generator.send(100)?;
        sent += 200;
        let status = daemon.json("/v1/probes/bad");
        assert_eq!(status["state"], "failed", "{damage:?}: {status}");
        assert!(
            status["reason"]
                .as_str()
                .is_some_and(|reason| !reason.is_empty()),
            "{status}"
        );
        assert_eq!(
            daemon.json("/v1/probes")["probes"].as_array().map(Vec::len),
            Some(4)
        );
        assert_eq!(count(&daemon, "good"), sent, "{damage:?}");
        daemon.get("/v1/probes/bad/metrics").expect(409);
        let directory = daemon.directories();
        // The programs of the damaged probe continue.
        assert_eq!(
            status["interfaces"][0]["state"], "attached",
            "{damage:?}: {status}"
        );
        let differences = KernelObjects::pinned(directory.bpffs())?.differences(&both);
        assert_eq!(differences, [], "{damage:?}");
        baseline.wait_for_only(directory.bpffs(), daemon.pid())?;
        // The damaged probe can be replaced and deleted.
        daemon.put("/v1/probes/bad", &live("mon0")).expect(200);
        generator.send(100)?;
        sent += 100;
        assert_eq!(count(&daemon, "bad"), 100);
        daemon.delete("/v1/probes/bad").expect(204);
    }
    bystanders.finish()
}

/// Programs in the kernel without a stored probe are removed.
#[test]
fn what_has_no_state_is_removed() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/stays", &live("mon0")).expect(201);
    let alone = KernelObjects::pinned(daemon.directories().bpffs())?;
    daemon.put("/v1/probes/gone", &live("mon0")).expect(201);
    // The second probe is at another interface, which no other probe uses.
    daemon.put("/v1/probes/gone2", &live("mon1")).expect(201);
    let directories = daemon.kill()?;
    for probe in ["gone", "gone2"] {
        Store::open(&directories)?.forget(probe)?;
    }
    let mut generator = generator(&topology)?;
    generator.send(100)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    generator.send(10)?;
    assert_eq!(
        daemon.json("/v1/probes")["probes"].as_array().map(Vec::len),
        Some(3)
    );
    assert_eq!(count(&daemon, "stays"), 110);
    let directory = daemon.directories();
    assert_eq!(
        KernelObjects::pinned(directory.bpffs())?.counts(),
        alone.counts()
    );
    let link = topology
        .monitor()
        .output("ip", &["-d", "link", "show", "dev", "mon1"])?;
    assert!(!link.contains("prog/xdp"), "{link}");
    bystanders.finish()?;
    baseline.wait_for_only(directory.bpffs(), daemon.pid())
}

/// The probes run, count right and leave nothing, if any pin is missing or is another object.
#[test]
fn missing_and_exchanged_pins_are_repaired() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    let mut bystanders = Bystanders::deploy_elsewhere(&daemon, &topology)?;
    let directory = daemon.directories().bpffs().to_owned();
    let (directories, epochs) = (daemon.directories(), directory.join("epochs"));
    // The names of the pins in there have numbers that change.
    let hooks_beside = fs::read_dir(directory.join("hooks"))?
        .flatten()
        .map(|entry| entry.path());
    let hooks_beside: Vec<PathBuf> = hooks_beside.collect();
    daemon.put("/v1/probes/a", &live("mon0")).expect(201);
    let mut other = counter_config("mon0", "XDP_PASS");
    // The other probe has another program and a map of the same type.
    let source = other["ingress"]["source"].as_str().context("a source")?;
    other["ingress"]["source"] =
        json!(source.replace("fetch_and_add(value, 1)", "fetch_and_add(value, 1000)"));
    daemon.put("/v1/probes/b", &other).expect(201);
    let counts = KernelObjects::pinned(&directory)?.counts();
    // The test changes neither the pins of bystanders nor the epoch words, which all probes need.
    let ours = || -> Result<Vec<PathBuf>> {
        let mut beside = Vec::new();
        for name in ["bystander-xdp", "bystander-tc"] {
            let stored: Value = serde_json::from_slice(&Store::open(&directories)?.record(name)?)?;
            let serial = stored["running"]["deployment"]["serial"].to_string();
            beside.extend(files(&directory.join("probes").join(serial))?);
        }
        let mut pins = files(&directory)?;
        pins.retain(|pin| {
            !beside.contains(pin) && !hooks_beside.iter().any(|hook| pin.starts_with(hook))
        });
        Ok(pins)
    };
    let pins = ours()?.len();
    let mut generator = generator(&topology)?;
    // A usual run either removes or exchanges each pin.
    let ways = scaled(1, 2) as usize;
    for pin in 0..pins {
        for exchange in [pin % 2 == 1, pin % 2 == 0].into_iter().take(ways) {
            let directories = daemon.kill()?;
            let found = ours()?;
            ensure!(
                found.len() == pins,
                "{} pins, not {pins}: {found:?}",
                found.len()
            );
            let all_are_lost =
                found[pin] == epochs || exchange && found[(pin + 1) % pins] == epochs;
            let what = if exchange {
                let (a, b) = (&found[pin], &found[(pin + 1) % pins]);
                let aside = directory.join("aside");
                fs::rename(a, &aside)?;
                fs::rename(b, a)?;
                fs::rename(&aside, b)?;
                format!("{} and {} were exchanged", a.display(), b.display())
            } else {
                fs::remove_file(&found[pin])?;
                format!("{} was removed", found[pin].display())
            };
            daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)
                .with_context(|| what.clone())?;
            if all_are_lost {
                bystanders.begin_anew()?;
            }
            bystanders.check().with_context(|| what.clone())?;
            let before = count(&daemon, "a");
            count(&daemon, "b");
            generator.send(10)?;
            assert_eq!(
                (count(&daemon, "a") - before, count(&daemon, "b")),
                (10, 10_000),
                "{what}"
            );
            assert_eq!(
                KernelObjects::pinned(&directory)?.counts(),
                counts,
                "{what}"
            );
            baseline
                .wait_for_only(&directory, daemon.pid())
                .context(what)?;
        }
    }
    bystanders.finish()
}

/// Foreign files in the directory do not keep a daemon from starting, and are not used.
#[test]
fn stale_pins_are_no_obstacle() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let bystanders = Bystanders::deploy(&daemon, &topology)?;
    daemon.put("/v1/probes/p", &live("mon0")).expect(201);
    let mut generator = generator(&topology)?;
    let directories = daemon.kill()?;
    let root = directories.bpffs();
    let mut places = vec![root.to_owned()];
    places.extend(
        fs::read_dir(root)?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_dir()),
    );
    let mut strangers = Vec::new();
    for (n, place) in places.iter().enumerate() {
        fs::create_dir_all(place.join("empty"))?;
        fs::create_dir_all(place.join("4711"))?;
        for pin in ["stranger", "4711/xdp_1", "0_ingress"] {
            if let Some(parent) = place.join(pin).parent() {
                fs::create_dir_all(parent)?;
            }
            let kind = if n % 2 == 0 {
                Place::XdpPass
            } else {
                Place::TcIngress
            };
            strangers.push(Counter::pinned(topology.monitor(), kind, &place.join(pin))?);
        }
    }
    generator.send(100)?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    generator.send(10)?;
    assert_eq!(count(&daemon, "p"), 110);
    for stranger in &strangers {
        assert_eq!(stranger.packets()?, 0, "a stranger was attached");
    }
    daemon.put("/v1/probes/q", &live("mon0")).expect(201);
    for probe in ["p", "q"] {
        daemon.delete(&format!("/v1/probes/{probe}")).expect(204);
    }
    bystanders.finish()
}
