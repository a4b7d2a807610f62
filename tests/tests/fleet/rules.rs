//! Rules as objects: nodes get them, judge their own windows by them, and report.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Fleet, refused};

/// Deploys a second probe while more than 10 packets come in a window.
fn rule(spec: &Value) -> Value {
    let mut rule = json!({
        "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringRule", "metadata": { "name": "flood" },
        "spec": {
            "nodeSelector": { "role": "edge" },
            "rule": {
                "watch": "seen", "when": "sum(ingress.seen) > 10", "until": "sum(ingress.seen) == 0",
                "do": [{ "apply": { "name": "closer", "probe": "packet-counter", "expires": "10m",
                    "defines": { "TWINPROBE_SINGLE_BUFFER": "1" } } }],
                "cooldown": "1s" } },
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        rule["spec"]["rule"][field] = value.clone();
    }
    rule
}

pub fn apply(fleet: &Fleet, rule: &Value) -> Result<String> {
    fleet
        .cluster
        .kubectl(&["apply", "-f", "-"], &rule.to_string())
}

/// Waits until the object's status is about the object as it is, and `is` holds of it.
pub fn status(fleet: &Fleet, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
    let seen = || {
        let object = fleet
            .cluster
            .kubectl(&["get", "mr", "flood", "-o", "json"], "")?;
        let object: Value = serde_json::from_str(&object)?;
        let status = &object["status"];
        let is_current = status["observedGeneration"] == object["metadata"]["generation"];
        ensure!(is_current && is(status), "{object:#}");
        Ok(status.clone())
    };
    wait_for(what, PATIENCE, seen).with_context(|| fleet.logs())
}

/// The rules that nodes have, and the probes beside the watched one.
fn on_nodes(fleet: &Fleet) -> Vec<(u64, bool)> {
    let nodes = fleet.nodes.iter().map(|node| {
        let revision = node.daemon().json("/v1/rules")["rules"][0]["revision"]
            .as_u64()
            .unwrap_or_default();
        let probes = node.daemon().json("/v1/probes");
        let names = probes["probes"].as_array().into_iter().flatten();
        (
            revision,
            names.filter(|probe| probe["name"] == "closer").count() == 1,
        )
    });
    nodes.collect()
}

#[test]
fn a_rule_comes_to_nodes_fires_where_it_holds_and_leaves_nothing() -> Result<()> {
    let mut fleet = Fleet::new(2)?;
    // The rule comes first: nodes refuse it until the probe exists.
    apply(&fleet, &rule(&json!({})))?;
    let early = status(&fleet, "nodes without the probe refuse the rule", |it| {
        it["counts"]["failed"] == 2
    })?;
    ensure!(
        early["failures"][0]["reason"]
            .as_str()
            .is_some_and(|it| it.contains("there is no probe named seen"))
    );
    fleet.apply("first", &json!({}))?;
    let all = status(&fleet, "the rule runs", |it| {
        it["counts"]["running"] == 2 && it["counts"]["failed"] == 0
    })?;
    ensure!(
        all["conditions"][2]["type"] == "Available" && all["conditions"][2]["status"] == "True",
        "{all:#}"
    );
    ensure!(
        on_nodes(&fleet) == [(1, false), (1, false)],
        "{:?}",
        on_nodes(&fleet)
    );

    // The rule fires on one node only, and ends there when packets stop.
    fleet.nodes[1].send(1000)?;
    wait_for("the rule's probe", PATIENCE, || {
        let firings = fleet.nodes[1].daemon().json("/v1/rules/flood")["firings"].clone();
        ensure!(
            firings.as_array().map_or(0, Vec::len) == 1 && firings[0]["error"].is_null(),
            "{firings:#}"
        );
        Ok(())
    })?;
    wait_for("the end of what it began", PATIENCE, || {
        let firing = fleet.nodes[1].daemon().json("/v1/rules/flood")["firings"][0].clone();
        ensure!(
            firing["ended"].is_string() && firing["done"].is_string(),
            "{firing:#}"
        );
        Ok(())
    })?;
    let quiet = fleet.nodes[0].daemon().json("/v1/rules/flood");
    ensure!(
        quiet["firings"] == json!([]) && quiet["state"] == "watching",
        "{quiet:#}"
    );

    // The object's status counts the nodes whose firing continues.
    apply(&fleet, &rule(&json!({ "until": "sum(ingress.seen) < 0" })))?;
    status(&fleet, "the second revision", |it| {
        it["counts"]["running"] == 2 && it["firing"] == 0
    })?;
    fleet.nodes[1].send(1000)?;
    status(&fleet, "one node fires", |it| it["firing"] == 1)?;
    ensure!(
        on_nodes(&fleet) == [(2, false), (2, true)],
        "{:?}",
        on_nodes(&fleet)
    );
    // Neither a killed daemon nor a restarted agent changes anything.
    fleet.nodes[1].restart_daemon()?;
    fleet.nodes[1].agent = None;
    fleet.start_agent(1)?;
    status(&fleet, "the node fires as before", |it| {
        it["firing"] == 1 && it["counts"]["running"] == 2
    })?;
    ensure!(
        on_nodes(&fleet) == [(2, false), (2, true)],
        "{:?}",
        on_nodes(&fleet)
    );

    fleet
        .cluster
        .kubectl(&["delete", "mr", "flood", "--timeout", "60s"], "")
        .with_context(|| fleet.logs())?;
    ensure!(
        on_nodes(&fleet) == [(0, false), (0, false)],
        "{:?}",
        on_nodes(&fleet)
    );
    let left = |kind: &str| fleet.cluster.kubectl(&["get", kind, "-o", "name"], "");
    for kind in ["pr", "probeassignments", "proberevisions"] {
        ensure!(!left(kind)?.contains("rule."), "{}", left(kind)?);
    }
    ensure!(
        fleet.found().iter().all(|(help, _)| help == "first"),
        "the watched probe stays"
    );
    Ok(())
}

/// If a rule changes a probe of the fleet, the probe neither fails nor belongs to somebody else.
#[test]
fn a_probe_that_a_rule_changes_stays_the_fleets() -> Result<()> {
    let mut fleet = Fleet::new(1)?;
    // Only a source can get other definitions.
    fleet.apply("first", &json!({}))?;
    fleet.reaches("complete")?;
    let change = json!([{ "change": { "name": "seen", "defines": { "STEP": "100" } } }]);
    apply(
        &fleet,
        &rule(&json!({ "do": change, "until": "sum(ingress.seen) < 0" })),
    )?;
    let failed = status(&fleet, "the refusal", |it| it["counts"]["failed"] == 1)?;
    let reason = failed["failures"][0]["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.contains("seen has no such macro; it is an object"),
        "{reason}"
    );
    fleet.apply("first", &json!({ "compileOnNodes": true }))?;
    fleet.reaches("complete")?;
    status(&fleet, "the rule runs", |it| it["counts"]["running"] == 1)?;
    fleet.nodes[0].send(1000)?;
    status(&fleet, "the rule fires", |it| it["firing"] == 1)?;
    let step = |fleet: &Fleet| {
        fleet.nodes[0].daemon().json("/v1/probes/seen")["config"]["ingress"]["defines"]["STEP"]
            .clone()
    };
    ensure!(step(&fleet) == "100", "{}", step(&fleet));
    // An agent that starts anew looks at everything again.
    let looks = |fleet: &Fleet| {
        fleet.nodes[0]
            .daemon()
            .log()
            .matches("method=GET path=\"/v1/probes/seen\"")
            .count()
    };
    fleet.nodes[0].agent = None;
    let before = looks(&fleet);
    fleet.start_agent(0)?;
    wait_for("two looks of the agent", PATIENCE, || {
        ensure!(
            looks(&fleet) > before + 1,
            "{} after {before}",
            looks(&fleet)
        );
        Ok(())
    })?;
    let object = fleet.object()?;
    ensure!(
        object["status"]["counts"]["running"] == 1 && object["status"]["counts"]["failed"] == 0,
        "{object:#}"
    );
    ensure!(step(&fleet) == "100", "{}", step(&fleet));
    // Neither a new revision nor the end of the probe waits for the rule.
    fleet.apply("second", &json!({ "compileOnNodes": true }))?;
    fleet.reaches("complete")?;
    ensure!(
        step(&fleet).is_null() && fleet.found() == [("second".to_owned(), 4)],
        "{:?}",
        fleet.found()
    );
    fleet
        .cluster
        .kubectl(&["delete", "mp", "seen", "--timeout", "60s"], "")
        .with_context(|| fleet.logs())?;
    fleet.nodes[0].daemon().get("/v1/probes/seen").expect(404);
    Ok(())
}

#[test]
fn a_rule_that_somebody_has_put_by_hand_stays() -> Result<()> {
    let fleet = Fleet::new(1)?;
    fleet.apply("first", &json!({}))?;
    fleet.reaches("complete")?;
    let by_hand =
        json!({ "watch": "seen", "when": "sum(ingress.seen) > 5", "do": [{ "mark": "by hand" }] });
    let answer = fleet.nodes[0].daemon().put("/v1/rules/flood", &by_hand);
    ensure!(answer.status == 201, "{}", answer.status);
    apply(&fleet, &rule(&json!({})))?;
    let failed = status(&fleet, "the conflict", |it| it["counts"]["failed"] == 1)?;
    ensure!(failed["failures"][0]["stage"] == "conflict", "{failed:#}");
    fleet
        .cluster
        .kubectl(&["delete", "mr", "flood", "--timeout", "60s"], "")?;
    ensure!(fleet.nodes[0].daemon().json("/v1/rules/flood")["rule"]["do"] == by_hand["do"]);
    Ok(())
}

#[test]
fn mistakes_are_refused_where_they_are_made() -> Result<()> {
    let fleet = Fleet::new(0)?;
    wait_for("the webhook", PATIENCE, || {
        apply(&fleet, &rule(&json!({}))).map(drop)
    })?;
    refused(
        apply(&fleet, &rule(&json!({ "when": "sum(ingress.seen) >" }))),
        "spec.rule.when: ",
    )?;
    refused(
        apply(&fleet, &rule(&json!({ "cooldown": "soon" }))),
        "spec.rule.cooldown: \"soon\"",
    )?;
    let itself =
        json!({ "do": [{ "apply": { "name": "seen", "probe": "dns", "expires": "1m" } }] });
    refused(
        apply(&fleet, &rule(&itself)),
        "spec.rule.do[0].apply.name: the rule watches",
    )?;
    let mut wide = rule(&json!({}));
    wide["spec"]["scope"] = json!("fleet");
    refused(apply(&fleet, &wide), "spec.scope: ")?;
    let mut named = crate::scene::probe("first", &json!({}));
    named["metadata"]["name"] = json!("rule.flood");
    refused(apply(&fleet, &named), "names that begin with rule.")?;

    // An author of rules may decide about packets only with the right of an author of probes.
    let cluster = &fleet.cluster;
    cluster.kubectl(&["-n", "twinprobe", "create", "serviceaccount", "team"], "")?;
    let bind = |role: &str| {
        let subject = ["--serviceaccount", "twinprobe:team", "--clusterrole", role];
        cluster.kubectl(
            &[&["create", "clusterrolebinding", role][..], &subject].concat(),
            "",
        )
    };
    bind("twinprobe-fleet-probes")?;
    let token = cluster.kubectl(&["-n", "twinprobe", "create", "token", "team"], "")?;
    let apply = |object: &Value| {
        cluster.kubectl_as(token.trim(), &["apply", "-f", "-"], &object.to_string())
    };
    let deploys = |verdict: &str| {
        let config = json!({ "interface": "eth0", "ingress": { "source": "int x;", "verdict": verdict, "metrics": [] } });
        rule(
            &json!({ "do": [{ "mark": "x" }, { "apply": { "name": "closer", "config": config, "expires": "1m" } }] }),
        )
    };
    apply(&deploys("observe"))?;
    for verdict in ["enforce", "{{'enforce'}}"] {
        refused(
            apply(&deploys(verdict)),
            "that needs the verb enforce on monitoringprobes",
        )?;
    }
    bind("twinprobe-fleet-enforce")?;
    apply(&deploys("enforce")).map(drop)
}
