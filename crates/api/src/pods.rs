//! The pods of a node, as a local agent reports them to the daemon, and the daemon's findings about
//! them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::config::present::present_object;

/// The body of `PUT /v1/pods`: all pods of the node, and the Services of its cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodTable {
    pub pods: Vec<PodEntry>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceEntry>,
}

/// A Service of the cluster, for the names of its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceEntry {
    pub namespace: String,
    pub name: String,
    /// The addresses that are the same in the whole cluster.
    pub addresses: Vec<IpAddr>,
}

/// A pod of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodEntry {
    /// The identity in the name of the pod's cgroup.
    pub uid: String,
    pub namespace: String,
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The labels of the pod's namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub namespace_labels: BTreeMap<String, String>,
    #[serde(
        default,
        deserialize_with = "present_object",
        skip_serializing_if = "Option::is_none"
    )]
    pub workload: Option<Workload>,
}

/// The owner of a pod, such as the Deployment `web`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub kind: String,
    pub name: String,
}

/// The answer of `GET /v1/pods`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodList {
    pub pods: Vec<PodStatus>,
    /// The number of Services that the daemon knows.
    #[serde(default)]
    pub services: usize,
    /// The reason why the daemon could not look for the pods. Then the answer has earlier findings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A pod, and the host's side of its interfaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodStatus {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub namespace_labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// The names of the interfaces in the daemon's network namespace that lead to the pod, sorted.
    pub interfaces: Vec<String>,
    /// The addresses in the pod's network namespace, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// The reason why the list of interfaces is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
