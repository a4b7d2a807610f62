use serde_json::{Value, json};

use super::*;

fn told(pod: Value) -> PodEntry {
    entry(serde_json::from_value(pod).unwrap()).unwrap().1
}

#[test]
fn a_pod_is_told_with_its_workload() {
    let owner = |kind: &str, name: &str| json!([{ "apiVersion": "v1", "kind": kind, "name": name, "uid": "o", "controller": true }]);
    let pod = |owners: Value| {
        json!({
            "uid": "u", "namespace": "shop", "name": "web-1", "ownerReferences": owners,
            "labels": { "app": "web", "pod-template-hash": "7d9c5b8f4d" }, "annotations": { HASH: "not its own" },
        })
    };
    let found = |owners: Value| told(pod(owners)).workload.map(|of| (of.kind, of.name));
    let named = |kind: &str, name: &str| Some((kind.to_owned(), name.to_owned()));
    assert_eq!(
        found(owner("ReplicaSet", "web-7d9c5b8f4d")),
        named("Deployment", "web")
    );
    assert_eq!(
        found(owner("ReplicaSet", "by-hand")),
        named("ReplicaSet", "by-hand")
    );
    assert_eq!(
        found(owner("DaemonSet", "agent")),
        named("DaemonSet", "agent")
    );
    assert_eq!(found(json!([])), None);
    let entry = told(pod(owner("StatefulSet", "db")));
    assert_eq!((&*entry.uid, &*entry.labels["app"]), ("u", "web"));
}

/// The cgroup of a pod from a file does not have the uid of the pod's object at the API server.
#[test]
fn a_pod_from_a_file_has_the_uid_of_the_file() {
    let pod = told(json!({
        "uid": "u", "namespace": "kube-system", "name": "etcd-n1", "annotations": { MIRROR: "0123", HASH: "0123" },
        "ownerReferences": [{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true }],
    }));
    assert_eq!((&*pod.uid, pod.workload), ("0123", None));
}

#[test]
fn namespaces_are_asked_for_only_by_selectors() {
    let held = |pods: Value| {
        let held = json!({
            "assignment": { "probe": "p", "revision": "r", "share": 1, "windows": 1 },
            "revisions": { "r": { "probe": "p", "digest": "", "config": { "pods": pods } } },
        });
        serde_json::from_value::<HeldProbe>(held).unwrap()
    };
    assert!(!needs_namespaces(
        [held(json!({ "labels": { "a": "b" } }))].iter()
    ));
    assert!(needs_namespaces(
        [held(json!({ "namespace_labels": { "a": "b" } }))].iter()
    ));
    let ended = HeldProbe {
        assignment: None,
        ..held(json!({ "namespace_labels": { "a": "b" } }))
    };
    assert!(!needs_namespaces([ended].iter()));
}
