//! Conditions without a value, and probes of a rule whose lease ends while the condition holds.

use anyhow::{Result, ensure};
use serde_json::json;
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::{Daemon, Topology};

use crate::scene::{close, counter, deploys, generator, rule, wait_for_rule};

/// A division by zero neither fires the rule nor ends its actions. The status shows it.
#[test]
fn a_condition_without_a_value_decides_nothing() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let mut divides = rule(&json!([{ "mark": "{{10 / sum(ingress.packets)}}" }]));
    divides["when"] = json!("100 / sum(ingress.packets) > 5");
    divides.as_object_mut().expect("an object").remove("until");
    daemon.put("/v1/rules/divides", &divides).expect(201);
    let mut generator = generator(&topology)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "divides", |status| status["window"] == 1)?;
    ensure!(
        status["firings"] == json!([]) && status["state"] == "watching",
        "{status}"
    );
    let said = "when has no value: it divides by 0, or a number in it is too large";
    ensure!(status["no_value"] == said, "{status}");
    let shown = daemon.client(&["rules", "get", "divides"])?;
    ensure!(
        String::from_utf8_lossy(&shown.stdout).contains(said),
        "{shown:?}"
    );
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "divides", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    ensure!(
        status["no_value"].is_null() && status["firings"][0]["do"][0]["mark"] == "1",
        "{status}"
    );
    close(&daemon);
    let status = wait_for_rule(&daemon, "divides", |status| status["window"] == 3)?;
    ensure!(
        status["state"] == "firing" && status["no_value"] == said,
        "{status}"
    );
    generator.send(50)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "divides", |status| status["state"] == "watching")?;
    ensure!(
        status["window"] == 4 && status["firings"][0]["ended"].is_string(),
        "{status}"
    );
    Ok(())
}

/// The probe ends with its lease. The rule continues to fire without the probe until the condition
/// ends.
#[test]
fn a_lease_may_end_while_the_condition_holds() -> Result<()> {
    let topology = Topology::new()?;
    let daemon = Daemon::start(topology.monitor())?;
    daemon.put("/v1/probes/p", &counter()).expect(201);
    let mut short = deploys("fine");
    short["apply"]["expires"] = json!("1s");
    daemon
        .put("/v1/rules/many", &rule(&json!([short])))
        .expect(201);
    let mut generator = generator(&topology)?;
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["firings"][0]["done"].is_string()
    })?;
    wait_for("the end of the lease", PATIENCE, || {
        let status = daemon.get("/v1/probes/fine").status;
        ensure!(status == 404, "{status}");
        Ok(())
    })?;
    generator.send(10)?;
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| status["window"] == 2)?;
    ensure!(
        status["state"] == "firing" && status["probes"] == json!([]),
        "{status}"
    );
    ensure!(
        status["gone"] == json!(["fine"]) && status["firings"][0]["ended"].is_null(),
        "{status}"
    );
    let shown = String::from_utf8(daemon.client(&["rules", "get", "many"])?.stdout)?;
    ensure!(
        shown.contains("not there any more (lease over, or deleted): fine"),
        "{shown}"
    );
    let history = daemon.json("/v1/history")["history"].clone();
    let fine: Vec<_> = history
        .as_array()
        .into_iter()
        .flatten()
        .filter(|entry| entry["probe"] == "fine")
        .collect();
    ensure!(
        fine.last().is_some_and(|last| last["change"] == "expired"),
        "{history}"
    );
    close(&daemon);
    let status = wait_for_rule(&daemon, "many", |status| status["state"] == "watching")?;
    ensure!(status["gone"].is_null(), "{status}");
    // The next firing deploys it again.
    generator.send(10)?;
    close(&daemon);
    wait_for_rule(&daemon, "many", |status| {
        status["probes"] == json!(["fine"])
    })?;
    Ok(())
}
