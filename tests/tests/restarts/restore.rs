//! Restoring several probes at once: no probe may affect another one.

use std::fs;
use std::sync::Arc;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::layouts::{Layout, Reading, packets};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::windows::Windows;
use twinprobe_tests::{Daemon, DaemonOptions, Directories, Store, Topology};

fn generator(topology: &Topology) -> Result<Generator> {
    Generator::new(topology.generator(), "gen0", GeneratorOptions::default())
}

/// The reason why probes are deployed anew.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The daemon was killed, and nothing is left in bpffs.
    Reboot,
    /// The daemon has ended properly, with `--detach-on-exit`.
    Detached,
}

fn end(topology: &Topology, daemon: Daemon, end: End) -> Result<Arc<Directories>> {
    match end {
        End::Reboot => {
            let directories = daemon.kill()?;
            fs::remove_dir_all(directories.bpffs())?;
            Ok(directories)
        }
        End::Detached => {
            let detaching = DaemonOptions::default().argument("--detach-on-exit");
            let daemon = Daemon::start_in(topology.monitor(), &detaching, daemon.kill()?)?;
            let (exit, directories) = daemon.terminate()?;
            ensure!(exit.success(), "{exit}");
            Ok(directories)
        }
    }
}

/// Probes that are deployed anew keep windows and their numbers, sums, cursors and revisions.
#[test]
fn probes_that_are_deployed_anew_keep_what_is_on_disk() -> Result<()> {
    let topology = Topology::new()?;
    let names = ["a", "b", "c", "d"];
    for how in [End::Reboot, End::Detached] {
        let mut generator = generator(&topology)?;
        let daemon = Daemon::start(topology.monitor())?;
        for name in names {
            let mut config = Layout::new(Reading::Cumulative).config();
            config["ingress"]["verdict"] = json!("observe");
            config["window"] = json!({ "retain": 32, "collectors": ["one", "two"] });
            let path = format!("/v1/probes/{name}");
            daemon.put(&path, &config).expect(201);
            config["priority"] = json!(7);
            daemon.put(&path, &config).expect(200);
        }
        let mut sent = 0;
        let mut send = |count| {
            sent += count;
            generator.send(count)
        };
        for _ in 0..3 {
            send(100)?;
            for name in names {
                daemon
                    .request("POST", &format!("/v1/probes/{name}/windows"), &[], b"")
                    .expect(201);
            }
        }
        for name in names {
            let path = format!("/v1/probes/{name}/windows/1?collector=one");
            daemon.delete(&path).expect(204);
        }
        let known = |daemon: &Daemon, name: &str| -> [Value; 4] {
            ["windows", "windows?collector=one", "revisions", "windows/2"]
                .map(|path| daemon.json(&format!("/v1/probes/{name}/{path}")))
        };
        let before = names.map(|name| known(&daemon, name));
        let directories = end(&topology, daemon, how)?;
        let daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        send(10)?;
        for (name, before) in names.iter().zip(before).rev() {
            let [mut windows, mut of_one, revisions, second] = known(&daemon, name);
            let [old_windows, old_of_one, old_revisions, old_second] = before;
            // A daemon that detaches closes the open window at its end.
            for list in [&mut windows, &mut of_one] {
                if let (End::Detached, Some(list)) = (how, list["windows"].as_array_mut()) {
                    list.pop();
                }
            }
            assert_eq!(
                [windows, of_one],
                [old_windows, old_of_one],
                "{name}, {how:?}: windows"
            );
            assert_eq!(
                [revisions, second],
                [old_revisions, old_second],
                "{name}, {how:?}"
            );
            let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
            let closed = 3 + u64::from(matches!(how, End::Detached));
            assert_eq!(
                document["window"]["seq"],
                closed + 1,
                "{name}, {how:?}: {document}"
            );
            assert!(
                document["window"]["lost_windows"].is_null(),
                "{name}, {how:?}: {document}"
            );
            assert_eq!(packets(&document), sent, "{name}, {how:?}");
        }
    }
    Ok(())
}

/// A removal that was interrupted is finished by the next start, and affects no other probe.
#[test]
fn a_removal_that_was_cut_off_is_finished() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    let names = ["a", "b", "c"];
    for name in names {
        daemon
            .put(
                &format!("/v1/probes/{name}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
        daemon
            .request("POST", &format!("/v1/probes/{name}/windows"), &[], b"")
            .expect(201);
    }
    let dying = DaemonOptions::default().environment("TWINPROBE_CRASH_AT", "forgotten");
    let daemon = Daemon::start_in(topology.monitor(), &dying, daemon.kill()?)?;
    ensure!(
        daemon
            .try_request("DELETE", "/v1/probes/b", &[], b"")
            .is_err(),
        "the step was not reached"
    );
    let daemon = Daemon::start_in(
        topology.monitor(),
        &DaemonOptions::default(),
        daemon.kill()?,
    )?;
    daemon.get("/v1/probes/b").expect(404);
    assert_eq!(Store::open(&daemon.directories())?.rows("b")?, 0);
    for name in ["a", "c"] {
        assert_eq!(Windows::of(&daemon, name).list("").seqs(), [1]);
    }
    Ok(())
}

/// Probes of the same priority run in the order of their age, also after a reboot, and after a
/// second one.
#[test]
fn equal_priorities_keep_their_order() -> Result<()> {
    let topology = Topology::new()?;
    let mut daemon = Daemon::start(topology.monitor())?;
    // The third probe ends the chain: the probe after it sees nothing.
    let names = ["d", "c", "b", "a"];
    for name in names {
        let mut config = counter_config("mon0", if name == "b" { "XDP_DROP" } else { "XDP_PASS" });
        config["ingress"]["verdict"] = json!("enforce");
        daemon
            .put(&format!("/v1/probes/{name}"), &config)
            .expect(201);
    }
    let mut generator = generator(&topology)?;
    for how in [End::Reboot, End::Detached, End::Reboot] {
        let directories = end(&topology, daemon, how)?;
        daemon = Daemon::start_in(topology.monitor(), &DaemonOptions::default(), directories)?;
        generator.send(100)?;
        let counted = names.map(|name| {
            total(
                &daemon.json(&format!("/v1/probes/{name}/metrics")),
                "ingress",
                "packets",
            )
        });
        assert_eq!(counted, [100, 100, 100, 0], "{how:?}: of {names:?}");
    }
    Ok(())
}
