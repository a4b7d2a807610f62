//! The API server accepts the CRDs that the operator prints, and refuses objects that break a rule,
//! with the field's name.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use twinprobe_tests::cluster::Cluster;
use twinprobe_tests::helper;

fn cluster() -> Result<Cluster> {
    let cluster = Cluster::start(&Path::new(env!("CARGO_TARGET_TMPDIR")).join("kubernetes/bin"))?;
    let printed = Command::new(helper("twinprobe-operator")?)
        .arg("crds")
        .output()?;
    ensure!(printed.status.success(), "{printed:?}");
    cluster.kubectl(&["apply", "-f", "-"], &String::from_utf8(printed.stdout)?)?;
    cluster.kubectl(
        &[
            "wait",
            "--for",
            "condition=established",
            "crd",
            "--all",
            "--timeout",
            "60s",
        ],
        "",
    )?;
    Ok(cluster)
}

fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "apiVersion: twinprobe.dev/v1alpha1\nkind: {kind}\nmetadata: {{ name: {name} }}\nspec: {spec}\n"
    )
}

/// Specs of a `MonitoringProbe`, and the server's answer to each.
const REFUSED: [(&str, &str); 13] = [
    ("{}", "spec: Invalid value: give one of config and library"),
    (
        "{library: x, config: {}}",
        "spec: Invalid value: give one of config and library",
    ),
    (
        "{config: {}, defines: {A: b}}",
        "spec: Invalid value: defines, variables and interval go with library",
    ),
    (
        "{library: x, rollout: {steps: ['50%', '10%', '100%']}}",
        "spec.rollout.steps: Invalid value: each step is more",
    ),
    (
        "{library: x, rollout: {steps: ['10%', '10%', '100%']}}",
        "spec.rollout.steps: Invalid value: each step is more",
    ),
    (
        "{library: x, rollout: {steps: ['10%', '10.0%', '100%']}}",
        "spec.rollout.steps: Invalid value: each step is more",
    ),
    (
        "{library: x, rollout: {steps: ['10', '100%']}}",
        "spec.rollout.steps: Invalid value: a step is a share of nodes",
    ),
    (
        "{library: x, rollout: {steps: ['10%', '50%']}}",
        "spec.rollout.steps: Invalid value: the last step is 100%",
    ),
    (
        "{library: x, lease: soon}",
        "spec.lease: Invalid value: \"soon\": a lease is a time such as 10m",
    ),
    (
        "{library: x, attach: {podSelector: {a: b}, interfaces: [e]}}",
        "spec.attach: Invalid value: podSelector and",
    ),
    (
        "{library: x, attach: {namespaceSelector: {a: b}}}",
        "spec.attach: Invalid value: namespaceSelector goes with",
    ),
    (
        "{library: x, rollout: {windows: 0}}",
        "spec.rollout.windows: Invalid value: 0",
    ),
    ("{library: x, rolout: {}}", "unknown field \"spec.rolout\""),
];

#[test]
fn probes_get_defaults_and_keep_what_their_configuration_says() -> Result<()> {
    let cluster = cluster()?;
    let probe = object(
        "MonitoringProbe",
        "flows",
        "{config: {interface: eth0, ingress: {deep: {a: [1]}}}}",
    );
    cluster.kubectl(&["apply", "-f", "-"], &probe)?;
    let probe: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "mp", "flows", "-o", "json"], "")?)?;
    ensure!(
        probe["spec"]["config"]["ingress"]["deep"]["a"][0] == 1,
        "{probe}"
    );
    let rollout = &probe["spec"]["rollout"];
    ensure!(
        rollout["steps"] == serde_json::json!(["1%", "10%", "50%", "100%"]),
        "{rollout}"
    );
    ensure!(
        rollout["onFailure"] == "Rollback" && rollout["windows"] == 2 && rollout["timeout"] == "5m",
        "{rollout}"
    );
    let table = cluster.kubectl(&["get", "mp"], "")?;
    let columns: Vec<&str> = table
        .lines()
        .next()
        .context("a table")?
        .split_whitespace()
        .collect();
    let expected = [
        "NAME", "REVISION", "STEP", "ROLLOUT", "SELECTED", "UPDATED", "RUNNING", "FAILED", "WORST",
        "NS", "AGE",
    ];
    ensure!(columns == expected, "{table}");
    Ok(())
}

#[test]
fn probes_that_obey_no_rule_are_refused_with_their_field() -> Result<()> {
    let cluster = cluster()?;
    for (spec, reason) in REFUSED {
        let answer = cluster.kubectl(
            &["create", "-f", "-"],
            &object("MonitoringProbe", "flows", spec),
        );
        let refusal = answer
            .err()
            .with_context(|| format!("the server took {spec}"))?
            .to_string();
        ensure!(refusal.contains(reason), "{spec}: {refusal}");
    }
    // The rules accept valid objects.
    let good =
        "{library: x, lease: 1h30m, rollout: {canary: 1, steps: ['0.5%', '9%', '10%', '100%']}}";
    cluster.kubectl(
        &["create", "-f", "-"],
        &object("MonitoringProbe", "flows", good),
    )?;
    Ok(())
}

#[test]
fn a_revision_never_changes_and_reports_are_found_by_node() -> Result<()> {
    let cluster = cluster()?;
    let revision = |interface: &str| {
        let spec = format!("{{probe: p, digest: a, config: {{interface: {interface}}}}}");
        cluster.kubectl(
            &["apply", "-f", "-"],
            &object("ProbeRevision", "p-a", &spec),
        )
    };
    revision("eth0")?;
    let refusal = revision("eth1")
        .err()
        .context("the server took a change")?
        .to_string();
    ensure!(refusal.contains("a revision never changes"), "{refusal}");
    for (kind, name, spec) in [
        (
            "ProbeAssignment",
            "p",
            "{probe: p, revision: p-a, share: 100, windows: 2, canaryLabels: {a: b}}",
        ),
        (
            "ProbeReport",
            "p.n1",
            "{probe: p, node: n1, revision: p-a, state: Running, nsPerPacket: 31.5}",
        ),
        (
            "ProbeReport",
            "p.n2",
            "{probe: p, node: n2, revision: p-a, state: Refused, stage: load, reason: too large}",
        ),
        (
            "MonitoringRule",
            "r",
            "{rule: {watch: p, when: 'true', do: [{mark: x}]}}",
        ),
    ] {
        cluster
            .kubectl(&["create", "-f", "-"], &object(kind, name, spec))
            .with_context(|| kind.to_owned())?;
    }
    let found = cluster.kubectl(
        &[
            "get",
            "pr",
            "--field-selector",
            "spec.node=n2",
            "-o",
            "name",
        ],
        "",
    )?;
    ensure!(found.trim() == "probereport.twinprobe.dev/p.n2", "{found}");
    Ok(())
}
