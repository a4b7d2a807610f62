//! The daemons of `serve --nodes`, and what they answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::series::Chart;
use crate::status::{ProbeStatus, ProbeTraffic, Word};

/// The answer of `GET /v1/nodes`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// In the order of the file.
    pub nodes: Vec<NodeStatus>,
}

/// A daemon of the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The node's name in the file.
    pub name: String,
    /// The node's address in the file.
    pub server: String,
    /// The node's labels in the file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The reason why the node gives no answer; `None` after an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<NodeProblem>,
    /// The node's name for its machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// The version of the daemon.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The traffic at the interfaces of its probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<ProbeTraffic>,
    pub probes: Vec<NodeProbe>,
}

/// The reason why a node lacks the requested data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeProblem {
    pub detail: String,
    /// The status by which the node refuses; `None` if it gave no answer that can be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}

/// A probe in the list of nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeProbe {
    pub name: String,
    /// `running` or `failed`.
    pub state: Word,
    /// The reason why the probe does not run, waits for an interface, or closes no window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub revision: u64,
    /// The number of interfaces where it runs, and the number of interfaces for which it waits.
    pub attached: usize,
    pub pending: usize,
    /// The nanoseconds that a packet takes in the slower direction: measured under traffic, or else
    /// from the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_per_packet: Option<f64>,
    /// The time from one window to the next in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// The number of retained windows, and of lost ones.
    pub windows: usize,
    pub lost: u64,
}

impl From<ProbeStatus> for NodeProbe {
    fn from(probe: ProbeStatus) -> Self {
        let attached = probe
            .interfaces
            .iter()
            .filter(|at| at.state == "attached")
            .count();
        let waits = probe
            .interfaces
            .iter()
            .filter(|at| at.state != "attached")
            .find_map(|at| at.reason.clone());
        let live = probe
            .cost
            .iter()
            .flat_map(|cost| &cost.live)
            .map(|live| live.ns_per_packet);
        let tried = probe
            .cost
            .iter()
            .flat_map(|cost| cost.tried.directions.values());
        let tried = tried.filter_map(|cost| Some(cost.run.as_ref()?.ns_per_packet as f64));
        Self {
            name: probe.name,
            state: probe.state,
            reason: probe.reason.or(waits).or(probe.windows.error),
            revision: probe.revision,
            attached,
            pending: probe.interfaces.len() - attached,
            ns_per_packet: live.reduce(f64::max).or(tried.reduce(f64::max)),
            interval: probe
                .config
                .and_then(|config| config.window)
                .and_then(|window| window.interval),
            windows: probe.windows.statistics.retained,
            lost: probe.windows.statistics.lost,
        }
    }
}

/// The answer of `GET /v1/nodes/series`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeCharts {
    pub nodes: Vec<NodeChart>,
}

/// The chart of a node, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeChart {
    /// The name of the node in the file.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Chart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<NodeProblem>,
}

/// The answer of `GET /v1/nodes/windows`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeDocuments {
    pub nodes: Vec<NodeDocument>,
}

/// The document of a node's newest window, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeDocument {
    /// The name of the node in the file.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<NodeProblem>,
}
