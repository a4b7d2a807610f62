//! The operator compiles once; nodes have no compiler.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::DaemonOptions;
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Fleet, FleetOptions, probe};

const NO_CLANG: &str = "/nonexistent/clang";

fn without_compilers(count: usize) -> Result<Fleet> {
    let daemons = DaemonOptions::default().environment("TWINPROBE_CLANG", NO_CLANG);
    Fleet::with(
        count,
        FleetOptions {
            daemons,
            ..FleetOptions::default()
        },
    )
}

/// Returns the condition of a kind.
fn condition(status: &Value, kind: &str) -> Value {
    let all = status["conditions"].as_array();
    all.and_then(|all| all.iter().find(|one| one["type"] == kind))
        .cloned()
        .unwrap_or_default()
}

fn revision(fleet: &Fleet, name: &Value) -> Result<Value> {
    let name = name.as_str().context("a revision")?;
    Ok(serde_json::from_str(&fleet.cluster.kubectl(
        &["get", "proberevision", name, "-o", "json"],
        "",
    )?)?)
}

#[test]
fn nodes_need_no_compiler_and_another_one_begins_no_rollout() -> Result<()> {
    let mut fleet = without_compilers(2)?;
    fleet.apply("first", &json!({}))?;
    let status = fleet.reaches("complete")?;
    let compiled = condition(&status, "Compiled");
    ensure!(
        compiled["status"] == "True" && compiled["reason"] == "Once",
        "{status:#}"
    );
    ensure!(
        compiled["message"]
            .as_str()
            .is_some_and(|it| it.contains("clang version")),
        "{compiled}"
    );
    let object = revision(&fleet, &status["revision"])?;
    ensure!(
        object["spec"]["compiled"]["objects"][0]["ingress"].is_string(),
        "{object:#}"
    );
    for node in &fleet.nodes {
        let config = &node.daemon().json("/v1/probes/seen")["config"]["ingress"];
        ensure!(
            config["object"].is_string() && config["source"].is_null(),
            "{config}"
        );
    }
    // The object that a node has put is its own, also after a restart of everything; packets count
    // once.
    fleet
        .nodes
        .iter_mut()
        .try_for_each(|node| node.send(1000))?;
    fleet.nodes[0].restart_daemon()?;
    fleet.nodes[0].agent = None;
    fleet.start_agent(0)?;
    fleet
        .nodes
        .iter_mut()
        .try_for_each(|node| node.send(1000))?;
    // An operator with another compiler, or here without one, keeps the existing objects.
    fleet.operator = None;
    fleet.options.compiler = Some(NO_CLANG.to_owned());
    fleet.start_operator()?;
    wait_for("the operator has the Lease", PATIENCE, || {
        ensure!(
            fleet.said("operator").matches("has the Lease").count() == 2,
            "{}",
            fleet.logs()
        );
        Ok(())
    })?;
    fleet.apply("first", &json!({ "rollout": { "timeout": "90s" } }))?;
    let again = fleet.reaches("complete")?;
    ensure!(
        again["revision"] == status["revision"] && condition(&again, "Compiled") == compiled,
        "{again:#}"
    );
    ensure!(
        fleet.found() == vec![("first".to_owned(), 1); 2],
        "{:?}",
        fleet.found()
    );
    for node in &fleet.nodes {
        let (counted, sent) = node.counted()?;
        ensure!(
            counted == sent,
            "{}: {counted} packets of {sent}",
            node.name
        );
    }
    // Now neither the operator nor the nodes can compile a new source, and the object reports both.
    fleet.apply("second", &json!({}))?;
    let status = fleet.reaches("rolled back")?;
    let failure = status["failures"][0]["reason"].as_str().unwrap_or_default();
    ensure!(failure.contains(NO_CLANG), "{status:#}");
    Ok(())
}

#[test]
fn a_source_that_does_not_compile_reaches_no_node() -> Result<()> {
    let fleet = without_compilers(1)?;
    fleet.apply("first", &json!({}))?;
    fleet.reaches("complete")?;
    let mut broken = probe("second", &json!({}));
    let source = broken["spec"]["config"]["ingress"]["source"]
        .as_str()
        .context("source")?;
    broken["spec"]["config"]["ingress"]["source"] = source.replace("STEP)", "STEPS)").into();
    fleet
        .cluster
        .kubectl(&["apply", "-f", "-"], &broken.to_string())?;
    wait_for("the operator refuses it", PATIENCE, || {
        let object = fleet.object()?;
        let accepted = condition(&object["status"], "Accepted");
        let message = accepted["message"].as_str().unwrap_or_default();
        ensure!(accepted["status"] == "False", "{object:#}");
        ensure!(
            message.contains("spec.config.ingress.source:") && message.contains("STEPS"),
            "{message}"
        );
        Ok(())
    })
    .with_context(|| fleet.logs())?;
    ensure!(
        fleet.found() == vec![("first".to_owned(), 1)],
        "{:?}",
        fleet.found()
    );
    // Each node uses the types of its own kernel, unless the configuration has some.
    let source = format!("// vmlinux.h\n{source}", source = source_of("third"));
    let mut typed = probe("third", &json!({}));
    typed["spec"]["config"]["ingress"]["source"] = source.into();
    fleet
        .cluster
        .kubectl(&["apply", "-f", "-"], &typed.to_string())?;
    let status = fleet.reaches("rolled back")?;
    ensure!(
        status["failures"][0]["reason"]
            .as_str()
            .is_some_and(|it| it.contains("clang")),
        "{status:#}"
    );
    Ok(())
}

fn source_of(help: &str) -> String {
    probe(help, &json!({}))["spec"]["config"]["ingress"]["source"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}
