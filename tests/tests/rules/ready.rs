//! The probe that a rule deploys is loaded before the rule fires.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use serde_json::json;

use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, DaemonOptions, KernelObjects, Topology};

use crate::scene::{close, counter, deploys, generator, rule, wait_for_rule};

/// The words of the log about such a probe.
const READY: &str = "the rule's probe is loaded and waits";

/// Waits until the probe of the rule is loaded. Returns its programs.
fn more_programs(daemon: &Daemon, before: &KernelObjects) -> Result<BTreeSet<u32>> {
    ensure!(daemon.wait_for_log(READY, PATIENCE), "{}", daemon.log());
    let found = programs(daemon, before)?;
    ensure!(found.len() == 2, "twins: {found:?}");
    Ok(found)
}

/// Returns the programs that the daemon holds now and did not hold at `before`.
fn programs(daemon: &Daemon, before: &KernelObjects) -> Result<BTreeSet<u32>> {
    let now = KernelObjects::of_process(daemon.pid())?.programs();
    Ok(now.difference(&before.programs()).copied().collect())
}

#[test]
fn a_rule_fires_with_the_programs_that_were_ready() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let before = KernelObjects::of_process(daemon.pid())?;
    daemon
        .put("/v1/rules/many", &rule(&json!([deploys("fine")])))
        .expect(201);
    let ready = more_programs(&daemon, &before)?;
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(
        programs(&daemon, &before)?.is_superset(&ready),
        "the probe has other programs"
    );
    generator.send(7)?;
    let document = daemon.json("/v1/probes/fine/metrics");
    assert_eq!(
        twinprobe_tests::sample::total(&document, "ingress", "packets"),
        7,
        "{document}"
    );
    // The rule ends its probe, and prepares the next one.
    close(&daemon);
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["ended"].is_string()
    })?;
    wait_for("another probe", PATIENCE, || {
        let log = daemon.log();
        ensure!(log.matches(READY).count() == 2, "{log}");
        Ok(())
    })?;
    let again = programs(&daemon, &before)?;
    ensure!(again.is_disjoint(&ready), "{again:?}");
    daemon.delete("/v1/rules/many").expect(204);
    wait_for("the end of what was ready", PATIENCE, || {
        let now = programs(&daemon, &before)?;
        // The dispatcher is a new one: it was replaced when the probe of the rule was attached.
        ensure!(now.intersection(&again).count() <= 1, "{now:?}");
        Ok(())
    })
}

/// A change of the watched probe removes the programs that were loaded for its earlier
/// configuration.
#[test]
fn what_is_ready_follows_the_watched_probe() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let before = KernelObjects::of_process(daemon.pid())?;
    daemon
        .put("/v1/rules/many", &rule(&json!([deploys("fine")])))
        .expect(201);
    let ready = more_programs(&daemon, &before)?;
    let mut config = counter();
    config["priority"] = json!(7);
    daemon.put("/v1/probes/p", &config).expect(200);
    wait_for("other programs", PATIENCE, || {
        let now = programs(&daemon, &before)?;
        ensure!(now.is_disjoint(&ready), "{now:?}");
        Ok(())
    })?;
    generator(&topology)?.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    daemon.get("/v1/probes/fine").expect(200);
    daemon.delete("/v1/rules/many").expect(204);
    daemon.delete("/v1/probes/p").expect(204);
    daemon.get("/v1/probes/fine").expect(404);
    Ok(())
}

/// A probe that is only loaded makes room for one that runs.
#[test]
fn a_ready_probe_gives_its_share_up() -> Result<()> {
    let topology = Topology::new()?;
    let options = DaemonOptions::default().argument("--max-programs=5");
    let daemon = Daemon::start_with(topology.monitor(), &options)?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let before = KernelObjects::of_process(daemon.pid())?;
    daemon
        .put("/v1/rules/many", &rule(&json!([deploys("fine")])))
        .expect(201);
    let ready = more_programs(&daemon, &before)?;
    daemon.put("/v1/probes/q", &counter()).expect(201);
    wait_for("the end of what was ready", PATIENCE, || {
        let now = programs(&daemon, &before)?;
        ensure!(now.is_disjoint(&ready), "{now:?}");
        Ok(())
    })?;
    // The rule still fires once there is room.
    daemon.delete("/v1/probes/q").expect(204);
    generator(&topology)?.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(status["firings"][0]["error"].is_null(), "{status}");
    daemon.get("/v1/probes/fine").expect(200);
    Ok(())
}
