//! More probes than one epoch map has places for.

use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::sample::{counter_config, total};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::{Daemon, DaemonOptions, Topology};

/// The number of places of an epoch map.
const PLACES: usize = 512;

/// Probes whose words are in another map than those of the first ones are deployed, read, adopted
/// and removed like others.
#[test]
fn more_probes_than_an_epoch_map_has_places() -> Result<()> {
    let topology = Topology::new()?;
    let options = ["--max-probes", "4096", "--max-programs", "65536"]
        .into_iter()
        .fold(DaemonOptions::default(), DaemonOptions::argument);
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    // Probes that wait for an interface also have places.
    thread::scope(|scope| {
        let deploy = |part: usize| {
            let daemon = &daemon;
            let mut config = counter_config("none", "XDP_PASS");
            config["wait_for_interface"] = json!(true);
            scope.spawn(move || {
                for number in (part..PLACES).step_by(2) {
                    daemon
                        .put(&format!("/v1/probes/waits{number}"), &config)
                        .expect(201);
                }
            })
        };
        for part in [0, 1].map(deploy) {
            part.join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    });
    let names = ["a", "b", "c"];
    for name in names {
        daemon
            .put(
                &format!("/v1/probes/{name}"),
                &counter_config("mon0", "XDP_PASS"),
            )
            .expect(201);
    }
    ensure!(
        daemon.directories().bpffs().join("epochs_1").exists(),
        "the words are in another map"
    );
    let mut generator = Generator::new(topology.generator(), "gen0", GeneratorOptions::default())?;
    let read = |daemon: &Daemon, seq: u64| -> Result<()> {
        for name in names {
            let document = daemon.json(&format!("/v1/probes/{name}/metrics"));
            let found = (
                document["window"]["seq"].as_u64(),
                total(&document, "ingress", "packets"),
            );
            ensure!(
                found == (Some(seq), 10),
                "{name}: {found:?}, not window {seq}"
            );
        }
        Ok(())
    };
    generator.send(10)?;
    read(&daemon, 1)?;
    generator.send(6)?;
    let directories = daemon.kill()?;
    generator.send(4)?;
    let daemon = Daemon::start_in(topology.monitor(), &options, directories)?;
    read(&daemon, 2)?;
    let listed = daemon.json("/v1/probes")["probes"]
        .as_array()
        .context("probes")?
        .clone();
    ensure!(
        listed.len() == PLACES + names.len(),
        "{} probes",
        listed.len()
    );
    ensure!(
        listed
            .iter()
            .all(|probe: &Value| probe["state"] == "running"),
        "{listed:?}"
    );
    // A new probe uses an epoch word of the second map again.
    daemon.delete("/v1/probes/c").expect(204);
    daemon
        .put("/v1/probes/c", &counter_config("mon0", "XDP_PASS"))
        .expect(201);
    generator.send(10)?;
    let document = daemon.json("/v1/probes/c/metrics");
    ensure!(total(&document, "ingress", "packets") == 10, "{document}");
    Ok(())
}
