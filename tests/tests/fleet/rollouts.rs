//! Rollouts by the operator and the agents, in the cluster with the chart's roles and policies.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::cluster::started;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Fleet, probe};

#[test]
fn a_probe_reaches_every_node_and_leaves_nothing() -> Result<()> {
    let mut fleet = Fleet::new(3)?;
    fleet.apply("first", &json!({}))?;
    let status = fleet.reaches("complete")?;
    let counts = json!({ "selected": 3, "updated": 3, "running": 3, "failed": 0, "excluded": 0, "silent": 0 });
    ensure!(status["counts"] == counts, "{status:#}");
    ensure!(
        status["conditions"][2]["type"] == "Available"
            && status["conditions"][2]["status"] == "True"
    );
    ensure!(
        status["worst"]["nsPerPacket"]
            .as_f64()
            .is_some_and(|cost| cost > 0.0),
        "{status:#}"
    );
    ensure!(
        fleet.found() == vec![("first".to_owned(), 1); 3],
        "{:?}",
        fleet.found()
    );
    let reports: Value =
        serde_json::from_str(&fleet.cluster.kubectl(&["get", "pr", "-o", "json"], "")?)?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    for report in reports["items"].as_array().context("reports")? {
        ensure!(
            report["spec"]["kernel"] == kernel.trim() && report["spec"]["windows"] == 2,
            "{report:#}"
        );
        ensure!(report["spec"].to_string().len() < 1024, "{report:#}");
        // The agent has written each report only once.
        ensure!(report["metadata"]["generation"] == 1, "{report:#}");
    }
    // There is an Event for each step.
    let mut events = fleet.events()?;
    events.sort();
    ensure!(
        events == ["Complete", "Started", "StepGood", "StepGood"],
        "{events:?}"
    );
    // Somebody deletes a report, and another node has lost its record of one.
    fleet.cluster.kubectl(&["delete", "pr", "seen.n1"], "")?;
    fleet.nodes[2].agent = None;
    std::fs::remove_dir_all(fleet.folder.path().join("n2.state"))?;
    fleet.start_agent(2)?;
    // A second revision comes after the first, and the first is there for a way back.
    fleet.apply("second", &json!({}))?;
    let status = fleet.reaches("complete")?;
    ensure!(status["revision"] == status["stable"], "{status:#}");
    ensure!(
        fleet.found() == vec![("second".to_owned(), 2); 3],
        "{:?}",
        fleet.found()
    );
    let all = "/apis/twinprobe.dev/v1alpha1/probereports";
    let reports = fleet.cluster.kubectl(&["get", "--raw", all], "")?;
    let reports: Value = serde_json::from_str(&reports)?;
    for (node, is_new) in ["n0", "n1", "n2"].into_iter().zip([false, true, false]) {
        let mut items = reports["items"].as_array().context("reports")?.iter();
        let report = items
            .find(|report| report["spec"]["node"] == node)
            .context(node)?;
        ensure!(
            report["spec"]["revision"] == status["revision"],
            "{report:#}"
        );
        // The API server keeps no list of fields for a report that an agent has replaced.
        ensure!(
            report["metadata"]["managedFields"].is_array() == is_new,
            "{report:#}"
        );
    }

    fleet
        .cluster
        .kubectl(&["delete", "mp", "seen", "--timeout", "60s"], "")
        .with_context(|| fleet.logs())?;
    for kind in ["mp", "proberevisions", "probeassignments", "pr"] {
        ensure!(fleet.count(kind)? == 0, "{kind}");
    }
    ensure!(
        fleet.found() == vec![(String::new(), 0); 3],
        "{:?}",
        fleet.found()
    );
    Ok(())
}

#[test]
fn a_bad_revision_touches_the_canary_only_and_goes_back() -> Result<()> {
    let fleet = Fleet::new(3)?;
    fleet.apply("first", &json!({}))?;
    let good = fleet.reaches("complete")?;
    fleet.apply(
        "second",
        &json!({ "rollout": { "budget": { "nsPerPacket": 0 } } }),
    )?;
    let status = fleet.reaches("rolled back")?;
    ensure!(status["revision"] == good["revision"] && status["failedRevision"] != good["revision"]);
    let failure = &status["failures"][0];
    ensure!(
        failure["node"] == "n0" && failure["stage"] == "budget",
        "{status:#}"
    );
    let degraded = &status["conditions"][3];
    ensure!(
        degraded["type"] == "Degraded" && degraded["status"] == "True",
        "{status:#}"
    );
    // Three revisions on the canary: the first, the second, and the first again. The other nodes
    // got none of them.
    let expected = [3, 1, 1].map(|revision| ("first".to_owned(), revision));
    wait_for("the canary goes back", PATIENCE, || {
        ensure!(fleet.found() == expected, "{:?}", fleet.found());
        Ok(())
    })?;
    ensure!(
        fleet.events()?.iter().any(|event| event == "RolledBack"),
        "{:?}",
        fleet.events()?
    );

    // The object has the verifier's message about a program.
    let mut broken = probe("third", &json!({}));
    let source = broken["spec"]["config"]["ingress"]["source"]
        .as_str()
        .context("source")?;
    broken["spec"]["config"]["ingress"]["source"] = source.replace("if (packets)", "").into();
    fleet
        .cluster
        .kubectl(&["apply", "-f", "-"], &broken.to_string())?;
    let status = fleet.reaches("rolled back")?;
    let failure = &status["failures"][0];
    ensure!(
        failure["node"] == "n0" && failure["stage"] == "load",
        "{status:#}"
    );
    ensure!(
        failure["reason"]
            .as_str()
            .is_some_and(|it| it.contains("map_value_or_null")),
        "{status:#}"
    );
    // A refusal is final: the source is not compiled again and again.
    let refusals = fleet.nodes[0]
        .daemon()
        .log()
        .matches("method=PUT path=\"/v1/probes/seen\" status=422")
        .count();
    ensure!(refusals == 1, "{refusals} refusals");
    ensure!(fleet.found() == expected, "{:?}", fleet.found());
    Ok(())
}

#[test]
fn a_node_goes_on_without_the_api_server_and_catches_up() -> Result<()> {
    let mut fleet = Fleet::new(2)?;
    fleet.apply("first", &json!({}))?;
    fleet.reaches("complete")?;
    // While the server is down, the daemon loses the probe and the agent starts anew.
    fleet.nodes[1].agent = None;
    let deleted = fleet.nodes[1].daemon().delete("/v1/probes/seen");
    ensure!(deleted.status == 204, "{deleted:?}");
    let (mut agent, log) = (fleet.agent(1)?, fleet.folder.path().join("n1.log"));
    let Fleet { cluster, nodes, .. } = &mut fleet;
    cluster.restart(|| {
        nodes[1].agent = Some(started(&mut agent, &log)?);
        wait_for("the agent puts what it was told", PATIENCE, || {
            let probes = nodes[1].daemon().json("/v1/probes");
            ensure!(probes["probes"][0]["name"] == "seen", "{probes}");
            Ok(())
        })
    })?;
    // An agent that was down finds the present state, after any changes meanwhile.
    fleet.nodes[1].agent = None;
    fleet
        .cluster
        .kubectl(&["delete", "mp", "seen", "--wait=false"], "")?;
    wait_for("the other node has nothing", PATIENCE, || {
        ensure!(fleet.found()[0].1 == 0, "{:?}", fleet.found());
        Ok(())
    })?;
    fleet.start_agent(1)?;
    wait_for("nothing is left", PATIENCE, || {
        ensure!(
            fleet.found()[1].1 == 0 && fleet.count("pr")? == 0 && fleet.count("mp")? == 0,
            "{}",
            fleet.logs()
        );
        Ok(())
    })?;
    Ok(())
}
