//! A probe for the pods of one team: objects in the API server, their cgroups, processes and
//! interfaces on real nodes.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use twinprobe_tests::DaemonOptions;
use twinprobe_tests::pods::{CgroupDriver, ETH0, Pod};
use twinprobe_tests::traffic::{Generator, GeneratorOptions};
use twinprobe_tests::wait::{PATIENCE, wait_for};
use twinprobe_tests::windows::Windows;

use crate::scene::{Fleet, FleetOptions, probe};

const OF_A_TEAM: &str = "of pods with app=web in namespaces with team=blue";

fn team(fleet: &Fleet, name: &str) -> Result<()> {
    let labels = json!({ "team": name });
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name, "labels": labels } });
    fleet
        .cluster
        .kubectl(&["create", "-f", "-"], &namespace.to_string())?;
    // No controller makes the object here.
    fleet
        .cluster
        .kubectl(&["-n", name, "create", "serviceaccount", "default"], "")
        .map(drop)
}

/// Creates a pod's object as a `ReplicaSet` would, and returns the pod, without any part on the
/// node.
fn create(fleet: &Fleet, node: &str, team: &str, name: &str) -> Result<Pod> {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9c5b8f4d", "controller": true,
        "uid": "00000000-0000-4000-8000-000000000001",
    });
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": team, "ownerReferences": [owner],
            "labels": { "app": "web", "pod-template-hash": "7d9c5b8f4d" } },
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "web", "image": "none" }] },
    });
    fleet
        .cluster
        .kubectl(&["create", "-f", "-"], &object.to_string())?;
    let uid = [
        "-n",
        team,
        "get",
        "pod",
        name,
        "-o",
        "jsonpath={.metadata.uid}",
    ];
    Pod::with_uid(
        CgroupDriver::Systemd,
        Some(fleet.cluster.kubectl(&uid, "")?.trim()),
    )
}

fn of_a_team(help: &str) -> Value {
    let mut object = probe(help, &json!({}));
    let labels =
        json!({ "podSelector": { "app": "web" }, "namespaceSelector": { "team": "blue" } });
    object["spec"]["attach"] = labels;
    object
}

/// Waits until the probe of a node is attached to exactly these pods' interfaces.
fn attached(fleet: &Fleet, at: usize, pods: &[&Pod]) -> Result<()> {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.interface.as_str()).collect();
    names.sort_unstable();
    let look = || {
        let status = fleet.nodes[at].daemon().json("/v1/probes/seen");
        let all = status["interfaces"].as_array().into_iter().flatten();
        let here = all
            .filter(|at| at["state"] == "attached")
            .filter_map(|at| at["interface"].as_str());
        let mut here: Vec<&str> = here.collect();
        here.sort_unstable();
        ensure!(here == names, "{status:#}");
        Ok(())
    };
    wait_for(&format!("node {at}: attached to {names:?}"), PATIENCE, look)
        .with_context(|| fleet.logs())
}

fn send(pod: &Pod, packets: u64) -> Result<()> {
    Generator::new(pod.namespace(), ETH0, GeneratorOptions::default())?.send(packets)
}

#[test]
fn a_probe_for_the_pods_of_one_team_follows_them() -> Result<()> {
    let fleet = Fleet::with(
        2,
        FleetOptions {
            pods: true,
            ..FleetOptions::default()
        },
    )?;
    let host = |at: usize| fleet.nodes[at].daemon().namespace();
    for name in ["blue", "red"] {
        team(&fleet, name)?;
    }
    let mut blue = create(&fleet, "n0", "blue", "web-1")?;
    blue.start(host(0))?;
    fleet
        .cluster
        .kubectl(&["apply", "-f", "-"], &of_a_team("first").to_string())?;
    let status = fleet.reaches("complete")?;
    let counts = json!({ "selected": 2, "updated": 2, "running": 1, "failed": 0, "excluded": 1, "silent": 0 });
    ensure!(status["counts"] == counts, "{OF_A_TEAM}: {status:#}");
    attached(&fleet, 0, &[&blue])?;
    attached(&fleet, 1, &[])?;
    let told = fleet.nodes[0].daemon().json("/v1/pods");
    let told = told["pods"]
        .as_array()
        .context("pods")?
        .iter()
        .find(|pod| pod["uid"] == *blue.uid);
    let told = told.context("the pod")?;
    ensure!(
        told["workload"] == json!({ "kind": "Deployment", "name": "web" }),
        "{told:#}"
    );
    ensure!(
        told["namespace_labels"]["team"] == "blue" && told["name"] == "web-1",
        "{told:#}"
    );

    // Pods come: one on each node, one of another team.
    let mut red = create(&fleet, "n0", "red", "web-2")?;
    let mut other_node = create(&fleet, "n1", "blue", "web-3")?;
    red.start(host(0))?;
    other_node.start(host(1))?;
    attached(&fleet, 1, &[&other_node])?;
    attached(&fleet, 0, &[&blue])?;
    for (pod, packets) in [(&blue, 1_000), (&red, 50), (&other_node, 300)] {
        send(pod, packets)?;
    }
    // The namespace gets the label of another team.
    let label = ["label", "namespace", "red", "team=blue", "--overwrite"];
    fleet.cluster.kubectl(&label, "")?;
    attached(&fleet, 0, &[&blue, &red])?;
    send(&red, 70)?;
    // Without a kubelet a grace period would never end.
    let delete = ["-n", "blue", "delete", "pod", "web-1"];
    fleet.cluster.kubectl(&delete, "")?;
    attached(&fleet, 0, &[&red])?;
    send(&blue, 9)?;
    for (at, packets) in [(0, 1_070), (1, 300)] {
        let windows = Windows::of(fleet.nodes[at].daemon(), "seen");
        windows.try_close()?;
        let list = windows.try_list("")?;
        let seen = list
            .seqs()
            .into_iter()
            .map(|seq| twinprobe_tests::sample::total(&windows.get(seq), "ingress", "seen"));
        ensure!(
            list.lost == 0 && seen.sum::<u64>() == packets,
            "node {at}: {list:?}"
        );
    }
    let revisions = fleet.found();
    ensure!(
        revisions == vec![("first".to_owned(), 1); 2],
        "a pod deploys nothing: {revisions:?}"
    );
    // The agents may read what they need, and nothing else.
    let agent = "--as=system:serviceaccount:twinprobe:twinprobe";
    for (verb, what, may) in [
        ("list", "pods", true),
        ("watch", "namespaces", true),
        ("list", "secrets", false),
        ("delete", "pods", false),
    ] {
        let answer = fleet
            .cluster
            .kubectl(&["auth", "can-i", verb, what, "-A", agent], "");
        ensure!(answer.is_ok() == may, "{verb} {what}: {answer:?}");
    }
    Ok(())
}

#[test]
fn without_the_right_to_list_pods_a_node_says_what_to_set() -> Result<()> {
    let fleet = Fleet::new(1)?;
    fleet
        .cluster
        .kubectl(&["apply", "-f", "-"], &of_a_team("first").to_string())?;
    let failed = || {
        let object = fleet.object()?;
        let failure = &object["status"]["failures"][0];
        ensure!(failure["stage"] == "pods", "{object:#}");
        ensure!(
            failure["reason"]
                .as_str()
                .is_some_and(|reason| reason.contains("set fleet.pods")),
            "{failure:#}"
        );
        Ok(())
    };
    wait_for("the node has failed", PATIENCE, failed).with_context(|| fleet.logs())?;
    let agent = "--as=system:serviceaccount:twinprobe:twinprobe";
    for what in ["pods", "namespaces", "services", "secrets"] {
        let answer = fleet
            .cluster
            .kubectl(&["auth", "can-i", "list", what, "-A", agent], "");
        ensure!(answer.is_err(), "{what}: {answer:?}");
    }
    Ok(())
}

/// The daemon has names for the addresses of Services as they come and go.
#[test]
fn addresses_of_services_have_the_names_of_services_beside_pods() -> Result<()> {
    let daemons = DaemonOptions::default().argument("--names=pods");
    let fleet = Fleet::with(
        1,
        FleetOptions {
            pods: true,
            services: true,
            daemons,
            ..FleetOptions::default()
        },
    )?;
    team(&fleet, "blue")?;
    let create = |name: &str, more: Value| -> Result<String> {
        let mut spec = json!({ "ports": [{ "port": 80 }], "selector": { "app": "web" } });
        spec.as_object_mut()
            .context("a spec")?
            .extend(more.as_object().cloned().unwrap_or_default());
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name, "namespace": "blue" }, "spec": spec,
        });
        fleet
            .cluster
            .kubectl(&["create", "-f", "-"], &object.to_string())?;
        let address = [
            "-n",
            "blue",
            "get",
            "service",
            name,
            "-o",
            "jsonpath={.spec.clusterIP}",
        ];
        Ok(fleet.cluster.kubectl(&address, "")?.trim().to_owned())
    };
    let daemon = fleet.nodes[0].daemon();
    let named = |address: &str, expected: Value| {
        wait_for(&format!("the name of {address}"), PATIENCE, || {
            let list = daemon.json(&format!("/v1/names?address={address}"));
            ensure!(list["addresses"][0]["names"] == expected, "{list}");
            Ok(())
        })
        .with_context(|| fleet.logs())
    };
    let service = |name: &str| json!([{ "name": format!("{name} (Service)"), "from": "pods" }]);
    let own = [
        "-n",
        "default",
        "get",
        "service",
        "kubernetes",
        "-o",
        "jsonpath={.spec.clusterIP}",
    ];
    let own = fleet.cluster.kubectl(&own, "")?;
    named(own.trim(), service("default/kubernetes"))?;
    let web = create("web", json!({}))?;
    named(&web, service("blue/web"))?;
    // A Service without an address is not among them.
    ensure!(create("headless", json!({ "clusterIP": "None" }))? == "None");
    let db = create("db", json!({}))?;
    named(&db, service("blue/db"))?;
    // The chart has such an object as well, for the webhook.
    let all = [
        "get",
        "services",
        "-A",
        "-o",
        "jsonpath={.items[*].spec.clusterIP}",
    ];
    let all = fleet.cluster.kubectl(&all, "")?;
    let addresses = all
        .split_whitespace()
        .filter(|address| *address != "None")
        .count();
    ensure!(addresses == 4, "{all}");
    ensure!(
        daemon.json("/v1/pods")["services"] == addresses,
        "{}",
        daemon.json("/v1/pods")
    );
    fleet
        .cluster
        .kubectl(&["-n", "blue", "delete", "service", "web"], "")?;
    named(&web, json!([]))?;
    let agent = "--as=system:serviceaccount:twinprobe:twinprobe";
    for (verb, may) in [
        ("list", true),
        ("watch", true),
        ("create", false),
        ("delete", false),
    ] {
        let answer = fleet
            .cluster
            .kubectl(&["auth", "can-i", verb, "services", "-A", agent], "");
        ensure!(answer.is_ok() == may, "{verb}: {answer:?}");
    }
    Ok(())
}
