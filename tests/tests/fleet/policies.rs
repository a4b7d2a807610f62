//! The refusals of the chart's policies: reports of other nodes, probes that decide about packets,
//! and impossible canaries.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use twinprobe_tests::wait::{PATIENCE, wait_for};

use crate::scene::{Fleet, probe, refused};

fn report(name: &str, node: &str) -> String {
    let spec = json!({ "probe": "seen", "node": node, "revision": "seen-a", "state": "Running" });
    let metadata = json!({ "name": name });
    json!({ "apiVersion": "twinprobe.dev/v1alpha1", "kind": "ProbeReport", "metadata": metadata, "spec": spec })
        .to_string()
}

#[test]
fn an_agent_writes_its_own_reports_and_reads_little() -> Result<()> {
    let fleet = Fleet::new(0)?;
    for node in ["a", "b"] {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": node } });
        fleet
            .cluster
            .kubectl(&["create", "-f", "-"], &node.to_string())?;
    }
    let (a, b) = (fleet.token("a")?, fleet.token("b")?);
    let write = |token: &str, object: String| {
        fleet
            .cluster
            .kubectl_as(token, &["create", "-f", "-"], &object)
    };
    write(&a, report("seen.a", "a"))?;
    refused(
        write(&a, report("seen.b", "b")),
        "a node writes its own reports only",
    )?;
    refused(
        write(&a, report("seen.b", "a")),
        "a node writes its own reports only",
    )?;
    write(&b, report("seen.b", "b"))?;
    let delete =
        |token: &str, name: &str| fleet.cluster.kubectl_as(token, &["delete", "pr", name], "");
    refused(delete(&a, "seen.b"), "a node writes its own reports only")?;
    delete(&b, "seen.b")?;
    // A token that is not bound to a pod names no node.
    let unbound = fleet
        .cluster
        .kubectl(&["-n", "twinprobe", "create", "token", "twinprobe"], "")?;
    refused(
        write(unbound.trim(), report("seen.a", "a")),
        "a node writes its own reports only",
    )?;
    for query in [
        ["get", "secrets"],
        ["get", "pr"],
        ["get", "mp"],
        ["get", "pods"],
    ] {
        refused(fleet.cluster.kubectl_as(&a, &query, ""), "forbidden")?;
    }
    Ok(())
}

#[test]
fn who_may_write_probes_may_not_decide_about_packets() -> Result<()> {
    let fleet = Fleet::new(0)?;
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
    let mut enforcing = probe("first", &json!({}));
    apply(&enforcing)?;
    enforcing["spec"]["config"]["ingress"]["verdict"] = json!("enforce");
    refused(
        apply(&enforcing),
        "that needs the verb enforce on monitoringprobes",
    )?;
    bind("twinprobe-fleet-enforce")?;
    apply(&enforcing)?;
    Ok(())
}

#[test]
fn canaries_are_a_number_or_labels() -> Result<()> {
    let fleet = Fleet::new(0)?;
    for canary in [
        json!(0),
        json!(11),
        json!({}),
        json!("first"),
        json!({ "a": 1 }),
        json!([1]),
    ] {
        let mut object = probe("first", &json!({}));
        object["spec"]["rollout"]["canary"] = canary;
        let taken = fleet.cluster.kubectl(
            &["create", "--dry-run=server", "-f", "-"],
            &object.to_string(),
        );
        refused(
            taken,
            "spec.rollout.canary: a number of nodes from 1 to 10, or the labels",
        )?;
    }
    for canary in [json!(1), json!(10), json!({ "a": "b" })] {
        let mut object = probe("first", &json!({}));
        object["spec"]["rollout"]["canary"] = canary;
        fleet.cluster.kubectl(
            &["create", "--dry-run=server", "-f", "-"],
            &object.to_string(),
        )?;
    }
    Ok(())
}

#[test]
fn what_no_schema_knows_is_refused_by_the_operator() -> Result<()> {
    let fleet = Fleet::new(0)?;
    let create = |spec: &Value| {
        let object = json!({
            "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringProbe", "metadata": { "name": "seen" }, "spec": spec,
        });
        fleet.cluster.kubectl(
            &["create", "--dry-run=server", "-f", "-"],
            &object.to_string(),
        )
    };
    // Objects are taken as long as no operator answers.
    wait_for("the operator answers", PATIENCE, || {
        refused(create(&json!({ "library": "no-such" })), "spec.library: ")
    })
    .with_context(|| fleet.logs())?;
    let config = json!({ "interface": "eth0", "ingress": { "source": "int x;", "metrics": [{ "name": "a b", "map": "m" }] } });
    refused(
        create(&json!({ "config": config })),
        "spec.config.ingress.metrics[0].name: ",
    )?;
    refused(
        create(&json!({ "library": "dns", "attach": { "podSelector": { "a b": "c" } } })),
        "spec.attach.podSelector: ",
    )?;
    create(&json!({ "library": "top-talkers", "attach": { "interfaces": ["eth*"] } }))?;
    Ok(())
}
