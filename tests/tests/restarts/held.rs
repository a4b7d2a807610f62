//! Held deployments: a probe's programs continue until their replacement is attached, even if a
//! start can't read or use the probe's configuration.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::counter::{Counter, Place};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::silent::Silent;
use twinprobe_tests::traffic::{Generator, GeneratorOptions, Load};
use twinprobe_tests::wait::{PATIENCE, wait_for_attachment};
use twinprobe_tests::{
    Daemon, DaemonOptions, Directories, KernelObjects, NamespaceLink, Store, Topology, scaled,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

fn path(name: &str) -> String {
    format!("/v1/probes/{name}")
}

/// Returns a live counter. The enforcing counter drops everything.
fn config(enforces: bool) -> Value {
    let mut config = counter_config("mon0", if enforces { "XDP_DROP" } else { "XDP_PASS" });
    config["ingress"]["verdict"] = json!(if enforces { "enforce" } else { "observe" });
    config["ingress"]["metrics"] = json!([{ "name": "packets", "map": "packets" }]);
    config
}

/// Damages the stored probes: the first can't be read, the second is of a later version, and the
/// third can be neither adopted nor compiled.
fn damage(directories: &Directories) -> Result<()> {
    let store = Store::open(directories)?;
    store.set_record("a", "garbage")?;
    store.edit("b", |stored| stored["version"] = json!(99))?;
    store.edit("c", |stored| {
        stored["running"]["objects"] = json!({});
        stored["config"]["ingress"]["source"] = json!("this is not C");
    })
}

#[test]
fn enforcing_probes_go_on_until_they_are_replaced_or_deleted() -> Result<()> {
    let cases: Vec<_> = [false, true]
        .iter()
        .flat_map(|delete| NAMES.map(|enforcing| (enforcing, *delete)))
        .collect();
    // A usual run takes every second case: each probe enforces once.
    let step = cases.len().div_ceil(scaled(3, 6) as usize);
    for (enforcing, delete) in cases.into_iter().step_by(step) {
        let topology = Topology::new()?;
        let baseline = KernelObjects::now()?;
        // This counter sees the packets that pass all probes.
        let passed = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
        let daemon = Daemon::start(topology.monitor())?;
        for name in NAMES {
            daemon
                .put(&path(name), &config(name == enforcing))
                .expect(201);
        }
        let other = json!({ "interface": "mon1", "ingress": config(false)["ingress"] });
        daemon.put(&path("other"), &other).expect(201);
        let directories = daemon.kill()?;
        damage(&directories)?;
        let records = |directories: &Directories| -> Result<[Vec<u8>; 2]> {
            let store = Store::open(directories)?;
            Ok([store.record("a")?, store.record("b")?])
        };
        let damaged = records(&directories)?;

        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let load = generator.spawn(Load::default());
        let mut daemon =
            Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        for _ in 0..2 {
            for (name, says) in [("a", "expected value"), ("b", "version 99"), ("c", "this")] {
                let status = daemon.json(&path(name));
                let reason = status["reason"]
                    .as_str()
                    .with_context(|| format!("{status}"))?;
                ensure!(
                    reason.contains(says)
                        && reason.contains("has attached continue, and are not read"),
                    "{name}: {reason}"
                );
                ensure!(
                    status["state"] == "failed" && status["interfaces"][0]["state"] == "attached",
                    "{status}"
                );
                daemon
                    .get(&format!("/v1/probes/{name}/metrics"))
                    .expect(409);
            }
            ensure!(
                records(&daemon.directories())? == damaged,
                "a record was changed"
            );
            daemon.get("/readyz").expect(200);
            daemon = daemon.restart(libc::SIGKILL, &DaemonOptions::default())?;
        }
        // Other probes at the same interface can be created, replaced and deleted.
        daemon.put(&path("guest"), &config(false)).expect(201);
        daemon.put(&path("guest"), &config(false)).expect(200);
        daemon.delete(&path("guest")).expect(204);
        // A refused replacement changes nothing.
        let mut bad = config(true);
        bad["ingress"]["source"] = json!("int x");
        for name in NAMES {
            daemon.put(&path(name), &bad).expect(422);
        }
        if delete {
            load.stop()?;
            ensure!(passed.packets()? == 0, "{} passed", passed.packets()?);
            for name in NAMES {
                daemon.delete(&path(name)).expect(204);
            }
            let link = topology
                .monitor()
                .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
            ensure!(!link.contains("prog/xdp"), "{link}");
        } else {
            for name in NAMES {
                let status = daemon
                    .put(&path(name), &config(name == enforcing))
                    .expect(200)
                    .json();
                ensure!(status["state"] == "running", "{status}");
            }
            load.stop()?;
            ensure!(passed.packets()? == 0, "{} passed", passed.packets()?);
            let before = NAMES.map(|name| {
                total(
                    &daemon.json(&format!("/v1/probes/{name}/metrics")),
                    "ingress",
                    "packets",
                )
            });
            Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(10)?;
            let seen = 1 + NAMES
                .iter()
                .position(|name| *name == enforcing)
                .context("one enforces")?;
            for (i, name) in NAMES.iter().enumerate() {
                let now = total(
                    &daemon.json(&format!("/v1/probes/{name}/metrics")),
                    "ingress",
                    "packets",
                );
                ensure!(
                    now - before[i] == if i < seen { 10 } else { 0 },
                    "{name}: {before:?}, then {now}"
                );
            }
            // The unreadable records were kept.
            let store = Store::open(&daemon.directories())?;
            let kept = [
                store.record_in("unreadable", "a")?,
                store.record_in("unreadable", "b")?,
            ];
            ensure!(kept == damaged.map(Some), "{kept:?}");
        }
        baseline.wait_for_only(daemon.directories().bpffs(), daemon.pid())?;
    }
    Ok(())
}

/// The interface of a probe disappears while its configuration can't be read: the maps with its
/// counts are kept until both are back.
#[test]
fn what_is_attached_nowhere_waits_until_it_can_be_read() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &config(false)).expect(201);
    }
    let send = |count| -> Result<()> {
        Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?
            .send(count)
            .map(drop)
    };
    let rename = |from: &str, to: &str| {
        topology
            .monitor()
            .run("ip", &["link", "set", from, "name", to])
    };
    send(10)?;
    rename("mon0", "away0")?;
    for name in NAMES {
        wait_for_attachment(&daemon, name, "mon0", "pending", PATIENCE)?;
    }
    let directories = daemon.kill()?;
    let readable = Store::open(&directories)?.record("a")?;
    Store::open(&directories)?.set_record("a", "garbage")?;
    daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    assert_eq!(daemon.json(&path("a"))["state"], "failed");
    // A new probe gets no map of the probe whose record is unreadable.
    daemon
        .put(
            &path("guest"),
            &json!({ "interface": "mon1", "ingress": config(false)["ingress"] }),
        )
        .expect(201);
    let directories = daemon.kill()?;
    Store::open(&directories)?.set_record("a", readable)?;
    daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    rename("away0", "mon0")?;
    for name in NAMES {
        wait_for_attachment(&daemon, name, "mon0", "attached", PATIENCE)?;
    }
    send(5)?;
    for name in NAMES {
        let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
        assert_eq!(total(&document, "ingress", "packets"), 15, "{name}");
    }
    Ok(())
}

/// The configuration of a probe can't be read, and the path of its namespace does not answer, so
/// that its attachments can't be found. The probe keeps its maps and its epoch until both can be
/// read.
#[test]
fn what_can_not_be_looked_for_is_kept() -> Result<()> {
    let topology = Topology::new()?;
    let monitor = topology.monitor().path();
    let names = Directories::new()?;
    let hole = names.temporary().join("hole");
    let link = NamespaceLink::new(monitor)?;
    let mut windows = config(false);
    windows["netns"] = json!(link.path());
    windows["ingress"]["metrics"][0]["snapshot"] = json!(true);
    let daemon = Daemon::start(topology.sink())?;
    daemon.put(&path("a"), &windows).expect(201);
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(10)?;
    let directories = daemon.kill()?;
    let readable = Store::open(&directories)?.record("a")?;
    Store::open(&directories)?.set_record("a", "garbage")?;
    let silent = Silent::mount(&hole)?;
    link.lead_to(&hole.join("netns"))?;
    let daemon = Daemon::start_in(topology.sink(), &DaemonOptions::default(), directories)?;
    ensure!(daemon.json(&path("a"))["state"] == "failed");
    // Another probe must not use the epoch word of this one.
    let mut guest = windows.clone();
    (guest["netns"], guest["interface"]) = (json!(monitor), json!("mon1"));
    daemon.put(&path("guest"), &guest).expect(201);
    daemon.get("/v1/probes/guest/metrics").expect(200);
    generator.send(5)?;
    let directories = daemon.kill()?;
    drop(silent);
    link.lead_to(monitor)?;
    Store::open(&directories)?.set_record("a", readable)?;
    let daemon = Daemon::start_in(topology.sink(), &DaemonOptions::default(), directories)?;
    generator.send(2)?;
    let document = daemon.json("/v1/probes/a/metrics");
    assert_eq!(total(&document, "ingress", "packets"), 17, "{document}");
    Ok(())
}

/// A crash during the replacement of an enforcing probe leaves the old or the new programs
/// enforcing.
#[test]
fn a_crash_while_it_is_replaced_lets_no_packet_through() -> Result<()> {
    for (step, committed) in [
        ("pinned", false),
        ("attached", false),
        ("switched", false),
        ("committed", true),
    ] {
        let topology = Topology::new()?;
        let baseline = KernelObjects::now()?;
        let passed = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
        let daemon = Daemon::start(topology.monitor())?;
        for name in NAMES {
            daemon.put(&path(name), &config(name == "a")).expect(201);
        }
        let directories = daemon.kill()?;
        Store::open(&directories)?.set_record("a", "garbage")?;
        let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", step);
        let daemon = Daemon::start_in(topology.monitor(), &dying, directories)?;
        let generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
        let load = generator.spawn(Load::default());
        let body = config(true).to_string();
        ensure!(
            daemon
                .try_request("PUT", &path("a"), &[], body.as_bytes())
                .is_err(),
            "{step} was not reached"
        );
        let daemon = Daemon::start_in(
            topology.monitor(),
            &DaemonOptions::default(),
            daemon.kill()?,
        )?;
        let states = NAMES.map(|name| daemon.json(&path(name))["state"].clone());
        let of_a = if committed { "running" } else { "failed" };
        ensure!(states == [of_a, "running", "running"], "{step}: {states:?}");
        load.stop()?;
        ensure!(
            passed.packets()? == 0,
            "{step}: {} passed",
            passed.packets()?
        );
        baseline.wait_for_only(daemon.directories().bpffs(), daemon.pid())?;
        daemon.delete(&path("a")).expect(204);
        Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?.send(100)?;
        ensure!(
            passed.packets()? == 100,
            "{step}: {} of 100 passed",
            passed.packets()?
        );
    }
    Ok(())
}

/// A daemon with `--detach-on-exit` also removes held deployments.
#[test]
fn detach_on_exit_removes_what_is_held() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &config(name == "c")).expect(201);
    }
    let directories = daemon.kill()?;
    damage(&directories)?;
    let detaching = DaemonOptions::default().argument("--detach-on-exit");
    let daemon = Daemon::start_in(topology.monitor(), &detaching, directories)?;
    let (exit, directories) = daemon.terminate()?;
    ensure!(exit.success(), "{exit}");
    let link = topology
        .monitor()
        .output("ip", &["-d", "link", "show", "dev", "mon0"])?;
    ensure!(!link.contains("prog/xdp"), "{link}");
    let pinned = KernelObjects::pinned(directories.bpffs())?.counts();
    assert_eq!(pinned, KernelObjects::default().counts());
    baseline.wait_for_only(directories.bpffs(), std::process::id())
}

/// A configuration that does not fit its compiled object makes adoption fail after everything was
/// opened. The probe that drops packets is still listed, and DELETE ends it.
#[test]
fn what_can_not_be_adopted_is_no_zombie() -> Result<()> {
    let topology = Topology::new()?;
    let baseline = KernelObjects::now()?;
    let passed = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        let mut config = config(name == "c");
        config["ingress"]["metrics"][0]["snapshot"] = json!(true);
        daemon.put(&path(name), &config).expect(201);
    }
    let directories = daemon.kill()?;
    for name in NAMES {
        Store::open(&directories)?.edit(name, |stored| {
            stored["config"]["ingress"]["metrics"][0]["merge"] = json!({ "nosuchfield": "max" });
        })?;
    }
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
    generator.send(100)?;
    ensure!(passed.packets()? == 0, "{} passed", passed.packets()?);
    for name in NAMES {
        let status = daemon.json(&path(name));
        ensure!(
            status["state"] == "failed" && status["interfaces"][0]["state"] == "attached",
            "{status}"
        );
        ensure!(
            status["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("nosuchfield")),
            "{status}"
        );
    }
    for name in ["b", "c", "a"] {
        daemon.delete(&path(name)).expect(204);
    }
    generator.send(100)?;
    ensure!(
        passed.packets()? == 100,
        "{} of 100 passed",
        passed.packets()?
    );
    baseline.wait_for_only(daemon.directories().bpffs(), daemon.pid())
}

/// A deleted probe drops no packets even if the kernel refuses the next revision of the dispatcher,
/// and the revision after that is without the probe.
#[test]
fn a_deleted_probe_drops_nothing_whatever_fails() -> Result<()> {
    let topology = Topology::new()?;
    let passed = Counter::attach(topology.monitor(), "mon0", Place::TcIngress)?;
    let daemon = Daemon::start(topology.monitor())?;
    for name in NAMES {
        daemon.put(&path(name), &config(name == "b")).expect(201);
    }
    let failing = DaemonOptions::default().environment("TWINPROBE_FAIL_AT", "revising");
    let daemon = Daemon::start_in(topology.monitor(), &failing, daemon.kill()?)?;
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    generator.send(100)?;
    ensure!(passed.packets()? == 0, "{} passed", passed.packets()?);
    daemon.delete(&path("b")).expect(204);
    generator.send(100)?;
    ensure!(
        passed.packets()? == 100,
        "{} of 100 passed",
        passed.packets()?
    );
    // The probes are more than the slots: slots that were emptied are used again.
    for _ in 0..40 {
        daemon.put(&path("d"), &config(false)).expect(201);
        daemon.delete(&path("d")).expect(204);
    }
    generator.send(10)?;
    let counted = ["a", "c"].map(|name| {
        total(
            &daemon.json(&format!("/v1/probes/{name}/metrics")),
            "ingress",
            "packets",
        )
    });
    assert_eq!(counted, [210, 110]);
    Ok(())
}
