//! The progress of a rollout.

use serde::{Deserialize, Serialize};

/// The `status` of a `MonitoringProbe`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetStatus {
    /// The generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The name of the revision that is rolled out, or runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The last revision that has reached every node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stable: Option<String>,
    /// A revision that failed; it is not tried again until the object changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed_revision: Option<String>,
    /// The step: `canary`, a share such as `10%`, `complete` or `rolled back`. The condition
    /// `Progressing` says whether it is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The time at which the step began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_began: Option<String>,
    pub counts: FleetCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<WorstCost>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<FleetCondition>,
    /// The first ten failures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FleetFailure>,
}

/// The `status` of a `MonitoringRule`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetRuleStatus {
    /// The generation of the object that this status is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The name of the revision that nodes have, or that the operator judges by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    pub counts: FleetCounts,
    /// Nodes on which actions of the rule continue.
    pub firing: u64,
    /// The time from which the operator judges windows for a rule over the fleet, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The time at which a rule over the fleet has fired last, RFC 3339: the end of the windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fired: Option<String>,
    /// The time at which the actions of a rule over the fleet have ended last, RFC 3339: the end of
    /// the windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The reason why a rule over the fleet has stopped itself. It begins anew when the object
    /// changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<FleetCondition>,
    /// The first ten failures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<FleetFailure>,
}

/// Numbers of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetCounts {
    /// Nodes that the selector names.
    pub selected: u64,
    /// Nodes that have the revision, whether it runs or not.
    pub updated: u64,
    /// Nodes on which the revision runs.
    pub running: u64,
    /// Nodes that refused the revision, on which it failed, or on which it costs too much.
    pub failed: u64,
    /// Nodes that have no interface for the probe.
    pub excluded: u64,
    /// Nodes of the step that have not answered yet.
    pub silent: u64,
}

/// The highest cost of a probe, and where it was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorstCost {
    pub ns_per_packet: f64,
    pub node: String,
    /// The interface and direction; without it, the number is that of the trial at admission.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// A statement about an object, in the form of Kubernetes' own objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetCondition {
    /// `Accepted`, `Progressing`, `Available` or `Degraded`.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// One word in camel case.
    pub reason: String,
    /// One sentence for people.
    pub message: String,
    /// The time at which `status` changed, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
}

/// A node on which a rollout failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FleetFailure {
    pub node: String,
    /// `fetch`, `silent`, `budget`, or the stage of the daemon's refusal, such as `verify`; of a
    /// rule over the fleet `daemon`, `probe`, `collectors` or `action`.
    pub stage: String,
    pub reason: String,
}
