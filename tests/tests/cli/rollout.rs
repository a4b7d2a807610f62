//! A rollout begins with a few daemons, and takes the probe back where it costs too much.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::http::Address;
use twinprobe_tests::wait;

use crate::scene::Scene;

/// A fleet whose first daemon is the canary.
pub struct Nodes(pub Vec<Scene>);

impl Nodes {
    pub fn new() -> Result<Self> {
        let nodes = Self(vec![Scene::new()?, Scene::new()?, Scene::new()?]);
        let lines = nodes
            .0
            .iter()
            .zip(["one", "two", "three"])
            .map(|(scene, name)| {
                let Address::Unix(path) = scene.daemon.address() else {
                    panic!("a daemon with a socket")
                };
                let labels = if name == "one" {
                    "role=edge canary=yes"
                } else {
                    "role=edge"
                };
                format!("{name} unix:{} {labels}\n", path.display())
            });
        let lines: String = lines.collect();
        nodes.0[0].write("servers", &lines)?;
        nodes.0[0].write(
            "more",
            &format!("{lines}gone unix:/nowhere/socket role=edge\n"),
        )?;
        Ok(nodes)
    }

    /// Writes the object; `rollout` replaces fields of its rollout.
    pub fn object(&self, help: &str, rollout: &Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "twinprobe.dev/v1alpha1", "kind": "MonitoringProbe", "metadata": { "name": "count" },
            "spec": {
                "config": {
                    "ingress": { "source_file": "count.bpf.c",
                        "metrics": [{ "name": "seen", "map": "seen", "snapshot": true, "init": true, "help": help }] },
                    "window": { "interval": "200ms", "retain": 1 } },
                "nodeSelector": { "role": "edge" },
                "attach": { "interfaces": ["mon0"] },
                "rollout": { "canary": { "canary": "yes" }, "steps": ["100%"], "timeout": "60s" } },
        });
        for (field, value) in rollout.as_object().into_iter().flatten() {
            object["spec"]["rollout"][field] = value.clone();
        }
        self.0[0].write("fleet.yaml", &object.to_string())
    }

    /// The revision and the help of the probe on each node; 0 where there is none.
    fn revisions(&self) -> Vec<(u64, String)> {
        let probes = self.0.iter().map(|scene| scene.daemon.json("/v1/probes"));
        let probes = probes.map(|list| {
            let probe = &list["probes"][0];
            let help = probe["config"]["ingress"]["metrics"][0]["help"]
                .as_str()
                .unwrap_or_default();
            (
                probe["revision"].as_u64().unwrap_or_default(),
                help.to_owned(),
            )
        });
        probes.collect()
    }
}

#[test]
fn a_rollout_ends_on_every_node_and_its_report_says_so() -> Result<()> {
    let nodes = Nodes::new()?;
    // Removed windows count as well: a node retains one, and a collector may be fast.
    nodes.object("first", &json!({ "windows": 3 }))?;
    let first = &nodes.0[0];
    let before: Value = serde_json::from_str(
        &first.succeed("fleet status -f fleet.yaml --servers servers -o json"),
    )?;
    assert_eq!(before["status"]["counts"]["updated"], 0, "{before}");
    let said = first.succeed("fleet apply -f fleet.yaml --servers servers");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..2],
        ["canary: good on 1 of 3 nodes", "100%: good on 3 of 3 nodes"],
        "{said}"
    );
    assert!(
        lines
            .last()
            .is_some_and(|last| last.ends_with("complete, running on 3 of 3 nodes")),
        "{said}"
    );
    let after: Value = serde_json::from_str(
        &first.succeed("fleet status -f fleet.yaml --servers servers -o json"),
    )?;
    let counts = json!({ "selected": 3, "updated": 3, "running": 3, "failed": 0, "excluded": 0, "silent": 0 });
    assert_eq!(after["status"]["counts"], counts, "{after}");
    assert_eq!(after["status"]["conditions"][2]["type"], "Available");
    assert_eq!(
        after["status"]["conditions"][2]["status"], "True",
        "{after}"
    );
    assert!(
        after["status"]["worst"]["nsPerPacket"]
            .as_f64()
            .is_some_and(|cost| cost > 0.0),
        "{after}"
    );
    // The same command again changes nothing.
    first.succeed("fleet apply -f fleet.yaml --servers servers");
    assert!(
        nodes.revisions().iter().all(|(revision, _)| *revision == 1),
        "{:?}",
        nodes.revisions()
    );
    Ok(())
}

#[test]
fn a_revision_over_its_budget_touches_the_canary_only_and_goes_back() -> Result<()> {
    let nodes = Nodes::new()?;
    nodes.object("first", &json!({}))?;
    nodes.0[0].succeed("fleet apply -f fleet.yaml --servers servers");
    nodes.object("second", &json!({ "budget": { "nsPerPacket": 0 } }))?;
    let failed = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    assert_eq!(failed.code, 1, "{}{}", failed.out, failed.err);
    assert!(
        failed
            .err
            .contains("rolled back: step canary failed at 1 nodes, one: budget: "),
        "{}",
        failed.err
    );
    assert!(
        failed.err.contains("every node has its earlier revision"),
        "{}",
        failed.err
    );
    // Three revisions on the canary: the first, the second, and the first again. The other nodes
    // got none of them.
    let now = nodes.revisions();
    let expected = [3, 1, 1].map(|revision| (revision, "first".to_owned()));
    assert_eq!(now, expected);
    let history = nodes.0[0].succeed("history count -o json");
    assert!(history.contains("taken back"), "{history}");

    // A pause leaves the canary as it is, for people to look at.
    nodes.object(
        "third",
        &json!({ "budget": { "nsPerPacket": 0 }, "onFailure": "Pause" }),
    )?;
    let stopped = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    assert!(
        stopped.code == 1 && stopped.err.contains("nodes keep their configurations"),
        "{}",
        stopped.err
    );
    assert_eq!(nodes.revisions()[0], (4, "third".to_owned()));
    Ok(())
}

#[test]
fn a_program_that_the_verifier_refuses_changes_nothing_and_its_line_is_told() -> Result<()> {
    let nodes = Nodes::new()?;
    let source = std::fs::read_to_string(nodes.0[0].folder.path().join("count.bpf.c"))?;
    nodes.0[0].write(
        "count.bpf.c",
        &source.replace("if (!counters) return XDP_PASS;", ""),
    )?;
    nodes.object("first", &json!({}))?;
    let refused = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
    assert!(
        refused.err.contains("one: load: ") && refused.err.contains("map_value_or_null"),
        "{}",
        refused.err
    );
    assert!(nodes.revisions().iter().all(|(revision, _)| *revision == 0));
    Ok(())
}

#[test]
fn an_interrupted_rollout_goes_on_where_it_was() -> Result<()> {
    let nodes = Nodes::new()?;
    // The canary never closes enough windows before the command is ended.
    nodes.object("first", &json!({ "windows": 1000, "timeout": "1h" }))?;
    let scene = &nodes.0[0];
    let mut command = scene.daemon.client_command(&[
        "fleet",
        "apply",
        "-f",
        "fleet.yaml",
        "--servers",
        "servers",
    ])?;
    let mut running = command.current_dir(scene.folder.path()).spawn()?;
    let is_there = || {
        let revisions = nodes.revisions();
        ensure!(revisions[0].0 == 1, "{revisions:?}");
        Ok(())
    };
    let there = wait::wait_for(
        "the canary has the probe",
        Duration::from_secs(60),
        is_there,
    );
    running.kill()?;
    running.wait()?;
    there?;
    assert_eq!(
        nodes.revisions()[1..],
        [(0, String::new()), (0, String::new())]
    );
    nodes.object("first", &json!({}))?;
    nodes.0[0].succeed("fleet apply -f fleet.yaml --servers servers");
    assert_eq!(
        nodes.revisions(),
        [1, 1, 1].map(|revision| (revision, "first".to_owned()))
    );
    Ok(())
}

#[test]
fn a_probe_that_somebody_else_replaces_meanwhile_is_left_to_them() -> Result<()> {
    let nodes = Nodes::new()?;
    nodes.object("first", &json!({ "windows": 1000, "timeout": "1h" }))?;
    let scene = &nodes.0[0];
    let rolling = ["fleet", "apply", "-f", "fleet.yaml", "--servers", "servers"];
    let mut command = scene.daemon.client_command(&rolling)?;
    let command = command
        .current_dir(scene.folder.path())
        .stderr(Stdio::piped())
        .stdout(Stdio::null());
    let running = command.spawn()?;
    let replaced = wait::wait_for("the canary has the probe", Duration::from_secs(60), || {
        ensure!(nodes.revisions()[0].0 == 1);
        Ok(())
    });
    // The command must see its revision before it ends; each look reads the status.
    let seen = wait::wait_for(
        "the window that the command has seen",
        Duration::from_secs(60),
        || {
            let retained = scene.daemon.json("/v1/probes/count")["windows"]["newest"].as_u64();
            ensure!(retained.is_some_and(|newest| newest > 5));
            Ok(())
        },
    );
    scene.succeed("apply -f count.yaml");
    let ended = running.wait_with_output()?;
    replaced?;
    seen?;
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(
        said.contains("one: replaced: somebody else has replaced or deleted it"),
        "{said}"
    );
    assert_eq!(nodes.revisions()[0], (2, "What came".to_owned()));
    Ok(())
}

#[test]
fn a_node_that_does_not_answer_fails_the_step_and_is_named() -> Result<()> {
    let nodes = Nodes::new()?;
    nodes.object("first", &json!({ "timeout": "3s" }))?;
    let silent = nodes.0[0].run("fleet apply -f fleet.yaml --servers more")?;
    assert_eq!(silent.code, 1, "{}{}", silent.out, silent.err);
    assert!(
        silent.err.contains("gone: silent: no answer within 3s: "),
        "{}",
        silent.err
    );
    assert!(
        silent.err.contains("not taken back: gone"),
        "{}",
        silent.err
    );
    // These nodes did not have the probe before, so it is removed again.
    assert!(nodes.revisions().iter().all(|(revision, _)| *revision == 0));
    Ok(())
}

#[test]
fn mistakes_in_the_object_are_named_before_any_node_is_asked() -> Result<()> {
    let nodes = Nodes::new()?;
    nodes.object("first", &json!({ "steps": ["50%", "20%"], "canary": 0 }))?;
    let refused = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    for line in [
        "line 1: spec.rollout.canary: 0 nodes",
        "spec.rollout.steps[1]: 20% is not more",
        "end with 100%",
    ] {
        assert!(refused.err.contains(line), "{line}: {}", refused.err);
    }
    nodes.object("first", &json!({ "stpes": [] }))?;
    let unknown = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    assert!(unknown.err.contains("stpes"), "{}", unknown.err);
    nodes.0[0].write(
        "fleet.yaml",
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {library: dns}\n",
    )?;
    let other = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    assert!(other.err.contains("it is a Pod of v1"), "{}", other.err);
    let pods = "apiVersion: twinprobe.dev/v1alpha1\nkind: MonitoringProbe\nmetadata: {name: a}\n\
                spec: {library: dns, attach: {podSelector: {app: web}}}\n";
    nodes.0[0].write("fleet.yaml", pods)?;
    let pods = nodes.0[0].run("fleet apply -f fleet.yaml --servers servers")?;
    assert!(
        pods.err.contains("only Kubernetes can select pods"),
        "{}",
        pods.err
    );
    Ok(())
}
