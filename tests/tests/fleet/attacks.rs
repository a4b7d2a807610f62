//! Attacks: occupied names, leases, operators that take over, removed nodes.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::cluster::ports;
use twinprobe_tests::sample::counter_config;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::Fleet;

#[test]
fn a_probe_of_somebody_else_stays_and_the_report_says_whose_it_is() -> Result<()> {
    let fleet = Fleet::new(2)?;
    let theirs = counter_config("mon0", "XDP_PASS");
    ensure!(
        fleet.nodes[0]
            .daemon()
            .put("/v1/probes/seen", &theirs)
            .status
            == 201
    );
    fleet.apply("first", &json!({}))?;
    let status = fleet.reaches("rolled back")?;
    let failure = &status["failures"][0];
    ensure!(
        failure["node"] == "n0" && failure["stage"] == "conflict",
        "{status:#}"
    );
    ensure!(
        failure["reason"]
            .as_str()
            .is_some_and(|it| it.contains("from uid:0")),
        "{status:#}"
    );
    fleet
        .cluster
        .kubectl(&["delete", "mp", "seen", "--timeout", "60s"], "")
        .with_context(|| fleet.logs())?;
    let list = fleet.nodes[0].daemon().json("/v1/probes");
    ensure!(list["probes"][0]["revision"] == 1, "{list}");
    ensure!(
        list["probes"][0]["config"]["ingress"]["metrics"][0]["name"] == "packets",
        "{list}"
    );
    Ok(())
}

#[test]
fn a_lease_ends_a_probe_that_no_operator_renews() -> Result<()> {
    let mut fleet = Fleet::new(1)?;
    fleet.apply("first", &json!({ "lease": "6s" }))?;
    fleet.reaches("complete")?;
    let has = |fleet: &Fleet, count: usize| {
        let probes = fleet.nodes[0].daemon().json("/v1/probes");
        ensure!(
            probes["probes"]
                .as_array()
                .is_some_and(|it| it.len() == count),
            "{probes}"
        );
        Ok(probes)
    };
    // A renewal of the lease moves its end meanwhile.
    let end = |probes: &Value| {
        probes["probes"][0]["expires_at"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    let first = end(&has(&fleet, 1)?);
    wait_for("a renewal", PATIENCE, || {
        let probes = has(&fleet, 1)?;
        ensure!(end(&probes) > first, "{probes}");
        Ok(())
    })?;
    fleet.operator = None;
    wait_for("the lease is over", PATIENCE, || has(&fleet, 0)).with_context(|| fleet.logs())?;
    fleet.start_operator()?;
    wait_for("the probe is back", PATIENCE, || has(&fleet, 1)).with_context(|| fleet.logs())?;
    Ok(())
}

#[test]
fn another_operator_takes_over() -> Result<()> {
    let mut fleet = Fleet::new(2)?;
    // The canary never closes enough windows.
    fleet.apply(
        "first",
        &json!({ "rollout": { "windows": 1000, "timeout": "1h" } }),
    )?;
    fleet.reaches("canary")?;
    let first = fleet.operator.take();
    // Two operators on one machine need an address each.
    let [port] = ports()?;
    fleet.webhook = format!("127.0.0.1:{port}");
    fleet.start_operator()?;
    wait_for("the second one waits", PATIENCE, || {
        ensure!(
            fleet
                .said("operator")
                .matches("the webhook listens")
                .count()
                == 2,
            "{}",
            fleet.logs()
        );
        ensure!(
            fleet.said("operator").matches("has the Lease").count() == 1,
            "{}",
            fleet.logs()
        );
        Ok(())
    })?;
    drop(first);
    fleet.apply(
        "first",
        &json!({ "rollout": { "windows": 2, "timeout": "1h" } }),
    )?;
    let status = fleet.reaches("complete")?;
    ensure!(status["counts"]["running"] == 2, "{status:#}");
    ensure!(
        fleet.found() == vec![("first".to_owned(), 1); 2],
        "{:?}",
        fleet.found()
    );
    Ok(())
}

#[test]
fn nodes_go_and_names_are_used_again() -> Result<()> {
    let mut fleet = Fleet::new(3)?;
    fleet.apply("first", &json!({}))?;
    fleet.reaches("complete")?;
    fleet.nodes[2].agent = None;
    fleet.cluster.kubectl(&["delete", "node", "n2"], "")?;
    wait_for("the node is forgotten", PATIENCE, || {
        let object = fleet.object()?;
        ensure!(
            object["status"]["counts"]["selected"] == 2 && fleet.count("pr")? == 2,
            "{object:#}"
        );
        Ok(())
    })?;
    // A node that loses the label loses the probe. A node that gets the label gets the probe.
    fleet
        .cluster
        .kubectl(&["label", "node", "n1", "role-"], "")?;
    wait_for("the node has no probe", PATIENCE, || {
        ensure!(
            fleet.found()[1].1 == 0 && fleet.count("pr")? == 1,
            "{:?}",
            fleet.found()
        );
        Ok(())
    })?;
    fleet
        .cluster
        .kubectl(&["label", "node", "n1", "role=edge"], "")?;
    wait_for("the node has the probe again", PATIENCE, || {
        ensure!(
            fleet.found()[1].0 == "first" && fleet.count("pr")? == 2,
            "{:?}",
            fleet.found()
        );
        Ok(())
    })?;
    // A new object takes the name of the deleted one, with the same configuration.
    fleet
        .cluster
        .kubectl(&["delete", "mp", "seen", "--timeout", "60s"], "")
        .with_context(|| fleet.logs())?;
    fleet.apply("first", &json!({}))?;
    let status = fleet.reaches("complete")?;
    ensure!(status["counts"]["running"] == 2, "{status:#}");
    Ok(())
}
