//! Tests of the bystanders themselves: they notice every loss.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use twinprobe_tests::packets::send_frames;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::{Bystanders, Daemon, DaemonOptions, Stand, Topology};

const XDP: &str = "/v1/probes/bystander-xdp";
const TC: &str = "/v1/probes/bystander-tc";

/// Replaces a probe by the same configuration with this priority.
fn replace(daemon: &Daemon, path: &str, priority: i64) {
    let mut config = daemon.json(path)["config"].clone();
    config["priority"] = json!(priority);
    daemon.put(path, &config).expect(200);
}

/// The text of the error that reports a loss, and the action that causes the loss.
type Loss = (&'static str, fn(&Daemon));

#[test]
fn what_is_lost_is_noticed() -> Result<()> {
    let losses: [Loss; 6] = [
        ("there is no probe named bystander-tc", |daemon| {
            drop(daemon.delete(TC).expect(204));
        }),
        ("\"retained\":2", |daemon| {
            drop(daemon.delete(&format!("{XDP}/windows/1")).expect(204));
        }),
        ("\"oldest\":2", |daemon| {
            daemon
                .delete(&format!("{TC}/windows/1?collector=late"))
                .expect(204);
        }),
        ("revision was 1, is 2", |daemon| replace(daemon, XDP, -1002)),
        ("priority\":-1001", |daemon| replace(daemon, TC, -1001)),
        // The probe `thief` runs before the bystander and drops packets.
        ("in by_sum, of", |daemon| {
            let mut thief = counter_config("mon0", "XDP_DROP");
            (thief["priority"], thief["ingress"]["verdict"]) = (json!(-2000), json!("enforce"));
            daemon.put("/v1/probes/thief", &thief).expect(201);
        }),
    ];
    for (words, lose) in losses {
        let topology = Topology::new()?;
        let daemon = Daemon::start(topology.monitor())?;
        let mut bystanders = Bystanders::deploy(&daemon, &topology)?;
        bystanders.check()?;
        lose(&daemon);
        let error = format!(
            "{:#}",
            bystanders
                .finish()
                .err()
                .with_context(|| format!("no {words}"))?
        );
        ensure!(error.contains(words), "{words}: {error}");
    }
    Ok(())
}

#[test]
fn nothing_is_lost_to_restarts() -> Result<()> {
    for stand in [
        Stand::BESIDE,
        Stand::ELSEWHERE,
        Stand {
            mode: "generic",
            ..Stand::BESIDE
        },
    ] {
        let topology = Topology::new()?;
        let mut daemon = Daemon::start(topology.monitor())?;
        let mut bystanders = Bystanders::deploy_at(&daemon, &topology, stand)?;
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            send_frames(topology.generator(), "gen0", &[2; 60], 100)?;
            daemon = daemon.restart(signal, &DaemonOptions::default())?;
            bystanders.check()?;
        }
        bystanders.finish()?;
    }
    Ok(())
}
