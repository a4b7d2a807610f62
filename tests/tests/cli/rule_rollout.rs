//! A rule is deployed to many daemons, and the report says where it does not run.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::rollout::Nodes;

const APPLY: &str = "fleet apply -f rule.json --servers servers";
const STATUS: &str = "fleet status -f rule.json --servers servers -o json";

/// The object of a rule that fires over more than so many packets.
fn rule(packets: u64) -> Value {
    let when = format!("sum(ingress.seen, 'packets') > {packets}.0");
    let until = "sum(ingress.seen, 'packets') > 1000000000.0";
    json!({
        "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringRule", "metadata": { "name": "many" },
        "spec": { "nodeSelector": { "role": "edge" },
            "rule": { "watch": "count", "when": when, "until": until, "do": [{ "mark": "many" }] } },
    })
}

/// The revision of the rule on each node; 0 where there is none.
fn revisions(nodes: &Nodes) -> Vec<u64> {
    let rules = nodes.0.iter().map(|scene| scene.daemon.json("/v1/rules"));
    rules
        .map(|list| list["rules"][0]["revision"].as_u64().unwrap_or_default())
        .collect()
}

#[test]
fn a_rule_runs_where_its_probe_is_and_the_same_command_goes_on() -> Result<()> {
    let mut nodes = Nodes::new()?;
    nodes.object("first", &json!({}))?;
    nodes.0[0].succeed("fleet apply -f fleet.yaml --servers servers");
    let deleted = nodes.0[2].daemon.delete("/v1/probes/count");
    ensure!(deleted.status == 204, "{deleted:?}");
    nodes.0[0].write("rule.json", &rule(1_000_000).to_string())?;
    let partly = nodes.0[0].run(APPLY)?;
    ensure!(
        partly.code == 1 && partly.out.contains("running on 2 of 3 nodes"),
        "{}{}",
        partly.out,
        partly.err
    );
    ensure!(
        partly
            .err
            .contains("rule many does not run on 1 of 3 nodes, three: "),
        "{}",
        partly.err
    );
    ensure!(
        partly.err.contains("count"),
        "the missing probe: {}",
        partly.err
    );
    ensure!(revisions(&nodes) == [1, 1, 0], "{:?}", revisions(&nodes));

    nodes.0[0].succeed("fleet apply -f fleet.yaml --servers servers");
    let said = nodes.0[0].succeed(APPLY);
    ensure!(
        said.ends_with(": running on 3 of 3 nodes, firing on 0\n"),
        "{said}"
    );
    ensure!(
        revisions(&nodes) == [1, 1, 1],
        "those that had it keep it: {:?}",
        revisions(&nodes)
    );
    let status: Value = serde_json::from_str(&nodes.0[0].succeed(STATUS))?;
    let counts = json!({ "selected": 3, "updated": 3, "running": 3, "failed": 0, "excluded": 0, "silent": 0 });
    ensure!(status["status"]["counts"] == counts, "{status:#}");
    ensure!(
        status["status"]["conditions"][2]["status"] == "True",
        "{status:#}"
    );

    // Another document is another revision, which no node has before it is applied.
    nodes.0[0].write("rule.json", &rule(0).to_string())?;
    let before: Value = serde_json::from_str(&nodes.0[0].succeed(STATUS))?;
    ensure!(
        before["nodes"][1]["state"] == "not updated" && before["status"]["counts"]["silent"] == 3,
        "{before:#}"
    );
    nodes.0[0].succeed(APPLY);
    ensure!(revisions(&nodes) == [2, 2, 2], "{:?}", revisions(&nodes));
    nodes.0[1].generator.send(50)?;
    wait_for("the rule fires on one node", PATIENCE, || {
        let status: Value = serde_json::from_str(&nodes.0[0].succeed(STATUS))?;
        ensure!(
            status["status"]["firing"] == 1 && status["nodes"][1]["report"]["firing"] == true,
            "{status:#}"
        );
        Ok(())
    })?;
    let history = nodes.0[1].succeed("rules revisions many");
    ensure!(history.contains("fleet: revision rule.many-"), "{history}");

    let silent = nodes.0[0].run("fleet apply -f rule.json --servers more")?;
    ensure!(
        silent.code == 1 && silent.err.contains("gone: silent: "),
        "{}{}",
        silent.out,
        silent.err
    );
    ensure!(
        silent.out.contains("running on 3 of 4 nodes"),
        "{}",
        silent.out
    );
    Ok(())
}

#[test]
fn a_file_may_have_a_rule_and_its_probe() -> Result<()> {
    let nodes = Nodes::new()?;
    nodes.object("first", &json!({}))?;
    let probe: Value = serde_json::from_str(&std::fs::read_to_string(
        nodes.0[0].folder.path().join("fleet.yaml"),
    )?)?;
    let both = |rule: &Value| {
        nodes.0[0].write("both.yaml", &format!("# both\n---\n{rule}\n---\n{probe}\n"))
    };
    let apply = "fleet apply -f both.yaml --servers servers";
    // A mistake in one document is found before a daemon is asked about the other, and has its line
    // in the file.
    let mut wide = rule(5);
    wide["spec"]["scope"] = json!("fleet");
    both(&wide)?;
    let refused = nodes.0[0].run(apply)?;
    ensure!(
        refused.code == 1
            && refused
                .err
                .contains("line 3: spec.scope: each daemon judges"),
        "{}",
        refused.err
    );
    let mut wrong = rule(5);
    wrong["spec"]["rule"]["when"] = json!("sum(ingress.seen >");
    both(&wrong)?;
    let refused = nodes.0[0].run(apply)?;
    ensure!(
        refused.err.contains("line 3: spec.rule.when: "),
        "{}",
        refused.err
    );
    ensure!(revisions(&nodes) == [0, 0, 0], "{:?}", revisions(&nodes));

    // The probe comes first.
    both(&rule(5))?;
    let said = nodes.0[0].succeed(apply);
    ensure!(
        said.contains("complete, running on 3 of 3 nodes") && said.contains("firing on 0"),
        "{said}"
    );
    let status: Value = serde_json::from_str(
        &nodes.0[0].succeed("fleet status -f both.yaml --servers servers -o json"),
    )?;
    ensure!(
        status[0]["probe"] == "count" && status[1]["rule"] == "many",
        "{status:#}"
    );
    ensure!(status[1]["status"]["counts"]["running"] == 3, "{status:#}");
    Ok(())
}
